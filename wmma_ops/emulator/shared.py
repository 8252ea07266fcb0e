"""A block's shared memory, watched: races, reads of what was never written, accesses outside."""

import numpy as np

from wmma_ops.emulator import atomics
from wmma_ops.emulator.arrivals import Arrivals
from wmma_ops.emulator.errors import EmulationError, OutOfBounds, Race, Uninitialised
from wmma_ops.emulator.memory import Traffic, count_banks, operands_of, put_old, put_small, size_of
from wmma_ops.emulator.shared_names import Meant, SharedNames
from wmma_ops.emulator.timing import Trace
from wmma_ops.emulator.touched import Touched, touched

u8, u16, u32, i64 = np.uint8, np.uint16, np.uint32, np.int64

_WAVE_BITS = 12
_WAVES = (1 << _WAVE_BITS) - 1


def _entry(signals: int, wave: int) -> int:
    return signals + 1 << _WAVE_BITS | wave


class _Accesses:
    """The latest accesses of one kind to each place, exactly enough to tell when another wave's was.

    Kept are the wave whose access has the most signals before it (a wave's `signals` count the barriers it has announced),
    with that number, and the most signals of all other waves. A place's entry is (signals + 1) · 2¹² + wave, or 0.
    """

    def __init__(self, places: int):
        self.latest, self.second = np.zeros(places, dtype=i64), np.zeros(places, dtype=i64)
        # Of all places: the most signals before an access, whose it was, and the most before one of another wave.
        self.newest, self.wave, self.of_others = -1, -1, -1

    def refine(self, times: int) -> None:
        self.latest, self.second = self.latest.repeat(times), self.second.repeat(times)

    def unordered(self, places, wave: int, waits: int):
        """Which places another wave may have met since the last barrier that `wave` has passed; None where none."""
        if self._others(wave) < waits:
            return None
        latest = self.latest.take(places)
        recent = latest >= _entry(waits, 0)
        if not np.count_nonzero(recent):
            return None
        mine = (latest & _WAVES) == wave
        bad = recent & (~mine | (self.second.take(places) > waits))
        return bad if np.count_nonzero(bad) else None

    def _others(self, wave: int) -> int:
        return self.of_others if wave == self.wave else self.newest

    def note(self, places, wave: int, signals: int, waits: int) -> None:
        entry = _entry(signals, wave)
        if self._others(wave) >= waits:
            latest = self.latest.take(places)
            other = (latest >= _entry(waits, 0)) & ((latest & _WAVES) != wave)
            if np.count_nonzero(other):
                theirs = latest >> _WAVE_BITS
                behind = other & (theirs > signals + 1)
                second = self.second.take(places)
                lower = np.where(behind, np.maximum(second, signals + 1), np.where(other, theirs, second))
                self.second[places] = lower
                self.put(places, np.where(behind, latest, entry), wave, signals)
                return
        self.put(places, entry, wave, signals)

    def put(self, places, entries, wave: int, signals: int) -> None:
        self.latest[places] = entries
        if wave != self.wave and signals < self.newest:
            self.of_others = max(self.of_others, signals)
        elif wave != self.wave:
            self.newest, self.wave, self.of_others = signals, wave, self.newest
        else:
            self.newest = signals

    def other_wave(self, place: int, wave: int) -> str:
        latest = int(self.latest[place]) & _WAVES
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
        self.bytes, self.halves = self.words.view(u8), self.words.view(u16)
        self.written = np.zeros(words * 4, dtype=bool)
        self.written_words = self.written.view(u32)
        self.initialised: set[Touched] = set()  # of those seen, all of whose bytes are
        self.unit = 4
        self.reads, self.writes, self.atomics = _Accesses(words), _Accesses(words), _Accesses(words)
        self.wave = self.signals = self.waits = 0
        self.traffic: Traffic | None = None  # counted where set
        self.trace: Trace | None = None  # likewise
        self.banks = 32
        self.unwritten: int | None = None  # the byte whose read was refused
        self.awaited: int | None = None  # a write of this byte raises AwaitedWrite
        self.arrivals: Arrivals | None = None  # where a load straight to shared memory was

    def _touched(self, address, offset: int, size: int, mask, full: bool, what: str) -> Touched:
        found = touched(address, offset, size, full, mask)
        if found.stop > self.size:
            bad = found.at + size > self.size
            lane = int(found.lanes[np.argmax(bad)])
            raise OutOfBounds(
                f"lane {lane}: a {what} of {size} bytes at byte {self._named(int(found.at[np.argmax(bad)]))} of the block's "
                f"{self.size} bytes of shared memory" + ("" if self.size else "; the launch's shared=bytes gives some")
            )
        return found

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

    def within(self, meant: Meant, what: str, address, offsets, size: int, mask) -> None:
        """Reports an access that touches none of the variables which its place in the source means, or that touches one
        and leaves it. (The compiler may join neighbouring accesses: one of them is meant then, and what is larger than
        each may leave it.)"""
        lanes = mask.nonzero()[0]
        first = np.broadcast_to(address, mask.shape)[lanes].astype(i64)
        inside = np.zeros(len(lanes), dtype=bool)
        names = " and ".join(map(str, meant.variables))

        def refuse(which: int, offset: int, how: str):
            byte = int(first[which] + offset) & 0xFFFFFFFF
            raise OutOfBounds(
                f"lane {int(lanes[which])}: this {what} of {size} bytes at byte {self._named(byte)} of the block's "
                f"{self.size} bytes of shared memory {how} {names}, which it is meant for"
            )

        for offset in offsets:
            at = (first + offset) & 0xFFFFFFFF
            touches, within = np.zeros((2, len(lanes)), dtype=bool)
            for variable in meant.variables:
                touches |= (at + size > variable.start) & (at < variable.stop)
                within |= (at >= variable.start) & (at + size <= variable.stop)
            inside |= touches
            if size <= meant.least and (leaves := touches & ~within).any():
                refuse(int(np.argmax(leaves)), offset, "reaches out of")
        if not inside.all():
            refuse(int(np.argmin(inside)), offsets[0], "is outside")

    def _places(self, access: Touched) -> np.ndarray:
        """The watched places that it touches: of all lanes the first, then the next."""
        bits = access.size | access.bits
        if bits & (self.unit - 1):
            unit = 1 if bits & 1 else 2
            for accesses in (self.reads, self.writes, self.atomics):
                accesses.refine(self.unit // unit)
            self.unit = unit
        return access.places(self.unit)

    def _check(self, accesses: _Accesses, places, access: Touched, what: str, how: str) -> None:
        bad = accesses.unordered(places, self.wave, self.waits)
        if bad is None:
            return
        bad, places = (x.reshape(-1, len(access.lanes)).T for x in (bad, places))
        which, column = divmod(int(np.argmax(bad)), bad.shape[1])
        place = int(places[which, column])
        raise Race(
            f"lane {int(access.lanes[which])}: this {what} of shared byte {self._named(self.unit * place)} meets what "
            f"{accesses.other_wave(place, self.wave)} {how} there with no barrier between"
        )

    def _access(self, kind: str, access: Touched, *, loaded: bool = False) -> None:
        """Reports what races with this read, write or atomic, and remembers it. The write may be that of a load."""
        if self.arrivals is not None:
            self._check_arrivals(kind, access, loaded)
        if self.awaited is not None and kind != "read" and (access.bytes == self.awaited).any():
            raise AwaitedWrite
        places = self._places(access)
        self._check(self.writes, places, access, kind, "wrote")
        if kind != "atomic":
            self._check(self.atomics, places, access, kind, "wrote")
        if kind != "read":
            self._check(self.reads, places, access, kind, "read")
        if kind == "write":  # what was checked has no recent one of another wave
            self.writes.put(places, _entry(self.signals, self.wave), self.wave, self.signals)
        else:
            own = self.reads if kind == "read" else self.atomics
            own.note(places, self.wave, self.signals, self.waits)

    def _check_arrivals(self, kind: str, access: Touched, loaded: bool) -> None:
        """A wave's loads come in order: of them none meets another."""
        found = self.arrivals.meets(access.at, access.size, self.wave if loaded else None)
        if found is None:
            return
        which, word, wave = found
        byte = max(4 * word, int(access.at[which]))
        between = "" if wave == self.wave else " and a barrier after it"
        raise Race(
            f"lane {int(access.lanes[which])}: this {kind} of shared byte {self._named(byte)} meets a load straight to "
            f"shared memory that wave {wave} has not waited for: an s_waitcnt with vmcnt{between} stands between them"
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
        access = self._touched(address, offset, size, mask, full, "read")
        lanes, at = access.lanes, access.at
        if not len(at):
            return
        self._counted(lanes, at, size, False)
        if access not in self.initialised:
            if access.are_words:
                ok = self.written_words.take(access.words) == 0x01010101
            else:
                ok = self.written[access.bytes]
            if np.count_nonzero(ok) == ok.size:
                self.initialised.add(access)
            else:
                written = self.written[access.bytes]
                if uses is None or kind[0] != "b" or uses(~written.all(axis=0)):
                    self._initialised(written.all(axis=1), lanes, at, size)
        self._access("read", access)
        if kind[0] != "b":
            if size == 2 and not access.bits & 1:
                raw = self.halves.take(access.places(2))
            else:
                raw = self.bytes[at]
                if size == 2:
                    raw = raw.astype(u16) | (self.bytes[at + 1].astype(u16) << u16(8))
            put_small(rows[0], lanes, raw, kind)
            return
        found = self.words.take(access.words) if access.are_words else self.bytes[access.bytes].view(u32).T
        for row, words in zip(rows, found, strict=True):
            if full:
                row[:] = words
            else:
                row[lanes] = words

    def store(self, address, offset, rows, kind, full, mask) -> None:
        size = size_of(kind)
        access = self._touched(address, offset, size, mask, full, "write")
        lanes, at = access.lanes, access.at
        if not len(at):
            return
        self._counted(lanes, at, size, True)
        self._access("write", access)
        if kind[0] != "b":
            value = rows[0][lanes]
            if kind in ("d16_hi", "u8_hi"):
                value = value >> u32(16)
            if size == 2 and not access.bits & 1:
                self.halves[access.places(2)] = value
            else:
                for j in range(size):
                    self.bytes[at + j] = value >> u32(8 * j)
            self.written[access.bytes] = True
        elif not access.are_words:
            data = np.stack([row[lanes] for row in rows], axis=1).view(u8)
            self.bytes[access.bytes] = data
            self.written[access.bytes] = True
        else:
            for row, words in zip(rows, access.words, strict=True):
                self.words[words] = row if full else row[lanes]
            self._write_words(access)

    def _write_words(self, access: Touched) -> None:
        if access not in self.initialised:
            self.written_words[access.words] = 0x01010101
            self.initialised.add(access)

    def bring(self, address, rows, full: bool, mask) -> None:
        """A load straight to shared memory puts these words here, at a time before a wait of its wave for it is over."""
        size = 4 * len(rows)
        access = self._touched(address, 0, size, mask, full, "write")
        if not len(access.at):
            return
        self._counted(access.lanes, access.at, size, True)
        self._access("write", access, loaded=True)
        for row, words in zip(rows, access.words, strict=True):
            self.words[words] = row[access.lanes]
        self._write_words(access)
        self.arrivals.add(self.wave, access.places(4))

    def issue(self) -> None:
        """The wave issues an access of vector memory, in a kernel that loads straight to shared memory."""
        if self.arrivals is None:
            self.arrivals = Arrivals(len(self.words))
        self.arrivals.issue(self.wave)

    def wait(self, left: int) -> None:
        """The wave waits until at most `left` accesses of vector memory are under way: those loads are its writes of now."""
        if self.arrivals is not None:
            for words in self.arrivals.wait(self.wave, left):
                places = self._places(Touched(words, words << 2, 4))
                self.writes.note(places, self.wave, self.signals, self.waits)

    def atomic(self, address, offset, operation, rows, out, wide, mask) -> None:
        size = 8 if wide else 4
        access = self._touched(address, offset, size, mask, False, "atomic")
        lanes, at = access.lanes, access.at
        if not len(at):
            return
        if access.bits & (size - 1):
            raise EmulationError(f"lane {int(lanes[np.argmax(at & (size - 1))])}: an atomic at an unaligned address")
        # Where bytes and halves are watched, an atomic of one of them is known by what it changes of the word.
        partial = self.unit < 4 and atomics.may_be_partial(operation)
        if not partial:
            self._access("atomic", access)
        changed: list[tuple[int, int]] = []
        before: list[int] = []
        given = zip(lanes.tolist(), at.tolist(), operands_of(rows, lanes, wide), strict=True)
        for lane, place, (data, compare) in given:
            part = slice(place, place + size)
            old = int.from_bytes(self.bytes[part].tobytes(), "little")
            new = atomics.result(operation, old, data, compare, wide)
            counts = atomics.bytes_that_count(operation, size, old, new, data)
            written = self.written[part]
            if not written.all() and (not written.any() or (counts & ~written).any()):
                self._initialised(np.zeros(1, bool), np.array([lane]), np.array([place]), size)
            self.bytes[part] = np.frombuffer(new.to_bytes(size, "little"), u8)
            changed += [(lane, place + i) for i in np.flatnonzero(counts).tolist()] if partial else []
            before.append(old)
        if out is not None:
            put_old(out, lanes, before, wide)
        if changed:
            who, where = np.array(changed, dtype=i64).T
            self._access("atomic", Touched(who, where, 1))
