"""What the kernels of a product would cost, by model.py, and what they lack of registers."""

from math import ceil, inf, prod

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import shared_rate, step_of
from wmma_ops.plan import model
from wmma_ops.plan.gemm.config import GemmConfig, last_round, maps_result, shared_bytes
from wmma_ops.plan.problem import GemmProblem

_MOST_STAGED = 48  # registers
_TOGETHER = 0.785  # of what the matrix unit's reads and the copy engine's writes would take one after the other
_READ_AGAIN = 0.24  # of B, where blocks take the same tiles without sharing them: some come too late for the L2 cache
_KEPT_BYTES = 3 << 20  # of B, that the next blocks down find in the L2 cache
_EXTRAS_AND_PARTS = 12  # registers, for what one way to store takes beside the other


def _staged_registers(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> int:
    """What a lane holds of the next tile."""
    threads = config.waves * target.wave
    most = 0
    for pair in problem.pairs:
        total = 0
        for block, dtype, vec in ((config.block_m, pair.a, pair.a_vec), (config.block_n, pair.b, pair.b_vec)):
            per_lane = ceil(block * config.block_k / threads)
            # An element that arrives alone takes a register, however small it is.
            total += ceil(per_lane * dtype.itemsize / 4) if vec * dtype.itemsize >= 4 else per_lane
        most = max(most, total)
    return most


def _has_extras(problem: GemmProblem) -> bool:
    """Whether finishing an element takes registers."""
    extras = (problem.c, problem.bias, problem.row_scale, problem.col_scale, problem.multiply)
    rounds = problem.d == torch.bfloat16  # by several instructions
    return bool(problem.activation) or rounds or any(extra is not None for extra in extras)


def lacking(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> int:
    """How many registers a lane lacks, by a rough count."""
    if config.stages:
        return 0
    spare = _MOST_STAGED
    if target.wave == 32 and target.vendor == "amd":
        step = step_of(target, config.element, config.lanes, config.side)
        wave_m, wave_n = config.block_m // config.waves_m, config.block_n // config.waves_n
        operands = (wave_m + wave_n) * step.depth * step.copies * config.element.itemsize // 4 // 32
        spare = min(spare, 256 - 40 - wave_m * wave_n // 32 * config.sum_bytes // 4 - operands)
    if config.last > 1 and _has_extras(problem):
        spare -= _EXTRAS_AND_PARTS
    return max(_staged_registers(problem, config, target) - spare, 0)


def _moved(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> tuple[float, float]:
    """Bytes of A and of B that a step moves for each k: as they lie in memory, and more where its runs straddle lines."""
    moved = []
    for edge, share, extent, order, dtype in (
        (config.block_m, config.share_a, problem.m, problem.a_order, problem.a),
        (config.block_n, config.share, problem.n, problem.b_order, problem.b),
    ):
        run, pitch = (config.block_k, problem.k) if order == "k" else (edge, extent)
        aligned = pitch * dtype.itemsize % model.LINE_BYTES == 0
        lines = run * dtype.itemsize / model.LINE_BYTES
        more = model.STRADDLE_COPIED if config.stages else model.STRADDLE / max(lines, 1)
        moved.append(edge / share * dtype.itemsize * (1 if aligned else 1 + more))
    return tuple(moved)


def _stored(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> float:
    """Bytes that a step brings, and what narrow loads cost, as bytes: of two pairs, in the mean."""
    if problem.k2:
        each = sum(_stored(pair, config, target) * pair.k for pair in problem.pairs)
        return each / (problem.k + problem.k2)
    stored = sum(_moved(problem, config, target)) * config.block_k
    if not config.stages:  # loads narrower than 16 bytes cost an instruction each
        stored *= max(1, 4 / (min(problem.a_vec, problem.b_vec) * problem.a.itemsize))
    return stored


def _times_b_is_read(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> float:
    """From memory: for each group of rows that blocks walk down, unless they all run at the same time."""
    down, across = config.tiles(problem)
    if problem.n * (problem.k + problem.k2) * problem.b.itemsize > _KEPT_BYTES and config.group:
        times = min(ceil(down / config.group), ceil(down * across / model.CARDS[target.name].units))
        if times > 1:
            return times
    if down <= config.share:
        return 1
    return 1 + _READ_AGAIN * (3 if config.share_a > 1 else 1)  # then blocks walk along rows


def _traffic(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> float:
    """Bytes that memory moves; a matrix that the batch repeats is counted as often."""
    m, n, k = problem.m, problem.n, problem.k + problem.k2
    beside = problem.beside_bytes + problem.d.itemsize
    times = _times_b_is_read(problem, config, target) if config.wgmma else 1
    return problem.batch * (m * k * problem.a.itemsize + times * k * n * problem.b.itemsize + m * n * beside)


def cost(problem: GemmProblem, config: GemmConfig, target: arch.Target, least: float = inf) -> float:
    """Modelled cycles; infinite where the matrix unit alone, sooner told, makes it no cheaper than `least`."""
    parts = config.splits * config.cluster
    blocks = prod(config.tiles(problem)) * problem.batch * parts
    load = model.load(target, blocks, config.cluster * config.share * config.share_a, config.last)
    steps = ceil(ceil(config.length(problem) / parts) / config.block_k)
    flops = 2 * config.block_m * config.block_n * config.block_k
    matrix = flops / model.rate(target, config.element, config.lanes, wgmma=config.wgmma)
    way = model.BY_WARPGROUPS if config.wgmma else model.STRAIGHT if config.direct else model.BY_WAVES[target.vendor]
    if model.LAUNCH + load * steps * matrix + way.block >= least:
        return inf
    step = step_of(target, config.element, config.lanes, config.side)
    size = config.element.itemsize
    wave_m, wave_n = config.block_m // config.waves_m, config.block_n // config.waves_n
    written = (config.block_m + config.block_n) * config.block_k * size
    reads = config.waves_m * config.waves_n * (wave_m + wave_n) * config.block_k * size * step.copies
    if config.wgmma:  # four waves read together
        reads = config.waves // 4 * (64 + config.block_n) * config.block_k * size
    shared = 0 if config.direct else (reads + written) / shared_rate(target) * (_TOGETHER if config.wgmma else 1)
    sum_bytes = config.sum_bytes
    of_d, of_beside = (model.MAPPED_RESULT, model.MAPPED_BESIDE) if maps_result(problem, config) else (1, 1)
    out = sum_bytes if config.splits > 1 else problem.d.itemsize * of_d + problem.beside_bytes * of_beside
    area = config.block_m * config.block_n
    in_parts = blocks // parts if config.splits > 1 else last_round(problem, config, target) if config.last > 1 else 0
    return model.cycles(
        target,
        model.Work(
            way=way,
            load=load,
            steps=steps,
            matrix=matrix,
            shared=shared,
            tile_bytes=_stored(problem, config, target),
            result_bytes=area * out,
            activations=area * 20 if problem.activation else 0,
            resident=1
            if config.walks
            else model.resident(
                target,
                config.waves,
                wave_m * wave_n // target.wave * (sum_bytes // 4) + 100,
                shared_bytes(problem, config, target),
            ),
            waves=config.waves,
            in_flight=config.stages if config.direct else max(config.stages - 1, 1),
            cluster=config.cluster,
            share=config.share * config.share_a,
            shared_sums=area * sum_bytes * (config.cluster * config.waves_k - 1) * (0.25 if config.direct else 1),
            splits=config.splits * config.last,
            split_bytes=in_parts * area * (config.splits * config.last * sum_bytes + problem.d.itemsize),
            last=config.last,
            walks=config.walks,
            traffic=_traffic(problem, config, target),
        ),
    )
