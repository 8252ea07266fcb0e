"""Turns a kernel's instructions into Python functions, one a basic block, over NumPy rows of one value a lane.

A register is a row that stays at its place: the functions name it directly (v5_f is register v5 as float32), and waves
take turns by having their rows copied in and out (machine.py). What an instruction does is generated as text, so that a
block runs without looking anything up.

Names in the generated text: S, the scalar registers as Python integers (vcc 106–107, ttmp0 108, m0 124, exec 126–127,
scc 128, nothing 129); full and mask, the lanes in exec; st, the machine.
"""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from wmma_ops.emulator import dataflow
from wmma_ops.emulator.assembly import Instruction, KernelText, parse_instruction
from wmma_ops.emulator.errors import UnknownInstruction
from wmma_ops.emulator.memory_code import MemoryCode
from wmma_ops.emulator.scalar import IGNORED, SALU
from wmma_ops.emulator.scalar_code import ScalarCode
from wmma_ops.emulator.vector import ACCUMULATING, PACKED, VALU
from wmma_ops.emulator.vector_code import VectorCode

END, BARRIER, WAIT = -1, -2, -3


@dataclass
class Block:
    run: Callable
    instructions: list[Instruction]
    line_of: list[int]  # generated line -> index of the instruction


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
    lock: threading.Lock = field(default_factory=threading.Lock)  # one launch at a time has the registers


_DPP = set("quad_perm dpp8 row_shl row_shr row_ror row_share row_xmask row_bcast wave_rol wave_ror".split())


def _not_emulated(m: str, ins: Instruction) -> str | None:
    """Why a known instruction in this form is refused: a modifier that its code would not read."""
    mods = ins.modifiers
    rotates = "wave_rol" in ins.text or "wave_ror" in ins.text
    if rotates or (_DPP & set(mods) and m not in VALU and m not in ACCUMULATING):
        return "this form of DPP is not emulated"
    if m in ("v_dot4_i32_i8", "v_dot4c_i32_i8", "v_dot4_i32_iu8") and "clamp" in mods:
        return "clamp is not emulated here"
    if m.startswith("v_dot2") and {"op_sel", "op_sel_hi", "neg_lo", "neg_hi"} & set(mods):
        return "selected halves are not emulated here"
    partial = mods.get("dst_sel", "DWORD") != "DWORD"
    if ("_co_" in m and ("clamp" in mods or partial)) or (m.startswith("v_cndmask") and partial):
        return "this form is not emulated"
    if m in ("v_pack_b32_f16", "v_cndmask_b16") and re.search(r"[-|]v", ins.text):
        return "negated halves are not emulated here"
    return None


class Builder(ScalarCode, VectorCode, MemoryCode):
    """Code for any instruction."""

    # One instruction.

    def instruction(self, ins: Instruction) -> None:
        m = ins.mnemonic
        for suffix in ("_e32", "_e64", "_dpp", "_sdwa", "_e64_dpp", "_dpp8"):
            m = m.removesuffix(suffix)
        m = m.removesuffix("_e64")
        if reason := _not_emulated(m, ins):
            raise UnknownInstruction(f"{ins.text!r}: {reason}")
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
        if m in SALU:
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
        if m.startswith("v_"):
            return self._vector_others(m, ins)
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
}
_BRANCHES = {
    "s_cbranch_scc0": "not S[128]",
    "s_cbranch_scc1": "S[128]",
    "s_cbranch_vccz": "not (S[106] | S[107] * (W == 64))",
    "s_cbranch_vccnz": "S[106] | S[107] * (W == 64)",
    "s_cbranch_execz": "not (S[126] | S[127] * (W == 64))",
    "s_cbranch_execnz": "S[126] | S[127] * (W == 64)",
}
_ENDS = ("s_endpgm", "s_barrier", "s_barrier_wait", "s_branch", "s_endpgm_saved")


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


def build(kernel: KernelText, target: str) -> Program:
    """Decodes a kernel; raises UnknownInstruction naming every instruction that is not known."""
    for mode, kept in _MODES.items():
        if kernel.descriptor.get(mode, kept) != kept:
            raise UnknownInstruction(
                f"{kernel.name} on {target}: {mode} is {kernel.descriptor[mode]}; the emulator keeps denormals and "
                "rounds to nearest even"
            )
    builder = Builder(kernel, target)
    instructions = kernel.instructions
    starts = {0, *(index for index in kernel.labels.values() if index < len(instructions))}
    for index, ins in enumerate(instructions):
        if ins.mnemonic in _BRANCHES or ins.mnemonic in _ENDS:
            starts.add(index + 1)
    starts = sorted(start for start in starts if start < len(instructions))
    number = {start: i for i, start in enumerate(starts)}

    def block_of(label: str) -> int:
        at = kernel.labels[label]
        return number.get(at, END)

    ranges = [(s, starts[i + 1] if i + 1 < len(starts) else len(instructions)) for i, s in enumerate(starts)]
    successors = []
    for which, (_, stop) in enumerate(ranges):
        last = instructions[stop - 1]
        following = which + 1 if which + 1 < len(ranges) else END
        if last.mnemonic in _BRANCHES:
            successors.append([block_of(last.operands[0]), following])
        elif last.mnemonic == "s_branch":
            successors.append([block_of(last.operands[0])])
        else:
            successors.append([] if last.mnemonic.startswith("s_endpgm") else [following])
    builder.watched = dataflow.doubtful(kernel, ranges, successors, {"v0", "v1", "v2"})

    blocks = []
    for which, (start, stop) in enumerate(ranges):
        body = instructions[start:stop]
        builder.lines = []
        line_of: list[int] = []
        following = which + 1 if which + 1 < len(ranges) else END
        last = None
        for index, ins in enumerate(body):
            before = len(builder.lines)
            read, written = dataflow.uses(ins) if builder.watched else ((), ())
            for register in sorted(builder.watched.intersection(read)):
                builder.emit(f"if {register!r} not in st.written: st.uninitialised({register!r})")
            m = ins.mnemonic
            if m in _BRANCHES:
                last = f"return {block_of(ins.operands[0])} if {_BRANCHES[m]} else {following}"
            elif m == "s_branch":
                last = f"return {block_of(ins.operands[0])}"
            elif m.startswith("s_endpgm"):
                last = f"return {END}"
            elif m == "s_barrier":
                builder.emit("st.signal()")
                last = f"st.resume = {following}; return {BARRIER}"
            elif m == "s_barrier_wait":
                last = f"st.resume = {following}; return {WAIT}"
            elif "::" in ins.text:
                for half in split_dual(ins):
                    builder.instruction(half)
            else:
                builder.instruction(ins)
            if wrote := sorted(builder.watched.intersection(written)):
                builder.emit(f"st.written.update({tuple(wrote)!r})")
            if last is not None:
                builder.emit(last)
            line_of.extend([index] * (len(builder.lines) - before))
        if last is None:
            builder.emit(f"return {following}")
            line_of.append(max(len(body) - 1, 0))
        text = "def run(st, full, mask):\n" + "\n".join(f"    {line}" for line in builder.lines)
        if not builder.unknown:
            exec(compile(text, f"<block {which} of {kernel.name}>", "exec"), builder.namespace)
            blocks.append(Block(builder.namespace["run"], body, line_of))
    if builder.unknown:
        names = "; ".join(f"{ins.text!r} ({ins.source or f'line {ins.line}'})" for ins in builder.unknown.values())
        raise UnknownInstruction(f"{kernel.name} on {target}: the emulator does not know {names}")
    return Program(
        kernel,
        target,
        builder.wave,
        blocks,
        builder.namespace,
        builder.registers,
        builder.accumulators,
        builder.scalars,
    )
