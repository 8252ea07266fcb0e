"""kernels/wmma/gemm/streamed.hpp: few rows on CDNA, all the work is to read B: operands go straight to registers."""

import dataclasses
from collections.abc import Iterator
from math import ceil

import torch

from wmma_ops.hardware import arch
from wmma_ops.ops.types import bytes_of, elements_in
from wmma_ops.plan import model
from wmma_ops.plan.gemm.config import GemmConfig, goes_as_it_is, most_part
from wmma_ops.plan.gemm.loop import Loop
from wmma_ops.plan.gemm.tile_order import TileOrder
from wmma_ops.plan.problem import GemmProblem

_LINE = 128  # bytes of K that a wave's step takes
_MOST_ROWS = 512
_SLAB_ROWS = 16  # of the waves' sums, that lie in shared memory together or not at all
_MOST_SHARED = 65536  # bytes for them, which every target has
_SPARE = 40  # registers of a lane for what is neither a sum nor on its way

# By the emulator's clock, whose CDNA2 has half as much on its way.
_WAY = model.Way(1500, 4, 0.01, 0.01, tile_bytes=38, round_trip=900, result_bytes=20)
_CDNA2 = dataclasses.replace(_WAY, tile_bytes=22)


class Streamed(Loop):
    name = "streamed"
    tag = "Streamed"
    most_columns = 2  # so that a line is finished by all lanes of a wave

    def takes(self, problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool) -> bool:
        few = problem.m <= _MOST_ROWS and all(pair.a_order == "k" for pair in problem.pairs)
        plain = not lanes and element == problem.a == problem.b and goes_as_it_is(problem)
        return target.family == "cdna" and few and plain and not problem.wide

    def candidates(
        self, problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool, beside: frozenset[str]
    ) -> Iterator[GemmConfig]:
        """Tiles whose waves split K."""
        along = all(pair.b_order == "k" for pair in problem.pairs)
        rows = 16 if problem.m <= 16 else 32 if problem.m <= 32 or not along else 64
        group = 8 if problem.m > rows else 0
        dies = model.CARDS[target.name].dies
        # Of a SIMD's registers those that its loads reach, and of a lane's those that what turns words around does.
        file, most = 256 if target.name == "gfx908" else 512, 512 if along else 256
        # Squares read least, and multiply longest: where units bring much, and all squares are under way at once.
        squares = problem.batch * ceil(problem.m / 64) * ceil(problem.n / 64)
        square = rows == 64 and self.way(target) is _WAY and squares <= model.CARDS[target.name].units
        for columns in (32, 64) if not along else (16, 32, 64) if square else (16, 32):
            sums = rows * columns // target.wave
            step = (rows + columns) * _LINE // target.wave // 4  # registers of a lane
            for waves in (4, 8, 16):
                held = min(file // (waves // target.simds), most)  # by a lane
                stages = min((held - sums - _SPARE) // (2 * step), 4)  # the compiler takes others for the next
                depth = waves * elements_in(element, _LINE)
                config = GemmConfig(
                    self.name, element, False, 16, rows, columns, depth, 1, 1, waves, stages, waves // target.simds,
                    TileOrder(group, dies),
                )  # fmt: skip
                if stages >= 2 and self.shared_bytes(problem, config, target) <= target.lds_bytes:
                    yield config

    def shared_bytes(self, problem: GemmProblem, config: GemmConfig, target: arch.Target) -> int:
        """The waves' sums, or as many rows of them at once as have room."""
        slab = config.waves * _SLAB_ROWS * (config.block_n + 4) * config.sum_bytes
        return slab * most_part(config.block_m // _SLAB_ROWS, max(_MOST_SHARED // slab, 1))

    def way(self, target: arch.Target) -> model.Way:
        return _WAY if target.name in ("gfx942", "gfx950") else _CDNA2

    def shared_cycles(self, config: GemmConfig, target: arch.Target) -> float:
        return 0

    def narrow_loads(self, problem: GemmProblem, config: GemmConfig) -> float:
        """Of lines that run across K, 32 columns take half."""
        halves = config.block_n if problem.b_order == "n" and bytes_of(problem.b, config.block_n) < _LINE else 0
        return 1 + halves / (config.block_m + config.block_n)

    def in_flight(self, config: GemmConfig) -> int:
        return config.stages

    def sums_exchanged(self) -> float:
        return 0.25


LOOP = Streamed()
