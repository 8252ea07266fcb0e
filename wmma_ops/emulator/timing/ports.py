"""Who may issue when: a compute unit's waves, its SIMDs with a port for each kind of instruction, and what lies behind them.

An instruction issues when its operands are there, its SIMD's port is free (one for VALU and matrix instructions, one for
shared and vector memory, one for scalars), and the unit behind it takes it. So it is on CDNA; RDNA's is queues.py.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from wmma_ops.emulator.timing.memory import Memory
from wmma_ops.emulator.timing.operations import REGISTERS, Executed, Operation, Slices
from wmma_ops.emulator.timing.rules import Rules

_COUNTERS = ("vector", "loads", "stores", "lgkm", "shared", "scalar")
_PORTS = {"vector": 0, "transcendental": 0, "packed": 0, "matrix": 0, "shared": 1, "memory": 1}
_KEPT = 64  # accesses of a counter that are kept

# What a register waits for stands beside the cycle, in its low bits.
WHAT = ("issue", "vector result", "matrix result", "scalar result")
VECTOR, MATRIX, SCALAR = 1, 2, 3

WAITS = {
    "vector": "wait for memory",
    "loads": "wait for memory",
    "stores": "wait for stores",
    "lgkm": "wait for shared memory or scalars",
    "shared": "wait for shared memory",
    "scalar": "wait for scalars",
}


def latest(of: list[int], registers: Slices) -> int:
    """The latest of what a list of all registers has of some."""
    found = 0
    for one in registers:
        there = max(of[one])
        if there > found:
            found = there
    return found


def awaited(ready: list[int], added: list[int], op: Operation) -> int:
    """From when an operation's operands are there, and what they wait for, as `ready` has it."""
    found = latest(ready, op.reads)
    for registers in op.adds_to:
        there = max(ready[registers])
        if there > found:
            sooner = max(added[registers])
            found = max(found, min(there, sooner * 4 + MATRIX) if sooner else there)
    return found


class Passage(NamedTuple):
    """A wave comes to a basic block."""

    basic_block: int
    at: int
    matrix: int  # cycles of the matrix pipe that the wave has had


class Wave:
    __slots__ = ("added", "block", "counters", "index", "matrix", "matrix_end", "next", "now", "passages", "priority",
                 "ready", "simd", "stream")  # fmt: skip

    def __init__(self, index: int, block: int, simd: "Simd", stream: Iterator[Executed]):
        self.index, self.block, self.simd, self.stream = index, block, simd, stream
        self.now = 0  # may issue from here on
        self.priority = 0
        self.ready = [0] * REGISTERS  # from when they are, times 4, and what they wait for
        self.added = [0] * REGISTERS  # when a matrix instruction may add to them; 0: see `ready`
        self.matrix_end = self.matrix = 0
        self.counters: dict[str, deque[int]] = {name: deque() for name in _COUNTERS}
        self.passages: list[Passage] = []
        self.next = next(stream, None)


class Simd:
    __slots__ = ("busy", "cache", "matrix", "path", "ports", "used")

    def __init__(self, path: "Path", cache: Memory):
        self.path, self.cache = path, cache
        self.ports = [0, 0, 0]  # free from
        self.matrix = self.busy = 0  # the pipe is free from, was busy for
        self.used = False


class Path:
    """Of SIMDs to shared memory."""

    def __init__(self):
        self.free = 0  # for reads, from
        self.queue: deque[int] = deque()  # when each that waits will have been served


class Unit:
    def __init__(self, rules: Rules, lanes: int):
        self.rules, self.lanes = rules, lanes
        paths = [Path() for _ in range(rules.simds // rules.lds_sharing)]
        self.caches = [Memory(rules, lanes) for _ in range(rules.caches)]
        self.simds = [
            self._simd(paths[i // rules.lds_sharing], self.caches[i * rules.caches // rules.simds])
            for i in range(rules.simds)
        ]
        self.banks = self.writes = 0  # shared memory's banks, and the way of what is written to them, are free from
        self.conflicts: dict[int, int] = {}

    def _simd(self, path: Path, cache: Memory) -> Simd:
        return Simd(path, cache)

    def wave(self, index: int, block: int, simd: int, stream: Iterator[Executed]) -> Wave:
        return Wave(index, block, self.simds[simd % len(self.simds)], stream)

    # When an operation could issue: (cycle, what holds it).

    def earliest(self, wave: Wave, op: Operation) -> tuple[int, str]:
        at, why, unit = wave.now, "issue", op.unit
        if unit == "wait":
            for name, count in op.waits:
                queue = wave.counters[name]
                if len(queue) > count and queue[-1 - count] > at:
                    at, why = queue[-1 - count], WAITS[name]
            return at, why
        until = awaited(wave.ready, wave.added, op)
        if until >> 2 > at:
            at, why = until >> 2, WHAT[until & 3]
        rules, simd = self.rules, wave.simd
        if unit == "matrix":
            free = max(simd.ports[0], simd.matrix)
            if free > at:
                return free, "matrix pipe" if free == simd.matrix else "port"
            return at, why
        longer = latest(wave.added, op.writes)  # in order behind it
        if longer > at:
            at, why = longer, WHAT[MATRIX]
        if unit == "packed":
            behind = max(simd.matrix, wave.matrix_end + rules.packed_behind if wave.matrix_end else 0)
            if behind > at:
                at, why = behind, "packed behind matrix"
        until, what = self.taken(simd, unit, at)
        return (until, what) if until > at else (at, why)

    def taken(self, simd: Simd, unit: str, at: int) -> tuple[int, str]:
        """From when the SIMD's port and the queue behind it take one."""
        why, free = "port", simd.ports[_PORTS.get(unit, 2)]
        at = max(at, free)
        if unit == "shared":
            queue = simd.path.queue
            while queue and queue[0] <= at:
                queue.popleft()
            if len(queue) >= self.rules.lds_queue:
                at, why = queue[len(queue) - self.rules.lds_queue], "shared memory's queue"
        elif unit == "memory":
            room = simd.cache.room(at)
            if room > at:
                at, why = room, "memory's queue"
        return at, why

    # What it does there; gives the cycle until which it holds its unit.

    def issue(self, wave: Wave, executed: Executed, at: int) -> int:
        op, rules, simd = executed.operation, self.rules, wave.simd
        wave.now = at + rules.issue
        unit = op.unit
        if unit == "matrix":
            return self._matrix(wave, op, at)
        if unit == "vector" or unit == "packed" or unit == "transcendental":
            held = rules.transcendental if unit == "transcendental" else rules.valu
            simd.ports[0] = at + held
            if unit == "packed" and simd.matrix < at + held:
                simd.matrix = at + held
            self._give(wave, op, at + max(held, rules.valu_latency), VECTOR)
            return at + held
        if unit == "shared":
            return self._shared(wave, executed, at)
        if unit == "memory":
            simd.ports[1] = at + rules.vmem_issue
            self._count(wave, ("vector", "stores" if op.is_store else "loads"), simd.cache.take(at, executed))
            return at + rules.vmem_issue
        if unit == "nop":
            wave.now = at + op.cycles * rules.nop
        elif unit == "sleep":
            wave.now = at + 64 * op.cycles
        elif unit == "scalar_memory":
            simd.ports[2] = at + 1
            self._count(wave, ("lgkm", "scalar"), at + rules.scalar_memory_latency)
        else:
            if unit == "priority":
                wave.priority = op.priority
            simd.ports[2] = at + 1
            self._give(wave, op, at + rules.scalar_latency, SCALAR)
        return at + 1

    def _matrix(self, wave: Wave, op: Operation, at: int) -> int:
        rules, simd = self.rules, wave.simd
        end = simd.matrix = at + op.cycles
        simd.busy += op.cycles
        wave.matrix += op.cycles
        simd.ports[0] = at + rules.valu_beside
        wave.matrix_end = end
        self._write(wave, op, (end + rules.matrix_to_valu) * 4 + MATRIX, end + rules.matrix_latency)
        return end

    def _shared(self, wave: Wave, executed: Executed, at: int) -> int:
        op, rules, path = executed.operation, self.rules, wave.simd.path
        size = op.size * (self.lanes if executed.lanes is None else executed.lanes)
        wave.simd.ports[1] = at + rules.lds_issue
        banks = least = -(-size // rules.lds_bytes)
        if executed.shared_cycles is not None and executed.shared_cycles != least:
            banks = executed.shared_cycles
            self.conflicts[executed.number] = self.conflicts.get(executed.number, 0) + max(banks - least, 0)
        start = max(at, self.banks)
        self.banks = start + banks
        if op.is_store:  # its data go first, and hold the wave
            self.writes = max(at, self.writes) + -(-size // rules.lds_written)
            held = at + rules.lds_write_address + -(-size // rules.lds_write_bytes)
            wave.now = served = max(self.banks, self.writes, held)
        else:
            path.free = max(max(start, path.free) + -(-size // rules.lds_path), self.banks)
            served = path.free
        path.queue.append(served)
        self._count(wave, ("lgkm", "shared"), served + (rules.lds_store_latency if op.is_store else rules.lds_latency))
        return served

    def _give(self, wave: Wave, op: Operation, when: int, what: int) -> None:
        self._write(wave, op, when * 4 + what, 0)

    def _write(self, wave: Wave, op: Operation, ready: int, added: int) -> None:
        for registers in op.writes:
            count = registers.stop - registers.start
            wave.ready[registers] = [ready] * count
            wave.added[registers] = [added] * count

    def _count(self, wave: Wave, counters: tuple[str, ...], when: int) -> None:
        for name in counters:
            queue = wave.counters[name]
            queue.append(max(when, queue[-1]) if queue else when)
            if len(queue) > _KEPT:
                queue.popleft()
