"""Who may issue when on RDNA, where an instruction leaves its wave for a queue and waits there for what it needs.

Before each SIMD stands a queue of the VALU, transcendental and matrix instructions of all its waves. They begin in their
order, each when its operands are there; their waves go on meanwhile. Compilers keep one that would wait there from entering
it, by `s_delay_alu`, so that it holds up no other's.
"""

from collections import deque
from collections.abc import Iterator

from wmma_ops.emulator.timing.memory import Memory
from wmma_ops.emulator.timing.operations import FIRST_NAMED, FIRST_SCALAR, REGISTERS, Executed, Operation, Slices
from wmma_ops.emulator.timing.ports import MATRIX, SCALAR, VECTOR, WHAT, Path, Simd, Unit, Wave, awaited, latest
from wmma_ops.emulator.timing.rules import Rules

_VECTORS = frozenset(("vector", "transcendental", "packed", "matrix"))
_MEMORY = frozenset(("shared", "memory"))
_IN_USE = "registers in use"
_TOGETHER = 3  # cycles: matrix instructions that come within them do not see each other
_LONG_AGO = -1_000
_LONGEST_DELAY = 4  # VALU instructions back, of `s_delay_alu`


class QueuedWave(Wave):
    __slots__ = ("before", "delays", "matrices", "read_by_memory", "read_by_vector", "ready_vector", "scalar",
                 "scalars_read", "special")  # fmt: skip

    def __init__(self, index: int, block: int, simd: Simd, stream: Iterator[Executed]):
        super().__init__(index, block, simd, stream)
        self.ready_vector = [0] * REGISTERS  # as `ready`, for what begins from the queue
        self.read_by_vector = [0] * REGISTERS  # when the last that reads them begins
        self.read_by_memory = [0] * REGISTERS  # when they may be overwritten
        self.before: deque[int] = deque(maxlen=_LONGEST_DELAY)  # when the last VALU instructions begin
        self.special: deque[int] = deque(maxlen=_LONGEST_DELAY)  # … the last transcendental ones
        self.matrices: deque[tuple[int, int, Slices]] = deque(maxlen=2)  # the last two: taken, ends, what it writes
        self.scalar = _LONG_AGO  # the last scalar instruction's issue
        self.scalars_read = _LONG_AGO  # when the last VALU instruction that reads scalars begins
        self.delays: list[tuple[int, str, int]] = []  # as an operation's

    def overwritten(self, op: Operation, now: int) -> int:
        """From when a matrix instruction may overwrite what two that are on their way write."""
        if len(self.matrices) < 2 or self.matrices[1][0] >= now - _TOGETHER:
            return now
        return max(now, self.matrices[0][1]) if all(writes == op.writes for *_, writes in self.matrices) else now


class QueuedSimd(Simd):
    __slots__ = ("free", "memory", "rules", "special", "waiting", "was_matrix")

    def __init__(self, path: Path, cache: Memory, rules: Rules):
        super().__init__(path, cache)
        self.rules = rules
        self.waiting: deque[tuple[int, bool]] = deque()  # when each leaves the queue, and whether it is a matrix one
        self.free = 0  # the next may begin from
        self.special = 0  # … the next transcendental one
        self.was_matrix = False  # the last
        self.memory = 0  # a load or store may begin from

    def room(self, now: int) -> tuple[int, str]:
        """From when the queue takes one more, and what it waits for until then."""
        waiting, most = self.waiting, self.rules.vector_queue
        while waiting and waiting[0][0] <= now:
            waiting.popleft()
        if len(waiting) < most:
            return now, "port"
        leaves, is_matrix = waiting[len(waiting) - most]
        return leaves, "matrix pipe" if is_matrix else "port"

    def take(self, op: Operation, at: int, operands: int) -> int:
        """When one that is issued then begins."""
        rules, unit = self.rules, op.unit
        start = max(at + 1, self.free, operands)
        if unit == "matrix":
            first = at + rules.matrix_start + (rules.matrix_sums if op.adds_to else 0)
            behind = 0 if self.was_matrix else max(self.free, self.special + 1) + rules.matrix_switch
            start = max(start, first, behind)
            self.free = start + op.cycles
            leaves = self.free + rules.valu_latency - 2
        elif unit == "transcendental":
            leaves, start = max(at + 1, self.free), max(start, self.special)
            self.special, self.free = start + rules.transcendental, start + 1
        else:
            leaves, self.free = start, start + op.cycles
        self.was_matrix = unit == "matrix"
        if self.waiting:
            leaves = max(leaves, self.waiting[-1][0])
        self.waiting.append((leaves, self.was_matrix))
        return start


class QueuedUnit(Unit):
    def _simd(self, path: Path, cache: Memory) -> Simd:
        return QueuedSimd(path, cache, self.rules)

    def wave(self, index: int, block: int, simd: int, stream: Iterator[Executed]) -> Wave:
        return QueuedWave(index, block, self.simds[simd % len(self.simds)], stream)

    def earliest(self, wave: Wave, op: Operation) -> tuple[int, str]:
        assert isinstance(wave, QueuedWave)
        assert isinstance(wave.simd, QueuedSimd)
        at, why, unit, rules = wave.now, "issue", op.unit, self.rules
        if unit == "wait":
            return super().earliest(wave, op)
        for between, what, count in wave.delays:
            if between == 0 and (until := self._delayed(wave, what, count)) > at:
                at, why = until, WHAT[SCALAR if what == "SALU" else VECTOR]
        if unit in _VECTORS:
            until = latest(wave.read_by_memory, op.writes)
            if until > at:
                at, why = until, _IN_USE
            until, what = wave.simd.room(max(at, wave.simd.ports[0]))
            if until > at:
                at, why = until, what
            if unit == "matrix" and (until := wave.overwritten(op, at)) > at:
                at, why = until, WHAT[MATRIX]
            return at, why
        if unit == "wait_alu":
            for result, _ in op.waits:
                if result == "vector" and wave.before and wave.before[-1] + rules.awaited_vector > at:
                    at, why = wave.before[-1] + rules.awaited_vector, WHAT[VECTOR]
                elif result == "scalar" and wave.scalar + rules.awaited_scalar > at:
                    at, why = wave.scalar + rules.awaited_scalar, WHAT[SCALAR]
            return at, why
        if unit == "clause":
            return at + rules.clause, why
        if unit == "nop":
            return max(at, wave.scalar + rules.scalar_nop), why
        until = latest(wave.ready, op.reads)
        if unit == "branch" and until & 3 == SCALAR:
            until += 4 * (rules.condition - rules.scalar_latency)
        if until >> 2 > at:
            at, why = until >> 2, WHAT[until & 3]
        if unit in _MEMORY:
            read = latest(wave.read_by_vector, op.writes)
            if read and read + rules.vector_address > at:
                at, why = read + rules.vector_address, _IN_USE
        elif wave.scalars_read >= 0 and any(registers.start < FIRST_NAMED for registers in op.writes):
            until = wave.scalars_read + rules.scalar_over_vector
            if until > at:
                at, why = until, _IN_USE
        until, what = self.taken(wave.simd, unit, at)
        return (until, what) if until > at else (at, why)

    def _delayed(self, wave: QueuedWave, what: str, count: int) -> int:
        """Until when an instruction waits for the n-th last of a kind."""
        if what == "SALU":
            return wave.scalar + self.rules.scalar_vector - 1
        is_special = what == "TRANS32"
        of = wave.special if is_special else wave.before
        return of[-count] + self._latency(is_special) - 1 if len(of) >= count else 0

    def _latency(self, is_transcendental: bool) -> int:
        return self.rules.valu_latency + (self.rules.transcendental - 1 if is_transcendental else 0)

    def issue(self, wave: Wave, executed: Executed, at: int) -> int:
        assert isinstance(wave, QueuedWave)
        assert isinstance(wave.simd, QueuedSimd)
        op, rules, unit = executed.operation, self.rules, executed.operation.unit
        if unit == "delay":  # no instruction to the hardware but one that goes with the next
            wave.delays = list(op.delays)
            return at
        if wave.delays:
            wave.delays = [(between - 1, what, count) for between, what, count in wave.delays if between]
        if unit in _VECTORS:
            return self._begin(wave, wave.simd, op, at)
        until = super().issue(wave, executed, at)
        if unit == "branch" and wave.next is not None:
            wave.now = at + (rules.branch_taken if wave.next.number != executed.number + 1 else rules.branch_passed)
        elif unit == "scalar":
            wave.scalar = at
        elif unit == "memory":
            start = max(at + rules.memory_start, wave.simd.memory)
            wave.simd.memory = start + sum(r.stop - r.start for r in op.reads if r.start < FIRST_SCALAR)
            for registers in op.reads:
                count = registers.stop - registers.start
                wave.read_by_memory[registers] = [start + rules.memory_over] * count
        return until

    def _begin(self, wave: QueuedWave, simd: QueuedSimd, op: Operation, at: int) -> int:
        rules, unit = self.rules, op.unit
        begun = simd.take(op, at, awaited(wave.ready_vector, wave.added, op) >> 2)
        simd.ports[0] = at + 1
        wave.now = max(at + rules.issue, simd.room(at + 1)[0])  # what fills it holds its wave
        for registers in (*op.reads, *op.adds_to):
            if registers.start >= FIRST_SCALAR:
                wave.scalars_read = begun
            else:
                wave.read_by_vector[registers] = [begun] * (registers.stop - registers.start)
        if unit == "matrix":
            end = simd.matrix = begun + op.cycles
            simd.busy += op.cycles
            wave.matrix += op.cycles
            there = end + rules.valu_latency - 1
            wave.matrices.append((at, there, op.writes))
            wave.before.append(there - rules.valu_latency)
            self._result(
                wave, op, there, there - rules.valu_latency + rules.vector_address, MATRIX, end + rules.matrix_latency
            )
            return end
        wave.before.append(begun)
        if unit == "transcendental":
            wave.special.append(begun)
        self._result(wave, op, begun + self._latency(unit == "transcendental"), begun + rules.vector_address, VECTOR, 0)
        for registers in op.writes:
            if registers.start >= FIRST_SCALAR:
                count = registers.stop - registers.start
                wave.ready[registers] = [(begun + rules.vector_scalar) * 4 + VECTOR] * count
                if registers.start == FIRST_NAMED:  # vcc is carried to the next
                    wave.ready_vector[registers] = [(begun + 1) * 4 + VECTOR] * count
        return begun + 1

    def _result(self, wave: QueuedWave, op: Operation, vector: int, other: int, what: int, added: int) -> None:
        self._write(wave, op, other * 4 + what, added)
        for registers in op.writes:
            wave.ready_vector[registers] = [vector * 4 + what] * (registers.stop - registers.start)

    def _give(self, wave: Wave, op: Operation, when: int, what: int) -> None:
        assert isinstance(wave, QueuedWave)
        self._result(wave, op, when - self.rules.scalar_latency + self.rules.scalar_vector, when, what, 0)
