"""kernels/wmma/gemm_gemm/warpgroup.hpp: sm_90a's warpgroups, each with 64 rows, from tiles that the copy engine brings."""

import dataclasses
import itertools
from collections.abc import Iterator
from math import ceil

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import BARRIER_BYTES, can_map, goes_by_boxes, mapped_lines, up
from wmma_ops.ops.errors import ConfigError
from wmma_ops.ops.types import bytes_of
from wmma_ops.plan import model
from wmma_ops.plan.gemm_gemm.config import GemmGemmConfig, bytes_moved, goes_as_it_is
from wmma_ops.plan.gemm_gemm.loop import Loop
from wmma_ops.plan.problem import GemmGemmProblem

_ASKER_REGISTERS = 24  # of a lane
_INSTRUCTION_REGISTERS = 26  # of a warpgroup's product, beside its sums
_MOST_STAGES = 12  # more in flight are slower: memory is asked in no order

# Fitted to 233 timings of 22 shapes on an H200 (8 % off, root mean square). In cycles, but for those that say otherwise.
_ROUND = 2  # instructions for each of D0's elements
_ACTIVATE = 14  # more of them where it is more than a comparison
_FINISH = 4.3  # instructions for each of D1's
_ONE_GROUP = 1.6  # times as long where no other warpgroup fills the gaps
_FIRST = 1440  # until the first tile is there
_TILE = 765  # from one tile of rows to the next
_CHUNK = 277  # from one chunk of D1's columns to the next
_TEAM = 466  # what a warpgroup waits in a tile of its own, and for each column of a chunk
_COLUMN = 0.1
_ROWS_LATE = 2076  # until a tile of A comes from memory
_WEIGHTS_LATE = 556  # until one of B1 comes from the L2 cache
_MEMORY = 1945  # bytes per cycle, all units together


class Warpgroup(Loop):
    """Weights that are resident, or pass through the same queue as the rows."""

    name = "warpgroup"
    kernel = "WgmmaKernel"

    def candidates(self, problem: GemmGemmProblem, target: arch.Target) -> Iterator[GemmGemmConfig]:
        whole = goes_as_it_is(problem, target) and problem.b1_vec == 8
        counted = can_map(problem.batch_dims, problem.m, problem.n, problem.k)
        if target.name != "sm_90a" or not (whole and counted) or problem.h > (128 if problem.gate else 256):
            return
        block_h = up(problem.h, 64)
        grids = [(False, 1, 1), (False, 2, 1), (False, 1, 2), (False, 1, 4)]
        if max(problem.k, problem.n) <= 512 and problem.batch == 1:
            grids += [(True, teams, 1) for teams in (1, 2, 3, 4)]
        for (resident, down, across), wave_n in itertools.product(grids, (32, 64, 128, 192, 256)):
            block_n = wave_n * across
            in_boxes = problem.b1_order == "h" or wave_n % 64 == 0
            idle = block_n > 64 and (block_n > up(problem.n, 64) if resident else block_n >= 2 * problem.n)
            if not in_boxes or idle or block_n > 256:
                continue
            block_k = up(problem.k, 64) if resident else 64
            config = GemmGemmConfig(
                self.name, resident, 4 * down, across, 1, block_h, block_n, block_k, 0, 1,
                askers=4, team_waves=4 if resident else 0,
            )  # fmt: skip
            stays, stage, beside = self._bytes(problem, config)
            # Whatever is taken from others, an instruction must do with the registers that the kernel starts with.
            if max(block_h, wave_n) // 2 + _INSTRUCTION_REGISTERS > _launched_registers(config):
                continue
            # Each place serves one team alone, or a team could take what came there for another the turn before.
            stages_of_group = down * block_k // 64 if resident else 1
            room = (target.lds_bytes - stays - beside) // stage
            stages = min(room, max(_MOST_STAGES, stages_of_group)) // stages_of_group * stages_of_group
            if stages >= 3:
                yield dataclasses.replace(config, stages=stages)

    def shared_bytes(self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
        stays, stage, beside = self._bytes(problem, config)
        return stays + config.stages * stage + beside

    def _bytes(self, problem: GemmGemmProblem, config: GemmGemmConfig) -> tuple[int, int, int]:
        """Shared memory: what stays there, a stage with its barriers, and what is beside them."""
        first = (2 if problem.gate else 1) * config.block_h * 128  # for 64 of K
        mapped = self.maps_result(problem, config)
        wave = 2 * 16 * 128 if mapped else 16 * (min(config.block_n // config.waves_n, 32) + 4) * 4
        stays, stage = 0, max(config.block_m * 128 + first, config.block_n * 128)
        if config.resident:
            stays = config.block_k // 64 * first + up(problem.n, config.block_n) * config.block_h * 2
            stage = config.team_m * 128
        return stays, stage + 2 * BARRIER_BYTES, config.waves * wave + BARRIER_BYTES

    def registers(self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
        """All that a lane takes."""
        first, last = config.block_h // 2, config.block_n // config.waves_n // 2
        return max((2 if problem.gate else 1) * first, config.block_h // 4 + last) + 28

    def free_registers(self, config: GemmGemmConfig, target: arch.Target) -> float:
        return _registers(config)[0]

    def blocks_at_once(self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
        taken = self.registers(problem, config, target)
        return model.resident(target, config.all_waves, taken, self.shared_bytes(problem, config, target))

    def maps_result(self, problem: GemmGemmProblem, config: GemmGemmConfig) -> bool:
        whole = config.block_n // config.waves_n % 64 == 0
        operands = ((problem.d, problem.d_vec), (problem.c, problem.c_vec))
        return whole and all(goes_by_boxes(*x) for x in operands)

    def mapped_lines(self, problem: GemmGemmProblem, config: GemmGemmConfig) -> tuple[int, int, int, int]:
        a = mapped_lines(config.team_m, 64, problem.a_order == "k")
        b0 = mapped_lines(config.block_h, 64, problem.b0_order == "k")
        b1 = mapped_lines(config.block_n, 64, problem.b1_order == "h")
        return a, b0, b1, 16 if self.maps_result(problem, config) else 0

    def numbers(self, config: GemmGemmConfig) -> dict[str, int]:
        consumers, producers = _registers(config)
        return {"kConsumerRegisters": consumers, "kProducerRegisters": producers}

    def grid(
        self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target, blocks: int
    ) -> tuple[int, int]:
        """Blocks are persistent over the batch, too."""
        rounds = blocks * problem.batch
        if rounds >= 2**31:
            raise ConfigError(f"{problem.batch} times {problem.m} rows are {rounds} blocks; takes less than {2**31}")
        return min(rounds, model.CARDS[target.name].units * self.blocks_at_once(problem, config, target)), 1

    def cost(self, problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> float:
        rate = model.rate(target, problem.a, False, wgmma=True)
        size, rows, groups = bytes_of(problem.a), config.team_m, config.waves // 4
        width = (2 if problem.gate else 1) * config.block_h
        tiles, chunks = ceil(problem.k / 64), ceil(problem.n / config.block_n)
        columns = chunks * config.block_n
        turns = ceil(ceil(problem.m / rows) * problem.batch / model.CARDS[target.name].units)  # of a unit

        def matrix(depth: int, across: int) -> float:
            return 2 * rows * depth * across / rate

        rounding = _ROUND if problem.activation < 2 else _ROUND + _ACTIVATE
        vector = rows * (config.waves_n * width * rounding + columns * _FINISH) / model.ACTIVATIONS
        beside = bytes_of(problem.c) if problem.c is not None else 0
        if self.maps_result(problem, config):
            vector += rows * columns * beside / 2 / model.RESULT_BYTES
        else:
            vector += chunks * model.ROUND_TRIP + rows * columns * (bytes_of(problem.d) + beside) / model.RESULT_BYTES
        if config.resident:  # teams hide each other's latencies
            products = matrix(64 * tiles, width) + matrix(config.block_h, columns)
            alone = products + vector + _TEAM + _COLUMN * config.block_n
            weights = (tiles * 64 * width + columns * config.block_h) * size
            busy = (products**4 + vector**4 + (alone / min(groups, turns)) ** 4) ** 0.25
            total = turns * busy + alone + weights / model.TILE_BYTES
        else:

            def steps(count: int, across: int, late: float) -> float:
                """Of 64 of K or H each."""
                return count * (matrix(64, across) ** 4 + (late / (config.stages - 1)) ** 4) ** 0.25

            total = steps(tiles, width * config.waves_n, _ROWS_LATE)
            total += steps(chunks * config.block_h // 64, config.block_n, _WEIGHTS_LATE)
            total += vector * (_ONE_GROUP if groups == 1 else 1) + _TILE + chunks * _CHUNK
            total *= turns
        return model.LAUNCH + _FIRST + (total**4 + (bytes_moved(problem) / _MEMORY) ** 4) ** 0.25


def _registers(config: GemmGemmConfig) -> tuple[int, int]:
    """Of each lane that multiplies, and of those that ask for tiles, which give theirs to the others: 0 where nothing need
    be given."""
    groups = config.waves // 4
    if groups == 1:
        return 240, 0
    return ((groups + 1) * _launched_registers(config) - _ASKER_REGISTERS) // groups // 8 * 8, _ASKER_REGISTERS


def _launched_registers(config: GemmGemmConfig) -> int:
    """Of a lane, when the kernel starts."""
    return min(65536 // (config.all_waves * 32) // 8 * 8, 255)


LOOP = Warpgroup()
