"""Two products in one kernel: the value contract whatever the configuration, one launch, no memory for D0."""

import dataclasses
import functools

import pytest
import torch

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.hardware.arch import EMULATED
from wmma_ops.plan import model
from wmma_ops.plan.gemm_gemm import planner as gemm_gemm
from wmma_ops.plan.gemm_gemm.loops import loop_of
from wmma_ops.testing import GemmGemmCase, cases, run

HALVES = ("float16", "bfloat16")
KINDS = {
    "resident": lambda config: config.resident,
    "streamed": lambda config: not config.resident and config.waves_n == 1,
    "shared rows": lambda config: not config.resident and config.waves_n > 1,
}


@pytest.fixture
def in_one_kernel(monkeypatch):
    """Plans one kernel whatever two products would cost: the cheapest of a kind, or of all where none of it fits."""
    planned = []

    def force(kind: str | None = None, units: int | None = None):
        def choose(problem, target):
            found = list(gemm_gemm.candidates(problem, target))
            wanted = [config for config in found if kind is None or KINDS[kind](config)]
            config = min(wanted or found, key=lambda config: gemm_gemm.cost(problem, config, target), default=None)
            planned.append(config)
            return config, 0.0

        monkeypatch.setattr(gemm_gemm, "choose", choose)
        if units:
            for name, card in list(model.CARDS.items()):
                monkeypatch.setitem(model.CARDS, name, dataclasses.replace(card, units=units))
        torch.ops.wmma._forget_plans()
        return planned

    yield force
    torch.ops.wmma._forget_plans()


def _run_all(chosen, target):
    failures = []
    for case in chosen:
        try:
            run(case, f"emulated:{target}")
        except Exception as failure:
            failures.append(f"{case!r}\n  {type(failure).__name__}: {failure}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("target", EMULATED)
def test_every_case_in_one_kernel(target, in_one_kernel):
    """By turns one half or the other of int8's cases and of those of one of the two 16-bit types."""
    planned = in_one_kernel()
    turn = EMULATED.index(target)
    chosen = [case for case in cases("gemm_gemm") if case.dtype in ("int8", HALVES[turn % 2])][turn // 2 % 2 :: 2]
    _run_all(chosen, target)
    assert len(planned) >= len(chosen) - 4  # some are empty, or without K or H
    assert None not in planned


LARGER = (
    GemmGemmCase(m=130, k=70, h=100, n=90, bias0=True, bias1=True, c="full", beta1=0.5, activation="relu"),
    GemmGemmCase(m=200, k=130, h=256, n=300, activation="relu"),
    GemmGemmCase(m=65, k=64, h=128, n=128, layout="column"),
    GemmGemmCase(m=70, k=64, h=64, n=64, gate=True, batch=(2,), activation="silu"),
    GemmGemmCase(m=40, k=96, h=96, n=96),  # runs of chunks that are no power of two
    GemmGemmCase(m=33, k=600, h=48, n=40),
    GemmGemmCase(m=33, k=40, h=300, n=100, bias0=True),
    GemmGemmCase(m=40, k=72, h=520, n=200),
)


LARGER_ON = ("gfx942", "gfx1100", "gfx1201")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", LARGER_ON)
def test_larger_cases(target, kind, in_one_kernel):
    """By turns one half of the cases or the other."""
    planned = in_one_kernel(kind)
    number = list(KINDS).index(kind)
    chosen = LARGER[(LARGER_ON.index(target) + number) % 2 :: 2]
    _run_all([dataclasses.replace(case, dtype=HALVES[number % 2], alpha0=0.1) for case in chosen], target)
    assert any(KINDS[kind](config) for config in planned)


@pytest.mark.parametrize(("target", "half"), [("gfx908", 0), ("gfx950", 1), ("gfx1151", 0), ("gfx1201", 1)])
def test_larger_cases_of_int8(target, half, in_one_kernel):
    in_one_kernel()
    _run_all([dataclasses.replace(case, dtype="int8", alpha0=0.01) for case in LARGER[half::2]], target)


@pytest.mark.parametrize("target", ["gfx90a", "gfx950", "gfx1100", "gfx1201"])
def test_blocks_walk_down_the_rows(target, in_one_kernel):
    """A device of one unit: its blocks take several tiles of rows each, the last one ragged."""
    planned = in_one_kernel("resident", units=1)
    for m, batch in ((1203, ()), (517, (3,))):
        run(GemmGemmCase(m=m, k=48, h=32, n=40, batch=batch, dtype="float16", alpha0=0.1), f"emulated:{target}")
    assert all(config.resident for config in planned)
    assert all(2 * config.block_m < 1203 for config in planned)


@functools.cache
def _explained(target: str, m: int, k: int, h: int, n: int):
    a, b0, b1 = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((m, k), (k, h), (h, n)))
    return wmma_ops.explain("gemm_gemm", a, b0, b1, activation="relu", target=target)


@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("target", EMULATED)
def test_one_launch_and_no_memory_for_d0(target, size):
    found = _explained(target, 65536, size, size, size)
    (launch,) = found.launches
    assert launch.kernel == "gemm_gemm"
    assert set(launch.tensors) == {"a", "b0", "b1", "out"}
    assert launch.figures.spills == 0
    assert "one kernel" in found.reason


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_one_kernel_runs_and_allocates_nothing_else(target):
    a, b0, b1 = torch.randn(2048, 64).half(), torch.randn(64, 64).half() / 8, torch.randn(64, 64).half() / 8
    assert len(_explained(target, 2048, 64, 64, 64).launches) == 1
    with wmma_ops.emulate(target) as emulation:
        got = wmma_ops.gemm_gemm(a, b0, b1, activation="relu")
    assert len(emulation.launches) == 1
    want = (a.double() @ b0.double()).relu().half().double() @ b1.double()
    assert ((got.double() - want).norm() / want.norm()).item() < 1e-3


def test_two_products_where_they_are_cheaper_and_where_nothing_fits():
    wide = _explained("gfx942", 64, 64, 1000, 1000)
    assert next(launch.kernel for launch in wide.launches) == "gemm"
    assert "does not fit" in wide.steps[0].reason
    assert len(wide.steps) == 3  # what was asked first, then both products
    square = _explained("gfx942", 4096, 4096, 256, 256)
    assert "thousand modelled cycles" in square.steps[0].reason
    a = torch.randn(8, 8)
    single = wmma_ops.explain("gemm_gemm", a, a, a, target="gfx942")
    assert "float32" in single.steps[0].reason


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", EMULATED)
def test_no_bank_conflicts(target, kind, in_one_kernel):
    planned = in_one_kernel(kind)
    a, b0, b1 = (torch.randn(shape).half() / 8 for shape in ((64, 64), (64, 128), (128, 64)))
    with wmma_ops.emulate(target, count_traffic=True) as emulation:
        wmma_ops.gemm_gemm(a, b0, b1)
    assert [KINDS[kind](config) for config in planned] == [True]
    (launch,) = emulation.launches
    assert launch.traffic.shared_reads > 0
    assert launch.traffic.shared_read_conflicts == 0
    assert launch.traffic.shared_write_conflicts == 0


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("size", [16, 256])
@pytest.mark.parametrize("dtype", [torch.float16, torch.int8], ids=str)
@pytest.mark.parametrize("target", [name for name, row in arch.TARGETS.items() if row.compile_only])
def test_picks_compile_where_nothing_runs_them(target, dtype, size, gate):
    """The kernel holds the planner's numbers against its own."""
    a, b = torch.empty(65536, size, dtype=dtype), torch.empty(size, size, dtype=dtype)
    plan = wmma_ops.explain("gemm_gemm", a, b, b, gate=b if gate else None, activation="relu", target=target)
    (launch,) = plan.launches
    assert launch.kernel == "gemm_gemm"
    assert launch.code_object[:4] == b"\x7fELF"


def test_candidates_fit_their_target():
    found = _explained("gfx1201", 4096, 128, 128, 128).problem
    for name in (*EMULATED, "sm_90a"):
        target = arch.target(name)
        configs = list(gemm_gemm.candidates(found, target))
        assert configs
        for config in configs:
            assert loop_of(config).shared_bytes(found, config, target) <= target.lds_bytes
            assert config.all_waves * target.wave <= target.max_threads
