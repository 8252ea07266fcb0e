"""kernels/wmma/gemm/direct_copy.hpp: gfx950's loads straight to shared memory, for operands that go there as they are."""

from collections.abc import Iterator

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import step_of
from wmma_ops.ops.types import bytes_of
from wmma_ops.plan.gemm.config import GemmConfig, goes_as_it_is
from wmma_ops.plan.gemm.tiled import TiledLoop, operand_bytes, slab_bytes
from wmma_ops.plan.problem import GemmProblem

_MOST_HELD = 208  # registers


class DirectCopy(TiledLoop):
    name = "direct_copy"
    tag = "DirectCopy"
    stages = (2, 3, 4)

    def takes(self, problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool) -> bool:
        plain = not lanes and problem.a == element and goes_as_it_is(problem)
        return target.name == "gfx950" and plain and not problem.wide

    def candidates(
        self, problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool, beside: frozenset[str]
    ) -> Iterator[GemmConfig]:
        """Eight waves ping-pong, with three places for tiles; others may have more, or, where they share K, two."""
        for config in super().candidates(problem, target, element, lanes, beside):
            if self.hides_latencies(problem, config):
                if config.stages == 3 and _holds_two_steps(config, target):
                    yield config
            elif config.stages == 2 or config.waves == 4:
                yield config

    def lines_along(self, order: str) -> bool:
        return order == "k"

    def shared_bytes(self, problem: GemmProblem, config: GemmConfig, target: arch.Target) -> int:
        """As any tiles; of waves that ping-pong, B has two places where three do not fit."""

        def tiles(pair: GemmProblem) -> int:
            a, b = operand_bytes(pair, config, target, self.lines_along)
            fits = config.stages * (a + b) <= target.lds_bytes
            return config.stages * a + (2 if self.hides_latencies(problem, config) and not fits else config.stages) * b

        return max(*(tiles(pair) for pair in problem.pairs), config.waves * slab_bytes(config, target))

    def hides_latencies(self, problem: GemmProblem, config: GemmConfig) -> bool:
        return config.waves == 8 and config.waves_k == 1 and len(problem.pairs) == 1


def _holds_two_steps(config: GemmConfig, target: arch.Target) -> bool:
    """Whether a lane has room for the sums and the operands of two steps, as DirectLoop asks for."""
    step = step_of(target, config.element, config.lanes, config.side)
    wave_m, wave_n = config.block_m // config.waves_m, config.block_n // config.waves_n
    operands = bytes_of(config.element, (wave_m + wave_n) * step.depth) * step.copies // 4 // target.wave
    return wave_m * wave_n * config.sum_bytes // 4 // target.wave + 2 * operands <= _MOST_HELD


LOOP = DirectCopy()
