"""What a kernel's text refers to beyond itself: the functions that it calls, constants and variables."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from wmma_ops.emulator import limits
from wmma_ops.emulator.assembly import Datum, Instruction, KernelText
from wmma_ops.emulator.memory import Region

# Where functions lie: nothing is read or written there. A block of instructions takes one step.
CODE_BASE, CODE_STEP = 0x0004_0000_0000_0000, 16

_SYMBOL = re.compile(r"^([\w.$]+)@(rel32|gotpcrel32)@(lo|hi)([+-]\d+)$")
_FAR = re.compile(r"^\((\.?[\w$]+)-(\.Lpost_getpc\d+)\)(&4294967295|>>32)$")
_FOUR_BYTES = ("s_wait", "s_sext_i32_i16", "s_nop", "s_delay_alu")


@dataclass
class Linked:
    """A kernel and all that it calls, one after the other."""

    instructions: list[Instruction]
    labels: dict[str, int]
    functions: dict[str, int] = field(default_factory=dict)  # name -> its first instruction
    data: dict[str, Region] = field(default_factory=dict)
    contents: dict[str, Datum] = field(default_factory=dict)


def _symbols(instructions: list[Instruction]) -> list[str]:
    found = (_SYMBOL.match(op) for ins in instructions if "@" in ins.text for op in ins.operands)
    return [match.group(1) for match in found if match]


def link(kernel: KernelText) -> Linked:
    """Puts the functions that the kernel may call behind it, and the data that it names into memory."""
    linked = Linked(_near(kernel), dict(kernel.labels))
    work, placed = _symbols(kernel.instructions), 0
    while work:
        name = work.pop()
        if name in linked.functions or name in linked.data:
            continue
        function = kernel.functions.get(name)
        if function is not None and function.instructions:
            start = linked.functions[name] = len(linked.instructions)
            linked.instructions += _near(function)
            linked.labels |= {label: start + at for label, at in function.labels.items()}
            work += _symbols(function.instructions)
        elif (datum := kernel.data.get(name)) is not None:
            placed += datum.size
            limits.check(f"the constants and variables of {kernel.name}", placed)
            linked.data[name], linked.contents[name] = _region(name, datum.size, datum.parts), datum
            work += [symbol for _, symbol, _ in datum.addresses]
        else:
            raise ValueError(f"{name} is neither a function nor data that the emulator can place")
    return linked


def _near(kernel: KernelText) -> list[Instruction]:
    """The instructions, with plain branches for those that the compiler adds to the place where they stand, as no branch
    reaches so far."""
    found = list(kernel.instructions)
    for start, ins in enumerate(found):
        if ins.mnemonic != "s_getpc_b64":
            continue
        targets, at = [], start + 1
        while at < len(found) and found[at].mnemonic.startswith((*_FOUR_BYTES, "s_add")):
            far = _FAR.match(found[at].operands[-1]) if found[at].operands else None
            if far and kernel.labels.get(far[2]) == start + 1:
                targets.append((far[1], far[3]))
            at += 1
        halves = [(targets[0][0], part) for part in ("&4294967295", ">>32")] if targets else None
        if targets == halves and at < len(found) and found[at].mnemonic == "s_setpc_b64":
            for i in range(start, at):
                found[i] = found[i]._replace(mnemonic="s_nop", operands=("0",))
            found[at] = found[at]._replace(mnemonic="s_branch", operands=(targets[0][0],))
    return found


def _region(name: str, size: int, parts: Iterable[tuple[int, bytes]]) -> Region:
    """Memory of a variable, at a multiple of 64 bytes. `parts` say what of it is not 0."""
    raw = np.zeros(size + 128, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    for at, content in parts:
        raw[start + at : start + at + len(content)] = np.frombuffer(content, np.uint8)
    return Region(raw.ctypes.data + start, size, name, raw)


def resolve(linked: Linked, block_of: dict[int, int]) -> None:
    """Replaces names of symbols by numbers, as s_getpc_b64 gives 0 here. `block_of` is the block that starts at a place.

    The compiler adds to what s_getpc_b64 gives the distance from there: what it writes beyond the distance to the adding
    instruction's constant is an offset within the symbol.
    """
    for name, datum in linked.contents.items():
        region = linked.data[name]
        for place, symbol, addend in datum.addresses:
            address = _address(linked, symbol, block_of) + addend
            start = region.base - region.start + place
            region.bytes[start : start + 8] = np.frombuffer(address.to_bytes(8, "little"), np.uint8)
    table: dict[str, Region] = {}
    passed = None  # bytes since s_getpc_b64
    halves = 2
    for at, ins in enumerate(linked.instructions):
        if ins.mnemonic == "s_getpc_b64":
            passed, halves = 0, 0
            continue
        match = next(filter(None, map(_SYMBOL.match, ins.operands)), None) if "@" in ins.text else None
        if match is None:
            if halves < 2 and not ins.mnemonic.startswith(_FOUR_BYTES):
                raise ValueError(f"{ins.text!r}: another use of s_getpc_b64")
            passed = passed + 4 if passed is not None else None
            continue
        if passed is None:
            raise ValueError(f"{ins.text!r}: not after s_getpc_b64")
        name, how, part, addend = match.groups()
        address = _address(linked, name, block_of) + int(addend) - (passed + 4)
        if how == "gotpcrel32":
            if int(addend) != passed + 4:
                raise ValueError(f"{ins.text!r}: within the table of addresses")
            if name not in table:
                table[name] = _region(f"the address of {name}", 8, [(0, address.to_bytes(8, "little"))])
            address = table[name].base
        value = address >> 32 if part == "hi" else address & 0xFFFFFFFF
        operands = tuple(hex(value) if _SYMBOL.match(op) else op for op in ins.operands)
        linked.instructions[at] = ins._replace(operands=operands)
        passed, halves = passed + 8, halves + 1
    linked.data |= {f"@{name}": region for name, region in table.items()}


def _address(linked: Linked, name: str, block_of: dict[int, int]) -> int:
    if name in linked.data:
        return linked.data[name].base
    return CODE_BASE + CODE_STEP * block_of[linked.functions[name]]
