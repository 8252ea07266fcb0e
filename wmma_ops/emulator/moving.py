"""What an instruction that moves bits gives of those that nothing has written.

Compilers put the bytes of an operand one by one into a register that held nothing: each instruction takes the others along,
and the last of them is replaced before any is used. Of the instructions in `_RESULTS` it is known where each bit goes,
beside constants and scalars too; what others give is written where all is that they take.
"""

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from wmma_ops.emulator.assembly import Instruction, stem
from wmma_ops.emulator.bits import PARTS, WORD, is_half, kinds, selects_high, used
from wmma_ops.emulator.dataflow import keeps, registers
from wmma_ops.emulator.operands import NUMBER, scalar_index


class Known(NamedTuple):
    """Of a value, the bits that nothing has written, those that may be ones, and those that are."""

    unwritten: int
    may: int = WORD
    are: int = 0

    @property
    def is_constant(self) -> bool:
        return self.may == self.are


_Operand = Callable[
    [Mapping[str, int], Sequence[int]], Known
]  # of the bits of registers that are written, and the scalars


class Move(NamedTuple):
    """An instruction whose result fills a part of a register."""

    result: Callable[..., Known]
    operands: tuple[_Operand, ...]
    part: int = WORD
    cleared: int = 0  # beside the part
    beside: int = 0  # what counts as written once the part is
    replaces: bool = True  # the part, in the lanes that are on

    def written(self, old: int, written: Mapping[str, int], scalars: Sequence[int], full: bool) -> int:
        """The bits of a register that are written behind the instruction, where `old` are before it."""
        known = self.result(*[operand(written, scalars) for operand in self.operands])
        unwritten = known.unwritten * (self.part & -self.part) & self.part
        if self.replaces and full:
            old &= ~self.part
        return old | self.part & ~unwritten | self.cleared | (0 if unwritten else self.beside)


def move(ins: Instruction, sources: Iterable[str], clears: bool) -> Move:
    """Of an instruction that moves bits of these registers. `clears`: whether results of 16 bits clear the other half."""
    result, replaces = _RESULTS.get(stem(ins.mnemonic)), "dpp" not in ins.mnemonic
    if result is None or "sext" in ins.text.lower():
        # Which part it keeps, if any, is not known.
        operands = tuple(_register(name, used(ins, name)) for name in sources)
        return Move(_COPIES.get(stem(ins.mnemonic), _all), operands, replaces=replaces and not keeps(ins))
    operands, part = tuple(_operand(ins, position) for position in range(1, len(kinds(ins)))), _part(ins, 0)
    if "dst_sel" in ins.modifiers and ins.modifiers["dst_sel"] != "DWORD":
        cleared = 0 if ins.modifiers.get("dst_unused") == "UNUSED_PRESERVE" else WORD & ~part
        return Move(result, operands, part, cleared)
    cleared = WORD & ~part if clears and part == PARTS["WORD_0"] else 0
    # Halves are written one at a time: the other one is of no concern, as in dataflow.py.
    return Move(result, operands, part, cleared, WORD & ~part, replaces)


def _part(ins: Instruction, position: int) -> int:
    """The bits that one of its operands has of a register, or its result."""
    select = f"src{position - 1}_sel" if position else "dst_sel"
    if selected := PARTS.get(ins.modifiers.get(select, "")):
        return selected
    if is_half(ins, position):
        return PARTS["WORD_1" if ins.operands[position].endswith(".h") or selects_high(ins, position) else "WORD_0"]
    return WORD


def _operand(ins: Instruction, position: int) -> _Operand:
    text, part = ins.operands[position], _part(ins, position)
    if names := registers(text):
        (name,) = names
        return _register(name, part)
    if scalar := scalar_index(text):
        return lambda written, scalars: _constant((scalars[scalar[0]] & part) // (part & -part))
    known = _constant((int(text, 0) & part) // (part & -part)) if NUMBER.match(text) else Known(0)
    return lambda written, scalars: known


def _register(name: str, part: int) -> _Operand:
    lowest = part & -part or 1
    return lambda written, scalars: Known((part & ~written.get(name, 0)) // lowest, part // lowest)


def _constant(value: int) -> Known:
    return Known(0, value, value)


def _all(*operands: Known) -> Known:
    return Known(WORD if any(x.unwritten for x in operands) else 0)


def _same(x: Known) -> Known:
    return x


def _either(x: Known, y: Known) -> Known:
    """Which lanes take which is not asked."""
    return Known(x.unwritten & y.unwritten)


def _not(x: Known) -> Known:
    return Known(x.unwritten, WORD & ~x.are, WORD & ~x.may)


def _and(x: Known, y: Known) -> Known:
    may = x.may & y.may
    return Known((x.unwritten | y.unwritten) & may, may, x.are & y.are)


def _or(*operands: Known) -> Known:
    unwritten, may, are = (functools.reduce(operator.or_, parts) for parts in zip(*operands, strict=True))
    return Known(unwritten & ~are, may, are)


def _xor(*operands: Known) -> Known:
    return Known(functools.reduce(operator.or_, (x.unwritten for x in operands)))


def _signed(value: int, width: int) -> int:
    return value - ((value >> width - 1 & 1) << width)


def _left(count: Known, x: Known, width: int = 32) -> Known:
    if not count.is_constant:
        return _all(count, x)
    return Known(*(bits << count.are % width & WORD for bits in x))


def _right(count: Known, x: Known, width: int = 32, signed: bool = False) -> Known:
    if not count.is_constant:
        return _all(count, x)
    return Known(*((_signed(bits, width) if signed else bits) >> count.are % width & WORD for bits in x))


def _extracted(x: Known, start: Known, width: Known, signed: bool = False) -> Known:
    if not (start.is_constant and width.is_constant):
        return _all(x, start, width)
    count = width.are % 32
    unwritten = x.unwritten >> start.are % 32 & (1 << count) - 1
    return Known(_signed(unwritten, count) & WORD if signed and count else unwritten)


def _inserted(mask: Known, x: Known, y: Known) -> Known:
    return _or(_and(mask, x), _and(_not(mask), y))


def _aligned(x: Known, y: Known, count: Known, step: int = 1) -> Known:
    if not count.is_constant:
        return _all(x, y, count)
    return Known((x.unwritten << 32 | y.unwritten) >> count.are * step % 32 & WORD)


def _permuted(x: Known, y: Known, chosen: Known) -> Known:
    """Bytes of y (0-3) and of x (4-7), the signs of their halves (8-11), constants."""
    if not chosen.is_constant:
        return _all(x, y, chosen)
    both, unwritten = x.unwritten << 32 | y.unwritten, 0
    for place, which in enumerate(chosen.are.to_bytes(4, "little")):
        if which < 8:
            unwritten |= (both >> 8 * which & 0xFF) << 8 * place
        elif which < 12 and both >> 16 * which - 113 & 1:
            unwritten |= 0xFF << 8 * place
    return Known(unwritten)


_RESULTS: dict[str, Callable[..., Known]] = {
    "v_mov_b32": _same,
    "v_mov_b16": _same,
    "v_accvgpr_read_b32": _same,
    "v_accvgpr_write_b32": _same,
    "v_accvgpr_mov_b32": _same,
    "v_cndmask_b32": _either,
    "v_cndmask_b16": _either,
    "v_not_b32": _not,
    "v_not_b16": _not,
    "v_and_b32": _and,
    "v_and_b16": _and,
    "v_or_b32": _or,
    "v_or_b16": _or,
    "v_or3_b32": _or,
    "v_xor_b32": _xor,
    "v_xor_b16": _xor,
    "v_xor3_b32": _xor,
    "v_xnor_b32": _xor,
    "v_and_or_b32": lambda x, y, z: _or(_and(x, y), z),
    "v_lshl_or_b32": lambda x, count, y: _or(_left(count, x), y),
    "v_lshlrev_b32": _left,
    "v_lshlrev_b16": functools.partial(_left, width=16),
    "v_lshrrev_b32": _right,
    "v_lshrrev_b16": functools.partial(_right, width=16),
    "v_ashrrev_i32": functools.partial(_right, signed=True),
    "v_ashrrev_i16": functools.partial(_right, width=16, signed=True),
    "v_bfe_u32": _extracted,
    "v_bfe_i32": functools.partial(_extracted, signed=True),
    "v_bfi_b32": _inserted,
    "v_alignbit_b32": _aligned,
    "v_alignbyte_b32": functools.partial(_aligned, step=8),
    "v_perm_b32": _permuted,
    "v_pack_b32_f16": lambda x, y: Known(x.unwritten | y.unwritten << 16),
}
_COPIES = {"v_mov_b64": _same, "v_pk_mov_b32": _same}  # of each register of a pair on its own: see dataflow.py
