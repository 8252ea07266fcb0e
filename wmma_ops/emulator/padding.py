"""Whether a kernel uses what it loaded: bytes that nothing has written may be the padding of a struct.

Compilers copy structs by whole words and pick the members out of them afterwards. So from such a load on, instructions are
followed along every way that control may take, until the register is written anew (by whichever lanes): those that take
its other bytes alone do not use these.
"""

import bisect
import re
from collections.abc import Sequence

from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.bits import WORD, used
from wmma_ops.emulator.dataflow import as_bits, halves, keeps, registers, uses

_COPIES = re.compile(r"^v_(mov_b32|accvgpr_(read|write|mov)_b32)(_e32|_e64)?$")


class Loaded:
    """The registers that one instruction loads. Called with the bytes that were never written: whether one may be used."""

    def __init__(self, flow, place: int, names: Sequence[str]):
        self._flow, self._place, self._names = flow, place, names
        self._known: dict[tuple[bool, ...], bool] = {}

    def __call__(self, missing: Sequence[bool]) -> bool:
        key = tuple(missing)
        if key not in self._known:
            bits = sum(0xFF << 8 * at for at, is_missing in enumerate(key) if is_missing)
            parts = {name: bits >> 32 * i & WORD for i, name in enumerate(self._names)}
            self._known[key] = _reaches(self._flow, self._place, parts)
        return self._known[key]


def _reaches(flow, place: int, missing: dict[str, int]) -> bool:
    """Whether these bits may come from after an instruction to one that uses them."""
    starts, successors = [start for start, _ in flow.ranges], flow.successors()
    first = bisect.bisect_right(starts, place) - 1
    work = [(first, place + 1, name, bits) for name, bits in missing.items() if bits]
    seen = set()
    while work:
        block, at, name, bits = step = work.pop()
        if step in seen:
            continue
        seen.add(step)
        for index in range(at, flow.ranges[block][1]):
            parts = halves(flow.instructions[index])
            if any(used(half, name) & bits and not _copied(half, name) for half in parts):
                return True
            work += [(block, index + 1, copy, bits) for half in parts for copy in _copied(half, name)]
            if any(as_bits(name) & uses(half)[1] and not keeps(half) for half in parts):
                break
        else:
            work += [(following, starts[following], name, bits) for following in successors[block] if following >= 0]
    return False


def _copied(ins: Instruction, name: str) -> list[str]:
    """The registers that get all of this one."""
    is_copy = _COPIES.match(ins.mnemonic) and name in registers(ins.operands[1])
    return sorted(registers(ins.operands[0])) if is_copy else []
