"""The waves of one compute unit (on RDNA of a WGP) against each other: who issues when, and what held whom.

Waves issue in order, at most one instruction a cycle each. An instruction issues when its operands are there, its SIMD's
port is free (one for VALU and matrix instructions, one for shared and vector memory, one for scalars), the unit behind it
takes it, and, where several waves could, none of a higher priority or an earlier turn does.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from wmma_ops.emulator.timing.operations import Executed, Operation
from wmma_ops.emulator.timing.rules import Rules

_COUNTERS = ("vector", "loads", "stores", "lgkm", "shared", "scalar")
_PORT = {"vector": "v", "transcendental": "v", "packed": "v", "matrix": "v", "shared": "m", "memory": "m"}


@dataclass
class Timing:
    """Of the waves that ran."""

    cycles: int = 0
    matrix_cycles: int = 0  # that a matrix pipe was busy, the average of the SIMDs that have waves
    issued: int = 0
    stalls: dict[tuple[str, str], int] = field(default_factory=dict)  # (instruction, what held it): cycles

    @property
    def share(self) -> float:
        """Of the matrix pipes' time."""
        return self.matrix_cycles / self.cycles if self.cycles else 0.0


class _Wave:
    def __init__(self, index: int, block: int, simd: "_Simd", stream: Iterator[Executed]):
        self.index, self.block, self.simd, self.stream = index, block, simd, stream
        self.now = 0  # may issue from here on
        self.priority = 0
        self.ready: dict[str, tuple[int, str]] = {}  # register: from when, and what it waits for
        self.added: dict[str, int] = {}  # register: when a matrix instruction may add to it
        self.matrix_end = 0
        self.counters: dict[str, deque[int]] = {name: deque() for name in _COUNTERS}
        self.next = next(stream, None)


class _Simd:
    def __init__(self, path: "_Path"):
        self.path = path
        self.port = {"v": 0, "m": 0, "s": 0}
        self.matrix = self.busy = 0  # the pipe is free from, was busy for
        self.used = False


class _Path:
    """Of SIMDs to shared memory."""

    def __init__(self):
        self.free = 0
        self.queue: deque[int] = deque()  # when each that waits will have been served


class _Memory:
    """Vector memory: a queue, then what may be on its way."""

    def __init__(self, rules: Rules):
        self.rules = rules
        self.queue: deque[int] = deque()  # when each leaves it
        self.coming: deque[tuple[int, int]] = deque()  # (when it is there, bytes)
        self.bytes = self.path = 0

    def room(self, now: int) -> int:
        """From when the queue takes one more."""
        while self.queue and self.queue[0] <= now:
            self.queue.popleft()
        return now if len(self.queue) < self.rules.vmem_queue else self.queue[len(self.queue) - self.rules.vmem_queue]

    def take(self, now: int, size: int) -> int:
        """When the data are there."""
        start = max(now, self.path)
        while self.coming and (self.coming[0][0] <= start or self.bytes + size > self.rules.vmem_bytes):
            done, freed = self.coming.popleft()
            start, self.bytes = max(start, done), self.bytes - freed
        self.path = start + -(-size // self.rules.vmem_path)
        done = max(start + self.rules.vmem_latency, self.coming[-1][0] if self.coming else 0)
        self.coming.append((done, size))
        self.bytes += size
        self.queue.append(start)
        return done


class _Unit:
    def __init__(self, rules: Rules, lanes: int):
        self.rules, self.lanes = rules, lanes
        paths = [_Path() for _ in range(rules.simds // rules.lds_sharing)]
        self.simds = [_Simd(paths[i // rules.lds_sharing]) for i in range(rules.simds)]
        self.banks = 0  # are free from
        self.memory = _Memory(rules)
        self.timing = Timing()

    # When an operation could issue: (cycle, what holds it).

    def earliest(self, wave: _Wave, op: Operation) -> tuple[int, str]:
        at, why = wave.now, "issue"
        for name in op.reads:
            when, what = wave.ready.get(name, (0, ""))
            if op.unit == "matrix" and name in op.adds_to:
                when = min(when, wave.added.get(name, when))
            if when > at:
                at, why = when, what
        for name in op.writes:  # in order behind a longer one
            when = wave.added.get(name, 0)
            if op.unit != "matrix" and when > at:
                at, why = when, "matrix result"
        if op.unit == "wait":
            for name, count in op.waits:
                queue = wave.counters[name]
                if len(queue) > count and queue[len(queue) - count - 1] > at:
                    at, why = queue[len(queue) - count - 1], f"wait for {name}"
            return at, why
        simd, rules = wave.simd, self.rules
        port = simd.port[_PORT.get(op.unit, "s")]
        if port > at:
            at, why = port, "port"
        if op.unit == "matrix" or (op.unit == "vector" and not rules.valu_beside):
            if simd.matrix > at:
                at, why = simd.matrix, "matrix pipe"
        elif op.unit == "packed":
            behind = max(simd.matrix, wave.matrix_end + rules.packed_behind if wave.matrix_end else 0)
            if behind > at:
                at, why = behind, "packed behind matrix"
        elif op.unit == "shared":
            queue = simd.path.queue
            while queue and queue[0] <= at:
                queue.popleft()
            if len(queue) >= rules.lds_queue:
                at, why = queue[len(queue) - rules.lds_queue], "shared memory's queue"
        elif op.unit == "memory":
            room = self.memory.room(at)
            if room > at:
                at, why = room, "memory's queue"
        return at, why

    # What it does there.

    def issue(self, wave: _Wave, executed: Executed, at: int) -> None:
        op, rules, simd = executed.operation, self.rules, wave.simd
        wave.now = at + 1
        unit = op.unit
        if unit in ("vector", "packed", "transcendental"):
            held = rules.transcendental if unit == "transcendental" else rules.valu
            simd.port["v"] = at + held
            if unit == "packed":
                simd.matrix = max(simd.matrix, at + held)
            self._give(wave, op, at + max(held, rules.valu_latency), "vector result")
        elif unit == "matrix":
            self._matrix(wave, op, at)
        elif unit == "shared":
            self._shared(wave, executed, at)
        elif unit == "memory":
            self._memory(wave, executed, at)
        elif unit == "scalar_memory":
            simd.port["s"] = at + 1
            self._count(wave, ("lgkm", "scalar"), at + rules.scalar_memory_latency)
        elif unit == "nop":
            wave.now = at + op.cycles * rules.nop
        elif unit == "sleep":
            wave.now = at + 64 * op.cycles
        elif unit == "priority":
            wave.priority = op.priority
        else:
            simd.port["s"] = at + 1
            self._give(wave, op, at + rules.scalar_latency, "scalar result")

    def _matrix(self, wave: _Wave, op: Operation, at: int) -> None:
        rules, simd = self.rules, wave.simd
        simd.matrix = at + op.cycles
        simd.busy += op.cycles
        simd.port["v"] = at + (rules.valu_beside or op.cycles)
        wave.matrix_end = simd.matrix
        self._give(wave, op, simd.matrix + rules.matrix_to_valu, "matrix result")
        for name in op.writes:
            wave.added[name] = simd.matrix + rules.matrix_latency

    def _shared(self, wave: _Wave, executed: Executed, at: int) -> None:
        op, rules, path = executed.operation, self.rules, wave.simd.path
        size = op.size * (self.lanes if executed.lanes is None else executed.lanes)
        wave.simd.port["m"] = at + rules.lds_issue
        banks = -(-size // rules.lds_bytes) if executed.shared_cycles is None else executed.shared_cycles
        start = max(at, self.banks)
        self.banks = start + banks
        if op.is_store:  # its data go first, and hold the wave
            held = rules.lds_write_address + -(-size // rules.lds_write_bytes)
            served = max(self.banks, at + held)
            wave.now = served
        else:
            path.free = max(max(start, path.free) + -(-size // rules.lds_path), self.banks)
            served = path.free
        path.queue.append(served)
        self._count(wave, ("lgkm", "shared"), served + (0 if op.is_store else rules.lds_latency))

    def _memory(self, wave: _Wave, executed: Executed, at: int) -> None:
        op, lanes = executed.operation, self.lanes if executed.lanes is None else executed.lanes
        wave.simd.port["m"] = at + self.rules.vmem_issue
        done = self.memory.take(at, max(op.size * lanes, 1))
        self._count(wave, ("vector", "stores" if op.is_store else "loads"), done)

    def _give(self, wave: _Wave, op: Operation, when: int, what: str) -> None:
        for name in op.writes:
            wave.ready[name] = when, what
            wave.added.pop(name, None)

    def _count(self, wave: _Wave, counters: tuple[str, ...], when: int) -> None:
        for name in counters:
            queue = wave.counters[name]
            queue.append(max(when, queue[-1]) if queue else when)
            if len(queue) > 64:
                queue.popleft()


def run(waves: Sequence[tuple[int, Iterable[Executed]]], rules: Rules, lanes: int) -> Timing:
    """Runs the waves, each given with its block, of blocks that are resident together; the i-th on SIMD i modulo their
    number."""
    unit = _Unit(rules, lanes)
    all_waves = [_Wave(i, block, unit.simds[i % rules.simds], iter(stream)) for i, (block, stream) in enumerate(waves)]
    arrived: dict[int, list[_Wave]] = {}
    alive: dict[int, int] = {}
    for wave in all_waves:
        alive[wave.block] = alive.get(wave.block, 0) + 1
        wave.simd.used = True
    timing, end = unit.timing, 0
    heap = [(0, 0, wave.index) for wave in all_waves]
    by_index = {wave.index: wave for wave in all_waves}

    def meet(block: int, now: int) -> None:
        """Lets a block's waves go on where all that have not ended wait."""
        here = arrived.get(block, [])
        if here and len(here) == alive[block]:
            for one in here:
                timing.stalls[_BARRIER] = timing.stalls.get(_BARRIER, 0) + now - one.now
                one.now = now + rules.barrier
                heapq.heappush(heap, (one.now, -one.priority, one.index))
            arrived[block] = []

    while heap:
        _, _, index = heapq.heappop(heap)
        wave = by_index[index]
        executed = wave.next
        if executed is None or executed.operation.unit == "end":
            end = max(end, wave.now)
            alive[wave.block] -= 1
            meet(wave.block, wave.now)
            continue
        at, why = unit.earliest(wave, executed.operation)
        if heap and at > heap[0][0]:
            heapq.heappush(heap, (at, -wave.priority, index))
            if heap[0][2] != index:
                continue
            heapq.heappop(heap)
        if at > wave.now:
            key = executed.operation.text, why
            timing.stalls[key] = timing.stalls.get(key, 0) + at - wave.now
        timing.issued += 1
        wave.next = next(wave.stream, None)
        if executed.operation.unit == "barrier":
            wave.now = at
            arrived.setdefault(wave.block, []).append(wave)
            meet(wave.block, at)
            continue
        unit.issue(wave, executed, at)
        heapq.heappush(heap, (wave.now, -wave.priority, index))
    used = [simd for simd in unit.simds if simd.used]
    timing.cycles = max([end, *(simd.matrix for simd in used)])
    timing.matrix_cycles = sum(simd.busy for simd in used) // max(len(used), 1)
    return timing


_BARRIER = ("s_barrier", "others")
