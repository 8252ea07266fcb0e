"""What the waves of the blocks that are resident together executed, in order: the clock's input."""

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

import numpy as np

from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.timing import shared_memory
from wmma_ops.emulator.timing.memory import SEGMENT
from wmma_ops.emulator.timing.operations import Executed, Operation, operation
from wmma_ops.emulator.timing.record import Timing, record
from wmma_ops.emulator.timing.rules import Rules
from wmma_ops.emulator.timing.unit import Span, run

Index = tuple[int, int, int]


class _Access:
    """Of one instruction in one passage."""

    __slots__ = ("addresses", "banks", "exec", "lanes", "lines", "segments")

    def __init__(self):
        self.banks: int | None = None
        self.lanes: int | None = None
        self.segments: int | None = None
        self.lines: tuple[int, ...] | None = None
        self.addresses: list[tuple[np.ndarray, np.ndarray]] = []  # (lanes, their addresses), where they are kept
        self.exec: int | None = None  # the lanes that are on after it, where it changes them

    def as_written(self) -> dict:
        """As a trace that is written has it."""
        found: dict = {} if self.exec is None else {"exec": hex(self.exec)}
        if self.addresses:
            found["at"] = [list(zip(lanes.tolist(), at.tolist(), strict=True)) for lanes, at in self.addresses]
        return found


Passage = tuple[int, dict[int, _Access]]  # (basic block, of which of its instructions what)


_STEP = 10_000  # instructions, of which those are told who wait


def _is_traced(op: Operation) -> bool:
    """Whether lanes that access memory are told, so that there are none where none are."""
    return op.unit == "memory" and not op.text.startswith("scratch_")


class Enough(Exception):
    """A block has executed as much as was to be timed of it."""


class Trace:
    """Of a launch's first `blocks` blocks; of each its part of the `most` instructions, where they are bounded."""

    def __init__(self, target: str, rules: Rules, lanes: int, blocks: int, *, most: int = 0, addresses: bool = False):
        self.target, self.rules, self.lanes, self.blocks = target, rules, lanes, blocks
        self.waves: dict[tuple[Index, int], list[Passage]] = {}
        self.first: dict[tuple[Index, int], int] = {}  # the lanes that a wave begins with
        self.reached: set[tuple[int, int]] = set()  # regions of memory, of which something was accessed: from, to
        self.instruction: Instruction | None = None  # the one that is executed
        self.basic_blocks: Sequence[Sequence[Instruction]] = ()
        self.is_cut = False  # not all that was executed is here
        self._left: dict[Index, float] = {}  # of the blocks that are taken, how many instructions may follow
        self._most = most / blocks if most else math.inf
        self._addresses = addresses  # are kept
        self.executed = 0  # instructions
        self.tell: Callable[[int], None] = lambda executed: None  # of each _STEP of them
        self._exec = 0  # the lanes that are on
        self._here: dict[int, _Access] = {}  # of the passage at hand

    def takes(self, block: Index) -> bool:
        """Whether a block that begins is one of them."""
        if len(self._left) < self.blocks:
            self._left.setdefault(block, self._most)
        return block in self._left

    def enter(self, block: Index, wave: int, basic_block: int) -> None:
        self._here = {}
        self.first.setdefault((block, wave), self._exec)
        self.waves.setdefault((block, wave), []).append((basic_block, self._here))
        count = len(self.basic_blocks[basic_block])
        if (self.executed + count) // _STEP > self.executed // _STEP:
            self.tell(self.executed + count)
        self.executed += count
        self._left[block] -= count
        if self._left[block] < 0:
            self.is_cut = True
            raise Enough

    def lanes_on(self, bits: int) -> None:
        self._exec = bits
        if self.instruction is not None and self._addresses:
            self._access().exec = bits

    def _access(self) -> _Access:
        return self._here.setdefault(id(self.instruction), _Access())

    def shared(self, lanes: np.ndarray, at: np.ndarray, size: int, is_store: bool) -> None:
        """An access of these lanes to shared memory, at these bytes."""
        addresses, active = np.zeros(self.lanes, np.int64), np.zeros(self.lanes, bool)
        addresses[lanes], active[lanes] = at, True
        access = self._access()
        access.banks = (access.banks or 0) + shared_memory.cycles(self.rules, addresses, size, is_store, active)
        access.lanes = int(np.count_nonzero(active))
        self._keep(access, lanes, at)

    def memory(self, lanes, at: np.ndarray, size: int) -> None:
        """An access of these lanes to global memory, at these addresses."""
        access = self._access()
        first, last = at.astype(np.int64), at.astype(np.int64) + (size - 1)
        access.lanes = len(at)
        access.segments = len(np.unique(np.concatenate([first // SEGMENT, last // SEGMENT])))
        line = self.rules.cache_line
        access.lines = tuple(np.unique(np.concatenate([first // line, last // line])).tolist())
        self._keep(access, lanes, at)

    def _keep(self, access: _Access, lanes, at: np.ndarray) -> None:
        if self._addresses:
            access.addresses.append((np.arange(self.lanes)[lanes], np.array(at, np.int64)))

    def timing(self, spans: Callable[[Span], None] | None = None) -> Timing:
        """How long the blocks take together; `spans` gets what each wave did when."""
        known = self._numbered()
        plain = [
            [
                Executed(op, lanes=0 if _is_traced(op) else None, number=number, enters=at if i == 0 else -1)
                for i, (number, op) in enumerate((number, operation(ins, self.target)) for number, ins in body)
            ]
            for at, body in enumerate(known)
        ]

        def executed(passages: list[Passage]) -> Iterator[Executed]:
            for block, accesses in passages:
                if not accesses:
                    yield from plain[block]
                    continue
                for (_, ins), one in zip(known[block], plain[block], strict=True):
                    access = accesses.get(id(ins))
                    yield (
                        one
                        if access is None
                        else one._replace(
                            shared_cycles=access.banks, lanes=access.lanes, segments=access.segments, lines=access.lines
                        )
                    )

        order = {block: number for number, block in enumerate(dict.fromkeys(block for block, _ in self.waves))}
        waves = [(order[block], executed(passages)) for (block, _), passages in self.waves.items()]
        instructions = [ins for body in self.basic_blocks for ins in body]
        found = run(waves, self.rules, self.lanes, spans)
        return record(found, self.target, instructions, self.basic_blocks, len(order))

    def _numbered(self) -> list[list[tuple[int, Instruction]]]:
        """Each basic block's instructions with their numbers in the whole."""
        numbers = itertools.count()
        return [[(next(numbers), ins) for ins in body] for body in self.basic_blocks]

    def write(self, file: TextIO, kernel: str) -> None:
        """One line of JSON that describes the kernel, then one a wave (docs/pages/timing.md)."""
        texts = [ins.text.strip() for body in self.basic_blocks for ins in body]
        head = {"kernel": kernel, "target": self.target, "lanes": self.lanes, "instructions": texts}
        file.write(json.dumps(head) + "\n")
        known = self._numbered()
        for (block, wave), passages in self.waves.items():
            executed = [
                number if id(ins) not in accesses else [number, accesses[id(ins)].as_written()]
                for basic_block, accesses in passages
                for number, ins in known[basic_block]
            ]
            row = {"block": block, "wave": wave, "exec": hex(self.first[block, wave]), "executed": executed}
            file.write(json.dumps(row) + "\n")
