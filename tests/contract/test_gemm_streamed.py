"""Products whose operands go straight from memory to registers (kernels/wmma/gemm/streamed.hpp), in every configuration."""

from dataclasses import dataclass

import pytest
import torch

import wmma_ops
from wmma_ops.emulator import EmulationError
from wmma_ops.hardware import arch
from wmma_ops.plan.gemm import planner
from wmma_ops.runtime import launching, tuned
from wmma_ops.testing import GemmCase, Mismatch, run

CDNA = [name for name in arch.EMULATED if arch.target(name).family == "cdna"]
STREAMED, EPILOGUE = "gemm/streamed.hpp", "tile/epilogue.hpp"

# Lines of K of which waves get none, some, as many as are on their way, and more, with a rest and without; rows and columns
# that fill no tile; both orders of B.
CASES = [
    GemmCase(m=1, n=5, k=8, dtype="bfloat16", b_layout="column"),
    GemmCase(m=16, n=40, k=328, dtype="float16"),
    GemmCase(m=13, n=33, k=2048, dtype="bfloat16", b_layout="column", c="full", beta=0.5, bias=True, activation="relu"),
    GemmCase(m=5, n=72, k=3352, dtype="bfloat16", out_dtype="float32"),
    GemmCase(m=31, n=50, k=1560, dtype="float16", b_layout="column"),
    GemmCase(m=30, n=88, k=1984, dtype="bfloat16", bias=True),
    GemmCase(m=70, n=36, k=1032, dtype="bfloat16", b_layout="column", c="row", alpha=0.5),
    GemmCase(m=36, n=200, k=1104, dtype="float16"),
    GemmCase(m=9, n=48, k=520, batch_a=(3,), batch_b=(3,), dtype="bfloat16"),
    GemmCase(m=14, n=40, k=1160, k2=72, dtype="float16", b_layout="column", b2_layout="column"),
    GemmCase(m=14, n=40, k=584, k2=136, dtype="bfloat16", b_layout="column"),
    GemmCase(m=12, n=21, k=1200, dtype="int8", out_dtype="int32", b_layout="column"),
]
# Of 64 rows by 64 columns.
SQUARES = [
    GemmCase(
        m=70, n=100, k=1304, dtype="bfloat16", b_layout="column", c="full", beta=0.5, bias=True, activation="gelu"
    ),
    GemmCase(m=150, n=64, k=2056, dtype="float16", b_layout="column", out_dtype="float32"),
    GemmCase(m=100, n=70, k=4112, dtype="int8", out_dtype="int32", b_layout="column"),
]


def streamed(problem, target):
    return [config for config in planner.ranked(problem, target) if config.loop == "streamed"]


def any_streamed(turn):
    def choose(problem, target):
        found = sorted(streamed(problem, target), key=lambda x: (x.order.splits, x.block_m, x.block_n, x.waves))
        return found[turn * 5 % len(found)], 0.0

    return choose


@pytest.mark.full
@pytest.mark.parametrize("target", CDNA)
def test_values(target, monkeypatch):
    seen = set()
    for turn, case in enumerate(CASES):

        def choose(problem, row, turn=turn):
            config, cost = any_streamed(turn)(problem, row)
            seen.add((config.block_m, config.block_n, config.waves, config.order.splits > 1))
            return config, cost

        monkeypatch.setattr(planner, "choose", choose)
        torch.ops.wmma._forget_plans()
        run(case, f"emulated:{target}")
    torch.ops.wmma._forget_plans()
    rows, columns, waves, splits = (set(of) for of in zip(*seen, strict=True))
    assert rows == {16, 32, 64}
    assert columns == {16, 32, 64}
    assert len(waves) > 1
    assert splits == {False, True}


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_squares_whose_sums_take_shared_memory_by_turns(target, monkeypatch):
    seen = []

    def choose(problem, row):
        found = [x for x in streamed(problem, row) if x.block_m == x.block_n == 64]
        seen.append(found[len(seen) % len(found)])
        return seen[-1], 0.0

    monkeypatch.setattr(planner, "choose", choose)
    torch.ops.wmma._forget_plans()
    for case in SQUARES:
        run(case, f"emulated:{target}")
    torch.ops.wmma._forget_plans()
    assert {config.order.splits > 1 for config in seen} == {False, True}


@pytest.mark.full
@pytest.mark.parametrize("target", CDNA)
def test_nobody_spills(target):
    """And the loop asks for whole chunks, without computing an address in the vector unit."""
    row = arch.target(target)
    a = torch.empty(64, 4096, dtype=torch.bfloat16)
    for m, b in ((m, b) for m in (16, 32, 64) for b in (torch.empty(96, 4096, dtype=torch.bfloat16).mT,
                                                       torch.empty(4096, 96, dtype=torch.bfloat16))):  # fmt: skip
        (problem,) = launching.problems(lambda m=m, b=b: wmma_ops.matmul(a[:m], b), row)
        found = [config for config in streamed(problem, row) if config.order.splits == 1]
        assert found
        for config in found:
            with tuned.forced(problem, config):
                launch = wmma_ops.explain("matmul", a[:m], b, target=target).launches[0]
            assert launch.figures.spills == 0, config
            assert launch.figures.scratch_bytes == 0, config
            assert (launch.figures.loop.valu == 0) == (problem.b_order == "k"), config


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_the_planner_takes_it_where_rows_are_few(target):
    row = arch.target(target)
    for m, n, k in ((1, 4096, 4096), (16, 14336, 4096), (16, 4096, 14336), (8, 1024, 8192)):
        a, b = torch.empty(m, k, dtype=torch.bfloat16), torch.empty(n, k, dtype=torch.bfloat16)
        (problem,) = launching.problems(lambda a=a, b=b: wmma_ops.linear(a, b), row)
        assert planner.choose(problem, row)[0].loop == "streamed"


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_reading_b_takes_the_time_that_memory_takes(target):
    """By the clock, all launches together: 85 % of the rate at which memory gives each tensor once, and more."""
    a, b = torch.zeros(16, 4096, dtype=torch.bfloat16), torch.zeros(4096, 4096, dtype=torch.bfloat16)
    estimates = [x.timing().estimate for x in wmma_ops.explain("linear", a, b, target=target).launches]
    assert len(estimates) == 1
    assert estimates[0].by_memory


@pytest.mark.parametrize("order", ["reverse", "random"])
def test_waves_in_any_order(order, monkeypatch):
    monkeypatch.setattr(planner, "choose", any_streamed(1))
    torch.ops.wmma._forget_plans()
    a, b = torch.randn(13, 1096).bfloat16(), torch.randn(1096, 72).bfloat16()
    results = []
    for how in ("forward", order):
        with wmma_ops.emulate("gfx942", order=how, seed=5):
            results.append(wmma_ops.matmul(a, b))
    torch.ops.wmma._forget_plans()
    assert torch.equal(*results)


@dataclass(frozen=True)
class Wrong:
    name: str
    old: str
    new: str
    case: GemmCase
    caught: type[Exception] | tuple[type[Exception], ...] = Mismatch
    file: str = STREAMED
    columns: int = 32

    def __str__(self) -> str:
        return self.name


ALONG = GemmCase(m=13, n=21, k=2344, dtype="bfloat16", b_layout="column")
ACROSS = GemmCase(m=13, n=40, k=2344, dtype="bfloat16")
WRONG = [
    Wrong("a_round_too_many", "for (; left >= 2 * kStages; left", "for (; left >= kStages; left", ALONG,
          (Mismatch, EmulationError)),
    Wrong("forgets_the_last_lines", "finish<0>(wave, a, b, operands, left - kStages);",
          "finish<0>(wave, a, b, operands, 0);", ALONG),
    Wrong("multiplies_what_was_asked_for_last", "operands[(kMore + i) % kStages].multiply(wave);",
          "operands[kStages - 1].multiply(wave);", ALONG),
    Wrong("forgets_the_rest_of_k", "if (rest != 0 && lines % kWavesK == reader.wave)",
          "if (rest > kDepth && lines % kWavesK == reader.wave)", ALONG),
    Wrong("every_wave_adds_the_rest", "if (rest != 0 && lines % kWavesK == reader.wave)", "if (rest != 0)", ALONG,
          (Mismatch, EmulationError)),
    Wrong("rows_that_are_not_there", "(at < last ? at : last) * static_cast", "at * static_cast", ALONG, EmulationError),
    Wrong("columns_that_are_not_there", "(column < last ? column : last / kOwn * kOwn)", "(column)", ACROSS,
          EmulationError),
    Wrong("chunks_of_the_wrong_k", "lane / 16 * 16;", "lane / 16 * 32;", ALONG, (Mismatch, EmulationError)),
    Wrong("columns_in_the_order_of_lanes", "One::C::col(lane, e % kOfOne) * kOwn + e / kOfOne",
          "One::C::col(lane, e % kOfOne) + e / kOfOne * One::kCols", ACROSS),
    Wrong("turned_the_wrong_way", "column % 2 == 0 ? arch", "column % 2 != 0 ? arch", ACROSS),
    Wrong("every_wave_has_the_first_lines", "arch::uniform(thread / arch::kWaveSize) * 128", "0", ALONG),
    Wrong("waves_in_each_others_lines", "renewed(base_ + kWavesK * 128)", "renewed(base_ + 128)", ALONG),
    Wrong("sums_over_those_that_are_still_read", "if constexpr (kFirst > 0) meet();", "", SQUARES[0],
          EmulationError, EPILOGUE, 64),
    Wrong("the_first_rows_sums_again", "write(wave, kFirst + i,", "write(wave, i,", SQUARES[0], Mismatch, EPILOGUE, 64),
]  # fmt: skip


def test_what_is_replaced_stands_there_once(sources):
    found = {of.name: (sources / "wmma" / of.file).read_text().count(of.old) for of in WRONG}
    assert set(found.values()) == {1}, f"the header has changed; write these anew: {found}"


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources, monkeypatch):
    path = sources / "wmma" / of.file

    def choose(problem, target):
        """Where a wave has more lines than are on their way, of two columns or more a lane."""
        found = [
            x for x in streamed(problem, target) if x.waves == 4 and x.block_n == of.columns and x.order.splits == 1
        ]
        return found[0], 0.0

    monkeypatch.setattr(planner, "choose", choose)
    torch.ops.wmma._forget_plans()
    run(of.case, "emulated:gfx942")  # right as it is
    path.write_text(path.read_text().replace(of.old, of.new))
    torch.ops.wmma._forget_plans()
    with pytest.raises(of.caught):
        run(of.case, "emulated:gfx942")
