"""kernels/wmma/gemm_gemm/streamed.hpp: weights of any size, whose tiles pass through shared memory."""

import itertools
from collections.abc import Iterator
from math import ceil

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import shared_rate, step_of, tile_bytes, up
from wmma_ops.ops.types import bits, bytes_of
from wmma_ops.plan import model
from wmma_ops.plan.gemm_gemm.config import GemmGemmConfig, bytes_moved, columns_of, depth_of, goes_as_it_is, last_lines
from wmma_ops.plan.gemm_gemm.loop import Loop
from wmma_ops.plan.problem import GemmGemmProblem

_MOST_H = 256  # of D0's columns that a wave holds at once
_CHUNK_H = 64  # of wider ones
_MOST_N = 256  # of D1's columns, where they are summed up over chunks of H
_GRIDS = ((4, 1), (8, 1), (2, 2), (4, 2), (2, 4), (1, 4), (4, 4))  # of waves


class Streamed(Loop):
    name = "streamed"
    kernel = "StreamedKernel"

    def candidates(self, problem: GemmGemmProblem, target: arch.Target) -> Iterator[GemmGemmConfig]:
        depth, size = depth_of(problem, target), bytes_of(problem.a)
        if problem.h <= _MOST_H:
            block_h, blocks_n = up(problem.h, max(depth, 32)), columns_of(problem, target)
        elif problem.n <= _MOST_N:
            block_h, blocks_n = _CHUNK_H, [up(problem.n, max(last_lines(problem, target), 32))]
        else:
            return
        all_stages = (3, 4) if goes_as_it_is(problem, target) else (0,)
        for (waves_m, waves_n), tiles_m, block_n, line in itertools.product(_GRIDS, (1, 2, 4), blocks_n, (128, 64, 32)):
            block_k = line // size
            parts = waves_n * depth, waves_n * last_lines(problem, target)
            if block_k % depth or block_h % parts[0] or block_n % parts[1]:
                continue
            occupancy = 1 if target.vendor == "nvidia" else max(waves_m * waves_n // target.simds, 1)
            for stages in all_stages:
                yield GemmGemmConfig(
                    self.name, False, waves_m, waves_n, tiles_m, block_h, block_n, block_k, stages, occupancy
                )  # fmt: skip

    def shared_bytes(self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
        """The first product's tiles, then the second's."""
        size = bytes_of(problem.a)

        def tile(lines: int, length: int, along: bool) -> int:
            return tile_bytes(target, *((lines, length) if along or not config.stages else (length, lines)), size)

        first = tile(config.block_h, config.block_k, problem.b0_order == "k")
        first += tile(config.block_m, config.block_k, problem.a_order == "k")
        # D0, where waves share rows: both halves of the wave hold it on gfx11.
        copies = step_of(target, problem.a, False, 16).copies
        held = config.block_m * config.block_h * size * copies if config.waves_n > 1 else 0
        return max((config.stages or 2) * first, held + 2 * tile_bytes(target, config.block_n, config.block_h, size))

    def on_their_way(
        self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target
    ) -> tuple[float, float]:
        lanes, words = config.waves * target.wave, bits(problem.a) / 32
        first = 0 if config.stages else (config.block_m + config.block_h) * config.block_k * words / lanes
        return first, config.block_n * config.block_h * words / lanes

    def cost(self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> float:
        size, units = bytes_of(problem.a), model.CARDS[target.name].units
        copies = step_of(target, problem.a, False, 16).copies
        banks, rate = shared_rate(target), model.rate(target, problem.a, False)
        stream = model.CARDS[target.name].memory / units  # bytes a cycle
        chunks = ceil(problem.h / config.block_h)
        width, columns = chunks * config.block_h, up(problem.n, config.block_n)
        k = (2 if problem.gate else 1) * up(problem.k, config.block_k)
        blocks = ceil(problem.m / config.block_m) * problem.batch
        resident_blocks = min(self.blocks_at_once(problem, config, target), ceil(blocks / units))
        beside = bytes_of(problem.c) if problem.c is not None else 0

        def phase(
            matrix: float, reads: float, loads: float, memory: float, vector: float, steps: int, ahead: int
        ) -> float:
            """Cycles of the blocks that share a unit."""
            pipes = (2 * matrix / rate, (reads + loads) / banks, loads / model.TILE_BYTES, memory / stream)
            pipes = (*pipes, vector / model.ACTIVATIONS / min(1, resident_blocks * config.waves / 8))
            busy = max(pipes) + model.CROSSTALK[target.vendor] * (sum(pipes) - max(pipes))
            waiting = steps * model.ROUND_TRIP / ahead / resident_blocks
            busy *= 1 + 0.4 / (resident_blocks * config.waves)
            return resident_blocks * (busy**4 + waiting**4) ** 0.25

        area = config.block_m * width
        lines = config.waves * config.wave_m + config.waves_m * config.block_h  # that waves read
        first = phase(
            area * k, lines * chunks * k * size * copies, size * k * (width + chunks * config.block_m),
            config.block_m * problem.k * size, area * (6 if problem.activation < 2 else 20),
            chunks * k // config.block_k, max(config.stages - 1, 1),
        )  # fmt: skip
        reads = config.waves_m * width * columns + (config.waves * config.wave_m * width if config.waves_n > 1 else 0)
        last = phase(
            area * columns, reads * size * copies, size * width * columns,
            config.block_m * problem.n * (bytes_of(problem.d) + beside), config.block_m * columns * 8,
            chunks * columns // config.block_n * (1 if problem.c is None else 2), 1,  # C is not asked for ahead
        )  # fmt: skip
        rounds = blocks / units / resident_blocks
        rounds = ceil(rounds) if rounds < 4 else rounds
        units = rounds * (model.BLOCK + 2 * model.ROUND_TRIP + first + last)
        return model.LAUNCH + model.beside_memory(target, units, bytes_moved(problem))


LOOP = Streamed()
