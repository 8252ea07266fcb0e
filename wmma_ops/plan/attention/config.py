"""A kernel of attention's forward loop (loops/forward.py), or of one that is it but for its waves (loops/ping_pong.py)."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import step_of, tile_bytes
from wmma_ops.hardware.occupancy import most_estimated
from wmma_ops.ops.types import name as type_name

_OTHERS = 56  # registers beside sums, queries and what is on its way


@dataclass(frozen=True)
class AttentionConfig:
    """One kernel. Sizes are in elements."""

    ping_pong: ClassVar[bool] = False  # two groups of waves, one at the matrix unit

    element: torch.dtype
    lanes: bool  # plain FMA in place of a matrix instruction
    side: int  # of the matrix unit's tiles
    waves: int
    tiles_m: int  # of the matrix unit's rows, that a wave owns
    keys: int  # of a tile
    depth: int  # of Q and K, that are multiplied at once
    slice: int  # of V's columns, that a block computes
    keeps_queries: bool  # in registers
    asynchronous: bool
    packed: bool  # heads that share a key head make one tile
    splits: int  # blocks that share a tile of rows and split its keys
    occupancy: int
    cluster: bool = False  # those that split keys put their parts together themselves
    folds: bool = False  # a block has the parts of its keys one after the other (invariant.py)

    def key_value_bytes(self, target: arch.Target) -> int:
        """In shared memory, of a tile."""
        size = self.element.itemsize
        values = (self.keys, self.slice) if self.asynchronous else (self.slice, self.keys)
        return tile_bytes(target, self.keys, self.depth, size) + tile_bytes(target, *values, size)

    def shares_memory(self) -> bool:
        """Whether queries come by way of the memory that keys and values have."""
        return self.keeps_queries

    def shared_bytes(self, target: arch.Target) -> int:
        step, size = step_of(target, self.element, self.lanes, self.side), self.element.itemsize
        rows = self.waves * self.tiles_m * step.rows
        parts = tile_bytes(target, rows, self.depth, size), self.key_value_bytes(target)
        weights = 0 if step.stays else tile_bytes(target, rows, self.keys, size)
        tiles = (max(parts) if self.shares_memory() else sum(parts)) + weights
        return max(tiles, rows * (2 + self.slice) * 4 if self.cluster else 0)

    def loaded(self, target: arch.Target) -> float:
        """Registers of what is on its way to shared memory."""
        size = 0 if self.asynchronous else self.keys * (self.depth + self.slice) * self.element.itemsize
        return size / (self.waves * target.wave) / 4

    def registers(self, target: arch.Target) -> int:
        """An estimate of what a lane holds."""
        step, size = step_of(target, self.element, self.lanes, self.side), self.element.itemsize
        rows = self.tiles_m * step.rows
        total = rows * (self.slice + self.keys) * (2 if size == 8 else 1) / target.wave
        if self.keeps_queries:
            total += rows * self.depth * size * step.copies / target.wave / 4
        total += self.loaded(target)
        if self.lanes:
            total += 8 * 4
        return int(total) + _OTHERS

    def most_registers(self, target: arch.Target) -> int:
        return most_estimated(target)

    def __str__(self) -> str:
        kind = "FMA" if self.lanes else type_name(self.element)
        extras = {
            "queries in registers": self.keeps_queries,
            "asynchronous copies": self.asynchronous,
            "ping-pong": self.ping_pong,
            "heads packed": self.packed,
            f"keys split {self.splits} ways" + (" in a cluster" if self.cluster else ""): self.splits > 1,
            "keys in parts, one after the other": self.folds,
        }
        text = (
            f"{kind}, {self.waves} waves of {self.tiles_m} row tiles, {self.keys} keys, {self.depth} of Q and K, "
            f"{self.slice} of V"
        )
        return ", ".join([text, *(extra for extra, there in extras.items() if there)])
