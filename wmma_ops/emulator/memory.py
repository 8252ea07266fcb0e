"""What a kernel may touch: the tensors, a lane's own memory, and flat addresses that mean either or shared memory."""

import bisect
import ctypes
import functools
from dataclasses import dataclass

import numpy as np

from wmma_ops.emulator import atomics
from wmma_ops.emulator.errors import EmulationError, OutOfBounds
from wmma_ops.emulator.global_races import GlobalRaces
from wmma_ops.emulator.timing import Trace

u8, u16, u32, u64, i64 = np.uint8, np.uint16, np.uint32, np.uint64, np.int64

_FIRST = slice(1)  # where one access stands for a wave's

# Where flat addresses mean shared memory and a lane's own.
SHARED_BASE = 0x0001_0000_0000_0000
PRIVATE_BASE = 0x0002_0000_0000_0000
APERTURE = 1 << 32

_SMALL = {"u8": (1, False), "i8": (1, True), "u16": (2, False), "i16": (2, True)}
_SMALL |= {"d16": (2, False), "d16_hi": (2, False), "d16_u8": (1, False), "d16_i8": (1, True)}
_SMALL |= {"d16_hi_u8": (1, False), "d16_hi_i8": (1, True), "u8_hi": (1, False)}


@functools.cache
def size_of(kind: str) -> int:
    """Bytes a lane of an access."""
    return int(kind[1:]) // 8 if kind[0] == "b" else _SMALL[kind][0]


def put_small(row: np.ndarray, lanes, raw: np.ndarray, kind: str) -> None:
    """Writes loaded bytes or halves to a register, as it gets them."""
    size, is_signed = _SMALL[kind]
    if is_signed:
        raw = raw.view(np.int8 if size == 1 else np.int16).astype(np.int32).view(u32)
    if kind.startswith("d16"):
        row.view(u16)[kind.startswith("d16_hi") :: 2][lanes] = raw
    else:
        row[lanes] = raw


def operands_of(rows, lanes: np.ndarray, wide: bool) -> list[tuple[int, int]]:
    """Of each lane an atomic's data, and what it compares with: the registers' words after it, if there are any."""
    values = [row[lanes].tolist() for row in rows]
    if wide:
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [[low | high << 32 for low, high in zip(*pair, strict=True)] for pair in pairs]
    return list(zip(values[0], values[1] if len(values) > 1 else [0] * len(lanes), strict=True))


def put_old(out, lanes: np.ndarray, old: list[int], wide: bool) -> None:
    """What an atomic gives back."""
    words = np.array(old, u64)
    out[0][lanes] = words
    if wide:
        out[1][lanes] = words >> u64(32)


@dataclass
class Traffic:
    """What a launch's memory accesses cost, counted where asked for.

    A global access touches the 64-byte segments that its active lanes' bytes lie in; `wanted` are those that the bytes
    would fill if they lay side by side. Shared memory serves an access in groups of lanes (as many as one cycle has banks
    for); a group takes as many cycles as its busiest bank has different words, and what exceeds one is a conflict.
    """

    segments: int = 0
    wanted: int = 0
    accesses: int = 0
    shared_reads: int = 0  # cycles without conflicts
    shared_read_conflicts: int = 0  # cycles more
    shared_writes: int = 0
    shared_write_conflicts: int = 0


SEGMENT = 64


def count_segments(traffic: Traffic, address: np.ndarray, size: int) -> None:
    first = (address // u64(SEGMENT)).astype(i64)
    last = ((address + u64(size - 1)) // u64(SEGMENT)).astype(i64)
    traffic.segments += len(np.unique(np.concatenate([first, last])))
    traffic.wanted += -(-len(np.unique(address)) * size // SEGMENT)
    traffic.accesses += 1


def count_banks(traffic: Traffic, byte: np.ndarray, size: int, banks: int, write: bool) -> None:
    words = max(size // 4, 1)
    group = max(banks // words, 1)
    base = conflicts = 0
    for start in range(0, len(byte), group):
        word = (byte[start : start + group, None] // 4 + np.arange(words)).ravel()
        word = np.unique(word)  # lanes that read one word share it
        busiest = int(np.bincount(word % banks).max())
        base += 1
        conflicts += busiest - 1
    if write:
        traffic.shared_writes += base
        traffic.shared_write_conflicts += conflicts
    else:
        traffic.shared_reads += base
        traffic.shared_read_conflicts += conflicts


class Region:
    """A tensor's memory, seen as bytes and, where aligned, as words."""

    is_watched = True  # for races

    def __init__(self, base: int, size: int, name: str, keep=None, element: int = 1, shift: int = 0):
        self.base, self.size, self.name, self.keep, self.element = base, size, name, keep, element
        self.shift = u64(shift)  # by which the memory that it is of lies beyond where a GPU's would
        # The view starts at a multiple of 4 at or below base, so that words have whole indices.
        self.start = base & ~3
        length = (base + size - self.start + 3) & ~3
        raw = (ctypes.c_uint8 * length).from_address(self.start) if size else (ctypes.c_uint8 * 0)()
        self.bytes = np.frombuffer(raw, dtype=u8) if size else np.zeros(0, u8)
        self.words, self.halves = self.bytes.view(u32), self.bytes.view(u16)
        self.raw = memoryview(self.bytes)
        self.origin = u64(self.start)

    def named(self, byte: int) -> str:
        """Where a byte lies, in words."""
        return f"byte {byte} of {self.name}" if self.element == 1 else f"element {byte // self.element} of {self.name}"


class GlobalMemory:
    """The regions that a launch may touch."""

    def __init__(self, regions: list[Region]):
        self.regions = sorted((region for region in regions if region.size), key=lambda region: region.base)
        self.starts = [region.base for region in self.regions]
        self.last = self.regions[0] if self.regions else None
        self.traffic: Traffic | None = None  # counted where set
        self.trace: Trace | None = None  # likewise
        # By the current wave: of each region the first address, and the one after the last.
        self.reached: dict[Region, tuple[int, int]] = {}
        self.progress = False  # whether any wave has reached more
        self.races = GlobalRaces()

    def unwritten(self) -> dict[str, int]:
        """Of tensors that something was stored in: how many elements nothing was, by name."""
        found = {}
        for region in self.races.stored_in():
            x = region.keep
            if not hasattr(x, "data_ptr"):  # no tensor, or several that share memory
                continue
            size = x.element_size()
            steps = (np.arange(count) * step * size for count, step in zip(x.shape, x.stride(), strict=True))
            offsets = functools.reduce(np.add.outer, steps, x.data_ptr() - region.start)
            found[region.name] = int(np.count_nonzero(~self.races.are_stored(region, offsets, size)))
        return {name: count for name, count in found.items() if count}

    def _find(self, low: int, high: int) -> Region | None:
        region = self.last
        if region is None or low < region.base or high > region.base + region.size:
            at = bisect.bisect_right(self.starts, low) - 1
            if at < 0 or high > self.regions[at].base + self.regions[at].size:
                return None
            region = self.last = self.regions[at]
        self._reach(region, low, high)
        return region

    def _near(self, address: int) -> Region:
        """The region at an address, or the one before."""
        return self.regions[bisect.bisect_right(self.starts, address) - 1]

    def _reach(self, region: Region, low: int, high: int) -> None:
        reached = self.reached.get(region, (high, low))
        if low < reached[0] or high > reached[1]:
            self.reached[region] = min(low, reached[0]), max(high, reached[1])
            self.progress = True
            if self.trace is not None:
                self.trace.reached.add((region.base, region.base + region.size))

    def _fail(self, address: int, size: int, lane: int, what: str):
        near = min(self.regions, key=lambda r: max(r.base - address, address - r.base - r.size + 1), default=None)
        place = ""
        if near is not None:
            offset = address - near.base
            place = f"; the nearest is {near.name} of {near.size} bytes, at whose byte {offset} this would be"
        raise OutOfBounds(f"lane {lane}: a {what} of {size} bytes at 0x{address:x} is outside every tensor{place}")

    def _split(self, address: np.ndarray, lanes: np.ndarray, size: int, what: str):
        """(region, which of the lanes) where not all lie in one."""
        parts: dict[int, tuple[Region, list[int]]] = {}
        for position, at in enumerate(address.tolist()):
            region = self._find(at, at + size)
            if region is None:
                self._fail(at, size, int(lanes[position]), what)
            parts.setdefault(id(region), (region, []))[1].append(position)
        return [(region, np.array(found)) for region, found in parts.values()]

    def _places(self, address, size: int, full: bool, mask, what: str):
        """(region, byte within it, lanes) of an access; the lanes as a slice where that is all of them."""
        lanes = mask.nonzero()[0] if not full else slice(None)
        if address.shape != mask.shape:
            address = np.broadcast_to(address, mask.shape)
        address = address[lanes]
        if address.size == 0:
            return
        if self.traffic is not None:
            count_segments(self.traffic, address, size)
        if self.trace is not None:
            self.trace.memory(lanes, address - self._near(address.item(0)).shift, size)
        first = address.item(0)
        near = self._near(first)
        offset = address - near.origin  # of what lies before it, beyond any size
        top = near.start + int(np.maximum.reduce(offset)) + size
        if near.start == near.base and top <= near.base + near.size:
            self._reach(near, first, top)
            yield near, offset.view(np.intp), lanes
            return
        region = self._find(int(np.minimum.reduce(address)), int(np.maximum.reduce(address)) + size)
        if region is not None:
            yield region, (address - u64(region.start)).astype(np.intp), lanes
            return
        numbers = np.arange(len(mask))[lanes]
        for region, which in self._split(address, numbers, size, what):
            yield region, (address[which] - u64(region.start)).astype(np.intp), numbers[which]

    def load(self, address, rows, kind: str, full: bool, mask, atomic: bool = False) -> None:
        size = size_of(kind)
        for region, offset, lanes in self._places(address, size, full, mask, "load"):
            bits = int(np.bitwise_or.reduce(offset))
            words = offset >> 2 if kind[0] == "b" and not bits & 3 else None
            self.races.load(region, offset, words, size, lanes, atomic)
            if kind[0] != "b":
                raw = region.halves[offset >> 1] if size == 2 and not bits & 1 else region.bytes[offset]
                if size == 2 and bits & 1:
                    raw = raw.astype(u16) | (region.bytes[offset + 1].astype(u16) << u16(8))
                put_small(rows[0], lanes, raw, kind)
            elif words is None:
                found = region.bytes[offset[:, None] + np.arange(size)].view(u32)
                for j, row in enumerate(rows):
                    row[lanes] = found[:, j]
            else:
                # Rows may hold the address: it was read above.
                for j, row in enumerate(rows):
                    row[lanes] = region.words[j:][words]

    def store(self, address, rows, kind: str, full: bool, mask, atomic: bool = False) -> None:
        size = size_of(kind)
        for region, offset, lanes in self._places(address, size, full, mask, "store"):
            bits = int(np.bitwise_or.reduce(offset))
            words = offset >> 2 if kind[0] == "b" and not bits & 3 else None
            compare = self.races.store(region, offset, words, size, lanes, atomic)
            if kind[0] != "b":
                value = rows[0][lanes]
                if kind in ("d16_hi", "u8_hi"):
                    value = value >> u32(16)
                if size == 2 and not bits & 1:
                    region.halves[offset >> 1] = value
                else:
                    for j in range(size):
                        region.bytes[offset + j] = value >> u32(8 * j)
            elif words is None:
                data = np.stack([row[lanes] for row in rows], axis=1).view(u8)
                region.bytes[offset[:, None] + np.arange(size)] = data
            else:
                for j, row in enumerate(rows):
                    region.words[j:][words] = row[lanes]
            if compare is not None:
                compare()

    def atomic(self, address, operation: str, rows, out, wide: bool, mask) -> None:
        size = 8 if wide else 4
        address = np.broadcast_to(address, mask.shape)
        partial = atomics.may_be_partial(operation)
        touched: dict[Region, tuple[list[int], list[int]]] = {}  # (bytes, their lanes)
        if self.trace is not None and mask.any():
            self.trace.memory(mask, address[mask] - self._near(address[mask].item(0)).shift, size)
        lanes = mask.nonzero()[0]
        before: list[int] = []
        given = zip(lanes.tolist(), address[lanes].tolist(), operands_of(rows, lanes, wide), strict=True)
        for lane, at, (data, compare) in given:
            if at % size:
                raise EmulationError(f"lane {lane}: an atomic at an unaligned address")
            region = self._find(at, at + size)
            start = at - region.start if region else 0
            word = region.raw[start : start + size] if region else self._beside(at, size).tobytes()
            old = int.from_bytes(word, "little")
            new = atomics.result(operation, old, data, compare, wide)
            before.append(old)
            if region:
                region.raw[start : start + size] = new.to_bytes(size, "little")
                if self.races.alone:
                    continue
                changed, who = touched.get(region) or touched.setdefault(region, ([], []))
                if partial:
                    counts = np.flatnonzero(atomics.bytes_that_count(operation, size, old, new, data))
                    changed += (start + counts).tolist()
                    who += [lane] * len(counts)
                else:
                    changed.append(start)
                    who.append(lane)
            else:
                word = np.frombuffer(new.to_bytes(size, "little"), u8)
                self._put_beside(at, word, atomics.bytes_that_count(operation, size, old, new, data), lane)
        if out is not None:
            put_old(out, lanes, before, wide)
        for region, (changed, who) in touched.items():
            self.races.atomic(region, np.array(changed, np.intp), 1 if partial else size, who)

    def _beside(self, at: int, size: int) -> np.ndarray:
        """The bytes of a word that does not lie in one tensor: 0 for those in none."""
        found = [self._find(at + i, at + i + 1) for i in range(size)]
        return np.array([region.bytes[at + i - region.start] if region else 0 for i, region in enumerate(found)], u8)

    def _put_beside(self, at: int, word: np.ndarray, counts: np.ndarray, lane: int) -> None:
        """Writes those bytes of it that lie in a tensor."""
        found = [self._find(at + i, at + i + 1) for i in range(len(word))]
        for i, region in enumerate(found):
            if region is not None:
                region.bytes[at + i - region.start] = word[i]
            elif counts[i] or not any(found):
                self._fail(at, len(word), lane, "atomic")

    def scalar_words(self, address: int, count: int) -> list[int]:
        address &= 0xFFFF_FFFF_FFFF_FFFC
        region = self._find(address, address + 4 * count)
        if region is None:
            # A wide scalar load may reach past its data; only what is there counts.
            region = self._find(address, address + 4)
            if region is None:
                self._fail(address, 4 * count, 0, "scalar load")
        at = (address - region.start) >> 2
        found = region.words[at : at + count].tolist()
        self.races.load(region, 4 * at, None, 4 * len(found), _FIRST)
        return found if len(found) == count else found + [0] * (count - len(found))

    def scalar_store(self, address: int, values: list[int]) -> None:
        address &= 0xFFFF_FFFF_FFFF_FFFC
        region = self._find(address, address + 4 * len(values))
        if region is None:
            self._fail(address, 4 * len(values), 0, "scalar store")
        at = (address - region.start) >> 2
        compare = self.races.store(region, np.array([4 * at]), None, 4 * len(values), _FIRST, False)
        region.words[at : at + len(values)] = values
        if compare is not None:
            compare()

    def scalar_atomic(self, address: int, operation: str, values: list[int], wide: bool) -> list[int]:
        """What was there before."""
        out = np.zeros((2 if wide else 1, 1), u32)
        self.atomic(np.array([address], u64), operation, np.array(values, u32)[:, None], out, wide, np.ones(1, bool))
        return out[:, 0].tolist()

    def scalar_small(self, address: int, kind: str) -> int:
        size, is_signed = _SMALL[kind]
        region = self._find(address, address + size)
        if region is None:
            self._fail(address, size, 0, "scalar load")
        at = address - region.start
        self.races.load(region, at, None, size, _FIRST)
        raw = region.bytes[at : at + size].tobytes()
        return int.from_bytes(raw, "little", signed=is_signed) & 0xFFFFFFFF


class Flat:
    """Addresses that may mean global, shared or a lane's own memory."""

    def __init__(self, memory: GlobalMemory, shared, scratch):
        self.memory, self.shared, self.scratch = memory, shared, scratch

    def _parts(self, address, mask):
        """(which memory, addresses within it, lanes) of an access."""
        address = np.broadcast_to(address, mask.shape)
        private = mask & (address >= u64(PRIVATE_BASE)) & (address < u64(PRIVATE_BASE + APERTURE))
        shared = mask & (address >= u64(SHARED_BASE)) & (address < u64(SHARED_BASE + APERTURE))
        outside = mask & ~private & ~shared
        if outside.any():
            yield "global", address, outside
        if shared.any():
            yield "shared", (address - u64(SHARED_BASE)).astype(u32), shared
        if private.any():
            if self.scratch() is None:
                raise OutOfBounds(f"lane {int(np.argmax(private))}: scratch memory, of which the kernel has none")
            yield "private", (address - u64(PRIVATE_BASE)).astype(i64), private

    def load(self, address, rows, kind, full, mask, uses=None, atomic=False):
        # The rows may hold the address.
        for where, at, lanes in list(self._parts(address, mask)):
            if where == "shared":
                self.shared().load(at, 0, rows, kind, False, lanes, uses)
            elif where == "global":
                self.memory.load(at, rows, kind, False, lanes, atomic)
            else:
                self.scratch().load(at, rows, kind, False, lanes)

    def store(self, address, rows, kind, full, mask, atomic=False):
        for where, at, lanes in self._parts(address, mask):
            if where == "shared":
                self.shared().store(at, 0, rows, kind, False, lanes)
            elif where == "global":
                self.memory.store(at, rows, kind, False, lanes, atomic)
            else:
                self.scratch().store(at, rows, kind, False, lanes)

    def atomic(self, address, operation, rows, out, wide, mask):
        for where, at, lanes in list(self._parts(address, mask)):
            if where == "shared":
                self.shared().atomic(at, 0, operation, rows, out, wide, lanes)
            elif where == "global":
                self.memory.atomic(at, operation, rows, out, wide, lanes)
            else:
                raise OutOfBounds(
                    f"lane {int(np.argmax(lanes))}: an atomic on a lane's own memory, which is not emulated"
                )


class Scratch:
    """A lane's own memory."""

    def __init__(self, size: int, wave: int):
        self.bytes = np.zeros((wave, size + 16), dtype=u8)
        self.size = size

    def _at(self, address, size, lanes):
        at = address[lanes]
        bad = (at < 0) | (at + size > self.size)
        if bad.any():
            lane = int(lanes[np.argmax(bad)])
            raise OutOfBounds(
                f"lane {lane}: {size} bytes at byte {int(at[np.argmax(bad)])} of {self.size} of scratch memory"
            )
        return at

    def load(self, address, rows, kind, full, mask):
        lanes = mask.nonzero()[0]
        size = size_of(kind)
        at = self._at(address, size, lanes)
        raw = self.bytes[lanes[:, None], at[:, None] + np.arange(size)]
        if kind[0] != "b":
            value = raw[:, 0] if size == 1 else np.ascontiguousarray(raw).view(u16)[:, 0]
            put_small(rows[0], lanes, value, kind)
            return
        found = np.ascontiguousarray(raw).view(u32)
        for j, row in enumerate(rows):
            row[lanes] = found[:, j]

    def store(self, address, rows, kind, full, mask):
        lanes = mask.nonzero()[0]
        size = size_of(kind)
        at = self._at(address, size, lanes)
        data = np.stack([row[lanes] for row in rows], axis=1)
        if kind in ("d16_hi", "u8_hi"):
            data = data >> u32(16)
        self.bytes[lanes[:, None], at[:, None] + np.arange(size)] = np.ascontiguousarray(data).view(u8)[:, :size]
