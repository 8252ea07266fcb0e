"""What the kernels of two products would cost, by model.py, and what one product after the other would."""

from math import ceil

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import shared_rate, step_of, up
from wmma_ops.plan import model
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.plan.gemm_gemm.config import GemmGemmConfig, maps_result, registers, shared_bytes
from wmma_ops.plan.problem import GemmGemmProblem

_ADDRESSES = 60  # registers of a lane for these and for operands, beside what it holds
_RESIDENT_LOSS = 1.5  # of mma.sync's waves, each with rows of its own, on an H200

# Of warpgroups, fitted to 233 timings of 22 shapes on an H200 (8 % off, root mean square). In cycles, but for those that
# say otherwise.
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


def cost(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> float:
    """Modelled cycles."""
    if config.wgmma:
        return _cost_of_warpgroups(problem, config, target)
    return (_cost_of_resident if config.resident else _cost_of_streamed)(problem, config, target)


def blocks_at_once(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
    """That share a unit."""
    taken = registers(problem, config, target) + (0 if config.wgmma else _ADDRESSES)
    return model.resident(target, config.all_waves, taken, shared_bytes(problem, config, target))


def blocks_of(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> int:
    """Of each matrix of the batch."""
    tiles = ceil(problem.m / config.team_m)
    if config.wgmma or not config.resident:
        return tiles
    room = model.CARDS[target.name].units * blocks_at_once(problem, config, target)
    return min(tiles, max(1, room // problem.batch))


def _cost_of_resident(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> float:
    size, units = problem.a.itemsize, model.CARDS[target.name].units
    copies = step_of(target, problem.a, False, 16).copies
    banks = shared_rate(target)
    columns = up(problem.n, config.block_n)
    weights = config.block_h * ((2 if problem.gate else 1) * config.block_k + columns) * size
    blocks = blocks_of(problem, config, target)
    together = min(blocks_at_once(problem, config, target), ceil(blocks * problem.batch / units))
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
    memory = _bytes(problem) / model.CARDS[target.name].memory
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
    together = min(blocks_at_once(problem, config, target), ceil(blocks / units))
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
        chunks * columns // config.block_n * (1 if problem.c is None else 2), 1,  # C is not asked for ahead
    )  # fmt: skip
    rounds = blocks / units / together
    rounds = ceil(rounds) if rounds < 4 else rounds
    units = rounds * (model.BLOCK + 2 * model.ROUND_TRIP + first + last)
    return model.LAUNCH + model.beside_memory(target, units, _bytes(problem))


def _cost_of_warpgroups(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> float:
    rate = model.rate(target, problem.a, False, wgmma=True)
    size, rows, groups = problem.a.itemsize, config.team_m, config.waves // 4
    width = (2 if problem.gate else 1) * config.block_h
    tiles, chunks = ceil(problem.k / 64), ceil(problem.n / config.block_n)
    columns = chunks * config.block_n
    turns = ceil(ceil(problem.m / rows) * problem.batch / model.CARDS[target.name].units)  # of a unit

    def matrix(depth: int, across: int) -> float:
        return 2 * rows * depth * across / rate

    rounding = _ROUND if problem.activation < 2 else _ROUND + _ACTIVATE
    vector = rows * (config.waves_n * width * rounding + columns * _FINISH) / model.ACTIVATIONS
    beside = problem.c.itemsize if problem.c is not None else 0
    if maps_result(problem, config):
        vector += rows * columns * beside / 2 / model.RESULT_BYTES
    else:
        vector += chunks * model.ROUND_TRIP + rows * columns * (problem.d.itemsize + beside) / model.RESULT_BYTES
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
    return model.LAUNCH + _FIRST + (total**4 + (_bytes(problem) / _MEMORY) ** 4) ** 0.25


def _bytes(problem: GemmGemmProblem) -> int:
    """What one kernel reads and writes, each matrix once."""
    firsts = 2 if problem.gate else 1
    weights = (firsts * problem.k + problem.n) * problem.h
    beside = problem.c.itemsize if problem.c is not None else 0
    rows = problem.k * problem.a.itemsize + problem.n * (problem.d.itemsize + beside)
    return problem.batch * (problem.m * rows + weights * problem.a.itemsize)


def cost_of_products(problem: GemmGemmProblem, target: arch.Target) -> float:
    return sum(gemm.choose(one, target)[1] for one in problem.products())
