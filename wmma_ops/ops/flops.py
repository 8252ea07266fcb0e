"""What the ops compute, for torch.utils.flop_counter.FlopCounterMode: two operations for each product that is summed up.

As torch counts its own: activations, scales and what is added cost nothing, nor is anything saved where a mask or
causality hides keys.
"""

from math import prod

import torch
from torch.utils.flop_counter import register_flop_formula

from wmma_ops.ops.library import NAMESPACES, overload, tensor_names


def _product(a, out) -> int:
    return 2 * prod(out) * a[-1]


def _matmul(a, b, *_, out_shape=None, **__) -> int:
    return _product(a, out_shape)


def _gemm(a, *others, out_shape=None, **named) -> int:
    a2 = (dict(zip(tensor_names(overload("gemm"))[1:], others, strict=False)) | named).get("a2")
    return _product(a, out_shape) + (0 if a2 is None else _product(a2, out_shape))


def _addmm(input, a, b, *_, out_shape=None, **__) -> int:
    return _product(a, out_shape)


def _addmm_(input, a, b, *_, **__) -> int:
    return _product(a, input)


def _gemm_gemm(a, b0, b1, c=None, bias0=None, bias1=None, gate=None, *_, out_shape=None, **__) -> int:
    rows, h = prod(out_shape[:-1]), b0[-1]
    return 2 * rows * h * (a[-1] * (1 if gate is None else 2) + out_shape[-1])


def _attention(q, k, v, *_, **__) -> int:
    return 2 * prod(q[:-1]) * k[-2] * (q[-1] + v[-1])


def _attention_backward(g_out, q, k, v, *_, **__) -> int:
    """The scores again, and the gradients of them, of Q, K and V."""
    return 2 * prod(q[:-1]) * k[-2] * (3 * q[-1] + 2 * v[-1])


FORMULAS = {
    "matmul": _matmul,
    "addmm": _addmm,
    "addmm_": _addmm_,
    "baddbmm": _addmm,
    "gemm": _gemm,
    "linear": _matmul,
    "gemm_gemm": _gemm_gemm,
    "attention": _attention,
    "scaled_mm": _matmul,
}

for _op, _formula in FORMULAS.items():
    register_flop_formula([getattr(getattr(torch.ops, namespace), _op) for namespace in NAMESPACES])(_formula)
register_flop_formula(torch.ops.wmma._attention_backward)(_attention_backward)
