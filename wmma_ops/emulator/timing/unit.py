"""The waves of one compute unit (on RDNA of a WGP) against each other: who issues when, and what held whom.

Waves issue in order, each at most one instruction a cycle (on CDNA in every fourth, which is its SIMD's turn), when ports.py
or queues.py lets them and, where several could, none of a higher priority or a lower number does.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from wmma_ops.emulator.timing.operations import Executed
from wmma_ops.emulator.timing.ports import Passage, Unit, Wave
from wmma_ops.emulator.timing.queues import QueuedUnit
from wmma_ops.emulator.timing.rules import Rules


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


class Stamped(NamedTuple):
    """An instruction of a wave that a thread trace has seen."""

    executed: Executed
    at: int | None  # when it issued; None: it leaves no stamp


def predicted(
    waves: Sequence[tuple[int, Sequence[Stamped]]], rules: Rules, lanes: int
) -> list[list[tuple[int, str] | None]]:
    """When, by the rules, each stamped instruction of each wave, given with its SIMD, could have issued, and what held it,
    if all others had issued when they did; None of one without a stamp."""
    unit = _unit(rules, lanes)
    all_waves = [unit.wave(i, 0, simd, iter(())) for i, (simd, _) in enumerate(waves)]
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
        following = waves[index][1][i + 1 : i + 2]
        wave.next = following[0].executed if following else None
        unit.issue(wave, one.executed, at)
    return found


def _unit(rules: Rules, lanes: int) -> Unit:
    return (QueuedUnit if rules.vector_queue else Unit)(rules, lanes)


BARRIER = "other waves"


def run(
    waves: Sequence[tuple[int, Iterable[Executed]]],
    rules: Rules,
    lanes: int,
    spans: Callable[[Span], None] | None = None,
) -> Run:
    """Runs the waves, each given with its block, of blocks that are resident together; the i-th on SIMD i modulo their
    number. `spans` gets what each did, where it is drawn."""
    unit, found = _unit(rules, lanes), Run()
    all_waves = [unit.wave(i, block, i, iter(stream)) for i, (block, stream) in enumerate(waves)]
    found.ends = [0] * len(all_waves)
    arrived: dict[int, list[Wave]] = {}
    alive: dict[int, int] = {}
    for wave in all_waves:
        alive[wave.block] = alive.get(wave.block, 0) + 1
        wave.simd.used = True
    heap = [(0, 0, wave.index) for wave in all_waves]
    counts, stalls = found.counts, found.stalls

    def held(wave: Wave, number: int, why: str, until: int) -> None:
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
    found.bytes_asked = sum(cache.asked for cache in unit.caches)
    found.bytes_fetched = sum(cache.fetched for cache in unit.caches)
    return found
