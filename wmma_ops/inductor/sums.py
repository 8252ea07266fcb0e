"""The sum of two products as one gemm of two pairs of operands: a layer and its adapter of low rank, a recurrent cell's
input and state."""

from collections.abc import Iterator

import torch
from torch.fx import Node

from wmma_ops.inductor import nodes
from wmma_ops.inductor.found import Fused, Rewrite, given, vanishes
from wmma_ops.inductor.nodes import value
from wmma_ops.ops import activations


def rewrites(second: Fused, ends: dict[Node, Fused]) -> Iterator[Rewrite]:
    """`second` with the product whose result is added to it, where nothing else uses that."""
    first = None if second.c is None else ends.get(second.c)
    if first is None or second.beta != 1 or nodes.sole_user(first.last) not in second.nodes:
        return
    if first.activation or first.multiply is not None or not nodes.same_shape(first.result, second.result):
        return
    if min(value(x).dim() for x in (first.a, first.b, second.a, second.b)) < 2:
        return
    biases = [x for x in (first.bias, second.bias) if x is not None]
    c, beta = first.c, first.beta
    if len(biases) == 2:
        if c is not None:
            return
        c, beta = biases.pop(), 1.0
    for main, other in ((first, second), (second, first)):
        if (narrow := _scaled_first(main, other, ends)) is None:
            continue
        a2, covered = narrow
        tensors = {
            "a": main.a,
            "b": main.right,
            "a2": a2,
            "b2": other.right,
            "c": c,
            "bias": biases[0] if biases else None,
            "multiply": second.multiply,
        }
        code = activations.code("gemm", "activation", second.activation)
        yield Rewrite(
            " beside ".join(_told(product, a2 if product is other else None) for product in (first, second)),
            "gemm",
            (*covered, *first.nodes, *second.nodes),
            {name: x for name, x in tensors.items() if x is not None},
            given(alpha=main.alpha, beta=beta, activation=code),
            has_epilogue=True,
            note=second.stops,
        )
        return


def _told(product: Fused, a: Node | Rewrite | None) -> str:
    steps = " + ".join(product.steps)
    return f"{a.pattern} → {steps}" if isinstance(a, Rewrite) else steps


def _scaled_first(main: Fused, other: Fused, ends: dict[Node, Fused]) -> tuple[Node | Rewrite, tuple] | None:
    """The other product's A, which takes what its factor is beyond the common one, and the nodes that make it; None where
    it cannot."""
    factor = other.alpha / main.alpha
    inner = ends.get(other.a)
    linear = inner is not None and nodes.sole_user(inner.last) is other.nodes[0] and _is_bare(inner)
    if not linear:
        return (other.a, ()) if factor == 1 else None
    alpha = inner.alpha * factor
    if vanishes(alpha) or (abs(alpha) > 1 and value(inner.last).dtype == torch.float16):  # which has no room for it
        return None
    operands = {"a": inner.a, "b": inner.right}
    return Rewrite(" + ".join(inner.steps), "gemm", inner.nodes, operands, given(alpha=alpha)), inner.nodes


def _is_bare(product: Fused) -> bool:
    """Whether a factor of its result is one of the product."""
    extras = (product.bias, product.c, product.multiply, product.activation)
    return all(x is None for x in extras) and min(value(x).dim() for x in (product.a, product.b)) >= 2
