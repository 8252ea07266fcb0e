"""Plans the gradients of attention: kernels for delta, unless the next one sums it up, for the queries, and for the keys
and values. On CDNA the last one adds to the queries' as well, where it can, in whole numbers or, if sums may be in any
order, floats, and a small one makes rows of them."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import shared_rate, step_of, tile_bytes, up
from wmma_ops.ops.types import name as type_name
from wmma_ops.plan import model
from wmma_ops.plan.attention.loops.forward import is_lanes
from wmma_ops.plan.attention.passes import fill
from wmma_ops.plan.attention.rules import divides_blocks, of_sequences, rules_header, rules_type
from wmma_ops.plan.errors import ConfigError
from wmma_ops.plan.plan import KernelLaunch, Plan, check_blocks
from wmma_ops.plan.problem import AttentionNumbers, AttentionProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text, order_of, waves_told

_DELTA_THREADS = 256
_LEAST_ROWS = 65  # that blocks of waves which interleave or march are for
_OTHERS = 64  # registers beside sums
_GIFTS_OF_THREAD = 8
# Keys up to which sums in fixed point are no further off than their rounding to the type is: with more of them results are
# smaller, and more is rounded.
_FIXED_KEYS = {torch.float16: 2**14, torch.bfloat16: 2**17}
_DRAWN_BYTES = 8  # of a query, by which its weights are dropped
# (waves, row tiles, others) of 16-bit types by head size and by who owns the rows: the fastest on an H200.
_MEASURED = {64: {False: (4, 2, 64), True: (4, 2, 32)}, 128: {False: (4, 2, 32), True: (4, 1, 64)}}
# Of loops/lockstep_gradients.hpp (waves, others, groups ahead, kept rows), by head size and by who owns the rows: no
# register is spilled.
_MARCHING = {
    "rdna3": {64: {False: (8, 32, 1, 2), True: (8, 32, 1, 2)}, 128: {False: (8, 16, 1, 1), True: (4, 16, 1, 0)}},
    "rdna4": {64: {False: (8, 32, 3, 2), True: (8, 32, 3, 2)}, 128: {False: (8, 16, 3, 2), True: (8, 16, 1, 2)}},
}
_MOST_REGISTERS = {"cdna": 400, "rdna3": 190, "rdna4": 200, "gfx1250": 200, "sm80": 255, "sm89": 255, "sm90": 255}


@dataclass(frozen=True)
class OwnerConfig:
    """One of the two kernels, by who owns the rows of a block. Sizes are in elements."""

    owns_keys: bool
    waves: int
    tiles_m: int  # of the matrix unit's rows, that a wave owns
    others: int  # rows of a tile of those that are not owned
    depth: int  # of Q and K
    value_depth: int  # of V and g_out
    slice: int  # of the results' columns, that a block computes
    asynchronous: bool
    occupancy: int
    side: int = 16  # of the matrix unit's tiles
    ahead: int = 0  # interleaved, marching: so many groups of products before their own, rows are read
    marches: bool = False
    kept: int = 2  # marching: of the owned rows, that are in registers: of none, of Q or K, of g_out or V too
    sums_delta: bool = False  # interleaved, marching: of its queries, for the kernel behind it
    gives: bool = False  # interleaved: of its keys, to the queries' gradients, so that there is no kernel for these
    fixed: bool = False  # what it gives: whole numbers, whose sums are the same in any order
    corrects: bool = False  # weights, beside a mask of numbers or a score function
    drops: bool = False  # weights, some of them

    @property
    def interleaved(self) -> bool:
        """Whether weights are computed between products, by waves that have a SIMD each."""
        return self.ahead > 0 and not self.marches

    def __str__(self) -> str:
        return (
            f"{self.waves} waves of {self.tiles_m} row tiles of {'keys' if self.owns_keys else 'queries'}, {self.others} "
            f"{'queries' if self.owns_keys else 'keys'}, {self.slice} columns"
            + (", asynchronous copies" if self.asynchronous else "")
            + (", interleaved" if self.interleaved else "")
            + (", a tile ahead" if self.marches else "")
            + (", delta" if self.sums_delta else "")
            + (", which give to their queries" if self.gives else "")
            + (", sums in fixed point, in any order the same" if self.fixed else "")
        )


@dataclass(frozen=True)
class BackwardConfig:
    element: torch.dtype
    lanes: bool
    queries: OwnerConfig | None  # None where keys give to them
    keys: OwnerConfig

    def __str__(self) -> str:
        owners = filter(None, (self.queries, self.keys))
        return "; ".join(("FMA" if self.lanes else type_name(self.element), *map(str, owners)))


def shared_bytes(config: OwnerConfig, target: arch.Target, element: torch.dtype, lanes: bool) -> int:
    step, size = step_of(target, element, lanes, config.side), element.itemsize
    rows = config.waves * config.tiles_m * step.rows
    depths = (config.depth, config.value_depth)
    if config.marches:
        line = config.depth * size + 16  # lines along the head size are padded
        turned = (1 + config.owns_keys) * tile_bytes(target, config.depth, config.others, size)
        statistics = 2 * config.others * 4 if config.owns_keys else 0
        return 2 * config.others * line + turned + statistics + (2 - config.kept) * rows * line
    if config.interleaved:
        if config.asynchronous:
            tiles = 3 * sum(config.others * depth * size for depth in depths)
        else:
            tiles = sum(tile_bytes(target, config.others, depth, size) for depth in depths)
            turned = depths if config.owns_keys else depths[:1]
            tiles += sum(tile_bytes(target, depth, config.others, size) for depth in turned)
        statistics = config.waves * 2 * config.others * 4 if config.owns_keys else 0
        slopes = _slope_bytes(config, target, rows * size) if config.gives else 0
        return tiles + statistics + slopes + (config.waves * config.others * 4 if config.fixed else 0)
    total = sum(tile_bytes(target, rows, depth, size) for depth in depths)
    buffer = sum(tile_bytes(target, config.others, depth, size) for depth in depths)
    if not config.asynchronous:
        buffer += (1 + config.owns_keys) * tile_bytes(target, config.slice, config.others, size)
    if config.owns_keys:
        buffer += (3 if config.corrects else 2) * config.others * (8 if size == 8 else 4)
        buffer += config.others * _DRAWN_BYTES if config.drops else 0
    total += buffer * (2 if config.asynchronous else 1)
    return total + (0 if step.stays else 2 * tile_bytes(target, rows, config.others, size))


def _slope_bytes(config: OwnerConfig, target: arch.Target, line: int) -> int:
    """Of what keys give through shared memory, a line a query; lines are padded, and where banks are few, eights of them."""
    gap = 64 if shared_rate(target) == 128 else 0
    return config.others * (line + 16) + config.others // 8 * gap


def registers(config: OwnerConfig, target: arch.Target, element: torch.dtype, lanes: bool) -> int:
    """An estimate of what a lane holds."""
    step, size = step_of(target, element, lanes, config.side), element.itemsize
    each = 2 if size == 8 else 1
    rows = config.tiles_m * step.rows
    sums = rows * ((1 + config.owns_keys) * config.slice + 2 * config.others) * each / target.wave
    loads = config.others * (config.depth + config.slice) * size / (config.waves * target.wave) / 4
    return int(sums + (0 if config.asynchronous else loads)) + _OTHERS


def candidates(problem: AttentionProblem, target: arch.Target, owns_keys: bool) -> Iterator[OwnerConfig]:
    """Configurations that fit shared memory, the preferred one first."""
    element, size = problem.dtype, problem.dtype.itemsize
    lanes = is_lanes(target, element)
    step = step_of(target, element, lanes, 16)
    depth, value_depth = up(problem.e, step.depth), up(problem.ev, step.depth)
    widest = up(max(problem.e, problem.ev) if owns_keys else problem.e, step.whole)
    slices = dict.fromkeys((widest, *(x for x in (128, 64, 32, 16) if x < widest and x % step.whole == 0)))
    orders = {problem.q_order, problem.k_order, problem.v_order, problem.g_order}
    vecs = {problem.q_vec, problem.k_vec, problem.v_vec, problem.g_vec}
    shapes = [(4, 1, 64), (4, 1, 32), (2, 1, 32), (4, 1, 16), (2, 1, 16), (1, 1, 16), (1, 1, 32)]
    if target.vendor == "nvidia" and size == 2:
        shapes = [(8, 1, 64), (8, 1, 32), *shapes]
        if measured := _measured(problem, owns_keys):
            shapes.insert(0, measured)
    for part in slices:
        for waves, tiles_m, others in shapes:
            own = waves * tiles_m * step.rows
            if others % step.whole or not divides_blocks(problem, *((others, own) if owns_keys else (own, others))):
                continue
            whole = part == widest and problem.e == problem.ev and depth == up(depth, step.whole)
            asynchronous = target.vendor == "nvidia" and size == 2 and whole and orders == {"e"} and vecs == {8}
            shape = (waves, tiles_m, others, depth, value_depth, part)
            flags = {"corrects": problem.corrects, "drops": problem.drops}
            config = OwnerConfig(owns_keys, *shape, asynchronous, 1, **flags)
            shared = shared_bytes(config, target, element, lanes)
            if shared <= target.lds_bytes:
                held = int(registers(config, target, element, lanes) * 1.25)
                blocks = model.resident(target, waves, held, shared)
                least = max(waves // target.simds, 1)
                occupancy = (
                    min(blocks, 2) if target.vendor == "nvidia" else min(max(blocks * waves // target.simds, least), 2)
                )
                yield dataclasses.replace(config, occupancy=max(occupancy, 1) if target.family != "rdna3" else least)


def _measured(problem: AttentionProblem, owns_keys: bool) -> tuple[int, int, int] | None:
    widest = max(problem.e, problem.ev)
    return next((shapes[owns_keys] for most, shapes in _MEASURED.items() if most // 2 < widest <= most), None)


def _goes_by_tiles(problem: AttentionProblem, owns_keys: bool) -> bool:
    """Whether rows are 16-bit, by whole chunks and of whole tiles, scores are products, without a mask, and there is a tile
    of the others at least: of packed sequences nobody knows."""
    rows, length = (problem.skv, problem.sq) if owns_keys else (problem.sq, problem.skv)
    orders = {problem.q_order, problem.k_order, problem.v_order, problem.g_order}
    vecs = {problem.q_vec, problem.k_vec, problem.v_vec, problem.g_vec}
    return (
        problem.dtype.itemsize == 2
        and problem.mask is None
        and not problem.scored
        and not problem.drops
        and not problem.block_q
        and not problem.sequences
        and not problem.wide
        and {problem.e, problem.ev} <= {64, 128}
        and orders == {"e"}
        and vecs == {8}
        and length >= 32
        and rows >= _LEAST_ROWS
    )


def interleaved(problem: AttentionProblem, target: arch.Target, owns_keys: bool) -> OwnerConfig | None:
    """The configuration of loops/interleaved_gradients.hpp, where it takes the problem."""
    if target.family != "cdna" or target.name == "gfx908" or not _goes_by_tiles(problem, owns_keys):
        return None
    length = problem.sq if owns_keys else problem.skv
    widest = max(problem.e, problem.ev)
    others = 64 if widest == 64 and length >= 64 else 32
    ahead = 7 if owns_keys and others * (problem.e + problem.ev) >= 64 * 128 else 3
    direct = target.name == "gfx950"  # straight to shared memory, where there is room for three tiles
    return OwnerConfig(owns_keys, 4, 1, others, problem.e, problem.ev, widest, direct, 1, side=32, ahead=ahead)


def marching(problem: AttentionProblem, target: arch.Target, owns_keys: bool) -> OwnerConfig | None:
    """The configuration of loops/lockstep_gradients.hpp, where it takes the problem: rows of both are alike."""
    shapes = _MARCHING.get(target.family, {}).get(problem.e)
    if shapes is None or problem.e != problem.ev or not _goes_by_tiles(problem, owns_keys):
        return None
    waves, others, ahead, kept = shapes[owns_keys]
    e, least = problem.e, waves // (2 * target.simds)
    return OwnerConfig(owns_keys, waves, 1, others, e, e, e, False, least, ahead=ahead, marches=True, kept=kept)


def choose(problem: AttentionProblem, target: arch.Target, owns_keys: bool) -> OwnerConfig:
    if config := interleaved(problem, target, owns_keys) or marching(problem, target, owns_keys):
        return config
    lanes = is_lanes(target, problem.dtype)

    # What would spill, or leaves SIMDs without a wave, is taken only where nothing else is left.
    def over(config: OwnerConfig) -> tuple[int, bool]:
        if config.asynchronous and (config.waves, config.tiles_m, config.others) == _measured(problem, owns_keys):
            return 0, False
        excess = registers(config, target, problem.dtype, lanes) - _MOST_REGISTERS[target.family]
        return max(excess, 0), config.waves < 4

    config = min(candidates(problem, target, owns_keys), key=over, default=None)
    if config is None:
        raise ConfigError(f"no configuration of {target.name} fits {problem}")
    return config


def source(problem: AttentionProblem, config: OwnerConfig, target: arch.Target) -> str:
    lanes = is_lanes(target, problem.dtype)

    def along(order: str, vec: int) -> int:
        return vec if order == "e" else 1

    q, k = (problem.q_order, problem.q_vec), (problem.k_order, problem.k_vec)
    v, g = (problem.v_order, problem.v_vec), (problem.g_order, problem.g_vec)
    (row, second_row), (first, second) = ((k, v), (q, g)) if config.owns_keys else ((q, g), (k, v))
    numbers = {
        "kSide": config.side,
        "kWaves": config.waves,
        "kTilesM": config.tiles_m,
        "kOthers": config.others,
        "kColumns": problem.e,
        "kValueColumns": problem.ev,
        "kDepth": config.depth,
        "kValueDepth": config.value_depth,
        "kSlice": config.slice,
        "kRowVec": along(*row),
        "kSecondRowVec": along(*second_row),
        "kFirstVec": first[1],
        "kSecondVec": second[1],
        "kOutVec": problem.out_vec,
        **waves_told(target, config.occupancy, config.waves, shared_bytes(config, target, problem.dtype, lanes)),
        "kThreads": config.waves * target.wave,
        "kSharedBytes": shared_bytes(config, target, problem.dtype, lanes),
        **({"kAhead": config.ahead} if config.ahead else {}),
        **({"kKeptRows": config.kept} if config.marches else {}),
    }
    flags = {
        "kLanes": lanes,
        "kOwnsKeys": config.owns_keys,
        "kAsync": config.asynchronous,
        "kCausal": problem.causal,
        "kWide": problem.wide,
        **(
            {
                "kSumsDelta": config.sums_delta,
                "kGrouped": problem.group > 1,
                "kGives": config.gives,
                "kFixed": config.fixed,
            }
            if config.ahead
            else {}
        ),
    }
    members = [
        *aliases({"Element": CPP[problem.dtype], "Mask": CPP[problem.mask], "Rules": rules_type(problem)}),
        *constants(
            "wmma::Order", {"kFirstOrder": order_of(first[0] == "e"), "kSecondOrder": order_of(second[0] == "e")}
        ),
        *constants("int", numbers),
        *constants("bool", flags),
    ]
    loop, kernel = "gradients", of_sequences(problem, "wmma::AttentionBackward<Config>")
    if config.interleaved:
        loop, kernel = "interleaved_gradients", "wmma::InterleavedGradients<Config>"
    elif config.marches:
        loop, kernel = "lockstep_gradients", "wmma::MarchingGradients<Config>"
    files = (f"wmma/attention/loops/{loop}.hpp", "attention_backward.hip")
    return kernel_text(*files, members=members, before=rules_header(problem), kernel=kernel)


def delta_launch(problem: AttentionProblem, target: arch.Target, cleared: int = 0, fixed: bool = False) -> KernelLaunch:
    """`cleared`: so many words of the workspace it sets to 0 for each tile of queries. `fixed`: it finds what sums in
    fixed point need, too."""
    vec = problem.g_vec if problem.g_order == "e" and problem.ev % problem.g_vec == 0 else 1
    lanes = min(1 << (ceil(problem.ev / vec) - 1).bit_length(), target.wave)  # of a row
    numbers = {
        "kThreads": _DELTA_THREADS,
        "kVec": vec,
        "kLanes": lanes,
        "kCleared": cleared,
        "kDepth": problem.e,
        "kValueDepth": problem.ev,
    }
    members = [
        *aliases({"Element": CPP[problem.dtype], "Rules": rules_type(problem)}),
        *constants("int", numbers),
        *constants("bool", {"kFixed": fixed}),
    ]
    source = kernel_text("attention_delta.hip", members=members, before=rules_header(problem))
    blocks = ceil(problem.batch * problem.heads * problem.sq * lanes / _DELTA_THREADS)
    if fixed:
        blocks += _peaks(problem, target) * target.wave // _DELTA_THREADS
    return KernelLaunch("attention_delta", source, (blocks, 1), _DELTA_THREADS, 0)


def _peaks(problem: AttentionProblem, target: arch.Target) -> int:
    """Of keys and of values of each head, each found by a wave in its share: there are as many as a wave has lanes."""
    return problem.batch * problem.heads // problem.group * target.wave * 2


def owner_launch(problem: AttentionProblem, owner: OwnerConfig, target: arch.Target) -> KernelLaunch:
    lanes = is_lanes(target, problem.dtype)
    length, heads = (problem.skv, problem.heads // problem.group) if owner.owns_keys else (problem.sq, problem.heads)
    step = step_of(target, problem.dtype, lanes, owner.side)
    columns = max(problem.e, problem.ev) if owner.owns_keys else problem.e
    tiles = ceil(length / (owner.waves * owner.tiles_m * step.rows))
    blocks = tiles * ceil(columns / owner.slice) * heads * problem.batch
    threads = owner.waves * target.wave
    check_blocks("attention takes", blocks, threads, target)
    kernel, shared = source(problem, owner, target), shared_bytes(owner, target, problem.dtype, lanes)
    return KernelLaunch("attention_backward", kernel, (blocks, 1), threads, shared)


def giving(problem: AttentionProblem, target: arch.Target) -> OwnerConfig | None:
    """The configuration of keys that give to the queries' gradients, where each wave has a matrix tile of what they give: in
    fixed point, unless float32 sums may be in any order."""
    config = interleaved(problem, target, True)
    if config is None or config.others * config.depth != config.waves * config.side**2:
        return None
    if not problem.unordered and problem.skv > _FIXED_KEYS[problem.dtype]:
        return None
    # By clang 19, which does not know gfx950, more of them spill.
    ahead = 3 if config.depth == 64 and not config.asynchronous else config.ahead
    return dataclasses.replace(config, gives=True, fixed=not problem.unordered, ahead=ahead)


def gifts_launch(problem: AttentionProblem, config: OwnerConfig, tiles: int, target: arch.Target) -> KernelLaunch:
    """Rows of what keys have given."""
    threads = config.others * config.depth // _GIFTS_OF_THREAD
    numbers = {
        "kSide": config.side,
        "kWaves": config.waves,
        "kOthers": config.others,
        "kDepth": config.depth,
        "kOutVec": problem.out_vec,
        "kThreads": threads,
    }
    members = [
        *aliases({"Element": CPP[problem.dtype], "Rules": rules_type(problem)}),
        *constants("int", numbers),
        *constants("bool", {"kFixed": config.fixed}),
    ]
    source = kernel_text("attention_dq_partials.hip", members=members, before=rules_header(problem))
    blocks = problem.batch * problem.heads * tiles
    check_blocks("attention takes", blocks, threads, target)
    return KernelLaunch("attention_dq_partials", source, (blocks, 1), threads, 0)


def plan(problem: AttentionProblem, target: arch.Target) -> Plan:
    lanes = is_lanes(target, problem.dtype)
    if (keys := giving(problem, target)) is not None:
        tiles = ceil(problem.sq / keys.others)
        words = keys.others * keys.depth
        launches = (
            delta_launch(problem, target, cleared=words, fixed=keys.fixed),
            owner_launch(problem, keys, target),
            gifts_launch(problem, keys, tiles, target),
        )
        workspace = problem.batch * problem.heads * tiles * words * 4
        if keys.fixed:  # sizes and marks of queries, and of heads of keys the largest ones and a flag
            heads = problem.batch * problem.heads
            workspace += (2 * heads * problem.sq + _peaks(problem, target) + heads // problem.group) * 4
        config = BackwardConfig(problem.dtype, lanes, None, keys)
        reason = "sums in fixed point are the same in any order" if keys.fixed else "sums may be in any order"
        return Plan(config, reason, launches, workspace, AttentionNumbers(1, 0, tiles, 1))
    owners = [choose(problem, target, owns_keys) for owns_keys in (False, True)]
    # On gfx11 wide heads take all registers: by clang 19 the sum spills.
    has_room = target.family != "rdna3" or max(problem.e, problem.ev) <= 64
    if has_room and all(owner.ahead for owner in owners):
        owners[0] = dataclasses.replace(owners[0], sums_delta=True)
    launches = [] if owners[0].sums_delta else [delta_launch(problem, target)]
    launches += (owner_launch(problem, owner, target) for owner in owners)
    launches += fill.launches(problem)
    config = BackwardConfig(problem.dtype, lanes, *owners)
    return Plan(config, "the first that fits", tuple(launches), 0, ())
