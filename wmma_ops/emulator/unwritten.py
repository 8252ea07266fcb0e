"""Where a kernel may use a vector register that nothing has written.

A register that every path to a use has written needs no watching. For the others the generated code keeps, for each wave,
the bits that some lanes have written, so that the watch costs nothing where the compiler left no doubt. To move, mask or
convert bits is not to use them: compilers do so with values that no lane uses. What that gives needs no watching where what
it takes needs none; otherwise moving.py tells which of its bits are written.
"""

import functools
import operator
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.bits import used
from wmma_ops.emulator.dataflow import as_bits, halves, moves, names, uses


class Write(NamedTuple):
    """Registers that an instruction writes: for good, or with bits of others."""

    registers: Set[str]
    sources: Set[str] = frozenset()
    by: Instruction | None = None  # that moves their bits


@dataclass
class Watch:
    """By an instruction's place in the kernel: the registers to look at before it, each with the bits that it uses, and what
    to note behind it."""

    used: dict[int, dict[str, int]] = field(default_factory=dict)
    noted: dict[int, list[Write]] = field(default_factory=dict)


class _Write(NamedTuple):
    """A `Write`, its sets as dataflow.py has them: as written as the registers of one of several sources are."""

    registers: int
    sources: tuple[int, ...] = ()
    by: Instruction | None = None

    def noted(self, asked: int) -> Write:
        """Of the registers that are asked for."""
        return Write(set(names(self.registers & asked)), set(names(_union(self.sources))), self.by)


class _Step(NamedTuple):
    """What an instruction, or some that follow one another, uses and then writes."""

    used: int
    writes: tuple[_Write, ...]
    moves: bool = False  # whether a write has sources


class _Flow(NamedTuple):
    """A kernel's blocks: (start, stop) of their instructions, those that follow each, the registers that are given."""

    instructions: list[Instruction]
    blocks: list[tuple[int, int]]
    successors: list[list[int]]
    given: int


def _union(sets: Iterable[int]) -> int:
    return functools.reduce(operator.or_, sets, 0)


def watch(
    instructions: list[Instruction], blocks: list[tuple[int, int]], successors: list[list[int]], given: Set[str]
) -> Watch:
    flow = _Flow(instructions, blocks, successors, _union(map(as_bits, given)))
    together = [_together(instructions[start:stop]) for start, stop in blocks]
    if not _missed(together, _known(together, flow)):
        return Watch()
    each = [[_step(ins) for ins in instructions[start:stop]] for start, stop in blocks]
    return _watched(each, _known(each, flow), flow)


def _writes(half: Instruction) -> list[_Write]:
    moved = moves(half)
    if not moved:
        return [_Write(uses(half)[1])]
    return [_Write(to, tuple(sources), half) for to, sources in moved]


def _step(ins: Instruction) -> _Step:
    key = ins.mnemonic, ins.text
    found = _steps.get(key)
    if found is None:
        if len(_steps) >= 32768:
            _steps.clear()
        parts = halves(ins)
        used = _union(uses(half)[0] for half in parts if not moves(half))
        writes = tuple(write for half in parts for write in _writes(half))
        found = _steps[key] = _Step(used, writes, any(write.sources for write in writes))
    return found


_steps: dict[tuple[str, str], _Step] = {}


def _together(instructions: list[Instruction]) -> list[_Step]:
    """As if to move were to use."""
    used = written = 0
    for ins in instructions:
        for half in halves(ins):
            read, wrote = uses(half)
            used |= read & ~written
            written |= wrote
    return [_Step(used, (_Write(written),))]


def _are_written(write: _Write, known: int) -> bool:
    return not write.sources or any(not one & ~known for one in write.sources)


def _behind(step: _Step, known: int) -> int:
    """What is known to be written behind the step, where `known` is before it."""
    for write in step.writes:
        known = known | write.registers if _are_written(write, known) else known & ~write.registers
    return known


def _known(steps: list[list[_Step]], flow: _Flow) -> list[int | None]:
    """What is written on every way to each block; None where there is none."""
    before: list[int | None] = [None] * len(steps)
    before[0] = flow.given
    work = [0]
    while work:
        at = work.pop()
        known = functools.reduce(lambda known, step: _behind(step, known), steps[at], before[at])
        for following in flow.successors[at]:
            if following < 0:
                continue
            merged = known if before[following] is None else before[following] & known
            if merged != before[following]:
                before[following] = merged
                work.append(following)
    return before


def _missed(steps: list[list[_Step]], before: list[int | None]) -> int:
    return _union(step.used & ~known for (step,), known in zip(steps, before, strict=True) if known is not None)


def _watched(steps: list[list[_Step]], before: list[int | None], flow: _Flow) -> Watch:
    """Backwards from the uses in doubt: what is written on a way there has to be noted."""
    doubted = [[] if known is None else _doubted(body, known) for body, known in zip(steps, before, strict=True)]
    ahead = [0] * len(steps)  # whose flags are asked for from a block's start on
    leads = [[] for _ in steps]
    for at, following in enumerate(flow.successors):
        for to in following:
            if to >= 0:
                leads[to].append(at)
    work = [at for at, body in enumerate(doubted) if any(step.used for step in body)]
    while work:
        at = work.pop()
        asked = _asked_behind(at, ahead, flow)
        for step in reversed(doubted[at]):
            asked = _asked_before(step, asked)
        if asked != ahead[at]:
            ahead[at] = asked
            work += leads[at]
    found = Watch()
    for at, (start, stop) in enumerate(flow.blocks):
        asked = _asked_behind(at, ahead, flow)
        for place, step in zip(reversed(range(start, stop)), reversed(doubted[at]), strict=False):
            if noted := [write.noted(asked) for write in step.writes if write.registers & asked]:
                found.noted[place] = noted
            if step.used:
                parts = [half for half in halves(flow.instructions[place]) if not moves(half)]
                found.used[place] = {name: _union(used(half, name) for half in parts) for name in names(step.used)}
            asked = _asked_before(step, asked)
    return found


def _doubted(body: list[_Step], known: int) -> list[_Step]:
    """Of each step, what is not known to be written."""
    found = []
    for step in body:
        if step.moves:
            writes = tuple(_Write(write.registers) if _are_written(write, known) else write for write in step.writes)
            step = _Step(step.used & ~known, writes)
        elif step.used & known:
            step = _Step(step.used & ~known, step.writes)
        found.append(step)
        known = _behind(step, known)
    return found


def _asked_behind(at: int, ahead: list[int], flow: _Flow) -> int:
    return _union(ahead[to] for to in flow.successors[at] if to >= 0)


def _asked_before(step: _Step, asked: int) -> int:
    """Those whose flags are asked for before the step, where `asked` are behind it."""
    for write in reversed(step.writes):
        if not write.sources:
            asked &= ~write.registers
        elif write.registers & asked:
            asked |= _union(write.sources)
    return asked | step.used
