"""A gate from the halves of one linear layer's result (GEGLU, SwiGLU): one half of the weight is the gate of the other."""

import operator
from collections.abc import Iterator

from torch.fx import Node

from wmma_ops.inductor import nodes
from wmma_ops.inductor.found import Fused, Half, Rewrite, Transposed, given
from wmma_ops.inductor.nodes import value
from wmma_ops.ops import activations


def rewrites(product: Fused) -> Iterator[Rewrite]:
    found = _gate(product)
    if found is None or _kept_apart(found[-1]):
        return
    act = found[-2]
    activated = act.args[0].args[1]
    of_halves = (("b", "bias", activated), ("gate", "gate_bias", 1 - activated))
    operands: dict[str, Node | Transposed | Half] = {
        weight: Transposed(Half(product.b, i)) for weight, _, i in of_halves
    }
    if product.bias is not None:
        operands |= {bias: Half(product.bias, i) for _, bias, i in of_halves}
    name = nodes.activation(act)
    covered = (*product.nodes, *found)
    bias = {"bias": product.bias} if product.bias is not None else {}
    whole = Rewrite("", "linear", product.nodes, {"x": product.a, "weight": product.b, **bias})
    yield Rewrite(
        f"{' + '.join(product.steps)}, a half of it + {name} + multiply",
        "gemm",
        covered,
        {"a": product.a, **operands},
        given(activation=activations.code("gemm", "activation", name)),
        has_epilogue=True,
        whole=whole,
    )


def why_apart(product: Fused) -> str:
    """Why halves that could be two products are not; empty where they are, or where none are."""
    found = _gate(product)
    return "" if found is None else _kept_apart(found[-1])


def _kept_apart(last: Node) -> str:
    if value(last).requires_grad:
        return (
            "its halves could be two products, were not: the gradients of half a weight would have to be put together"
        )
    return ""


def _gate(product: Fused) -> tuple[Node, ...] | None:
    """The nodes after a linear layer, of which the last two activate one half and multiply it by the other."""
    bare = product.is_weight and product.c is None and product.multiply is None and product.activation is None
    cut = nodes.sole_user(product.last)
    if not bare or product.alpha != 1 or cut is None or not _halves(cut, product) or value(product.a).dim() < 2:
        return None
    one, two = cut.users
    for half, other in ((one, two), (two, one)):
        act, last = nodes.sole_user(half), nodes.sole_user(other)
        if act is None or last is None or nodes.activation(act) is None or nodes.sole_user(act) is not last:
            continue
        taken = nodes.arguments(last)
        if nodes.kind(last) == "mul" and taken is not None and {taken["input"], taken["other"]} == {act, other}:
            return cut, half, other, act, last
    return None


def _halves(cut: Node, product: Fused) -> bool:
    """Whether the node cuts the product's result into halves by columns, and each is taken."""
    parts, whole = cut.meta.get("example_value"), product.result
    if nodes.name_of(cut) not in ("chunk", "split", "tensor_split") or not isinstance(parts, (tuple, list)):
        return False
    indices = {node.args[1] for node in cut.users if node.target is operator.getitem}
    columns = value(product.b).shape[0]
    if len(parts) != 2 or indices != {0, 1} or len(cut.users) != 2 or not isinstance(columns, int):
        return False
    sizes = (*whole.shape[:-1], columns // 2)
    return columns % 2 == 0 and all(
        part.dim() == whole.dim() and all(map(nodes.same, part.shape, sizes)) for part in parts
    )
