"""kernels/wmma/attention/loops/warpgroup.hpp: sm_90a's warpgroups, each with 64 rows, which take tiles of keys in turn."""

import dataclasses
from dataclasses import dataclass
from itertools import product
from math import ceil, gcd

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import BARRIER_BYTES, up
from wmma_ops.ops.types import name as type_name
from wmma_ops.plan import model
from wmma_ops.plan.attention import invariant
from wmma_ops.plan.attention.passes import combine, fill, mask_words, transpose
from wmma_ops.plan.attention.passes.mask_words import Hidden
from wmma_ops.plan.attention.rules import dealt_keys, divides_blocks, keys_looked_at, rules_header, rules_type
from wmma_ops.plan.plan import KernelLaunch, Plan
from wmma_ops.plan.problem import AttentionNumbers, AttentionProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text, occupancy_constants, wgmma_of_width

_GROUP_ROWS = 64
_GROUP_THREADS = 128
_LINE_BYTES = 128  # of a box
_RESULT_LINE = 64  # columns of a box of results
_WIDEST_TRANSPOSED = 128  # columns of values of 8 bits: a tile's results stand beside those of all, in registers
_WIDTHS = (32, 64, 128, 192, 256)  # of the instructions that every kernel has
_WEIGHTS = 14  # that a unit computes in a clock
_CAPPED_WEIGHTS = 5
_WIDENED = 58  # numbers of 8 bits that seven waves widen in a clock
_APART = 300  # cycles of a step of two warpgroups in which neither multiplies
_TILE = 2500  # from one tile of rows to the next
_FEW_SPLITS, _BUSY = 4, 0.65  # of keys; share of units
_OF_TWO_BLOCKS = 1, 64  # warpgroups and keys, of heads of 65 to 128, where two share a unit
_PART = 16  # keys that are brought at once where rows are few: fewer are in no page
_RESERVED = 1024  # bytes of shared memory that every block takes beside its own
_COMBINE = 10000  # a second kernel, and what blocks leave for it
# Cycles of blocks that wait for memory, fewer than units: of a tile of keys beside its bytes, and how many of these a unit
# has in one, and of the first; of the kernel that puts parts together, and of each eight of these after the first.
_ONE_TILE, _ALONE_BYTES, _FIRST_BYTES, _PARTS, _MORE_PARTS = 100, 30, 60, 4000, 1600
_REACHED = 0.85  # of what memory gives at most
_MOST_DEALT = 1 << 22  # of 32 bytes; where more are possible, waves by themselves do it
_KEPT_BYTES = 24 << 20  # of keys and values, that the L2 cache holds while blocks walk through their heads


@dataclass(frozen=True)
class WarpgroupConfig:
    """One kernel. Sizes are in elements."""

    element: torch.dtype  # that is multiplied
    groups: int  # that multiply
    keys: int  # of a tile
    depth: int  # of Q and K, whole boxes
    slice: int  # of V, likewise
    stages: int  # places for tiles of keys, and of values
    query_stages: int  # places for each warpgroup's queries
    packed: int = 1  # heads that share keys, in the lines of a warpgroup
    splits: int = 1  # blocks that share a tile of rows and split its keys
    balanced: bool = False  # blocks are given listed tiles of rows as they have room for them
    last_splits: int = 1  # blocks that share a tile of rows in the last round, for which few are left
    narrow_stages: int = 0  # places for tiles of keys and values as they are in memory, which waves widen
    folds: bool = False  # a block has the parts of its keys one after the other (invariant.py)
    resident: int = 1  # blocks that share a unit

    @property
    def rows(self) -> int:
        return self.groups * (_GROUP_ROWS // self.packed * self.packed)

    @property
    def threads(self) -> int:
        return (self.groups + (2 if self.narrow_stages else 1)) * _GROUP_THREADS  # one loads tiles, one more widens

    def __str__(self) -> str:
        return (
            f"{type_name(self.element)}, {self.groups} warpgroups of {_GROUP_ROWS} rows in turns, {self.keys} keys, "
            f"{self.depth} of Q and K, {self.slice} of V, {self.stages} stages"
            + (f", {self.packed} heads packed" if self.packed > 1 else "")
            + (f", keys split {self.splits} ways" if self.splits > 1 else "")
            + (", balanced" if self.balanced else "")
            + (f", the last tiles' split {self.last_splits} ways" if self.last_splits > 1 else "")
            + (f", widened from {self.narrow_stages} places" if self.narrow_stages else "")
            + (", keys in parts, one after the other" if self.folds else "")
            + (f", {self.resident} blocks a unit" if self.resident > 1 else "")
        )


def shared_bytes(problem: AttentionProblem, config: WarpgroupConfig) -> int:
    size = config.element.itemsize
    line = config.depth * size  # of queries, or of the results that come to lie there
    if maps_result(problem, config):
        line = max(line, config.slice * problem.dtype.itemsize)
    queries = config.groups * config.query_stages * (_GROUP_ROWS * line + 2 * BARRIER_BYTES)
    passed = config.groups * config.query_stages * fill.LISTED_BYTES if config.balanced else 0
    narrow = config.narrow_stages
    if narrow:
        passed += up(4 * narrow, 16) + narrow * (
            config.keys * up(max(config.depth, config.slice), _LINE_BYTES) + 2 * BARRIER_BYTES
        )
    return queries + config.stages * (config.keys * (config.depth + config.slice) * size + 4 * BARRIER_BYTES) + passed


def supports(problem: AttentionProblem, target: arch.Target) -> bool:
    """Whether the copy engine can fill the tiles, and a warpgroup's registers hold its results."""
    along = (problem.q_order, problem.k_order, problem.v_order) == ("e", "e", "e")
    whole = problem.q_vec * _element(problem).itemsize >= 16
    whole = whole and min(problem.k_vec, problem.v_vec) * problem.stored.itemsize >= 16
    fits = max(problem.e, problem.ev) <= 256 and max(problem.sq, problem.skv) < 2**31
    # What draws for dropout has no registers beside waves that widen, and nobody trains from pages.
    halves = _element(problem).itemsize == 2 and not (_widens(problem) and problem.drops)
    transposed = problem.is_scaled and problem.ev <= _WIDEST_TRANSPOSED
    # A tanh that is right to its last digits has no registers beside the scores.
    return target.name == "sm_90a" and (halves or transposed) and along and whole and fits and not problem.large_cap


def _widens(problem: AttentionProblem) -> bool:
    """Whether keys and values, in pages, are narrower than queries."""
    return problem.is_narrow and not problem.is_scaled


def _element(problem: AttentionProblem) -> torch.dtype:
    """What is multiplied."""
    return problem.stored if problem.is_scaled else problem.dtype


def candidates(problem: AttentionProblem, target: arch.Target) -> list[WarpgroupConfig]:
    """The preferred first."""
    if not supports(problem, target):
        return []
    element, widens = _element(problem), _widens(problem)
    depth, part = up(problem.e, _LINE_BYTES // element.itemsize), up(problem.ev, _RESULT_LINE)
    found = []
    # Rows of heads that are packed would have scales of their own.
    few = problem.sq < 2 * _GROUP_ROWS and not problem.block_q and not problem.is_scaled
    packed = problem.group if few and 1 < problem.group <= _GROUP_ROWS else 1
    waits = _leaves_idle(problem, packed, target)
    for groups, keys in _shapes_of(problem, depth, part, waits):
        if not divides_blocks(problem, groups * _GROUP_ROWS, keys):
            continue
        if _spills(problem, groups, part):
            continue
        for query_stages, narrow_stages in product((2, 1), (4, 3, 2) if widens else (0,)):
            config = WarpgroupConfig(
                element, groups, keys, depth, part, 2, query_stages, packed, narrow_stages=narrow_stages
            )
            config = split(problem, config, target)
            if (
                problem.sequences
                and config.splits == 1
                and not config.folds
                and not _is_one_round(problem, config, target)
            ):
                config = dataclasses.replace(config, balanced=True)
            config = split_last(problem, config, target)
            config = dataclasses.replace(config, resident=_resident(problem, config, target))
            if (groups, keys) == _OF_TWO_BLOCKS and max(depth, part) <= 128 and config.resident == 1 and not waits:
                break
            if shared_bytes(problem, config) <= target.lds_bytes and dealt(problem, config) <= _MOST_DEALT:
                if work_of(problem, config) * config.splits < 2**31:  # as the kernel counts them
                    found.append(config)
                break
    if problem.invariant:
        keys = invariant.keys_of_warpgroups(max(depth, part))
        found = [config for config in found if config.keys == keys]
    return sorted(found, key=lambda config: (_waiting if waits else cost)(problem, config, target))


def _leaves_idle(problem: AttentionProblem, packed: int, target: arch.Target) -> bool:
    """Whether few rows are so few that most units have none of them, unless keys are split."""
    others = _widens(problem) or problem.is_scaled or problem.invariant or problem.block_q
    work = problem.heads // packed * problem.batch
    return not others and problem.sq * packed <= _GROUP_ROWS and 2 * work <= model.CARDS[target.name].units


def _spills(problem: AttentionProblem, groups: int, part: int) -> bool:
    """Whether so many warpgroups have too few registers each."""
    looks = problem.sequences and problem.block_q  # who asks for tiles has more in mind
    if _widens(problem):
        return problem.modified and (part > 128 or (groups > 1 and looks and part > 64))
    adds_numbers = problem.mask not in (None, torch.bool)
    return groups > 2 and (problem.modified or problem.drops or looks or adds_numbers)


def _shapes_of(problem: AttentionProblem, depth: int, part: int, waits: bool) -> tuple[tuple[int, int], ...]:
    if problem.is_scaled:
        return _turned_shapes(part)
    if waits:
        return ((1, 128), (1, 64)) if max(depth, part) <= 128 else ((1, 64),)
    return (_widened_shapes if _widens(problem) else _shapes)(max(depth, part))


def _shapes(widest: int) -> tuple[tuple[int, int], ...]:
    """(warpgroups, keys), the preferred first where rows are many."""
    if widest <= 64:
        return (3, 128), (2, 128), (2, 64), (1, 128)
    if widest <= 128:
        return (2, 128), (2, 64), (1, 128), _OF_TWO_BLOCKS
    return (2, 96), (2, 80), (2, 64), (1, 64)


def _widened_shapes(widest: int) -> tuple[tuple[int, int], ...]:
    """Of keys and values that are widened, by a warpgroup more, whose registers those that multiply do not have."""
    if widest <= 64:
        return (2, 128), (1, 128)
    return ((2, 96), (1, 128)) if widest <= 128 else ((1, 64),)


def _turned_shapes(slice: int) -> tuple[tuple[int, int], ...]:
    """Of values of 8 bits, of which a tile has whole lines of keys. A warpgroup alone has fewer registers than two have
    each."""
    return ((3, 128), (2, 128)) if slice <= _RESULT_LINE else ((2, 128),)


def _room(problem: AttentionProblem, config: WarpgroupConfig, target: arch.Target) -> int:
    """How many blocks of few rows, which wait for memory, a unit has room for."""
    is_few = config.groups == 1 and tiles_of(problem, config) == 1
    looks = config.narrow_stages or problem.is_scaled or problem.modified or problem.drops
    fits = 2 * shared_bytes(problem, config) + _RESERVED <= target.lds_bytes
    return 2 if is_few and fits and not looks else 1


def _is_one_round(problem: AttentionProblem, config: WarpgroupConfig, target: arch.Target) -> bool:
    """Whether there is room for a block of each tile of rows."""
    return work_of(problem, config) <= model.CARDS[target.name].units * _room(problem, config, target)


def _resident(problem: AttentionProblem, config: WarpgroupConfig, target: arch.Target) -> int:
    has_work = work_of(problem, config) * config.splits > model.CARDS[target.name].units
    return _room(problem, config, target) if has_work else 1


def cost(problem: AttentionProblem, config: WarpgroupConfig, target: arch.Target) -> float:
    """Cycles of the busiest unit: its tiles of rows, each with its tiles of keys."""
    work, units = work_of(problem, config) * config.splits, model.CARDS[target.name].units
    steps = ceil(keys_looked_at(problem, config.rows) / config.splits / config.keys)
    scores, columns = config.rows * config.keys, config.depth + config.slice
    products = 2 * scores * columns / model.rate(target, config.element, False, wgmma=True)
    weights = scores / (_CAPPED_WEIGHTS if problem.capped else _WEIGHTS)
    # Of two warpgroups one computes weights while the other multiplies; three hide what is left.
    step = products + weights if config.groups == 1 else max(products, weights) + (_APART if config.groups == 2 else 0)
    step = max(step, config.resident * config.keys * columns * problem.stored.itemsize / model.TILE_BYTES)
    if config.narrow_stages:
        step = max(step, config.keys * columns / _WIDENED)
    if config.last_splits == 1:
        return ceil(work / (units * config.resident)) * (steps * step + _TILE)
    last = ceil(steps / config.last_splits) * step + _TILE + _COMBINE
    return work // units * (steps * step + _TILE) + last


def _waiting(problem: AttentionProblem, config: WarpgroupConfig, target: arch.Target) -> float:
    """Cycles where few rows' blocks are fewer than units: their tiles of keys, one after the other, or as fast as memory
    has them all."""
    keys = keys_looked_at(problem, problem.sq)
    splits, share = dealt_keys(problem, keys, config.splits, config.keys)
    row_bytes = (config.depth + config.slice) * problem.stored.itemsize
    tile_bytes = config.keys * row_bytes
    tiles = ceil(min(share, keys) / config.keys) * (_ONE_TILE + tile_bytes / _ALONE_BYTES) + tile_bytes / _FIRST_BYTES
    read = problem.batch * problem.heads // problem.group * keys * row_bytes
    parts = _PARTS + (splits - 1) // 8 * _MORE_PARTS if splits > 1 else 0
    return model.beside_memory(target, tiles, read / _REACHED) + parts


def tiles_of(problem: AttentionProblem, config: WarpgroupConfig) -> int:
    """Of a head, or of those that are packed."""
    return ceil(problem.sq * config.packed / config.rows)


def work_of(problem: AttentionProblem, config: WarpgroupConfig) -> int:
    """Tiles of rows, of all heads."""
    return tiles_of(problem, config) * problem.heads // config.packed * problem.batch


def head_group(problem: AttentionProblem, config: WarpgroupConfig) -> int:
    """Heads, or groups that are packed, whose keys blocks go through before others'. What is dealt has as many of each
    sequence."""
    head_bytes = problem.skv * (problem.e + problem.ev) * problem.stored.itemsize / problem.group
    most = min(max(int(_KEPT_BYTES / head_bytes), problem.group), problem.heads * problem.batch) // config.packed
    if not config.balanced:
        return most
    heads = problem.heads // config.packed
    return max(count for count in range(1, max(most, 1) + 1) if heads % count == 0)


def dealt(problem: AttentionProblem, config: WarpgroupConfig) -> int:
    """The most entries of the list of tiles, were all sequences as long as the longest."""
    return work_of(problem, config) // head_group(problem, config) if config.balanced else 0


def split(problem: AttentionProblem, config: WarpgroupConfig, target: arch.Target) -> WarpgroupConfig:
    """With its keys split, where there are too few tiles of rows for the units otherwise."""
    units = model.CARDS[target.name].units
    if problem.invariant:
        return dataclasses.replace(config, **invariant.in_parts(problem, work_of(problem, config), units))
    most = keys_looked_at(problem, problem.sq) // (4 * config.keys)
    work = work_of(problem, config)
    if _leaves_idle(problem, config.packed, target):
        options = (dataclasses.replace(config, splits=splits) for splits in range(1, min(units // work, 64) + 1))
        return min(options, key=lambda one: _waiting(problem, one, target))
    splits, more = (min(most, units * blocks // work, 64) for blocks in (1, _room(problem, config, target)))
    # Where keys are looked up in pages, two blocks hide what each waits for; else a part costs more than it hides, unless
    # many units would be idle.
    gains = splits <= _FEW_SPLITS if problem.page_size else work * max(splits, 1) < _BUSY * units
    if gains:
        splits = more
    return dataclasses.replace(config, splits=splits) if splits > 1 else config


def split_last(problem: AttentionProblem, config: WarpgroupConfig, target: arch.Target) -> WarpgroupConfig:
    """With the keys of the last round's tiles split, where so few are left for it that this saves time. Tiles are alike:
    under a causal mask the last ones are short. Where units do little but multiply, the card's power bounds them, and what
    some do not take the others do: 4 x 17 heads of 2048, a round of 32 tiles after eight whole ones, took 250 µs, 260 so.
    """
    if problem.causal or problem.windowed or problem.sequences or problem.block_q or problem.invariant:
        return config
    if not (problem.capped or problem.modified) or config.splits > 1 or config.packed > 1:
        return config
    units, work = model.CARDS[target.name].units, work_of(problem, config)
    if work < units or work % units == 0:
        return config
    splits = min(units // (work % units), problem.skv // (4 * config.keys))
    found = dataclasses.replace(config, last_splits=max(splits, 1))
    return min(config, found, key=lambda one: cost(problem, one, target))


def tiles_split(problem: AttentionProblem, config: WarpgroupConfig, target: arch.Target) -> int:
    """Tiles of rows whose keys are split."""
    work = work_of(problem, config)
    if config.last_splits > 1:
        return work % model.CARDS[target.name].units
    return work if config.splits > 1 else 0


def hidden(problem: AttentionProblem, config: WarpgroupConfig) -> Hidden:
    """What bits of a bool mask hide; else its bytes do."""
    alone = not (problem.scored or problem.sequences or problem.block_q or problem.is_scaled)
    if problem.mask != torch.bool or not alone or _has_few_rows(config) or mask_words.COLUMNS % config.keys != 0:
        return Hidden.NONE
    if problem.key_mask:
        return Hidden.KEYS
    return Hidden.PAIRS if problem.sq >= _GROUP_ROWS else Hidden.NONE


def _has_few_rows(config: WarpgroupConfig) -> bool:
    """Which wait for memory, whatever is made of a mask."""
    return config.packed > 1 or config.splits > 1


def reads_pairs(problem: AttentionProblem, config: WarpgroupConfig) -> bool:
    """Whether a mask's numbers come before the scores, by pairs."""
    return problem.mask_vec > 1 and not problem.scored and config.groups < 3 and not _has_few_rows(config)


def maps_result(problem: AttentionProblem, config: WarpgroupConfig) -> bool:
    """Whether the copy engine takes the results away, by way of where the queries lay."""
    fits = config.slice <= config.depth or problem.is_scaled  # places are made as large as is needed
    return config.splits == config.packed == 1 and problem.out_vec == 8 and fits


def part_lines(problem: AttentionProblem, config: WarpgroupConfig) -> int:
    """Of a tile of keys, that the copy engine brings at once: those of a page; of few rows few, so that nothing is read
    beyond a sequence's last key."""
    if problem.sequences and config.groups == 1:
        return gcd(config.keys, _PART)
    return gcd(config.keys, problem.page_size)


def fills_rest(problem: AttentionProblem, config: WarpgroupConfig) -> bool:
    """Whether waves of the kernel that have nothing else to do write what no packed sequence has."""
    idle = config.groups == 1 and not config.narrow_stages  # of more warpgroups they have too few registers
    return bool(problem.sequences) and idle and not config.balanced and config.splits == 1


def unlisted(problem: AttentionProblem, config: WarpgroupConfig, blocks: int) -> int:
    """Sequences that blocks begin with, before there is a list of others: where none has more than one tile of a head."""
    starts = config.balanced and tiles_of(problem, config) == 1
    return blocks // (problem.heads // config.packed) if starts else 0


def _with_blocks(problem: AttentionProblem, config: WarpgroupConfig) -> AttentionProblem:
    """With the block mask that a kernel before finds in a mask."""
    return mask_words.blocked(problem, hidden(problem, config), config.rows)


def source(problem: AttentionProblem, config: WarpgroupConfig, target: arch.Target) -> str:
    rules = _with_blocks(problem, config)
    numbers = {
        "kGroups": config.groups,
        "kTilesM": 1,
        "kPackedHeads": config.packed,
        "kKeys": config.keys,
        "kColumns": problem.e,
        "kDepth": config.depth,
        "kSlice": config.slice,
        "kStages": config.stages,
        "kQueryStages": config.query_stages,
        "kNarrowStages": config.narrow_stages,
        "kPartLines": part_lines(problem, config),
        "kOutVec": problem.out_vec,
        **occupancy_constants(target, config.resident, config.threads // target.wave, shared_bytes(problem, config)),
        "kThreads": config.threads,
        "kSharedBytes": shared_bytes(problem, config),
    }
    flags = {
        "kSplit": config.splits > 1,
        "kSplitsLast": config.last_splits > 1,
        "kBalanced": config.balanced,
        "kFillsRest": fills_rest(problem, config),
        "kBackward": False,
        "kCausal": problem.causal,
        "kMappedOut": maps_result(problem, config),
        "kMaskInPairs": reads_pairs(problem, config),
        **({"kStandsAlone": True, "kFolds": config.folds} if problem.invariant else {}),
    }
    hides = hidden(problem, config)
    mask = problem.mask if hides is Hidden.NONE else None
    members = [
        *aliases({"Element": CPP[problem.dtype], "Mask": CPP[mask], "Rules": rules_type(rules)}),
        *constants("int", numbers),
        *constants("bool", flags),
        *constants("wmma::Hidden", {"kHidden": hides.value}),
    ]
    before = rules_header(rules) + mask_words.HEADER
    if config.keys not in _WIDTHS:
        before += wgmma_of_width(config.keys)
    files = ("wmma/attention/loops/warpgroup.hpp", "attention.hip")
    return kernel_text(*files, members=members, before=before, kernel="wmma::WarpgroupAttention<Config>")


def plan(problem: AttentionProblem, target: arch.Target) -> Plan | None:
    """None where waves by themselves are to do it."""
    found = candidates(problem, target)
    if not found:
        return None
    reason = invariant.reason(problem, found[0].keys) if problem.invariant else "the least modelled cycles"
    return plan_of(problem, found[0], target, reason)


def plan_of(problem: AttentionProblem, config: WarpgroupConfig, target: arch.Target, reason: str) -> Plan:
    """The launches of one configuration. Blocks walk through the tiles."""
    tiles, units = tiles_of(problem, config), model.CARDS[target.name].units
    keys = keys_looked_at(problem, problem.sq)
    splits, keys_of_split = dealt_keys(problem, keys, max(config.splits, config.last_splits), config.keys)
    parted = tiles_split(problem, config, target)
    whole = work_of(problem, config) - parted
    work = whole + parted * splits
    shared = shared_bytes(problem, config)
    kernel = source(problem, config, target)
    workspace, dealing = 0, None
    blocks = min(work, units * config.resident)
    if config.balanced:
        workspace = fill.listed_bytes(dealt(problem, config))
        dealing = {"kTileRows": config.rows, "kPackedHeads": config.packed}
    if config.folds:
        workspace = blocks * config.groups * _GROUP_ROWS * config.slice * 4
    before = fill.launches(problem, dealing) if config.splits == 1 and not fills_rest(problem, config) else ()
    if problem.is_scaled:
        before = (transpose.launch(problem),)
    launches = [
        *before,
        KernelLaunch("attention", kernel, (blocks, 1), config.threads, shared, early=bool(before)),
    ]
    if config.splits > 1:
        workspace = combine.workspace(problem, splits)
        launches.append(combine.launch(problem, target))
    elif parted:
        workspace = combine.workspace(problem, splits, parted * config.rows)
        launches.append(combine.launch(problem, target, parted, config.rows))
    transposed, transposed_at = 0, 0
    if problem.is_scaled:
        transposed, transposed_at = transpose.keys(problem), up(workspace, _LINE_BYTES)
        workspace = transposed_at + transpose.workspace(problem)
    lines_out = 16 if maps_result(problem, config) else 0
    queries = _GROUP_ROWS // config.packed  # of a box; of keys and values it has as many as lie in a page together
    numbers = AttentionNumbers(
        splits,
        keys_of_split,
        tiles,
        1,
        queries,
        config.packed,
        part_lines(problem, config),
        lines_out,
        head_group(problem, config),
        whole,
        transposed=transposed,
        transposed_at=transposed_at,
        lines_v=config.slice if problem.is_scaled else 0,
        unlisted=unlisted(problem, config, blocks),
    )
    made = Plan(config, f"{reason}; {work} tiles on {units} units", tuple(launches), workspace, numbers)
    return mask_words.with_kernel(made, _with_blocks(problem, config), hidden(problem, config))
