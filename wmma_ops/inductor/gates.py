"""Two products of one operand, of which one is activated and multiplied by the other: gemm with a gate."""

from collections.abc import Iterator

from wmma_ops.inductor import nodes
from wmma_ops.inductor.found import Fused, Rewrite, given
from wmma_ops.inductor.nodes import Node, value
from wmma_ops.ops import activations


def rewrites(first: Fused, ends: dict[Node, Fused]) -> Iterator[Rewrite]:
    """`first` with the product that it is multiplied by, where nothing else uses that."""
    gate = None if first.multiply is None else ends.get(first.multiply)
    if gate is None or first.c is not None or first.alpha != 1 or not are_beside(gate, first):
        return
    tensors = {"a": first.a, "b": first.right, "bias": first.bias, "gate": gate.right, "gate_bias": gate.bias}
    yield Rewrite(
        f"{' + '.join(gate.steps)} beside {' + '.join(first.steps)}",
        "gemm",
        (*gate.nodes, *first.nodes),
        {name: x for name, x in tensors.items() if x is not None},
        given(activation=activations.code("gemm", "activation", first.activation)),
        has_epilogue=True,
        note=first.stops,
    )


def are_beside(gate: Fused, first: Fused) -> bool:
    """Whether the one is A·gate, and perhaps a bias, beside the other's A·B."""
    bare = gate.c is gate.activation is gate.multiply is None and gate.alpha == 1
    shared = gate.a is first.a and gate.is_weight == first.is_weight and nodes.sole_user(gate.last) in first.nodes
    matrices = min(value(first.a).dim(), value(first.b).dim()) >= 2
    return bare and shared and matrices and nodes.same_shape(value(gate.b), value(first.b))
