"""The value contract, on every backend that can run here or on the one given by --backend.

Every case runs on the CPU and on a GPU. An emulated target is a thousand times slower: there a sample runs, another for
each target, in which everything of single products occurs; what occurs in attention and in two products goes by turns,
each on two targets of AMD's CDNA and on two of RDNA. With --all-cases, every case runs.
"""

import contextlib
import dataclasses
import itertools
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.hardware.arch import EMULATED
from wmma_ops.ops.types import OUTPUTS, name
from wmma_ops.plan import model
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.runtime import launching, tuned
from wmma_ops.testing import AttentionCase, GemmCase, cases, run, sampling
from wmma_ops.testing.calls import call
from wmma_ops.testing.cases import groups
from wmma_ops.testing.cases.ranges import ACTIVATIONS, FACTORS, LAYOUTS
from wmma_ops.testing.operands import operands
from wmma_ops.testing.results import out_type

SAMPLE = 85  # cases on each target, at least: as many as it takes for all that must occur
PARTS = 4  # tests that share a target's cases, or a group's


def _all_keep_the_contract(chosen, backend):
    assert chosen
    failures = []
    for case in chosen:
        try:
            run(case, backend=backend)
        except AssertionError as failure:
            failures.append(str(failure))
        except Exception as failure:  # what the emulator stops, or what was refused
            failures.append(f"{case!r}\n  {type(failure).__name__}: {failure}")
    assert not failures, f"{len(failures)} of {len(chosen)} cases:\n" + "\n".join(failures[:20])


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("group", groups())
def test_every_case_keeps_the_contract(group, part, backend):
    _all_keep_the_contract(cases(group)[part::PARTS], backend)


@pytest.mark.parametrize("part", range(PARTS))
def test_kernels_keep_the_contract(emulated, part, request):
    target = emulated.removeprefix("emulated:")
    chosen = cases() if request.config.getoption("--all-cases") else sampling.sample(SAMPLE, target)
    _all_keep_the_contract(chosen[part::PARTS], emulated)


def test_results_last_from_tile_to_tile(emulated):
    """The wave's results go round a loop, past a branch: every compiler is held to bringing all of them back."""
    several = AttentionCase(heads=1, sq=140, skv=140, dtype="float16", causal="bottom_right")
    wide = AttentionCase(heads=3, kv_heads=1, sq=9, skv=40, e=129, dtype="float16", mask="plane", scale=-0.5)
    _all_keep_the_contract([several, wide], emulated)


def _demanded():
    """(what, values that must occur)."""
    yield "types", {(name(operand), name(out)) for operand, outs in OUTPUTS.items() for out in outs}
    yield "op", {"matmul", "addmm", "addmm_", "baddbmm", "gemm", "linear", "scaled_mm", "gemm_gemm", "attention"}
    for operand in ("a_layout", "b_layout", "c_layout"):
        yield operand, set(LAYOUTS)
    yield "c", {None, "full", "row", "column", "scalar"}
    yield "bias", {False, True}
    yield "a_scale", {None, "vector", "one"}
    for scale in ("row_scale", "col_scale"):
        yield scale, {None, "vector", "one", "each", "matrix", "matrices"}
    yield "activation", {None, *ACTIVATIONS}
    yield "a_activation", {None, *ACTIVATIONS}
    yield "multiply", {None, "full", "row"}
    yield "beside", {None, "float16", "bfloat16", "float32"}
    yield "factors", set(itertools.product(FACTORS, FACTORS))
    yield "batches", {((), ()), ((3,), ()), ((), (3,)), ((3,), (3,)), ((3, 1), (3,)), ((3, 1, 3), (3, 1)), ((0,), (0,))}
    yield "vectors", {(False, False), (True, False), (False, True), (True, True)}
    yield "special", {None, "nan_a", "inf_a", "inf_b", "nan_c", "nan_c_unread", "nan_ab_unread", "zeros"}
    yield "sixteens", set(itertools.product((False, True), repeat=3))
    yield "empty", {"m", "n", "k"}
    yield "long", {"bfloat16", "float16", "float32", "float8_e4m3fn", "int8"}


def _occurring(chosen):
    seen = {what: set() for what, _ in _demanded()}
    plain = [what for what in seen if what in GemmCase.__dataclass_fields__ and what != "c_layout"]
    for case in chosen:
        seen["types"].add((case.dtype, str(out_type(case)).removeprefix("torch.")))
        if not isinstance(case, GemmCase):
            seen["op"].add(case.op)
            continue
        for what in plain:
            seen[what].add(getattr(case, what))
        if case.c:
            seen["c_layout"].add(case.c_layout)
            seen["factors"].add((case.alpha, case.beta))
        seen["batches"].add(tuple(tuple(3 if x > 1 else x for x in batch) for batch in (case.batch_a, case.batch_b)))
        seen["vectors"].add((case.vector_a, case.vector_b))
        seen["sixteens"].add((case.m % 16 == 0, case.n % 16 == 0, case.k % 16 == 0))
        seen["empty"].update(size for size in "mnk" if getattr(case, size) == 0)
        seen["long"].update([case.dtype] if case.k > 1000 else [])
    return seen


@pytest.mark.parametrize("family", [EMULATED[:4], EMULATED[4:]], ids=["CDNA", "RDNA"])
def test_two_targets_of_each_family_meet_everything(family):
    """And all of them what concerns single products, every op, and every type of attention."""
    everything = {feature for case in sampling.sampled() for feature in sampling.features(case)}
    times = dict.fromkeys(everything, 0)
    for target in family:
        for feature in {feature for case in sampling.sample(SAMPLE, target) for feature in sampling.features(case)}:
            times[feature] += 1
    single = {
        feature for case in sampling.sampled() if isinstance(case, GemmCase) for feature in sampling.features(case)
    }
    assert len(single) > 200  # of 380
    least = {feature: 4 if feature in single or feature[:2] == ("attention", "type") else 2 for feature in everything}
    missing = [feature for feature in everything if times[feature] < least[feature]]
    assert not missing, f"of {', '.join(family)} too few meet {sorted(missing, key=repr)}"


@pytest.mark.parametrize("target", EMULATED)
def test_everything_occurs_in_the_sample_of_a_target(target):
    chosen = sampling.sample(SAMPLE, target)
    assert len(set(chosen)) == len(chosen) >= SAMPLE
    seen = _occurring(chosen)
    missing = [f"{what} {value}" for what, values in _demanded() for value in sorted(values - seen[what], key=str)]
    assert not missing, f"{target}'s sample lacks " + ", ".join(missing)
    assert any(_splits_k(case, target) for case in chosen if getattr(case, "k", 0) > 1000), (
        f"{target}'s sample splits no K"
    )


def _plans(case, target):
    return launching.plans(lambda: call(case, operands(case), {}), arch.target(target))


def _splits_k(case, target):
    return any(record.plan.config.order.splits > 1 for record in _plans(case, target))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "int8"])
def test_any_configuration_keeps_the_contract(dtype, emulated):
    """The planner takes small tiles for small products; tuning and large products take others."""
    target = emulated.removeprefix("emulated:")
    # Plain FMA takes long to emulate.
    m, n, k = (70, 75, 90) if dtype == "float32" and not target.startswith("gfx9") else (150, 139, 150)
    layouts = {"a_layout": "column", "b_layout": "column"} if dtype == "int8" else {}
    out_dtype = "float32" if dtype == "int8" else None
    case = GemmCase(m=m, n=n, k=k, dtype=dtype, bias=True, c="row", out_dtype=out_dtype, **layouts)
    (planned,) = _plans(case, target)
    configs = gemm.ranked(planned.problem, planned.target)
    chosen = {
        "the largest tile": max(configs, key=lambda x: (x.block_m * x.block_n, -x.order.splits)),
        "the most parts of K": max(configs, key=lambda x: (x.waves_k * x.order.splits * x.order.last, x.block_m)),
        "any": random.Random(target + dtype).choice(configs),
    }
    del chosen[("the most parts of K", "any")[EMULATED.index(target) % 2]]  # by turns
    for what, config in chosen.items():
        with tuned.forced(planned.problem, config):
            try:
                run(case, emulated)
            except Exception as failure:
                raise AssertionError(f"{what}, {config}: {failure}") from failure


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_the_last_round_is_split(dtype, emulated, monkeypatch):
    """On a card of five units, some of a product's tiles are whole and the K of the others is split."""
    target = emulated.removeprefix("emulated:")
    monkeypatch.setitem(model.CARDS, target, dataclasses.replace(model.CARDS[target], units=5))
    out_dtype = "float32" if dtype == "int8" else None
    k = 1100 if dtype != "float32" else 300 if target.startswith("gfx9") else 200  # steps enough to share
    case = GemmCase(m=100, n=75, k=k, dtype=dtype, bias=True, c="full", out_dtype=out_dtype, activation="relu")
    (planned,) = _plans(case, target)
    configs = [config for config in gemm.ranked(planned.problem, planned.target) if config.order.last > 1]
    config = min(configs, key=lambda x: (-x.order.last, x.block_m * x.block_n))
    plan = gemm.plan_of(planned.problem, config, planned.target, "")
    splits, _, tiles_m, tiles_n, whole, *_ = plan.numbers
    assert 1 < splits == config.order.last
    assert 0 < whole < tiles_m * tiles_n
    with tuned.forced(planned.problem, config):
        run(case, emulated, against_torch=False)  # which sums in another order


@pytest.mark.parametrize(("ev", "dtype"), [(17, "float16"), (18, "bfloat16"), (20, "float32")])
def test_parts_of_rows_that_no_chunks_fill(ev, dtype, emulated):
    """Attention's keys are split: what a block leaves of a row ends where the next row's begins."""
    case = AttentionCase(heads=2, sq=9, skv=2100, e=16, ev=ev, dtype=dtype)
    (planned,) = _plans(case, emulated.removeprefix("emulated:"))
    assert [launch.kernel for launch in planned.plan.launches] == ["attention", "attention_combine"]
    run(case, emulated)


def test_the_suite_is_as_large_as_promised():
    everything = cases()
    assert len(everything) >= 500
    factors = {(case.alpha, case.beta) for case in everything if isinstance(case, GemmCase) and case.c}
    assert {(alpha, beta) for alpha in (0, 1, -1, 0.5) for beta in (0, 1, -1, 0.5)} <= factors
    rows = {(case.dtype, case.out_dtype) for case in everything if isinstance(case, GemmCase)}
    assert {(name(operand), name(out)) for operand, outs in OUTPUTS.items() for out in outs} <= rows


def test_a_case_prints_as_what_makes_it_again():
    for case in cases("random"):
        assert eval(repr(case)) == case


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    m=st.integers(0, 40),
    n=st.integers(0, 40),
    k=st.integers(0, 60),
    dtype=st.sampled_from(("float32", "bfloat16", "float16", "float64", "int8", "float8_e4m3fn")),
    layouts=st.tuples(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS)),
    alpha=st.floats(-4, 4, width=32),
    beta=st.floats(-4, 4, width=32),
    c=st.sampled_from((None, "full", "row", "scalar")),
)
def test_any_gemm(m, n, k, dtype, layouts, alpha, beta, c):
    out = "float32" if dtype == "int8" else None
    run(
        GemmCase(
            m=m,
            n=n,
            k=k,
            dtype=dtype,
            a_layout=layouts[0],
            b_layout=layouts[1],
            alpha=alpha,
            beta=beta,
            c=c,
            out_dtype=out,
        ),
        against_torch=False,
    )


def _on(target):
    return wmma_ops.emulate(target) if target else contextlib.nullcontext()


@pytest.mark.parametrize("target", [None, "gfx942", "gfx1201"])
def test_half_results_are_rounded_once(target):
    """x·1 + c·1 with a sum that rounds differently when the product is rounded first."""
    a = torch.tensor([[1.0, 2.0**-8]], dtype=torch.bfloat16)  # 1 + 2⁻⁸ is halfway between two bfloat16
    b = torch.ones(2, 1, dtype=torch.bfloat16)
    c = torch.tensor([[2.0**-10]])
    want = (1 + 2.0**-8 + 2.0**-10,)
    with _on(target):
        got = wmma_ops.addmm(c, a, b)
    assert got.item() == torch.tensor(want, dtype=torch.float64).to(torch.bfloat16).item() == 1 + 2.0**-7


@pytest.mark.parametrize("target", [None, "gfx942", "gfx1201"])
def test_the_sum_of_two_pairs_is_rounded_once(target):
    a = torch.tensor([[1.0, 2.0**-8]], dtype=torch.bfloat16)
    b = torch.ones(2, 1, dtype=torch.bfloat16)
    a2, b2 = (torch.tensor([[2.0**-5]], dtype=torch.bfloat16) for _ in range(2))
    with _on(target):
        assert wmma_ops.gemm(a, b, a2=a2, b2=b2).item() == 1 + 2.0**-7
        assert wmma_ops.gemm(a2, b2, a2=a, b2=b).item() == 1 + 2.0**-7


@pytest.mark.parametrize("target", [None, "gfx942", "gfx1201"])
def test_the_same_bits_from_run_to_run(target):
    """On emulated targets in other orders of the waves."""
    chosen = cases("gemm")[:40]
    if target:
        chosen = [case for case in cases("matmul") if case.k > 1000] + chosen[:4]
    for case in chosen:
        t = operands(case)
        with _on(target):
            first = call(case, t, {})[0]
        with wmma_ops.emulate(target, order="random", seed=1) if target else contextlib.nullcontext():
            second = call(case, t, {})[0]
        assert torch.equal(first.nan_to_num(7), second.nan_to_num(7)), case


@pytest.mark.parametrize(
    ("dtype", "target"),
    [
        (torch.int8, None),
        (torch.bfloat16, None),
        (torch.float32, None),
        (torch.bfloat16, "gfx942"),
        (torch.int8, "gfx1201"),
    ],
    ids=str,
)
def test_offsets_past_2_to_the_31(dtype, target):
    """Rows that lie 2³¹ elements apart; memory that is not touched costs nothing."""
    a = torch.empty(2**31 + 64, dtype=dtype).as_strided((2, 16), (2**31, 1))
    a.copy_(torch.arange(32).view(2, 16))
    b = torch.ones(16, 3, dtype=dtype)
    with _on(target):
        assert wmma_ops.matmul(a, b).tolist() == [[120] * 3, [376] * 3]
        assert wmma_ops.matmul(b.mT, a.mT).tolist() == [[120, 376]] * 3
        assert wmma_ops.gemm(b[:8].mT[:2], b[:8], a2=a, b2=b).tolist() == [[128] * 3, [384] * 3]
    out = torch.empty(2**31 + 64, dtype=dtype).as_strided((2, 3), (2**31, 1))
    with _on(target):
        wmma_ops.addmm_(out, a[:, :4] * 0 + 2, b[:4], beta=0)
    assert out.tolist() == [[8] * 3] * 2


@pytest.mark.parametrize("k", [3, 11, 33, 37, 68, 128])
def test_a_row_is_not_touched_by_its_neighbours(k):
    """Neither by what a slice leaves out, nor by a NaN in the next row."""
    a, b = torch.randn(65, k).bfloat16(), torch.randn(k, 64).bfloat16()
    a[1::2] = float("nan")
    bias = torch.randn(64).bfloat16()
    batch = a.unsqueeze(0).repeat(3, 1, 1)
    for found in (
        wmma_ops.matmul(a, b),
        wmma_ops.matmul(a, b.mT.contiguous().mT),
        wmma_ops.addmm(bias, a, b),
        wmma_ops.linear(a, b.mT.contiguous(), bias, activation="gelu"),
        wmma_ops.matmul(batch, b),
        wmma_ops.baddbmm(bias, batch, b.expand(3, k, 64)),
    ):
        rows = found.isnan().float().mean(-1)
        assert (rows[..., 0::2] == 0).all()
        assert (rows[..., 1::2] == 1).all()
