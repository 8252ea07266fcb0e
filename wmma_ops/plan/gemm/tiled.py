"""What loops have in common whose waves multiply, each by itself, tiles that lie in shared memory."""

from collections.abc import Callable, Iterator

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import shared_rate, step_of, tile_bytes
from wmma_ops.ops.types import FP8, bits, bytes_of
from wmma_ops.plan import model
from wmma_ops.plan.gemm.config import GemmConfig, most_part, number_of
from wmma_ops.plan.gemm.loop import Loop
from wmma_ops.plan.gemm.tile_order import TileOrder
from wmma_ops.plan.problem import GemmProblem

_LARGEST_BESIDE_WARPGROUPS = 64 * 128  # tile: of 4,000 timings on an H200, no larger one was the fastest
_EDGES = (16, 32, 64, 128, 256)


class TiledLoop(Loop):
    pairs = True
    stages: tuple[int, ...]
    widths: tuple[int, ...] = _EDGES
    crowds = False  # whether eight waves may share a tile that four could have
    holds_next_tile = False  # in registers, which then have less room for sums

    def lines_along(self, order: str) -> bool:
        """Whether a tile's lines run along K, for an operand whose memory does or does not."""
        raise NotImplementedError

    def candidates(
        self, problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool, beside: frozenset[str]
    ) -> Iterator[GemmConfig]:
        if element in FP8 and problem.a != problem.b:
            return  # waves by themselves multiply equal types
        size, dies = bytes_of(element), model.CARDS[target.name].dies
        wide = target.lds_bytes > 65536 and not lanes
        line = 128 if wide else 64  # bytes of K that a step takes
        most_sums = self._most_sums(problem, target, element, lanes)
        least = step_of(target, element, lanes, 16)
        least_m, least_n = max(least.rows, _EDGES[0]), max(least.cols, _EDGES[0])
        for block_m in _EDGES:
            for block_n in self.widths:
                if "warpgroup" in beside and block_m * block_n > _LARGEST_BESIDE_WARPGROUPS:
                    continue
                # Half of a tile that is all beyond the result's edge is of no use, unless the hardware has no smaller one.
                if block_m // 2 >= max(problem.m, least_m // 2 + 1) or block_n // 2 >= max(
                    problem.columns, least_n // 2 + 1
                ):
                    continue
                for waves_m, waves_n, waves_k in self._wave_grids(block_m, block_n):
                    if problem.gate and waves_k > 1:
                        continue  # a wave has whole sums of both
                    wave_m, wave_n = block_m // waves_m, block_n // waves_n
                    for side in (32, 16) if target.family == "cdna" and size < 8 and not lanes else (16,):
                        step = step_of(target, element, lanes, side)
                        sums = wave_m * wave_n // target.wave * (2 if size == 8 else 1)
                        of_wave = step.cols * (2 if problem.gate else 1)  # whole products, of both matrices
                        if wave_m % step.rows or wave_n % of_wave or sums > most_sums:
                            continue
                        block_k = max(line // size, step.depth) * waves_k
                        waves = waves_m * waves_n * waves_k
                        occupancy = 1 if target.vendor == "nvidia" else max(waves // target.simds, 1)
                        for stages in self.stages:
                            config = GemmConfig(
                                self.name, element, lanes, side, block_m, block_n, block_k, waves_m, waves_n, waves_k,
                                stages, occupancy, TileOrder(8, dies), gated=problem.gate,
                            )  # fmt: skip
                            if self.shared_bytes(problem, config, target) <= target.lds_bytes:
                                yield config
                        break

    def _most_sums(self, problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool) -> int:
        """Registers of a lane for sums, so that what else it holds fits beside them: half as many for each of these."""
        converts = element not in (problem.a, problem.b)
        halves = (
            lanes,  # four lines of each operand
            bits(element) == 64,
            converts,
            converts and target.family == "rdna3",  # both halves of the wave hold operands
            number_of(problem) == "double" and bits(element) == 8 and target.wave == 32,
            target.vendor == "nvidia" and self.holds_next_tile,
        )
        return max(128 >> sum(halves), 16)

    def _wave_grids(self, block_m: int, block_n: int) -> Iterator[tuple[int, int, int]]:
        """Four waves a block, eight for large ones and, where they crowd, for others too; where the tile is too small for
        them they split K."""
        area = block_m * block_n
        for waves in (8,) if area >= 256 * 128 else (4, 8) if self.crowds and area >= 64 * 64 else (4,):
            for waves_k in (1, 2, 4):
                for waves_m in (1, 2, 4):
                    waves_n = waves // waves_k // waves_m
                    if waves_n >= 1 and block_n % waves_n == 0 and (waves_k == 1 or area <= 64 * 64):
                        yield waves_m, waves_n, waves_k

    def shared_bytes(self, problem: GemmProblem, config: GemmConfig, target: arch.Target) -> int:
        """The tiles, or the slabs in which waves turn their sums around, where the tiles lay."""
        tile = max(sum(operand_bytes(pair, config, target, self.lines_along)) for pair in problem.pairs)
        return max(config.stages * tile, config.waves * slab_bytes(config, target))

    def shared_cycles(self, config: GemmConfig, target: arch.Target) -> float:
        step = step_of(target, config.element, config.lanes, config.side)
        wave_m, wave_n = config.block_m // config.waves_m, config.block_n // config.waves_n
        lines = config.block_m + config.block_n  # written
        lines += config.waves_m * config.waves_n * (wave_m + wave_n) * step.copies  # read
        return bytes_of(config.element, lines * config.block_k) * config.parts / shared_rate(target)


def operand_bytes(
    problem: GemmProblem, config: GemmConfig, target: arch.Target, lines_along: Callable[[str], bool]
) -> tuple[int, int]:
    """Of A's and of B's tile, for a step along K; `lines_along` as a loop's."""

    def tile(edge: int, order: str) -> int:
        lines, length = (edge, config.block_k) if lines_along(order) else (config.block_k, edge)
        return config.parts * tile_bytes(target, lines, length, bytes_of(config.element))

    # Of a gated product B's is two, of half the columns each.
    return tile(config.block_m, problem.a_order), (1 + config.gated) * tile(config.columns, problem.b_order)


def slab_bytes(config: GemmConfig, target: arch.Target) -> int:
    """Of a wave, for sums on their way to memory; all of them at once where others add theirs."""
    step = step_of(target, config.element, config.lanes, config.side)
    size = config.sum_bytes
    across = config.columns // config.waves_n // step.cols
    most = min(across, min(64, 1024 // step.rows) // step.cols)
    columns = most_part(across, most) * step.cols
    slab = step.rows * (columns + 16 // size) * size
    if config.waves_k * config.order.cluster > 1:
        slab *= config.block_m // config.waves_m // step.rows * (across * step.cols // columns)
    return slab
