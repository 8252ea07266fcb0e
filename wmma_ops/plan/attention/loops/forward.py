"""Plans attention: the tiles of rows and keys, how many waves, whether keys are split; and the source text of the kernel."""

import dataclasses
from collections.abc import Iterator
from math import ceil, prod

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import Step, step_of, up
from wmma_ops.ops.errors import ConfigError
from wmma_ops.ops.types import name as type_name
from wmma_ops.plan import model
from wmma_ops.plan.attention import invariant
from wmma_ops.plan.attention.config import AttentionConfig
from wmma_ops.plan.attention.loops import ping_pong
from wmma_ops.plan.attention.passes import combine, fill
from wmma_ops.plan.attention.rules import (
    dealt_keys,
    divides_blocks,
    keys_looked_at,
    of_sequences,
    rules_header,
    rules_type,
)
from wmma_ops.plan.plan import KernelLaunch, Plan, check_blocks
from wmma_ops.plan.problem import AttentionNumbers, AttentionProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text, occupancy_constants, order_of

_OF_PAGES = 24  # where a tile is of several pages: their numbers, and where each starts
_OF_WIDENING = {"gfx950": 24}  # what keys and values become on their way
_CLUSTERS = (2, 4, 8)
_PACKED_ROWS = 64  # up to so many queries, those of all heads that share a key head make one tile


# ---------------------------------------------------------------------------------------------------------- the choice


def is_lanes(target: arch.Target, element: torch.dtype) -> bool:
    name = type_name(element)
    return not any((row.a, row.b, row.blocks) == (name, name, 1) for row in target.instructions)


def candidates(problem: AttentionProblem, target: arch.Target) -> Iterator[AttentionConfig]:
    """Configurations that fit shared memory, the preferred one first."""
    element, size = problem.dtype, problem.dtype.itemsize
    lanes = is_lanes(target, element)
    step = step_of(target, element, lanes, 16)
    whole_depth, whole_slice = up(problem.e, step.depth), up(problem.ev, step.whole)
    packed = problem.group > 1 and problem.sq <= _PACKED_ROWS and not problem.block_q
    rows = problem.sq * (problem.group if packed else 1)
    whole_chunks = (
        target.vendor == "nvidia"
        and size == 2
        and not problem.is_narrow  # asynchronous copies convert nothing
        and problem.k_order == problem.v_order == "e"
        and problem.k_vec == problem.v_vec == 8
    )
    depths = dict.fromkeys((whole_depth, *(x for x in (256, 128, 64, 32) if x < whole_depth and x % step.depth == 0)))
    slices = dict.fromkeys((whole_slice, *(x for x in (256, 128, 64, 32) if x < whole_slice and x % step.whole == 0)))
    if ping_pong.supports(problem, target, rows):
        yield from ping_pong.candidates(problem, target, whole_depth, whole_slice, packed)
    for depth in depths:
        for part in slices:
            for waves, tiles_m, keys in _shapes(target, problem, step, lanes, rows):
                if tiles_m > 1 and rows <= (tiles_m - 1) * waves * step.rows:
                    continue
                if not divides_blocks(problem, waves * tiles_m * step.rows, keys):
                    continue
                for keeps in (
                    (True, False) if target.vendor == "amd" and not lanes and depth == whole_depth else (False,)
                ):
                    asynchronous = (
                        whole_chunks and depth == whole_depth and _copies_fit(waves * target.wave, keys, depth, part)
                    )
                    config = AttentionConfig(
                        element, lanes, 16, waves, tiles_m, keys, depth, part, keeps, asynchronous, packed, 1, 1
                    )
                    shared, held = config.shared_bytes(target), config.registers(target)
                    if shared > target.lds_bytes:
                        continue
                    yield dataclasses.replace(config, occupancy=_occupancy(config, target, shared, held))


def _copies_fit(threads: int, keys: int, *widths: int) -> bool:
    """Whether AsyncLoader can be: a pass of the threads is whole lines, and a thread makes no more than 32 copies."""
    for width in widths:
        across = 1 << (width // 8 - 1).bit_length()
        if threads % across or ceil(keys / (threads // across)) > 32:
            return False
    return True


def _shapes(
    target: arch.Target, problem: AttentionProblem, step: Step, lanes: bool, rows: int
) -> Iterator[tuple[int, int, int]]:
    """(waves, row tiles of a wave, keys), the preferred first."""
    size, widest = problem.dtype.itemsize, max(problem.e, problem.ev)
    least = step.whole
    if lanes or size > 2:
        shapes = ((4, 1, 32), (2, 1, 32), (2, 1, 16), (1, 1, 16))
    elif target.vendor == "nvidia":
        shapes = ((4, 1, 64), (4, 1, 32), (2, 1, 32))
        if widest <= 128:
            shapes = ((4, 2, 64 if widest <= 64 else 32), (4, 1, 64), (4, 1, 32))
    elif target.family == "cdna":
        shapes = ((4, 2, 64), (4, 1, 64), (4, 2, 32), (4, 1, 32), (2, 1, 32))
        if widest > 64 and target.lds_bytes <= 65536:  # smaller tiles, so that two blocks share a unit
            shapes = ((4, 2, 32), (4, 1, 32), (2, 1, 32))
    else:
        shapes = ((8, 1, 64), (4, 1, 64), (8, 1, 32), (4, 1, 32), (4, 1, 16), (2, 1, 32), (2, 1, 16))
        if widest > 64:  # the registers of 64 keys would spill
            shapes = shapes[2:]
    if rows <= 2 * step.rows:  # waves without rows of their own would only take the others' time
        few = ceil(rows / step.rows)
        shapes = ((few, 1, 64), (few, 1, 32), (few, 1, 16)) if not lanes and size == 2 else ((few, 1, 32), (few, 1, 16))
    for waves, tiles_m, keys in shapes:
        if keys % least == 0:
            yield waves, tiles_m, keys
    yield 1, 1, least


def _occupancy(config: AttentionConfig, target: arch.Target, shared: int, held: int) -> int:
    """Waves at once on a SIMD that registers are kept for (NVIDIA: blocks on an SM)."""
    taken = int(held * (1.75 if target.name == "gfx908" else 1.25))
    blocks = model.resident(target, config.waves, taken, shared)
    if target.vendor == "nvidia":
        return max(min(blocks, 2), 1)
    least = max(config.waves // target.simds, 1)
    return min(max(blocks * config.waves // target.simds, least), 4) if target.family == "cdna" else least


def choose(problem: AttentionProblem, target: arch.Target) -> AttentionConfig:
    """The first configuration that fits."""
    if problem.invariant:
        config = invariant.chosen(problem, target, ranked)
        blocks = prod(blocks_of(problem, config, target)) * _heads(problem, config) * problem.batch
        return dataclasses.replace(config, **invariant.in_parts(problem, blocks, model.CARDS[target.name].units))
    if found := ranked(problem, target):
        return split(problem, found[0], target)
    raise ConfigError(f"no configuration of {target.name} fits {problem}")


def ranked(problem: AttentionProblem, target: arch.Target) -> list[AttentionConfig]:
    """Every configuration. What would spill is taken only where nothing else is left."""

    def over(config: AttentionConfig) -> int:
        pages = _OF_PAGES if problem.page_size % config.keys and not config.ping_pong else 0
        wide = _OF_WIDENING.get(target.name, 0) if problem.is_narrow else 0
        return max(config.registers(target) + pages + wide - config.most_registers(target), 0)

    return sorted(candidates(problem, target), key=over)


def split(problem: AttentionProblem, config: AttentionConfig, target: arch.Target) -> AttentionConfig:
    """With its keys split, where there are too few blocks for the units otherwise."""
    units = model.CARDS[target.name].units
    tiles, slices = blocks_of(problem, config, target)
    blocks = tiles * slices * _heads(problem, config) * problem.batch
    most = keys_looked_at(problem, problem.sq) // (4 * config.keys)
    resident_blocks = model.resident(target, config.waves, config.registers(target), config.shared_bytes(target))
    if target.vendor == "nvidia" and config.waves < 4:  # with more of them memory is slower (decoding on an H200)
        resident_blocks = 1
    splits = min(most, units * max(resident_blocks, 4 // config.waves) // blocks, 64)
    if splits < 2:
        return config
    cluster = target.family == "sm90" and splits in _CLUSTERS and slices == 1 and config.element.itemsize == 2
    return dataclasses.replace(config, splits=splits, cluster=cluster)


def blocks_of(problem: AttentionProblem, config: AttentionConfig, target: arch.Target) -> tuple[int, int]:
    """How many blocks there are along the rows of a head, and how many share its columns."""
    step = step_of(target, config.element, config.lanes, config.side)
    rows = problem.sq * (problem.group if config.packed else 1)
    return ceil(rows / (config.waves * config.tiles_m * step.rows)), ceil(problem.ev / config.slice)


def _heads(problem: AttentionProblem, config: AttentionConfig) -> int:
    """Or as many as what is packed of them."""
    return problem.heads // problem.group if config.packed else problem.heads


def _kept(config: AttentionConfig, target: arch.Target) -> int:
    """Numbers of a block that results of parts are, before the last joins them."""
    return (
        config.waves * config.tiles_m * step_of(target, config.element, config.lanes, config.side).rows * config.slice
    )


# ---------------------------------------------------------------------------------------------------------- the source


def source(problem: AttentionProblem, config: AttentionConfig, target: arch.Target) -> str:
    """The text of the kernel: its configuration, and the file that all share."""
    numbers = {
        "kSide": config.side,
        "kWaves": config.waves,
        "kTilesM": config.tiles_m,
        "kKeys": config.keys,
        "kColumns": problem.e,
        "kDepth": config.depth,
        "kSlice": config.slice,
        "kQueryVec": problem.q_vec if problem.q_order == "e" else 1,
        "kKeyVec": problem.k_vec,
        "kValueVec": problem.v_vec,
        "kOutVec": problem.out_vec,
        **occupancy_constants(target, config.occupancy, config.waves, config.shared_bytes(target)),
        "kThreads": config.waves * target.wave,
        "kCluster": config.splits if config.cluster else 1,
        "kSharedBytes": config.shared_bytes(target),
    }
    flags = {
        "kLanes": config.lanes,
        "kKeepsQueries": config.keeps_queries,
        "kAsync": config.asynchronous,
        "kPingPong": config.ping_pong,
        "kPacked": config.packed,
        "kSplit": config.splits > 1,
        "kCausal": problem.causal,
        "kWide": problem.wide,
        **({"kStandsAlone": True, "kFolds": config.folds} if problem.invariant else {}),
    }
    if config.folds:
        numbers["kKept"] = _kept(config, target)
    # Of K what is summed up runs along the head size, of V along the keys.
    orders = {"kKeyOrder": order_of(problem.k_order == "e"), "kValueOrder": order_of(problem.v_order != "e")}
    members = [
        *aliases({"Element": CPP[config.element], "Mask": CPP[problem.mask], "Rules": rules_type(problem)}),
        *constants("wmma::Order", orders),
        *constants("int", numbers),
        *constants("bool", flags),
    ]
    files = ("wmma/attention/loops/forward.hpp", "attention_cluster.hip" if config.cluster else "attention.hip")
    kernel = of_sequences(problem, "wmma::AttentionKernel<Config>")
    return kernel_text(*files, members=members, before=rules_header(problem), kernel=kernel)


# ------------------------------------------------------------------------------------------------------------ the plan


def plan(problem: AttentionProblem, target: arch.Target) -> Plan:
    config = choose(problem, target)
    return plan_of(problem, config, target, _reason(problem, config))


def _reason(problem: AttentionProblem, config: AttentionConfig) -> str:
    return invariant.reason(problem, config.keys) if problem.invariant else "the first that fits"


def plan_of(problem: AttentionProblem, config: AttentionConfig, target: arch.Target, reason: str) -> Plan:
    """The launches of one configuration."""
    tiles, slices = blocks_of(problem, config, target)
    blocks = tiles * slices * _heads(problem, config) * problem.batch
    threads = config.waves * target.wave
    check_blocks("attention takes", blocks, threads, target)
    keys = keys_looked_at(problem, problem.sq)
    splits, keys_of_split = dealt_keys(problem, keys, config.splits, config.keys)
    if config.cluster:  # which has all its blocks, though the last may find no key left
        splits = config.splits
    grid = (blocks * splits, 1) if config.cluster else (blocks, splits)
    kernel = source(problem, config, target)
    launches = [KernelLaunch("attention", kernel, grid, threads, config.shared_bytes(target))]
    workspace = 0
    if config.splits > 1 and not config.cluster:
        workspace = combine.workspace(problem, splits)
        launches.append(combine.launch(problem, target))
    else:
        launches += fill.launches(problem)
        if config.folds:
            workspace = blocks * _kept(config, target) * (8 if config.element == torch.float64 else 4)
    reason = f"{reason}; {blocks * splits} blocks on {model.CARDS[target.name].units} units"
    if config.lanes:
        reason += f"; {target.name} has no {type_name(config.element)} matrix instruction"
    if problem.is_narrow:
        reason += f"; {type_name(problem.stored)} becomes {type_name(config.element)} on its way to shared memory"
    return Plan(config, reason, tuple(launches), workspace, AttentionNumbers(splits, keys_of_split, tiles, slices))
