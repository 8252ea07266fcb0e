"""Turns a kernel's instructions into steps: calls of functions over NumPy rows of one value a lane.

A block's steps are made when the block is first run: a launch reaches about half of a kernel's blocks.

A register is a row that stays at its place: steps have it as an argument, seen as the type that they want, and waves take
turns by having their rows copied in and out (machine.py). What an instruction does is generated as text (templates.py).

Names in the generated text: v<number>_<kind> and a<number>_<kind>, rows; S, the scalar registers as Python integers (vcc
106–107, ttmp0 108, m0 124, exec 126–127, scc 128, nothing 129); full and mask, the lanes in exec; st, the machine.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from wmma_ops.emulator import dataflow, moving, padding, skipping, templates, unwritten
from wmma_ops.emulator.arrivals import is_counted, left_by
from wmma_ops.emulator.assembly import MOST_REGISTERS, Instruction, KernelText, class_of, stem
from wmma_ops.emulator.bits import WORD
from wmma_ops.emulator.buffer_code import BufferCode
from wmma_ops.emulator.buffers import is_scratch
from wmma_ops.emulator.convert_code import ConvertCode
from wmma_ops.emulator.errors import Malformed, UnknownInstruction
from wmma_ops.emulator.lanes_code import LanesCode, name_indexed
from wmma_ops.emulator.linking import CODE_BASE, CODE_STEP, Linked, link, resolve
from wmma_ops.emulator.memory import Region
from wmma_ops.emulator.memory_code import acquires
from wmma_ops.emulator.modifiers import only
from wmma_ops.emulator.narrow_code import NarrowCode
from wmma_ops.emulator.operands import DTYPES, scalar_index
from wmma_ops.emulator.reading import read_only
from wmma_ops.emulator.scalar import IGNORED, SALU
from wmma_ops.emulator.scalar_code import ScalarCode, denormals_set
from wmma_ops.emulator.scalar_memory_code import ScalarMemoryCode
from wmma_ops.emulator.shared_names import SharedNames
from wmma_ops.emulator.vector import ACCUMULATING, PACKED, VALU
from wmma_ops.emulator.vector_code import VectorCode

END, BARRIER, WAIT, SLEEP = -1, -2, -3, -4
GIVEN = {"v0", "v1", "v2"}  # with which waves begin


def cost_of(ins: Instruction) -> int:
    """What an instruction counts towards the budget: about how long it takes."""
    if dataflow.is_atomic(ins.mnemonic):
        return 64  # one lane after the other
    return 10 if class_of(ins.mnemonic) in ("memory", "shared", "matrix") else 1


@dataclass
class Steps:
    """Calls, one after the other, of functions with the machine and their arguments. The last gives the block that follows.

    Lists beside each other, not a tuple for each: Python's search for garbage then has a third of the objects to visit.
    """

    functions: list[Callable[..., int | None]] = field(default_factory=list)
    arguments: list[tuple] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)

    def add(self, function: Callable[..., int | None], arguments: tuple, ins: Instruction) -> None:
        self.functions.append(function)
        self.arguments.append(arguments)
        self.instructions.append(ins)

    def run(self, st) -> int:
        """The block that follows. Where a step fails, `st` learns of which instruction."""
        following, left = None, iter(self.arguments)
        try:
            for function, arguments in zip(self.functions, left, strict=True):
                following = function(st, *arguments)
        except BaseException:
            st.failed = self.instructions[len(self.instructions) - left.__length_hint__() - 1]
            raise
        return following

    def traced(self, st, trace) -> int:
        """As `run`; `trace` knows which instruction accesses what."""
        following = None
        for function, arguments, trace.instruction in zip(
            self.functions, self.arguments, self.instructions, strict=True
        ):
            st.failed = trace.instruction
            following = function(st, *arguments)
        trace.instruction = None
        return following


class Block:
    """Instructions that run one after the other, as steps, which are made when they are first asked for."""

    def __init__(self, instructions: list[Instruction], make: Callable[[], Steps]):
        self.instructions, self._make = instructions, make

    @functools.cached_property
    def steps(self) -> Steps:
        return self._make()

    @functools.cached_property
    def cost(self) -> int:
        """Of the budget."""
        return sum(map(cost_of, self.instructions))


@dataclass
class Program:
    kernel: KernelText
    target: str
    wave: int
    blocks: list[Block]
    registers: np.ndarray  # VGPRs [n, wave]
    accumulators: np.ndarray  # AGPRs
    scalars: list[int]
    entries: frozenset[int]  # the blocks that a call or return may come to
    data: list[Region]  # constants and variables of the kernel's file
    names: SharedNames | None
    lock: threading.Lock = field(default_factory=threading.Lock)  # one launch at a time has the registers

    def variable(self, name: str) -> np.ndarray | None:
        """The bytes of a variable that the kernel names."""
        found = next((region for region in self.data if region.name == name), None)
        return None if found is None else found.bytes[found.base - found.start :][: found.size]

    @functools.cached_property
    def size(self) -> int:
        """Instructions."""
        return sum(len(block.instructions) for block in self.blocks)


_templates: dict[tuple, templates.Template] = {}


class Builder(ScalarCode, ScalarMemoryCode, VectorCode, ConvertCode, NarrowCode, LanesCode, BufferCode):
    """Code for any instruction."""

    def __init__(self, kernel: KernelText, target: str, flow: "_Flow", names: SharedNames | None):
        super().__init__(kernel, target, flow.instructions)
        self.flow, self.names = flow, names
        self.watch = unwritten.watch(flow.instructions, flow.ranges, flow.successors(), GIVEN)
        self.place = 0  # of the instruction at hand
        self.to_shared = any(map(dataflow.to_shared, flow.instructions))
        self._views: dict[tuple[str, int, str], object] = {}

    def add(self, steps: Steps, ins: Instruction, write: Callable[[Instruction], bool] | None = None) -> None:
        """Adds what an instruction does: one call or none. Those that are alike share what was written for one of them, but
        for what `write` writes."""
        if ins.mnemonic.startswith(IGNORED) and not acquires(ins):
            return
        operands, numbers = templates.renamed(ins.operands)
        self.meant = self.names.meant.get(ins.position) if self.names else None
        key = (self.target, ins.mnemonic, operands, tuple(ins.modifiers.items()), self.meant is None)
        key += self.denormals, self.modes
        found = None if write else _templates.get(key)
        try:
            if found is None:
                self.lines, self.constants = [], []
                if not (write or self._write)(read_only(ins._replace(operands=operands))):
                    self.unknown.setdefault(stem(ins.mnemonic), ins)
                    return
                found = templates.template(self.lines, self.constants, self.namespace, self.modes)
                if write is None:
                    templates.keep(_templates, key, found)
            if found.function is not None:
                steps.add(found.function, found.bind(self._row, numbers, self.meant), ins)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise UnknownInstruction(f"{ins.text!r}: {error}") from error

    def _write(self, ins: Instruction) -> bool:
        return self._handle(stem(ins.mnemonic), ins)

    def _row(self, prefix: str, index: int, kind: str):
        """What a register's name stands for: see Writer (rows, pairs), memory_code.py (loaded), vector_code.py (block)."""
        found = self._views.get((prefix, index, kind))
        if found is None:
            rows = self.registers if prefix == "v" else self.accumulators
            view, _, half = kind.partition("_")
            if kind.startswith("loaded"):
                names = [f"{prefix}{index + i}" for i in range(int(kind[6:]))]
                return padding.Loaded(self.flow, self.place, names)
            if kind == "pair":
                found = rows[index : index + 2].T
                rows[index + 1]  # it is there
            elif kind.startswith("block"):
                found = rows[index : index + int(kind[5:])]
                rows[index + int(kind[5:]) - 1]  # the last is there
            else:
                found = rows[index].view(DTYPES[view])
                if view in "hws":
                    found = found[1::2] if half else found[0::2]
            self._views[prefix, index, kind] = found
        return found

    def _handle(self, m: str, ins: Instruction) -> bool:
        if acquires(ins):
            self.emit("st.acquire()")
            return True
        if m == "s_sendmsg":
            return True
        if m.startswith("v_dual_"):
            raise ValueError("a half of a dual instruction")
        if m.startswith("s_set_gpr_idx_"):
            return self._index_mode(m, ins)
        if m in SALU:
            only(ins)
            self._salu(m, ins)
            return True
        if m.startswith(_SCALAR_MEMORY):
            return self._scalar_memory(m, ins)
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
        if m.startswith(("v_mfma_", "v_smfmac_", "v_wmma_")):
            return self._matrix(m, ins)
        if m.startswith("v_cndmask_b"):
            return self._select(m, ins)
        if "_co_" in m and m.startswith(("v_add", "v_sub")):
            return self._carried(m, ins)
        if m.startswith("v_"):
            return self._conversions(m, ins) or self._narrow(m, ins) or self._lanes_others(m, ins)
        if dataflow.to_shared(ins):
            return self._to_shared(m, ins)
        if m.startswith(("global_", "flat_", "scratch_")):
            return self._global(m, ins)
        if m.startswith("buffer_"):
            return self._buffer(m, ins)
        if m.startswith("ds_"):
            return self._shared(m, ins)
        return False


_SCALAR_MEMORY = tuple(f"s_{buffer}{way}_" for buffer in ("", "buffer_") for way in ("load", "store", "atomic"))
_MODES = {
    "float_denorm_mode_16_64": 3,
    "float_round_mode_32": 0,
    "float_round_mode_16_64": 0,
    "fp16_overflow": 0,
    "system_sgpr_workgroup_info": 0,  # a register that the launch does not fill
}
_BRANCHES = {
    "s_cbranch_scc0": "not S[128]",
    "s_cbranch_scc1": "S[128]",
    "s_cbranch_vccz": "not (S[106] | S[107] * (W == 64))",
    "s_cbranch_vccnz": "S[106] | S[107] * (W == 64)",
    "s_cbranch_execz": "not (S[126] | S[127] * (W == 64))",
    "s_cbranch_execnz": "S[126] | S[127] * (W == 64)",
    skipping.SKIP: "{} >> ({} & 31) & 1",
}
_CALLS = ("s_swappc_b64", "s_setpc_b64")
_ENDS = ("s_endpgm", "s_barrier", "s_barrier_wait", "s_branch", "s_endpgm_saved", "s_sleep", *_CALLS)


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
    skipping.to_branches(linked)
    instructions = linked.instructions
    if kernel.descriptor.get("user_sgpr_kernarg_preload_length") and instructions[0].mnemonic == "s_trap":
        # For firmware that does not load the arguments; what does begins 256 bytes behind, after as many s_nop.
        instructions[0] = instructions[0]._replace(mnemonic="s_nop", operands=("0",))
    starts = {0, *linked.functions.values(), *linked.labels.values()}
    starts |= {i + 1 for i, ins in enumerate(instructions) if ins.mnemonic in _BRANCHES or ins.mnemonic in _ENDS}
    ordered = sorted(start for start in starts if start < len(instructions))
    number = {start: i for i, start in enumerate(ordered)}
    resolve(linked, number)
    ranges = list(zip(ordered, [*ordered[1:], len(instructions)], strict=True))
    return _Flow(linked, name_indexed(linked.instructions, starts), ranges, number)


# No wave or block has more, on any target.
_MOST = dict.fromkeys(("next_free_vgpr", "accum_offset", "vgpr_count", "agpr_count"), MOST_REGISTERS)
_MOST |= {"user_sgpr_count": 32, "user_sgpr_kernarg_preload_length": 32, "group_segment_fixed_size": 1 << 20}


def _check_descriptor(kernel: KernelText, target: str) -> None:
    for name, value in (*kernel.facts.items(), *kernel.descriptor.items()):
        if not 0 <= value <= (most := _MOST.get(name, 1 << 32)):
            raise Malformed(f"{kernel.name} on {target}: {name} is {value}; takes 0 to {most}")
    lanes = kernel.facts.get("wavefront_size", 64)
    if lanes != (64 if target.startswith("gfx9") else 32):
        raise UnknownInstruction(f"{kernel.name} on {target}: waves of {lanes} lanes are not emulated there")
    for mode, kept in _MODES.items():
        if kernel.descriptor.get(mode, kept) != kept:
            raise UnknownInstruction(
                f"{kernel.name} on {target}: {mode} is {kernel.descriptor[mode]}; the emulator takes {kept} (it keeps "
                "denormals of 16 and 64 bits and rounds to nearest even)"
            )


def _leaves(mnemonic: str) -> bool:
    return mnemonic in _BRANCHES or mnemonic in _ENDS


def _leave(builder: Builder, ins: Instruction, to: int, following: int) -> bool:
    """Writes how an instruction leaves its block, for the one that it names or for the one that follows."""
    m = ins.mnemonic
    if m in _BRANCHES:
        condition = _BRANCHES[m].format(*map(builder.scalar, ins.operands[1:]))
        builder.emit(f"return {to} if {condition} else {following}")
    elif m == "s_branch":
        builder.emit(f"return {to}")
    elif m == "s_swappc_b64":
        builder.emit(f"x = {builder.scalar(ins.operands[1], 64)}")
        builder.write_scalar(ins.operands[0], str(CODE_BASE + CODE_STEP * following), 64)
        builder.emit("return st.jump(x)")
    elif m == "s_setpc_b64":
        builder.emit(f"return st.jump({builder.scalar(ins.operands[0], 64)})")
    elif m == "s_barrier":
        builder.emit("st.signal()", f"st.resume = {following}", f"return {BARRIER}")
    elif m == "s_barrier_wait":
        if ins.operands != ("-1",):
            raise ValueError("a barrier other than the block's")
        builder.emit("st.wait()", f"st.resume = {following}", f"return {WAIT}")
    elif m == "s_sleep":
        builder.emit(f"st.sleep({int(ins.operands[0], 0)})", f"st.resume = {following}", f"return {SLEEP}")
    else:
        builder.emit(f"return {END}")
    return True


def _follow(_, following: int) -> int:
    return following


def _issue(st) -> None:
    st.lds.issue()


def _wait(st, left: int) -> None:
    st.lds.wait(left)


def _check_stored(st, used: Mapping[str, int], resource: int) -> None:
    """Spills through a buffer save registers that a caller may never have written."""
    if not is_scratch(st.scalars[resource : resource + 4]):
        _check_written(st, used, True)


def _check_written(st, used: Mapping[str, int], by_lanes: bool) -> None:
    if not by_lanes or st.mask.any():
        for register, bits in used.items():
            if bits & ~st.written.get(register, 0):
                st.uninitialised(register)


def _note_written(st, written: Mapping[str, int]) -> None:
    st.written.update(written)


def _note_moved(st, registers: Set[str], move: moving.Move) -> None:
    for register in registers:
        st.written[register] = move.written(st.written.get(register, 0), st.written, st.scalars, st.full)


_NOT_BY_LANES = ("s_", "v_mfma", "v_smfma", "v_wmma", "v_swmma", "v_read")


def _check_mode(builder: Builder, last: Instruction) -> None:
    if builder.denormals != builder.described_denormals and not last.mnemonic.startswith("s_endpgm"):
        raise UnknownInstruction(
            f"{last.text!r}: another mode of subnormals than the kernel began with, where a run of instructions ends"
        )


def _steps(builder: Builder, flow: _Flow, which: int) -> Steps:
    """One block's; what is not known is left out and kept in `builder.unknown`."""
    start, stop = flow.ranges[which]
    following, steps = flow.following(which), Steps()
    builder.denormals = builder.described_denormals
    for place in range(start, stop):
        ins = flow.instructions[place]
        builder.place = place
        if (mode := denormals_set(ins)) is not None:
            builder.denormals = mode
            continue
        if used := builder.watch.used.get(place):
            # Compilers do not jump over a few instructions that no lane executes. Matrix instructions ask no lane.
            if ins.mnemonic.startswith("buffer_store"):
                steps.add(_check_stored, (used, scalar_index(ins.operands[2])[0]), ins)
            else:
                steps.add(_check_written, (used, not ins.mnemonic.startswith(_NOT_BY_LANES)), ins)
        if builder.to_shared and is_counted(ins):
            steps.add(_issue, (), ins)
        if builder.to_shared and (left := left_by(ins)) is not None:
            steps.add(_wait, (left,), ins)
        if _leaves(ins.mnemonic):
            _check_mode(builder, ins)
            to = flow.block_of(ins.operands[0]) if ins.mnemonic.startswith(("s_cbranch", "s_branch")) else END
            builder.add(steps, ins, lambda renamed: _leave(builder, renamed, to, following))  # noqa: B023
            return steps
        for half in dataflow.halves(ins):
            builder.add(steps, half)
        for write in builder.watch.noted.get(place, ()):
            if write.by:
                steps.add(_note_moved, (write.registers, moving.move(write.by, write.sources, builder.cdna)), ins)
            else:
                steps.add(_note_written, (dict.fromkeys(write.registers, WORD),), ins)
    _check_mode(builder, flow.instructions[stop - 1])
    steps.add(_follow, (following,), flow.instructions[stop - 1])
    return steps


def _made(builder: Builder, flow: _Flow, which: int) -> Steps:
    """One block's steps; raises UnknownInstruction naming every instruction of the kernel that is not known."""
    builder.unknown.clear()
    made = _steps(builder, flow, which)
    if builder.unknown:
        for other in range(len(flow.ranges)):
            with contextlib.suppress(UnknownInstruction):
                _steps(builder, flow, other)
        names = "; ".join(f"{ins.text!r} ({ins.source or f'line {ins.line}'})" for ins in builder.unknown.values())
        raise UnknownInstruction(f"{builder.kernel.name} on {builder.target}: the emulator does not know {names}")
    return made


def build(kernel: KernelText, target: str, names: SharedNames | None = None) -> Program:
    """Reads a kernel's control flow and data; raises UnknownInstruction for what of them is not known."""
    _check_descriptor(kernel, target)
    try:
        flow = _flow(kernel)
    except ValueError as error:
        raise UnknownInstruction(f"{kernel.name} on {target}: {error}") from error
    except LookupError as error:
        raise Malformed(f"{kernel.name} on {target}: it goes to {error}, which is not there") from error
    builder = Builder(kernel, target, flow, names)
    blocks = [
        Block(flow.instructions[start:stop], functools.partial(_made, builder, flow, which))
        for which, (start, stop) in enumerate(flow.ranges)
    ]
    return Program(
        kernel,
        target,
        builder.wave,
        blocks,
        builder.registers,
        builder.accumulators,
        builder.scalars,
        frozenset(flow.called + flow.returned),
        list(flow.linked.data.values()),
        names,
    )
