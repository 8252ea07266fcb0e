"""Plans two products in one kernel: whether, with which tiles, and the source text of that kernel.

Candidates are costed by model.py, and the cheapest is held against two kernels of gemm.py, one after the other, with
D0 written to memory and read back. Where those are cheaper, or where no candidate fits, the plan has no launches.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import torch

from wmma_ops import arch
from wmma_ops.plan import gemm, model
from wmma_ops.plan.errors import ConfigError
from wmma_ops.plan.gemm_config import number_of
from wmma_ops.plan.plan import KernelLaunch, Plan
from wmma_ops.plan.problem import GemmGemmProblem, GemmProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text, nested, order_of, registered
from wmma_ops.plan.tiles import shared_rate, step_of, tile_bytes, up
from wmma_ops.types import name as type_name

_TYPES = (torch.float16, torch.bfloat16, torch.int8)
_MOST_H = 256  # of D0's columns that a wave holds at once
_CHUNK_H = 64  # of wider ones
_MOST_N = 256  # of D1's columns, where they are summed up over chunks of H
_MOST_GRID_Y = 65535
_ADDRESSES = 60  # registers of a lane for these and for operands, beside what it holds
_RESIDENT_LOSS = 1.5  # of mma.sync's waves, each with rows of its own, on an H200


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
    stages: int  # tiles in flight by asynchronous copies (resident: of each wave's rows); 0: by way of registers
    occupancy: int  # waves at once on a SIMD that registers are kept for (NVIDIA: blocks on an SM)
    wgmma: bool = False  # four waves multiply 64 rows together, straight from shared memory

    @property
    def waves(self) -> int:
        return self.waves_m * self.waves_n

    @property
    def wave_m(self) -> int:
        return 16 * self.tiles_m

    @property
    def block_m(self) -> int:
        return self.waves_m * self.wave_m

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
        lines = max(config.block_m + (2 if problem.gate else 1) * config.block_h, config.block_n)
        return config.stages * lines * 128 + config.waves * 16 * (min(config.block_n // config.waves_n, 64) + 4) * 4
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


def _is_async(problem: GemmGemmProblem, target: arch.Target) -> bool:
    """Whether 16-byte chunks can go to shared memory as they are."""
    least = min(problem.a_vec, problem.b0_vec, problem.gate_vec if problem.gate else 8)
    same = not problem.gate or problem.gate_order == problem.b0_order
    return target.vendor == "nvidia" and problem.a.itemsize == 2 and least == 8 and same


# ---------------------------------------------------------------------------------------------------------- candidates


def candidates(problem: GemmGemmProblem, target: arch.Target) -> Iterator[GemmGemmConfig]:
    """Every configuration that fits."""
    for config in (*_by_warpgroups(problem, target), *_resident(problem, target), *_streamed(problem, target)):
        held = _registers(problem, config, target)
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
    if target.name != "sm_90a" or not whole or problem.h > (128 if problem.gate else 256):
        return
    block_h = up(problem.h, 64)
    grids = ((1, 1), (2, 1), (1, 2), (1, 4))
    for (down, across), wave_n, stages in itertools.product(grids, (32, 64, 128, 192, 256), (4, 5, 6, 8)):
        block_n = wave_n * across
        in_panels = problem.b1_order == "h" or wave_n % 64 == 0
        idle = block_n > 64 and block_n >= 2 * problem.n
        if in_panels and not idle and block_n <= 256:
            yield GemmGemmConfig(False, 4 * down, across, 1, block_h, block_n, 64, stages, 1, wgmma=True)


def _registers(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
    """What a lane holds of A, D0, D1 and tiles on their way, at the busiest point; of warpgroups, all that it takes."""
    if config.wgmma:
        columns = max((2 if problem.gate else 1) * config.block_h, config.block_n // config.waves_n)
        return config.block_h // 4 + columns // 2 + 48
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


def _room(config: GemmGemmConfig, target: arch.Target) -> float:
    """Registers of a lane that those may take; addresses and operands take the rest."""
    if target.vendor == "nvidia":
        return (1 if config.wgmma else 0.7) * min(255, 65536 // (config.waves * target.wave))
    if target.family == "cdna":
        return 0.6 * 512 // config.occupancy
    return (0.65 if config.resident else 0.6) * min(256, 1536 // config.occupancy)


def cost(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> float:
    """Modelled cycles."""
    if config.wgmma:
        return _cost_of_warpgroups(problem, config, target)
    return (_cost_of_resident if config.resident else _cost_of_streamed)(problem, config, target)


def _blocks_at_once(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
    """That share a unit."""
    registers = _registers(problem, config, target) + (0 if config.wgmma else _ADDRESSES)
    return model.resident(target, config.waves, registers, shared_bytes(problem, config, target))


def _blocks(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
    """Of each matrix of the batch."""
    tiles = ceil(problem.m / config.block_m)
    if not config.resident:
        return tiles
    room = model.CARDS[target.name].units * _blocks_at_once(problem, config, target)
    return min(tiles, max(1, room // problem.batch))


def _cost_of_resident(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> float:
    size, units = problem.a.itemsize, model.CARDS[target.name].units
    copies = step_of(target, problem.a, False, 16).copies
    banks = shared_rate(target)
    columns = up(problem.n, config.block_n)
    weights = config.block_h * ((2 if problem.gate else 1) * config.block_k + columns) * size
    blocks = _blocks(problem, config, target)
    together = min(_blocks_at_once(problem, config, target), ceil(blocks * problem.batch / units))
    rounds = ceil(ceil(problem.m / config.block_m) / blocks) * ceil(blocks * problem.batch / (units * together))
    matrix = 2 * config.block_m * weights / size / model.rate(target, problem.a, False)
    rows = 2 * config.block_m * config.block_k * size if config.stages else 0
    shared = (config.waves * weights * copies + rows) / banks
    sums = config.block_m * (config.block_h + columns)
    vector = sums * (6 if problem.activation < 2 else 20) / model.ACTIVATIONS
    step = max(matrix, shared, vector) + model.CROSSTALK[target.vendor] * (shared + vector)
    step *= together * (1 + 0.4 / (together * config.waves))
    loss = _RESIDENT_LOSS if target.vendor == "nvidia" else 1
    compute = model.BLOCK + together * (weights / model.TILE_BYTES) + loss * rounds * step + model.ROUND_TRIP
    memory = _floor(target, _bytes(problem)) - model.LAUNCH
    return model.LAUNCH + max(compute, memory) + 0.3 * min(compute, memory)


def _cost_of_streamed(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> float:
    size, units = problem.a.itemsize, model.CARDS[target.name].units
    copies = step_of(target, problem.a, False, 16).copies
    banks, rate = shared_rate(target), model.rate(target, problem.a, False)
    stream = model.CARDS[target.name].memory / units  # bytes a cycle
    chunks = ceil(problem.h / config.block_h)
    width, columns = chunks * config.block_h, up(problem.n, config.block_n)
    k = (2 if problem.gate else 1) * up(problem.k, config.block_k)
    blocks = ceil(problem.m / config.block_m) * problem.batch
    together = min(_blocks_at_once(problem, config, target), ceil(blocks / units))
    beside = problem.c.itemsize if problem.c is not None else 0

    def phase(matrix: float, reads: float, loads: float, memory: float, vector: float, steps: int, ahead: int) -> float:
        """Cycles of the blocks that share a unit."""
        pipes = (2 * matrix / rate, (reads + loads) / banks, loads / model.TILE_BYTES, memory / stream)
        pipes = (*pipes, vector / model.ACTIVATIONS / min(1, together * config.waves / 8))
        busy = max(pipes) + model.CROSSTALK[target.vendor] * (sum(pipes) - max(pipes))
        waiting = steps * model.ROUND_TRIP / ahead / together
        busy *= 1 + 0.4 / (together * config.waves)
        return together * (busy**4 + waiting**4) ** 0.25

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
        config.block_m * problem.n * (problem.d.itemsize + beside), config.block_m * columns * 8,
        chunks * columns // config.block_n, 1,
    )  # fmt: skip
    rounds = blocks / units / together
    rounds = ceil(rounds) if rounds < 4 else rounds
    return max(
        model.LAUNCH + rounds * (model.BLOCK + 2 * model.ROUND_TRIP + first + last), _floor(target, _bytes(problem))
    )


def _cost_of_warpgroups(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> float:
    units, rate = model.CARDS[target.name].units, model.rate(target, problem.a, False, wgmma=True)
    weights = 2 if problem.gate else 1
    blocks = ceil(problem.m / config.block_m) * problem.batch
    together = min(_blocks_at_once(problem, config, target), ceil(blocks / units))

    def steps(count: int, columns: int, lines: int) -> float:
        """Of 64 of K or H each, so many columns wide."""
        matrix = 2 * config.block_m * 64 * columns / rate
        busy = max(matrix, lines * 128 / model.TILE_BYTES) + model.STEP
        waiting = model.ROUND_TRIP / (config.stages - 2) / together
        return count * (busy**4 + waiting**4) ** 0.25

    beside = problem.c.itemsize if problem.c is not None else 0
    width = weights * config.block_h
    chunks = ceil(problem.n / config.block_n)
    block = steps(ceil(problem.k / 64), width, config.block_m + width)
    block += steps(chunks * config.block_h // 64, config.block_n, config.block_n)
    block += config.block_m * width * (6 if problem.activation < 2 else 20) / model.ACTIVATIONS
    block += chunks * model.ROUND_TRIP / together  # the ring waits while results are stored
    block += chunks * config.block_m * config.block_n * (problem.d.itemsize + beside) / model.RESULT_BYTES
    rounds = ceil(blocks / (units * together))
    total = model.LAUNCH + model.BLOCK + model.ROUND_TRIP + rounds * together * block
    return max(total, _floor(target, _bytes(problem)))


def _floor(target: arch.Target, size: float) -> float:
    """What memory alone takes."""
    return model.LAUNCH + size / model.CARDS[target.name].memory


def _bytes(problem: GemmGemmProblem) -> int:
    """What one kernel reads and writes, each matrix once."""
    firsts = 2 if problem.gate else 1
    weights = (firsts * problem.k + problem.n) * problem.h
    beside = problem.c.itemsize if problem.c is not None else 0
    rows = problem.k * problem.a.itemsize + problem.n * (problem.d.itemsize + beside)
    return problem.batch * (problem.m * rows + weights * problem.a.itemsize)


def products(problem: GemmGemmProblem) -> tuple[GemmProblem, ...]:
    """The products that compute the same one after the other: of the gate, if there is one, the first, the last."""
    wide = torch.float64 if problem.a == torch.float64 else torch.float32
    vec = 16 // problem.a.itemsize if problem.h * problem.a.itemsize % 16 == 0 else 1
    first = GemmProblem(
        place=problem.place, a=problem.a, b=problem.a, c=None, d=problem.a, bias=problem.bias0,
        row_scale=None, col_scale=None, a_scale=None, multiply=wide if problem.gate else None,
        a_order=problem.a_order, b_order="n" if problem.b0_order == "h" else "k",
        a_vec=problem.a_vec, b_vec=problem.b0_vec, c_vec=1, d_vec=vec, multiply_vec=min(vec, 4),
        wide=problem.wide, a_activation=0, activation=problem.activation,
        batch_dims=problem.batch_dims, batch=problem.batch, m=problem.m, n=problem.h, k=problem.k, precision=0,
    )  # fmt: skip
    last = dataclasses.replace(
        first, c=problem.c, d=problem.d, bias=problem.bias1, multiply=None, a_order="k",
        b_order="n" if problem.b1_order == "n" else "k", a_vec=vec, b_vec=problem.b1_vec, c_vec=problem.c_vec,
        d_vec=problem.d_vec, multiply_vec=1, activation=0, n=problem.n, k=problem.h,
    )  # fmt: skip
    if not problem.gate:
        return first, last
    gate = dataclasses.replace(
        first, d=wide, bias=None, multiply=None, d_vec=min(vec, 4), multiply_vec=1, activation=0,
        b_order="n" if problem.gate_order == "h" else "k", b_vec=problem.gate_vec,
    )  # fmt: skip
    return gate, first, last


def cost_of_products(problem: GemmGemmProblem, target: arch.Target) -> float:
    total = 0.0
    for one in products(problem):
        beside = sum(dtype.itemsize for dtype in (one.c, one.multiply) if dtype is not None)
        size = one.a.itemsize * (one.m + one.n) * one.k + one.m * one.n * (one.d.itemsize + beside)
        total += max(gemm.choose(one, target)[1], _floor(target, one.batch * size))
    return total


def choose(problem: GemmGemmProblem, target: arch.Target) -> tuple[GemmGemmConfig | None, float]:
    """The cheapest configuration, and its cost."""
    found = [(cost(problem, config, target), index, config) for index, config in enumerate(candidates(problem, target))]
    return (min(found)[2], min(found)[0]) if found else (None, float("inf"))


# ---------------------------------------------------------------------------------------------------------- the source


def source(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> str:
    """The text of the kernel: its configuration, and the file that all share."""

    first, last = products(problem)[-2:]
    last_types = {
        "Number": number_of(last),
        "C": CPP[problem.c],
        "D": CPP[problem.d],
        "Bias": CPP[problem.bias1],
        "RowScale": CPP[None],
        "ColScale": CPP[None],
        "Multiply": CPP[None],
    }
    last_numbers = {
        "kCVec": problem.c_vec,
        "kDVec": gemm.result_vec(last),
        "kMultiplyVec": 1,
        "kBatchDims": problem.batch_dims,
        "kActivation": 0,
        "kWavesK": 1,
        "kCluster": 1,
    }
    numbers = {
        "kAVec": problem.a_vec,
        "kB0Vec": problem.b0_vec,
        "kGateVec": problem.gate_vec,
        "kB1Vec": problem.b1_vec,
        "kBatchDims": problem.batch_dims,
        "kActivation": problem.activation,
        "kWavesM": config.waves_m,
        "kWavesN": config.waves_n,
        "kTilesM": config.tiles_m,
        "kBlockM": config.block_m,
        "kBlockH": config.block_h,
        "kBlockN": config.block_n,
        "kBlockK": config.block_k,
        "kPadN": up(problem.n, config.block_n),
        "kStages": config.stages,
        "kOccupancy": config.occupancy,
        "kThreads": config.waves * target.wave,
        "kSharedBytes": shared_bytes(problem, config, target),
    }
    flags = {
        "kWide": problem.wide,
        "kGate": problem.gate,
        "kRaggedK": problem.k % config.block_k != 0,
        "kRaggedN": problem.n % config.block_n != 0,
        "kRaggedH": problem.h % config.block_h != 0,
        "kChunked": problem.h > config.block_h,
    }
    orders = {
        "kAOrder": order_of(problem.a_order == "k"),
        "kB0Order": order_of(problem.b0_order == "k"),
        "kGateOrder": order_of(problem.gate_order == "k"),
        "kB1Order": order_of(problem.b1_order == "h"),
    }
    members = [
        *aliases({"Element": CPP[problem.a], "Number": number_of(first), "Bias0": CPP[problem.bias0]}),
        *nested("Last", [*aliases(last_types), *constants("int", last_numbers)]),
        *constants("wmma::Order", orders),
        *constants("int", numbers),
        *constants("bool", flags),
    ]
    defines = {"WMMA_WARPGROUPS": config.wgmma, "WMMA_RESIDENT": config.resident}
    return kernel_text("gemm_gemm.hip", members, before=registered([problem.activation]), defines=defines)


# ------------------------------------------------------------------------------------------------------------ the plan


def plan(problem: GemmGemmProblem, target: arch.Target) -> Plan:
    if problem.a not in _TYPES:
        return _two(f"D0 of {type_name(problem.a)} is not kept in registers: two products")
    config, price = choose(problem, target)
    if config is None:
        return _two(f"H of {problem.h} with N of {problem.n} does not fit a wave's registers: two products")
    other = cost_of_products(problem, target)
    costs = f"{price / 1000:.0f} thousand modelled cycles in one kernel, {other / 1000:.0f} in two or more"
    return _two(f"{costs}: two products") if other < price else plan_of(problem, config, target, costs)


def _two(reason: str) -> Plan:
    """Leaves the work to two products."""
    return Plan(None, reason, (), 0, (0, 0, 0, 0))


def plan_of(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target, reason: str) -> Plan:
    """The launch of one configuration."""
    threads = config.waves * target.wave
    blocks = _blocks(problem, config, target)
    if blocks * threads >= 2**32:
        raise ConfigError(f"{problem.m} rows take {blocks} blocks; {target.name} takes up to {2**32 // threads}")
    grid = (blocks, min(problem.batch, _MOST_GRID_Y))
    if config.wgmma:  # walks through the batch too
        rounds = blocks * problem.batch
        grid = (min(rounds, model.CARDS[target.name].units * _blocks_at_once(problem, config, target)), 1)
        if rounds >= 2**31:
            raise ConfigError(f"{problem.batch} times {problem.m} rows are {rounds} blocks; takes less than {2**31}")
    launch = KernelLaunch(
        "gemm_gemm", source(problem, config, target), grid, threads, shared_bytes(problem, config, target)
    )
    return Plan(config, reason, (launch,), 0, (blocks, 0, 0, 0))
