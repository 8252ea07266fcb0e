"""What every main loop of two products is to the planner: the base of those in loops/, one a file.

A loop is a header in kernels/wmma/gemm_gemm, which defines `wmma::<kernel>`, and a file in loops/ of the same stem.
"""

from collections.abc import Iterator
from math import ceil
from typing import ClassVar

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import step_of
from wmma_ops.ops.types import bits
from wmma_ops.plan import model
from wmma_ops.plan.gemm_gemm.config import GemmGemmConfig
from wmma_ops.plan.plan import MOST_GRID_Y
from wmma_ops.plan.problem import GemmGemmProblem

_ADDRESSES = 60  # registers of a lane for these and for operands, beside what it holds


class Loop:
    """The defaults are of waves that multiply by themselves."""

    name: ClassVar[str]  # the stem of both files
    kernel: ClassVar[str]  # the template in C++
    room: ClassVar[float] = 0.6  # of AMD's registers, for what a lane holds

    def candidates(self, problem: GemmGemmProblem, target: arch.Target) -> Iterator[GemmGemmConfig]:
        """Configurations that the kernel takes; none where it does not take the problem."""
        raise NotImplementedError

    # --------------------------------------------------------------------------------- what it asks of the hardware

    def shared_bytes(self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
        """Dynamic shared memory, as the kernel counts it."""
        raise NotImplementedError

    def registers(self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
        """What a lane holds of A, D0, D1 and tiles on their way, at the busiest point."""
        lanes, words = config.waves * target.wave, bits(problem.a) / 32
        copies = step_of(target, problem.a, False, 16).copies
        shares = config.waves_m * config.wave_m / lanes  # of a matrix with a row for each of the block's
        sums0 = shares * config.block_h * (2 if problem.gate else 1)
        sums1 = shares * config.block_n
        d0 = shares * config.block_h * words * copies
        kept = sums1 if problem.h > config.block_h else 0
        first, last = self.on_their_way(problem, config, target)
        own = d0 if config.waves_n == 1 else 0
        return ceil(max(sums0 + kept + max(first, d0 / 2), own + sums1 + last))

    def on_their_way(
        self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target
    ) -> tuple[float, float]:
        """Registers of a lane for tiles of the first product, and of the last, that are on their way."""
        raise NotImplementedError

    def free_registers(self, config: GemmGemmConfig, target: arch.Target) -> float:
        """Of a lane, for what `registers` counts; addresses and operands take the rest."""
        if target.vendor == "nvidia":
            return 0.7 * min(255, 65536 // (config.waves * target.wave))
        if target.family == "cdna":
            return 0.6 * 512 // config.occupancy
        return self.room * min(256, 1536 // config.occupancy)

    def blocks_at_once(self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
        """That share a unit."""
        taken = self.registers(problem, config, target) + _ADDRESSES
        return model.resident(target, config.all_waves, taken, self.shared_bytes(problem, config, target))

    def maps_result(self, problem: GemmGemmProblem, config: GemmGemmConfig) -> bool:
        """Whether a copy engine takes D1 to memory."""
        return False

    def mapped_lines(self, problem: GemmGemmProblem, config: GemmGemmConfig) -> tuple[int, int, int, int]:
        """Lines of A, of the first weights and of the second that a copy engine brings, and of D that it takes from a
        wave: 0 where none does."""
        return 0, 0, 0, 0

    def numbers(self, config: GemmGemmConfig) -> dict[str, int]:
        """What its kernel asks of a configuration beside what all do."""
        return {}

    # ---------------------------------------------------------------------------- what it costs, how it is launched

    def cost(self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> float:
        """Modelled cycles."""
        raise NotImplementedError

    def blocks_of(self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
        """Of each matrix of the batch."""
        return ceil(problem.m / config.team_m)

    def grid(
        self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target, blocks: int
    ) -> tuple[int, int]:
        """Of so many blocks for each of the batch's matrices."""
        return blocks, min(problem.batch, MOST_GRID_Y)
