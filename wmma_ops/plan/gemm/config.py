"""The kernels that a product may take: what one is made of. Nothing here knows a shape by name."""

import functools
from dataclasses import dataclass
from math import ceil, prod

import torch

from wmma_ops.hardware import arch
from wmma_ops.ops.types import bits
from wmma_ops.ops.types import name as type_name
from wmma_ops.plan import model
from wmma_ops.plan.gemm.tile_order import TileOrder
from wmma_ops.plan.problem import GemmProblem


@dataclass(frozen=True)
class GemmConfig:
    """One kernel. Sizes are in elements."""

    loop: str  # the main loop: a file of loops/, and of kernels/wmma/gemm
    element: torch.dtype  # what the matrix unit multiplies
    lanes: bool  # plain FMA in place of a matrix instruction
    side: int  # of the matrix instruction, where the target has two
    block_m: int
    block_n: int
    block_k: int
    waves_m: int
    waves_n: int
    waves_k: int  # waves that share a tile of the result and split each step's K
    stages: int  # tiles, or steps, that are in flight or in use
    occupancy: int  # waves at once on a SIMD that registers are kept for (NVIDIA: blocks on an SM)
    order: TileOrder  # which tile a block computes, and which next
    askers: int = 0  # waves that ask for tiles and multiply nothing
    gated: bool = False  # half of block_n are columns of a gate, the same as the others
    parts: int = 1  # that an element in shared memory has: a float32 is the sum of two of bfloat16
    ping_pong: bool = False  # groups of waves take tiles by turns: one finishes its own while another multiplies

    def but(self, **changes) -> "GemmConfig":
        """The same but for these. As dataclasses.replace; a plan asks for hundreds."""
        made = object.__new__(GemmConfig)
        made.__dict__.update(self.__dict__, **changes)
        return made

    def ordered(self, **changes) -> "GemmConfig":
        """The same but for these of its order."""
        return self.but(order=self.order.but(**changes))

    @property
    def waves(self) -> int:
        """That multiply."""
        return self.waves_m * self.waves_n * self.waves_k

    @property
    def all_waves(self) -> int:
        return self.waves + self.askers

    @property
    def columns(self) -> int:
        """Of the result, in a tile."""
        return self.block_n // 2 if self.gated else self.block_n

    @property
    def sum_bytes(self) -> int:
        """Of an accumulator."""
        return 8 if self.element == torch.float64 else 4

    def tiles(self, problem: GemmProblem) -> tuple[int, int]:
        """How many tiles the result has down and across: as many as blocks that share come together."""
        return self.order.tiles(ceil(problem.m / self.block_m), ceil(problem.n / self.columns))

    def last_round(self, problem: GemmProblem, target: arch.Target) -> int:
        """How many remain when every unit has had as many others."""
        return prod(self.tiles(problem)) % model.wholes(target)

    def in_parts(self, problem: GemmProblem, target: arch.Target) -> int:
        """How many of them have their sums added up by a second kernel."""
        return self.order.in_parts(prod(self.tiles(problem)), model.wholes(target))

    def length(self, problem: GemmProblem) -> int:
        """What is summed up: K, and behind its last step, where there is a second pair, K2."""
        return ceil(problem.k / self.block_k) * self.block_k + problem.k2 if problem.k2 else problem.k

    def __str__(self) -> str:
        kind = "FMA" if self.lanes else type_name(self.element) + (f" in {self.parts} parts" if self.parts > 1 else "")
        tile = f"{self.block_m}x{self.block_n}x{self.block_k}"
        waves = f"{self.waves_m}x{self.waves_n}x{self.waves_k} waves"
        loop = f"{self.loop.replace('_', ' ')}, {self.stages} stages"
        gated, turns = "gated" if self.gated else "", "ping-pong" if self.ping_pong else ""
        return ", ".join(filter(None, (f"{kind} {tile}", gated, waves, loop, turns, str(self.order))))


def number_of(problem: GemmProblem) -> str:
    """The type that the prologue and the epilogue compute in: every int32 is exact in a double."""
    exact = problem.a == torch.int8 and problem.d in (torch.int8, torch.int32)
    return "double" if exact or problem.a == torch.float64 else "float"


def goes_as_it_is(problem: GemmProblem) -> bool:
    """Whether 16-byte chunks can go to shared memory unchanged, for operands of one size."""
    size = bits(problem.a)
    plain = problem.a_scale is None and problem.a_activation == 0
    for pair in problem.pairs:
        whole = min(pair.a_vec, pair.b_vec) * size == 128
        along = pair.a_order == pair.b_order == "k"
        if not (plain and whole and (size == 16 or (along and size == 8))):
            return False
    return True


@functools.cache
def most_part(count: int, most: int) -> int:
    """The largest part of so many that divides them."""
    return max(part for part in range(1, most + 1) if count % part == 0)
