"""What every main loop of a product is to the planner: the base of those in loops/, one a file.

A loop is a header in kernels/wmma/gemm and a file in loops/ of the same stem. The header defines `struct wmma::<tag>` and
how a kernel runs by it; the file says what it takes, its configurations, what they ask of the hardware, what they cost, and
how their blocks start.
"""

from collections.abc import Iterator
from math import ceil
from typing import ClassVar

import torch

from wmma_ops.hardware import arch
from wmma_ops.ops.types import bytes_of
from wmma_ops.plan import model, ways
from wmma_ops.plan.gemm.config import GemmConfig
from wmma_ops.plan.problem import GemmProblem


class Loop:
    name: ClassVar[str]  # the stem of both files
    tag: ClassVar[str]  # the struct that names it in C++
    pairs: ClassVar[bool] = False  # whether its tile of B may be of two matrices, a gate's too
    most_columns: ClassVar[int] = 8  # of the result, that a lane finishes together
    zeros_cost: ClassVar[float] = 0  # of rows that are not there, whose zeros something writes: of the copy engine's

    # ------------------------------------------------------------------------------------------------- what it takes

    def takes(self, problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool) -> bool:
        """Whether it computes the problem on this target, multiplying `element`, by plain FMA where `lanes`."""
        raise NotImplementedError

    def candidates(
        self, problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool, beside: frozenset[str]
    ) -> Iterator[GemmConfig]:
        """Configurations of a problem that it takes, with K whole; `beside` names the loops that take it as well."""
        raise NotImplementedError

    def variants(self, problem: GemmProblem, config: GemmConfig, target: arch.Target) -> Iterator[GemmConfig]:
        """The same tile and waves with K whole, otherwise assigned to blocks."""
        return iter(())

    def splits(self, config: GemmConfig) -> bool:
        """Whether blocks may share a tile and split its K."""
        return True

    # --------------------------------------------------------------------------------- what it asks of the hardware

    def shared_bytes(self, problem: GemmProblem, config: GemmConfig, target: arch.Target) -> int:
        """Dynamic shared memory, as the kernel counts it."""
        raise NotImplementedError

    def lacking(self, problem: GemmProblem, config: GemmConfig, target: arch.Target) -> int:
        """How many registers a lane lacks, by a rough count."""
        return 0

    def sums_rows(self, problem: GemmProblem) -> bool:
        """Whether it sums up the rows of A, where they are asked for."""
        return False

    def maps_result(self, problem: GemmProblem, config: GemmConfig) -> bool:
        """Whether a copy engine takes the result away."""
        return False

    def mapped_lines(self, problem: GemmProblem, config: GemmConfig) -> tuple[int, int, int]:
        """Lines of A and of B that a copy engine brings a block, and of D that it takes from a wave: 0 where none does."""
        return 0, 0, 0

    def flags(self, config: GemmConfig) -> dict[str, bool]:
        """Of the loop alone, in the kernel's configuration."""
        return {}

    def source_before(self, config: GemmConfig) -> str:
        """What its header needs to find before it."""
        return ""

    # ------------------------------------------------------------------------------------------------ what it costs

    def way(self, target: arch.Target) -> model.Way:
        return ways.by_waves(target)

    def rate(self, config: GemmConfig, target: arch.Target) -> float:
        """FLOP of the matrix unit per clock and unit."""
        products = {1: 1, 2: 3}[config.parts]
        return model.rate(target, config.element, config.lanes) / products

    def shared_cycles(self, config: GemmConfig, target: arch.Target) -> float:
        """Of shared memory, for a step."""
        raise NotImplementedError

    def straddling(self, lines: float) -> float:
        """What a run of so many lines of memory costs more that starts on none, as a part of it."""
        return model.STRADDLE_COPIED

    def narrow_loads(self, problem: GemmProblem, config: GemmConfig) -> float:
        """How many times longer operands take that cannot be loaded 16 bytes, or lines, at a time."""
        return 1

    def zeros(self, problem: GemmProblem, config: GemmConfig) -> float:
        """What a step takes for rows of A that are not there, as the copy engine's bytes: blocks that share a tile write a
        part each."""
        if not self.zeros_cost or problem.a_order != "k":
            return 0
        lines = config.block_m - problem.m / ceil(problem.m / config.block_m)
        return self.zeros_cost * bytes_of(config.element, config.block_k) * lines / config.order.share_a

    def times_b_is_read(self, problem: GemmProblem, config: GemmConfig, target: arch.Target) -> float:
        """From memory."""
        return 1

    def hides_latencies(self, problem: GemmProblem, config: GemmConfig) -> bool:
        """Whether two groups of waves, of which one is at the matrix unit, hide each other's, so that a target's `turns` are
        what a step costs more. Of gfx950 alone: other targets' are not fitted."""
        return False

    def in_flight(self, config: GemmConfig) -> int:
        """Steps whose loads are under way."""
        return max(config.stages - 1, 1)

    def sums_exchanged(self) -> float:
        """The part of sums that others add up which goes through shared memory's slow way."""
        return 1

    # ------------------------------------------------------------------------------------------ how it is launched

    def starts_early(self, config: GemmConfig, target: arch.Target, threads: int, shared: int) -> bool:
        """Whether its blocks may come before the kernel before is done: where several fit a unit, those that come early
        crowd on the units that happen to have room."""
        return target.family == "sm90" and (threads >= 512 or shared > target.lds_bytes // 2)
