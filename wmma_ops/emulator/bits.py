"""Which bits of its operands an instruction uses."""

import re

from wmma_ops.emulator.assembly import Instruction, stem
from wmma_ops.emulator.dataflow import READS_RESULT, registers, uses
from wmma_ops.emulator.operands import NUMBER
from wmma_ops.emulator.vector import VALU

WORD = 0xFFFFFFFF  # all bits of a register
_STORED = re.compile(r"^(?:ds|global|flat|scratch|buffer)_(?:store|write)_(?:(d16_hi)_)?(byte|b8|short|b16)(_d16_hi)?$")
PARTS = {
    "BYTE_0": 0xFF,
    "BYTE_1": 0xFF00,
    "BYTE_2": 0xFF0000,
    "BYTE_3": 0xFF000000,
    "WORD_0": 0xFFFF,
    "WORD_1": 0xFFFF0000,
}
_SELECTIONS = {"v_cndmask_b32": ("u", "uu", ""), "v_cndmask_b16": ("w", "ww", "")}


def used(ins: Instruction, name: str) -> int:
    """The bits of a register that an instruction reads."""
    if ins.mnemonic.startswith(("v_movrel", "v_indexed")):
        return WORD  # which registers it reads is known at run time
    reads_first = not uses(ins)[1] or ins.mnemonic.startswith((*READS_RESULT, "buffer_atomic"))
    found = 0
    for position, operand in enumerate(ins.operands):
        if (position or reads_first) and name in registers(operand):
            found |= of_operand(ins, position)
    return found


def kinds(ins: Instruction) -> str:
    """Of its result and its operands, as vector.py has them; nothing where it has no such row."""
    result, operands, _ = VALU.get(stem(ins.mnemonic)) or _SELECTIONS.get(stem(ins.mnemonic), ("", "", ""))
    return result + operands


def is_half(ins: Instruction, position: int) -> bool:
    """Whether one of its operands, or its result, is half a register."""
    return kinds(ins)[position : position + 1] in ("h", "w", "s")


def selects_high(ins: Instruction, position: int) -> bool:
    """Whether op_sel has the high half of one of its operands, or of its result."""
    selected = re.findall(r"\d", ins.modifiers.get("op_sel", ""))
    return dict(enumerate(selected, 1)).get(position or len(kinds(ins))) == "1"


def of_operand(ins: Instruction, position: int) -> int:
    """The bits of one of its operands that an instruction uses: of what is not known here, all."""
    if part := PARTS.get(ins.modifiers.get(f"src{position - 1}_sel", "")):
        return part
    operand = ins.operands[position]
    if operand.endswith((".l", ".h")):
        return PARTS["WORD_0" if operand.endswith(".l") else "WORD_1"]
    if stored := _STORED.match(ins.mnemonic):
        return (0xFF if stored[2] in ("byte", "b8") else 0xFFFF) << (16 if stored[1] or stored[3] else 0)
    numbers = [int(text, 0) & WORD if NUMBER.match(text) else None for text in ins.operands]
    match re.sub(r"_(e32|e64)$", "", ins.mnemonic), position, numbers:
        case ("v_and_b32", 1, [_, _, int(mask)]) | ("v_and_b32", 2, [_, int(mask), _]):
            return mask
        case "v_and_or_b32", 1, [_, _, int(mask), _]:
            return mask
        case "v_bfe_u32" | "v_bfe_i32", 1, [_, _, int(start), int(width)]:
            return (1 << width) - 1 << start & WORD
        case "v_lshrrev_b32" | "v_ashrrev_i32", 2, [_, int(count), _]:
            return WORD << count & WORD
        case ("v_lshlrev_b32", 2, [_, int(count), _]) | ("v_lshl_or_b32", 1, [_, _, int(count), _]):
            return WORD >> count
        case "v_lshrrev_b16" | "v_ashrrev_i16", 2, [_, int(count), _] if "op_sel" not in ins.modifiers:
            return 0xFFFF << count & 0xFFFF
        case "v_lshlrev_b16", 2, [_, int(count), _] if "op_sel" not in ins.modifiers:
            return 0xFFFF >> count
        case "v_perm_b32", 1 | 2, [_, _, _, int(chosen)]:
            picked = set(chosen.to_bytes(4, "little"))
            if max(picked) < 8:  # the second operand's bytes, then the first's; others are signs and constants
                return sum(0xFF << 8 * i for i in range(4) if i + (4 if position == 1 else 0) in picked)
    if is_half(ins, position):
        return 0xFFFF << 16 * selects_high(ins, position)
    if converted := re.match(r"^v_cvt_f32_ubyte(\d)", ins.mnemonic):
        return 0xFF << 8 * int(converted[1])
    return WORD
