"""kernels/wmma/gemm_gemm/resident.hpp: all weights stay in shared memory, each wave is persistent over its own rows."""

import itertools
from collections.abc import Iterator
from math import ceil

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import shared_rate, step_of, tile_bytes, up
from wmma_ops.ops.types import bytes_of
from wmma_ops.plan import model
from wmma_ops.plan.gemm_gemm.config import GemmGemmConfig, bytes_moved, columns_of, depth_of
from wmma_ops.plan.gemm_gemm.loop import Loop
from wmma_ops.plan.problem import GemmGemmProblem

_LOSS = 1.5  # of mma.sync's waves, each with rows of its own, on an H200


class Resident(Loop):
    name = "resident"
    kernel = "ResidentKernel"
    room = 0.65

    def candidates(self, problem: GemmGemmProblem, target: arch.Target) -> Iterator[GemmGemmConfig]:
        nvidia = target.vendor == "nvidia"
        whole = problem.a_order == "k" and bytes_of(problem.a, problem.a_vec) == 16
        if max(problem.k, problem.h, problem.n) > 512 or (nvidia and not whole):
            return
        unit = max(depth_of(problem, target), 32)
        block_k, block_h = up(problem.k, unit), up(problem.h, unit)
        if nvidia and bytes_of(problem.a, block_k) > 512:
            return  # a line is one copy of each lane
        for waves, tiles_m, block_n in itertools.product((4, 8, 16), (1, 2), columns_of(problem, target)):
            for stages in (2, 3) if nvidia else (0,):
                occupancy = 1 if nvidia else max(waves // target.simds, 1)
                yield GemmGemmConfig(
                    self.name, True, waves, 1, tiles_m, block_h, block_n, block_k, stages, occupancy
                )  # fmt: skip

    def shared_bytes(self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
        """All weights, and the waves' rows."""
        size = bytes_of(problem.a)
        weights = (2 if problem.gate else 1) * tile_bytes(target, config.block_h, config.block_k, size)
        weights += tile_bytes(target, up(problem.n, config.block_n), config.block_h, size)
        return weights + config.waves * config.stages * tile_bytes(target, config.wave_m, config.block_k, size)

    def on_their_way(
        self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target
    ) -> tuple[float, float]:
        if config.stages:
            return 0, 0
        copies = step_of(target, problem.a, False, 16).copies
        rows = bytes_of(problem.a, config.wave_m * config.block_k) / 4 * copies / target.wave
        return rows, rows

    def blocks_of(self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
        """As many as run at once."""
        room = model.CARDS[target.name].units * self.blocks_at_once(problem, config, target)
        return min(super().blocks_of(problem, config, target), max(1, room // problem.batch))

    def cost(self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> float:
        size, units = bytes_of(problem.a), model.CARDS[target.name].units
        copies = step_of(target, problem.a, False, 16).copies
        banks = shared_rate(target)
        columns = up(problem.n, config.block_n)
        weights = config.block_h * ((2 if problem.gate else 1) * config.block_k + columns) * size
        blocks = self.blocks_of(problem, config, target)
        resident_blocks = min(self.blocks_at_once(problem, config, target), ceil(blocks * problem.batch / units))
        rounds = ceil(ceil(problem.m / config.block_m) / blocks) * ceil(
            blocks * problem.batch / (units * resident_blocks)
        )
        matrix = 2 * config.block_m * weights / size / model.rate(target, problem.a, False)
        rows = 2 * config.block_m * config.block_k * size if config.stages else 0
        shared = (config.waves * weights * copies + rows) / banks
        sums = config.block_m * (config.block_h + columns)
        vector = sums * (6 if problem.activation < 2 else 20) / model.ACTIVATIONS
        step = max(matrix, shared, vector) + model.CROSSTALK[target.vendor] * (shared + vector)
        step *= resident_blocks * (1 + 0.4 / (resident_blocks * config.waves))
        loss = _LOSS if target.vendor == "nvidia" else 1
        compute = model.BLOCK + resident_blocks * (weights / model.TILE_BYTES) + loss * rounds * step + model.ROUND_TRIP
        memory = bytes_moved(problem) / model.CARDS[target.name].memory
        return model.LAUNCH + max(compute, memory) + 0.3 * min(compute, memory)


LOOP = Resident()
