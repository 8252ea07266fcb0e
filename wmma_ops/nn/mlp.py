"""Two linear layers with an activation, and perhaps a gate, between them."""

import itertools
from typing import NamedTuple

import torch
from torch import nn

from wmma_ops.nn.activation import apply, is_nested, is_plain, records_gradient
from wmma_ops.nn.linear import Affine, Linear, for_one_node, linear, low_rank, product
from wmma_ops.ops import activations, nodes
from wmma_ops.ops import functions as ops
from wmma_ops.ops.kept import keeps_in_graphs

Tensor = torch.Tensor


class Gate(NamedTuple):
    """``act(gate(x))·up(x)``; without `up`, the halves of one layer's result, of which the one is `activated`."""

    gate: Affine
    up: Affine | None
    activation: str
    activated: int = 0

    def tensors(self) -> tuple[Tensor | None, ...]:
        return *self.gate.tensors(), *(self.up.tensors() if self.up is not None else ())

    def layers(self) -> tuple[Affine, Affine]:
        """What is activated, and what it is multiplied by."""
        if self.up is not None:
            return self.gate, self.up
        halves = self.gate.halves()
        return halves[self.activated], halves[1 - self.activated]


def gated(x: Tensor, gate: Gate, *, recompute: bool = False) -> Tensor:
    """Two products, the second of which activates and multiplies; one node to autograd, or where gradients are recorded
    otherwise, that is apart."""
    is_builtin = activations.is_builtin(gate.activation)
    if not recompute and is_builtin and (tensors := _of_one_node(x, gate.gate, gate.up)):
        return nodes.layer("gated", *tensors, activation=_code(gate.activation))
    alone = recompute or not records_gradient(x, *gate.tensors())
    if alone or (gate.up is not None and is_builtin and keeps_in_graphs(x, *gate.tensors())):
        first, factor = gate.layers()
        if first.adapter is factor.adapter is None:
            return _at_once(x, first, factor, gate.activation)
    if alone:
        # The halves of one layer share what its adapter multiplies first.
        low = low_rank(x, first.adapter) if gate.up is None and first.adapter is not None else None
        return product(x, first, gate.activation, multiply=product(x, factor, low=low), low=low)
    if gate.up is not None:
        return apply(gate.activation, product(x, gate.gate)) * product(x, gate.up)
    halves = product(x, gate.gate).chunk(2, -1)
    return apply(gate.activation, halves[gate.activated]) * halves[1 - gate.activated]


def _at_once(x: Tensor, first: Affine, factor: Affine, activation: str) -> Tensor:
    if x.dim() == 1:
        return _at_once(x.unsqueeze(0), first, factor, activation).squeeze(0)
    biases = {"bias": first.bias, "gate_bias": factor.bias}
    return ops.gemm(x, first.weight.mT, gate=factor.weight.mT, activation=activation, **biases)


def _of_one_node(x: Tensor, *layers: Affine | None) -> tuple[Tensor | None, ...]:
    """x, and each layer's weight and bias, where autograd sees one node (csrc/nodes/layers.hpp); empty where it does not."""
    if None in layers or any(layer.adapter is not None for layer in layers):
        return ()
    of_one_type = for_one_node(x, *(layer.weight for layer in layers))
    if not of_one_type:
        return ()
    biases = (layer.bias for layer in layers)
    return of_one_type[0], *itertools.chain(*zip(of_one_type[1:], biases, strict=True))


def _code(activation: str | None) -> int:
    return activations.code("nn", "activation", activation)


def _as_one_node(x: Tensor, first: Affine | Gate, second: Affine, activation: str | None) -> Tensor | None:
    """Nothing where nothing of what comes first would be kept, or it does not activate."""
    is_gated = isinstance(first, Gate)
    before, activation = ((first.gate, first.up), first.activation) if is_gated else ((first,), activation)
    activates = activations.is_builtin(activation) and (is_gated or activation != "none")
    if not activates or not records_gradient(x, *first.tensors()):
        return None
    tensors = _of_one_node(x, *before, second)
    if tensors and not is_gated:
        tensors = (*tensors[:3], None, None, *tensors[3:])
    return nodes.layer("mlp", *tensors, activation=_code(activation)) if tensors else None


def mlp(
    x: Tensor, first: Affine | Gate, second: Affine, activation: str | None = None, *, recompute: bool = False
) -> Tensor:
    """``second(act(first(x)))`` or, gated, ``second(act(gate(x))·up(x))``, in one op where that costs nothing more.

    Where gradients are recorded, what lies between the layers is kept, unless `recompute`.
    """
    if records_gradient(x, *first.tensors(), *second.tensors()) and not recompute:
        if (out := _as_one_node(x, first, second, activation)) is not None:
            return out
        return product(_hidden(x, first, activation), second)
    if isinstance(first, Gate):
        (b0, gate), activation = first.layers(), first.activation
    else:
        b0, gate = first, None
    adapted = any(layer is not None and layer.adapter is not None for layer in (b0, gate, second))
    if adapted or (gate is not None and gate.bias is not None):  # for which the op has no place
        return product(_hidden(x, first, activation, recompute=recompute), second)
    if vector := x.dim() == 1:
        x = x.unsqueeze(0)
    out = ops.gemm_gemm(
        x,
        b0.weight.mT,
        second.weight.mT,
        bias0=b0.bias,
        bias1=second.bias,
        activation=activation,
        gate=None if gate is None else gate.weight.mT,
    )
    return out.squeeze(0) if vector else out


def _hidden(x: Tensor, first: Affine | Gate, activation: str | None, *, recompute: bool = False) -> Tensor:
    if isinstance(first, Gate):
        return gated(x, first, recompute=recompute)
    return linear(x, first, activation, recompute=recompute)


class FusedMLP(nn.Module):
    """``down(act(up(x)))`` or, gated, ``down(act(gate(x))·up(x))`` in one op.

    The state_dict is that of ``torch.nn.Sequential(Linear, activation, Linear)``, or, gated, of Llama's ``gate_proj``,
    ``up_proj``, ``down_proj``; with `names` of any two (three) linear layers.

    Args:
        in_features, hidden_features, out_features: sizes; out_features is in_features by default.
        activation: as for ``wmma_ops.gemm``.
        gated: multiply by a third layer.
        bias: of every layer.
        dropout: between the layers, in training.
        names: the layers' names in the state_dict: two, or three (gate, up, down).
        recompute: keep nothing between the layers in training: the backward pass multiplies again.
        device, dtype: as for ``torch.nn.Linear``.

    Examples:
        >>> import torch, wmma_ops
        >>> plain = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
        >>> mlp = wmma_ops.nn.FusedMLP(64, 256, activation="gelu")
        >>> mlp.load_state_dict(plain.state_dict())
        <All keys matched successfully>
        >>> with torch.no_grad():
        ...     y = mlp(torch.randn(8, 64))
        >>> list(wmma_ops.nn.FusedMLP(64, 256, activation="silu", gated=True, bias=False).state_dict())
        ['gate_proj.weight', 'up_proj.weight', 'down_proj.weight']
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int | None = None,
        *,
        activation: str = "gelu",
        gated: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
        names: tuple[str, ...] | None = None,
        recompute: bool = False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        activations.code("nn.FusedMLP", "activation", activation)
        names = tuple(names or (("gate_proj", "up_proj", "down_proj") if gated else ("0", "2")))
        if len(set(names)) != 2 + gated or len(names) != 2 + gated:
            raise ValueError(f"wmma.nn.FusedMLP: names is {names!r}; takes {2 + gated} different names")
        out_features = in_features if out_features is None else out_features
        self.activation, self.names, self.recompute = activation, names, recompute
        for name in names[:-1]:
            self.add_module(name, Linear(in_features, hidden_features, bias, device, dtype))
        self.add_module(names[-1], Linear(hidden_features, out_features, bias, device, dtype))
        self.dropout = nn.Dropout(dropout)

    def forward(self, input: Tensor) -> Tensor:
        layers = [getattr(self, name) for name in self.names]
        first, second = layers[0], layers[-1]
        up = layers[1] if len(layers) == 3 else None
        drops = self.training and self.dropout.p > 0
        if not drops and not is_nested(input) and all(is_plain(layer) for layer in layers):
            operands = [Affine(layer.weight, layer.bias) for layer in layers]
            before = operands[0] if up is None else Gate(operands[0], operands[1], self.activation)
            return mlp(input, before, operands[-1], self.activation, recompute=self.recompute)
        h = apply(self.activation, first(input))
        return second(self.dropout(h if up is None else h * up(input)))

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}"
