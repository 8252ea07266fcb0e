"""What the kernels of a product would cost, by model.py."""

from math import ceil, prod

from wmma_ops.hardware import arch
from wmma_ops.ops.types import bytes_of
from wmma_ops.plan import model
from wmma_ops.plan.gemm.config import GemmConfig
from wmma_ops.plan.gemm.loop import Loop
from wmma_ops.plan.gemm.loops import loop_of
from wmma_ops.plan.problem import GemmProblem


def _moved(problem: GemmProblem, config: GemmConfig, loop: Loop) -> float:
    """Bytes of A and B that a step moves for each k: as they lie in memory, and more where its runs straddle lines."""
    moved = 0.0
    for edge, share, extent, order, dtype in (
        (config.block_m, config.order.share_a, problem.m, problem.a_order, problem.a),
        (config.block_n, config.order.share, problem.columns, problem.b_order, problem.b),
    ):
        run, pitch = (config.block_k, problem.k) if order == "k" else (edge, extent)
        aligned = bytes_of(dtype, pitch) % model.LINE_BYTES == 0
        more = 0 if aligned else loop.straddling(bytes_of(dtype, run) / model.LINE_BYTES)
        moved += bytes_of(dtype, edge) / share * (1 + more)
    return moved


def _stored(problem: GemmProblem, config: GemmConfig, loop: Loop) -> float:
    """Bytes that a step brings, and what narrow loads cost, as bytes: of two pairs, in the mean."""
    if problem.k2:
        each = sum(_stored(pair, config, loop) * pair.k for pair in problem.pairs)
        return each / (problem.k + problem.k2)
    return _moved(problem, config, loop) * config.block_k * loop.narrow_loads(problem, config)


def _traffic(problem: GemmProblem, config: GemmConfig, target: arch.Target, loop: Loop) -> float:
    """Bytes that memory moves; a matrix that the batch repeats is counted as often."""
    m, n, k = problem.m, problem.n, problem.k + problem.k2
    of_b = bytes_of(problem.b, k * problem.columns)
    beside = problem.beside_bytes + problem.stored_bytes
    times = loop.times_b_is_read(problem, config, target)
    return problem.batch * (bytes_of(problem.a, m * k) + times * of_b + m * n * beside)


def bound(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> float:
    """What the modelled cycles are not below, found in a fifth of the time."""
    loop = loop_of(config)
    load, steps, matrix, _ = _dealt(problem, config, target, loop)
    way = loop.way(target)
    bytes_of_k = min(
        bytes_of(pair.a, config.block_m) / config.order.share_a + bytes_of(pair.b, config.block_n) / config.order.share
        for pair in problem.pairs
    )
    memory = bytes_of_k * config.block_k / way.tile_bytes
    step = max(matrix, memory) + way.adds(loop.hides_latencies(problem, config)) * memory + way.step
    least = model.LAUNCH + load * steps * step + way.block
    return least + model.adding_up(target, config.order.splits) if config.order.splits > 1 else least


def cost(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> float:
    """Modelled cycles."""
    return model.cycles(target, work_of(problem, config, target))


def _dealt(problem: GemmProblem, config: GemmConfig, target: arch.Target, loop: Loop) -> tuple[float, int, float, int]:
    """Blocks of the busiest unit, their steps, what the matrix unit takes for one, and all blocks."""
    order = config.order
    parts = order.splits * order.cluster
    blocks = prod(config.tiles(problem)) * problem.batch * parts
    load = model.load(target, blocks, order.cluster_blocks, order.last)
    steps = ceil(ceil(config.length(problem) / parts) / config.block_k)
    matrix = 2 * config.block_m * config.block_n * config.block_k / loop.rate(config, target)
    return load, steps, matrix, blocks


def work_of(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> model.Work:
    """What its blocks do."""
    loop, order = loop_of(config), config.order
    load, steps, matrix, blocks = _dealt(problem, config, target, loop)
    parts, area, way = order.splits * order.cluster, config.block_m * config.columns, loop.way(target)
    sum_bytes = config.sum_bytes
    mapped = loop.maps_result(problem, config)
    of_d, of_beside = (model.MAPPED_RESULT, model.MAPPED_BESIDE) if mapped else (1, 1)
    out = sum_bytes if order.splits > 1 else problem.stored_bytes * of_d + problem.beside_bytes * of_beside
    in_parts = blocks // parts if order.splits > 1 else config.in_parts(problem, target)
    resident = 1
    if not order.persistent:
        wave_sums = config.block_m // config.waves_m * (config.block_n // config.waves_n) // target.wave
        shared_bytes = loop.shared_bytes(problem, config, target)
        resident = model.resident(target, config.waves, wave_sums * (sum_bytes // 4) + 100, shared_bytes)
    if order.last > 1 and load > resident and model.wholes(target) < model.CARDS[target.name].units:
        # Parts that come a round later have the pair of units to themselves, and leave half of it idle.
        load = model.load(target, blocks, order.cluster_blocks, 1)
    return model.Work(
        way=way,
        load=load,
        steps=steps,
        matrix=matrix,
        shared=loop.shared_cycles(config, target),
        tile_bytes=_stored(problem, config, loop),
        result_bytes=area * out,
        # Where a tile's results go on while the next one's products are under way, half of it shows: gelu after
        # 4608x3072x12288 takes 21 µs more than nothing, after 9232x1024x4096 14 (H100).
        activations=area * (10 if mapped else 20) if problem.activation else 0,
        resident=resident,
        waves=config.waves,
        in_flight=loop.in_flight(config),
        cluster=order.cluster,
        share=order.neighbours,
        shared_sums=area * sum_bytes * (order.cluster * config.waves_k - 1) * loop.sums_exchanged(),
        splits=order.splits * order.last,
        split_bytes=in_parts * area * (order.splits * order.last * sum_bytes + problem.stored_bytes),
        last=order.last,
        persistent=order.persistent,
        hides_latencies=loop.hides_latencies(problem, config),
        overlaps=config.ping_pong,
        traffic=_traffic(problem, config, target, loop),
        zeros=loop.zeros(problem, config),
    )
