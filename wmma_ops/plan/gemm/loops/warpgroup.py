"""kernels/wmma/gemm/warpgroup.hpp: sm_90a's warpgroups, which multiply what the copy engine brings to shared memory."""

import itertools
from collections.abc import Iterator
from math import ceil, prod, sqrt

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import BARRIER_BYTES, can_map, goes_by_boxes, mapped_lines, shared_rate
from wmma_ops.ops.types import FP8, bytes_of, elements_in
from wmma_ops.plan import model
from wmma_ops.plan.gemm.config import GemmConfig, goes_as_it_is, number_of
from wmma_ops.plan.gemm.loop import Loop
from wmma_ops.plan.gemm.tile_order import TileOrder
from wmma_ops.plan.gemm.tiled import operand_bytes, slab_bytes
from wmma_ops.plan.plan import MOST_THREADS_X
from wmma_ops.plan.problem import GemmProblem
from wmma_ops.plan.source import wgmma_of_width

WIDTHS = (32, 64, 128, 192, 256)  # of tiles; others where these leave units idle
_TILES = (*itertools.product((64, 128, 256), WIDTHS), (192, 64), (192, 128), (192, 192))
_LEAST_STAGES, _MOST_STAGES = 4, 6  # of 4,000 timings on an H200, none was helped by more
_SUMS_BESIDE_ONE_ASKER = {8: 70, 12: 70, 16: 52}  # of a lane that has 168 registers, 128, or 96; by waves

_WAY = model.Way(3200, 9, 0.06, 0.11, share=0.018, tile_bytes=87, cluster=3900, last=3650, apart=3, fades=8)
_TOGETHER = 0.785  # of what the matrix unit's reads and the copy engine's writes would take one after the other
_READ_AGAIN = 0.24  # of B, where blocks take the same tiles without sharing them: some come too late for the L2 cache
_ONES_BYTES = 256  # by which the rows of A are multiplied that are to be summed up
_KEPT_BYTES = 3 << 20  # of B, that the next blocks down find in the L2 cache


class Warpgroup(Loop):
    name = "warpgroup"
    tag = "Warpgroup"
    pairs = True
    zeros_cost = 1

    # ------------------------------------------------------------------------------------------------- what it takes

    def takes(self, problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool) -> bool:
        """Where the copy engine can fill the tiles, and a launch has them all."""
        counted = can_map(problem.batch_dims, problem.m, problem.n, problem.k, problem.k2)
        if target.name != "sm_90a" or not counted or problem.k == 0 or not goes_as_it_is(problem):
            return False
        if lanes or element != problem.a or not _pairs_are_alike(problem):
            return False
        return any(True for _ in self.candidates(problem, target, element, lanes, frozenset()))

    def candidates(
        self, problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool, beside: frozenset[str]
    ) -> Iterator[GemmConfig]:
        """Warpgroups one below the other, each with 64 rows of all columns."""
        own = [(block_m, width) for block_m in (64, 128) for width in _even_widths(problem, block_m, target)]
        for block_m, block_n in (*_TILES, *own):
            beyond_n = block_n > 32 and block_n // 2 >= problem.columns
            beyond = (block_m > 64 and block_m // 2 >= problem.m) or beyond_n
            in_boxes = problem.b_order == "k" or (block_n % 64 == 0 and not problem.gate)
            if beyond or not in_boxes or not _holds_sums(problem, element, block_m, block_n):
                continue
            group = _rows_of_a_group(block_m, block_n, target) if problem.m > block_m else 0
            # Sums of fp8 are short-lived in the matrix unit: a line at a time.
            for line in (128,) if element in FP8 else (128, 256):
                config = GemmConfig(
                    self.name, element, False, 16, block_m, block_n, elements_in(element, line), block_m // 16, 1, 1,
                    _MOST_STAGES, 1, TileOrder(group, along_x=True), gated=problem.gate,
                    askers=_askers(element, block_m, block_n),
                )  # fmt: skip
                # All of the batch stands along x; whole groups of blocks that share are less than four times as many.
                threads = 4 * prod(config.tiles(problem)) * problem.batch * config.all_waves * target.wave
                mapped = not (has_own_width(config) or config.gated) or self.maps_result(problem, config)
                if threads <= MOST_THREADS_X and mapped:
                    yield from self._filled(problem, config, target)

    def _filled(self, problem: GemmProblem, config: GemmConfig, target: arch.Target) -> Iterator[GemmConfig]:
        """The configuration with as many stages as shared memory holds, if that are enough."""
        least = _LEAST_STAGES - (config.block_m * config.block_n == 192 * 192)  # of as many bytes as four of others
        for stages in range(config.stages, least - 1, -1):
            fewer = config.but(stages=stages)
            if self.shared_bytes(problem, fewer, target) <= target.lds_bytes:
                yield fewer
                return

    def variants(self, problem: GemmProblem, config: GemmConfig, target: arch.Target) -> Iterator[GemmConfig]:
        """Blocks that share tiles, and persistent ones."""
        shared = [config, *_sharing(problem, config)]
        yield from shared[1:]
        units = model.CARDS[target.name].units
        for x in shared:
            if x.order.neighbours <= 2 and prod(x.tiles(problem)) * problem.batch > units:
                goes_on = x.ordered(persistent=True)
                yield from self._filled(problem, goes_on, target)
                if _may_ping_pong(goes_on):
                    turns = goes_on.but(ping_pong=True, askers=4, stages=_MOST_STAGES)
                    yield from self._filled(problem, turns, target)

    def splits(self, config: GemmConfig) -> bool:
        return not has_own_width(config)

    # --------------------------------------------------------------------------------- what it asks of the hardware

    def shared_bytes(self, problem: GemmProblem, config: GemmConfig, target: arch.Target) -> int:
        """The tiles; the slabs in which waves transpose their sums, where the tiles lay or, of persistent blocks, beside
        them; barriers."""
        tile = max(sum(operand_bytes(pair, config, target, lambda order: order == "k")) for pair in problem.pairs)
        if self.maps_result(problem, config):
            slab = 2 * 16 * 128  # two boxes of a wave's rows
        elif config.order.persistent:
            slab = 16 * (min(config.block_n, 32) + 4) * 4  # sums
        else:
            slab = slab_bytes(config, target)
        barriers = 2 * BARRIER_BYTES * config.stages + (_ONES_BYTES if self.sums_rows(problem) else 0)
        tiles, slabs = config.stages * tile, config.waves * slab
        return (tiles + slabs if config.order.persistent else max(tiles, slabs)) + barriers

    def sums_rows(self, problem: GemmProblem) -> bool:
        one = not (problem.batch_dims or problem.k2 or problem.gate)
        return problem.row_sums is not None and one and problem.a in (torch.float16, torch.bfloat16)

    def maps_result(self, problem: GemmProblem, config: GemmConfig) -> bool:
        """Of 16 bits, as is all that is read for each of its elements."""
        if config.columns < 64 or not config.order.has_whole_tiles:
            return False
        operands = ((problem.d, problem.d_vec), (problem.c, problem.c_vec), (problem.multiply, problem.multiply_vec))
        return number_of(problem) == "float" and all(goes_by_boxes(*x) for x in operands)

    def mapped_lines(self, problem: GemmProblem, config: GemmConfig) -> tuple[int, int, int]:
        a = mapped_lines(config.block_m, config.block_k, problem.a_order == "k") // config.order.share_a
        b = mapped_lines(config.columns, config.block_k, problem.b_order == "k") // config.order.share
        return a, b, 16 if self.maps_result(problem, config) else 0

    def flags(self, config: GemmConfig) -> dict[str, bool]:
        return {"kPingPong": config.ping_pong}

    def source_before(self, config: GemmConfig) -> str:
        return wgmma_of_width(config.block_n) if has_own_width(config) else ""

    # ------------------------------------------------------------------------------------------------ what it costs

    def way(self, target: arch.Target) -> model.Way:
        return _WAY

    def rate(self, config: GemmConfig, target: arch.Target) -> float:
        return model.rate(target, config.element, config.lanes, wgmma=True)

    def shared_cycles(self, config: GemmConfig, target: arch.Target) -> float:
        """Four waves read together."""
        lines = config.block_m + config.block_n + config.waves // 4 * (64 + config.block_n)
        return bytes_of(config.element, lines * config.block_k) / shared_rate(target) * _TOGETHER

    def times_b_is_read(self, problem: GemmProblem, config: GemmConfig, target: arch.Target) -> float:
        """For each group of rows that blocks go down, unless they all run at the same time."""
        down, across = config.tiles(problem)
        if bytes_of(problem.b, problem.columns * (problem.k + problem.k2)) > _KEPT_BYTES and config.order.group:
            times = min(ceil(down / config.order.group), ceil(down * across / model.CARDS[target.name].units))
            if times > 1:
                return times
        if down <= config.order.share:
            return 1
        return 1 + _READ_AGAIN * (3 if config.order.share_a > 1 else 1)  # then blocks go along rows


def _may_ping_pong(config: GemmConfig) -> bool:
    """Whether one warpgroup's registers hold all sums of a tile that is large enough."""
    return config.block_m == config.block_n == 128 and config.element not in FP8


def has_own_width(config: GemmConfig) -> bool:
    """Whether the tile's width was made for the problem, to leave few units idle."""
    return config.loop == LOOP.name and config.block_n not in WIDTHS


def _askers(element: torch.dtype, block_m: int, block_n: int) -> int:
    """One wave asks for tiles; or four do, where sums would leave the others too few registers."""
    waves = block_m // 16
    sums = block_m * block_n // (waves * 32) * (2 if element in FP8 else 1)
    return 4 if sums > _SUMS_BESIDE_ONE_ASKER.get(waves, sums) else 1


def _pairs_are_alike(problem: GemmProblem) -> bool:
    """Whether the tiles of the second pair, if there is one, lie as those of the first."""
    first, *second = problem.pairs
    return all((first.a_order, first.b_order) == (pair.a_order, pair.b_order) for pair in second)


def _rows_of_a_group(block_m: int, block_n: int, target: arch.Target) -> int:
    """Tile rows that blocks go down, so that those that run together cover about as many rows as columns: they read the
    least then. By fours, as blocks may share."""
    return 4 * max(1, round(sqrt(model.CARDS[target.name].units * block_n / block_m) / 4))


def _holds_sums(problem: GemmProblem, element: torch.dtype, block_m: int, block_n: int) -> bool:
    """Whether registers hold a tile's sums, and what stands beside them."""
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
    if problem.multiply is not None or problem.gate or problem.b_order != "k":  # too few registers for the one
        return []
    units, down = model.CARDS[target.name].units, ceil(problem.m / block_m) * problem.batch
    first = ceil(down * ceil(problem.n / 256) / units)
    found = set()
    for rounds in (first, first + 1):
        least = ceil(problem.n / (rounds * units // down))
        # The instruction has them in steps of 8 columns, or of 16.
        found |= {ceil(least / step) * step for step in ((16,) if problem.a == torch.int8 else (8, 16))}
    return sorted(width for width in found if 64 < width < 256 and width not in WIDTHS)


def _sharing(problem: GemmProblem, config: GemmConfig) -> Iterator[GemmConfig]:
    down, across = ceil(problem.m / config.block_m), ceil(problem.n / config.columns)
    for share, share_a in ((2, 1), (4, 1), (1, 2), (1, 4), (2, 2), (4, 2), (2, 4)):
        # B's parts are whole eight lines.
        apart = has_own_width(config) and (share_a > 1 or config.block_n % (8 * share))
        if share <= down and share_a <= across and not apart:
            group = config.order.group if share_a == 1 or config.order.group == 0 else share
            yield config.ordered(share=share, share_a=share_a, group=group)


LOOP = Warpgroup()
