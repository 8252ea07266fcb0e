"""What is refused: ValueError or TypeError from wmma_ops.X, RuntimeError from the raw op, in words that name the op, the
argument, what came and what is taken; nothing is written."""

import contextlib
import inspect
import random
import re

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import wmma_ops
from wmma_ops.ops import library


def f(*shape, dtype=torch.float32):
    return torch.ones(*shape, dtype=dtype)


def i8(*shape):
    return torch.ones(*shape, dtype=torch.int8)


def grad(*shape):
    return torch.ones(*shape, requires_grad=True)


N8 = f(2, 3, 4).to(torch.float8_e4m3fn)
META = torch.ones(3, 3, device="meta")
NAN, INF = float("nan"), float("inf")
BF16, F16, F64, F8 = torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn

# op, positional arguments, keyword arguments, kind, what the message must hold beside the op's name
BAD = [
    ("matmul", (f(2, 3), f(2, 3)), {}, ValueError, r"b has shape \[2, 3\]; takes \[\.\.\., 3, N\]"),
    ("matmul", (f(2, 3), f(3, 2, dtype=F64)), {}, TypeError, "b is float64; takes float32"),
    ("matmul", (f(2, 3), i8(3, 2)), {}, TypeError, "b is int8; takes float32"),
    ("matmul", (f(2, 3, dtype=torch.int32), f(3, 2, dtype=torch.int32)), {}, TypeError, "a is int32; takes float16"),
    ("matmul", (f(2, 3, dtype=torch.complex64), f(3, 2)), {}, TypeError, "a is complex64; takes"),
    ("matmul", (f(2, 3, dtype=torch.bool), f(3, 2)), {}, TypeError, "a is bool; takes"),
    (
        "matmul",
        (f(2, 2).to(F8), f(2, 2).to(torch.float8_e5m2fnuz)),
        {},
        TypeError,
        "b is float8_e5m2fnuz; takes float8_e4m3fn or",
    ),
    ("matmul", (f(2, 3), f(3, 2)), {"out_dtype": F16}, TypeError, "out_dtype is float16; takes float32"),
    (
        "matmul",
        (f(2, 3, dtype=BF16), f(3, 2, dtype=BF16)),
        {"out_dtype": F16},
        TypeError,
        "out_dtype is float16; takes bfloat16 or float32",
    ),
    ("matmul", (i8(2, 3), i8(3, 2)), {"out_dtype": torch.int64}, TypeError, "out_dtype is int64; takes int32"),
    (
        "matmul",
        (f(2, 3), f(3, 2)),
        {"out_dtype": "float32"},
        TypeError,
        "out_dtype is of type str; takes a torch.dtype",
    ),
    ("matmul", (f(()), f(3)), {}, ValueError, r"a has shape \[\]; takes 1 dimension or more"),
    ("matmul", (f(3), f(())), {}, ValueError, r"b has shape \[\]; takes 1 dimension or more"),
    ("matmul", (f(3), f(4)), {}, ValueError, r"b has shape \[4\]; takes 3 elements along K"),
    (
        "matmul",
        (f(2, 2, 3), f(3, 3, 2)),
        {},
        ValueError,
        r"b has shape \[3, 3, 2\]; takes batch dimensions that broadcast",
    ),
    ("matmul", (f(2, 3).to_sparse(), f(3, 2)), {}, TypeError, "a is a sparse tensor; takes strided"),
    ("matmul", (f(2, 3).to_sparse_csr(), f(3, 2)), {}, TypeError, "a is a sparse tensor; takes strided"),
    ("matmul", (f(3, 3), META), {}, TypeError, "b is on meta; takes tensors on cpu|a is on cpu; takes tensors on meta"),
    ("matmul", (None, f(3, 2)), {}, TypeError, "a is None; takes a tensor"),
    ("matmul", (f(2, 3), None), {}, TypeError, "b is None; takes a tensor"),
    ("matmul", (np.ones((2, 3)), f(3, 2)), {}, TypeError, "a is of type ndarray; takes a tensor"),
    ("matmul", (f(2, 3), [[1.0]]), {}, TypeError, "b is of type list; takes a tensor"),
    ("matmul", (f(2, 3), 2.0), {}, TypeError, "b is of type float; takes a tensor"),
    ("addmm", (f(2), f(2, 3, 4), f(4, 2)), {}, ValueError, r"a has shape \[2, 3, 4\]; takes 2 dimensions"),
    ("addmm", (f(2), f(2, 3), f(3)), {}, ValueError, r"b has shape \[3\]; takes 2 dimensions"),
    (
        "addmm",
        (f(3), f(2, 3), f(3, 2)),
        {},
        ValueError,
        r"input has shape \[3\]; takes a shape that broadcasts to \[2, 2\]",
    ),
    (
        "addmm",
        (f(1, 2, 2), f(2, 3), f(3, 2)),
        {},
        ValueError,
        r"input has shape \[1, 2, 2\]; takes a shape that broadcasts",
    ),
    (
        "addmm",
        (f(2, dtype=F64), f(2, 3), f(3, 2)),
        {},
        TypeError,
        "input is float64; takes float16, bfloat16 or float32",
    ),
    ("addmm", (f(2, dtype=torch.int32), f(2, 3), f(3, 2)), {}, TypeError, "input is int32; takes float16"),
    ("addmm", (None, f(2, 3), f(3, 2)), {}, TypeError, "input is None; takes a tensor"),
    ("addmm", (f(2), f(2, 3), f(3, 2)), {"alpha": "1"}, TypeError, "alpha is of type str; takes float"),
    ("addmm", (f(2), f(2, 3), f(3, 2)), {"beta": None}, TypeError, "beta is of type NoneType; takes float"),
    ("addmm", (i8(2), i8(2, 3), i8(3, 2)), {"alpha": NAN}, ValueError, "alpha is nan; takes a finite number"),
    (
        "addmm",
        (f(2), f(2, 3), f(3, 2)),
        {"beta": -1e60},
        ValueError,
        r"beta is -1e\+60; takes a number in float32's range",
    ),
    ("addmm", (i8(2), i8(2, 3), i8(3, 2)), {"beta": INF}, ValueError, "beta is inf; takes a finite number"),
    ("addmm", (f(2), f(2, 3), f(3, 2)), {"out_dtype": BF16}, TypeError, "out_dtype is bfloat16; takes float32"),
    ("baddbmm", (f(2), f(2, 3), f(3, 2)), {}, ValueError, r"a has shape \[2, 3\]; takes 3 dimensions"),
    ("baddbmm", (f(2), f(2, 2, 3), f(3, 3, 2)), {}, ValueError, r"b has shape \[3, 3, 2\]; takes the batch size of a"),
    ("baddbmm", (f(2), f(2, 2, 3), f(1, 3, 2)), {}, ValueError, r"b has shape \[1, 3, 2\]; takes the batch size of a"),
    ("baddbmm", (f(3, 2, 2), f(2, 2, 3), f(2, 3, 2)), {}, ValueError, r"input has shape \[3, 2, 2\]; takes"),
    ("addmm_", (f(2), f(2, 3), f(3, 2)), {}, ValueError, r"input has shape \[2\]; takes \[2, 2\]"),
    ("addmm_", (f(2, 3), f(2, 3), f(3, 2)), {}, ValueError, r"input has shape \[2, 3\]; takes"),
    ("addmm_", (f(2, 2, dtype=BF16), f(2, 3), f(3, 2)), {}, TypeError, "input is bfloat16; takes float32"),
    ("addmm_", (f(1, 2).expand(2, 2), f(2, 3), f(3, 2)), {}, ValueError, "input has elements that share memory"),
    (
        "addmm_",
        (f(3).as_strided((2, 2), (1, 1)), f(2, 3), f(3, 2)),
        {},
        ValueError,
        "input has elements that share memory",
    ),
    ("gemm", (f(2, 3), f(3)), {}, ValueError, r"b has shape \[3\]; takes 2 dimensions or more"),
    ("gemm", (f(3), f(3, 2)), {}, ValueError, r"a has shape \[3\]; takes 2 dimensions or more"),
    (
        "gemm",
        (f(2, 3), f(3, 4)),
        {"c": f(3, 4)},
        ValueError,
        r"c has shape \[3, 4\]; takes a shape that broadcasts to \[2, 4\]",
    ),
    ("gemm", (f(2, 3), f(3, 4)), {"bias": f(2)}, ValueError, r"bias has shape \[2\]; takes \[4\]"),
    ("gemm", (f(2, 3), f(3, 4)), {"bias": f(1)}, ValueError, r"bias has shape \[1\]; takes \[4\]"),
    (
        "gemm",
        (f(2, 3), f(3, 4)),
        {"row_scale": f(4)},
        ValueError,
        r"row_scale has shape \[4\]; takes \[2\] or one element",
    ),
    (
        "gemm",
        (f(2, 3), f(3, 4)),
        {"col_scale": f(2)},
        ValueError,
        r"col_scale has shape \[2\]; takes \[4\] or one element",
    ),
    ("gemm", (f(2, 3), f(3, 4)), {"a_scale": f(2)}, ValueError, r"a_scale has shape \[2\]; takes \[3\] or one element"),
    ("gemm", (f(2, 3), f(3, 4)), {"multiply": f(4, 2)}, ValueError, r"multiply has shape \[4, 2\]; takes a shape"),
    ("gemm", (f(2, 3), f(3, 4)), {"bias": f(4, dtype=F64)}, TypeError, "bias is float64; takes"),
    ("gemm", (f(2, 3, dtype=F64), f(3, 4, dtype=F64)), {"bias": f(4)}, TypeError, "bias is float32; takes float64"),
    ("gemm", (f(2, 3), f(3, 4)), {"multiply": f(4).to(F8)}, TypeError, "multiply is float8_e4m3fn; takes"),
    ("gemm", (f(2, 3), f(3, 4)), {"bias": np.ones(4)}, TypeError, "bias is of type ndarray; takes"),
    (
        "gemm",
        (f(2, 3), f(3, 4)),
        {"c": f(4).to_sparse()},
        TypeError,
        "c is a sparse tensor|c is a torch.sparse_coo tensor",
    ),
    ("gemm", (f(2, 3), f(3, 4)), {"beta": 7.0}, ValueError, "beta is 7; takes 1, its default, without c"),
    ("gemm", (f(2, 3), f(3, 4)), {"beta": NAN}, ValueError, "beta is nan; takes 1, its default, without c"),
    (
        "gemm_gemm",
        (f(2, 3), f(3, 4), f(4, 2)),
        {"beta1": 0.0},
        ValueError,
        "beta1 is 0; takes 1, its default, without c",
    ),
    ("gemm", (f(2, 3), f(3, 4)), {"a2": f(2, 5)}, TypeError, "b2 is None; takes a tensor beside a2, or neither"),
    ("gemm", (f(2, 3), f(3, 4)), {"b2": f(5, 4)}, TypeError, "a2 is None; takes a tensor beside b2, or neither"),
    ("gemm", (f(2, 3), f(3, 4)), {"a2": f(5), "b2": f(5, 4)}, ValueError, r"a2 has shape \[5\]; takes 2 dimensions"),
    ("gemm", (f(2, 3), f(3, 4)), {"a2": f(2, 5), "b2": f(5)}, ValueError, r"b2 has shape \[5\]; takes 2 dimensions"),
    (
        "gemm",
        (f(2, 3), f(3, 4)),
        {"a2": f(3, 5), "b2": f(5, 4)},
        ValueError,
        r"a2 has shape \[3, 5\]; takes (\[\.\.\., 2, K2\], with )?as many rows as a, \[2, 3\], has",
    ),
    (
        "gemm",
        (f(2, 3), f(3, 4)),
        {"a2": f(2, 5), "b2": f(5, 1)},
        ValueError,
        r"b2 has shape \[5, 1\]; takes (\[\.\.\., 5, 4\], with )?as many columns as b, \[3, 4\], has",
    ),
    (
        "gemm",
        (f(2, 3), f(3, 4)),
        {"a2": f(2, 5), "b2": f(6, 4)},
        ValueError,
        r"b2 has shape \[6, 4\]; takes (\[\.\.\., 5, N\], as the last dimension of a2|K as a2), \[2, 5\],",
    ),
    (
        "gemm",
        (f(2, 3), f(3, 4)),
        {"a2": f(2, 5, dtype=BF16), "b2": f(5, 4)},
        TypeError,
        "a2 is bfloat16; takes float32, as a has",
    ),
    (
        "gemm",
        (f(2, 3).to(F8), f(3, 4).to(torch.float8_e5m2)),
        {"a2": f(2, 5).to(F8), "b2": f(5, 4).to(F8)},
        TypeError,
        "b2 is float8_e4m3fn; takes float8_e5m2, as b has",
    ),
    (
        "gemm",
        (f(2, 2, 3), f(3, 4)),
        {"a2": f(3, 2, 5), "b2": f(5, 4)},
        ValueError,
        r"a2 has shape \[3, 2, 5\]; takes batch dimensions that broadcast with those of a and b",
    ),
    (
        "gemm",
        (f(3, 3), f(3, 3)),
        {"a2": META, "b2": f(3, 3)},
        TypeError,
        "a2 is on meta; takes tensors on cpu|cpu; takes",
    ),
    ("linear", (f(2, 3), f(3, 4)), {}, ValueError, r"weight has shape \[3, 4\]; takes \[N, 3\]"),
    ("linear", (f(2, 3), f(3)), {}, ValueError, r"weight has shape \[3\]; takes 2 dimensions"),
    ("linear", (f(()), f(3, 4)), {}, ValueError, r"x has shape \[\]; takes 1 dimension or more"),
    ("linear", (f(2, 3), f(4, 3, dtype=F16)), {}, TypeError, "weight is float16; takes float32, as x has"),
    ("linear", (f(2, 3), f(4, 3), f(3)), {}, ValueError, r"bias has shape \[3\]; takes \[4\]"),
    ("linear", (f(2, 3), f(4, 3)), {"residual": f(2, 3)}, ValueError, r"residual has shape \[2, 3\]; takes"),
    ("linear", (f(2, 3), None), {}, TypeError, "weight is None; takes a tensor"),
    ("gemm_gemm", (f(2, 3), f(4, 3), f(4, 2)), {}, ValueError, r"b0 has shape \[4, 3\]; takes \[\.\.\., 3, N\]"),
    ("gemm_gemm", (f(2, 3), f(3, 4), f(3, 2)), {}, ValueError, r"b1 has shape \[3, 2\]; takes \[\.\.\., 4, N\]"),
    ("gemm_gemm", (f(2, 3), f(3, 4, dtype=BF16), f(4, 2)), {}, TypeError, "b0 is bfloat16; takes float32"),
    ("gemm_gemm", (f(2, 3), f(3, 4), f(4, 2, dtype=BF16)), {}, TypeError, "b1 is bfloat16; takes float32"),
    ("gemm_gemm", (f(2, 3).to(F8), f(3, 4).to(F8), f(4, 2).to(F8)), {}, TypeError, "a is float8_e4m3fn; takes float16"),
    (
        "gemm_gemm",
        (f(2, 3), f(3, 4), f(4, 2)),
        {"gate": f(3, 5)},
        ValueError,
        r"gate has shape \[3, 5\]; takes the shape of b0",
    ),
    ("gemm_gemm", (f(2, 3), f(3, 4), f(4, 2)), {"bias0": f(2)}, ValueError, r"bias0 has shape \[2\]; takes \[4\]"),
    ("gemm_gemm", (f(2, 3), f(3, 4), f(4, 2)), {"bias1": f(4)}, ValueError, r"bias1 has shape \[4\]; takes \[2\]"),
    ("gemm_gemm", (f(2, 3), f(3, 4), f(4, 2)), {"c": f(3, 2)}, ValueError, r"c has shape \[3, 2\]; takes"),
    ("gemm_gemm", (i8(2, 3), i8(3, 4), i8(4, 2)), {"alpha0": INF}, ValueError, "alpha0 is inf; takes a finite number"),
    (
        "attention",
        (f(2, 3, 4), f(2, 3, 5), f(2, 3, 5)),
        {},
        ValueError,
        r"k has shape \[2, 3, 5\]; takes the head size of q",
    ),
    (
        "attention",
        (f(2, 3, 4), f(2, 3, 4), f(2, 4, 4)),
        {},
        ValueError,
        r"v has shape \[2, 4, 4\]; takes the length of k",
    ),
    (
        "attention",
        (f(2, 3, 4), f(3, 4), f(3, 4)),
        {},
        ValueError,
        r"k has shape \[3, 4\]; takes as many dimensions as q",
    ),
    ("attention", (f(4), f(4), f(4)), {}, ValueError, r"q has shape \[4\]; takes \[\.\.\., heads, length, head size\]"),
    (
        "attention",
        (f(1, 4, 3, 4), f(1, 2, 3, 4), f(1, 2, 3, 4)),
        {},
        ValueError,
        r"k has shape .* \(or enable_gqa=True\)",
    ),
    (
        "attention",
        (f(1, 4, 3, 4), f(1, 3, 3, 4), f(1, 3, 3, 4)),
        {"enable_gqa": True},
        ValueError,
        "k has shape .*divides that of q, 4",
    ),
    ("attention", (f(2, 4, 3, 4), f(1, 4, 3, 4), f(1, 4, 3, 4)), {}, ValueError, "k has shape .*takes the batch"),
    ("attention", (f(2, 3, 4), f(2, 3, 4), f(1, 3, 4)), {}, ValueError, "v has shape .*batch and head dimensions of k"),
    ("attention", (f(2, 3, 0), f(2, 3, 0), f(2, 3, 4)), {}, ValueError, "q has shape .*head size of 1 or more"),
    (
        "attention",
        (f(2, 3, 4), f(2, 3, 4, dtype=BF16), f(2, 3, 4)),
        {},
        TypeError,
        "k is bfloat16; takes float32, as q has",
    ),
    ("attention", (i8(2, 3, 4), i8(2, 3, 4), i8(2, 3, 4)), {}, TypeError, "q is int8; takes float16"),
    (
        "attention",
        (f(2, 3, 4),) * 3,
        {"mask": f(2, 2)},
        ValueError,
        r"mask has shape \[2, 2\]; takes a shape that broadcasts to \[2, 3, 3\]",
    ),
    (
        "attention",
        (f(2, 3, 4),) * 3,
        {"mask": f(3, 3, dtype=torch.int32)},
        TypeError,
        "is int32; takes bool or float32, as q",
    ),
    (
        "attention",
        (f(2, 3, 4),) * 3,
        {"mask": f(3, 3), "is_causal": True},
        ValueError,
        "is_causal is set together with mask",
    ),
    ("attention", (f(2, 3, 4),) * 3, {"scale": NAN}, ValueError, "scale is nan; takes a finite number"),
    ("attention", (f(2, 3, 4),) * 3, {"scale": -INF}, ValueError, "scale is -inf; takes a finite number"),
    ("attention", (f(2, 3, 4),) * 3, {"scale": 1e300}, ValueError, "takes a number in float32's range beside float32"),
    ("attention", (f(2, 3, 4),) * 3, {"scale": "1"}, TypeError, "scale is of type str; takes"),
    (
        "attention",
        (f(2, 3, 4),) * 3,
        {"softcap": -1.0},
        ValueError,
        "softcap is -1; takes 0 .* positive number up to 1e30",
    ),
    ("attention", (f(2, 3, 4),) * 3, {"softcap": NAN}, ValueError, "softcap is nan; takes 0"),
    (
        "attention",
        (f(2, 3, 4),) * 3,
        {"dropout_p": -0.1},
        ValueError,
        "dropout_p is -0.10*; takes 0 .none. up to, but not, 1",
    ),
    ("attention", (f(2, 3, 4),) * 3, {"dropout_p": 1.0}, ValueError, "dropout_p is 1.0*; takes 0"),
    ("attention", (f(2, 3, 4),) * 3, {"dropout_p": NAN}, ValueError, "dropout_p is nan; takes 0"),
    (
        "attention",
        (f(2, 3, 4),) * 3,
        {"dropout_p": 0.5, "dropout_seed": f(1)},
        TypeError,
        "dropout_seed is float32; takes int64",
    ),
    (
        "attention",
        (f(2, 3, 4),) * 3,
        {"dropout_p": 0.5, "dropout_seed": torch.arange(2)},
        ValueError,
        r"dropout_seed has shape \[2\]; takes one element",
    ),
    ("attention", (f(2, 3, 4),) * 3, {"softcap": INF}, ValueError, "softcap is inf; takes 0"),
    ("attention", (f(2, 3, 4),) * 3, {"softcap": 1e300}, ValueError, r"softcap is 1e\+300; takes 0 .* up to 1e30"),
    (
        "attention",
        (f(2, 3, 4),) * 3,
        {"sinks": f(3)},
        ValueError,
        r"sinks has shape \[3\]; takes .* broadcasts to \[2\]",
    ),
    ("attention", (f(2, 3, 4),) * 3, {"sinks": f(2, dtype=BF16)}, TypeError, "sinks is bfloat16; takes float32, as q"),
    (
        "attention",
        (f(5, 2, 3, 4),) * 3,
        {"alibi_slopes": f(4, 2)},
        ValueError,
        r"alibi_slopes has shape \[4, 2\]; takes a shape that broadcasts to \[5, 2\]",
    ),
    (
        "attention",
        (f(2, 3, 4),) * 3,
        {"alibi_slopes": f(2, dtype=torch.int32)},
        TypeError,
        "alibi_slopes is int32; takes float32",
    ),
    ("attention", (f(2, 3, 4),) * 3, {"sinks": META[0, :2]}, TypeError, "sinks is on meta"),
    ("scaled_attention", (f(2, 3, 4),) * 3, {}, TypeError, "q is float32; takes float8_e4m3fn"),
    ("scaled_attention", (N8, N8, f(2, 3, 4)), {}, TypeError, "v is float32; takes float8_e4m3fn, as q has"),
    ("scaled_attention", (N8, N8, N8.to(torch.float8_e5m2)), {}, TypeError, "v is float8_e5m2; takes float8_e4m3fn"),
    (
        "scaled_attention",
        (N8, N8[:, :, :3], N8),
        {},
        ValueError,
        r"k has shape \[2, 3, 3\]; takes the head size of q, 4",
    ),
    (
        "scaled_attention",
        (N8, N8[:1], N8[:1]),
        {},
        ValueError,
        r"takes the batch and head dimensions of q, .*enable_gqa",
    ),
    (
        "scaled_attention",
        (N8, N8, N8, f(3)),
        {},
        ValueError,
        r"scale_q has shape \[3\]; takes a shape that broadcasts to",
    ),
    ("scaled_attention", (N8, N8, N8, None, f(2, 3)), {}, ValueError, r"scale_k has shape \[2, 3\]; takes a shape"),
    ("scaled_attention", (N8, N8, N8, None, None, f(2, dtype=F64)), {}, TypeError, "scale_v is float64; takes float32"),
    (
        "scaled_attention",
        (N8, N8, N8),
        {"out_dtype": F64},
        TypeError,
        "out_dtype is float64; takes bfloat16 or float16",
    ),
    ("scaled_attention", (N8, N8, N8), {"scale": float("inf")}, ValueError, "scale is inf; takes a finite number"),
    (
        "scaled_attention",
        (N8, N8, N8),
        {"is_causal": "left"},
        ValueError,
        "is_causal is 'left'; takes a bool, 'top_left'",
    ),
    ("scaled_attention", (N8, N8, N8, grad(2)), {}, ValueError, "scale_q requires grad, but products of float8_e4m3fn"),
    ("scaled_mm", (f(2, 3), f(3, 2), f(1), f(1)), {}, TypeError, "a is float32; takes int8 or a float8 type"),
    (
        "scaled_mm",
        (i8(2, 3), i8(3, 2), f(3), f(1)),
        {},
        ValueError,
        r"scale_a has shape \[3\]; takes \[2\] or one element",
    ),
    (
        "scaled_mm",
        (i8(2, 3), i8(3, 4), f(1), f(2)),
        {},
        ValueError,
        r"scale_b has shape \[2\]; takes \[4\] or one element",
    ),
    (
        "scaled_mm",
        (i8(2, 3, 4), i8(4, 5), f(2, 1), f(1)),
        {},
        ValueError,
        r"scale_a has shape \[2, 1\]; takes one element, \[3\] or \[3, 1\], after all batch dimensions of a or none",
    ),
    (
        "scaled_mm",
        (i8(2, 2, 3, 4), i8(4, 5), f(2, 3, 1), f(1)),
        {},
        ValueError,
        r"scale_a has shape \[2, 3, 1\]; takes one element, \[3\] or \[3, 1\], after all batch dimensions",
    ),
    (
        "scaled_mm",
        (i8(2, 3), i8(3, 4), f(1), f(1, 3)),
        {},
        ValueError,
        r"scale_b has shape \[1, 3\]; takes one element, \[4\] or \[1, 4\]",
    ),
    ("scaled_mm", (i8(2, 3), i8(3, 2), f(1, dtype=F64), f(1)), {}, TypeError, "scale_a is float64; takes float32"),
    ("scaled_mm", (i8(2, 3), i8(3, 2), f(1), f(1, dtype=BF16)), {}, TypeError, "scale_b is bfloat16; takes float32"),
    ("scaled_mm", (i8(2, 3), f(3, 2).to(F8), f(1), f(1)), {}, TypeError, "b is float8_e4m3fn; takes int8"),
    ("scaled_mm", (i8(2, 3), i8(3, 2), f(1), 1.0), {}, TypeError, "scale_b is of type float; takes a tensor"),
    ("scaled_mm", (i8(2, 3), i8(3, 2), f(1), f(1)), {"out_dtype": F64}, TypeError, "out_dtype is float64; takes int32"),
    (
        "scaled_mm",
        (i8(2, 3), i8(3, 2), grad(1), f(1)),
        {},
        ValueError,
        "scale_a requires grad, but products of int8 are not",
    ),
    ("gemm", (i8(2, 3), i8(3, 2)), {"bias": grad(2)}, ValueError, "bias requires grad, but products of int8 are not"),
    ("addmm", (grad(2), i8(2, 3), i8(3, 2)), {}, ValueError, "input requires grad, but products of int8 are not"),
    ("linear", (i8(2, 3), i8(2, 3), grad(2)), {}, ValueError, "bias requires grad, but products of int8 are not"),
    # With gradients, addmm_ goes another way.
    ("addmm_", (f(2), grad(2, 3), f(3, 2)), {}, ValueError, r"input has shape \[2\]; takes \[2, 2\]"),
    ("addmm_", (f(3, 2), grad(2, 3), f(3, 2)), {}, ValueError, r"input has shape \[3, 2\]; takes"),
    ("addmm_", (f(2, 2), grad(1, 2, 3), f(3, 2)), {}, ValueError, r"a has shape \[1, 2, 3\]; takes 2 dimensions"),
    ("addmm_", (f(2, 2, dtype=BF16), grad(2, 3), f(3, 2)), {}, TypeError, "input is bfloat16; takes float32"),
    ("addmm_", (f(2, 2, dtype=F64), grad(2, 3), f(3, 2)), {}, TypeError, "input is float64; takes float"),
    ("addmm_", (grad(2, 2), i8(2, 3), i8(3, 2)), {}, ValueError, "input requires grad, but products of int8 are not"),
]

# What only the Python functions can meet: names of activations and of causal masks, and tensors for numbers.
BAD_NAMES = [
    (
        "gemm",
        (f(2, 3), f(3, 2)),
        {"activation": "gelo"},
        ValueError,
        r"activation is 'gelo' \(did you mean 'gelu'\?\); takes one of",
    ),
    (
        "gemm",
        (f(2, 3), f(3, 2)),
        {"a_activation": "softmax"},
        ValueError,
        "a_activation is 'softmax'.* takes one of none, relu",
    ),
    ("gemm", (f(2, 3), f(3, 2)), {"activation": 1}, TypeError, "activation is of type int; takes a name"),
    ("linear", (f(2, 3), f(4, 3)), {"activation": torch.relu}, TypeError, "activation is of type builtin_function"),
    (
        "gemm_gemm",
        (f(2, 3), f(3, 4), f(4, 2)),
        {"activation": "ReLU"},
        ValueError,
        r"activation is 'ReLU' \(did you mean 'relu'",
    ),
    (
        "attention",
        (f(2, 3, 4),) * 3,
        {"is_causal": "left"},
        ValueError,
        "is_causal is 'left'; takes a bool, 'top_left'",
    ),
    ("attention", (f(2, 3, 4),) * 3, {"is_causal": 1}, TypeError, "is_causal is of type int; takes a bool"),
    ("attention", (f(2, 3, 4),) * 3, {"window": (-2, 0)}, ValueError, r"window is \(-2, 0\); takes two sizes of 0 or"),
    ("attention", (f(2, 3, 4),) * 3, {"window": 5}, TypeError, "window is 5; takes two integers"),
    ("attention", (f(2, 3, 4),) * 3, {"window": (1.0, 2)}, TypeError, r"window is \(1.0, 2\); takes two integers"),
    (
        "attention",
        (f(2, 3, 4),) * 3,
        {"scale": grad(())},
        TypeError,
        "scale is a tensor that requires grad, but numbers",
    ),
    ("gemm", (f(2, 3), f(3, 2)), {"alpha": grad(1)}, TypeError, "alpha is a tensor that requires grad, but numbers"),
    ("addmm_", (f(2, 2), f(2, 3), f(3, 2)), {"beta": grad(())}, TypeError, "beta is a tensor that requires grad"),
]
# What other libraries call the same, or a slip of the hand.
NEIGHBOURS = [
    ("attention", "attn_mask", "mask"),
    ("attention", "causal", "is_causal"),
    ("attention", "is_casual", "is_causal"),
    ("attention", "softmax_scale", "scale"),
    ("attention", "window_size", "window"),
    ("attention", "logits_soft_cap", "softcap"),
    ("attention", "query", "q"),
    ("varlen_attention", "window", "window_size"),
    ("varlen_attention", "is_causal", "window_size"),
    ("varlen_attention", "cu_seqlens_q", "cu_seq_q"),
    ("scaled_attention", "k_descale", "scale_k"),
    ("kv_append", "rotary_cos", "cos"),
    ("matmul", "dtype", "out_dtype"),
    ("addmm", "other", "b"),
    ("addmm", "mat1", "a"),
    ("linear", "input", "x"),
    ("gemm", "dtype", "out_dtype"),
]
ACTIVATIONS = [
    ("swish", "silu"),
    ("gelu_new", "gelu_tanh"),
    ("gelu_fast", "gelu_tanh"),
    ("gelu_pytorch_tanh", "gelu_tanh"),
    ("linear", "none"),
    ("Identity", "none"),
    ("leakyrelu", "leaky_relu"),
]
# And what only the ops can: codes.
BAD_CODES = [
    ("gemm", (f(2, 3), f(3, 2)), {"activation": 8}, "activation is code 8; takes 0 to 7 or"),
    ("gemm", (f(2, 3), f(3, 2)), {"a_activation": -1}, "a_activation is code -1; takes 0 to 7"),
    ("linear", (f(2, 3), f(2, 3)), {"activation": 999}, "activation is code 999"),
    ("gemm_gemm", (f(2, 3), f(3, 2), f(2, 2)), {"activation": 100}, "activation is code 100"),
    ("attention", (f(2, 3, 4),) * 3, {"is_causal": 3}, "is_causal is 3; takes 0"),
    ("attention", (f(2, 3, 4),) * 3, {"window_right": -5}, "window is (-1, -5); takes two sizes"),
]


def _case_id(case):
    op, arguments, keywords, *_ = case
    text = " ".join(str(list(x.shape)) if isinstance(x, torch.Tensor) else type(x).__name__ for x in arguments)
    return f"{op} {text} {' '.join(keywords)}"


def _snapshot(arguments, keywords):
    tensors = [x for x in (*arguments, *keywords.values()) if isinstance(x, torch.Tensor) and x.layout == torch.strided]
    return [(x, x.detach().clone()) for x in tensors if x.device.type == "cpu"]


def test_the_table_is_as_long_as_promised():
    assert len(BAD) + len(BAD_NAMES) >= 60


@pytest.mark.parametrize("case", BAD + BAD_NAMES, ids=_case_id)
def test_python_functions_refuse(case):
    op, arguments, keywords, kind, text = case
    before = _snapshot(arguments, keywords)
    with pytest.raises((ValueError, TypeError)) as caught:
        getattr(wmma_ops, op)(*arguments, **keywords)
    assert type(caught.value) is kind
    assert re.search(rf"^wmma\.{op}: .*({text})", str(caught.value)), str(caught.value)
    assert "[" + kind.__name__ not in str(caught.value)
    for x, copy in before:
        assert torch.equal(x.float(), copy.float())


@pytest.mark.parametrize("namespace", library.NAMESPACES)
@pytest.mark.parametrize("case", BAD, ids=_case_id)
def test_ops_refuse(case, namespace):
    op, arguments, keywords, _, text = case
    if "requires grad" in text and namespace == "wmma_raw":
        out = getattr(torch.ops.wmma_raw, op)(*arguments, **keywords)  # no derivative to ask for
        assert (out is None) == (op == "addmm_")
        return
    with pytest.raises(RuntimeError) as caught:
        getattr(getattr(torch.ops, namespace), op)(*arguments, **keywords)
    # A value that PyTorch cannot convert never reaches the library: PyTorch names it in its own words.
    own = rf"^wmma\.{op}: .*({text})"
    converted = rf"{namespace}::{op}.*(Expected a value of type|Could not run|expected .*type)"
    assert re.search(own, str(caught.value)) or re.search(converted, str(caught.value), re.S), str(caught.value)


def _refusal(call, arguments, keywords):
    try:
        call(*arguments, **keywords)
    except RuntimeError as error:
        return str(error)
    return None


def test_fakes_refuse_in_the_words_of_the_library():
    mode, refusals = FakeTensorMode(), []
    for op, arguments, keywords, *_ in BAD:
        given = [x for x in (*arguments, *keywords.values()) if x is not None]
        if not all(isinstance(x, torch.Tensor) and x.layout == torch.strided and not x.is_meta for x in given):
            continue
        call = getattr(torch.ops.wmma_raw, op)
        fakes = {id(x): mode.from_tensor(x.detach()) for x in given} | {id(None): None}
        with mode:
            faked = [fakes[id(x)] for x in arguments], {key: fakes[id(x)] for key, x in keywords.items()}
            refusals.append((_refusal(call, *faked), op, arguments, keywords))
    refusals = [x for x in refusals if x[0]]
    for text, op, arguments, keywords in refusals:
        assert text == _refusal(getattr(torch.ops.wmma_raw, op), arguments, keywords)
    assert len(refusals) >= 80


@pytest.mark.parametrize("case", BAD_CODES, ids=_case_id)
def test_ops_refuse_unknown_codes(case):
    op, arguments, keywords, text = case
    with pytest.raises(RuntimeError, match=rf"^wmma\.{op}: {re.escape(text)}"):
        getattr(torch.ops.wmma, op)(*arguments, **keywords)


@pytest.mark.parametrize(("op", "name", "meant"), NEIGHBOURS)
def test_unknown_keywords_are_answered_with_their_neighbours(op, name, meant):
    given = [f(2, 2)] if op == "matmul" else []  # without both Python itself refuses
    with pytest.raises(
        TypeError, match=rf"^wmma\.{op}: there is no argument '{name}' .did you mean '{meant}'.*; takes "
    ):
        getattr(wmma_ops, op)(f(2, 2), *given, **{name: None})


FUNCTIONS = {name for name in wmma_ops.__all__ if inspect.isfunction(getattr(wmma_ops, name))}
PASS_ON = {"explain", "warmup"}  # an op's keywords; so does tune, which asks for a GPU first


@pytest.mark.parametrize("name", sorted(FUNCTIONS - PASS_ON - {"tune"}))
def test_every_function_names_an_unknown_keyword(name):
    with pytest.raises(TypeError, match=f"^wmma.{name}: there is no argument 'zzz'; takes "):
        getattr(wmma_ops, name)(*([f(2, 2)] * 2 if name == "matmul" else []), zzz=1)


@pytest.mark.parametrize("name", sorted(PASS_ON))
def test_unknown_keywords_of_an_op_are_named_through_what_calls_it(name):
    with (
        wmma_ops.emulate("gfx942"),
        pytest.raises(TypeError, match=r"^wmma.linear: there is no argument 'zzz'; takes "),
    ):
        getattr(wmma_ops, name)("linear", f(2, 2), f(2, 2), zzz=1)


@pytest.mark.parametrize(("name", "meant"), ACTIVATIONS)
def test_activations_by_their_other_names_are_answered_with_ours(name, meant):
    with pytest.raises(ValueError, match=rf"activation is '{name}' .did you mean '{meant}'.*; takes one of"):
        wmma_ops.linear(f(2, 3), f(4, 3), activation=name)


OVERLAPS = {
    "same": lambda x: (x, x, x),
    "rows": lambda x: (x[0:2, 0:2], x[1:3, 0:3], torch.ones(3, 2)),
    "transposed": lambda x: (x[0:3, 0:3], x[0:3, 0:3].T, torch.ones(3, 3)),
    "b": lambda x: (x[0:2, 0:2], torch.ones(2, 3), x[1:4, 1:3]),
}
APART = {
    "rows": lambda x: (x[0:2, 0:2], x[2:4, 0:3], torch.ones(3, 2)),
    "columns": lambda x: (x[:, 0:2], x[:, 2:4], torch.ones(2, 2)),
    "columns of columns": lambda x: (x.T[:, 0:2], x.T[:, 2:4], torch.ones(2, 2)),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_in_place_overlap_is_refused(name):
    x = torch.arange(16.0).view(4, 4)
    with pytest.raises(ValueError, match=r"input shares memory with (a|b); takes memory of its own"):
        wmma_ops.addmm_(*OVERLAPS[name](x))
    assert torch.equal(x, torch.arange(16.0).view(4, 4))


@pytest.mark.parametrize("name", APART)
def test_in_place_beside_each_other_is_not(name):
    x = torch.arange(16.0).view(4, 4)
    input, a, b = APART[name](x)
    want = input + a @ b
    assert torch.equal(wmma_ops.addmm_(input, a, b), want)


def test_factors_beside_int8_may_be_any_finite_number():
    """Also where the result is of floats, which do not hold them: as float32 has it."""
    input, a, b = i8(2, 4), i8(2, 3), i8(3, 4)
    input.fill_(-1), a.fill_(1), b.fill_(1)
    for beta, want in ((1e300, -INF), (-1e39, INF), (2.0, 1.0)):
        out = wmma_ops.addmm(input, a, b, beta=beta, out_dtype=torch.float32)
        assert torch.equal(out, torch.full((2, 4), want))


def test_the_factor_of_a_missing_c_may_be_its_default():
    a, b = f(2, 3), f(3, 4)
    assert torch.equal(wmma_ops.gemm(a, b, beta=1.0), a @ b)
    with FakeTensorMode() as mode, pytest.raises(RuntimeError, match="beta is 7; takes 1, its default, without c"):
        torch.ops.wmma.gemm(mode.from_tensor(a), mode.from_tensor(b), beta=7.0)


def _strided(draw, memory, sizes):
    """A view of any part of it, in any strides."""
    strides, below = [0] * len(sizes), 1
    for i in draw.sample(range(len(sizes)), len(sizes)):
        strides[i] = below * draw.choice((1, 1, 2)) if draw.random() < 0.9 else draw.choice((0, 1, 2, 3))
        below = max(below, strides[i] * sizes[i])
    reach = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    return memory.as_strided(sizes, strides, draw.randrange(memory.numel() - reach))


def _bytes(x):
    """Of each element, by where it lies."""
    size, places = x.element_size(), torch.zeros(x.shape, dtype=torch.int64)
    for i, (n, stride) in enumerate(zip(x.shape, x.stride(), strict=True)):
        places += (torch.arange(n) * stride).view(-1, *[1] * (x.dim() - 1 - i))
    first = x.data_ptr() + size * places.reshape(-1)
    return (first[:, None] + torch.arange(size)).reshape(-1).tolist()


def test_memory_is_shared_where_one_byte_is():
    """Whatever the strides, and of numbers of other widths."""
    draw, memory = random.Random(0), torch.zeros(4000, dtype=F16)
    told = {"with itself": 0, "with another": 0, "with none": 0}
    for _ in range(3000):
        sizes = [draw.choice((1, 2, 3, 4)) for _ in range(3)]
        pages = [_strided(draw, memory[:3000], (*sizes, draw.choice((1, 2, 4)))) for _ in range(2)]
        new = [torch.zeros(0, *x.shape[2:], dtype=F16) for x in pages]
        ends = _strided(draw, memory.view(torch.int64), (2,))
        first, second, numbers = (_bytes(x) for x in (*pages, ends))
        found = "with none"
        if set(first) & set(second) or set(numbers) & {*first, *second}:
            found = "with another"
        if len(set(first)) < len(first) or len(set(second)) < len(second):
            found = "with itself"
        told[found] += 1
        arguments = (*new, *pages, torch.zeros(1, 1, dtype=torch.int32), ends, torch.zeros(1, dtype=torch.int32))
        refused = pytest.raises(ValueError, match=r"share[sd]? memory")
        with contextlib.nullcontext() if found == "with none" else refused:
            wmma_ops.kv_append(*arguments)
    assert min(told.values()) > 150, told


RESULTS = {
    "out": (f(2, 3, 5).int(), TypeError, "out is int32; takes float32"),
    "g_out": (f(2, 3, 4), ValueError, r"g_out has shape \[2, 3, 4\]; takes \[2, 3, 5\]"),
    "lse": (f(2, 3, dtype=F64), TypeError, "lse is float64; takes float32"),
    "g_lse": (f(3), ValueError, r"g_lse has shape \[3\]; takes \[2, 3\]"),
}


def _place(device):
    return wmma_ops.emulate("gfx942") if device == "emulated" else contextlib.nullcontext()


@pytest.mark.parametrize("device", ["cpu", "meta", "emulated"])
@pytest.mark.parametrize("name", RESULTS)
def test_gradients_are_of_results(name, device):
    """The op that autograd calls refuses what no forward pass returned."""
    q, v, out, lse = f(2, 3, 4), f(2, 3, 5), f(2, 3, 5), f(2, 3)
    given = {"g_out": out, "q": q, "k": q, "v": v, "out": out, "lse": lse, "g_lse": lse}
    rows, op, as_tokens = {"g_out", "q", "k", "v", "out"}, torch.ops.wmma._attention_backward, {}
    wrong, _, text = RESULTS[name]
    packed = {"q": "query", "k": "key", "v": "value"}
    ends = torch.tensor([0, 3])
    for x, of in (given | {name: wrong}).items():
        as_tokens[packed.get(x, x)] = of.transpose(0, 1) if x in rows else of
    as_tokens |= {"cu_seq_q": ends, "cu_seq_k": ends}
    to = "meta" if device == "meta" else "cpu"
    with _place(device), pytest.raises(RuntimeError, match=rf"^wmma\.attention: {text}"):
        op(**{x: of.to(to) for x, of in (given | {name: wrong}).items()})
    text = text.replace("[2, 3, 4\\]; takes \\[2, 3, 5", "[3, 2, 4\\]; takes \\[3, 2, 5")
    with _place(device), pytest.raises(RuntimeError, match=rf"^wmma\.varlen_attention: {text}"):
        torch.ops.wmma._varlen_attention_backward(**{x: of.to(to) for x, of in as_tokens.items()}, max_q=3, max_k=3)


HANDLES = {
    "_launch": lambda x: ([1, 1, 1], [1, 1, 1], 0, x, [], False),
    "_room": lambda x: (64, 0),
    "_write": lambda x: (x, x),
    "_read": lambda x: (x, x),
}


@pytest.mark.parametrize("op", HANDLES)
def test_functions_that_were_never_loaded_are_refused(op):
    text = torch.tensor([65, 0], dtype=torch.uint8)
    with pytest.raises(RuntimeError, match=rf"^wmma\.{op}: function is 4096; takes what _load returned"):
        getattr(torch.ops.wmma, op)(4096, *HANDLES[op](text))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": "relu"}, "taken"),
        ({"name": "two words"}, "identifier"),
        ({"name": 3}, "identifier"),
        ({"device": "1.f"}, "expression of x"),
        ({"device": None}, "expression of x"),
        ({"derivative": lambda x: x}, "not that of forward"),
        ({"forward": lambda x: x.sum()}, "elementwise"),
    ],
)
def test_bad_activations_are_refused(options, text):
    good = {"name": "bad_one", "device": "x * x", "forward": lambda x: x * x, "derivative": lambda x: 2 * x}
    options = good | options
    with pytest.raises(ValueError, match=text):
        wmma_ops.register_activation(options.pop("name"), **options)
    assert "bad_one" not in wmma_ops.ops.activations.names()
