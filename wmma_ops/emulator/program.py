"""Turns a kernel's instructions into Python functions, one a basic block, over NumPy rows of one value a lane.

A block's function is made when the block is first run: a launch reaches about half of a kernel's blocks.

A register is a row that stays at its place: the functions name it directly (v5_f is register v5 as float32), and waves
take turns by having their rows copied in and out (machine.py). What an instruction does is generated as text, so that a
block runs without looking anything up.

Names in the generated text: S, the scalar registers as Python integers (vcc 106–107, ttmp0 108, m0 124, exec 126–127,
scc 128, nothing 129); full and mask, the lanes in exec; st, the machine.
"""

import contextlib
import functools
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from wmma_ops.emulator import dataflow
from wmma_ops.emulator.assembly import Instruction, KernelText, class_of, parse_instruction
from wmma_ops.emulator.convert_code import ConvertCode
from wmma_ops.emulator.errors import UnknownInstruction
from wmma_ops.emulator.lanes_code import LanesCode, name_indexed
from wmma_ops.emulator.linking import CODE_BASE, CODE_STEP, Linked, link, resolve
from wmma_ops.emulator.memory import Region
from wmma_ops.emulator.memory_code import MemoryCode
from wmma_ops.emulator.modifiers import only
from wmma_ops.emulator.scalar import IGNORED, SALU
from wmma_ops.emulator.scalar_code import ScalarCode
from wmma_ops.emulator.shared_names import SharedNames
from wmma_ops.emulator.vector import ACCUMULATING, PACKED, VALU
from wmma_ops.emulator.vector_code import VectorCode

END, BARRIER, WAIT = -1, -2, -3


def steps_of(ins: Instruction) -> int:
    """What an instruction counts towards the budget: about how long it takes."""
    if dataflow.is_atomic(ins.mnemonic):
        return 64  # one lane after the other
    return 10 if class_of(ins.mnemonic) in ("memory", "shared", "matrix") else 1


class Block:
    """Instructions that run one after the other. `make` gives their function and, of each of its lines, the instruction."""

    def __init__(self, instructions: list[Instruction], make: Callable[[], tuple[Callable, list[int]]]):
        self.instructions = instructions
        self.steps = 0  # known once it is made
        self.line_of: list[int] = []  # generated line -> index of the instruction
        self.run: Callable[..., int] = self._first
        self.make = make

    def _first(self, st, full, mask) -> int:
        self.run, self.line_of = self.make()
        self.steps = sum(map(steps_of, self.instructions))
        return self.run(st, full, mask)


@dataclass
class Program:
    kernel: KernelText
    target: str
    wave: int
    blocks: list[Block]
    namespace: dict
    registers: np.ndarray  # VGPRs [n, wave]
    accumulators: np.ndarray  # AGPRs
    scalars: list[int]
    entries: frozenset[int]  # the blocks that a call or return may come to
    data: list[Region]  # constants and variables of the kernel's file
    names: SharedNames | None
    lock: threading.Lock = field(default_factory=threading.Lock)  # one launch at a time has the registers

    @functools.cached_property
    def size(self) -> int:
        """Instructions."""
        return sum(len(block.instructions) for block in self.blocks)


class Builder(ScalarCode, VectorCode, ConvertCode, LanesCode, MemoryCode):
    """Code for any instruction."""

    # One instruction.

    def instruction(self, ins: Instruction) -> None:
        m = ins.mnemonic
        for suffix in ("_e32", "_e64", "_dpp", "_sdwa", "_e64_dpp", "_dpp8"):
            m = m.removesuffix(suffix)
        m = m.removesuffix("_e64")
        try:
            handled = self._handle(m, ins)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise UnknownInstruction(f"{ins.text!r}: {error}") from error
        if not handled:
            self.unknown.setdefault(m, ins)

    def _handle(self, m: str, ins: Instruction) -> bool:
        if m.startswith(IGNORED) or m == "s_sendmsg":
            return True
        if m.startswith("v_dual_"):
            raise ValueError("a half of a dual instruction")
        if m.startswith("s_set_gpr_idx_"):
            return self._index_mode(m, ins)
        if m in SALU:
            only(ins)
            self._salu(m, ins)
            return True
        if m.startswith("s_"):
            return self._scalar_others(m, ins)
        if m in VALU or m in ACCUMULATING:
            self._valu(m, ins)
            return True
        if m in PACKED:
            self._packed(m, ins)
            return True
        if m.startswith(("v_cmp_", "v_cmpx_")):
            return self._compare(m, ins)
        if m.startswith(("v_mfma_", "v_wmma_")):
            return self._matrix(m, ins)
        if m.startswith("v_cndmask_b"):
            return self._select(m, ins)
        if "_co_" in m and m.startswith(("v_add", "v_sub")):
            return self._carried(m, ins)
        if m.startswith("v_"):
            return self._conversions(m, ins) or self._lanes_others(m, ins)
        if m.startswith(("global_", "flat_", "scratch_")):
            return self._global(m, ins)
        if m.startswith("buffer_"):
            return self._scratch_buffer(m, ins)
        if m.startswith("ds_"):
            return self._shared(m, ins)
        return False


_MODES = {
    "float_denorm_mode_32": 3,
    "float_denorm_mode_16_64": 3,
    "float_round_mode_32": 0,
    "float_round_mode_16_64": 0,
    "fp16_overflow": 0,
    "ieee_mode": 1,
    "dx10_clamp": 1,
    # What a wave's first registers would hold, which the launch does not fill.
    "user_sgpr_kernarg_preload_length": 0,
    "user_sgpr_kernarg_preload_offset": 0,
    "system_sgpr_workgroup_info": 0,
}
_BRANCHES = {
    "s_cbranch_scc0": "not S[128]",
    "s_cbranch_scc1": "S[128]",
    "s_cbranch_vccz": "not (S[106] | S[107] * (W == 64))",
    "s_cbranch_vccnz": "S[106] | S[107] * (W == 64)",
    "s_cbranch_execz": "not (S[126] | S[127] * (W == 64))",
    "s_cbranch_execnz": "S[126] | S[127] * (W == 64)",
}
_CALLS = ("s_swappc_b64", "s_setpc_b64")
_ENDS = ("s_endpgm", "s_barrier", "s_barrier_wait", "s_branch", "s_endpgm_saved", *_CALLS)


def split_dual(ins: Instruction) -> list[Instruction]:
    """The two halves of a dual-issue instruction, in an order in which neither sees the other's result."""
    first, second = (part.strip() for part in ins.text.split("::"))
    halves = [parse_instruction(part.replace("v_dual_", "v_", 1), ins.line, ins.source) for part in (first, second)]

    def reads(half, register):
        used = half.operands if re.match(r"^v_(fmac|dot2)", half.mnemonic) else half.operands[1:]
        return any(re.search(rf"\b{register}\b", text) for text in used)

    if not reads(halves[1], halves[0].operands[0]):
        return halves
    if not reads(halves[0], halves[1].operands[0]):
        return halves[::-1]
    raise UnknownInstruction(f"{ins.text!r}: both halves read the other's result")


@dataclass
class _Flow:
    """A kernel's instructions with all that it calls, cut where control comes from or goes elsewhere."""

    linked: Linked
    instructions: list[Instruction]
    ranges: list[tuple[int, int]]  # of a block's instructions
    number: dict[int, int]  # first instruction -> block

    @property
    def called(self) -> list[int]:
        return sorted(self.number[start] for start in self.linked.functions.values())

    @property
    def returned(self) -> list[int]:
        stops = (stop for _, stop in self.ranges[:-1])
        return [i + 1 for i, stop in enumerate(stops) if self.instructions[stop - 1].mnemonic == "s_swappc_b64"]

    def block_of(self, label: str) -> int:
        return self.number.get(self.linked.labels[label], END)

    def following(self, which: int) -> int:
        return which + 1 if which + 1 < len(self.ranges) else END

    def successors(self) -> list[list[int]]:
        called, returned = self.called, self.returned
        out = []
        for which, (_, stop) in enumerate(self.ranges):
            last = self.instructions[stop - 1]
            if last.mnemonic in _BRANCHES:
                out.append([self.block_of(last.operands[0]), self.following(which)])
            elif last.mnemonic == "s_branch":
                out.append([self.block_of(last.operands[0])])
            elif last.mnemonic in _CALLS:
                out.append(called if last.mnemonic == "s_swappc_b64" else called + returned)
            else:
                out.append([] if last.mnemonic.startswith("s_endpgm") else [self.following(which)])
        return out


def _flow(kernel: KernelText) -> _Flow:
    linked = link(kernel)
    instructions = linked.instructions
    starts = {0, *linked.functions.values(), *linked.labels.values()}
    starts |= {i + 1 for i, ins in enumerate(instructions) if ins.mnemonic in _BRANCHES or ins.mnemonic in _ENDS}
    ordered = sorted(start for start in starts if start < len(instructions))
    number = {start: i for i, start in enumerate(ordered)}
    resolve(linked, number)
    ranges = list(zip(ordered, [*ordered[1:], len(instructions)], strict=True))
    return _Flow(linked, name_indexed(linked.instructions, starts), ranges, number)


def _check_descriptor(kernel: KernelText, target: str) -> None:
    lanes = kernel.facts.get("wavefront_size", 64)
    if lanes != (64 if target.startswith("gfx9") else 32):
        raise UnknownInstruction(f"{kernel.name} on {target}: waves of {lanes} lanes are not emulated there")
    for mode, kept in _MODES.items():
        if kernel.descriptor.get(mode, kept) != kept:
            raise UnknownInstruction(
                f"{kernel.name} on {target}: {mode} is {kernel.descriptor[mode]}; the emulator takes {kept} (it keeps "
                "denormals and rounds to nearest even)"
            )


def _leaving(builder: Builder, flow: _Flow, ins: Instruction, following: int) -> str | None:
    """The statement with which an instruction leaves its block; None where it does not."""
    m = ins.mnemonic
    if m in _BRANCHES:
        return f"return {flow.block_of(ins.operands[0])} if {_BRANCHES[m]} else {following}"
    if m == "s_branch":
        return f"return {flow.block_of(ins.operands[0])}"
    if m == "s_swappc_b64":
        builder.emit(f"x = {builder.scalar(ins.operands[1], 64)}")
        builder.write_scalar(ins.operands[0], str(CODE_BASE + CODE_STEP * following), 64)
        return "return st.jump(x)"
    if m == "s_setpc_b64":
        return f"return st.jump({builder.scalar(ins.operands[0], 64)})"
    if m.startswith("s_endpgm"):
        return f"return {END}"
    if m == "s_barrier":
        builder.emit("st.signal()")
        return f"st.resume = {following}; return {BARRIER}"
    if m == "s_barrier_wait":
        if ins.operands != ("-1",):
            raise UnknownInstruction(f"{ins.text!r}: a barrier other than the block's")
        return f"st.resume = {following}; return {WAIT}"
    return None


_NOT_BY_LANES = ("s_", "v_mfma", "v_smfma", "v_wmma", "v_swmma", "v_read")


def _lines(builder: Builder, flow: _Flow, which: int) -> list[int]:
    """Writes one block's text into `builder.lines`; gives the index of each line's instruction."""
    start, stop = flow.ranges[which]
    body, following = flow.instructions[start:stop], flow.following(which)
    builder.lines = []
    line_of: list[int] = []
    last = None
    for index, ins in enumerate(body):
        before = len(builder.lines)
        read, written = dataflow.uses(ins) if builder.watched else ((), ())
        # Compilers do not jump over a few instructions that no lane executes. Matrix instructions ask no lane.
        executed = "" if ins.mnemonic.startswith(_NOT_BY_LANES) else " and mask.any()"
        builder.place = start + index
        is_conversion = dataflow.converts(ins)
        needed = sorted(builder.watched.intersection(read))
        for register in () if is_conversion else needed:
            builder.emit(f"if {register!r} not in st.written{executed}: st.uninitialised({register!r})")
        last = _leaving(builder, flow, ins, following)
        if last is None:
            for half in split_dual(ins) if "::" in ins.text else (ins,):
                builder.instruction(half)
        if wrote := sorted(builder.watched.intersection(written)):
            where = f"if st.written.issuperset({tuple(needed)!r}): " if is_conversion and needed else ""
            builder.emit(f"{where}st.written.update({tuple(wrote)!r})")
        if last is not None:
            builder.emit(last)
        line_of.extend([index] * (len(builder.lines) - before))
    if last is None:
        builder.emit(f"return {following}")
        line_of.append(max(len(body) - 1, 0))
    return line_of


def _code(builder: Builder, flow: _Flow, which: int) -> tuple[Callable, list[int]]:
    """One block's function; raises UnknownInstruction naming every instruction of the kernel that is not known."""
    builder.unknown.clear()
    line_of = _lines(builder, flow, which)
    if builder.unknown:
        for other in range(len(flow.ranges)):
            with contextlib.suppress(UnknownInstruction):
                _lines(builder, flow, other)
        names = "; ".join(f"{ins.text!r} ({ins.source or f'line {ins.line}'})" for ins in builder.unknown.values())
        raise UnknownInstruction(f"{builder.kernel.name} on {builder.target}: the emulator does not know {names}")
    text = "def run(st, full, mask):\n" + "\n".join(f"    {line}" for line in builder.lines)
    exec(compile(text, f"<block {which} of {builder.kernel.name}>", "exec"), builder.namespace)
    return builder.namespace["run"], line_of


def build(kernel: KernelText, target: str, names: SharedNames | None = None) -> Program:
    """Reads a kernel's control flow and data; raises UnknownInstruction for what of them is not known."""
    _check_descriptor(kernel, target)
    try:
        flow = _flow(kernel)
    except ValueError as error:
        raise UnknownInstruction(f"{kernel.name} on {target}: {error}") from error
    builder = Builder(kernel, target, flow.instructions, names)
    builder.flow = flow
    builder.watched = dataflow.doubtful(flow.instructions, flow.ranges, flow.successors(), {"v0", "v1", "v2"})
    blocks = [
        Block(flow.instructions[start:stop], functools.partial(_code, builder, flow, which))
        for which, (start, stop) in enumerate(flow.ranges)
    ]
    return Program(
        kernel,
        target,
        builder.wave,
        blocks,
        builder.namespace,
        builder.registers,
        builder.accumulators,
        builder.scalars,
        frozenset(flow.called + flow.returned),
        list(flow.linked.data.values()),
        names,
    )
