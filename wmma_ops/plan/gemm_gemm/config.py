"""The kernels that two products may take together: what they are made of, and which fit a target."""

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import BARRIER_BYTES, can_map, goes_by_panels, step_of, tile_bytes, up
from wmma_ops.plan.problem import GemmGemmProblem

_MOST_H = 256  # of D0's columns that a wave holds at once
_CHUNK_H = 64  # of wider ones
_ASKER_REGISTERS = 24  # of a lane
_INSTRUCTION_REGISTERS = 26  # of a warpgroup's product, beside its sums
_MOST_STAGES = 12  # more in flight are slower: memory is asked in no order
_MOST_N = 256  # of D1's columns, where they are summed up over chunks of H


@dataclass(frozen=True)
class GemmGemmConfig:
    """One kernel. Sizes are in elements."""

    resident: bool  # all weights stay in shared memory, and blocks walk down the rows
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
    wgmma: bool = False  # four waves multiply 64 rows together, from where four more have the copy engine bring tiles

    @property
    def waves(self) -> int:
        """That multiply."""
        return self.waves_m * self.waves_n

    @property
    def all_waves(self) -> int:
        return self.waves + (4 if self.wgmma else 0)

    @property
    def wave_m(self) -> int:
        return 16 * self.tiles_m

    @property
    def block_m(self) -> int:
        return self.waves_m * self.wave_m

    @property
    def team_m(self) -> int:
        """Rows that waves walk down with together."""
        return 64 if self.wgmma and self.resident else self.block_m

    def __str__(self) -> str:
        kind = "resident weights" if self.resident else "streamed weights"
        kind += " by warpgroups" if self.wgmma else ""
        stages = f", {self.stages} stages" if self.stages else ""
        return (
            f"{kind}, {self.block_m} rows, H by {self.block_h}, N by {self.block_n}, K by {self.block_k}, "
            f"{self.waves_m}x{self.waves_n} waves{stages}"
        )


# --------------------------------------------------------------------------------------------- what the hardware offers


def _depth(problem: GemmGemmProblem, target: arch.Target) -> int:
    """What one step takes of K or H: the lines of its first operand as well."""
    return step_of(target, problem.a, False, 16).depth


def _last_lines(problem: GemmGemmProblem, target: arch.Target) -> int:
    return 32 if target.vendor == "nvidia" else _depth(problem, target)


def shared_bytes(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
    """Dynamic shared memory: the first product's tiles, then the second's; or all weights, and the waves' rows."""
    size = problem.a.itemsize
    if config.wgmma:
        stays, stage, beside = _warpgroup_bytes(problem, config)
        return stays + config.stages * stage + beside
    if config.resident:
        weights = (2 if problem.gate else 1) * tile_bytes(target, config.block_h, config.block_k, size)
        weights += tile_bytes(target, up(problem.n, config.block_n), config.block_h, size)
        return weights + config.waves * config.stages * tile_bytes(target, config.wave_m, config.block_k, size)

    def tile(lines: int, length: int, along: bool) -> int:
        return tile_bytes(target, *((lines, length) if along or not config.stages else (length, lines)), size)

    first = tile(config.block_h, config.block_k, problem.b0_order == "k")
    first += tile(config.block_m, config.block_k, problem.a_order == "k")
    # D0, where waves share rows: both halves of the wave hold it on gfx11.
    copies = step_of(target, problem.a, False, 16).copies
    held = config.block_m * config.block_h * size * copies if config.waves_n > 1 else 0
    return max((config.stages or 2) * first, held + 2 * tile_bytes(target, config.block_n, config.block_h, size))


def maps_result(problem: GemmGemmProblem, config: GemmGemmConfig) -> bool:
    """Whether the copy engine can take D1 to memory."""
    whole = config.block_n // config.waves_n % 64 == 0
    return (
        config.wgmma
        and whole
        and all(goes_by_panels(*x) for x in ((problem.d, problem.d_vec), (problem.c, problem.c_vec)))
    )


def _warpgroup_bytes(problem: GemmGemmProblem, config: GemmGemmConfig) -> tuple[int, int, int]:
    """Shared memory of warpgroups: what stays there, a stage with its barriers, and what is beside them."""
    first = (2 if problem.gate else 1) * config.block_h * 128  # for 64 of K
    wave = 2 * 16 * 128 if maps_result(problem, config) else 16 * (min(config.block_n // config.waves_n, 32) + 4) * 4
    stays, stage = 0, max(config.block_m * 128 + first, config.block_n * 128)
    if config.resident:
        stays = config.block_k // 64 * first + up(problem.n, config.block_n) * config.block_h * 2
        stage = config.team_m * 128
    return stays, stage + 2 * BARRIER_BYTES, config.waves * wave + BARRIER_BYTES


def _is_async(problem: GemmGemmProblem, target: arch.Target) -> bool:
    """Whether 16-byte chunks can go to shared memory as they are."""
    least = min(problem.a_vec, problem.b0_vec, problem.gate_vec if problem.gate else 8)
    same = not problem.gate or problem.gate_order == problem.b0_order
    return target.vendor == "nvidia" and problem.a.itemsize == 2 and least == 8 and same


# ----------------------------------------------------------------------------------------------------------- candidates


def candidates(problem: GemmGemmProblem, target: arch.Target) -> Iterator[GemmGemmConfig]:
    """Every configuration that fits."""
    for config in (*_by_warpgroups(problem, target), *_resident(problem, target), *_streamed(problem, target)):
        held = registers(problem, config, target)
        idle = config.tiles_m > 1 and config.waves_m * 16 >= problem.m
        fits = held <= _room(config, target) and shared_bytes(problem, config, target) <= target.lds_bytes
        if fits and not idle:
            yield config


def _columns(problem: GemmGemmProblem, target: arch.Target) -> list[int]:
    """How many columns of D1 a wave may hold: no more than there are, but the fewest there can be."""
    lines = _last_lines(problem, target)
    return [x for x in (32, 64, 128) if x % lines == 0 and (x in (32, lines) or x < 2 * problem.n)]


def _streamed(problem: GemmGemmProblem, target: arch.Target) -> Iterator[GemmGemmConfig]:
    depth, size = _depth(problem, target), problem.a.itemsize
    if problem.h <= _MOST_H:
        block_h, blocks_n = up(problem.h, max(depth, 32)), _columns(problem, target)
    elif problem.n <= _MOST_N:
        block_h, blocks_n = _CHUNK_H, [up(problem.n, max(_last_lines(problem, target), 32))]
    else:
        return
    grids = ((4, 1), (8, 1), (2, 2), (4, 2), (2, 4), (1, 4), (4, 4))
    for (waves_m, waves_n), tiles_m, block_n, line in itertools.product(grids, (1, 2, 4), blocks_n, (128, 64, 32)):
        block_k = line // size
        parts = waves_n * depth, waves_n * _last_lines(problem, target)
        if block_k % depth == 0 and block_h % parts[0] == 0 and block_n % parts[1] == 0:
            for stages in (3, 4) if _is_async(problem, target) else (0,):
                occupancy = 1 if target.vendor == "nvidia" else max(waves_m * waves_n // target.simds, 1)
                yield GemmGemmConfig(
                    False, waves_m, waves_n, tiles_m, block_h, block_n, block_k, stages, occupancy
                )  # fmt: skip


def _resident(problem: GemmGemmProblem, target: arch.Target) -> Iterator[GemmGemmConfig]:
    nvidia = target.vendor == "nvidia"
    whole = problem.a_order == "k" and problem.a_vec * problem.a.itemsize == 16
    if max(problem.k, problem.h, problem.n) > 512 or (nvidia and not whole):
        return
    unit = max(_depth(problem, target), 32)
    block_k, block_h = up(problem.k, unit), up(problem.h, unit)
    if nvidia and block_k * problem.a.itemsize > 512:
        return  # a line is one copy of each lane
    for waves, tiles_m, block_n in itertools.product((4, 8, 16), (1, 2), _columns(problem, target)):
        for stages in (2, 3) if nvidia else (0,):
            occupancy = 1 if nvidia else max(waves // target.simds, 1)
            yield GemmGemmConfig(True, waves, 1, tiles_m, block_h, block_n, block_k, stages, occupancy)


def _by_warpgroups(problem: GemmGemmProblem, target: arch.Target) -> Iterator[GemmGemmConfig]:
    whole = _is_async(problem, target) and problem.b1_vec == 8
    counted = can_map(problem.batch_dims, problem.m, problem.n, problem.k)
    if target.name != "sm_90a" or not (whole and counted) or problem.h > (128 if problem.gate else 256):
        return
    block_h = up(problem.h, 64)
    grids = [(False, 1, 1), (False, 2, 1), (False, 1, 2), (False, 1, 4)]
    if max(problem.k, problem.n) <= 512 and problem.batch == 1:
        grids += [(True, teams, 1) for teams in (1, 2, 3, 4)]
    for (resident, down, across), wave_n in itertools.product(grids, (32, 64, 128, 192, 256)):
        block_n = wave_n * across
        in_panels = problem.b1_order == "h" or wave_n % 64 == 0
        idle = block_n > 64 and (block_n > up(problem.n, 64) if resident else block_n >= 2 * problem.n)
        if not in_panels or idle or block_n > 256:
            continue
        block_k = up(problem.k, 64) if resident else 64
        config = GemmGemmConfig(resident, 4 * down, across, 1, block_h, block_n, block_k, 0, 1, wgmma=True)
        stays, stage, beside = _warpgroup_bytes(problem, config)
        # Whatever is taken from others, an instruction must do with the registers that the kernel starts with.
        if max(block_h, wave_n) // 2 + _INSTRUCTION_REGISTERS > _launched_registers(config):
            continue
        # Each place serves one team alone, or a team could take what came there for another the turn before.
        together = down * block_k // 64 if resident else 1
        room = (target.lds_bytes - stays - beside) // stage
        stages = min(room, max(_MOST_STAGES, together)) // together * together
        if stages >= 3:
            yield dataclasses.replace(config, stages=stages)


def registers(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
    """What a lane holds of A, D0, D1 and tiles on their way, at the busiest point; of warpgroups, all that it takes."""
    if config.wgmma:
        first, last = config.block_h // 2, config.block_n // config.waves_n // 2
        return max((2 if problem.gate else 1) * first, config.block_h // 4 + last) + 28
    lanes, words = config.waves * target.wave, problem.a.itemsize / 4
    copies = step_of(target, problem.a, False, 16).copies
    shares = config.waves_m * config.wave_m / lanes  # of a matrix with a row for each of the block's
    sums0 = shares * config.block_h * (2 if problem.gate else 1)
    sums1 = shares * config.block_n
    d0 = shares * config.block_h * words * copies
    kept = sums1 if problem.h > config.block_h else 0
    first = last = 0.0
    if config.resident:
        first = last = 0 if config.stages else config.wave_m * config.block_k * words * copies / target.wave
    else:
        first = 0 if config.stages else (config.block_m + config.block_h) * config.block_k * words / lanes
        last = config.block_n * config.block_h * words / lanes
    own = d0 if config.waves_n == 1 else 0
    return ceil(max(sums0 + kept + max(first, d0 / 2), own + sums1 + last))


def warpgroup_registers(config: GemmGemmConfig) -> tuple[int, int]:
    """Registers of each lane that multiplies, and of those that ask for tiles, which give theirs to the others: 0 where
    nothing need be given."""
    groups = config.waves // 4
    if groups == 1:
        return 240, 0
    return ((groups + 1) * _launched_registers(config) - _ASKER_REGISTERS) // groups // 8 * 8, _ASKER_REGISTERS


def _launched_registers(config: GemmGemmConfig) -> int:
    """Of a lane of warpgroups, when the kernel starts."""
    return min(65536 // (config.all_waves * 32) // 8 * 8, 255)


def _room(config: GemmGemmConfig, target: arch.Target) -> float:
    """Registers of a lane that those may take; addresses and operands take the rest."""
    if target.vendor == "nvidia":
        return warpgroup_registers(config)[0] if config.wgmma else 0.7 * min(255, 65536 // (config.waves * target.wave))
    if target.family == "cdna":
        return 0.6 * 512 // config.occupancy
    return (0.65 if config.resident else 0.6) * min(256, 1536 // config.occupancy)
