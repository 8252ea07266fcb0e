"""What an instruction asks of the hardware: which unit, which registers, which counters it raises or waits for."""

import functools
import re
from collections.abc import Set
from dataclasses import dataclass
from typing import NamedTuple

from wmma_ops.emulator import dataflow
from wmma_ops.emulator.assembly import Instruction, class_of, parse_instruction
from wmma_ops.hardware import arch

_SCALARS = re.compile(r"\b(?:s(\d+)\b|s\[(\d+):(\d+)\]|(vcc|exec|m0|scc)\w*)")
_TRANSCENDENTAL = re.compile(r"^v_(s_)?(exp|log|rcp|rsq|sqrt|sin|cos|tanh)_")
_WIDE = re.compile(r"^v_(lshlrev|lshrrev|ashrrev)_[bi]64")
_PACKED = re.compile(r"^v_pk_(add|mul|fma|mov)_(f|b)32")
_COUNTS = re.compile(r"\b(vmcnt|lgkmcnt|expcnt|vscnt)\((\d+)\)")
_WAITS = {  # gfx12's, and gfx11's of stores
    "s_wait_loadcnt": ("loads",), "s_wait_storecnt": ("stores",), "s_wait_dscnt": ("shared",), "s_wait_kmcnt": ("scalar",),
    "s_wait_loadcnt_dscnt": ("loads", "shared"), "s_wait_storecnt_dscnt": ("stores", "shared"),
    "s_waitcnt_vscnt": ("stores",),
}  # fmt: skip
_WRITES_NOTHING = (
    "s_cmp",
    "s_bitcmp",
    "s_wait",
    "s_nop",
    "s_barrier",
    "s_branch",
    "s_cbranch",
    "s_setprio",
    "s_endpgm",
)
_SIZES = {"b8": 1, "u8": 1, "i8": 1, "b16": 2, "u16": 2, "i16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16}
_WORDS = {"ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2, "dword": 4, "dwordx2": 8, "dwordx3": 12,
          "dwordx4": 16}  # fmt: skip


# Registers are numbered, so that a wave keeps what it knows of them in lists, of which an operand is a slice or a few.
_FIRST = {"v": 0, "a": 512, "s": 1024}
_NAMED = ("vcc", "exec", "m0", "scc")
FIRST_SCALAR, FIRST_NAMED = 1024, 1024 + 128
REGISTERS = FIRST_NAMED + len(_NAMED)

Slices = tuple[slice, ...]


@dataclass(frozen=True)
class Operation:
    unit: (
        str  # vector, transcendental, packed, matrix, shared, memory, scalar_memory, scalar, branch, clause, delay, wait,
        # wait_alu, barrier, end
    )
    reads: Slices  # but `adds_to`
    writes: Slices
    text: str
    adds_to: Slices = ()  # of a matrix instruction's: what it adds to
    cycles: int = 0  # of a matrix or a VALU instruction; wait states of s_nop; units of 64 cycles of s_sleep
    size: int = 0  # bytes a lane, of memory
    is_store: bool = False
    waits: tuple[tuple[str, int], ...] = ()  # (counter, how many may be on their way); of s_wait_alu whose results
    delays: tuple[tuple[int, str, int], ...] = ()  # of s_delay_alu, as `_delays` says
    priority: int = 0


class Executed(NamedTuple):
    """An operation as a wave executes it."""

    operation: Operation
    shared_cycles: int | None = None  # what the banks took; None: no conflict
    lanes: int | None = None  # that are on; None: all
    segments: int | None = None  # of 64 bytes, that its lanes touch of memory; None: no more than their bytes fill
    lines: tuple[int, ...] | None = None  # of the first cache, likewise; None: none that it holds
    number: int = 0  # of the instruction
    enters: int = -1  # the basic block whose first it is


def operation(ins: Instruction, target: str) -> Operation:
    """What the instruction is to the clock of a target."""
    return _operation(ins.text, target)


@functools.lru_cache(maxsize=32768)
def _operation(text: str, target: str) -> Operation:
    ins = parse_instruction(text)
    m, base = ins.mnemonic, target.split(":")[0]
    read, written = _registers(ins)
    kind = class_of(m)
    if kind == "matrix":
        added = _added(ins)
        cycles = matrix_cycles(ins, arch.target(base))
        if cycles is None:
            raise ValueError(f"{m} on {base}: how long it takes is not known")
        return Operation("matrix", _slices(read - added), _slices(written), ins.text, _slices(added), cycles)
    reads, writes = _slices(read), _slices(written)
    if kind == "vector":
        unit = "transcendental" if _TRANSCENDENTAL.match(m) else "packed" if _PACKED.match(m) else "vector"
        return Operation(unit, reads, writes, ins.text, cycles=_vector_cycles(m))
    if kind == "shared":
        return Operation("shared", reads, writes, ins.text, size=_size(m), is_store=not _gives(m))
    if kind == "memory":
        if not re.search("load|store|atomic", m):  # of the caches
            return Operation("scalar", reads, writes, ins.text)
        is_store = "store" in m or ("atomic" in m and not dataflow.returns_old(ins))
        return Operation("memory", reads, writes, ins.text, size=_size(m), is_store=is_store)
    if m.startswith(("s_load", "s_buffer_load")):
        return Operation("scalar_memory", reads, writes, ins.text)
    return _scalar(ins, reads, writes, base)


def _scalar(ins: Instruction, reads: Slices, writes: Slices, target: str) -> Operation:
    m = ins.mnemonic
    if m == "s_delay_alu":
        return Operation("delay", (), (), ins.text, delays=_delays(ins.text))
    if m == "s_clause":
        return Operation("clause", (), (), ins.text)
    if m in ("s_wait_alu", "s_waitcnt_depctr"):
        return Operation("wait_alu", (), (), ins.text, waits=_results_awaited(ins))
    if m.startswith("s_wait"):
        return Operation("wait", reads, (), ins.text, waits=_waits(ins, target))
    if m.startswith("s_barrier"):
        return Operation("barrier" if m in ("s_barrier", "s_barrier_wait") else "scalar", reads, (), ins.text)
    if m.startswith("s_endpgm"):
        return Operation("end", reads, (), ins.text)
    if m in ("s_nop", "s_sleep"):
        count = int(ins.operands[0], 0) + (m == "s_nop")
        return Operation(m.removeprefix("s_"), reads, (), ins.text, cycles=count)
    if m == "s_setprio":
        return Operation("priority", reads, (), ins.text, priority=int(ins.operands[0], 0))
    return Operation("branch" if "branch" in m else "scalar", reads, writes, ins.text)


def _delays(text: str) -> tuple[tuple[int, str, int], ...]:
    """Of s_delay_alu: (instructions in between; VALU, TRANS32 or SALU; n, of whose n-th last is waited for)."""
    skipped = {"SAME": 0, "NEXT": 1}
    found = dict(re.findall(r"(inst\w+)\((\w+)\)", text))
    skip = found.get("instskip", "SAME")
    places = {"instid0": 0, "instid1": skipped[skip] if skip in skipped else int(skip.removeprefix("SKIP_")) + 1}
    which = re.compile(r"(VALU|TRANS32|SALU)_(?:DEP|CYCLE)_(\d)")
    return tuple((place, of[1], int(of[2])) for key, place in places.items() if (of := which.match(found.get(key, ""))))


def _results_awaited(ins: Instruction) -> tuple[tuple[str, int], ...]:
    asked = "".join(ins.operands)
    if "depctr" in asked:
        scalar, vector = "sa_" in asked, "va_" in asked
    else:
        bits = int(asked, 0)
        scalar = not bits & 1
        vector = not (bits & 2 and bits & 0xE00 and bits & 0xF000)
    return (("scalar", 0),) * scalar + (("vector", 0),) * vector


def _vector_cycles(mnemonic: str) -> int:
    """How long a VALU instruction of RDNA takes its turn."""
    return 4 if mnemonic.startswith("v_mad_") and "64" in mnemonic else 2 if _WIDE.match(mnemonic) else 1


def _slices(names: Set[str]) -> Slices:
    """What stands in lists of all registers for these."""
    numbers = sorted(
        FIRST_NAMED + _NAMED.index(name) if name in _NAMED else _FIRST[name[0]] + int(name[1:]) for name in names
    )
    starts = [n for i, n in enumerate(numbers) if i == 0 or numbers[i - 1] != n - 1]
    stops = [n + 1 for i, n in enumerate(numbers) if i + 1 == len(numbers) or numbers[i + 1] != n + 1]
    return tuple(map(slice, starts, stops))


def _names(text: str) -> set[str]:
    found = set(dataflow.registers(text))
    for one, first, last, named in _SCALARS.findall(text):
        found |= {named} if named else {f"s{n}" for n in range(int(first or one), int(last or one) + 1)}
    return found


def _registers(ins: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """(read, written), those that the mnemonic alone names too."""
    if "::" in ins.text:
        halves = [half.strip().split(None, 1)[1].partition(",") for half in ins.text.split("::")]
        return (
            frozenset().union(*(_names(rest) for *_, rest in halves)),
            frozenset().union(*(_names(first) for first, *_ in halves)),
        )
    m, ops = ins.mnemonic, ins.operands
    first, rest = _names(ops[0]) if ops else set(), set().union(*map(_names, ops[1:]))
    stores = "store" in m or m.startswith("ds_write") or (dataflow.is_atomic(m) and not dataflow.returns_old(ins))
    if stores or m.startswith(_WRITES_NOTHING) or dataflow.to_shared(ins):
        reads, writes = first | rest, set()
    else:
        reads, writes = rest | (first if m.startswith(dataflow.READS_RESULT) else set()), first
    if m.startswith(("v_swap", "v_permlane16_swap", "v_permlane32_swap")):
        reads, writes = first | rest, first | rest
    if m.startswith(("v_add_co", "v_sub_co", "v_addc_co", "v_subb_co", "v_div_scale", "v_mad_u64")) and len(ops) > 1:
        writes = writes | _names(ops[1])
    if m.startswith("v_cmp") and "_e32" in m:
        writes = writes | {"vcc"}
    if m.startswith(("v_cndmask", "v_div_fmas")):
        reads = reads | {"vcc"}
    if m.startswith(("s_cmp", "s_bitcmp", "s_add", "s_sub", "s_and", "s_or", "s_xor", "s_lsh", "s_ash")):
        writes = writes | {"scc"}
    if m.startswith(("s_cbranch_scc", "s_cselect", "s_addc", "s_subb")):
        reads = reads | {"scc"}
    if m.startswith(("s_cbranch_vcc", "s_cbranch_exec")):
        reads = reads | {m[10:].removesuffix("nz").removesuffix("z")}
    return frozenset(reads), frozenset(writes)


def _added(ins: Instruction) -> frozenset[str]:
    return frozenset(_names(ins.operands[3])) if len(ins.operands) > 3 else frozenset()


def matrix_cycles(ins: Instruction, target: arch.Target) -> int | None:
    """How long a matrix instruction runs; None where that is not known."""
    name = ins.mnemonic.removesuffix("_e64").replace("v_mfma_scale_", "v_mfma_")
    known = {row.cycles for row in target.instructions if row.name == name}
    if len(known) > 1:  # f8f6f4: 0 and 1 stand for the 8-bit formats, which take longer
        formats = [int(ins.modifiers.get(operand, "0"), 0) for operand in ("cbsz", "blgp")]
        return max(known) if min(formats) < 2 else min(known)
    return next(iter(known), None)


def _gives(mnemonic: str) -> bool:
    return not re.match(r"^ds_(write|store)", mnemonic) and (
        "read" in mnemonic or "load" in mnemonic or "rtn" in mnemonic
    )


@functools.cache
def _size(mnemonic: str) -> int:
    """Bytes a lane."""
    pairs = 2 if re.match(r"^ds_(read|write|load|store)(xchg)?2", mnemonic) else 1
    whole = re.sub(r"(_b\d+)_tr_b\d+$", r"\1", mnemonic)  # ds_read_b64_tr_b16: 64 bits, as elements of 16
    for word in reversed(whole.split("_")):
        if found := _WORDS.get(word) or _SIZES.get(word) or _SIZES.get(f"b{word[1:]}"):
            return pairs * found
    return 4


def _waits(ins: Instruction, target: str) -> tuple[tuple[str, int], ...]:
    m, old = ins.mnemonic, target.startswith("gfx9")
    if counters := _WAITS.get(m):
        count = int(ins.operands[-1], 0)
        return tuple((name, count >> 8 * (len(counters) - 1 - i) & 0xFF) for i, name in enumerate(counters))
    found: list[tuple[str, int]] = []
    for name, count in _COUNTS.findall(ins.text):
        if name == "vmcnt":
            found.append(("vector" if old else "loads", int(count)))
        elif name == "lgkmcnt":
            found.append(("lgkm", int(count)))
    return tuple(found)
