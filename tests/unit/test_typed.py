"""What a user's type checker is told, by `make lint`; and that it is so."""

import torch
from typing_extensions import assert_type

import wmma_ops
from wmma_ops import nn

A, B = torch.randn(4, 6), torch.randn(6, 5)
Q = torch.randn(1, 2, 4, 8)


def _is(value, kind: type) -> None:
    assert type(value) is kind


def test_products():
    _is(assert_type(wmma_ops.matmul(A, B), torch.Tensor), torch.Tensor)
    _is(assert_type(wmma_ops.addmm(A[:, :5], A, B, beta=2), torch.Tensor), torch.Tensor)
    _is(assert_type(wmma_ops.addmm_(A[:, :5].clone(), A, B, alpha=0.5), torch.Tensor), torch.Tensor)
    _is(assert_type(wmma_ops.baddbmm(A[None, :, :5], A[None], B[None]), torch.Tensor), torch.Tensor)
    _is(assert_type(wmma_ops.gemm(A, B, activation="silu"), torch.Tensor), torch.Tensor)
    _is(assert_type(wmma_ops.linear(A, B.mT, activation="relu"), torch.Tensor), torch.Tensor)
    _is(assert_type(wmma_ops.gemm_gemm(A, B, B.mT), torch.Tensor), torch.Tensor)


def test_attention_gives_its_logsumexp_as_well():
    out, logsumexp = assert_type(wmma_ops.attention(Q, Q, Q, is_causal=True), tuple[torch.Tensor, torch.Tensor])
    _is(out, torch.Tensor)
    _is(logsumexp, torch.Tensor)


def test_around_them():
    with wmma_ops.emulate("gfx1201"):
        explained = wmma_ops.explain("matmul", A.half(), B.half())
    _is(assert_type(explained.launches[0].kernel, str), str)
    _is(assert_type(wmma_ops.restore_(nn.Linear(6, 5)), list[str]), list)
