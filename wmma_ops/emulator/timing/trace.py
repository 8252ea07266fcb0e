"""What the waves of the blocks that are resident together executed, in order: the clock's input."""

from collections.abc import Iterator, Sequence

import numpy as np

from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.timing import shared_memory
from wmma_ops.emulator.timing.operations import Executed, operation
from wmma_ops.emulator.timing.rules import Rules
from wmma_ops.emulator.timing.unit import Timing, run

Passage = tuple[int, dict[int, int]]  # (basic block, what shared memory's banks took for which of its instructions)


class Trace:
    """Of a launch's first `blocks` blocks."""

    def __init__(self, target: str, rules: Rules, lanes: int, blocks: int):
        self.target, self.rules, self.lanes, self.blocks = target, rules, lanes, blocks
        self.waves: dict[tuple[tuple[int, int, int], int], list[Passage]] = {}
        self.instruction: Instruction | None = None  # the one that is executed
        self._banks: dict[int, int] = {}  # of the passage at hand

    def takes(self, block: tuple[int, int, int]) -> bool:
        """Whether a block that begins is one of them."""
        return len({index for index, _ in self.waves} | {block}) <= self.blocks

    def enter(self, block: tuple[int, int, int], wave: int, basic_block: int) -> None:
        self._banks = {}
        self.waves.setdefault((block, wave), []).append((basic_block, self._banks))

    def shared(self, lanes: np.ndarray, at: np.ndarray, size: int, is_store: bool) -> None:
        """An access of these lanes to shared memory, at these bytes."""
        addresses, active = np.zeros(self.lanes, np.int64), np.zeros(self.lanes, bool)
        addresses[lanes], active[lanes] = at, True
        taken = shared_memory.cycles(self.rules, addresses, size, is_store, active)
        key = id(self.instruction)
        self._banks[key] = self._banks.get(key, 0) + taken

    def timing(self, basic_blocks: Sequence[Sequence[Instruction]]) -> Timing:
        """How long the blocks take together."""
        known = [
            [(id(ins), Executed(operation(ins, self.target))) for ins in instructions] for instructions in basic_blocks
        ]

        def executed(passages: list[Passage]) -> Iterator[Executed]:
            for number, banks in passages:
                for key, one in known[number]:
                    yield Executed(one.operation, banks[key]) if key in banks else one

        order = {block: number for number, block in enumerate(dict.fromkeys(block for block, _ in self.waves))}
        waves = [(order[block], executed(passages)) for (block, _), passages in self.waves.items()]
        return run(waves, self.rules, self.lanes)
