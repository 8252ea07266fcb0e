"""Which vector registers a kernel may read before anything has written them.

A register that every path to a read has written needs no watching. For the others the generated code keeps one flag a
wave, so that the watch costs nothing where the compiler left no doubt. Plain copies are exempt: compilers copy values
that no lane uses. So they convert them, ahead of the branch that does; but what a conversion gives counts as written
only where its operands are.
"""

import functools
import re
from collections.abc import Set

from wmma_ops.emulator.assembly import Instruction

_REGISTER = re.compile(r"\b([va])(?:(\d+)\b|\[(\d+):(\d+)\])")
_COPIES = ("v_mov_b32", "v_mov_b64", "v_dual_mov_b32", "v_accvgpr", "v_cndmask", "v_pk_mov_b32", "v_dual_cndmask")
READS_RESULT = (
    "v_fmac",
    "v_mac_",
    "v_dot2c",
    "v_dot4c",
    "v_smfmac",
    "v_swap",
    "v_permlane16_swap",
    "v_permlane32_swap",
)
_WIDE_INTEGER = re.compile(r"^v_(mad_(co_)?[iu]64_[iu]32|(lshl|lshr|ashr)rev_[bi]64|(add|sub)_(nc_)?u64|lshl_add_u64)")
_PACKED_WIDE = re.compile(r"^v_pk_(add|mul|fma)_f32$")
_SHARED_ATOMIC = re.compile(r"^ds_(add|sub|max|min|and|or|xor|inc|dec|cmp|wrx|storex|pk_add)")
_STORES = ("global_store", "flat_store", "scratch_store", "ds_write", "ds_store", "buffer_store")


@functools.lru_cache(maxsize=8192)
def registers(text: str) -> frozenset[str]:
    found = set()
    for prefix, one, first, last in _REGISTER.findall(text):
        numbers = [int(one)] if one else range(int(first), int(last) + 1)
        found.update(f"{prefix}{number}" for number in numbers)
    return frozenset(found)


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


def _selected(ins: Instruction) -> set[str]:
    """Of pairs of registers, those that op_sel (for the low result) and op_sel_hi (for the high one) select."""
    found = set()
    for position, op in enumerate(ins.operands[1:]):
        pair = sorted(registers(op), key=lambda register: int(register[1:]))
        for name, default in (("op_sel", 0), ("op_sel_hi", 1)):
            chosen = dict(enumerate(re.findall(r"\d", ins.modifiers.get(name, ""))))
            found.update(pair[int(chosen.get(position, default)) :][:1] if len(pair) == 2 else pair)
    return found


def uses(ins: Instruction) -> tuple[Set[str], Set[str]]:
    """(read, written)."""
    if ins.mnemonic.startswith("v_indexed"):  # its modifiers are not those of its text
        return _uses(ins)
    key = ins.mnemonic, ins.operands, ins.text
    found = _known.get(key)
    if found is None:
        if len(_known) >= 32768:
            _known.clear()
        found = _known[key] = _uses(ins)
    return found


_known: dict[tuple, tuple[Set[str], Set[str]]] = {}


def _uses(ins: Instruction) -> tuple[Set[str], Set[str]]:
    if "::" in ins.text:
        read, written = set(), set()
        for half in ins.text.split("::"):
            words = half.strip().split(None, 1)
            first, _, rest = words[1].partition(",")
            written |= registers(first)
            read |= registers(rest) | (registers(first) if "fmac" in words[0] else set())
        return (set() if "v_dual_mov" in ins.text else read), written
    m, ops = ins.mnemonic, ins.operands
    if m.startswith(("v_movrel", "v_indexed")):
        # Copies, whose operands are known at run time; `written` is told there.
        somewhere = m.startswith(("v_movreld", "v_movrelsd")) or "destination" in ins.modifiers
        return set(), set() if somewhere else registers(ops[0])
    if not ops or not m.startswith(("v_", "global_", "flat_", "scratch_", "ds_", "buffer_")):
        return set(), set()
    every = [registers(op) for op in ops]
    rest = set().union(*every[1:]) if len(every) > 1 else set()
    if m.startswith("scratch_store"):
        # Spills save registers that a caller may never have written: copies, too. (Those through a buffer: program.py.)
        return every[0], set()
    if m.startswith(_STORES) or to_shared(ins):
        return every[0] | rest, set()
    if m.startswith("buffer_atomic"):
        return every[0] | rest, every[0] if returns_old(ins) else set()
    if is_atomic(m):
        return (rest, every[0]) if returns_old(ins) else (every[0] | rest, set())
    if m.startswith(("v_swap", "v_permlane16_swap", "v_permlane32_swap")):
        return every[0] | rest, every[0] | rest
    # Halves are written one at a time: the other one stays as it was, of no concern.
    reads = rest | (every[0] if m.startswith(READS_RESULT) else set())
    if m.startswith(_COPIES):
        reads = set()
    elif _PACKED_WIDE.match(m):
        reads = _selected(ins)
    elif _WIDE_INTEGER.match(m):
        # Where the compiler wants the low word alone, it leaves the high word of an operand undefined.
        for op in ops[1:]:
            if pair := re.fullmatch(r"([va])\[\d+:(\d+)\]", op):
                reads.discard(f"{pair[1]}{pair[2]}")
    return reads, every[0]


_OF_BFLOAT16 = {
    f"{m}{form}": by for m, by in (("v_lshlrev_b32", "16"), ("v_and_b32", "0xffff0000")) for form in ("", "_e32")
}


def converts(ins: Instruction) -> bool:
    """A bfloat16 is the upper half of a float."""
    by = _OF_BFLOAT16.get(ins.mnemonic)
    return ins.operands[1] == by if by else ins.mnemonic.startswith("v_cvt_")


def _steps(instructions: list[Instruction]) -> list[tuple[Set[str], Set[str], bool]]:
    """(read, written, whether it converts) of each conversion and of all between two of them."""
    steps = [(set(), set(), False)]
    for ins in instructions:
        read, wrote = uses(ins)
        if converts(ins):
            steps += [(read, wrote, True), (set(), set(), False)]
        else:
            needed, written, _ = steps[-1]
            needed |= read - written
            written |= wrote
    return steps


def _follow(steps: list[tuple[Set[str], Set[str], bool]], before: Set[str]) -> tuple[set[str], set[str]]:
    """What is written after them, and what they read that was not."""
    known, missed = set(before), set()
    for read, written, is_conversion in steps:
        unknown = read - known
        missed |= unknown
        if not (is_conversion and unknown):
            known |= written
    return known, missed


def doubtful(
    instructions: list[Instruction], blocks: list[tuple[int, int]], successors: list[list[int]], entry: set[str]
) -> set[str]:
    """Registers that some read may meet unwritten. `blocks` are (start, stop) of the instructions."""
    steps = [_steps(instructions[start:stop]) for start, stop in blocks]
    before: list[Set[str] | None] = [None] * len(blocks)  # None where control has not come to
    before[0] = set(entry)
    work = [0]
    while work:
        at = work.pop()
        after, _ = _follow(steps[at], before[at])
        for following in successors[at]:
            if following < 0:
                continue
            merged = after if before[following] is None else before[following] & after
            if merged != before[following]:
                before[following] = merged
                work.append(following)
    return set().union(
        *(_follow(part, known)[1] for part, known in zip(steps, before, strict=True) if known is not None)
    )
