"""Whether a kernel uses what it loaded: bytes that nothing has written may be the padding of a struct.

Compilers copy structs by whole words and pick the members out of them afterwards. So from such a load on, instructions are
followed along every way that control may take, until the register is written anew (by whichever lanes): those that take
its other bytes alone do not use these.
"""

import bisect
import re
from collections.abc import Sequence

from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.dataflow import READS_RESULT, as_bits, halves, keeps, registers, uses
from wmma_ops.emulator.operands import NUMBER

_COPIES = re.compile(r"^v_(mov_b32|accvgpr_(read|write|mov)_b32)(_e32|_e64)?$")
_STORED = re.compile(r"^(?:ds|global|flat|scratch|buffer)_(?:store|write)_(?:(d16_hi)_)?(byte|b8|short|b16)(_d16_hi)?$")
_WORD = 0xFFFFFFFF  # all bits of a register
_PARTS = {
    "BYTE_0": 0xFF,
    "BYTE_1": 0xFF00,
    "BYTE_2": 0xFF0000,
    "BYTE_3": 0xFF000000,
    "WORD_0": 0xFFFF,
    "WORD_1": 0xFFFF0000,
}


class Loaded:
    """The registers that one instruction loads. Called with the bytes that were never written: whether one may be used."""

    def __init__(self, flow, place: int, names: Sequence[str]):
        self._flow, self._place, self._names = flow, place, names
        self._known: dict[tuple[bool, ...], bool] = {}

    def __call__(self, missing: Sequence[bool]) -> bool:
        key = tuple(missing)
        if key not in self._known:
            bits = sum(0xFF << 8 * at for at, is_missing in enumerate(key) if is_missing)
            parts = {name: bits >> 32 * i & _WORD for i, name in enumerate(self._names)}
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
            if any(_used(half, name) & bits for half in parts):
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


def _used(ins: Instruction, name: str) -> int:
    """The bits of a register that an instruction computes with or stores."""
    if ins.mnemonic.startswith(("v_movrel", "v_indexed")):
        return _WORD  # which registers it reads is known at run time
    if _copied(ins, name):
        return 0
    first = 1 if uses(ins)[1] and not ins.mnemonic.startswith(READS_RESULT) else 0
    found = 0
    for position, operand in enumerate(ins.operands):
        if position >= first and name in registers(operand):
            found |= _bits(ins, position)
    return found


def _bits(ins: Instruction, position: int) -> int:
    """The bits of one of its operands that an instruction uses: of what is not known here, all."""
    if part := _PARTS.get(ins.modifiers.get(f"src{position - 1}_sel", "")):
        return part
    operand = ins.operands[position]
    if operand.endswith((".l", ".h")):
        return _PARTS["WORD_0" if operand.endswith(".l") else "WORD_1"]
    if stored := _STORED.match(ins.mnemonic):
        return (0xFF if stored[2] in ("byte", "b8") else 0xFFFF) << (16 if stored[1] or stored[3] else 0)
    numbers = [int(text, 0) & _WORD if NUMBER.match(text) else None for text in ins.operands]
    match re.sub(r"_(e32|e64)$", "", ins.mnemonic), position, numbers:
        case ("v_and_b32", 1, [_, _, int(mask)]) | ("v_and_b32", 2, [_, int(mask), _]):
            return mask
        case "v_and_or_b32", 1, [_, _, int(mask), _]:
            return mask
        case "v_bfe_u32" | "v_bfe_i32", 1, [_, _, int(start), int(width)]:
            return (1 << width) - 1 << start & _WORD
        case "v_lshrrev_b32" | "v_ashrrev_i32", 2, [_, int(count), _]:
            return _WORD << count & _WORD
        case ("v_lshlrev_b32", 2, [_, int(count), _]) | ("v_lshl_or_b32", 1, [_, _, int(count), _]):
            return _WORD >> count
        case "v_lshrrev_b16" | "v_ashrrev_i16", 2, [_, int(count), _] if "op_sel" not in ins.modifiers:
            return 0xFFFF << count & 0xFFFF
        case "v_lshlrev_b16", 2, [_, int(count), _] if "op_sel" not in ins.modifiers:
            return 0xFFFF >> count
        case "v_perm_b32", 1 | 2, [_, _, _, int(chosen)]:
            picked = set(chosen.to_bytes(4, "little"))
            if max(picked) < 8:  # the second operand's bytes, then the first's; others are signs and constants
                return sum(0xFF << 8 * i for i in range(4) if i + (4 if position == 1 else 0) in picked)
    if converted := re.match(r"^v_cvt_f32_ubyte(\d)", ins.mnemonic):
        return 0xFF << 8 * int(converted[1])
    return _WORD
