"""Fakes of products."""

import torch

from wmma_ops.ops import activations
from wmma_ops.ops.fakes.checks import (
    broadcast,
    check,
    factor_of_c,
    fits,
    output_type,
    product_shape,
    refuse,
    refused_by_library,
    require,
    same_device,
    same_sizes,
    vector,
)  # fmt: skip
from wmma_ops.ops.library import arguments, overload, tensor_names
from wmma_ops.ops.sizes import is_matrix_scale, known, lies_by_columns
from wmma_ops.ops.types import DIFFERENTIABLE, FP8_FNUZ, FP8_OCP


@refused_by_library
def matmul(a, b, *, out_dtype=None):
    require(a, b)
    same_device("matmul", a, b=b)
    out = output_type(a, b, out_dtype)
    if a.dim() == 0 or b.dim() == 0:
        refuse()
    matrix_a = a if a.dim() > 1 else a.unsqueeze(0)
    matrix_b = b if b.dim() > 1 else b.unsqueeze(1)
    shape = list(product_shape(matrix_a, matrix_b))
    if a.dim() == 1:
        del shape[-2]
    if b.dim() == 1:
        del shape[-1]
    return a.new_empty(shape, dtype=out)


def _sum(op, rank, input, a, b, out_dtype):
    """Shape and type of a product to which `input` is added."""
    require(input, a, b)
    same_device(op, a, input=input, b=b)
    if a.dim() != rank or b.dim() != rank:
        refuse()
    out = output_type(a, b, out_dtype)
    if rank == 3:
        check(a.shape[0] == b.shape[0])
    shape = product_shape(a, b)
    fits(shape, input)
    return shape, out


@refused_by_library
def addmm(input, a, b, *, beta=1.0, alpha=1.0, out_dtype=None):
    shape, out = _sum("addmm", 2, input, a, b, out_dtype)
    return a.new_empty(shape, dtype=out)


@refused_by_library
def baddbmm(input, a, b, *, beta=1.0, alpha=1.0, out_dtype=None):
    shape, out = _sum("baddbmm", 3, input, a, b, out_dtype)
    return a.new_empty(shape, dtype=out)


@refused_by_library
def addmm_(input, a, b, *, beta=1.0, alpha=1.0):
    require(input, a, b)
    shape, _ = _sum("addmm_", 2, input, a, b, input.dtype)
    same_sizes(input.shape, shape)


@refused_by_library
def gemm(*tensors, **scalars):
    t = arguments("gemm", tensors, scalars)
    a, b = t.a, t.b
    require(a, b)
    same_device("gemm", a, **{name: getattr(t, name) for name in tensor_names(overload("gemm"))[1:]})
    factor_of_c(t.beta, t.c)
    out = output_type(a, b, t.out_dtype)
    shape = product_shape(a, b)
    if t.a2 is not None or t.b2 is not None:
        shape = _with_second_pair(shape, a, b, t.a2, t.b2)
    rows = (*shape[:-2], shape[-2])
    columns = (*shape[:-2], shape[-1])
    fits(shape, t.c, t.multiply)
    vector(columns, t.bias)
    fits(columns, t.col_scale)
    fits(rows, t.row_scale)
    fits((*shape[:-2], a.shape[-1]), t.a_scale)
    if t.gate is not None or t.gate_bias is not None:
        if t.gate is None or t.multiply is not None or t.a_scale is not None or t.a_activation != 0:
            refuse()
        _gate(product_shape(a, b), b, t.gate, t.gate_bias)
    return a.new_empty(shape, dtype=out)


def _gate(shape, b, gate, gate_bias):
    check(gate.dtype == b.dtype)
    same_sizes(gate.shape, b.shape)
    vector((*shape[:-2], shape[-1]), gate_bias)


def _with_second_pair(shape, a, b, a2, b2):
    """The shape of the sum of two products, the first's given."""
    require(a2, b2)
    if a2.dtype != a.dtype or b2.dtype != b.dtype:
        refuse()
    *batch, m, n = product_shape(a2, b2)
    check(m == shape[-2])
    check(n == shape[-1])
    return (*broadcast(shape[:-2], batch), *shape[-2:])


@refused_by_library
def linear(x, weight, bias=None, residual=None, *, activation=0):
    require(x, weight)
    same_device("linear", x, weight=weight, bias=bias, residual=residual)
    if x.dim() == 0 or weight.dim() != 2:
        refuse()
    out = output_type(x, weight, None)
    matrix = x if x.dim() > 1 else x.unsqueeze(0)
    shape = product_shape(matrix, weight.t())
    fits(shape, residual)
    vector((*shape[:-2], shape[-1]), bias)
    return x.new_empty(shape if x.dim() > 1 else shape[1:], dtype=out)


@refused_by_library
def gemm_gemm(*tensors, **scalars):
    t = arguments("gemm_gemm", tensors, scalars)
    a, b0, b1, gate = t.a, t.b0, t.b1, t.gate
    require(a, b0, b1)
    factor_of_c(t.beta1, t.c)
    same_device("gemm_gemm", a, **{name: getattr(t, name) for name in tensor_names(overload("gemm_gemm"))[1:]})
    output_type(a, b0, None)
    out = output_type(a, b1, t.out_dtype)
    inner = a.new_empty(product_shape(a, b0))
    shape = product_shape(inner, b1)
    fits(shape, t.c)
    vector((*inner.shape[:-2], inner.shape[-1]), t.bias0)
    vector((*shape[:-2], shape[-1]), t.bias1)
    if gate is not None:
        same_sizes(gate.shape, b0.shape)
    return a.new_empty(shape, dtype=out)


def _differentiable(a):
    if a.dtype not in DIFFERENTIABLE:
        refuse()


@torch.library.register_fake("wmma::_gemm_aux")
@refused_by_library
def _gemm_aux(a, b, c=None, bias=None, multiply=None, *, alpha=1.0, beta=1.0, activation=0):
    out = gemm(a, b, c, bias, multiply=multiply, alpha=alpha, beta=beta, activation=activation)
    _differentiable(a)
    return out, torch.empty_like(out)


@torch.library.register_fake("wmma::_linear_aux")
@refused_by_library
def _linear_aux(x, weight, bias=None, residual=None, *, activation=0):
    out = linear(x, weight, bias, residual, activation=activation)
    _differentiable(x)
    aux = out if x.dim() > 1 else out.unsqueeze(0)
    return out, torch.empty_like(aux)


@torch.library.register_fake("wmma::_gated_aux")
@refused_by_library
def _gated_aux(a, b, gate, bias=None, gate_bias=None, *, activation=0):
    require(a, b, gate)
    same_device("_gated_aux", a, b=b, gate=gate, bias=bias, gate_bias=gate_bias)
    out = output_type(a, b, None)
    _differentiable(a)
    shape = product_shape(a, b)
    vector((*shape[:-2], shape[-1]), bias)
    _gate(shape, b, gate, gate_bias)
    return tuple(a.new_empty(shape, dtype=out) for _ in range(3))


def _gradients(g, a, b, s, activation, of_a, of_b, of_s, bias_dtype, multiply=None, of_multiply=False):
    """Those of a product, as many as are asked for, and how they lie."""
    output_type(a, b, None)
    _differentiable(a)
    shape = product_shape(a, b)
    same_sizes(g.shape, shape)
    if (s is None) != (activation == 0 and multiply is None) or not 0 <= activation < len(activations.BUILTIN):
        refuse()
    if of_multiply and multiply is None:
        refuse()
    for x in (s, multiply):
        if x is not None:
            same_sizes(x.shape, shape)
            if not x.dtype == g.dtype == a.dtype:
                refuse()
    found = [_laid_out_as(x) for x, is_asked in ((a, of_a), (b, of_b)) if is_asked]
    if bias_dtype is not None:
        found.append(g.new_empty(shape[-1:], dtype=bias_dtype))
    return found + [g.new_empty(shape) for is_asked in (of_s, of_multiply) if is_asked]


def _laid_out_as(x):
    return x.new_empty(x.mT.shape).mT if lies_by_columns(x) else x.new_empty(x.shape)


@torch.library.register_fake("wmma::_gemm_slopes")
@refused_by_library
def _gemm_slopes(g, b, s, multiply=None, *, activation=0):
    require(g, b, s)
    same_device("_gemm_slopes", g, b=b, s=s, multiply=multiply)
    out = output_type(g, b, None)
    _differentiable(g)
    shape = product_shape(g, b)
    if not 0 <= activation < len(activations.BUILTIN) or (activation == 0 and multiply is None):
        refuse()
    for x in (s, multiply):
        if x is not None:
            same_sizes(x.shape, shape)
            if x.dtype != g.dtype:
                refuse()
    return [g.new_empty(shape, dtype=out) for x in (s, multiply) if x is not None]


@torch.library.register_fake("wmma::_gemm_backward")
@refused_by_library
def _gemm_backward(
    g,
    a,
    b,
    s=None,
    multiply=None,
    *,
    alpha=1.0,
    activation=0,
    of_a=True,
    of_b=True,
    of_s=False,
    of_multiply=False,
    bias_dtype=None,
):
    require(g, a, b)
    same_device("_gemm_backward", a, g=g, b=b, s=s, multiply=multiply)
    return _gradients(g, a, b, s, activation, of_a, of_b, of_s, bias_dtype, multiply, of_multiply)


@torch.library.register_fake("wmma::_linear_backward")
@refused_by_library
def _linear_backward(g, x, weight, s=None, *, activation=0, of_x=True, of_weight=True, of_s=False, bias_dtype=None):
    require(g, x, weight)
    same_device("_linear_backward", x, g=g, weight=weight, s=s)
    if weight.dim() != 2:
        refuse()
    found = _gradients(g, x, weight.mT, s, activation, of_x, of_weight, of_s, bias_dtype)
    if of_weight:
        found[int(of_x)] = found[int(of_x)].mT
    return found


@refused_by_library
def scaled_mm(a, b, scale_a, scale_b, bias=None, *, out_dtype=None):
    require(a, b, scale_a, scale_b)
    same_device("scaled_mm", a, b=b, scale_a=scale_a, scale_b=scale_b, bias=bias)
    if a.dtype not in (torch.int8, *FP8_OCP, *FP8_FNUZ):
        refuse()
    out = output_type(a, b, out_dtype or torch.bfloat16)
    shape = product_shape(a, b)
    columns = (*shape[:-2], shape[-1])
    fits(shape[:-1], _short_scale(scale_a, a, -1))
    fits(columns, _short_scale(scale_b, b, -2))
    vector(columns, bias)
    return a.new_empty(shape, dtype=out)


def _short_scale(scale, operand, one):
    """A scale as a vector: without its dimension of one, or without any where it is one element."""
    if all(known(size == 1) for size in scale.shape):
        return scale.new_empty(())
    return scale.squeeze(one) if is_matrix_scale(scale.shape, operand.shape, one) else scale
