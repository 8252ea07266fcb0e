"""kernels/wmma/gemm/straight.hpp: few rows, all the work is to read B: operands go straight to registers."""

from collections.abc import Iterator

import torch

from wmma_ops.hardware import arch
from wmma_ops.ops.types import elements_in
from wmma_ops.plan import model
from wmma_ops.plan.gemm.config import GemmConfig
from wmma_ops.plan.gemm.loop import Loop
from wmma_ops.plan.gemm.loops import async_copy
from wmma_ops.plan.gemm.tile_order import TileOrder
from wmma_ops.plan.problem import GemmProblem

_WAY = model.Way(1700, 36, 0.17, 0.1)


class Straight(Loop):
    name = "straight"
    tag = "Straight"
    most_columns = 2  # so that a line is finished by all lanes of a wave

    def takes(self, problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool) -> bool:
        few = problem.m <= 16 and all(pair.a_order == "k" for pair in problem.pairs)
        equal = element == problem.b
        return few and equal and not problem.wide and async_copy.LOOP.takes(problem, target, element, lanes)

    def candidates(
        self, problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool, beside: frozenset[str]
    ) -> Iterator[GemmConfig]:
        """A single row of tiles, whose waves split K."""
        rows = 8 if problem.m <= 8 else 16
        for waves, stages in ((4, 4), (8, 3), (16, 2)):  # as much on its way as registers hold
            depth = waves * elements_in(element, 64)
            yield GemmConfig(self.name, element, False, 16, rows, 32, depth, 1, 1, waves, stages, 1, TileOrder(0))

    def shared_bytes(self, problem: GemmProblem, config: GemmConfig, target: arch.Target) -> int:
        """The waves' sums."""
        return config.waves * config.block_m * (config.block_n + 4) * config.sum_bytes

    def way(self, target: arch.Target) -> model.Way:
        return _WAY

    def shared_cycles(self, config: GemmConfig, target: arch.Target) -> float:
        return 0

    def in_flight(self, config: GemmConfig) -> int:
        return config.stages

    def sums_exchanged(self) -> float:
        return 0.25


LOOP = Straight()
