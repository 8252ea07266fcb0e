"""Attention of packed sequences by kernels, on emulated targets: values, gradients, numbers that are wrong, plans that calls
share, and kernels that are wrong on purpose."""

import ctypes
from dataclasses import dataclass, replace

import pytest
import torch
from orders import check_any_order
from planted import Planted, check_is_caught, check_that_each_stands_once

import wmma_ops
from wmma_ops.emulator.global_races import GlobalRaces
from wmma_ops.hardware import arch
from wmma_ops.plan.attention import planner
from wmma_ops.plan.attention.loops import warpgroup
from wmma_ops.runtime import launching
from wmma_ops.testing import VarlenAttentionCase, run
from wmma_ops.testing.memory import fenced
from wmma_ops.testing.operands import operands
from wmma_ops.testing.reference import unit

CASES = (
    VarlenAttentionCase(queries=(70, 1, 0, 20), keys=(70, 40, 9, 33), e=64, dtype="float16", window=(-1, 0)),
    VarlenAttentionCase(
        queries=(40, 9),
        keys=(30, 80),
        heads=4,
        kv_heads=2,
        e=40,
        ev=24,
        dtype="bfloat16",
        window=(17, 3),
        beyond=9,
        number="int64",
    ),
    VarlenAttentionCase(
        queries=(1, 3, 1),
        keys=(90, 300, 5),
        used=(70, 0, 5),
        beyond=7,
        heads=4,
        kv_heads=1,
        e=64,
        dtype="bfloat16",
        sinks="heads",
    ),
    VarlenAttentionCase(
        queries=(20, 33), keys=(20, 50), e=17, dtype="float16", layout="htd", slopes="own", softcap=2.0, window=(-1, 0)
    ),
    VarlenAttentionCase(queries=(150, 9), keys=(200, 0), e=64, dtype="bfloat16", beyond=40),
    VarlenAttentionCase(queries=(9, 20), keys=(31, 20), e=24, layout="strided", window=(5, -1), scale=-0.5),
    VarlenAttentionCase(queries=(5, 9), keys=(12, 3), layout="column", dtype="float64", sinks="own", softcap=1.0),
)
BY_TURNS = [(arch.EMULATED[(i + j) % len(arch.EMULATED)], case) for i, case in enumerate(CASES) for j in (0, 3)]


@pytest.mark.parametrize(("target", "case"), BY_TURNS, ids=str)
def test_values(target, case):
    run(case, backend=f"emulated:{target}")


def _call(case: VarlenAttentionCase, t: dict, **options):
    longest = {"max_q": max(case.queries), "max_k": max(case.keys)}
    rules = {"window_size": case.window, "softcap": case.softcap, "scale": case.scale}
    return wmma_ops.varlen_attention(**t | longest | rules | options, enable_gqa=case.kv_heads is not None)


def _gradients(case: VarlenAttentionCase, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    """Where both results have one. (Slopes' own goes by way of scores in memory.)"""
    t = {name: x.nan_to_num(7.0) if x.is_floating_point() else x for name, x in operands(case).items() if x is not None}
    if dtype is not None:
        t = {name: x.to(dtype) if x.is_floating_point() else x for name, x in t.items()}
    names = [name for name in ("query", "key", "value", "sinks") if name in t]
    given = [t[name].detach().requires_grad_() for name in names]
    out, lse = _call(case, t | dict(zip(names, given, strict=True)))
    generator = torch.Generator().manual_seed(1)
    g_out, g_lse = (torch.randn(x.shape, generator=generator).to(getattr(torch, case.dtype)).to(x) for x in (out, lse))
    return dict(zip(names, torch.autograd.grad((out, lse), given, (g_out, g_lse)), strict=True))


def _are_right(case: VarlenAttentionCase, target: str) -> None:
    want, own = _gradients(case, torch.float64), _gradients(case)
    with wmma_ops.emulate(target) as emulation:
        got = _gradients(case)
    assert len(emulation.launches) >= 6  # forward, delta, of the queries, of the keys, and twice what no sequence has
    for name, x in got.items():
        exact = want[name]
        error, theirs = (x.double() - exact).abs().max(), (own[name].double() - exact).abs().max()
        # As test_attention_rules.py has it.
        dtype = getattr(torch, case.dtype)
        roundings = 2 * (max(case.keys) + case.e) if dtype == torch.float64 else 4
        floor = roundings * unit(dtype) * exact.abs().max()
        assert error <= 2 * theirs + floor, f"g_{name} of {case}: {error:.3g}, in the same type on the CPU {theirs:.3g}"
        assert (x[exact == 0] == 0).all()  # of what no query sees


@pytest.mark.parametrize(("target", "case"), BY_TURNS, ids=str)
def test_gradients(target, case):
    _are_right(case, target)


WRONG_NUMBERS = (
    {"cu_seq_q": [0, 30, 7, 29], "cu_seq_k": [0, 90, 20, 41]},
    {"cu_seq_q": [-9, 5, 2**31 - 1, 12], "seqused_k": [99, -3, 2**31 - 1]},
    {"cu_seq_q": [9, 9, 3, 30], "cu_seq_k": [7, -(2**31), 500, 9], "max_q": 4, "max_k": 3},
)


@pytest.mark.parametrize("target", arch.EMULATED)
def test_wrong_numbers_reach_nothing_outside(target, monkeypatch):
    """The emulator watches what is read and written, and beside the tensors all is NaN."""
    monkeypatch.setattr(GlobalRaces, "_report", lambda *found: None)  # two sequences may have a token
    case = VarlenAttentionCase(queries=(12, 1, 17), keys=(20, 3, 18), dtype="float16", e=32, beyond=0)
    t = {name: x for name, x in operands(case).items() if x is not None}
    for wrong in WRONG_NUMBERS:
        numbers = {name: torch.tensor(x, dtype=torch.int32) for name, x in wrong.items() if isinstance(x, list)}
        most = {name: x for name, x in wrong.items() if isinstance(x, int)}
        here = {name: fenced(x, "cpu") for name, x in (t | numbers).items()}
        given = [here[name].detach().requires_grad_() for name in ("query", "key", "value")]
        here |= dict(zip(("query", "key", "value"), given, strict=True))
        with wmma_ops.emulate(target):
            out, lse = _call(case, here, **most)
            gradients = torch.autograd.grad(out.square().sum(), given)
        assert out.isfinite().all()
        assert not any(x.isnan().any() for x in (lse, *gradients))


def test_calls_of_other_lengths_share_a_plan():
    """Whatever the tokens are in all; the number of sequences and the longest about the same."""

    def problem(tokens, sequences, longest):
        x, ends = torch.empty(tokens, 4, 64).half(), torch.zeros(sequences + 1, dtype=torch.int32)
        call = lambda: wmma_ops.varlen_attention(x, x, x, ends, ends, longest, longest)  # noqa: E731
        (found,) = launching.problems(call, arch.target("gfx942"))
        return found

    assert problem(5000, 60, 973) == problem(4321, 58, 999) != problem(5000, 60, 1025)
    assert problem(5000, 3, 973) != problem(5000, 4, 973)


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "sm_90a"])
def test_which_loops_take_sequences(target):
    x, ends = torch.empty(2000, 4, 128).bfloat16(), torch.zeros(5, dtype=torch.int32)
    call = lambda: wmma_ops.varlen_attention(x, x, x, ends, ends, 700, 700)  # noqa: E731
    (found,) = launching.problems(call, arch.target(target))
    plan = planner.plan(found, arch.target(target))
    assert getattr(plan.config, "ping_pong", False) == target.startswith("gfx")
    writes_rest = [launch.kernel in ("attention_fill", "attention_combine") for launch in plan.launches]
    assert writes_rest.count(True) == 1
    assert (warpgroup.WarpgroupConfig is type(plan.config)) == (target == "sm_90a")


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx1250"])
def test_compiles_for_what_is_not_emulated(target, backward):
    x, ends, lse = torch.empty(200, 4, 64).half(), torch.zeros(5, dtype=torch.int32), torch.empty(4, 200)
    call = torch.ops.wmma._varlen_attention_backward
    options = {"max_q": 70, "max_k": 70, "window_left": 9}
    if backward:
        given = lambda: call(x, x, x, x, x, lse, ends, ends, **options)  # noqa: E731
    else:
        given = lambda: torch.ops.wmma.varlen_attention(x, x, x, ends, ends, **options)  # noqa: E731
    (found,) = launching.problems(given, arch.target(target))
    for launch in planner.plan(found, arch.target(target)).launches:
        launch.compile(arch.target(target))


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_the_same_bits_in_any_order_of_the_waves(target):
    def compute(**how):
        with wmma_ops.emulate(target, **how):
            return _gradients(CASES[1]).values()

    check_any_order(compute)


@dataclass(frozen=True)
class Wrong(Planted):
    case: VarlenAttentionCase = CASES[1]
    target: str = "gfx942"


SEQUENCES = "rows/varlen.hpp"
WRONG = (
    Wrong("keys_of_the_sequence_before", SEQUENCES, "move_rows<T>(keys.start,", "move_rows<T>(0 * keys.start,"),
    Wrong("one_key_of_the_next", SEQUENCES, "p.skv = keys.length;", "p.skv = keys.length + 1;"),
    Wrong("the_last_sequence_missing", SEQUENCES, "index >= count)", "index >= count - 1)"),
    Wrong("bounds_of_the_longest", SEQUENCES, "p.shift += apart;", "p.shift += all.skv - all.sq;"),
    Wrong("windows_of_the_longest", SEQUENCES, "p.rules.from += apart;", "p.rules.from += all.skv - all.sq;"),
    Wrong("slopes_of_the_longest", SEQUENCES, "p.rules.diagonal += apart;", "p.rules.diagonal += 1;", CASES[3]),
    Wrong("all_keys_used", SEQUENCES, "if (p.used_k.data != nullptr &&", "if (false &&", CASES[2]),
    Wrong(
        "tokens_behind_the_last_left", SEQUENCES, "index_(detail::lower(block, of.count))", "index_(block % of.count)"
    ),
    Wrong(
        "left_by_who_combines",
        "passes/combine.hpp",
        "expect(blockIdx.x >= blocks, 0)",
        "expect(gridDim.x < blocks, 0)",
        CASES[2],
        "gfx1201",
    ),
    Wrong("wide_numbers_as_narrow", SEQUENCES, "return x.is_wide ?", "return x.stride > 1 ?"),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma/attention", WRONG)


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    check_is_caught(of, sources / "wmma/attention", lambda: run(of.case, backend=f"emulated:{of.target}"))


def test_gradients_that_are_wrong_are_caught(sources, request):
    """Here delta's rows, of which the kernels of the others know nothing."""
    # What nobody wrote may otherwise have what is right, of a call before: glibc fills memory with large numbers.
    perturb, libc = -6, ctypes.CDLL(None)
    assert libc.mallopt(perturb, 0x80) == 1
    request.addfinalizer(lambda: libc.mallopt(perturb, 0))
    header = sources / "wmma/attention" / SEQUENCES
    planted = replace(WRONG[0], old="clamped(queries.start + row % p.sq,", new="clamped(row % p.sq,")
    assert header.read_text().count(planted.old) == 1
    planted.plant(sources / "wmma/attention")
    with pytest.raises(AssertionError):
        _are_right(CASES[1], "gfx942")
