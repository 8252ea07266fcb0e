"""Two linear layers with an activation, and perhaps a gate, between them."""

import torch
from torch import nn

from wmma_ops.nn.activation import apply, is_plain, records_gradient
from wmma_ops.nn.linear import Linear, linear
from wmma_ops.ops import activations
from wmma_ops.ops import functions as ops

Tensor = torch.Tensor


def mlp(
    x: Tensor, first: nn.Linear, second: nn.Linear, activation: str, *, up: nn.Linear | None = None, recompute=False
) -> Tensor:
    """``second(act(first(x)))`` or, with `up`, ``second(act(first(x))·up(x))``, in one op where that costs nothing more.

    Where gradients are recorded, what lies between the layers is kept, unless `recompute`.
    """
    weights = (second.weight, second.bias, first.weight, first.bias, *((up.weight, up.bias) if up is not None else ()))
    if records_gradient(x, *weights) and not recompute:
        return linear(_hidden(x, first, activation, up), second.weight, second.bias)
    if vector := x.dim() == 1:
        x = x.unsqueeze(0)
    if up is not None and up.bias is not None:  # the op's gate has no bias
        factor = ops.linear(x, up.weight, up.bias)
        h = ops.gemm(x, first.weight.mT, bias=first.bias, activation=activation, multiply=factor)
        out = ops.linear(h, second.weight, second.bias)
    else:
        out = ops.gemm_gemm(
            x,
            first.weight.mT,
            second.weight.mT,
            bias0=first.bias,
            bias1=second.bias,
            activation=activation,
            gate=None if up is None else up.weight.mT,
        )
    return out.squeeze(0) if vector else out


def _hidden(x, first, activation, up):
    if up is None:
        return linear(x, first.weight, first.bias, activation)
    return apply(activation, ops.linear(x, first.weight, first.bias)) * ops.linear(x, up.weight, up.bias)


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
        recompute: fuse in training too: nothing between the layers is kept, and the backward pass multiplies again.
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
        layers = [self._modules[name] for name in self.names]
        first, second = layers[0], layers[-1]
        up = layers[1] if len(layers) == 3 else None
        drops = self.training and self.dropout.p > 0
        if not drops and all(is_plain(layer) for layer in layers):
            return mlp(input, first, second, self.activation, up=up, recompute=self.recompute)
        h = apply(self.activation, first(input))
        return second(self.dropout(h if up is None else h * up(input)))

    def extra_repr(self) -> str:
        return f"activation={self.activation!r}"
