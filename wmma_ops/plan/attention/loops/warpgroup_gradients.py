"""kernels/wmma/attention/loops/warpgroup_gradients.hpp: sm_90a's warpgroups of 64 keys, for attention's gradients."""

import dataclasses
from dataclasses import dataclass
from math import ceil

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import BARRIER_BYTES, up
from wmma_ops.ops.types import name as type_name
from wmma_ops.plan import model
from wmma_ops.plan.attention.passes import delta, far_rows, key_parts, mask_words
from wmma_ops.plan.attention.passes.mask_words import Hidden
from wmma_ops.plan.plan import KernelLaunch, Plan
from wmma_ops.plan.problem import AttentionNumbers, AttentionProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text, occupancy_constants

_LINES = 64  # of a warpgroup's keys, and of a box
_GROUPS = 2
_KEYS = _GROUPS * _LINES  # of a block
THREADS = (_GROUPS + 1) * 128  # one loads tiles and keeps the order
_WIDEST = 128  # columns whose sums registers hold
_PLACES = (3, 2), (2, 2), (3, 1), (2, 1)  # for tiles, and for what they add to the gradients of queries
_AHEAD = 2  # lots of steps that are known before they are passed on
_MOST_PASSES = 8
_PASSES_COST = 50  # of passes: by one of so many what a window's blocks wait for each other grows
_COUNTS = 32  # that a line of memory holds
_MOST_SLICES = 16  # of the queries
# Tiles' time: of what a block does before its first and after its last; and of adding up what slices give.
_BESIDE_TILES, _ADDING_UP = 2, 3


@dataclass(frozen=True)
class WarpgroupGradientsConfig:
    """One kernel. Sizes are in elements."""

    element: torch.dtype
    depth: int  # of Q and K, whole boxes
    value_depth: int  # of V and g_out
    queries: int  # of a tile
    stages: int  # places for tiles
    dq_stages: int  # places for what is to be added to the gradients of queries

    def __str__(self) -> str:
        return (
            f"{type_name(self.element)}, {_GROUPS} warpgroups of {_LINES} keys, {self.queries} queries, "
            f"{self.depth} of Q and K, {self.value_depth} of V, {self.stages} stages, {self.dq_stages} of dQ"
        )


@dataclass(frozen=True)
class Teams:
    """Who has which keys (kernels/wmma/attention/balanced/gradient_teams.hpp)."""

    size: int  # blocks that share a head's keys
    passes: int  # in which each of them has some
    count: int
    slices: int = 1  # of the queries, which have teams of their own

    @property
    def blocks(self) -> int:
        return self.size * self.count


def hidden(problem: AttentionProblem) -> Hidden:
    if problem.key_mask:
        return Hidden.KEYS
    return Hidden.PAIRS if problem.mask_queries else Hidden.NONE


def adds_numbers(problem: AttentionProblem) -> bool:
    """Whether a mask of numbers is added to scores."""
    return problem.mask not in (None, torch.bool)


def shared_bytes(problem: AttentionProblem, config: WarpgroupGradientsConfig) -> int:
    statistics = 3 if adds_numbers(problem) else 2
    size = config.element.itemsize
    rows = (_KEYS + config.stages * config.queries) * (config.depth + config.value_depth) * size
    slopes, partials = 2 * _KEYS * config.queries * size, config.dq_stages * config.queries * config.depth * 4
    passed = (
        config.dq_stages * 16
        + 4 * 4
        + config.stages * (statistics * config.queries + 5) * 4
        + _AHEAD * (6 + 2 * 32) * 4
        + 2 * 12 * 4
        + _GROUPS * 4 * (8 if adds_numbers(problem) else 4 if hidden(problem) is not Hidden.NONE else 0)
    )
    return (
        rows
        + slopes
        + partials
        + up(passed, 8)
        + (2 + 2 * config.stages + 1 + 2 * config.dq_stages + 2 * _AHEAD) * BARRIER_BYTES
    )


def supports(problem: AttentionProblem, target: arch.Target) -> bool:
    """Whether the copy engine can fill the tiles, and a warpgroup's registers hold its sums."""
    fits = max(problem.e, problem.ev) <= _WIDEST and min(problem.sq, problem.skv) >= _LINES
    counted = max(problem.sq, problem.skv) < (2**16 - 1) * _LINES  # as the kernel counts them
    ruled = problem.scored or problem.sequences or problem.drops or problem.block_q
    # Rows far from 0 are summed up over all keys, and a sink is none of them.
    sums_up = problem.sinks is None and not problem.causal and not problem.windowed
    masked = problem.mask in (None, torch.bool) or (problem.mask_vec > 1 and sums_up)
    plain = problem.dtype.itemsize == 2 and masked and not ruled
    return target.name == "sm_90a" and plain and fits and counted and problem.in_eights


def candidates(problem: AttentionProblem, target: arch.Target) -> list[WarpgroupGradientsConfig]:
    """The preferred first."""
    if not supports(problem, target):
        return []
    depth, value_depth = up(problem.e, _LINES), up(problem.ev, _LINES)
    found = []
    # Numbers that are added lie where a tile's slopes will, and are as many.
    many = max(depth, value_depth) == _LINES and not adds_numbers(problem)
    for queries in (2 * _LINES, _LINES) if many else (_LINES,):
        for stages, dq_stages in _PLACES:
            config = WarpgroupGradientsConfig(problem.dtype, depth, value_depth, queries, stages, dq_stages)
            if shared_bytes(problem, config) <= target.lds_bytes:
                found.append(config)
    return found


def teams(problem: AttentionProblem, config: WarpgroupGradientsConfig, units: int) -> Teams:
    """That are done first. All blocks are on the device at once; where a mask hides keys from queries, an even number of
    passes deals them evenly."""
    heads, key_blocks = problem.heads // problem.group * problem.batch, ceil(problem.skv / _KEYS)

    def of(passes: int, slices: int = 1) -> Teams:
        size = ceil(key_blocks / passes)
        return Teams(size, passes, min(units // size, heads * slices), slices)

    if not (problem.causal or problem.windowed) and heads * key_blocks < units:
        tiles = ceil(problem.sq / config.queries)

        def of_slices(found: Teams) -> int:
            # No sooner than each block of a team has had a turn at a tile.
            each = max(ceil(tiles / found.slices) * problem.group, found.size) + _BESIDE_TILES
            return ceil(heads * found.slices / found.count) * each + (_ADDING_UP if found.slices > 1 else 0)

        return min((of(1, slices) for slices in range(1, min(tiles, _MOST_SLICES) + 1)), key=of_slices)

    def time(found: Teams) -> float:
        rounds = ceil(heads / found.count)
        if not problem.windowed:
            return rounds * found.passes
        return rounds * _busiest(problem, config, found, key_blocks) * (1 + found.passes / _PASSES_COST)

    step = 2 if problem.causal and not problem.windowed and key_blocks > 1 else 1
    least = up(ceil(key_blocks / units), step)
    return min(map(of, range(least, max(least, _MOST_PASSES) + 1, step)), key=time)


def splits_queries(problem: AttentionProblem, target: arch.Target) -> bool:
    """Whether its gradients, by what lies as the result does, have too few keys for all units, so that blocks share them."""
    problem = dataclasses.replace(problem, backward=True, g_vec=problem.out_vec)
    found = candidates(problem, target)
    return bool(found) and teams(problem, found[0], model.CARDS[target.name].units).slices > 1


def _busiest(problem: AttentionProblem, config: WarpgroupGradientsConfig, found: Teams, key_blocks: int) -> int:
    """Tiles of queries of the block that has most of a head, where a window is as wide all along."""
    tiles, seen = ceil(problem.sq / config.queries), ceil((problem.seen + _KEYS) / config.queries)
    of_members = [0] * found.size
    for key_block in range(key_blocks):
        turn, at = divmod(key_block, found.size)
        first = key_block * _KEYS // config.queries if problem.causal else 0
        of_members[at if turn % 2 == 0 else found.size - 1 - at] += max(min(tiles - first, seen), 0)
    return max(of_members)


def source(
    problem: AttentionProblem, config: WarpgroupGradientsConfig, target: arch.Target, splits: bool = False
) -> str:
    shared = shared_bytes(problem, config)
    numbers = {
        "kQueries": config.queries,
        "kColumns": problem.e,
        "kValueColumns": problem.ev,
        "kDepth": config.depth,
        "kValueDepth": config.value_depth,
        "kStages": config.stages,
        "kDqStages": config.dq_stages,
        "kMaskVec": problem.mask_vec,
        "kOutVec": problem.out_vec,
        **occupancy_constants(target, 1, THREADS // target.wave, shared),
        "kThreads": THREADS,
        "kSharedBytes": shared,
    }
    members = [
        *aliases({"Element": CPP[problem.dtype], "Mask": CPP[problem.mask if adds_numbers(problem) else None]}),
        *constants("int", numbers),
        *constants("bool", {"kCausal": problem.causal, "kWindowed": problem.windowed, "kSplitsQueries": splits}),
        *constants("wmma::Hidden", {"kHidden": hidden(problem).value}),
    ]
    files = ("wmma/attention/loops/warpgroup_gradients.hpp", "attention_backward.hip")
    return kernel_text(*files, members=members, before=mask_words.HEADER, kernel="wmma::WarpgroupGradients<Config>")


def plan(problem: AttentionProblem, target: arch.Target) -> Plan | None:
    """None where waves by themselves are to do it."""
    found = candidates(problem, target)
    return plan_of(problem, found[0], target, "the first that fits") if found else None


def plan_of(problem: AttentionProblem, config: WarpgroupGradientsConfig, target: arch.Target, reason: str) -> Plan:
    """The launches of one configuration."""
    tiles = ceil(problem.sq / config.queries)
    found = teams(problem, config, model.units_of(problem.device, target))
    splits = found.slices > 1
    kernel = source(problem, config, target, splits)
    shared = shared_bytes(problem, config)
    launches = (
        *([far_rows.launch(problem)] if adds_numbers(problem) else []),
        delta.launch(problem, target, cleared=1),
        KernelLaunch("attention_backward", kernel, (found.blocks, 1), THREADS, shared, cooperative=True),
        *([key_parts.launch(problem, config.queries * config.depth)] if splits else []),
    )
    counts = problem.batch * problem.heads * tiles
    workspace = (up(counts, _COUNTS) + counts * config.queries * config.depth) * 4
    if splits:
        workspace += key_parts.workspace(problem, found.slices)
    dealt = {"team": found.size, "passes": found.passes, "query_slices": found.slices}
    numbers = AttentionNumbers(1, 0, tiles, 1, queries=_LINES, packed=1, lines_k=_LINES, **dealt)
    reason = f"{reason}; {found.count} teams of {found.size} blocks, {found.passes} passes"
    if splits:
        reason += f", {found.slices} slices of the queries"
    made = Plan(config, reason, launches, workspace, numbers)
    return mask_words.with_kernel(made, problem, hidden(problem))
