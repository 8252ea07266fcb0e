"""Masks that are rules in fact: causal ones and windows that a graph computes of positions alone.

Models write masks as comparisons of positions, also where torch has a flag. Where nothing but numbers goes into one, it is
computed when the graph is made, and compared with what the rules give.
"""

import operator
from collections.abc import Callable

import torch
from torch.fx import Node

from wmma_ops.inductor import nodes
from wmma_ops.inductor.nodes import Order
from wmma_ops.ops.functions.attentions import CAUSAL

_MOST_NODES = 256
_MOST_ELEMENTS = 2**26  # of what a node gives

# What masks are made with. Each gives the same results on every device, and changes nothing.
_FUNCTIONS: set[Callable] = {
    getattr(operator, name)
    for name in "add sub mul floordiv mod neg pos abs getitem and_ or_ xor invert le lt ge gt eq ne".split()
} | {
    getattr(torch, name)
    for name in (
        "arange add sub mul eq ne le lt ge gt abs neg clamp minimum maximum remainder diff cumsum where ones zeros full "
        "ones_like zeros_like full_like tril triu logical_and logical_or logical_not logical_xor bitwise_and bitwise_or "
        "bitwise_not bitwise_xor unsqueeze squeeze reshape permute transpose cat stack broadcast_to"
    ).split()
}
_METHODS = set(
    "add sub mul eq ne le lt ge gt abs neg clamp diff cumsum where tril triu logical_and logical_or logical_not bool int "
    "long to type_as unsqueeze squeeze expand expand_as view reshape flatten permute transpose t contiguous clone detach "
    "masked_fill new_ones new_zeros new_full repeat_interleave __and__ __or__ __invert__ __getitem__".split()
)


def rule_of(mask: Node, scores: tuple[int, int], order: Order) -> dict[str, int] | None:
    """What attention takes in the mask's place, of so many queries and keys; None where it is no such rule."""
    if not all(isinstance(size, int) for size in scores):
        return None
    key = (mask, *scores)
    if key not in order.rules:
        order.rules[key] = _found(mask, scores, order)
    return order.rules[key]


def _found(mask: Node, scores: tuple[int, int], order: Order) -> dict[str, int] | None:
    made = _made(mask, order)
    if made is None or 0 in (made.numel(), *scores):
        return None
    if made.is_floating_point():
        if not ((made == 0) | (made == -torch.inf)).all():
            return None
        made = made == 0
    shown = made.broadcast_to(torch.broadcast_shapes(made.shape, scores)).reshape(-1, *scores)
    return _rule(shown[0]) if (shown == shown[0]).all() else None


def described(rule: dict[str, int]) -> str:
    """What the mask is, in words."""
    if not rule:
        return "whole"
    window = f", of a window of {rule['window_left'] + 1}" if "window_left" in rule else ""
    return ("causal" if rule["is_causal"] == CAUSAL["top_left"] else "causal from the last key on") + window


def _rule(shown: torch.Tensor) -> dict[str, int] | None:
    """What shows these keys to the queries."""
    if shown.all():
        return {}
    queries, keys = shown.shape
    for aligned, shift in (("top_left", 0), ("bottom_right", keys - queries)):
        distance = torch.arange(queries)[:, None] + shift - torch.arange(keys)  # of a key before a query
        if not shown.logical_and(distance < 0).any():
            seen = distance[shown]
            left = int(seen.max()) if len(seen) else 0
            if not torch.equal(shown, (distance >= 0) & (distance <= left)):
                continue
            is_window = bool((distance > left).any())
            return {"is_causal": CAUSAL[aligned]} | ({"window_left": left} if is_window else {})
    return None


def _made(mask: Node, order: Order) -> torch.Tensor | None:
    """The mask, if nothing but numbers goes into it."""
    needed = _needed(mask)
    if needed is None:
        return None
    results: dict[Node, object] = {}
    with nodes.without_modes(), torch.no_grad():
        for node in sorted(needed, key=lambda node: order.places[node].index):
            args, keywords = torch.fx.map_arg((node.args, node.kwargs), results.__getitem__)
            args, keywords = [_here(x) for x in args], {name: _here(x) for name, x in keywords.items()}
            function = node.target if node.op == "call_function" else getattr(type(args[0]), node.target)
            results[node] = function(*args, **keywords)
    return results[mask]


def _here(x: object) -> object:
    """An argument where the mask is computed now."""
    is_device = isinstance(x, torch.device) or (isinstance(x, str) and x.partition(":")[0] == "cuda")
    return torch.device("cpu") if is_device else x


def _needed(mask: Node) -> set[Node] | None:
    """All that the mask is computed of; None where that is more than numbers, or something changes it."""
    needed: set[Node] = set()
    waiting = [mask]
    while waiting:
        node = waiting.pop()
        if node in needed:
            continue
        needed.add(node)
        seen = node.meta.get("example_value")
        if len(needed) > _MOST_NODES or not _is_known(node) or any(nodes.in_place(user) for user in node.users):
            return None
        if isinstance(seen, torch.Tensor) and not (
            all(isinstance(size, int) for size in seen.shape) and seen.numel() <= _MOST_ELEMENTS
        ):
            return None
        waiting.extend(node.all_input_nodes)
    return needed


def _is_known(node: Node) -> bool:
    if node.op == "call_method":
        return node.target in _METHODS
    return node.op == "call_function" and node.target in _FUNCTIONS
