"""The derivatives of what training calls most, in the fewest steps: products of plain tensors with a bias or none.

The general way (autograd.py) asks who looks on, at both passes: transforms, graphs, subclasses, modes. Where there is
nobody, that takes longer than a small product and its gradients. What is computed is the same.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.autograd import Function

from wmma_ops.ops import activations, composite
from wmma_ops.ops.library import overload
from wmma_ops.ops.select import traced
from wmma_ops.ops.types import DIFFERENTIABLE
from wmma_ops.torch_internals import any_dispatch_mode, any_requires_grad, below_autograd, direct, is_one_of_many


class Shape(NamedTuple):
    """What the backward pass needs of a tensor that is only added: its values are neither kept nor watched for changes."""

    shape: torch.Size
    dtype: torch.dtype


_PLAIN = {torch.Tensor, torch.nn.Parameter, type(None)}
_RELU = 1
_MATMUL, _LINEAR = overload("matmul"), overload("linear")
GEMM_BACKWARD = direct(overload("_gemm_backward"))
LINEAR_BACKWARD = direct(overload("_linear_backward"))
# An op's formulas, as autograd.py registers them: f(grads, tensors, needs, outputs, **scalars), by name.
FORMULAS: dict[str, Callable] = {}


def nobody_looks_on(*tensors) -> bool:
    """Whether a call sees plain tensors alone, in no graph, transform or mode."""
    return _PLAIN.issuperset(map(type, tensors)) and not traced() and not any_dispatch_mode()


def once(g, *tensors) -> bool:
    """Whether one op may answer with several gradients, as nobody differentiates them again."""
    return not torch.is_grad_enabled() and not is_one_of_many(g) and nobody_looks_on(g, *tensors)


def call(op: str, keyset, inputs: tuple, scalars: dict):
    """The result of `op` with its derivative; None where the general way is to be gone."""
    node = _NODES.get(op)
    if node is None or not torch.is_grad_enabled() or not any_requires_grad(*inputs) or not nobody_looks_on(*inputs):
        return None
    return node(keyset, *inputs, **scalars)


def _spread(found: list[torch.Tensor], *asked: bool) -> tuple[torch.Tensor | None, ...]:
    """What came in the places of what was asked for."""
    answers = iter(found)
    return tuple(next(answers) if one else None for one in asked)


class WmmaMatmul(Function):
    @staticmethod
    def forward(ctx, keyset, a, b, out_dtype):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(a, b)
        return below_autograd(_MATMUL, composite.matmul, keyset, a, b, out_dtype=out_dtype)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        _, of_a, of_b, _ = ctx.needs_input_grad
        if g is None:
            return None, None, None, None
        if not once(g, a, b):
            found = FORMULAS["matmul"]((g,), {"a": a, "b": b}, {"a": of_a, "b": of_b}, (None,))
            return None, found.get("a"), found.get("b"), None
        return None, *_spread(GEMM_BACKWARD(g, a, b, of_a=of_a, of_b=of_b), of_a, of_b), None


def _matmul(keyset, a, b, *, out_dtype=None):
    if a is None or b is None or a.dim() < 2 or b.dim() < 2 or a.dtype not in DIFFERENTIABLE:
        return None
    return WmmaMatmul.apply(keyset, a, b, out_dtype)


class WmmaLinear(Function):
    @staticmethod
    def forward(ctx, keyset, x, weight, bias, activation):
        out = below_autograd(_LINEAR, composite.linear, keyset, x, weight, bias, activation=activation)
        ctx.set_materialize_grads(False)
        ctx.bias, ctx.activation = bias if bias is None else Shape(bias.shape, bias.dtype), activation
        if activation == 0:
            ctx.save_for_backward(x, weight)
        else:
            ctx.save_for_backward(x, weight, out)
        return out

    @staticmethod
    def backward(ctx, g):
        if g is None:
            return None, None, None, None, None
        x, weight, *rest = ctx.saved_tensors
        _, of_x, of_weight, of_bias, _ = ctx.needs_input_grad
        if not once(g, x, weight, *rest):
            tensors = {"x": x, "weight": weight, "bias": ctx.bias, "residual": None}
            needs = {"x": of_x, "weight": of_weight, "bias": of_bias, "residual": False}
            found = FORMULAS["linear"]((g,), tensors, needs, (*rest, None), activation=ctx.activation)
            return None, found.get("x"), found.get("weight"), found.get("bias"), None
        if ctx.activation == _RELU:
            g = activations.by_code(_RELU).backward(g, rest[0])
        bias_dtype = ctx.bias.dtype if of_bias else None
        found = LINEAR_BACKWARD(g, x, weight, of_x=of_x, of_weight=of_weight, bias_dtype=bias_dtype)
        return None, *_spread(found, of_x, of_weight, of_bias), None


def _linear(keyset, x, weight, bias=None, residual=None, *, activation=0):
    if x is None or weight is None or residual is not None or activation > _RELU:
        return None
    if x.dim() < 2 or x.dtype not in DIFFERENTIABLE or (bias is not None and bias.dim() != 1):
        return None
    return WmmaLinear.apply(keyset, x, weight, bias, activation)


_NODES = {"matmul": _matmul, "linear": _linear}
