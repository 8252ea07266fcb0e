"""Layers as the package `kernels` wants them: no state of their own, a `forward` that takes the place of another's.

Each works on the attributes of the layer that it is put into: `Linear` on torch.nn.Linear's, `GatedMLP` on those of
the MLPs of Llama, Qwen, Mistral and Gemma, `Attention` on none.
"""

import torch
from torch import nn

from wmma_ops.nn import rules
from wmma_ops.nn.activation import is_plain, name_of
from wmma_ops.ops import functions as ops

Tensor = torch.Tensor

# Those of transformers by class name: they are known without importing it.
_ACTIVATIONS = {
    "SiLUActivation": "silu",
    "GELUActivation": "gelu",
    "GELUTanh": "gelu_tanh",
    "NewGELUActivation": "gelu_tanh",
}


def activation_name(function: object) -> str | None:
    """Our name for an activation of torch or of transformers, or None where we have none for it."""
    return name_of(function) or _ACTIVATIONS.get(type(function).__name__)


def _is_linear(layer: nn.Module) -> bool:
    """A Linear that nothing has been put around: no adapter, no quantised weights, no hook, no forward of its own."""
    return type(layer) is nn.Linear and is_plain(layer)


def _linear(layer: nn.Module, x: Tensor) -> Tensor:
    """A plain Linear by our op, whatever else stands in its place by itself."""
    return ops.linear(x, layer.weight, layer.bias) if _is_linear(layer) else layer(x)


def _gated(gate: nn.Module, x: Tensor, function: object, up: Tensor) -> Tensor:
    name = activation_name(function)
    watched = isinstance(function, nn.Module) and not is_plain(function)
    if name is None or watched or not _is_linear(gate):
        return function(_linear(gate, x)) * up
    rows = x.reshape(-1, x.shape[-1])
    out = ops.gemm(rows, gate.weight.mT, bias=gate.bias, activation=name, multiply=up.reshape(-1, up.shape[-1]))
    return out.reshape(up.shape)


class Linear(nn.Module):
    """For torch.nn.Linear: x·weightᵀ + bias."""

    can_torch_compile = True
    has_backward = True

    def forward(self, input: Tensor) -> Tensor:
        return ops.linear(input, self.weight, self.bias)


class GatedMLP(nn.Module):
    """For an MLP with gate_proj, up_proj, down_proj and act_fn: down(act(gate(x))·up(x)), act and product in the gate's."""

    can_torch_compile = True
    has_backward = True

    def forward(self, x: Tensor) -> Tensor:
        return _linear(self.down_proj, _gated(self.gate_proj, x, self.act_fn, _linear(self.up_proj, x)))


class Attention(nn.Module):
    """For a function with the arguments of torch's scaled_dot_product_attention."""

    can_torch_compile = True
    has_backward = True

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        call, reason = rules.attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        if reason is not None:
            raise ValueError(f"Attention of wmma_ops: {reason}; takes what wmma_ops.attention takes")
        return call()
