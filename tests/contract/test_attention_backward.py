"""The gradients of attention by kernels of their own, on emulated targets against float64.

That nothing is spilled at the usual head sizes is a limit of `python -m wmma_ops report`.
"""

import contextlib
import dataclasses
from dataclasses import dataclass

import pytest
import torch
from orders import check_any_order

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.ops import autograd
from wmma_ops.ops.types import accumulator
from wmma_ops.plan.attention.loops import gradients as gradients_loop
from wmma_ops.runtime import emulation, launching
from wmma_ops.testing import AttentionCase
from wmma_ops.testing.operands import operands as operands_of
from wmma_ops.testing.reference import unit


@dataclass(frozen=True)
class Case:
    sq: int
    skv: int
    e: int
    ev: int
    dtype: str = "float16"
    heads: int = 2
    kv_heads: int = 2
    batch: int = 1
    causal: str | bool = False
    mask: str | None = None  # bool (the first query sees no key), float
    scale: float | None = None
    lse: bool = False  # whether lse has a gradient, too
    layout: str = "bhsd"  # bshd, column


CASES = (
    Case(40, 50, 64, 64),
    Case(40, 50, 64, 64, "bfloat16"),
    Case(20, 70, 32, 48, heads=4, causal="bottom_right"),
    Case(33, 17, 40, 40, "bfloat16", kv_heads=1, batch=2, causal="top_left"),
    Case(19, 37, 24, 24, mask="bool"),
    Case(19, 37, 24, 24, mask="float", scale=-0.3, lse=True, layout="column"),
    Case(70, 80, 17, 9, heads=1, kv_heads=1, causal="bottom_right", lse=True, layout="bshd"),
    Case(5, 150, 8, 8, heads=1, kv_heads=1, scale=0.0),
    Case(1, 1, 1, 1, "float32"),
    Case(21, 30, 40, 24, "float32", kv_heads=1, causal="top_left"),
    Case(10, 12, 24, 16, "float64", heads=1, kv_heads=1, mask="bool", lse=True),
)
WIDE = (
    Case(20, 40, 128, 128, "bfloat16", heads=1, kv_heads=1),
    Case(9, 20, 256, 200, heads=1, kv_heads=1, causal="top_left"),
)
CDNA = ("gfx942", "gfx908", "gfx90a", "gfx950")
RDNA = ("gfx1100", "gfx1201", "gfx1151", "gfx1200")  # one generation and the other


def _runs():
    """Each case on a target of each family, in turn."""
    for i, case in enumerate((*CASES, *WIDE)):
        for family in (CDNA, RDNA):
            yield family[i % len(family)], case


RUNS = list(_runs())


def operands(case: Case):
    generator = torch.Generator().manual_seed(7)
    dtype = getattr(torch, case.dtype)

    def tensor(heads, length, size):
        x = torch.randn(case.batch, heads, length, size, generator=generator, dtype=torch.float64).to(dtype)
        if case.layout == "bshd":
            return x.transpose(1, 2).contiguous().transpose(1, 2)
        return x.mT.contiguous().mT if case.layout == "column" else x

    q, k, v = (
        tensor(*shape).requires_grad_()
        for shape in (
            (case.heads, case.sq, case.e),
            (case.kv_heads, case.skv, case.e),
            (case.kv_heads, case.skv, case.ev),
        )
    )
    mask = None
    if case.mask == "bool":
        mask = torch.rand(case.batch, 1, case.sq, case.skv, generator=generator) > 0.4
        mask[:, :, 0] = False
    elif case.mask == "float":
        mask = torch.randn(case.sq, case.skv, generator=generator).to(dtype)
    g_out = torch.randn(case.batch, case.heads, case.sq, case.ev, generator=generator).to(dtype)
    g_lse = torch.randn(case.batch, case.heads, case.sq, generator=generator)
    return (q, k, v), mask, g_out, g_lse.double() if case.dtype == "float64" else g_lse


def gradients(case: Case, tensors, mask, g_out, g_lse, *, by: str | None = None, **how):
    """By the kernels of a target after the CPU's own forward pass, where one is named, `how` they are emulated."""
    out, lse = wmma_ops.attention(
        *tensors, mask=mask, is_causal=case.causal, scale=case.scale, enable_gqa=case.heads != case.kv_heads
    )
    outs, grads = ((out, lse), (g_out, g_lse)) if case.lse else ((out,), (g_out,))
    with wmma_ops.emulate(by, **how) if by else contextlib.nullcontext():
        return torch.autograd.grad(outs, tensors, grads)


def in_float64(case: Case, tensors, mask, g_out, g_lse):
    """By the formula of the CPU, which gradcheck holds."""
    tensors = [x.detach().double().requires_grad_() for x in tensors]
    mask = mask.double() if mask is not None and mask.is_floating_point() else mask
    return gradients(case, tensors, mask, g_out.double(), g_lse.double())


@pytest.mark.parametrize(("target", "case"), RUNS, ids=str)
def test_gradients_are_those_of_float64(target, case):
    given = operands(case)
    want = in_float64(case, *given)
    own = gradients(case, *given)  # on the CPU, in the same type
    with wmma_ops.emulate(target) as emulation:
        got = gradients(case, *given)
    assert len(emulation.launches) >= 4  # forward, delta, of the queries, of the keys
    for name, x, exact, other in zip("qkv", got, want, own, strict=True):
        error, theirs = (x.double() - exact).abs().max(), (other.double() - exact).abs().max()
        # As the forward pass is held: no worse than twice, beside roundings of the largest element. (In float64 the CPU's
        # result is the reference: there a sum's own roundings remain.)
        roundings = 2 * (case.skv + case.e) if x.dtype == torch.float64 else 4
        floor = roundings * unit(x.dtype) * exact.abs().max() + torch.finfo(x.dtype).smallest_normal
        assert error <= 2 * theirs + floor, f"g_{name}: {error:.3g}, in the same type on the CPU {theirs:.3g}"


# Masks that hide whole rows by large numbers, of which lse keeps no logarithm of a sum: on a target each, by turns.
HIDDEN = [
    AttentionCase(batch=2, sq=20, skv=37, e=24, dtype="float16", mask="least"),
    AttentionCase(batch=2, heads=4, kv_heads=2, sq=40, skv=70, e=64, dtype="bfloat16", mask="far"),
    AttentionCase(batch=2, sq=20, skv=37, e=24, dtype="float32", mask="least"),
    AttentionCase(batch=2, sq=9, skv=12, e=16, dtype="float64", mask="least"),
    AttentionCase(batch=2, sq=20, skv=37, e=32, dtype="bfloat16", mask="least"),
    AttentionCase(batch=2, sq=20, skv=37, e=17, dtype="float16", mask="far"),
    AttentionCase(batch=2, sq=20, skv=37, e=24, dtype="float32", mask="far"),
    AttentionCase(sq=70, skv=150, e=64, dtype="float16", mask="far"),
]


def _hidden(case: AttentionCase):
    """Operands, and the gradients by float64 of scores that are rounded as the accumulator has them."""
    t = operands_of(case)
    mask, given = t["mask"], [t[name].detach().clone().requires_grad_() for name in "qkv"]
    g_out = torch.randn(*t["q"].shape[:-1], t["v"].shape[-1], generator=torch.Generator().manual_seed(1)).to(
        t["q"].dtype
    )
    exact = [x.detach().double().requires_grad_() for x in given]
    q, k, v = exact
    k, v = (x.repeat_interleave(case.heads // (case.kv_heads or case.heads), -3) for x in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    number = accumulator(t["q"].dtype)
    sums = scores + mask.double()
    rounded = (scores.to(number) + mask.to(number)).double()
    out = torch.softmax(sums + (rounded - sums).detach(), -1) @ v
    return given, mask, g_out, torch.autograd.grad(out, exact, g_out.double())


def _gradients_of(case: AttentionCase, given, mask, g_out):
    out, _ = wmma_ops.attention(*given, mask=mask, enable_gqa=case.kv_heads is not None)
    return torch.autograd.grad(out, given, g_out)


def _worst(got, want, case) -> float:
    """The largest error, in roundings of the largest element."""
    return max(
        (
            (x.double() - y).abs().max()
            / (y.abs().max() * unit(x.dtype) * (case.skv if x.dtype == torch.float64 else 1))
        ).item()
        for x, y in zip(got, want, strict=True)
    )


MOST_ROUNDINGS = 16


@pytest.mark.parametrize(("target", "case"), list(zip(arch.EMULATED, HIDDEN, strict=True)), ids=str)
def test_rows_that_large_numbers_hide_whole(target, case):
    given, mask, g_out, want = _hidden(case)
    assert (want[2].abs() > 0).all(dim=-1).any()
    assert _worst(_gradients_of(case, given, mask, g_out), want, case) < MOST_ROUNDINGS  # the formula
    with wmma_ops.emulate(target) as emulation:
        got = _gradients_of(case, given, mask, g_out)
    assert len(emulation.launches) >= 4
    assert _worst(got, want, case) < MOST_ROUNDINGS


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("gradients/elements.hpp", "sum == Number(0) ? Number(0) : Math::inverse(sum);", "Number(1);"),
        ("loops/gradients.hpp", "weights[f] *= statistics[2 * kOthers + other];", "weights[f] *= Number(1);"),
        ("gradients/elements.hpp", "sums[f] *= factors[Link::row_of(f)];", "sums[f] *= Number(1);"),
    ],
    ids=["not_corrected", "keys_not_corrected", "queries_not_corrected"],
)
def test_weights_that_are_not_corrected_are_caught(file, old, new, sources):
    header = sources / "wmma/attention" / file
    text = header.read_text()
    assert text.count(old) == 1
    header.write_text(text.replace(old, new))
    case = HIDDEN[4]
    given, mask, g_out, want = _hidden(case)
    with wmma_ops.emulate("gfx1201"):
        got = _gradients_of(case, given, mask, g_out)
    assert _worst(got, want, case) > MOST_ROUNDINGS


@pytest.mark.parametrize(("e", "kernels"), [(30, True), (31, False)])
def test_head_sizes_that_find_no_room_take_the_formula(e, kernels):
    """Of float64 on gfx908, which multiplies it by plain FMA on 64 lanes."""
    case = Case(5, 6, e, e, "float64", heads=1, kv_heads=1)
    given = operands(case)
    want = gradients(case, *given)
    with wmma_ops.emulate("gfx908") as emulation:
        got = gradients(case, *given)
    assert all(torch.allclose(x, y, rtol=1e-12, atol=1e-12) for x, y in zip(got, want, strict=True))
    assert (len(emulation.launches) == 4) == kernels  # forward, delta, of the queries, of the keys


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("target", arch.TARGETS)
def test_head_sizes_that_take_kernels_find_room(target, dtype):
    with emulation.entered(emulation.Emulation(target, execute=False)):
        widest = autograd.widest_backward(dtype, torch.device("cpu"))
    (problem,) = launching.problems(
        lambda: wmma_ops.attention(*(torch.empty(1, 1, 8, 8, dtype=dtype) for _ in range(3))), arch.target(target)
    )
    for e, ev in [(e, e) for e in range(1, widest + 1)] + [(1, widest), (widest, 1)]:
        asked = dataclasses.replace(problem, backward=True, e=e, ev=ev)
        for owns_keys in (False, True):
            assert next(gradients_loop.candidates(asked, arch.target(target), owns_keys), None), (e, ev)


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_the_same_bits_in_any_order_of_the_waves(target):
    case = Case(40, 50, 32, 32, heads=4, kv_heads=1)
    given = operands(case)

    def compute(**how):
        with wmma_ops.emulate(target, **how):
            return gradients(case, *given)

    check_any_order(compute)


def test_gradients_that_are_differentiated_again_take_the_formula():
    case = Case(5, 6, 8, 8, "float32", heads=1, kv_heads=1)
    (q, k, v), *_ = operands(case)

    def second():
        out = wmma_ops.attention(q, k, v)[0]
        (g_q,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
        return torch.autograd.grad(g_q.square().sum(), (q, k, v))

    want = second()
    with wmma_ops.emulate("gfx942"):
        got = second()
    for x, y in zip(got, want, strict=True):
        assert torch.allclose(x, y, rtol=1e-3, atol=1e-4)


def test_lse_differentiates_where_v_has_no_columns():
    case = Case(5, 6, 8, 1, "float32", heads=2, kv_heads=1)
    (q, k, v), _, _, g_lse = operands(case)

    def gradient():
        lse = wmma_ops.attention(q, k, v[..., :0], enable_gqa=True)[1]
        return torch.autograd.grad(lse, (q, k), g_lse)

    want = gradient()
    with wmma_ops.emulate("gfx942"):
        got = gradient()
    for x, y in zip(got, want, strict=True):
        assert torch.allclose(x, y, rtol=1e-4, atol=1e-5)


def test_a_masks_gradient_takes_the_formula():
    case = Case(6, 7, 8, 8, "float32", heads=1, kv_heads=1, mask="float")
    (q, k, v), mask, g_out, _ = operands(case)
    mask.requires_grad_()

    def gradient():
        return torch.autograd.grad(wmma_ops.attention(q, k, v, mask=mask)[0], mask, g_out)[0]

    want = gradient()
    with wmma_ops.emulate("gfx942"):
        assert torch.allclose(gradient(), want, rtol=1e-4, atol=1e-5)
