"""What tiles are made of: a step of the matrix unit, and how shared memory holds what it takes."""

import functools
from dataclasses import dataclass
from math import ceil

import torch

from wmma_ops.hardware import arch

BARRIER_BYTES = 8  # of sm_90: each place that the copy engine fills has two of them
_MOST_MAPPED_DIMS = 3  # of a batch, beside rows and columns, that the copy engine walks


@dataclass(frozen=True)
class Step:
    """One product of the matrix unit, as kernels/wmma/tile/product.hpp has it, and two in a row, as chain_link.hpp does."""

    rows: int
    cols: int
    depth: int
    copies: int = 1  # of A and B that lanes read: gfx11 wants both halves of the wave filled
    stays: bool = True  # sums are the next product's operand without memory

    @property
    def whole(self) -> int:
        """Columns that come together, where sums become the next product's operand."""
        return max(self.depth, self.cols)


def step_of(target: arch.Target, element: torch.dtype, lanes: bool, side: int) -> Step:
    return _step(target.family, target.vendor == "nvidia", target.wave, element, lanes, side)


@functools.cache
def _step(family: str, nvidia: bool, wave: int, element: torch.dtype, lanes: bool, side: int) -> Step:
    per_chunk = 16 // element.itemsize
    if lanes:
        return Step(32, 4 * wave // 8, per_chunk, stays=False)
    if nvidia:
        stays = element.itemsize <= 2
        return Step(8, 8, 8, stays=stays) if element == torch.float64 else Step(16, 16, 2 * per_chunk, stays=stays)
    if family == "rdna3":
        return Step(16, 16, 16, copies=2)
    if family == "cdna":
        return Step(side, side, 64 // side * per_chunk)
    # Of each line gfx1250's instructions take two chunks of a lane, the others of RDNA one.
    return Step(16, 16, (4 if family == "gfx1250" else 2) * per_chunk)


def up(x: int, step: int) -> int:
    """The next multiple of `step`."""
    return ceil(x / step) * step


def shared_rate(target: arch.Target) -> int:
    """Bytes that a unit's shared memory moves in a clock."""
    return target.lds_bytes_per_clock or 128


def tile_bytes(target: arch.Target, lines: int, length: int, size: int) -> int:
    """A tile in shared memory, as kernels/wmma/tile/shared_tile.hpp lays it out: lines of `length` elements."""
    chunks = length * size // 16
    row = shared_rate(target) // 16
    exchanged = chunks % row == 0 or row % chunks == 0
    return lines * (chunks if exchanged else chunks | 1) * 16


def goes_by_boxes(dtype: torch.dtype | None, vec: int) -> bool:
    """Whether an operand of the result's shape can be turned around where the copy engine takes a result of 16 bits."""
    return dtype is None or (dtype.itemsize == 2 and vec == 8)


def can_map(batch_dims: int, *sizes: int) -> bool:
    """Whether sm_90's copy engine can walk matrices of these rows and columns through a batch."""
    return batch_dims <= _MOST_MAPPED_DIMS and max(sizes) < 2**31


def mapped_lines(outer: int, depth: int, along: bool) -> int:
    """How many lines of an operand's memory the copy engine brings for a tile: less than 0 where they run across K."""
    return outer if along else -depth


# Head sizes, by the bytes of an element, up to which attention's gradients have kernels; and where plain FMA on 64 lanes
# takes tiles that fill shared memory.
_WIDEST_GRADIENTS = {2: 256, 4: 128, 8: 64}
_WIDEST_GRADIENTS_ON = {("gfx908", torch.float64): 30}


def widest_gradients(dtype: torch.dtype, target: str | None) -> int:
    """The largest head size whose attention has kernels for its gradients; of a target, or of all but a few."""
    return _WIDEST_GRADIENTS_ON.get((target, dtype), _WIDEST_GRADIENTS[dtype.itemsize])
