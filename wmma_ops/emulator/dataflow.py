"""Which vector registers an instruction reads and writes, and which bits it only moves.

Sets of registers are numbers here, of one bit for each: a kernel has thousands of them, and they are joined and compared.
"""

import functools
import re

from wmma_ops.emulator.assembly import Instruction, parse_instruction
from wmma_ops.emulator.errors import UnknownInstruction

_REGISTER = re.compile(r"\b([va])(?:(\d+)\b|\[(\d+):(\d+)\])")
_MOVES = re.compile(
    r"^v_(mov_b|pk_mov_b|accvgpr_|cndmask_b|cvt_|perm_b|align(bit|byte)_b|pack_b32|bfrev_b|(pk_)?(lshl|lshr|ashr)(rev)?_[biu]|"
    r"(and|or|or3|xor|xor3|xnor|not|and_or|lshl_or|bitop3)_b|bf[ei]_)"
)
READS_RESULT = (
    "v_fmac",
    "v_mac_",
    "v_dot2c",
    "v_dot2acc",
    "v_dot4c",
    "v_smfmac",
    "v_swap",
    "v_permlane16_swap",
    "v_permlane32_swap",
)
_OF_HALVES = re.compile(r"^v_(?!pk_|cmp|cvt_[fiu]32|dot|wmma|mfma).*_(b|u|i|f|bf)16(_e32|_e64)?$")
_WIDE_INTEGER = re.compile(r"^v_(mad_(co_)?[iu]64_[iu]32|(lshl|lshr|ashr)rev_[bi]64|(add|sub)_(nc_)?u64|lshl_add_u64)")
_PACKED_WIDE = re.compile(r"^v_pk_(add|mul|fma)_f32$")
_SHARED_ATOMIC = re.compile(r"^ds_(add|sub|max|min|and|or|xor|inc|dec|cmp|wrx|storex|pk_add)")
_STORES = ("global_store", "flat_store", "scratch_store", "ds_write", "ds_store", "buffer_store")


@functools.lru_cache(maxsize=8192)
def registers(text: str) -> frozenset[str]:
    return frozenset(names(as_bits(text)))


@functools.lru_cache(maxsize=8192)
def as_bits(text: str) -> int:
    """v0 is the lowest bit, a0 the next one, then v1."""
    found = 0
    for prefix, one, first, last in _REGISTER.findall(text):
        start, stop = (int(one), int(one) + 1) if one else (int(first), int(last) + 1)
        found |= ((1 << 2 * stop) - (1 << 2 * start)) // 3 << (prefix == "a")  # every other bit
    return found


def each(found: int) -> list[int]:
    """The sets of one register, in the order of their numbers."""
    ones = []
    while found:
        ones.append(found & -found)
        found &= found - 1
    return ones


def names(found: int) -> list[str]:
    return [f"{'va'[place % 2]}{place // 2}" for place in (one.bit_length() - 1 for one in each(found))]


def is_atomic(mnemonic: str) -> bool:
    return "atomic" in mnemonic or bool(_SHARED_ATOMIC.match(mnemonic))


def to_shared(ins: Instruction) -> bool:
    """A load whose result goes to shared memory, past the registers."""
    return "lds" in ins.modifiers or ins.mnemonic.startswith("global_load_lds_")


def returns_old(ins: Instruction) -> bool:
    """True where an atomic gives back what was there before."""
    return (
        "_rtn" in ins.mnemonic or bool({"glc", "sc0"} & set(ins.modifiers)) or "RETURN" in ins.modifiers.get("th", "")
    )


def _selected(ins: Instruction) -> int:
    """Of pairs of registers, those that op_sel (for the low result) and op_sel_hi (for the high one) select."""
    found = 0
    for position, op in enumerate(ins.operands[1:]):
        pair = each(as_bits(op))
        for name, default in (("op_sel", 0), ("op_sel_hi", 1)):
            chosen = dict(enumerate(re.findall(r"\d", ins.modifiers.get(name, ""))))
            found |= pair[int(chosen.get(position, default))] if len(pair) == 2 else as_bits(op)
    return found


def uses(ins: Instruction) -> tuple[int, int]:
    """(read, written)."""
    if ins.mnemonic.startswith("s_"):
        return 0, 0
    if ins.mnemonic.startswith("v_indexed"):  # its modifiers are not those of its text
        return _uses(ins)
    key = ins.mnemonic, ins.operands, ins.text
    found = _known.get(key)
    if found is None:
        if len(_known) >= 32768:
            _known.clear()
        found = _known[key] = _uses(ins)
    return found


_known: dict[tuple, tuple[int, int]] = {}


def _uses(ins: Instruction) -> tuple[int, int]:
    m, ops = ins.mnemonic, ins.operands
    if m.startswith(("v_movrel", "v_indexed")):
        # Copies, whose operands are known at run time; `written` is told there.
        somewhere = m.startswith(("v_movreld", "v_movrelsd")) or "destination" in ins.modifiers
        return 0, 0 if somewhere else as_bits(ops[0])
    if not ops or not m.startswith(("v_", "global_", "flat_", "scratch_", "ds_", "buffer_")):
        return 0, 0
    first, rest = as_bits(ops[0]), 0
    for op in ops[1:]:
        rest |= as_bits(op)
    if m.startswith("scratch_store"):
        # Spills save registers that a caller may never have written: copies, too. (Those through a buffer: program.py.)
        return first, 0
    if m.startswith(_STORES) or to_shared(ins):
        return first | rest, 0
    if m.startswith("v_cmp"):
        return first | rest, 0
    if m.startswith("buffer_atomic"):
        return first | rest, first if returns_old(ins) else 0
    if is_atomic(m):
        return (rest, first) if returns_old(ins) else (first | rest, 0)
    if m.startswith(("v_swap", "v_permlane16_swap", "v_permlane32_swap")):
        return first | rest, first | rest
    # Halves are written one at a time: the other one stays as it was, of no concern.
    reads = rest | first if m.startswith(READS_RESULT) or _keeps_others(ins) else rest
    if _PACKED_WIDE.match(m):
        reads = _selected(ins)
    elif _WIDE_INTEGER.match(m):
        # Where the compiler wants the low word alone, it leaves the high word of an operand undefined.
        for op in ops[1:]:
            if pair := re.fullmatch(r"([va])\[\d+:(\d+)\]", op):
                reads &= ~as_bits(f"{pair[1]}{pair[2]}")
    return reads, first


def _keeps_others(ins: Instruction) -> bool:
    """Whether it moves bits to some of its result's, beside the others: so compilers put bytes together."""
    return ins.modifiers.get("dst_unused") == "UNUSED_PRESERVE" and bool(_MOVES.match(ins.mnemonic))


def halves(ins: Instruction) -> list[Instruction]:
    """Those of a dual-issue instruction, in an order in which neither sees the other's result. Of others, itself."""
    if "::" not in ins.text:
        return [ins]
    parts = (part.strip().replace("v_dual_", "v_", 1) for part in ins.text.split("::"))
    found = [parse_instruction(part, ins.line, ins.source) for part in parts]
    (reads, wrote), (other_reads, other_wrote) = map(uses, found)
    if not other_reads & wrote:
        return found
    if not reads & other_wrote:
        return found[::-1]
    raise UnknownInstruction(f"{ins.text!r}: both halves read the other's result")


def keeps(ins: Instruction) -> bool:
    """Whether it leaves a part of its result's register as it was."""
    partly = "d16" in ins.mnemonic or "op_sel" in ins.modifiers or ins.operands[0].endswith((".l", ".h"))
    return partly or bool(_OF_HALVES.match(ins.mnemonic)) or ins.modifiers.get("dst_unused") == "UNUSED_PRESERVE"


def moves(ins: Instruction) -> list[tuple[int, list[int]]]:
    """Of an instruction that moves bits: the registers that it writes, each with those of which one set has to be written
    for it to be. Nothing of others."""
    if not _MOVES.match(ins.mnemonic):
        return []
    found = _moves.get(ins.text)
    if found is None:
        if len(_moves) >= 32768:
            _moves.clear()
        found = _moves[ins.text] = _moved(ins)
    return found


_moves: dict[str, list[tuple[int, list[int]]]] = {}


def _moved(ins: Instruction) -> list[tuple[int, list[int]]]:
    m, ops = ins.mnemonic, ins.operands
    reads, written = uses(ins)
    if m.startswith("v_cndmask"):  # which lanes take which is known at run time
        kept = written if _keeps_others(ins) else 0
        return [(written, [as_bits(op) | kept for op in ops[1:3]])]
    if m.startswith("v_mov_b64"):
        return [(to, [source]) for to, source in zip(each(written), each(reads), strict=False)]
    if m.startswith("v_pk_mov_b32"):
        chosen = [int(digit) for digit in re.findall(r"\d", ins.modifiers.get("op_sel", "[0,0]"))]
        sources = (sum(each(as_bits(op))[which:][:1]) for op, which in zip(ops[1:], chosen, strict=True))
        return [(to, [source]) for to, source in zip(each(written), sources, strict=True)]
    return [(written, [reads])]
