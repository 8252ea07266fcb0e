"""What a timing tells: of the whole, of each loop, of each instruction."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.loops import natural_loops
from wmma_ops.emulator.timing.rules import not_validated
from wmma_ops.emulator.timing.unit import BARRIER, Passage, Run

# What bounds a kernel, by what its waves wait for most.
_BOUND = {
    "matrix pipe": "the matrix pipe",
    "wait for memory": "loads from memory that are waited for",
    "memory's queue": "memory: more loads are on their way than a compute unit keeps",
    "wait for shared memory": "reads of shared memory that are waited for",
    "wait for shared memory or scalars": "reads of shared memory, or scalar loads, that are waited for",
    "shared memory's queue": "shared memory: more is asked of its banks than they give",
    "wait for stores": "stores that are waited for",
    "wait for scalars": "scalar loads that are waited for",
    "vector result": "vector instructions that wait for each other's results",
    "matrix result": "matrix instructions that wait for each other's results",
    "scalar result": "scalar instructions that wait for each other's results",
    "packed behind matrix": "packed float32 instructions, which do not run beside matrix instructions",
    "registers in use": "registers that instructions before have still to read",
    "port": "instructions for one port of a SIMD",
    BARRIER: "barriers, at which waves wait for each other",
}
_ENOUGH = 0.9  # of the matrix pipe's time
_MANY = 0.1  # of the time: bank conflicts


@dataclass(frozen=True)
class InstructionTiming:
    """Of all waves together."""

    text: str
    source: str  # "kernel.hip:12", or ""
    executed: int
    stalls: Mapping[str, int]  # what held it: cycles
    conflicts: int  # cycles of shared memory's banks beyond what the bytes take

    @property
    def stalled(self) -> int:
        return sum(self.stalls.values())


@dataclass(frozen=True)
class LoopTiming:
    """Of a wave on the average."""

    iterations: float
    cycles: float  # an iteration
    share: float  # of the matrix pipes' time, that they are busy, for these waves or others
    stalls: Mapping[str, float]  # what held the wave: cycles an iteration, the longest first
    conflicts: float  # cycles of shared memory's banks an iteration beyond what the bytes take, of all waves
    instructions: tuple[int, ...]  # which of the timing's

    @property
    def bound(self) -> str:
        """What keeps it from being quicker, in words."""
        return _bound(self.share, self.stalls, self.conflicts / self.cycles)


@dataclass(frozen=True)
class Estimate:
    """Of a whole GPU, from what one compute unit takes: every unit alike, and memory at its full bandwidth."""

    microseconds: float
    rounds: int  # that the units take, one after the other
    gigahertz: float  # the clock that is published; under load GPUs fall below it
    by_memory: bool  # reading or writing once each tensor that it touches takes longer than the units do


@dataclass(frozen=True)
class Timing:
    """How long the blocks take that one compute unit (on RDNA a WGP) holds together, and why."""

    target: str
    cycles: int  # from their launch to the end of the last
    share: float  # of the matrix pipes' time, that they are busy
    blocks: int
    waves: int
    issued: int  # instructions, of all waves
    stalls: Mapping[str, int]  # what held waves: cycles of all of them, the longest first
    loops: tuple[LoopTiming, ...]  # those that take longest first
    instructions: tuple[InstructionTiming, ...] = field(repr=False)
    bytes_asked: int = 0  # of memory
    bytes_fetched: int = 0  # from beyond the first cache
    estimate: Estimate | None = None  # of the launch, where it is explained
    not_validated: tuple[str, ...] = field(
        default=(), repr=False
    )  # rules that nothing measured on this family stands behind

    @property
    def bound(self) -> str:
        """What keeps it from being quicker, in words: that of the longest loop, where one takes most of the time."""
        if self.loops and self.loops[0].cycles * self.loops[0].iterations > self.cycles / 2:
            return self.loops[0].bound
        return _bound(self.share, self.stalls, sum(one.conflicts for one in self.instructions) / self.cycles)


def _bound(share: float, stalls: Mapping[str, float], conflicts: float) -> str:
    """`conflicts`: of the time, that the banks are busy with them."""
    if share >= _ENOUGH:
        return "the matrix pipe"
    if conflicts >= _MANY:
        return f"bank conflicts of shared memory: its banks are busy with them for {conflicts:.0%} of the time"
    # That a wave waits for the pipe, or for other waves, does not leave the pipe idle: what those wait for does.
    own = [why for why in stalls if why not in ("matrix pipe", BARRIER)] or [*stalls]
    return _BOUND[own[0]] if own else "the instructions themselves: nothing is waited for"


def record(
    found: Run, target: str, instructions: Sequence[Instruction], blocks: Sequence[Sequence[Instruction]], resident: int
) -> Timing:
    """`blocks` are the basic ones, of the instructions in their order."""
    timings = tuple(
        InstructionTiming(
            ins.text.strip(), ins.source, found.counts.get(i, 0), found.stalls.get(i, {}), found.conflicts.get(i, 0)
        )
        for i, ins in enumerate(instructions)
    )
    return Timing(
        target=target,
        cycles=found.cycles,
        share=found.share,
        blocks=resident,
        waves=len(found.ends),
        issued=found.issued,
        stalls=_added(timing.stalls for timing in timings),
        loops=_loops(found, timings, blocks),
        instructions=timings,
        bytes_asked=found.bytes_asked,
        bytes_fetched=found.bytes_fetched,
        not_validated=not_validated(target),
    )


def _added(stalls: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in stalls:
        for why, cycles in one.items():
            total[why] = total.get(why, 0) + cycles
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def _loops(
    found: Run, timings: Sequence[InstructionTiming], blocks: Sequence[Sequence[Instruction]]
) -> tuple[LoopTiming, ...]:
    starts = [0]
    for body in blocks:
        starts.append(starts[-1] + len(body))
    loops = []
    for header, members in _executed_loops(found, len(blocks)):
        visits = [[one for one in passages if one.basic_block == header] for passages in found.passages]
        count, waves = sum(map(len, visits)), sum(map(bool, visits))
        rounds, time = 0, 0
        inside_of: dict[int, list[tuple[int, int]]] = {}  # a SIMD: from when to when one of its waves is in a round
        for wave, passages in enumerate(found.passages):
            for before, after in _rounds(passages, header, members):
                rounds += 1
                time += after.at - before.at
                inside_of.setdefault(wave % found.of, []).append((before.at, after.at))
        if not rounds:
            continue
        inside = tuple(i for b in sorted(members) for i in range(starts[b], starts[b + 1]))
        shares = [_share(spans, found.passages[simd :: found.of]) for simd, spans in inside_of.items()]
        loop = LoopTiming(
            iterations=count / waves,
            cycles=time / rounds,
            share=sum(shares) / len(shares),
            stalls={why: held / count for why, held in _added(timings[i].stalls for i in inside).items()},
            conflicts=sum(timings[i].conflicts for i in inside) * waves / count,
            instructions=inside,
        )
        loops.append((time, loop))
    return tuple(loop for _, loop in sorted(loops, key=lambda item: -item[0]))


def _rounds(passages: Sequence[Passage], header: int, members: Set[int]) -> Iterator[tuple[Passage, Passage]]:
    """From each time that a wave comes to the header to the next, without leaving the loop."""
    last = None
    for passage in passages:
        if passage.basic_block == header:
            if last is not None:
                yield last, passage
            last = passage
        elif passage.basic_block not in members:
            last = None


def _share(rounds: Iterable[tuple[int, int]], waves: Iterable[Sequence[Passage]]) -> float:
    """How much of the time of a SIMD's rounds its matrix pipe is busy, for whichever of its waves: those that take turns
    with the loop's are in a loop of their own."""
    spans: list[list[int]] = []
    for start, stop in sorted(rounds):
        if spans and start <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], stop)
        else:
            spans.append([start, stop])
    edges, busy = np.array(spans), 0.0
    for passages in filter(None, waves):
        at, matrix = [one.at for one in passages], [one.matrix for one in passages]
        busy += np.diff(np.interp(edges, at, matrix)).sum()
    return float(busy / np.diff(edges).sum())


def _executed_loops(found: Run, blocks: int) -> list[tuple[int, frozenset[int]]]:
    """(header, blocks) of the loops in what was executed."""
    follows: list[set[int]] = [set() for _ in range(blocks + 1)]
    for passages in found.passages:
        visited = [one.basic_block for one in passages]
        if visited:
            follows[0].add(visited[0] + 1)
        for before, after in itertools.pairwise(visited):
            follows[before + 1].add(after + 1)
    loops = natural_loops(list(map(frozenset, follows)))
    return [(header - 1, frozenset(b - 1 for b in loop)) for header, loop in loops.items()]
