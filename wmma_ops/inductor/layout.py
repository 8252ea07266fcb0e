"""Whether the nodes after a result take it as our ops lay it out, where torch's had other strides."""

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from wmma_ops.inductor.nodes import value
from wmma_ops.torch_internals import is_higher_order


def refused(node: Node, out: torch.Tensor) -> str:
    """Why `out` cannot stand in the place of the node's result; empty where it can.

    Follows the other strides through the graph until they are as they were: `view` is what fails on the way.
    """
    changed = {node: out}
    if _strides(out) == _strides(value(node)):
        return ""
    for user in list(node.graph.nodes):
        if user.op == "output" or not any(x in changed for x in user.all_input_nodes):
            continue
        if user.op not in ("call_function", "call_method") or is_higher_order(user.target):
            return f"{user.name} takes it with torch's strides"
        before = value(user)
        if before is None:
            continue  # no tensor, or several: sizes, which do not change, or what splits it
        try:
            after = _computed(user, changed)
        except (RuntimeError, ValueError) as error:
            return f"{user.name} needs torch's strides: {str(error).splitlines()[0]}"
        if _strides(after) != _strides(before):
            changed[user] = after
    return ""


def _computed(node: Node, changed: dict[Node, torch.Tensor]) -> torch.Tensor:
    def fake(x: Node) -> object:
        return changed[x] if x in changed else x.meta.get("example_value", x.meta.get("val"))

    args, kwargs = map_arg((node.args, node.kwargs), fake)
    with torch.no_grad():
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        return node.target(*args, **kwargs)


def _strides(x: torch.Tensor) -> tuple:
    """By their hints: symbols would make guards."""
    sizes = [size.node.hint if isinstance(size, torch.SymInt) else size for size in x.shape]
    strides = [stride.node.hint if isinstance(stride, torch.SymInt) else stride for stride in x.stride()]
    return tuple(stride for size, stride in zip(sizes, strides, strict=True) if size != 1)
