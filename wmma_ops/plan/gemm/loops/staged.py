"""kernels/wmma/gemm/staged.hpp: the loop that every target has, for any layout, alignment and conversion.

The next tile is on its way to registers while this one is multiplied from shared memory.
"""

from math import ceil

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import step_of
from wmma_ops.ops.types import bytes_of
from wmma_ops.plan import model
from wmma_ops.plan.gemm.config import GemmConfig
from wmma_ops.plan.gemm.loops import async_copy, direct_copy
from wmma_ops.plan.gemm.tiled import TiledLoop
from wmma_ops.plan.problem import GemmProblem

_MOST_STAGED = 48  # registers
_SLOPES = 8  # registers, for what computes with derivatives
_EXTRAS_AND_PARTS = 12  # registers, for what one way to store takes beside the other


class Staged(TiledLoop):
    name = "staged"
    tag = "Staged"
    stages = (2,)
    holds_next_tile = True

    def takes(self, problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool) -> bool:
        """Whatever does not go straight to shared memory, which is as fast or faster."""
        return not any(loop.LOOP.takes(problem, target, element, lanes) for loop in (async_copy, direct_copy))

    def lines_along(self, order: str) -> bool:
        return True  # what runs across K is transposed on its way

    def lacking(self, problem: GemmProblem, config: GemmConfig, target: arch.Target) -> int:
        spare = _MOST_STAGED
        if target.wave == 32 and target.vendor == "amd":
            step = step_of(target, config.element, config.lanes, config.side)
            wave_m, wave_n = config.block_m // config.waves_m, config.block_n // config.waves_n
            operands = bytes_of(config.element, (wave_m + wave_n) * step.depth) * step.copies * config.parts // 4 // 32
            beside = _SLOPES if problem.slopes else 0
            spare = min(spare, 256 - 40 - beside - wave_m * wave_n // 32 * config.sum_bytes // 4 - operands)
        if config.order.last > 1 and _has_extras(problem):
            spare -= _EXTRAS_AND_PARTS
        return max(_staged_registers(problem, config, target) - spare, 0)

    def straddling(self, lines: float) -> float:
        return model.STRADDLE / max(lines, 1)

    def narrow_loads(self, problem: GemmProblem, config: GemmConfig) -> float:
        """An instruction each."""
        return max(1, 4 / bytes_of(problem.a, min(problem.a_vec, problem.b_vec)))


def _staged_registers(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> int:
    """What a lane holds of the next tile."""
    threads = config.waves * target.wave
    most = 0
    for pair in problem.pairs:
        total = 0
        for block, dtype, vec in ((config.block_m, pair.a, pair.a_vec), (config.block_n, pair.b, pair.b_vec)):
            per_lane = ceil(block * config.block_k / threads)
            # An element that arrives alone takes a register, however small it is.
            total += ceil(bytes_of(dtype, per_lane) / 4) if bytes_of(dtype, vec) >= 4 else per_lane
        most = max(most, total)
    return most


def _has_extras(problem: GemmProblem) -> bool:
    """Whether finishing an element takes registers."""
    extras = (problem.c, problem.bias, problem.row_scale, problem.col_scale, problem.multiply)
    rounds = problem.d == torch.bfloat16  # by several instructions
    return bool(problem.activation) or rounds or any(extra is not None for extra in extras)


LOOP = Staged()
