"""What the main loop of a large product asks of memory, counted by the emulator on the kernels planned for 4096³."""

import dataclasses
import functools

import pytest
import torch

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.runtime import tuned


@functools.cache
def _counted(target: str, by_columns: bool, tiles: int):
    """The traffic of one block over so many tiles of K, and the result's error."""
    side = torch.Generator().manual_seed(tiles)

    def operands(m, n, k):
        a = torch.randn(m, k, generator=side).half()
        b = torch.randn(n, k, generator=side).half().t() if by_columns else torch.randn(k, n, generator=side).half()
        return a, b

    large = wmma_ops.explain("matmul", *operands(64, 64, 64), target=target).problem
    large = dataclasses.replace(large, m=4096, n=4096, k=4096)
    config, _ = gemm.choose(large, arch.target(target))
    config = config.ordered(splits=1, last=1)  # a block sees all of K
    a, b = operands(config.block_m, config.block_n, tiles * config.block_k)
    problem = wmma_ops.explain("matmul", a, b, target=target).problem
    with tuned.forced(problem, config), wmma_ops.emulate(target, count_traffic=True) as emulation:
        out = wmma_ops.matmul(a, b)
    want = a.double() @ b.double()
    return emulation.launches[0].traffic, ((out.double() - want).norm() / want.norm()).item()


@pytest.mark.parametrize("by_columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("target", arch.EMULATED)
def test_the_main_loop_has_no_conflict_and_no_stray_segment(target, by_columns):
    (short, error), (long, _) = (_counted(target, by_columns, tiles) for tiles in (3, 5))
    assert error < 1e-3
    loop = {name: getattr(long, name) - getattr(short, name) for name in vars(long)}  # two rounds of the loop alone
    assert loop["shared_reads"] > 0
    assert loop["shared_writes"] > 0
    assert loop["shared_read_conflicts"] == 0
    assert loop["shared_write_conflicts"] == 0
    assert loop["segments"] == loop["wanted"]
