"""The kernels that two products may take together: what one is made of."""

from dataclasses import dataclass

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import step_of
from wmma_ops.ops.types import bits, bytes_of
from wmma_ops.plan.problem import GemmGemmProblem


@dataclass(frozen=True)
class GemmGemmConfig:
    """One kernel. Sizes are in elements."""

    loop: str  # the main loop: a file of loops/, and of kernels/wmma/gemm_gemm
    resident: bool  # all weights stay in shared memory, and blocks are persistent over the rows
    waves_m: int
    waves_n: int  # that share rows: each computes a part of the columns of D0, then of D1
    tiles_m: int  # of 16 rows, of each wave
    block_h: int  # columns of D0 at once
    block_n: int  # columns of D1 at once
    block_k: int
    # Tiles in flight by asynchronous copies (resident: of each wave's rows; of warpgroups: places of one queue); 0: by way
    # of registers.
    stages: int
    occupancy: int  # waves at once on a SIMD that registers are kept for (NVIDIA: blocks on an SM)
    askers: int = 0  # waves that ask for tiles and multiply nothing
    team_waves: int = 0  # that share the rows they go through; 0: all

    @property
    def waves(self) -> int:
        """That multiply."""
        return self.waves_m * self.waves_n

    @property
    def all_waves(self) -> int:
        return self.waves + self.askers

    @property
    def wave_m(self) -> int:
        return 16 * self.tiles_m

    @property
    def block_m(self) -> int:
        return self.waves_m * self.wave_m

    @property
    def team_m(self) -> int:
        """Rows that waves share as they go through them."""
        return self.team_waves * self.wave_m or self.block_m

    def __str__(self) -> str:
        kind = "resident weights" if self.resident else "streamed weights"
        stages = f", {self.stages} stages" if self.stages else ""
        return (
            f"{kind}, {self.block_m} rows, H by {self.block_h}, N by {self.block_n}, K by {self.block_k}, "
            f"{self.waves_m}x{self.waves_n} waves, {self.loop}{stages}"
        )


def depth_of(problem: GemmGemmProblem, target: arch.Target) -> int:
    """What one step takes of K or H: the lines of its first operand as well."""
    return step_of(target, problem.a, False, 16).depth


def last_lines(problem: GemmGemmProblem, target: arch.Target) -> int:
    return 32 if target.vendor == "nvidia" else depth_of(problem, target)


def columns_of(problem: GemmGemmProblem, target: arch.Target) -> list[int]:
    """How many columns of D1 a wave may hold: no more than there are, but the fewest there can be."""
    lines = last_lines(problem, target)
    return [x for x in (32, 64, 128) if x % lines == 0 and (x in (32, lines) or x < 2 * problem.n)]


def goes_as_it_is(problem: GemmGemmProblem, target: arch.Target) -> bool:
    """Whether 16-byte chunks can go to shared memory unchanged."""
    least = min(problem.a_vec, problem.b0_vec, problem.gate_vec if problem.gate else 8)
    same = not problem.gate or problem.gate_order == problem.b0_order
    return target.vendor == "nvidia" and bits(problem.a) == 16 and least == 8 and same


def bytes_moved(problem: GemmGemmProblem) -> int:
    """What one kernel reads and writes, each matrix once."""
    firsts = 2 if problem.gate else 1
    weights = (firsts * problem.k + problem.n) * problem.h
    beside = bytes_of(problem.c) if problem.c is not None else 0
    rows = bytes_of(problem.a, problem.k) + problem.n * (bytes_of(problem.d) + beside)
    return problem.batch * (problem.m * rows + bytes_of(problem.a, weights))
