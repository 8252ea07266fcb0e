"""Attention with windows, soft caps, sinks and slopes: its gradients by kernels, which tiles are never read, and kernels
that are wrong on purpose. Values of the forward pass: the value suite's group "rules"."""

from dataclasses import dataclass

import pytest
import torch
from orders import check_any_order
from planted import Planted, check_that_each_stands_once

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.attention import backward
from wmma_ops.plan.attention.loops import forward
from wmma_ops.runtime import launching
from wmma_ops.testing import AttentionCase, VarlenAttentionCase, run
from wmma_ops.testing.operands import operands
from wmma_ops.testing.reference import unit

FOLDER = "wmma/attention"
LONG = {"sq": 150, "skv": 200, "e": 64}
CASES = (
    AttentionCase(dtype="float16", heads=2, kv_heads=1, window=(40, -1), causal="bottom_right", sinks="heads", **LONG),
    AttentionCase(dtype="bfloat16", heads=2, window=(30, 20), softcap=3.0, slopes="each", **LONG),
    AttentionCase(dtype="float16", heads=4, kv_heads=2, sq=20, skv=70, e=24, window=(15, 4), sinks="own", slopes="own"),
    AttentionCase(dtype="bfloat16", sq=40, skv=33, e=40, window=(5, -1), causal="top_left", scale=-0.5, softcap=1.0),
    AttentionCase(dtype="float32", sq=21, skv=30, e=24, window=(3, 3), softcap=2.0, sinks="heads", slopes="heads"),
    AttentionCase(dtype="float64", sq=10, skv=12, window=(2, 0), softcap=2.0, sinks="heads", slopes="heads"),
    AttentionCase(dtype="float16", batch=2, sq=20, skv=37, e=24, mask="least", sinks="heads", softcap=2.0),
    AttentionCase(dtype="bfloat16", batch=2, sq=19, skv=37, e=24, mask="blind", sinks="each", window=(9, -1)),
)
BY_TURNS = [(arch.EMULATED[i % len(arch.EMULATED)], case) for i, case in enumerate(CASES)]
BY_TURNS += [(arch.EMULATED[(i + 3) % len(arch.EMULATED)], case) for i, case in enumerate(CASES)]
BY_TURNS += [(target, CASES[0]) for target in ("gfx1100", "gfx1201")]  # whose gradients march


# One weight is nearly all of a result, and is not 1.
FEW_WEIGHTS = (
    VarlenAttentionCase(queries=(33, 1, 20), keys=(20, 60, 33), page_size=64, heads=4, e=17, dtype="float16",
                        window=(-1, 0), sinks="heads"),
    AttentionCase(batch=2, heads=4, kv_heads=1, sq=140, skv=150, e=17, dtype="bfloat16", mask="column", window=(7, 2),
                  softcap=2.0, slopes="own", dropout=0.9),
)  # fmt: skip


@pytest.mark.parametrize("case", FEW_WEIGHTS, ids=["sinks", "dropout"])
@pytest.mark.parametrize("target", [name for name in arch.EMULATED if arch.target(name).family.startswith("rdna")])
def test_a_few_weights_are_not_cut_off(target, case):
    run(case, f"emulated:{target}")


def _gradients(case: AttentionCase, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    """Of q, k, v and the sinks, where both results have one."""
    t = {name: x for name, x in operands(case).items() if x is not None}
    if dtype is not None:
        t = {name: x.to(dtype) if x.is_floating_point() else x for name, x in t.items()}
    names = [name for name in ("q", "k", "v", "sinks") if name in t]
    given = [t[name].detach().requires_grad_() for name in names]
    t |= dict(zip(names, given, strict=True))
    options = {"is_causal": case.causal or False, "scale": case.scale, "enable_gqa": case.kv_heads is not None}
    out, lse = wmma_ops.attention(**t, window=case.window, softcap=case.softcap, **options)
    generator = torch.Generator().manual_seed(1)
    g_out, g_lse = (torch.randn(x.shape, generator=generator).to(getattr(torch, case.dtype)).to(x) for x in (out, lse))
    g_lse = torch.where(lse.isfinite(), g_lse, 0.0)
    if case.mask == "least":
        g_lse = torch.zeros_like(g_lse)  # of rows that it hides whole, lse is the least number itself
    return dict(zip(names, torch.autograd.grad((out, lse), given, (g_out, g_lse)), strict=True))


def _are_right(case: AttentionCase, target: str) -> None:
    want, own = _gradients(case, torch.float64), _gradients(case)
    with wmma_ops.emulate(target) as emulation:
        got = _gradients(case)
    assert len(emulation.launches) >= 3
    for name, x in got.items():
        exact = want[name]
        error, theirs = (x.double() - exact).abs().max(), (own[name].double() - exact).abs().max()
        # As test_attention_backward.py has it. A sink's gradient is summed up from results that are rounded.
        dtype = getattr(torch, case.dtype)
        roundings = 2 * (case.skv + case.e) if dtype == torch.float64 else 4
        floor = roundings * unit(dtype) * exact.abs().max()
        assert error <= 2 * theirs + floor, f"g_{name} of {case}: {error:.3g}, in the same type on the CPU {theirs:.3g}"


@pytest.mark.parametrize(("target", "case"), BY_TURNS, ids=str)
def test_gradients_are_those_of_float64(target, case):
    _are_right(case, target)


def test_gradients_by_the_formula():
    """All tensors', and those of the gradients, in float64."""
    generator = torch.Generator().manual_seed(0)

    def tensor(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    given = tensor(1, 2, 4, 3), tensor(1, 1, 5, 3), tensor(1, 1, 5, 2), tensor(2), tensor(1, 2)
    for options in (
        {"window": (1, 1), "softcap": 1.5},
        {"window": (2, -1), "is_causal": "bottom_right"},
        {"is_causal": "top_left", "mask": None, "softcap": 0.7},
        {"mask": torch.randn(4, 5, generator=generator, dtype=torch.float64).requires_grad_(), "window": (-1, 1)},
    ):

        def call(q, k, v, sinks, slopes, options=options):
            return wmma_ops.attention(q, k, v, sinks=sinks, alibi_slopes=slopes, enable_gqa=True, **options)

        assert torch.autograd.gradcheck(call, given)
        assert torch.autograd.gradgradcheck(call, given)


def test_old_calls_by_name_and_place_are_what_they_were():
    q, k, v = (torch.randn(1, 2, n, 8) for n in (3, 5, 5))
    mask = torch.randn(3, 5)
    want = wmma_ops.attention(q, k, v, mask=mask, scale=0.5)
    for op in (torch.ops.wmma.attention, torch.ops.wmma_raw.attention):
        for got in (op(q, k, v, mask, is_causal=0, scale=0.5, enable_gqa=False), op(q, k, v, mask=mask, scale=0.5)):
            assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


def test_what_hides_nothing_is_no_window():
    """Such calls have the plans, and so the kernels, of those without."""
    q, k = torch.empty(1, 2, 70, 64).half(), torch.empty(1, 2, 90, 64).half()

    def problem(**options):
        (found,) = launching.problems(lambda: wmma_ops.attention(q, k, k, **options), arch.target("gfx942"))
        return found

    assert problem(window=(89, 69)) == problem() != problem(window=(88, 69))
    assert problem(window=(-1, 0)) == problem(is_causal="bottom_right") == problem(window=(2**62, 0))
    assert problem(window=(500, 500), is_causal="top_left") == problem(is_causal="top_left")


@pytest.mark.parametrize("causal", ["top_left", "bottom_right"])
@pytest.mark.parametrize("target", arch.EMULATED)
def test_tiles_that_nobody_sees_are_not_read(target, causal):
    """Their values would make NaN of everything that is summed up. Queries stand at the first keys or at the last ones."""
    generator = torch.Generator().manual_seed(2)
    few, many, near = 70, 500, 240
    q, g_out = (torch.randn(1, 1, few, 64, generator=generator).half() for _ in range(2))
    k, v = (torch.randn(1, 1, many, 64, generator=generator).half() for _ in range(2))
    far = slice(near, many) if causal == "top_left" else slice(0, many - near)

    def results(k, v):
        given = [x.detach().requires_grad_() for x in (q, k, v)]
        out, lse = wmma_ops.attention(*given, window=(40, -1), is_causal=causal)
        return out, lse, *torch.autograd.grad(out, given, g_out)

    with wmma_ops.emulate(target):
        want = results(k, v)
        k[:, :, far] = v[:, :, far] = float("nan")
        got = results(k, v)
    assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_special_loops_take_windows(target):
    is_cdna = arch.target(target).family == "cdna"
    q = torch.empty(1, 2, 512, 128).bfloat16()
    (ahead,) = launching.problems(lambda: wmma_ops.attention(q, q, q, window=(64, 0)), arch.target(target))
    assert forward.plan(ahead, arch.target(target)).config.ping_pong == is_cdna
    lse = torch.empty(1, 2, 512)
    call = torch.ops.wmma._attention_backward
    (back,) = launching.problems(lambda: call(q, q, q, q, q, lse, window_left=64), arch.target(target))
    config = backward.plan(back, arch.target(target)).config
    loop = "interleaved_gradients" if is_cdna else "lockstep_gradients"
    assert {owner.LOOP for owner in config.kernels} == {loop}
    assert getattr(config.kernels[-1], "fixed", False) == is_cdna


@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1201"])
def test_the_same_bits_in_any_order_of_the_waves(target):
    def compute(**how):
        with wmma_ops.emulate(target, **how):
            return _gradients(CASES[1]).values()

    check_any_order(compute)


@dataclass(frozen=True)
class Wrong(Planted):
    case: AttentionCase = CASES[4]
    target: str = "gfx942"

    def __str__(self) -> str:
        return f"{self.name}-{self.target}"


WINDOW, CAP, BACKWARD = (f"{name}.hpp" for name in ("terms/window", "terms/cap", "loops/gradients"))
WRONG = (
    Wrong("one_key_too_many", WINDOW, "key >= query + p.rules.from;", "key + 1 >= query + p.rules.from;"),
    Wrong(
        "one_key_too_many_interleaved",
        WINDOW,
        "key >= query + p.rules.from;",
        "key + 1 >= query + p.rules.from;",
        CASES[0],
    ),
    Wrong("the_last_query_missing", WINDOW, "key - p.rules.from + 1, low", "key - p.rules.from - 65, low", CASES[1]),
    Wrong(
        "tiles_that_a_window_ends_in_as_whole_ones",
        WINDOW,
        "crossed || first_key < last_query + p.rules.from;",
        "crossed;",
        AttentionCase(dtype="float16", heads=1, window=(60, -1), **LONG),
        "gfx1201",
    ),
    Wrong("no_derivative_of_the_cap", CAP, "bend = arch::fma(-part, part, Number(1));", "bend = Number(1);"),
    Wrong("distances_add", "terms/slopes.hpp", "arch::fma(-slopes_[i],", "arch::fma(slopes_[i],"),
    Wrong(
        "another_heads_slope",
        BACKWARD,
        "terms.begin(x.p, x.place.batch, head, 0);",
        "terms.begin(x.p, x.place.batch, 0, 0);",
    ),
    Wrong(
        "sinks_left_out_of_what_is_corrected",
        "gradients/elements.hpp",
        "sum += Math::ratio(Rules",
        "Math::ratio(Rules",
        CASES[6],
    ),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / FOLDER, WRONG)


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    of.plant(sources / FOLDER)
    with pytest.raises((RuntimeError, AssertionError)) as caught:
        _are_right(of.case, of.target)
    assert "does not compile" not in str(caught.value)
