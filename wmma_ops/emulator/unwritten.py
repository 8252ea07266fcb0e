"""Where a kernel may use a vector register that nothing has written.

A register that every path to a use has written needs no watching. For the others the generated code keeps one flag a wave,
so that the watch costs nothing where the compiler left no doubt. To move, mask or convert bits is not to use them: compilers
do so with values that no lane uses. What it gives counts as written only where its operands are.
"""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import NamedTuple

from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.dataflow import halves, keeps, moves, uses


class Write(NamedTuple):
    """Registers that an instruction writes: for good, or as written as the registers of one of these sets are."""

    registers: Set[str]
    sources: tuple[Set[str], ...] = ()
    wholly: bool = False  # in the lanes that are on


@dataclass
class Watch:
    """By an instruction's place in the kernel: the registers to look at before it, and what to note behind it."""

    used: dict[int, Set[str]] = field(default_factory=dict)
    noted: dict[int, list[Write]] = field(default_factory=dict)


class _Step(NamedTuple):
    """What an instruction, or some that follow one another, uses and then writes."""

    used: Set[str]
    writes: tuple[Write, ...]


class _Flow(NamedTuple):
    """A kernel's blocks: (start, stop) of their instructions, those that follow each, the registers that are given."""

    instructions: list[Instruction]
    blocks: list[tuple[int, int]]
    successors: list[list[int]]
    given: Set[str]


def watch(
    instructions: list[Instruction], blocks: list[tuple[int, int]], successors: list[list[int]], given: Set[str]
) -> Watch:
    flow = _Flow(instructions, blocks, successors, given)
    together = [_together(instructions[start:stop]) for start, stop in blocks]
    suspected = _missed(together, _known(together, flow))
    if not suspected:
        return Watch()
    each = [[_step(ins) for ins in instructions[start:stop]] for start, stop in blocks]
    return _watched(each, _known(each, flow), flow)


def _writes(half: Instruction) -> list[Write]:
    moved = moves(half)
    if not moved:
        return [Write(uses(half)[1])]
    wholly = not (keeps(half) or "dpp" in half.mnemonic)
    return [Write(to, tuple(sources), wholly) for to, sources in moved]


def _step(ins: Instruction) -> _Step:
    key = ins.mnemonic, ins.text
    found = _steps.get(key)
    if found is None:
        if len(_steps) >= 32768:
            _steps.clear()
        parts = halves(ins)
        used = frozenset().union(*(uses(half)[0] for half in parts if not moves(half)))
        found = _steps[key] = _Step(used, tuple(write for half in parts for write in _writes(half)))
    return found


_steps: dict[tuple[str, str], _Step] = {}


def _together(instructions: list[Instruction]) -> list[_Step]:
    """As if to move were to use."""
    used, written = set(), set()
    for ins in instructions:
        for half in halves(ins):
            read, wrote = uses(half)
            used |= read - written
            written |= wrote
    return [_Step(used, (Write(written),))]


def _follow(step: _Step, known: set[str]) -> None:
    """Brings what is known to be written to what is so behind the step."""
    for write in step.writes:
        if not write.sources or any(one <= known for one in write.sources):
            known |= write.registers
        else:
            known -= write.registers


def _known(steps: list[list[_Step]], flow: _Flow) -> list[set[str] | None]:
    """What is written on every way to each block; None where there is none."""
    before: list[set[str] | None] = [None] * len(steps)
    before[0] = set(flow.given)
    work = [0]
    while work:
        at = work.pop()
        known = set(before[at])
        for step in steps[at]:
            _follow(step, known)
        for following in flow.successors[at]:
            if following < 0:
                continue
            merged = known if before[following] is None else before[following] & known
            if merged != before[following]:
                before[following] = merged
                work.append(following)
    return before


def _missed(steps: list[list[_Step]], before: list[set[str] | None]) -> set[str]:
    return set().union(*(step.used - known for (step,), known in zip(steps, before, strict=True) if known is not None))


def _watched(steps: list[list[_Step]], before: list[set[str] | None], flow: _Flow) -> Watch:
    """Backwards from the uses in doubt: what is written on a way there has to be noted."""
    doubted = [
        [] if known is None else [_doubted(step, known) for step in body]
        for body, known in zip(steps, before, strict=True)
    ]
    ahead: list[set[str]] = [set() for _ in steps]  # whose flags are asked for from a block's start on
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
            _precede(step, asked)
        if asked != ahead[at]:
            ahead[at] = asked
            work += leads[at]
    found = Watch()
    for at, (start, stop) in enumerate(flow.blocks):
        asked = _asked_behind(at, ahead, flow)
        for place, step in zip(reversed(range(start, stop)), reversed(doubted[at]), strict=False):
            if noted := [write for write in step.writes if write.registers & asked]:
                found.noted[place] = [write._replace(registers=write.registers & asked) for write in noted]
            if step.used:
                found.used[place] = step.used
            _precede(step, asked)
    return found


def _doubted(step: _Step, known: set[str]) -> _Step:
    """Of a step, what is not known to be written. Brings `known` to behind it."""
    used = step.used - known
    if used or any(write.sources for write in step.writes):
        writes = (
            Write(write.registers) if any(one <= known for one in write.sources) else write for write in step.writes
        )
        step = _Step(used, tuple(writes))
    elif step.used:
        step = step._replace(used=used)
    _follow(step, known)
    return step


def _asked_behind(at: int, ahead: list[set[str]], flow: _Flow) -> set[str]:
    return set().union(*(ahead[to] for to in flow.successors[at] if to >= 0))


def _precede(step: _Step, asked: set[str]) -> None:
    """Brings those whose flags are asked for behind the step to those before it."""
    for write in reversed(step.writes):
        if not write.sources:
            asked -= write.registers
        elif write.registers & asked:
            asked.update(*write.sources)
    asked |= step.used
