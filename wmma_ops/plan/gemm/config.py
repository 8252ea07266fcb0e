"""The kernels that a product may take: what they are made of, and which fit a target. Nothing here knows a shape by name."""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod, sqrt

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import BARRIER_BYTES, can_map, goes_by_panels, step_of, tile_bytes
from wmma_ops.ops.types import FP8
from wmma_ops.ops.types import name as type_name
from wmma_ops.plan import model
from wmma_ops.plan.plan import MOST_THREADS_X
from wmma_ops.plan.problem import GemmProblem

WIDTHS = (32, 64, 128, 192, 256)  # of warpgroups' tiles; others where these leave units idle
_TILES = (*itertools.product((64, 128, 256), WIDTHS), (192, 64), (192, 128), (192, 192))
_LEAST_STAGES, _MOST_STAGES = 4, 6  # of warpgroups: of 4,000 timings on an H200, none was helped by more
_SUMS_BESIDE_ONE_ASKER = {8: 70, 12: 70, 16: 52}  # of a lane that has 168 registers, 128, or 96; by waves
_LARGEST_BESIDE_WARPGROUPS = 64 * 128  # tile of waves by themselves: of the same timings, no larger one was the fastest
_MEDIUM = 2  # of GemmProblem.precision; "high" asks for more than bfloat16 has, and gets float32


@dataclass(frozen=True)
class GemmConfig:
    """One kernel. Sizes are in elements."""

    element: torch.dtype  # what the matrix unit multiplies
    lanes: bool  # plain FMA in place of a matrix instruction
    side: int  # of the matrix instruction, where the target has two
    block_m: int
    block_n: int
    block_k: int
    waves_m: int
    waves_n: int
    waves_k: int  # waves that share a tile of the result and split each step's K
    stages: int  # tiles in flight by asynchronous copies; 0: by way of registers, two tiles in shared memory
    splits: int  # blocks that share a tile of the result and split K, their sums added up by a second kernel
    cluster: int  # neighbouring blocks that share a tile and split K, their sums added up from shared memory
    occupancy: int  # waves at once on a SIMD that registers are kept for (NVIDIA: blocks on an SM)
    group: int  # tile rows that neighbouring blocks walk down
    dies: int
    last: int = 1  # blocks that share each tile of the last round, which leaves units without one, and split its K
    wgmma: bool = False  # four waves multiply 64 rows together, straight from shared memory
    share: int = 1  # neighbouring blocks down that take the same tiles of B, each bringing a part of them to all
    share_a: int = 1  # the same of A, side by side
    walks: bool = False  # blocks stay and go from tile to tile: the next one's operands come while a result leaves
    direct: bool = False  # waves share K and bring their steps straight to registers, `stages` of them in flight

    def but(self, **changes) -> "GemmConfig":
        """The same but for these. As dataclasses.replace; a plan asks for hundreds."""
        made = object.__new__(GemmConfig)
        made.__dict__.update(self.__dict__, **changes)
        return made

    @property
    def waves(self) -> int:
        return self.waves_m * self.waves_n * self.waves_k

    @property
    def all_waves(self) -> int:
        """Of warpgroups, one more wave asks for tiles; or four do, where sums would leave the others too few registers."""
        if not self.wgmma:
            return self.waves
        sums = self.block_m * self.block_n // (self.waves * 32) * (2 if self.element in FP8 else 1)
        return self.waves + (4 if sums > _SUMS_BESIDE_ONE_ASKER.get(self.waves, sums) else 1)

    @property
    def has_own_width(self) -> bool:
        """Whether the tile's width was made for the problem, to leave few units idle."""
        return self.wgmma and self.block_n not in WIDTHS

    @property
    def sum_bytes(self) -> int:
        """Of an accumulator."""
        return 8 if self.element == torch.float64 else 4

    def tiles(self, problem: GemmProblem) -> tuple[int, int]:
        """How many tiles the result has down and across: as many as blocks that share come together."""
        down, across = ceil(problem.m / self.block_m), ceil(problem.n / self.block_n)
        return ceil(down / self.share) * self.share, ceil(across / self.share_a) * self.share_a

    def length(self, problem: GemmProblem) -> int:
        """What is summed up: K, and behind its last step, where there is a second pair, K2."""
        return ceil(problem.k / self.block_k) * self.block_k + problem.k2 if problem.k2 else problem.k

    def __str__(self) -> str:
        kind = "FMA" if self.lanes else type_name(self.element) + (" by warpgroups" if self.wgmma else "")
        stages = f"{self.stages} stages" if self.stages else "2 buffers"
        if self.direct:
            stages = f"{self.stages} steps straight to registers"
        split = f", K split {self.splits} ways" if self.splits > 1 else ""
        split += f", clusters of {self.cluster}" if self.cluster > 1 else ""
        split += f", B shared by {self.share}" if self.share > 1 else ""
        split += f", A shared by {self.share_a}" if self.share_a > 1 else ""
        split += ", walking" if self.walks else ""
        split += f", K of the last round split {self.last} ways" if self.last > 1 else ""
        return (
            f"{kind} {self.block_m}x{self.block_n}x{self.block_k}, {self.waves_m}x{self.waves_n}x{self.waves_k} waves, "
            f"{stages}{split}"
        )


# --------------------------------------------------------------------------------------------- what the hardware offers


def element_of(problem: GemmProblem, target: arch.Target) -> tuple[torch.dtype, bool, str]:
    """The type that is multiplied, whether by plain FMA, and why it is not the operands' own."""
    a, b = problem.a, problem.b
    name = type_name(a)
    native = any((row.a, row.b, row.blocks) == (name, name, 1) for row in target.instructions)
    if a in FP8:
        if native and (a == b or _has_warpgroups(problem, target)):
            return a, False, ""
        return torch.float16, False, f"{target.name} has no {name} product of this pair: f16 holds every value exactly"
    if a == torch.float32 and problem.precision == _MEDIUM:
        return torch.bfloat16, False, "torch's float32 matmul precision is medium: bfloat16 products, float32 sums"
    if native:
        return a, False, ""
    return a, True, f"{target.name} has no {name} matrix instruction"


def number_of(problem: GemmProblem) -> str:
    """The type that the prologue and the epilogue compute in: every int32 is exact in a double."""
    exact = problem.a == torch.int8 and problem.d in (torch.int8, torch.int32)
    return "double" if exact or problem.a == torch.float64 else "float"


def _goes_as_it_is(problem: GemmProblem) -> bool:
    """Whether 16-byte chunks can go to shared memory unchanged, for operands of one size."""
    size = problem.a.itemsize
    plain = problem.a_scale is None and problem.a_activation == 0
    for pair in problem.pairs:
        whole = min(pair.a_vec, pair.b_vec) * size == 16
        along = pair.a_order == pair.b_order == "k"
        if not (plain and whole and (size == 2 or (along and size == 1))):
            return False
    return True


def _pairs_are_alike(problem: GemmProblem) -> bool:
    """Whether the tiles of the second pair, if there is one, lie as those of the first."""
    first, *second = problem.pairs
    return all((first.a_order, first.b_order) == (pair.a_order, pair.b_order) for pair in second)


def _has_warpgroups(problem: GemmProblem, target: arch.Target) -> bool:
    """Whether the copy engine of sm_90 can fill the tiles, and a launch has them all: warpgroups multiply what it brings."""
    counted = can_map(problem.batch_dims, problem.m, problem.n, problem.k, problem.k2)
    if target.name != "sm_90a" or not counted or problem.k == 0 or not _goes_as_it_is(problem):
        return False
    if not _pairs_are_alike(problem):
        return False
    return any(True for _ in _wgmma_candidates(problem, target, problem.a))


def _is_async(problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool) -> bool:
    """Whether asynchronous copies can fill the tiles."""
    return target.vendor == "nvidia" and not lanes and problem.a == element and _goes_as_it_is(problem)


def maps_result(problem: GemmProblem, config: GemmConfig) -> bool:
    """Whether the copy engine takes the result away: of 16 bits, as is all that is read for each of its elements."""
    if not config.wgmma or config.block_n < 64 or not config.cluster == config.splits == config.last == 1:
        return False
    operands = ((problem.d, problem.d_vec), (problem.c, problem.c_vec), (problem.multiply, problem.multiply_vec))
    return number_of(problem) == "float" and all(goes_by_panels(*x) for x in operands)


@functools.cache
def _most_of(count: int, most: int) -> int:
    """The largest part of so many that divides them."""
    return max(part for part in range(1, most + 1) if count % part == 0)


def shared_bytes(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> int:
    """Dynamic shared memory: the tiles; the slabs in which waves turn their sums around, where the tiles lay or, of blocks
    that walk, beside them; barriers."""
    if config.direct:
        return config.waves * config.block_m * (config.block_n + 4) * config.sum_bytes
    step = step_of(target, config.element, config.lanes, config.side)

    def bytes_of(pair: GemmProblem) -> int:
        total = 0
        for edge, order in ((config.block_m, pair.a_order), (config.block_n, pair.b_order)):
            # Lines of K, or, copied as they are, along M or N.
            lines, length = (edge, config.block_k) if not config.stages or order == "k" else (config.block_k, edge)
            total += tile_bytes(target, lines, length, config.element.itemsize)
        return total

    tile = max(map(bytes_of, problem.pairs))
    size = config.sum_bytes
    across = config.block_n // config.waves_n // step.cols
    most = min(across, min(64, 1024 // step.rows) // step.cols)
    columns = _most_of(across, most) * step.cols
    slab = step.rows * (columns + 16 // size) * size
    if config.waves_k * config.cluster > 1:  # all of a wave's slabs lie there at once
        slab *= config.block_m // config.waves_m // step.rows * (across * step.cols // columns)
    if maps_result(problem, config):
        slab = 2 * 16 * 128  # two panels of a wave's rows
    elif config.walks:
        slab = 16 * (min(config.block_n, 32) + 4) * 4  # sums
    barriers = 2 * BARRIER_BYTES * config.stages if config.wgmma else 0
    tiles, slabs = (config.stages or 2) * tile, config.waves * slab
    return (tiles + slabs if config.walks else max(tiles, slabs)) + barriers


# ----------------------------------------------------------------------------------------------------------- candidates


def candidates(problem: GemmProblem, target: arch.Target) -> Iterator[GemmConfig]:
    """Every configuration that fits, but for the split of K."""
    element, lanes, _ = element_of(problem, target)
    asynchronous = _is_async(problem, target, element, lanes)
    by_warpgroups = asynchronous and _has_warpgroups(problem, target)
    if by_warpgroups:
        yield from _wgmma_candidates(problem, target, element)
    few = problem.m <= 16 and all(pair.a_order == "k" for pair in problem.pairs)
    if asynchronous and few and not problem.wide and element == problem.b:
        yield from _direct_candidates(problem, target, element)
    if element in FP8 and problem.a != problem.b:
        return  # waves by themselves multiply equal types
    size, dies = element.itemsize, model.CARDS[target.name].dies
    wide = target.lds_bytes > 65536 and not lanes
    line = 128 if wide else 64  # bytes of K that a step takes
    most_sums = _most_sums(problem, target, element, lanes, asynchronous)
    edges = (16, 32, 64, 128, 256)
    edges_n = (16, 32, 64, 96, 112, 128, 192, 256) if asynchronous else edges
    least = step_of(target, element, lanes, 16)
    least_m, least_n = max(least.rows, edges[0]), max(least.cols, edges[0])
    for block_m in edges:
        for block_n in edges_n:
            if by_warpgroups and block_m * block_n > _LARGEST_BESIDE_WARPGROUPS:
                continue
            # Half of a tile that is all beyond the result's edge is of no use, unless the hardware has no smaller one.
            if block_m // 2 >= max(problem.m, least_m // 2 + 1) or block_n // 2 >= max(problem.n, least_n // 2 + 1):
                continue
            for waves_m, waves_n, waves_k in _wave_grids(block_m, block_n, asynchronous):
                wave_m, wave_n = block_m // waves_m, block_n // waves_n
                for side in (32, 16) if target.family == "cdna" and size < 8 and not lanes else (16,):
                    step = step_of(target, element, lanes, side)
                    sums = wave_m * wave_n // target.wave * (2 if size == 8 else 1)
                    if wave_m % step.rows or wave_n % step.cols or sums > most_sums:
                        continue
                    block_k = max(line // size, step.depth) * waves_k
                    waves = waves_m * waves_n * waves_k
                    for stages in (3, 4, 6) if asynchronous else (0,):
                        occupancy = 1 if target.vendor == "nvidia" else max(waves // target.simds, 1)
                        config = GemmConfig(
                            element, lanes, side, block_m, block_n, block_k, waves_m, waves_n, waves_k, stages, 1,
                            1, occupancy, 8, dies,
                        )  # fmt: skip
                        if shared_bytes(problem, config, target) <= target.lds_bytes:
                            yield config
                    break


def _wgmma_candidates(problem: GemmProblem, target: arch.Target, element: torch.dtype) -> Iterator[GemmConfig]:
    """Warpgroups one below the other, each with 64 rows of all columns."""
    own = [(block_m, width) for block_m in (64, 128) for width in _even_widths(problem, block_m, target)]
    for block_m, block_n in (*_TILES, *own):
        beyond = (block_m > 64 and block_m // 2 >= problem.m) or (block_n > 32 and block_n // 2 >= problem.n)
        in_panels = problem.b_order == "k" or block_n % 64 == 0
        if beyond or not in_panels or not _holds_sums(problem, element, block_m, block_n):
            continue
        # Sums of fp8 are short-lived in the matrix unit: a line at a time.
        for line in (128,) if element in FP8 else (128, 256):
            config = GemmConfig(
                element, False, 16, block_m, block_n, line // element.itemsize, block_m // 16, 1, 1, _MOST_STAGES,
                1, 1, 1, _rows_together(block_m, block_n, target) if problem.m > block_m else 0, 1, wgmma=True,
            )  # fmt: skip
            # All of the batch stands along x; whole groups of blocks that share are less than four times as many.
            threads = 4 * prod(config.tiles(problem)) * problem.batch * config.all_waves * target.wave
            if threads <= MOST_THREADS_X and (not config.has_own_width or maps_result(problem, config)):
                yield from _filled(problem, config, target)


def _rows_together(block_m: int, block_n: int, target: arch.Target) -> int:
    """Tile rows that blocks walk down, so that those that run together cover about as many rows as columns: they read the
    least then. By fours, as blocks may share."""
    return 4 * max(1, round(sqrt(model.CARDS[target.name].units * block_n / block_m) / 4))


def _holds_sums(problem: GemmProblem, element: torch.dtype, block_m: int, block_n: int) -> bool:
    """Whether warpgroups' registers hold a tile's sums, and what stands beside them."""
    area = block_m * block_n
    if element in FP8:  # parts of sums, too
        return area <= 192 * 128 and block_n <= 192 and block_m != 192
    beside = sum(x is not None for x in (problem.c, problem.multiply))
    if block_m == 192 and (beside or problem.k2):
        return block_n < 128 and beside < 2
    return area <= (192 * 192, 256 * 128, 192 * 128)[beside]


def _even_widths(problem: GemmProblem, block_m: int, target: arch.Target) -> list[int]:
    """Of tiles that leave few units idle in the last round: as wide as can be, and for a round more; those also that two
    blocks can share. Across K they would start within a line: slower than what they spare."""
    if problem.multiply is not None or problem.b_order != "k":  # too few registers for the one
        return []
    units, down = model.CARDS[target.name].units, ceil(problem.m / block_m) * problem.batch
    first = ceil(down * ceil(problem.n / 256) / units)
    found = set()
    for rounds in (first, first + 1):
        least = ceil(problem.n / (rounds * units // down))
        # The instruction has them in steps of 8 columns, or of 16.
        found |= {ceil(least / step) * step for step in ((16,) if problem.a == torch.int8 else (8, 16))}
    return sorted(width for width in found if 64 < width < 256 and width not in WIDTHS)


def _filled(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> Iterator[GemmConfig]:
    """The configuration with as many stages as shared memory holds, if that are enough."""
    least = _LEAST_STAGES - (config.block_m * config.block_n == 192 * 192)  # of as many bytes as four of others
    for stages in range(config.stages, least - 1, -1):
        fewer = config.but(stages=stages)
        if shared_bytes(problem, fewer, target) <= target.lds_bytes:
            yield fewer
            return


def _direct_candidates(problem: GemmProblem, target: arch.Target, element: torch.dtype) -> Iterator[GemmConfig]:
    """Where all the work is to read B: a single row of tiles."""
    rows = 8 if problem.m <= 8 else 16
    for waves, stages in ((4, 4), (8, 3), (16, 2)):  # as much on its way as registers hold
        yield GemmConfig(
            element, False, 16, rows, 32, waves * 64 // element.itemsize, 1, 1, waves, stages, 1, 1, 1, 0, 1,
            direct=True,
        )  # fmt: skip


def _most_sums(problem: GemmProblem, target: arch.Target, element, lanes: bool, asynchronous: bool) -> int:
    """Registers of a lane for sums, so that what else it holds fits beside them: half as many for each of these."""
    converts = element not in (problem.a, problem.b)
    halves = (
        lanes,  # four lines of each operand
        element.itemsize == 8,
        converts,
        converts and target.family == "rdna3",  # both halves of the wave hold operands
        number_of(problem) == "double" and element.itemsize == 1 and target.wave == 32,
        target.vendor == "nvidia" and not asynchronous,  # the next tile
    )
    return max(128 >> sum(halves), 16)


def _wave_grids(block_m: int, block_n: int, crowd: bool) -> Iterator[tuple[int, int, int]]:
    """Four waves a block, eight for large ones and, where `crowd`, for others too; where the tile is too small for them
    they split K."""
    area = block_m * block_n
    for waves in (8,) if area >= 256 * 128 else (4, 8) if crowd and area >= 64 * 64 else (4,):
        for waves_k in (1, 2, 4):
            for waves_m in (1, 2, 4):
                waves_n = waves // waves_k // waves_m
                if waves_n >= 1 and block_n % waves_n == 0 and (waves_k == 1 or area <= 64 * 64):
                    yield waves_m, waves_n, waves_k


def _sharing(problem: GemmProblem, config: GemmConfig) -> Iterator[GemmConfig]:
    down, across = ceil(problem.m / config.block_m), ceil(problem.n / config.block_n)
    for share, share_a in ((2, 1), (4, 1), (1, 2), (1, 4), (2, 2), (4, 2), (2, 4)):
        apart = config.has_own_width and (
            share_a > 1 or config.block_n % (8 * share)
        )  # B's parts are whole eight lines
        if share <= down and share_a <= across and not apart:
            group = config.group if share_a == 1 or config.group == 0 else share
            yield config.but(share=share, share_a=share_a, group=group)


def last_round(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> int:
    """How many tiles remain when every unit has had as many others."""
    return prod(config.tiles(problem)) % model.CARDS[target.name].units


def splits_of(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> Iterator[GemmConfig]:
    """The configuration with K whole, and split where there are few tiles and enough of K; and with tiles shared."""
    yield config
    k_tiles = ceil(config.length(problem) / config.block_k)
    tiles = prod(config.tiles(problem)) * problem.batch
    units = model.CARDS[target.name].units
    if (
        not config.has_own_width
        and problem.batch == 1
        and tiles > units
        and (rest := last_round(problem, config, target))
    ):
        last = min(units // rest, k_tiles // 4, 8)
        if last > 1:
            yield config.but(last=last)
    if config.wgmma:
        shared = [config, *_sharing(problem, config)]
        yield from shared[1:]
        for x in shared:
            if x.share * x.share_a <= 2 and prod(x.tiles(problem)) * problem.batch > units:
                yield from _filled(problem, x.but(walks=True), target)
    if config.has_own_width:
        return
    if target.family == "sm90":
        for cluster in (2, 4, 8):
            if cluster * 2 <= k_tiles and tiles * cluster <= 2 * units:
                yield config.but(cluster=cluster)
    for splits in (2, 3, 4, 6, 8, 12, 16, 24, 32):
        if splits * 4 > k_tiles or tiles * splits > 2 * units:
            return
        yield config.but(splits=splits)
