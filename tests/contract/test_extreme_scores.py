"""Attention of scores that are as large as their type has numbers, infinite, or none: on every backend as torch has it."""

import contextlib
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import wmma_ops
from wmma_ops.testing.reference import unit


@dataclass(frozen=True)
class Far:
    """Scores up to `most`, above 0 and below it, or where that is negative all of its sign."""

    most: float
    dtype: torch.dtype
    sq: int = 20
    skv: int = 40
    e: int = 32
    heads: int = 2
    kv_heads: int = 2
    causal: bool = False
    scale: float = 1.0
    bool_mask: bool = False


CASES = (
    Far(1e10, torch.float32),
    Far(1e10, torch.bfloat16, sq=70, skv=150, e=64, causal=True),
    Far(3.3e38, torch.bfloat16, sq=70, skv=300, e=64),
    Far(-3.3e38, torch.float32, sq=33),
    Far(2e37, torch.bfloat16, sq=150, skv=333, e=128, heads=4, kv_heads=2, scale=0.125),
    Far(-1e20, torch.bfloat16, sq=40, skv=200, e=64, bool_mask=True),
    Far(3.3e38, torch.bfloat16, sq=2, skv=1100, e=64, heads=4, kv_heads=1),  # keys are split
    Far(-2e30, torch.float16, sq=2, skv=1100, e=16),  # of float16 by the scale alone
    Far(1e300, torch.float64),
)


def _operands(case: Far) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, float]:
    """q, k and v, and a scale, so that no sum on the way to a score is more than the scores."""
    generator = torch.Generator().manual_seed(0)

    def rand(heads, length, size):
        return torch.rand(1, heads, length, size, generator=generator, dtype=torch.float64) + 0.1

    q, k, v = (
        rand(case.heads, case.sq, case.e),
        rand(case.kv_heads, case.skv, case.e),
        rand(case.kv_heads, case.skv, 24),
    )
    if case.most > 0:
        k = k * torch.where(torch.arange(case.skv) % 2 == 0, 1, -1).unsqueeze(-1)
    factor = case.most / (q @ k.repeat_interleave(case.heads // case.kv_heads, 1).mT).abs().max()
    scale = case.scale
    if case.dtype == torch.float16:
        scale, factor = abs(float(factor)), factor.sign()
    return (q * factor / case.scale).to(case.dtype), k.to(case.dtype), (v - 0.6).to(case.dtype), scale


def _run(where: str, *tensors, **options):
    device = "cuda" if where == "cuda" else "cpu"
    emulation = wmma_ops.emulate(where.removeprefix("emulated:")) if where.startswith("emulated:") else None
    with emulation or contextlib.nullcontext():
        given = {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in options.items()}
        return [x.cpu() for x in wmma_ops.attention(*(x.to(device) for x in tensors), **given)]


def _check_far(case: Far, where: str) -> None:
    q, k, v, scale = _operands(case)
    wide_k, wide_v = (x.double().repeat_interleave(case.heads // case.kv_heads, 1) for x in (k, v))
    scores = q.double() @ wide_k.mT * scale
    options = {"scale": scale, "is_causal": case.causal, "enable_gqa": case.heads != case.kv_heads}
    if case.causal:
        scores = scores.masked_fill(~torch.ones(case.sq, case.skv, dtype=torch.bool).tril(), -torch.inf)
    if case.bool_mask:
        options["mask"] = torch.rand(case.sq, case.skv, generator=torch.Generator().manual_seed(1)) < 0.8
        scores = scores.masked_fill(~options["mask"], -torch.inf)
    out, lse = _run(where, q, k, v, **options)
    # A weighted mean of the values, whichever of them rounding prefers; and where that has no say, the right one.
    assert out.isfinite().all()
    assert out.double().abs().max() <= wide_v.abs().max() * (1 + 2 * unit(case.dtype))
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), rtol=1e-5, atol=0)
    rounding = (2**-53 if case.dtype == torch.float64 else 2**-24) * (case.e + 8)
    first, second = scores.topk(2).values.unbind(-1)
    clear = first - second > 40 + rounding * (q.double().abs() @ wide_k.abs().mT * abs(scale)).amax(-1)
    assert clear.any()
    error = (out.double() - scores.softmax(-1) @ wide_v).abs().amax(-1)
    assert error[clear].max() <= 2 * unit(case.dtype) + 2**-20


@pytest.mark.parametrize("case", CASES, ids=str)
def test_far_scores(case, backend):
    _check_far(case, backend)


@pytest.mark.parametrize("part", range(3))
def test_far_scores_by_kernels(part, emulated):
    for case in CASES[part::3]:
        _check_far(case, emulated)


DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _check_infinite(where: str) -> None:
    for dtype in DTYPES:
        q, k, v = (torch.ones(1, 1, n, 16, dtype=dtype) for n in (3, 21, 21))
        k[0, 0, 4] = torch.inf
        out, lse = _run(where, q, k, v)
        assert out.isnan().all(), dtype
        assert (lse == torch.logsumexp(q @ k.mT, -1)).all(), dtype
        # A scale of 0 is a factor of each query, of which NaN stays one.
        q[0, 0, 1, 2] = torch.nan
        out, _ = _run(where, q, v, v, scale=0.0)
        assert out.isnan().any(-1).tolist() == [[[False, True, False]]], dtype


def _check_lost_weights(where: str) -> None:
    """A weight of which float16 has nothing left is 0 beside an infinite value too; bfloat16 has it still."""
    for dtype in (torch.float16, torch.bfloat16):
        q, k = torch.zeros(1, 1, 1, 16, dtype=dtype), torch.zeros(1, 1, 5, 16, dtype=dtype)
        q[..., 0], k[0, 0, 0, 0] = 1, -40
        v = torch.ones(1, 1, 5, 16, dtype=dtype)
        v[0, 0, 0] = torch.inf
        want = F.scaled_dot_product_attention(q, k, v, scale=1.0)
        out, _ = _run(where, q, k, v, scale=1.0)
        torch.testing.assert_close(out, want, equal_nan=True)


def test_infinite_scores_and_lost_weights(backend):
    _check_infinite(backend)
    _check_lost_weights(backend)


def test_infinite_scores_and_lost_weights_by_kernels(emulated):
    _check_infinite(emulated)
    _check_lost_weights(emulated)


def test_a_soft_cap_has_a_bound():
    q = torch.ones(1, 1, 2, 16)
    with pytest.raises(ValueError, match=r"softcap is 1e\+31; takes 0 \(none\) or a positive number up to 1e30"):
        wmma_ops.attention(q, q, q, softcap=1e31)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_large_values_are_as_close_as_torchs(dtype):
    """Of values with much in common delta, from a rounded result, would be off by more than what it leaves."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, g = (torch.randn(1, 2, 12, 16, generator=generator) for _ in range(4))
    q, k, v, g = (x.to(dtype) for x in (q, k, v + 50, g))

    def by_scores(*tensors):
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(*tensors)

    def gradients(function, *tensors):
        leaves = [x.detach().clone().requires_grad_() for x in tensors]
        return torch.autograd.grad(function(*leaves), leaves, g.to(leaves[0]))

    exact = gradients(by_scores, q.double(), k.double(), v.double())
    ours = gradients(lambda *x: wmma_ops.attention(*x)[0], q, k, v)
    theirs = gradients(by_scores, q, k, v)
    for want, got, peer in zip(exact, ours, theirs, strict=True):
        error, bound = (got.double() - want).abs().max(), (peer.double() - want).abs().max()
        assert error <= 2 * bound + unit(dtype) * want.abs().max()
