"""Memory through a buffer resource: four scalar registers that say where a buffer starts and how far it goes.

What lies outside is no error: loads give 0 there, stores and atomics do nothing. The rules are those of AMD's ISA documents
(CDNA 3, "Range Checking"; RDNA 3 and 4, OOB_SELECT), and where they leave it open those that AMD's emulator, rocjitsu, took
from the hardware: whether dwords lie inside is asked of each, and a scalar offset counts towards a buffer's end.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wmma_ops.emulator.errors import EmulationError, OutOfBounds
from wmma_ops.emulator.memory import GlobalMemory, Scratch, put_small, size_of

u8, u16, u64, i64 = np.uint8, np.uint16, np.uint64, np.int64

SCRATCH_MARK = 0xFFFF5C4A  # in the resource that targets without scratch_ instructions reach scratch memory through
_ENDLESS = 1 << 40  # bytes
# What is outside on RDNA: by index and by the offset within a record, by index, nothing of a buffer with records, by bytes.
_BY_RECORD, _BY_INDEX, _NOTHING, _BY_BYTES = range(4)


@dataclass(frozen=True)
class Resource:
    base: int
    stride: int
    records: int  # or bytes
    checks: int | None  # on RDNA
    swizzled: bool = False  # on CDNA: records are interleaved

    @property
    def bytes(self) -> int:
        """As scalar loads take its size."""
        return self.records * (self.stride or 1)

    def room(self, index, offset: np.ndarray, scalar: int) -> np.ndarray:
        """How many bytes from a lane's place on lie inside."""
        checks = self.checks
        if checks is None:  # on CDNA
            checks = _BY_INDEX if index is not None and self.stride else _BY_BYTES
        if checks == _BY_BYTES:
            return self.records - scalar - offset
        left = self.stride - offset if checks == _BY_RECORD else np.full(offset.shape, _ENDLESS)
        records = min(self.records, 1) if checks == _NOTHING else self.records
        return np.where((0 if index is None or checks == _NOTHING else index) < i64(records), left, 0)


@functools.lru_cache(maxsize=1024)
def described(words: tuple[int, int, int, int], cdna: bool) -> Resource:
    """The resource of these words."""
    low, high, records, flags = words
    if flags >> 30:
        raise EmulationError(f"a buffer resource of type {flags >> 30} (bits 126 and 127); buffers are of type 0")
    if not cdna and high >> 30:
        raise EmulationError("a buffer resource that swizzles addresses (bits 62 and 63), which is not emulated")
    if flags >> 23 & 1:
        raise EmulationError("a buffer resource that adds the lane's number (bit 119), which is not emulated")
    checks, swizzled = (None, bool(high >> 31)) if cdna else (flags >> 28 & 3, False)
    return Resource(low | (high & 0xFFFF) << 32, high >> 16 & 0x3FFF, records, checks, swizzled)


def is_scratch(words: list[int]) -> bool:
    """Whether the words are those of the lanes' own memory."""
    return words[2] == SCRATCH_MARK and words[3] == 0


def _of_lanes(offset, mask) -> np.ndarray:
    """Each lane's offset, of a row or of one for all."""
    return offset.astype(i64) if offset.shape else np.full(mask.shape, offset, i64)


class Buffers:
    """What buffer instructions reach: global memory through a resource, or a lane's own."""

    def __init__(self, memory: GlobalMemory, cdna: bool, scratch: Callable[[], Scratch | None]):
        self.memory, self.cdna, self.scratch = memory, cdna, scratch

    def _private(self, words: list[int], index, offset, scalar: int, mask) -> tuple[Scratch, np.ndarray] | None:
        """The lanes' own memory and each lane's place in it, where the resource is that of it."""
        if not is_scratch(words):
            return None
        found = self.scratch()
        if found is None or index is not None:
            raise OutOfBounds("scratch memory by an index" if found else "scratch memory, of which the kernel has none")
        # The scalar part counts all lanes' bytes together.
        at = _of_lanes(offset, mask)
        if scalar:
            at += scalar // len(mask)
        return found, at

    def _places(self, words: list[int], index, offset, scalar: int, mask):
        """(address, bytes from there on that lie inside) of each lane."""
        resource = described(tuple(words), self.cdna)
        offset = _of_lanes(offset, mask)
        room = resource.room(index, offset, scalar)
        # Without an index the bit changes nothing: HipKittens' kernels set it, and their results are right on MI355X.
        if resource.swizzled and (index is not None or (mask & (room <= 0)).any()):
            raise EmulationError(
                "a buffer resource that swizzles addresses (bit 63); emulated is one inside the buffer and without an index"
            )
        offset += resource.base + scalar
        if index is not None:
            offset += index * i64(resource.stride)
        return offset.view(u64), room

    def load(self, words, index, offset, scalar: int, rows, kind: str, full: bool, mask, atomic: bool = False) -> None:
        if private := self._private(words, index, offset, scalar, mask):
            private[0].load(private[1], rows, kind, full, mask)
            return
        address, room = self._places(words, index, offset, scalar, mask)
        outside = mask & (room < size_of(kind))
        if not outside.any():
            self.memory.load(address, rows, kind, full, mask, atomic)
            return
        self.memory.load(address, rows, kind, False, mask & ~outside, atomic)
        if kind[0] != "b":
            zeros = np.zeros(np.count_nonzero(outside), u8 if size_of(kind) == 1 else u16)
            put_small(rows[0], outside, zeros, kind)
            return
        for j, row in enumerate(rows):
            inside = outside & (room >= 4 * (j + 1))
            self.memory.load(address + u64(4 * j), (row,), "b32", False, inside, atomic)
            row[outside & ~inside] = 0

    def store(self, words, index, offset, scalar: int, rows, kind: str, full: bool, mask, atomic: bool = False) -> None:
        if private := self._private(words, index, offset, scalar, mask):
            private[0].store(private[1], rows, kind, full, mask)
            return
        address, room = self._places(words, index, offset, scalar, mask)
        outside = mask & (room < size_of(kind))
        if not outside.any():
            self.memory.store(address, rows, kind, full, mask, atomic)
            return
        self.memory.store(address, rows, kind, False, mask & ~outside, atomic)
        if kind[0] == "b":
            for j, row in enumerate(rows):
                inside = outside & (room >= 4 * (j + 1))
                self.memory.store(address + u64(4 * j), (row,), "b32", False, inside, atomic)

    def atomic(self, words, index, offset, scalar: int, operation: str, rows, out, wide: bool, mask) -> None:
        if self._private(words, index, offset, scalar, mask):
            raise OutOfBounds(f"lane {int(np.argmax(mask))}: an atomic on a lane's own memory, which is not emulated")
        address, room = self._places(words, index, offset, scalar, mask)
        inside = mask & (room >= (8 if wide else 4))
        self.memory.atomic(address, operation, rows, out, wide, inside)
        for row in out or ():
            row[mask & ~inside] = 0

    # By the scalar unit.

    def _dwords(self, words: list[int], offset: int, count: int) -> tuple[int, int]:
        """(address, how many of the dwords from there on lie inside)."""
        resource, offset = described(tuple(words), self.cdna), offset & 0xFFFF_FFFC
        return resource.base + offset, min(max(-(-(resource.bytes - offset) // 4), 0), count)

    def scalar_words(self, words: list[int], offset: int, count: int) -> list[int]:
        address, inside = self._dwords(words, offset, count)
        return (self.memory.scalar_words(address, inside) if inside else []) + [0] * (count - inside)

    def scalar_small(self, words: list[int], offset: int, kind: str) -> int:
        resource = described(tuple(words), self.cdna)
        inside = offset + size_of(kind) <= resource.bytes
        return self.memory.scalar_small(resource.base + offset, kind) if inside else 0

    def scalar_store(self, words: list[int], offset: int, values: list[int]) -> None:
        address, inside = self._dwords(words, offset, len(values))
        if inside:
            self.memory.scalar_store(address, values[:inside])

    def scalar_atomic(self, words: list[int], offset: int, operation: str, values: list[int], wide: bool) -> list[int]:
        count = 2 if wide else 1
        address, inside = self._dwords(words, offset, count)
        return self.memory.scalar_atomic(address, operation, values, wide) if inside == count else [0] * count
