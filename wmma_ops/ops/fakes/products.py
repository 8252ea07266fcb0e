"""Fakes of products."""

from functools import partial

import torch

from wmma_ops.ops.fakes.checks import (
    check,
    factor_of_c,
    fail,
    fits,
    output_type,
    product_shape,
    require,
    same_device,
    same_sizes,
    vector,
)  # fmt: skip
from wmma_ops.ops.sizes import is_matrix_scale, known
from wmma_ops.ops.types import FP8_FNUZ, FP8_OCP, OUTPUTS, listed, name


def matmul(a, b, *, out_dtype=None):
    require("matmul", a=a, b=b)
    same_device("matmul", a, b=b)
    out = output_type("matmul", "a", a, "b", b, out_dtype)
    for argument, x in (("a", a), ("b", b)):
        if x.dim() == 0:
            fail("matmul", argument, "has shape []; takes 1 dimension or more")
    matrix_a = a if a.dim() > 1 else a.unsqueeze(0)
    matrix_b = b if b.dim() > 1 else b.unsqueeze(1)
    shape = list(product_shape("matmul", "a", matrix_a, "b", matrix_b))
    if a.dim() == 1:
        del shape[-2]
    if b.dim() == 1:
        del shape[-1]
    return a.new_empty(shape, dtype=out)


def _sum(op, rank, input, a, b, out_dtype):
    """Shape and type of a product to which `input` is added."""
    require(op, input=input, a=a, b=b)
    same_device(op, a, input=input, b=b)
    for argument, x in (("a", a), ("b", b)):
        if x.dim() != rank:
            fail(op, argument, f"has shape {list(x.shape)}; takes {rank} dimensions")
    out = output_type(op, "a", a, "b", b, out_dtype)
    if rank == 3:
        check(a.shape[0] == b.shape[0], op, "b", lambda: f"has shape {list(b.shape)}; takes the batch size of a")
    shape = product_shape(op, "a", a, "b", b)
    fits(op, shape, input=input)
    return shape, out


def addmm(input, a, b, *, beta=1.0, alpha=1.0, out_dtype=None):
    shape, out = _sum("addmm", 2, input, a, b, out_dtype)
    return a.new_empty(shape, dtype=out)


def baddbmm(input, a, b, *, beta=1.0, alpha=1.0, out_dtype=None):
    shape, out = _sum("baddbmm", 3, input, a, b, out_dtype)
    return a.new_empty(shape, dtype=out)


def addmm_(input, a, b, *, beta=1.0, alpha=1.0):
    op = "addmm_"
    require(op, input=input, a=a, b=b)
    if input.dtype not in OUTPUTS.get(a.dtype, (input.dtype,)):
        fail(
            op,
            "input",
            f"is {name(input.dtype)}; takes {listed(*OUTPUTS[a.dtype])} for {name(a.dtype)} operands",
            TypeError,
        )
    shape, _ = _sum(op, 2, input, a, b, input.dtype)
    text = partial("has shape {}; takes {}, the shape of the product".format, list(input.shape), list(shape))
    same_sizes(input.shape, shape, op, "input", text)


def gemm(
    a,
    b,
    c=None,
    bias=None,
    row_scale=None,
    col_scale=None,
    a_scale=None,
    multiply=None,
    a2=None,
    b2=None,
    *,
    alpha=1.0,
    beta=1.0,
    a_activation=0,
    activation=0,
    out_dtype=None,
):
    op = "gemm"
    require(op, a=a, b=b)
    beside = {"c": c, "bias": bias, "row_scale": row_scale, "col_scale": col_scale, "a_scale": a_scale}
    same_device(op, a, b=b, **beside, multiply=multiply, a2=a2, b2=b2)
    factor_of_c(op, "beta", beta, c)
    out = output_type(op, "a", a, "b", b, out_dtype)
    shape = product_shape(op, "a", a, "b", b)
    if a2 is not None or b2 is not None:
        shape = _with_second_pair(op, shape, a, b, a2, b2)
    rows = (*shape[:-2], shape[-2])
    columns = (*shape[:-2], shape[-1])
    fits(op, shape, c=c, multiply=multiply)
    vector(op, columns, bias=bias)
    fits(op, columns, col_scale=col_scale)
    fits(op, rows, row_scale=row_scale)
    fits(op, (*shape[:-2], a.shape[-1]), a_scale=a_scale)
    return a.new_empty(shape, dtype=out)


def _with_second_pair(op, shape, a, b, a2, b2):
    """The shape of the sum of two products, the first's given."""
    for argument, x, other in (("a2", a2, "b2"), ("b2", b2, "a2")):
        if x is None:
            fail(op, argument, f"is None; takes a tensor beside {other}, or neither of the two", TypeError)
    for argument, x, like, first in (("a2", a2, a, "a"), ("b2", b2, b, "b")):
        if x.dtype != like.dtype:
            fail(op, argument, f"is {name(x.dtype)}; takes {name(like.dtype)}, as {first} has", TypeError)
    *batch, m, n = product_shape(op, "a2", a2, "b2", b2)
    check(
        m == shape[-2], op, "a2", lambda: f"has shape {list(a2.shape)}; takes as many rows as a, {list(a.shape)}, has"
    )
    check(
        n == shape[-1],
        op,
        "b2",
        lambda: f"has shape {list(b2.shape)}; takes as many columns as b, {list(b.shape)}, has",
    )
    try:
        joint = torch.broadcast_shapes(shape[:-2], batch)
    except RuntimeError:
        fail(op, "a2", f"has shape {list(a2.shape)}; takes batch dimensions that broadcast with those of a and b")
    return (*joint, *shape[-2:])


def linear(x, weight, bias=None, residual=None, *, activation=0):
    require("linear", x=x, weight=weight)
    same_device("linear", x, weight=weight, bias=bias, residual=residual)
    if x.dim() == 0:
        fail("linear", "x", "has shape []; takes 1 dimension or more")
    if weight.dim() != 2:
        fail("linear", "weight", f"has shape {list(weight.shape)}; takes 2 dimensions")
    out = output_type("linear", "x", x, "weight", weight, None)
    matrix = x if x.dim() > 1 else x.unsqueeze(0)
    shape = product_shape("linear", "x", matrix, "weight", weight.t())
    fits("linear", shape, residual=residual)
    vector("linear", (*shape[:-2], shape[-1]), bias=bias)
    return x.new_empty(shape if x.dim() > 1 else shape[1:], dtype=out)


def gemm_gemm(
    a,
    b0,
    b1,
    c=None,
    bias0=None,
    bias1=None,
    gate=None,
    *,
    alpha0=1.0,
    alpha1=1.0,
    beta1=1.0,
    activation=0,
    out_dtype=None,
):
    op = "gemm_gemm"
    require(op, a=a, b0=b0, b1=b1)
    factor_of_c(op, "beta1", beta1, c)
    same_device(op, a, b0=b0, b1=b1, c=c, bias0=bias0, bias1=bias1, gate=gate)
    output_type(op, "a", a, "b0", b0, None)
    out = output_type(op, "a", a, "b1", b1, out_dtype)
    inner = a.new_empty(product_shape(op, "a", a, "b0", b0))
    shape = product_shape(op, "b0", inner, "b1", b1)
    fits(op, shape, c=c)
    vector(op, (*inner.shape[:-2], inner.shape[-1]), bias0=bias0)
    vector(op, (*shape[:-2], shape[-1]), bias1=bias1)
    if gate is not None:
        same_sizes(gate.shape, b0.shape, op, "gate", lambda: f"has shape {list(gate.shape)}; takes the shape of b0")
    return a.new_empty(shape, dtype=out)


def scaled_mm(a, b, scale_a, scale_b, bias=None, *, out_dtype=None):
    op = "scaled_mm"
    require(op, a=a, b=b, scale_a=scale_a, scale_b=scale_b)
    same_device(op, a, b=b, scale_a=scale_a, scale_b=scale_b, bias=bias)
    if a.dtype not in (torch.int8, *FP8_OCP, *FP8_FNUZ):
        fail(op, "a", f"is {name(a.dtype)}; takes int8 or a float8 type", TypeError)
    out = output_type(op, "a", a, "b", b, out_dtype or torch.bfloat16)
    shape = product_shape(op, "a", a, "b", b)
    columns = (*shape[:-2], shape[-1])
    fits(op, shape[:-1], scale_a=_short_scale(scale_a, a, -1))
    fits(op, columns, scale_b=_short_scale(scale_b, b, -2))
    vector(op, columns, bias=bias)
    return a.new_empty(shape, dtype=out)


def _short_scale(scale, operand, one):
    """A scale as a vector: without its dimension of one, or without any where it is one element."""
    if all(known(size == 1) for size in scale.shape):
        return scale.new_empty(())
    return scale.squeeze(one) if is_matrix_scale(scale.shape, operand.shape, one) else scale
