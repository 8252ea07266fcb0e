"""Masks that are rules in fact: causal ones and windows that a graph computes of positions alone.

Models write masks as comparisons of positions, also where torch has a flag. Where nothing but numbers goes into one, it is
computed when the graph is made, and compared with what the rules give.

Sizes may be symbols. What sums, products and comparisons make of positions changes its ways only where these meet the
graph's own numbers: so it is computed for sizes beyond all that the numbers can add or multiply up to, and where it is the
same rule for each, it is for all. Quotients and remainders, which never stop changing, are left.
"""

import math
import operator
from collections.abc import Callable, Iterable, Iterator

import torch
from torch.fx import Node

from wmma_ops.inductor import nodes
from wmma_ops.inductor.nodes import Order
from wmma_ops.ops.functions.attentions import CAUSAL

Sizes = dict  # of sympy's symbols

_MOST_NODES = 256
_MOST_ELEMENTS = 2**27  # of what a node gives
_FAR = 2**31  # numbers that no position meets
_PERIODIC = {operator.floordiv, operator.mod, torch.remainder}
_PRODUCTS = {operator.mul, torch.mul, "mul", "__mul__"}
_SUMS_OF_MANY = {torch.cumsum, "cumsum"}

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
    "masked_fill new_ones new_zeros new_full repeat_interleave __and__ __or__ __invert__ __getitem__ "
    "__add__ __sub__ __mul__ __eq__ __ne__ __le__ __lt__ __ge__ __gt__".split()
)


def rule_of(mask: Node, scores: tuple, order: Order) -> dict[str, int] | None:
    """What attention takes in the mask's place, of so many queries and keys; None where it is no such rule."""
    key = (mask, *map(str, scores))
    if key not in order.rules:
        order.rules[key] = _found(mask, scores, order)
    return order.rules[key]


def _found(mask: Node, scores: tuple, order: Order) -> dict[str, int] | None:
    needed = _needed(mask)
    if needed is None:
        return None
    rules = []
    for sizes in _sizes(needed, scores):
        made = _made(mask, needed, sizes, order)
        rules.append(None if made is None else _rule_of(made, [_at(size, sizes) for size in scores]))
        if rules[-1] is None:
            return None
    return rules[0] if rules and all(rule == rules[0] for rule in rules) else None


def _rule_of(made: torch.Tensor, scores: list[int]) -> dict[str, int] | None:
    if 0 in (made.numel(), *scores):
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


def _sizes(needed: set[Node], scores: tuple) -> Iterator[Sizes]:
    """For which sizes the mask is computed: those that there are, or some beyond what the graph's numbers say of them."""
    seen = [node.meta.get("example_value") for node in needed]
    shapes = [size for x in seen if isinstance(x, torch.Tensor) for size in x.shape]
    expressions = [x.node.expr for x in (*seen, *shapes, *scores) if isinstance(x, torch.SymInt)]
    symbols = sorted({symbol for one in expressions for symbol in one.free_symbols}, key=str)
    if not symbols:
        yield {}
        return
    if any(node.target in _PERIODIC for node in needed) or not all(map(_is_steady, expressions)):
        return
    numbers = [abs(x) for x in (*_numbers(needed), *_within(expressions)) if 0 < abs(x) < _FAR]
    if not all(x == int(x) for x in numbers):
        return
    total = sum(map(int, numbers))
    beyond = 2 + total
    if any(node.target in _PRODUCTS for node in needed):
        beyond += math.prod(map(int, numbers))
    if any(node.target in _SUMS_OF_MANY and not _are_predicates(node) for node in needed):
        beyond += total  # half the square of i is beyond c·i where i is beyond 2·c
    if beyond**2 <= _MOST_ELEMENTS:
        import sympy  # which torch has imported by now, for symbols

        for start, step in ((beyond, 3), (beyond + 8 * len(symbols), -5)):  # more keys than queries, and fewer
            yield {symbol: sympy.Integer(start + step * i) for i, symbol in enumerate(symbols)}


def _are_predicates(node: Node) -> bool:
    """Whether it is of true and false, no number."""
    first = node.all_input_nodes[0].meta.get("example_value")
    return isinstance(first, torch.Tensor) and first.dtype == torch.bool


def _is_steady(expression) -> bool:
    """Whether it is made of sums, products and the larger or lesser of two, as far as sizes go."""
    if expression.is_Integer or expression.is_Symbol:
        return True
    return type(expression).__name__ in ("Add", "Mul", "Max", "Min") and all(map(_is_steady, expression.args))


def _within(expressions: list) -> Iterator[int]:
    for one in expressions:
        yield from (int(atom) for atom in one.atoms() if atom.is_Integer)


def _numbers(needed: Iterable[Node]) -> list[float]:
    """All that the nodes compute with beside each other's results."""
    found: list[float] = []

    def keep(x: object) -> object:
        if isinstance(x, int | float) and math.isfinite(x):
            found.append(x)
        return x

    for node in needed:
        torch.fx.node.map_aggregate((node.args, node.kwargs), keep)
    return found


def _at(size, sizes: Sizes) -> int:
    return int(size.node.expr.xreplace(sizes)) if isinstance(size, torch.SymInt) else size


def _made(mask: Node, needed: set[Node], sizes: Sizes, order: Order) -> torch.Tensor | None:
    """The mask for these sizes; None where it is too large, or not made for them."""
    results: dict[Node, object] = {}
    waiting = {node: sum(user in needed for user in node.users) for node in needed}
    with nodes.without_modes(), torch.no_grad():
        for node in sorted(needed, key=lambda node: order.places[node].index):
            seen = node.meta.get("example_value")
            if isinstance(seen, torch.SymInt):
                results[node] = _at(seen, sizes)
                continue
            if isinstance(seen, torch.Tensor) and math.prod(_at(size, sizes) for size in seen.shape) > _MOST_ELEMENTS:
                return None
            args, keywords = torch.fx.map_arg((node.args, node.kwargs), results.__getitem__)
            args, keywords = [_here(x) for x in args], {name: _here(x) for name, x in keywords.items()}
            function = node.target if node.op == "call_function" else getattr(type(args[0]), node.target)
            try:
                results[node] = function(*args, **keywords)
            except (RuntimeError, ValueError, IndexError):  # sizes that the graph is not for
                return None
            for source in node.all_input_nodes:
                waiting[source] -= 1
                if not waiting[source]:
                    del results[source]  # a model's batch has many large ones
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
        if isinstance(seen, torch.SymInt):  # a number, whatever it is made of
            if not seen.node.has_hint():  # nobody knows it before the graph runs
                return None
            continue
        if len(needed) > _MOST_NODES or not _is_known(node) or any(nodes.in_place(user) for user in node.users):
            return None
        waiting.extend(node.all_input_nodes)
    return needed


def _is_known(node: Node) -> bool:
    if node.op == "call_method":
        return node.target in _METHODS
    return node.op == "call_function" and node.target in _FUNCTIONS
