"""Products whose eight waves multiply in turns, or each pass a tile on among their products (kernels/wmma/gemm/staged.hpp,
direct_copy.hpp), where the planner would not have them."""

from collections.abc import Callable

import pytest
import torch

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.gemm import planner
from wmma_ops.plan.gemm.loops import loop_of
from wmma_ops.runtime import launching, tuned
from wmma_ops.testing import GemmCase, run

choose = planner.choose
CDNA = [name for name in arch.EMULATED if arch.target(name).family == "cdna"]
# One tile of K, then two to ten, whole ones and others; by all orders, with all that goes with it.
CASES = [
    GemmCase(m=200, n=152, k=24, dtype="bfloat16"),
    GemmCase(m=256, n=256, k=128, dtype="bfloat16", b_layout="column"),
    GemmCase(m=304, n=136, k=104, dtype="float16", a_layout="column"),
    GemmCase(m=248, n=200, k=192, dtype="bfloat16", a_layout="column", b_layout="column"),
    GemmCase(m=129, n=264, k=256, dtype="float16", b_layout="column", c="full", beta=0.5, bias=True, activation="relu"),
    GemmCase(m=256, n=200, k=128, batch_a=(3,), batch_b=(3,), dtype="float16"),
    GemmCase(m=256, n=200, k=304, dtype="int8", out_dtype="int32", b_layout="column"),
    GemmCase(m=140, n=256, k=120, dtype="float32"),
]
# What takes no turns: for its second pair, for its prologue, and for how it lies.
OTHERS = [
    GemmCase(m=180, n=256, k=152, k2=96, dtype="float16", b_layout="column", b2_layout="column"),
    GemmCase(m=256, n=160, k=304, dtype="bfloat16", a_scale="vector", a_activation="silu"),
    GemmCase(m=256, n=130, k=161, dtype="bfloat16", a_layout="offset", b_layout="sliced"),
]


def eight_waves(problem, target, turn: int = 0):
    found = [
        config
        for config in planner.candidates(problem, target)
        if config.waves == 8 and config.waves_k == 1 and not loop_of(config).lacking(problem, config, target)
    ]
    return found[turn % len(found)], 0.0


def tiles_ahead(problem, target, turn: int = 0):
    """Four waves that have one tile and others on their way; where nothing goes there by itself, what is cheapest."""
    found = [
        config
        for config in planner.candidates(problem, target)
        if config.loop == "direct_copy" and config.waves == 4 and config.stages > 2
    ]
    return (found[turn % len(found)], 0.0) if found else choose(problem, target)


def run_by_turns(monkeypatch, cases, target: str, configurations: Callable) -> list:
    """Runs each case with another of these configurations; tells with which."""
    chosen = []
    for turn, case in enumerate(cases):

        def of_turn(problem, row, turn=turn):
            config, cost = configurations(problem, row, turn)
            chosen.append(config)
            return config, cost

        monkeypatch.setattr(planner, "choose", of_turn)
        torch.ops.wmma._forget_plans()
        run(case, f"emulated:{target}")
    torch.ops.wmma._forget_plans()
    return chosen


@pytest.mark.parametrize("target", [*CDNA, "gfx1201"])
def test_values(target, monkeypatch):
    # On Radeon other types have too many sums for eight waves.
    halves = [case for case in CASES + OTHERS if case.dtype in ("float16", "bfloat16")]
    chosen = run_by_turns(monkeypatch, CASES + OTHERS if target in CDNA else halves, target, eight_waves)
    assert len({(config.block_m, config.block_n, config.waves_m) for config in chosen}) > 3


@pytest.mark.parametrize("first", [0, 1])
def test_values_of_tiles_ahead(first, monkeypatch):
    cases = [*CASES, *OTHERS]

    def configurations(problem, target, turn):
        return tiles_ahead(problem, target, 17 * (first * len(cases) + turn))

    chosen = run_by_turns(monkeypatch, cases, "gfx950", configurations)
    stages = {(config.loop, config.stages, config.waves_k) for config in chosen}
    assert {("direct_copy", count, 1) for count in (3, 4)} <= stages


@pytest.mark.parametrize("target", CDNA)
def test_who_takes_turns(target):
    """Told by the priority that only these change; nobody spills for it."""
    a, b = torch.empty(512, 512, dtype=torch.bfloat16), torch.empty(512, 512, dtype=torch.bfloat16)
    takes = target in ("gfx90a", "gfx942", "gfx950")
    for right, more, turns in (
        (b.mT, {}, takes),
        (b, {}, takes),
        (b.mT, {"bias": a[0], "activation": "gelu"}, takes),
        (b.mT, {"a_activation": "relu"}, False),
        (b.mT, {"a2": a[:, :64], "b2": b[:64]}, False),
    ):
        row = arch.target(target)
        (problem,) = launching.problems(lambda right=right, more=more: wmma_ops.gemm(a, right, **more), row)
        found = [c for c in planner.candidates(problem, row) if c.waves == 8]
        largest = max(found, key=lambda config: (config.block_m * config.block_n, config.waves_n == 4))
        with tuned.forced(problem, largest):
            (launch,) = wmma_ops.explain("gemm", a, right, target=target, **more).launches
        assert ("s_setprio 1" in launch.assembly) == turns, (more, launch.figures)
        assert launch.figures.spills == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("grid", [(2, 4), (4, 2)])
def test_nobody_spills_for_passing_on(grid, dtype):
    row = arch.target("gfx1201")
    a, b = torch.empty(512, 512, dtype=dtype), torch.empty(512, 512, dtype=dtype)
    for left, right in ((a, b), (a, b.mT), (a.mT, b), (a.mT, b.mT)):
        (problem,) = launching.problems(lambda left=left, right=right: wmma_ops.matmul(left, right), row)
        for config in planner.candidates(problem, row):
            if config.waves == 8 and (config.waves_m, config.waves_n) == grid:
                with tuned.forced(problem, config):
                    (launch,) = wmma_ops.explain("matmul", left, right, target=row.name).launches
                assert launch.figures.spills == launch.figures.scratch_bytes == 0, (config, launch.figures)


@pytest.mark.parametrize("target", ["gfx942", "gfx950", "gfx1201"])
@pytest.mark.parametrize("order", ["reverse", "random"])
def test_waves_in_any_order(order, target, monkeypatch):
    monkeypatch.setattr(planner, "choose", eight_waves)
    torch.ops.wmma._forget_plans()
    a, b = torch.randn(256, 160).bfloat16(), torch.randn(160, 256).bfloat16()
    results = []
    for how in ("forward", order):
        with wmma_ops.emulate(target, order=how, seed=5):
            results.append(wmma_ops.matmul(a, b))
    torch.ops.wmma._forget_plans()
    assert torch.equal(*results)
