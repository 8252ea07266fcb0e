"""Loads straight to shared memory that are under way: until its wave has waited for one, its words may come at any time."""

import re
from collections import defaultdict, deque

import numpy as np

from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.operands import NUMBER
from wmma_ops.emulator.scalar import IGNORED

_VECTOR_MEMORY = ("buffer_", "global_", "flat_", "scratch_")
_VMCNT = re.compile(r"\bvmcnt(?:_sat)?\((\w+)\)")


def is_counted(ins: Instruction) -> bool:
    """An access of vector memory, as CDNA's vmcnt counts them."""
    return ins.mnemonic.startswith(_VECTOR_MEMORY) and not ins.mnemonic.startswith(IGNORED)


def left_by(ins: Instruction) -> int | None:
    """How many of them may be under way after a wait on CDNA; None where it does not wait for them."""
    if ins.mnemonic != "s_waitcnt":
        return None
    if named := _VMCNT.search(ins.text):
        return int(named[1], 0)
    number = NUMBER.match(ins.operands[0]) if ins.operands else None
    if number is None:
        return None
    bits = int(number[0], 0)
    count = bits & 15 | bits >> 10 & 48
    return count if count < 63 else None


class Arrivals:
    """What a block's waves have under way. Accesses of vector memory are done in the order in which a wave issues them."""

    def __init__(self, words: int):
        self.coming = np.zeros(words, np.int16)  # how many loads to each word are under way
        self.wave = np.zeros(words, np.int16)  # whose the latest is
        self._issued: defaultdict[int, int] = defaultdict(int)  # by wave: its accesses of vector memory
        self._loads: defaultdict[int, deque[tuple[int, np.ndarray]]] = defaultdict(deque)

    def issue(self, wave: int) -> None:
        """Counts an access of vector memory."""
        self._issued[wave] += 1

    def add(self, wave: int, words: np.ndarray) -> None:
        """The access issued last is a load to these words, each of them once."""
        self._loads[wave].append((self._issued[wave], words))
        self.coming[words] += 1
        self.wave[words] = wave

    def wait(self, wave: int, left: int) -> list[np.ndarray]:
        """The words of the loads that are done where at most the `left` accesses issued last are not."""
        loads, done = self._loads[wave], []
        while loads and loads[0][0] <= self._issued[wave] - left:
            words = loads.popleft()[1]
            self.coming[words] -= 1
            done.append(words)
        return done

    def meets(self, at: np.ndarray, size: int, but: int | None) -> tuple[int, int, int] | None:
        """(which, word, whose load) of the first access of `size` bytes to a word that is under way, but for one wave's."""
        first, last = at >> 2, (at + size - 1) >> 2
        words = np.minimum(first[:, None] + np.arange(int((last - first).max()) + 1), last[:, None])
        bad = self.coming[words] > 0
        if but is not None:
            bad &= self.wave[words] != but
        if not bad.any():
            return None
        which, column = divmod(int(np.argmax(bad)), bad.shape[1])
        word = int(words[which, column])
        return which, word, int(self.wave[word])
