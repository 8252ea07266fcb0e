"""The waves of one compute unit (on RDNA of a WGP) against each other: who issues when, and what held whom.

Waves issue in order, each at most one instruction a cycle (on CDNA in every fourth, which is its SIMD's turn). An
instruction issues when its operands are there, its SIMD's port is free (one for VALU and matrix instructions, one for
shared and vector memory, one for scalars), the unit behind it takes it, and, where several waves could, none of a higher
priority or a lower number does.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from wmma_ops.emulator.timing.memory import Memory
from wmma_ops.emulator.timing.operations import REGISTERS, Executed, Operation
from wmma_ops.emulator.timing.rules import Rules

_COUNTERS = ("vector", "loads", "stores", "lgkm", "shared", "scalar")
_PORTS = {"vector": 0, "transcendental": 0, "packed": 0, "matrix": 0, "shared": 1, "memory": 1}
_KEPT = 64  # of a counter's, at most so many are told apart

# What a register waits for stands beside the cycle, in its low bits.
_WHAT = ("issue", "vector result", "matrix result", "scalar result")
_VECTOR, _MATRIX, _SCALAR = 1, 2, 3


class Passage(NamedTuple):
    """A wave comes to a basic block."""

    basic_block: int
    at: int
    matrix: int  # cycles of the matrix pipe that the wave has had


class Span(NamedTuple):
    """What a wave did or waited for, to draw it."""

    wave: int
    start: int
    stop: int
    what: str  # a unit; or, of a wait, its reason
    waits: bool
    number: int  # of the instruction


@dataclass
class Run:
    """What came of the waves that ran."""

    cycles: int = 0
    matrix_cycles: int = 0  # that a matrix pipe was busy, the average of the SIMDs that have waves
    issued: int = 0
    simds: int = 1  # that have waves
    of: int = 1  # SIMDs: the i-th wave is on SIMD i modulo this
    counts: dict[int, int] = field(default_factory=dict)  # instruction: how often it was issued
    stalls: dict[int, dict[str, int]] = field(default_factory=dict)  # instruction: what held it: cycles
    conflicts: dict[int, int] = field(
        default_factory=dict
    )  # instruction: cycles of shared memory's banks beyond the least
    passages: list[list[Passage]] = field(default_factory=list)  # of each wave
    ends: list[int] = field(default_factory=list)  # of each wave
    bytes_asked: int = 0  # of memory
    bytes_fetched: int = 0  # from beyond the first cache

    @property
    def share(self) -> float:
        """Of the matrix pipes' time."""
        return self.matrix_cycles / self.cycles if self.cycles else 0.0


class _Wave:
    __slots__ = ("added", "block", "counters", "index", "matrix", "matrix_end", "next", "now", "passages", "priority",
                 "ready", "simd", "stream")  # fmt: skip

    def __init__(self, index: int, block: int, simd: "_Simd", stream: Iterator[Executed]):
        self.index, self.block, self.simd, self.stream = index, block, simd, stream
        self.now = 0  # may issue from here on
        self.priority = 0
        self.ready = [0] * REGISTERS  # from when they are, times 4, and what they wait for
        self.added = [0] * REGISTERS  # when a matrix instruction may add to them; 0: see `ready`
        self.matrix_end = self.matrix = 0
        self.counters: dict[str, deque[int]] = {name: deque() for name in _COUNTERS}
        self.passages: list[Passage] = []
        self.next = next(stream, None)


class _Simd:
    __slots__ = ("busy", "matrix", "path", "ports", "used")

    def __init__(self, path: "_Path"):
        self.path = path
        self.ports = [0, 0, 0]  # free from
        self.matrix = self.busy = 0  # the pipe is free from, was busy for
        self.used = False


class _Path:
    """Of SIMDs to shared memory."""

    def __init__(self):
        self.free = 0  # for reads, from
        self.queue: deque[int] = deque()  # when each that waits will have been served


class _Unit:
    def __init__(self, rules: Rules, lanes: int):
        self.rules, self.lanes = rules, lanes
        paths = [_Path() for _ in range(rules.simds // rules.lds_sharing)]
        self.simds = [_Simd(paths[i // rules.lds_sharing]) for i in range(rules.simds)]
        self.banks = self.writes = 0  # shared memory's banks, and the way of what is written to them, are free from
        self.conflicts: dict[int, int] = {}
        self.memory = Memory(rules, lanes)

    # When an operation could issue: (cycle, what holds it).

    def earliest(self, wave: _Wave, op: Operation) -> tuple[int, str]:
        at, why, ready, added, unit = wave.now, "issue", wave.ready, wave.added, op.unit
        if unit == "wait":
            for name, count in op.waits:
                queue = wave.counters[name]
                if len(queue) > count and queue[-1 - count] > at:
                    at, why = queue[-1 - count], _WAITS[name]
            return at, why
        latest = 0
        for registers in op.reads:
            found = max(ready[registers])
            if found > latest:
                latest = found
        for registers in op.adds_to:
            found = max(ready[registers])
            if found > latest:
                sooner = max(added[registers]) * 4 + _MATRIX
                latest = max(latest, min(found, sooner) if sooner > _MATRIX else found)
        if latest >> 2 > at:
            at, why = latest >> 2, _WHAT[latest & 3]
        rules, simd = self.rules, wave.simd
        if unit == "matrix":
            free = max(simd.ports[0], simd.matrix)
            if free > at:
                return free, "matrix pipe" if free == simd.matrix else "port"
            return at, why
        for registers in op.writes:  # in order behind a longer one
            found = max(added[registers])
            if found > at:
                at, why = found, "matrix result"
        free = simd.ports[_PORTS.get(unit, 2)]
        if free > at:
            at, why = free, "port"
        if unit == "vector" or unit == "transcendental":
            if not rules.valu_beside and simd.matrix > at:
                at, why = simd.matrix, "matrix pipe"
        elif unit == "packed":
            behind = max(simd.matrix, wave.matrix_end + rules.packed_behind if wave.matrix_end else 0)
            if behind > at:
                at, why = behind, "packed behind matrix"
        elif unit == "shared":
            queue = simd.path.queue
            while queue and queue[0] <= at:
                queue.popleft()
            if len(queue) >= rules.lds_queue:
                at, why = queue[len(queue) - rules.lds_queue], "shared memory's queue"
        elif unit == "memory":
            room = self.memory.room(at)
            if room > at:
                at, why = room, "memory's queue"
        return at, why

    # What it does there; gives the cycle until which it holds its unit.

    def issue(self, wave: _Wave, executed: Executed, at: int) -> int:
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
            self._give(wave, op, at + max(held, rules.valu_latency), _VECTOR)
            return at + held
        if unit == "shared":
            return self._shared(wave, executed, at)
        if unit == "memory":
            simd.ports[1] = at + rules.vmem_issue
            self._count(wave, ("vector", "stores" if op.is_store else "loads"), self.memory.take(at, executed))
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
            self._give(wave, op, at + rules.scalar_latency, _SCALAR)
        return at + 1

    def _matrix(self, wave: _Wave, op: Operation, at: int) -> int:
        rules, simd = self.rules, wave.simd
        end = simd.matrix = at + op.cycles
        simd.busy += op.cycles
        wave.matrix += op.cycles
        simd.ports[0] = at + (rules.valu_beside or op.cycles)
        wave.matrix_end = end
        ready, added = (end + rules.matrix_to_valu) * 4 + _MATRIX, end + rules.matrix_latency
        for registers in op.writes:
            count = registers.stop - registers.start
            wave.ready[registers] = [ready] * count
            wave.added[registers] = [added] * count
        return end

    def _shared(self, wave: _Wave, executed: Executed, at: int) -> int:
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
        self._count(wave, ("lgkm", "shared"), served + (0 if op.is_store else rules.lds_latency))
        return served

    def _give(self, wave: _Wave, op: Operation, when: int, what: int) -> None:
        for registers in op.writes:
            count = registers.stop - registers.start
            wave.ready[registers] = [when * 4 + what] * count
            wave.added[registers] = [0] * count

    def _count(self, wave: _Wave, counters: tuple[str, ...], when: int) -> None:
        for name in counters:
            queue = wave.counters[name]
            queue.append(max(when, queue[-1]) if queue else when)
            if len(queue) > _KEPT:
                queue.popleft()


class Stamped(NamedTuple):
    """An instruction of a wave that a thread trace has seen."""

    executed: Executed
    at: int | None  # when it issued; None: it leaves no stamp


def predicted(
    waves: Sequence[tuple[int, Sequence[Stamped]]], rules: Rules, lanes: int
) -> list[list[tuple[int, str] | None]]:
    """When, by the rules, each stamped instruction of each wave, given with its SIMD, could have issued, and what held it,
    if all others had issued when they did; None of one without a stamp."""
    unit = _Unit(rules, lanes)
    all_waves = [_Wave(i, 0, unit.simds[simd], iter(())) for i, (simd, _) in enumerate(waves)]
    found: list[list[tuple[int, str] | None]] = [[None] * len(stamped) for _, stamped in waves]
    steps: list[tuple[int, int, int]] = []
    for index, (_, stamped) in enumerate(waves):
        at = stamped[0].at or 0 if stamped else 0
        all_waves[index].now = at
        for i in range(len(stamped)):  # what has no stamp comes with what follows it
            following = next((x.at for x in stamped[i:] if x.at is not None), None)
            if following is not None:
                steps.append((following, index, i))
    for _, index, i in sorted(steps):
        wave, one = all_waves[index], waves[index][1][i]
        at, why = unit.earliest(wave, one.executed.operation)
        if one.at is not None:
            found[index][i] = at, why
            at = one.at
        unit.issue(wave, one.executed, at)
    return found


_WAITS = {
    "vector": "wait for memory",
    "loads": "wait for memory",
    "stores": "wait for stores",
    "lgkm": "wait for shared memory or scalars",
    "shared": "wait for shared memory",
    "scalar": "wait for scalars",
}
BARRIER = "other waves"


def run(
    waves: Sequence[tuple[int, Iterable[Executed]]],
    rules: Rules,
    lanes: int,
    spans: Callable[[Span], None] | None = None,
) -> Run:
    """Runs the waves, each given with its block, of blocks that are resident together; the i-th on SIMD i modulo their
    number. `spans` gets what each did, where it is drawn."""
    unit, found = _Unit(rules, lanes), Run()
    all_waves = [_Wave(i, block, unit.simds[i % rules.simds], iter(stream)) for i, (block, stream) in enumerate(waves)]
    found.ends = [0] * len(all_waves)
    arrived: dict[int, list[_Wave]] = {}
    alive: dict[int, int] = {}
    for wave in all_waves:
        alive[wave.block] = alive.get(wave.block, 0) + 1
        wave.simd.used = True
    heap = [(0, 0, wave.index) for wave in all_waves]
    counts, stalls = found.counts, found.stalls

    def held(wave: _Wave, number: int, why: str, until: int) -> None:
        of = stalls.setdefault(number, {})
        of[why] = of.get(why, 0) + until - wave.now
        if spans is not None:
            spans(Span(wave.index, wave.now, until, why, True, number))

    def meet(block: int, now: int) -> None:
        """Lets a block's waves go on where all that have not ended wait."""
        here = arrived.get(block, [])
        if here and len(here) == alive[block]:
            for one in here:
                held(one, waits_at[one.index], BARRIER, now + rules.barrier)
                one.now = now + rules.barrier
                heapq.heappush(heap, (one.now, -one.priority, one.index))
            arrived[block] = []

    waits_at = [0] * len(all_waves)  # the number of the barrier
    while heap:
        now, _, index = heapq.heappop(heap)
        wave = all_waves[index]
        while True:
            executed = wave.next
            if executed is None or executed.operation.unit == "end":
                found.ends[index] = wave.now
                alive[wave.block] -= 1
                meet(wave.block, wave.now)
                break
            op, number = executed.operation, executed.number
            at, why = unit.earliest(wave, op)
            if at > now and heap and heap[0] < (at, -wave.priority, index):  # another one comes first
                heapq.heappush(heap, (at, -wave.priority, index))
                break
            if at > wave.now:
                held(wave, number, why, at)
            if executed.enters >= 0:
                wave.passages.append(Passage(executed.enters, at, wave.matrix))
            counts[number] = counts.get(number, 0) + 1
            wave.next = next(wave.stream, None)
            if op.unit == "barrier":
                wave.now, waits_at[index] = at, number
                arrived.setdefault(wave.block, []).append(wave)
                meet(wave.block, at)
                break
            until = unit.issue(wave, executed, at)
            if spans is not None:
                spans(Span(index, at, until, op.unit, False, number))
            now = wave.now
            if heap and heap[0] < (now, -wave.priority, index):
                heapq.heappush(heap, (now, -wave.priority, index))
                break
    used = [simd for simd in unit.simds if simd.used]
    found.issued = sum(counts.values())
    found.simds, found.of = max(len(used), 1), rules.simds
    found.cycles = max([0, *found.ends, *(simd.matrix for simd in used)])
    found.matrix_cycles = sum(simd.busy for simd in used) // found.simds
    found.passages = [wave.passages for wave in all_waves]
    found.conflicts = unit.conflicts
    found.bytes_asked, found.bytes_fetched = unit.memory.asked, unit.memory.fetched
    return found
