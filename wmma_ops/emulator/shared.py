"""A block's shared memory, watched: races, reads of what was never written, accesses outside."""

import functools

import numpy as np

from wmma_ops.emulator import atomics
from wmma_ops.emulator.arrivals import Arrivals
from wmma_ops.emulator.errors import EmulationError, OutOfBounds, Race, Uninitialised
from wmma_ops.emulator.memory import Traffic, count_banks, operands_of, put_old, size_of, widen
from wmma_ops.emulator.shared_names import SharedNames, Variable
from wmma_ops.emulator.timing import Trace

u8, u16, u32, i64 = np.uint8, np.uint16, np.uint32, np.int64

_WAVE_BITS = 12


@functools.cache
def _first(count: int) -> np.ndarray:
    """0, 1, … count − 1."""
    found = np.arange(count)
    found.setflags(write=False)
    return found


class _Accesses:
    """The latest accesses of one kind to each place, exactly enough to tell when another wave's was.

    Kept are the wave whose access has the most signals before it (a wave's `signals` count the barriers it has announced),
    with that number, and the most signals of all other waves. A place's entry is signals · 2¹² + wave.
    """

    def __init__(self, places: int):
        self.latest = np.full(places, -1 << _WAVE_BITS, dtype=i64)
        self.second = np.full(places, -1, dtype=i64)
        self.any = False

    def refine(self, times: int) -> None:
        self.latest, self.second = self.latest.repeat(times), self.second.repeat(times)

    def unordered(self, places, wave: int, waits: int):
        """Which places another wave may have met since the last barrier that `wave` has passed; None where none."""
        if not self.any:
            return None
        latest = self.latest[places]
        recent = latest >= (waits << _WAVE_BITS)
        if not np.count_nonzero(recent):
            return None
        mine = (latest & ((1 << _WAVE_BITS) - 1)) == wave
        bad = recent & (~mine | (self.second[places] >= waits))
        return bad if np.count_nonzero(bad) else None

    def note(self, places, wave: int, signals: int, waits: int) -> None:
        entry = signals << _WAVE_BITS | wave
        if self.any:
            latest = self.latest[places]
            other = (latest >= (waits << _WAVE_BITS)) & ((latest & ((1 << _WAVE_BITS) - 1)) != wave)
            if np.count_nonzero(other):
                theirs = latest >> _WAVE_BITS
                behind = other & (theirs > signals)
                second = self.second[places]
                lower = np.where(behind, np.maximum(second, signals), np.where(other, theirs, second))
                self.second[places] = lower
                self.latest[places] = np.where(behind, latest, entry)
                return
        self.any = True
        self.latest[places] = entry

    def other_wave(self, place: int, wave: int) -> str:
        latest = int(self.latest[place]) & ((1 << _WAVE_BITS) - 1)
        return f"wave {latest}" if latest != wave else "other waves"


class AwaitedWrite(Exception):
    """A write of the byte that was waited for."""

    place = ""  # source line and instruction


class SharedMemory:
    """A block's shared memory.

    Two accesses of different waves are ordered where the later wave has passed a barrier that the earlier one signalled
    after its access: the later one's waits exceed the number of signals that the earlier one had given.

    Watched are whole words, until an access touches less than one: bytes and halves may belong to different waves, so
    from then on smaller places are watched.
    """

    def __init__(self, size: int, names: SharedNames | None = None):
        self.size = size
        self.names = names
        words = (size + 3) // 4 + 4
        self.words = np.zeros(words, dtype=u32)
        self.bytes = self.words.view(u8)
        self.written = np.zeros(words * 4, dtype=bool)
        self.written_words = self.written.view(u32)
        self.unit = 4
        self.reads, self.writes, self.atomics = _Accesses(words), _Accesses(words), _Accesses(words)
        self.wave = self.signals = self.waits = 0
        self.traffic: Traffic | None = None  # counted where set
        self.trace: Trace | None = None  # likewise
        self.banks = 32
        self.unwritten: int | None = None  # the byte whose read was refused
        self.awaited: int | None = None  # a write of this byte raises AwaitedWrite
        self.arrivals: Arrivals | None = None  # where a load straight to shared memory was

    def _lanes(self, address, offset, size, mask, full, what):
        """(lanes, their byte addresses, the bits that are set in any address) of an access."""
        if np.shape(address) != mask.shape:
            address = np.broadcast_to(address, mask.shape)
        if full:
            lanes, at = _first(len(mask)), address.astype(i64)
        else:
            lanes = np.flatnonzero(mask)
            at = address[lanes].astype(i64)
        at += offset
        at &= 0xFFFFFFFF  # as the unit adds
        if len(at) and int(np.maximum.reduce(at)) + size > self.size:
            bad = at + size > self.size
            lane = int(lanes[np.argmax(bad)])
            raise OutOfBounds(
                f"lane {lane}: a {what} of {size} bytes at byte {self._named(int(at[np.argmax(bad)]))} of the block's "
                f"{self.size} bytes of shared memory" + ("" if self.size else "; the launch's shared=bytes gives some")
            )
        return lanes, at, int(np.bitwise_or.reduce(at))

    def _counted(self, lanes, at, size: int, is_store: bool) -> None:
        if self.traffic is not None:
            count_banks(self.traffic, at, size, self.banks, is_store)
        if self.trace is not None:
            self.trace.shared(lanes, at, size, is_store)

    def aligned(self, address, offset: int, align: int, mask) -> None:
        """Reports an address that is no multiple of `align`, of instructions that need one."""
        bad = mask & ((np.broadcast_to(address, mask.shape) + u32(offset)) % u32(align) != 0)
        if np.count_nonzero(bad):
            lane = int(np.argmax(bad))
            at = int(np.broadcast_to(address, mask.shape)[lane]) + offset & 0xFFFFFFFF
            raise EmulationError(f"lane {lane}: a transposed read at byte {self._named(at)}: no multiple of {align}")

    def _named(self, byte: int) -> str:
        """A byte's number, and where it lies if that is known."""
        found = self.names.at(byte) if self.names else ""
        return f"{byte} ({found})" if found else f"{byte}"

    def within(self, meant: tuple[Variable, ...], what: str, address, offsets, size: int, mask) -> None:
        """Reports an access that touches none of the variables which its place in the source means. (The compiler may
        join neighbouring accesses: one of them is meant.)"""
        lanes = np.flatnonzero(mask)
        first = np.broadcast_to(address, mask.shape)[lanes].astype(i64)
        inside = np.zeros(len(lanes), dtype=bool)
        for offset in offsets:
            at = (first + offset) & 0xFFFFFFFF
            for variable in meant:
                inside |= (at + size > variable.start) & (at < variable.stop)
        if not inside.all():
            which = int(np.argmin(inside))
            byte, names = int(first[which] + offsets[0]) & 0xFFFFFFFF, " and ".join(map(str, meant))
            raise OutOfBounds(
                f"lane {int(lanes[which])}: this {what} of {size} bytes at byte {self._named(byte)} of the block's "
                f"{self.size} bytes of shared memory is outside {names}, which it is meant for"
            )

    def _places(self, at, bits: int, size: int):
        """The watched places that accesses of `size` bytes touch, [accesses, places of one]."""
        unit = self.unit
        if size % unit or bits & (unit - 1):
            unit = 2 if size % 2 == 0 and not bits & 1 else 1
            for accesses in (self.reads, self.writes, self.atomics):
                accesses.refine(self.unit // unit)
            self.unit = unit
        first = at >> (unit.bit_length() - 1)
        return first[:, None] if size == unit else first[:, None] + _first(size // unit)

    def _check(self, accesses: _Accesses, places, lanes, what: str, how: str) -> None:
        bad = accesses.unordered(places, self.wave, self.waits)
        if bad is None:
            return
        which, column = divmod(int(np.argmax(bad)), bad.shape[1])
        place = int(places[which, column])
        raise Race(
            f"lane {int(lanes[which])}: this {what} of shared byte {self._named(self.unit * place)} meets what "
            f"{accesses.other_wave(place, self.wave)} {how} there with no barrier between"
        )

    def _access(self, kind: str, at, bits: int, size: int, lanes, *, loaded: bool = False) -> None:
        """Reports what races with this read, write or atomic, and remembers it. The write may be that of a load."""
        if self.arrivals is not None:
            self._check_arrivals(kind, at, size, lanes, loaded)
        if self.awaited is not None and kind != "read" and ((at <= self.awaited) & (self.awaited < at + size)).any():
            raise AwaitedWrite
        places = self._places(at, bits, size)
        self._check(self.writes, places, lanes, kind, "wrote")
        if kind != "atomic":
            self._check(self.atomics, places, lanes, kind, "wrote")
        if kind != "read":
            self._check(self.reads, places, lanes, kind, "read")
        own = {"read": self.reads, "write": self.writes, "atomic": self.atomics}[kind]
        own.note(places, self.wave, self.signals, self.waits)

    def _check_arrivals(self, kind: str, at, size: int, lanes, loaded: bool) -> None:
        """A wave's loads come in order: of them none meets another."""
        found = self.arrivals.meets(at, size, self.wave if loaded else None)
        if found is None:
            return
        which, word, wave = found
        byte = max(4 * word, int(at[which]))
        between = "" if wave == self.wave else " and a barrier after it"
        raise Race(
            f"lane {int(lanes[which])}: this {kind} of shared byte {self._named(byte)} meets a load straight to shared "
            f"memory that wave {wave} has not waited for: an s_waitcnt with vmcnt{between} stands between them"
        )

    def _initialised(self, ok, lanes, at, size) -> None:
        if not ok.all():
            which = int(np.argmin(ok))
            self.unwritten = int(at[which]) + int(np.argmin(self.written[at[which] : at[which] + size]))
            raise Uninitialised(
                f"lane {int(lanes[which])}: {size} bytes at byte {self._named(int(at[which]))} of shared memory are read, "
                "but were never written"
            )

    def load(self, address, offset, rows, kind, full, mask, uses=None) -> None:
        """`uses`, given the bytes of the result that were never written, tells whether the kernel uses one of them."""
        size = size_of(kind)
        lanes, at, bits = self._lanes(address, offset, size, mask, full, "read")
        if not len(at):
            return
        self._counted(lanes, at, size, False)
        whole = kind[0] == "b" and not bits & 3
        if whole:
            words = (at >> 2)[:, None] + _first(size // 4)
            ok = self.written_words[words] == 0x01010101
        else:
            ok = self.written[at[:, None] + np.arange(size)]
        if np.count_nonzero(ok) < ok.size:
            written = self.written[at[:, None] + np.arange(size)]
            if uses is None or kind[0] != "b" or uses(~written.all(axis=0)):
                self._initialised(written.all(axis=1), lanes, at, size)
        self._access("read", at, bits, size, lanes)
        if kind[0] != "b":
            raw = self.bytes[at]
            if size == 2:
                raw = raw.astype(u16) | (self.bytes[at + 1].astype(u16) << u16(8))
            rows[0][lanes] = widen(raw, kind, rows[0][lanes])
            return
        found = self.words[words] if whole else self.bytes[at[:, None] + np.arange(size)].view(u32)
        for j, row in enumerate(rows):
            if full:
                row[:] = found[:, j]
            else:
                row[lanes] = found[:, j]

    def store(self, address, offset, rows, kind, full, mask) -> None:
        size = size_of(kind)
        lanes, at, bits = self._lanes(address, offset, size, mask, full, "write")
        if not len(at):
            return
        self._counted(lanes, at, size, True)
        self._access("write", at, bits, size, lanes)
        if kind[0] != "b":
            value = rows[0][lanes]
            if kind in ("d16_hi", "u8_hi"):
                value = value >> u32(16)
            for j in range(size):
                self.bytes[at + j] = (value >> u32(8 * j)) & u32(0xFF)
                self.written[at + j] = True
        elif bits & 3:
            data = np.stack([row[lanes] for row in rows], axis=1).view(u8)
            self.bytes[at[:, None] + np.arange(size)] = data
            self.written[at[:, None] + np.arange(size)] = True
        else:
            for j, row in enumerate(rows):
                words = (at >> 2) + j
                self.words[words] = row if full else row[lanes]
                self.written_words[words] = 0x01010101

    def bring(self, address, rows, full: bool, mask) -> None:
        """A load straight to shared memory puts these words here, at a time before a wait of its wave for it is over."""
        size = 4 * len(rows)
        lanes, at, _ = self._lanes(address, 0, size, mask, full, "write")
        if not len(at):
            return
        self._counted(lanes, at, size, True)
        self._access("write", at, 0, size, lanes, loaded=True)
        words = (at >> 2)[:, None] + _first(len(rows))
        self.words[words] = np.stack([row[lanes] for row in rows], axis=1)
        self.written_words[words] = 0x01010101
        self.arrivals.add(self.wave, words.ravel())

    def issue(self) -> None:
        """The wave issues an access of vector memory, in a kernel that loads straight to shared memory."""
        if self.arrivals is None:
            self.arrivals = Arrivals(len(self.words))
        self.arrivals.issue(self.wave)

    def wait(self, left: int) -> None:
        """The wave waits until at most `left` accesses of vector memory are under way: those loads are its writes of now."""
        if self.arrivals is not None:
            for words in self.arrivals.wait(self.wave, left):
                self.writes.note(self._places(words << 2, 0, 4), self.wave, self.signals, self.waits)

    def atomic(self, address, offset, operation, rows, out, wide, mask) -> None:
        size = 8 if wide else 4
        lanes, at, bits = self._lanes(address, offset, size, mask, False, "atomic")
        if not len(at):
            return
        if bits & (size - 1):
            raise EmulationError(f"lane {int(lanes[np.argmax(at & (size - 1))])}: an atomic at an unaligned address")
        # Where bytes and halves are watched, an atomic of one of them is known by what it changes of the word.
        partial = self.unit < 4 and atomics.may_be_partial(operation)
        if not partial:
            self._access("atomic", at, bits, size, lanes)
        changed: list[tuple[int, int]] = []
        for lane, place in zip(lanes.tolist(), at.tolist(), strict=True):
            part = slice(place, place + size)
            old = int.from_bytes(self.bytes[part].tobytes(), "little")
            data, compare = operands_of(rows, lane, wide)
            new = atomics.result(operation, old, data, compare, wide)
            counts = atomics.bytes_that_count(operation, size, old, new, data)
            written = self.written[part]
            if not written.all() and (not written.any() or (counts & ~written).any()):
                self._initialised(np.zeros(1, bool), np.array([lane]), np.array([place]), size)
            self.bytes[part] = np.frombuffer(new.to_bytes(size, "little"), u8)
            changed += [(lane, place + i) for i in np.flatnonzero(counts).tolist()] if partial else []
            if out is not None:
                put_old(out, lane, old, wide)
        if changed:
            who, where = np.array(changed, dtype=i64).T
            self._access("atomic", where, 1, 1, who)
