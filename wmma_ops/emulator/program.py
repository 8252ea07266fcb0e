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

from wmma_ops.emulator import dataflow, matrix, numeric
from wmma_ops.emulator.assembly import Instruction, KernelText
from wmma_ops.emulator.errors import UnknownInstruction
from wmma_ops.emulator.scalar import COMPARE, IGNORED, SALU, SAVEEXEC
from wmma_ops.emulator.vector import ACCUMULATING, COMPARED, CONDITIONS, PACKED, VALU

VCC, TTMP, M0, NULL, EXEC, SCC, DUMP = 106, 108, 124, 125, 126, 128, 129
SCALARS = 132

END, BARRIER, WAIT = -1, -2, -3

_SCALAR_NAMES = {
    "vcc": VCC,
    "vcc_lo": VCC,
    "vcc_hi": VCC + 1,
    "m0": M0,
    "exec": EXEC,
    "exec_lo": EXEC,
    "exec_hi": EXEC + 1,
    "scc": SCC,
    "null": NULL,
}
_DTYPES = {"u": np.uint32, "i": np.int32, "f": np.float32, "h": np.float16, "w": np.uint16, "s": np.int16}
_WIDE = {"U": "u64", "I": "i64", "d": "f64"}
_SCALAR_AS = {
    "u": "u32({})",
    "i": "si32({})",
    "f": "sf32({})",
    "h": "sf16({})",
    "w": "u16({} & 65535)",
    "s": "u16({} & 65535).view(i16)",
    "U": "u64({})",
    "I": "si64({})",
    "d": "sf64({})",
}
_FLOATS = "fhd"
_INLINE = re.compile(r"^-?\d+\.\d+(e[-+]?\d+)?$")
_NUMBER = re.compile(r"^-?(0x[\da-fA-F]+|\d+)$")


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


def _register(text: str, prefix: str) -> tuple[int, int] | None:
    """(first, count) of v5, v[4:7]."""
    match = re.match(rf"^{prefix}(?:(\d+)|\[(\d+):(\d+)\])(?:\.[lh])?$", text)
    if not match:
        return None
    if match.group(1):
        return int(match.group(1)), 1
    return int(match.group(2)), int(match.group(3)) - int(match.group(2)) + 1


def scalar_index(text: str) -> tuple[int, int] | None:
    """(first, count) of a scalar register; None for what is none."""
    if text in _SCALAR_NAMES:
        return _SCALAR_NAMES[text], 2 if text in ("vcc", "exec") else 1
    for prefix, base in (("s", 0), ("ttmp", TTMP)):
        if found := _register(text, prefix):
            return base + found[0], found[1]
    return None


def vector_index(text: str) -> tuple[str, int, int] | None:
    """("v" or "a", first, count)."""
    for prefix in "va":
        if found := _register(text, prefix):
            return prefix, *found
    return None


class Builder:
    def __init__(self, kernel: KernelText, target: str):
        self.kernel = kernel
        self.target = target
        self.wave = kernel.facts.get("wavefront_size", 64)
        self.cdna = target.startswith("gfx9")
        # Inline assembly may name registers that the compiler did not count.
        named = [int(n) for ins in kernel.instructions for n in re.findall(r"\bv\[?(?:\d+:)?(\d+)", ins.text)]
        vgprs = max(kernel.descriptor.get("next_free_vgpr", 0), kernel.facts.get("vgpr_count", 0), 4, *named)
        self.registers = np.zeros((vgprs + 4, self.wave), dtype=np.uint32)
        agprs = kernel.facts.get("agpr_count", 0)
        offset = kernel.descriptor.get("accum_offset", vgprs)
        self.accumulators = np.zeros((max(agprs, vgprs - offset, 0) + 260, self.wave), dtype=np.uint32)
        self.scalars = [0] * SCALARS
        self.constants = 0
        lanes = np.arange(self.wave)
        below = [(1 << int(lane)) - 1 for lane in lanes]
        self.namespace = {name: getattr(numeric, name) for name in dir(numeric) if not name.startswith("__")}
        self.namespace |= {
            "np": np,
            "S": self.scalars,
            "cp": np.copyto,
            "W": self.wave,
            "below_low": np.array([b & 0xFFFFFFFF for b in below], dtype=np.uint32),
            "below_high": np.array([b >> 32 for b in below], dtype=np.uint32),
        }
        self.lines: list[str] = []
        self.unknown: dict[str, Instruction] = {}
        self.watched: set[str] = set()

    # Names.

    def constant(self, value) -> str:
        name = f"k{self.constants}"
        self.constants += 1
        self.namespace[name] = value
        return name

    def row(self, prefix: str, index: int, kind: str, high: bool = False) -> str:
        """The name of a register's row seen as `kind`."""
        name = f"{prefix}{index}_{kind}{'_high' if high else ''}"
        if name not in self.namespace:
            rows = self.registers if prefix == "v" else self.accumulators
            view = rows[index].view(_DTYPES[kind])
            if kind in "hws":
                view = view[1::2] if high else view[0::2]
            self.namespace[name] = view
        return name

    # Reading operands.

    def literal(self, text: str, kind: str):
        """The NumPy scalar of an inline constant or literal as `kind`."""
        if _INLINE.match(text):
            value = float(text)
            if kind == "d":
                return np.float64(value)
            if kind == "h":
                return np.float16(value)
            if kind in "ws":
                return np.float16(value).view(_DTYPES[kind])
            if kind in "UI":
                return np.float64(value).view(np.uint64 if kind == "U" else np.int64)
            return np.float32(value).view(_DTYPES[kind])
        value = int(text, 0)
        if kind in "fui":
            return np.uint32(value & 0xFFFFFFFF).view(_DTYPES[kind])
        if kind in "hws":
            return np.uint16(value & 0xFFFF).view(_DTYPES[kind])
        if kind == "d":  # a literal is the high half, a small integer its own bits
            bits = value & numeric.M64 if -16 <= value <= 64 else (value & 0xFFFFFFFF) << 32
            return np.uint64(bits).view(np.float64)
        return np.uint64(value & numeric.M64).view(np.int64 if kind == "I" else np.uint64)

    def source(self, text: str, kind: str, high: bool = False) -> str:
        """The expression of an operand as `kind`."""
        text = text.strip()
        if text.startswith("neg(") or (text.startswith("-") and not _NUMBER.match(text) and not _INLINE.match(text)):
            inner = text[4:-1] if text.startswith("neg(") else text[1:]
            return f"np.negative({self.source(inner, kind, high)})"
        if text.startswith(("|", "abs(")):
            inner = text[1:-1] if text.startswith("|") else text[4:-1]
            return f"np.abs({self.source(inner, kind, high)})"
        if text.startswith("lit("):
            text = text[4:-1]
        if text.endswith((".l", ".h")):
            high, text = text.endswith(".h"), text[:-2]
        if vector := vector_index(text):
            prefix, index, _ = vector
            if kind in _WIDE:
                low, top = self.row(prefix, index, "u"), self.row(prefix, index + 1, "u")
                return f"pair({low}, {top})" + ("" if kind == "U" else f".view({_WIDE[kind]})")
            return self.row(prefix, index, kind, high)
        if scalar_index(text) is not None:
            return _SCALAR_AS[kind].format(self.scalar(text, 64 if kind in _WIDE else 32, high))
        if _NUMBER.match(text) or _INLINE.match(text):
            return self.constant(self.literal(text, kind))
        if text in ("src_shared_base", "src_private_base", "src_vccz", "src_execz"):
            return _SCALAR_AS[kind].format(self.scalar(text, 64 if kind in _WIDE else 32))
        raise ValueError(f"operand {text!r}")

    def scalar(self, text: str, width: int = 32, high: bool = False) -> str:
        """The expression of a scalar operand as an unsigned integer."""
        text = text.strip()
        if text == "null":
            return "0"
        if text == "src_shared_base":
            return "SHARED_BASE" if width == 64 else "(SHARED_BASE >> 32)"
        if text == "src_private_base":
            return "PRIVATE_BASE" if width == 64 else "(PRIVATE_BASE >> 32)"
        if text == "src_vccz":
            return "int(S[106] == 0 and S[107] == 0)"
        if text == "src_execz":
            return "int(S[126] == 0 and S[127] == 0)"
        if text.startswith("lit("):
            text = text[4:-1]
        if (found := scalar_index(text)) is not None:
            index, _ = found
            if width == 64:
                return f"(S[{index}] | S[{index + 1}] << 32)"
            return f"(S[{index}] >> 16)" if high else f"S[{index}]"
        if _INLINE.match(text):
            kind = np.float64 if width == 64 else np.float32
            bits = kind(float(text)).view(np.uint64 if width == 64 else np.uint32)
            return str(int(bits))
        value = int(text, 0)
        return str(value & (numeric.M64 if width == 64 else numeric.M32))

    # Writing results.

    def emit(self, *lines: str) -> None:
        self.lines.extend(lines)

    def write_scalar(self, text: str, expression: str, width: int = 32) -> None:
        index, _ = scalar_index(text)
        if index == NULL:
            self.emit(f"S[{DUMP}] = {expression}")
            return
        if width == 64:
            self.emit(f"r = {expression}", f"S[{index}] = r & {numeric.M32}", f"S[{index + 1}] = r >> 32")
        else:
            self.emit(f"S[{index}] = {expression}")
        if index in (EXEC, EXEC + 1):
            self.emit("full, mask = st.exec_changed()")

    def write_mask(self, text: str, expression: str) -> None:
        """A lane mask into vcc, exec or a scalar register (pair)."""
        self.write_scalar(text, f"mask_of({expression})", 64 if self.wave == 64 else 32)

    def write(self, text: str, kind: str, expression: str, *, high: bool = False, only: str | None = None) -> None:
        """A row, in the lanes of exec (and of `only`)."""
        if text.endswith((".l", ".h")):
            high, text = text.endswith(".h"), text[:-2]
        if (scalar := scalar_index(text)) is not None and vector_index(text) is None:
            raise ValueError(f"vector result in {text!r} ({scalar})")
        prefix, index, _ = vector_index(text)
        where = "mask" if only is None else f"(mask & {only})"
        if kind in _WIDE:
            low, top = self.row(prefix, index, "u"), self.row(prefix, index + 1, "u")
            self.emit(
                f"t = np.asarray({expression}).view(u64)",
                f"cp({low}, t, 'unsafe', {where})",
                f"cp({top}, t >> u64(32), 'unsafe', {where})",
            )
            return
        name = self.row(prefix, index, kind, high)
        if kind in "hws" and self.cdna and not high:
            # GFX9 clears the high half.
            name = self.row(prefix, index, "u")
            expression = f"np.asarray({expression}).view(u16)"
        if only is None:
            self.emit(
                f"t = {expression}",
                f"if full: {name}[:] = t",
                f"else: cp({name}, t, 'unsafe', mask)",
            )
        else:
            self.emit(f"cp({name}, {expression}, 'unsafe', {where})")

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

    def _scratch_buffer(self, m: str, ins: Instruction) -> bool:
        """Spills on targets without scratch_ instructions: through a buffer that holds each lane's own memory."""
        match = re.match(r"^buffer_(load|store)_(\w+)$", m)
        if not match or match.group(2) not in _MEMORY_KINDS:
            return False
        words = [word for op in ins.operands for word in op.split()]
        data, address, _, at, *flags = words
        if at != "0" or "idxen" in flags:
            return False
        offset = int(ins.modifiers.get("offset", "0"), 0)
        index = f" + {self.source(address, 'u')}.astype(i64)" if vector_index(address) else ""
        kind = _MEMORY_KINDS[match.group(2)]
        rows = self._rows(data, kind)
        self.emit(f"st.scratch.{match.group(1)}(np.full(W, {offset}, i64){index}, {rows}, {kind!r}, full, mask)")
        return True

    def _salu(self, m: str, ins: Instruction) -> None:
        width, widths, expression, scc = SALU[m]
        destination, *sources = ins.operands
        if m in ("s_addk_i32", "s_addk_co_i32", "s_mulk_i32"):
            sources = [destination, *sources]
        operands = [self.scalar(text, w) for text, w in zip(sources, widths, strict=False)]
        values = {"D": self.scalar(destination, width)} if "{D}" in expression else {}
        self.emit(f"t = {expression.format(*operands, **values)}")
        mask = numeric.M64 if width == 64 else numeric.M32
        index, _ = scalar_index(destination)
        if scc is not None:
            self.emit(f"r = t & {mask}", f"q = int({scc.format(*operands)})")
        self.write_scalar(destination, f"t & {mask}", width)
        if scc is not None and index != SCC:
            self.emit(f"S[{SCC}] = q")

    def _scalar_others(self, m: str, ins: Instruction) -> bool:
        ops = ins.operands
        if match := re.match(r"^s_cmp(k?)_(\w+?)_([iu])(32|64)$", m):
            _, condition, sign, width = match.groups()
            if condition not in COMPARE:
                return False
            a, b = (self.scalar(text, int(width)) for text in ops)
            if sign == "i":
                a, b = f"signed({a}, {width})", f"signed({b}, {width})"
            self.emit(f"S[{SCC}] = int({a} {COMPARE[condition]} {b})")
            return True
        if match := re.match(r"^s_cmp_(\w+)_f32$", m):
            if match.group(1) not in CONDITIONS:
                return False
            a, b = (f"sf32({self.scalar(text)})" for text in ops)
            self.emit(f"S[{SCC}] = int(bool({CONDITIONS[match.group(1)].format(a, b)}))".replace("~(", "not ("))
            return True
        if match := re.match(r"^s_bitcmp([01])_b(32|64)$", m):
            value, width = match.groups()
            a, b = self.scalar(ops[0], int(width)), self.scalar(ops[1])
            self.emit(f"S[{SCC}] = int(({a} >> ({b} & {int(width) - 1}) & 1) == {value})")
            return True
        if match := re.match(r"^s_(\w+)_(saveexec|wrexec)_b(32|64)$", m):
            operation, form, width = match.group(1), match.group(2), int(match.group(3))
            if operation not in SAVEEXEC:
                return False
            mask = numeric.M64 if width == 64 else numeric.M32
            self.emit(f"x = {self.scalar(ops[1], width)}", f"e = {self.scalar('exec_lo', width)}")
            self.emit(f"y = ({SAVEEXEC[operation]}) & {mask}")
            self.write_scalar(ops[0], "e" if form == "saveexec" else "y", width)
            self.write_scalar("exec_lo", "y", width)
            self.emit(f"S[{SCC}] = int(y != 0)")
            return True
        if m in ("s_cmov_b32", "s_cmov_b64", "s_cmovk_i32"):
            width = 64 if m.endswith("b64") else 32
            value = self.scalar(ops[1], width)
            if m == "s_cmovk_i32":
                value = f"(signed({value} & 0xFFFF, 16) & {numeric.M32})"
            self.write_scalar(ops[0], f"{value} if S[{SCC}] else {self.scalar(ops[0], width)}", width)
            return True
        if match := re.match(
            r"^s_(?:buffer_)?load_(dword|b32|dwordx2|b64|b96|dwordx4|b128|dwordx8|b256|dwordx16|b512|u8|i8|u16|i16)$", m
        ):
            counts = {"dword": 1, "b32": 1, "dwordx2": 2, "b64": 2, "b96": 3, "dwordx4": 4, "b128": 4}
            counts |= {"dwordx8": 8, "b256": 8, "dwordx16": 16, "b512": 16}
            if m.startswith("s_buffer"):
                return False
            offset = self._scalar_offset(ops[2:], ins)
            address = f"{self.scalar(ops[1], 64)} + {offset}"
            index, _ = scalar_index(ops[0])
            kind = match.group(1)
            if kind in counts:
                self.emit(f"S[{index}:{index + counts[kind]}] = st.memory.scalar_words({address}, {counts[kind]})")
            else:
                self.emit(f"S[{index}] = st.memory.scalar_small({address}, {kind!r})")
            return True
        if m == "s_memtime" or m == "s_memrealtime":
            self.write_scalar(ops[0], "st.clock()", 64)
            return True
        if m == "s_getreg_b32":
            self.write_scalar(ops[0], f"st.getreg({ops[1]!r})")
            return True
        if m == "s_barrier_signal":
            self.emit("st.signal()")
            return True
        if m == "s_trap":
            self.emit(f"st.trap({ops[0]})")
            return True
        if m == "s_sendmsg_rtn_b32" or m == "s_sendmsg_rtn_b64":
            self.write_scalar(ops[0], "st.clock()", 64 if m.endswith("64") else 32)
            return True
        return False

    def _scalar_offset(self, ops, ins: Instruction) -> str:
        parts = []
        for op in ops:
            for word in op.split():
                if word.startswith("offset:"):
                    word = word[7:]
                if scalar_index(word) is not None and word != "null":
                    parts.append(self.scalar(word))
                elif _NUMBER.match(word):
                    parts.append(str(int(word, 0)))
        if "offset" in ins.modifiers:
            parts.append(str(int(ins.modifiers["offset"], 0)))
        return " + ".join(parts) or "0"

    # Vector operands with their selectors.

    def _halves(self, ins: Instruction, count: int) -> list[bool]:
        """op_sel of a 16-bit instruction: which operands (and last, the result) use the high half."""
        selected = [int(x) for x in re.findall(r"\d", ins.modifiers.get("op_sel", ""))]
        return [bool(x) for x in selected] + [False] * (count + 1 - len(selected))

    def _sdwa(self, text: str, kind: str, select: str) -> str:
        negative, absolute = text.startswith("-"), "|" in text
        text = text.strip("-|")
        extend = text.startswith("sext(")
        if extend:
            text = text[5:-1]
        if select == "DWORD":
            out = self.source(text, kind)
        elif select.startswith("WORD_") and kind in "hws":
            out = self.source(text, kind, select == "WORD_1")
        else:
            base = self.source(text, "u")
            shift, width = (8 * int(select[-1]), 8) if select.startswith("BYTE") else (16 * int(select[-1]), 16)
            out = f"bfe_{'i' if extend else 'u'}({base}, {shift}, {width})"
            if kind == "f":
                out = f"np.asarray({out}).view(f32)"
            elif kind == "i":
                out = f"np.asarray({out}).view(i32)"
            elif kind in "hws":
                narrow = "i16" if extend and kind == "s" else "u16"
                view = {"h": "f16", "w": "u16", "s": "i16"}[kind]
                out = f"np.asarray({out}).astype({narrow}).view({view})"
            elif extend:
                out = f"np.asarray({out}).view(u32)"
        if absolute:
            out = f"np.abs({out})"
        return f"np.negative({out})" if negative else out

    def _dpp(self, ins: Instruction) -> tuple[str, str, bool] | None:
        """(index of the source lane, which lanes have one and may be written, whether others read 0)."""
        mods = ins.modifiers
        lanes = np.arange(self.wave)
        rows, within = lanes // 16 * 16, lanes % 16
        valid = np.ones(self.wave, dtype=bool)
        if "quad_perm" in mods:
            order = [int(x) for x in re.findall(r"\d", mods["quad_perm"])]
            index = lanes // 4 * 4 + np.array(order)[lanes % 4]
        elif "dpp8" in mods:
            order = [int(x) for x in re.findall(r"\d", mods["dpp8"])]
            index = lanes // 8 * 8 + np.array(order)[lanes % 8]
        elif "row_shl" in mods:
            index = within + int(mods["row_shl"])
            valid, index = index < 16, rows + index % 16
        elif "row_shr" in mods:
            index = within - int(mods["row_shr"])
            valid, index = index >= 0, rows + index % 16
        elif "row_ror" in mods:
            index = rows + (within - int(mods["row_ror"])) % 16
        elif "row_share" in mods or "row_newbcast" in mods:
            index = rows + int(mods.get("row_share", mods.get("row_newbcast")))
        elif "row_xmask" in mods:
            index = rows + (within ^ int(mods["row_xmask"]))
        elif "row_bcast" in mods:
            step = int(mods["row_bcast"])
            index = rows - 1 if step == 15 else lanes // 32 * 32 - 1
            valid, index = index >= 0, np.maximum(index, 0)
        elif "wave_shl" in mods or "wave_shr" in mods:
            index = lanes + 1 if "wave_shl" in mods else lanes - 1
            valid, index = (index >= 0) & (index < self.wave), index % self.wave
        elif re.search(r"\brow_mirror\b", ins.text):
            index = rows + 15 - within
        elif re.search(r"\brow_half_mirror\b", ins.text):
            index = lanes // 8 * 8 + 7 - lanes % 8
        else:
            return None
        banks = int(mods.get("bank_mask", "0xf"), 0)
        row_mask = int(mods.get("row_mask", "0xf"), 0)
        written = ((row_mask >> (lanes // 16)) & 1).astype(bool) & ((banks >> (lanes % 16 // 4)) & 1).astype(bool)
        zero = "bound_ctrl" in mods and mods["bound_ctrl"] in ("0", "1")
        name_index, name_valid = self.constant(index), self.constant(valid)
        only = self.constant(written if zero else written & valid)
        return name_index, name_valid if zero else "", only

    def _operands(self, ins: Instruction, texts, kinds) -> tuple[list[str], str | None, bool]:
        """(expressions, mask of lanes to write beside exec, whether the result goes to the high half)."""
        texts = [re.sub(r"\s+(row_mirror|row_half_mirror)\b", "", text) for text in texts]
        if "dst_sel" in ins.modifiers or "src0_sel" in ins.modifiers:
            selects = [ins.modifiers.get(f"src{i}_sel", "DWORD") for i in range(len(texts))]
            out = [self._sdwa(t, k, s) for t, k, s in zip(texts, kinds, selects, strict=True)]
            return out, None, ins.modifiers.get("dst_sel") == "WORD_1"
        halves = self._halves(ins, len(kinds))
        out = [self.source(t, k, h) for t, k, h in zip(texts, kinds, halves, strict=False)]
        only = None
        if dpp := self._dpp(ins):
            index, valid, only = dpp
            out[0] = f"{out[0]}[{index}]" if not valid else f"np.where({valid}, {out[0]}[{index}], 0)"
            if valid and kinds[0] == "f":
                out[0] = f"{out[0]}.astype(f32)"
            elif valid:
                out[0] = f"{out[0]}.astype({ {'u': 'u32', 'i': 'i32', 'h': 'f16', 'w': 'u16', 's': 'i16'}[kinds[0]] })"
        return out, only, halves[len(kinds)] if "op_sel" in ins.modifiers else False

    def _modified(self, ins: Instruction, kind: str, expression: str) -> str:
        """clamp, and the output factors."""
        if "mul" in ins.modifiers:
            expression = f"(({expression}) * {ins.modifiers['mul']})"
        if "div" in ins.modifiers:
            expression = f"(({expression}) / {ins.modifiers['div']})"
        if "clamp" in ins.modifiers:
            if kind not in _FLOATS:
                raise ValueError("clamp of an integer result")
            expression = f"np.clip({expression}, 0, 1)"
        return expression

    def _valu(self, m: str, ins: Instruction) -> None:
        kind, kinds, expression = VALU.get(m) or ACCUMULATING[m]
        destination, *sources = ins.operands
        out, only, high = self._operands(ins, sources, kinds)
        values = {"D": self.source(destination, kind, high)} if m in ACCUMULATING else {}
        if any(name in expression for name in (".astype", ".view")):
            out = [f"np.asarray({x})" if x[0] != "v" else x for x in out]
        result = self._modified(ins, kind, expression.format(*out, **values))
        if "dst_sel" in ins.modifiers and ins.modifiers["dst_sel"] != "DWORD":
            self._write_sdwa(destination, kind, result, ins)
            return
        self.write(destination, kind, result, high=high, only=only)

    def _write_sdwa(self, destination: str, kind: str, result: str, ins: Instruction) -> None:
        select, unused = ins.modifiers["dst_sel"], ins.modifiers.get("dst_unused", "UNUSED_PAD")
        shift, width = (8 * int(select[-1]), 8) if select.startswith("BYTE") else (16 * int(select[-1]), 16)
        bits = ((1 << width) - 1) << shift
        view = "u16" if kind in "hws" else "u32"
        self.emit(f"t = (np.asarray({result}).view({view}).astype(u32) << u32({shift})) & u32({bits})")
        if unused == "UNUSED_PRESERVE":
            self.emit(f"t = t | ({self.source(destination, 'u')} & u32({~bits & numeric.M32}))")
        elif unused == "UNUSED_SEXT":
            raise ValueError("dst_unused:UNUSED_SEXT")
        self.write(destination, "u", "t")

    def _packed(self, m: str, ins: Instruction) -> None:
        kind, expression = PACKED[m]
        destination, *sources = ins.operands
        mods = ins.modifiers

        def choices(name, default):
            found = [int(x) for x in re.findall(r"\d", mods.get(name, ""))]
            return found + [default] * (len(sources) - len(found))

        low_of, high_of = choices("op_sel", 0), choices("op_sel_hi", 1)
        negate = choices("neg_lo", 0), choices("neg_hi", 0)
        halves = []
        for which, chosen in enumerate((low_of, high_of)):
            out = []
            for text, choice, minus in zip(sources, chosen, negate[which], strict=True):
                if m.endswith(("f32", "b32")):
                    if vector := vector_index(text):
                        x = self.row(vector[0], vector[1] + choice, kind)
                    elif (scalar := scalar_index(text)) is not None:
                        x = _SCALAR_AS[kind].format(f"S[{scalar[0] + choice}]")
                    else:
                        x = self.source(text, kind)
                elif vector_index(text):
                    x = self.source(text, kind, bool(choice))
                elif (scalar := scalar_index(text)) is not None:
                    x = _SCALAR_AS[kind].format(f"(S[{scalar[0]}] >> {16 * choice})")
                elif _INLINE.match(text):  # an inline float stands in the low half alone
                    x = self.source(text, kind) if not choice else self.constant(_DTYPES[kind](0))
                else:
                    value = int(text, 0) & numeric.M32
                    half = (value >> (16 * choice)) & 0xFFFF
                    x = self.constant(np.uint16(half).view(_DTYPES[kind]))
                out.append(f"np.negative({x})" if minus else x)
            halves.append(out)
        prefix, index, _ = vector_index(destination)
        if m == "v_pk_mov_b32":
            results = [halves[0][0], halves[1][1]]
        else:
            results = [expression.format(*out) for out in halves]
        if "clamp" in mods:
            results = [f"np.clip({x}, 0, 1)" for x in results]
        self.emit(f"t0 = np.array({results[0]})", f"t1 = np.array({results[1]})")
        if m.endswith(("f32", "b32")):
            names = [self.row(prefix, index, kind), self.row(prefix, index + 1, kind)]
        else:
            names = [self.row(prefix, index, kind), self.row(prefix, index, kind, True)]
        self.emit(f"cp({names[0]}, t0, 'unsafe', mask)", f"cp({names[1]}, t1, 'unsafe', mask)")

    def _compare(self, m: str, ins: Instruction) -> bool:
        parts = m.split("_")
        to_exec = parts[1] == "cmpx"
        condition, kind = "_".join(parts[2:-1]), COMPARED.get(parts[-1])
        ops = list(ins.operands)
        # The result is named unless it is vcc (e32) or exec.
        named = len(ops) == 3
        destination = ops.pop(0) if named else "vcc"
        if to_exec and (not named or destination in ("exec", "exec_lo")):
            destination = "exec" if self.wave == 64 else "exec_lo"
        if destination == "vcc" and self.wave == 32:
            destination = "vcc_lo"
        if condition == "class":
            out, _, _ = self._operands(ins, ops, kind + "u")
            expression = f"classify(np.asarray({out[0]}), {out[1]})"
        elif kind is None or (condition not in CONDITIONS and condition not in ("t", "f")):
            return False
        else:
            out, _, _ = self._operands(ins, ops, kind * 2)
            expression = {"t": "np.True_", "f": "np.False_"}.get(condition) or CONDITIONS[condition].format(*out)
        self.write_mask(destination, f"({expression}) & mask")
        if to_exec and destination not in ("exec", "exec_lo"):
            self.write_scalar(
                "exec_lo", self.scalar(destination, 64 if self.wave == 64 else 32), 64 if self.wave == 64 else 32
            )
        return True

    def _lanes(self, text: str) -> str:
        """A mask operand (vcc or a scalar register) as lanes."""
        return f"lanes_of({self.scalar(text, 64 if self.wave == 64 else 32)}, W)"

    def _vector_others(self, m: str, ins: Instruction) -> bool:
        ops = list(ins.operands)
        if m == "v_cndmask_b32":
            if len(ops) == 3:
                ops.append("vcc")
            out, only, _ = self._operands(
                ins, ops[1:3], "uu" if "-" not in "".join(ops[1:3]) and "|" not in "".join(ops[1:3]) else "ff"
            )
            kind = "u" if "-" not in "".join(ops[1:3]) and "|" not in "".join(ops[1:3]) else "f"
            self.write(ops[0], kind, f"np.where({self._lanes(ops[3])}, {out[1]}, {out[0]})", only=only)
            return True
        if m == "v_cndmask_b16":
            out, only, high = self._operands(ins, ops[1:3], "ww")
            self.write(ops[0], "w", f"np.where({self._lanes(ops[3])}, {out[1]}, {out[0]})", high=high, only=only)
            return True
        if match := re.match(r"^v_(add|sub|subrev)(c|b|brev)?_co(_ci)?_u32$", m):
            stem, carried = match.group(1), bool(match.group(2) or match.group(3))
            return self._carry("subrev" if stem == "subrev" or match.group(2) == "brev" else stem, carried, ins)
        if match := re.match(r"^v_(subbrev|subb)_co_u32$", m):
            return self._carry("subrev" if match.group(1) == "subbrev" else "sub", True, ins)
        if match := re.match(r"^v_mad_(co_)?([ui])64_([ui])32$", m):
            kind = "I" if match.group(2) == "i" else "U"
            cast, narrow = ("i64", "i") if kind == "I" else ("u64", "u")
            a, b = (f"np.asarray({self.source(x, narrow)}).astype({cast})" for x in ops[2:4])
            c = self.source(ops[4], kind)
            self.write(ops[0], kind, f"{a} * {b} + {c}")
            if ops[1] != "null":
                self.write_mask(ops[1], "np.zeros(W, bool)")
            return True
        if m == "v_readfirstlane_b32":
            self.write_scalar(ops[0], f"int({self.source(ops[1], 'u')}[st.first_lane()])")
            return True
        if m == "v_readlane_b32":
            self.write_scalar(ops[0], f"int({self.source(ops[1], 'u')}[{self.scalar(ops[2])} & (W - 1)])")
            return True
        if m == "v_writelane_b32":
            row = self.source(ops[0], "u")
            self.emit(f"{row}[{self.scalar(ops[2])} & (W - 1)] = {self.scalar(ops[1])}")
            return True
        if m in ("v_permlane16_b32", "v_permlanex16_b32"):
            low, high = self.scalar(ops[2]), self.scalar(ops[3])
            row = self.source(ops[1], "u")
            across = int(m == "v_permlanex16_b32")
            self.write(ops[0], "u", f"{row}[st.permlane16({low}, {high}, {across})]")
            return True
        if m in ("v_permlane32_swap_b32", "v_permlane16_swap_b32"):
            half = 32 if "32" in m else 16
            a, b = self.source(ops[0], "u"), self.source(ops[1], "u")
            odd = np.arange(self.wave) // half % 2 == 1
            index = np.arange(self.wave) ^ half
            odd, index = self.constant(odd), self.constant(index)
            # The odd rows of the first trade places with the even rows of the second.
            self.emit(f"t0, t1 = np.where({odd}, {b}[{index}], {a}), np.where({odd}, {b}, {a}[{index}])")
            self.emit(f"cp({a}, t0, 'unsafe', mask)", f"cp({b}, t1, 'unsafe', mask)")
            return True
        if m in ("v_permlane64_b32",):
            index = self.constant(np.arange(self.wave) ^ 32)
            self.write(ops[0], "u", f"{self.source(ops[1], 'u')}[{index}]")
            return True
        if m in ("v_swap_b32",):
            a, b = self.source(ops[0], "u"), self.source(ops[1], "u")
            self.emit(f"t = {a}.copy()", f"cp({a}, {b}, 'unsafe', mask)", f"cp({b}, t, 'unsafe', mask)")
            return True
        if m.startswith("v_div_scale_"):
            kind = "d" if m.endswith("f64") else "f"
            # No scaling: the fixup divides exactly, whatever the steps between gave.
            self.write(ops[0], kind, self.source(ops[2], kind))
            if ops[1] != "null":
                self.write_mask(ops[1], "np.zeros(W, bool)")
            return True
        if m in ("v_bitop3_b32", "v_bitop3_b16"):
            table = int(ins.modifiers.get("bitop3", "0"), 0)
            kind = "u" if m.endswith("32") else "w"
            out, _, high = self._operands(ins, ops[1:4], kind * 3)
            self.write(
                ops[0], kind, f"bitop3({', '.join(out)}, {table}).astype({'u32' if kind == 'u' else 'u16'})", high=high
            )
            return True
        if match := re.match(r"^v_(?:fma|mad)_mix(lo|hi)?_f(32|16)$", m):
            halves = [int(x) for x in re.findall(r"\d", ins.modifiers.get("op_sel", "[0,0,0]"))]
            is_half = [int(x) for x in re.findall(r"\d", ins.modifiers.get("op_sel_hi", "[0,0,0]"))]
            out = []
            for text, high, half in zip(ops[1:4], halves, is_half, strict=False):
                out.append(
                    f"np.asarray({self.source(text, 'h', bool(high))}).astype(f32)" if half else self.source(text, "f")
                )
            result = self._modified(ins, "f", f"fma32({', '.join(out)})")
            if match.group(1):
                row = self.row(*vector_index(ops[0])[:2], "h", match.group(1) == "hi")
                self.emit(f"cp({row}, ({result}).astype(f16), 'unsafe', mask)")
            else:
                self.write(ops[0], "f", result)
            return True
        return self._conversions(m, ins)

    def _carry(self, stem: str, carried: bool, ins: Instruction) -> bool:
        ops = ins.operands
        destination, carry_out, *rest = ops
        out, only, _ = self._operands(ins, rest[:2], "uu")
        a, b = (out[1], out[0]) if stem == "subrev" else out
        self.emit(f"a, b = np.asarray({a}), np.asarray({b})")
        if stem == "add":
            self.emit("x = a + b", "c = x < a")
        else:
            self.emit("x = a - b", "c = a < b")
        if carried:
            self.emit(f"n = {self._lanes(rest[2] if len(rest) > 2 else 'vcc')}.astype(u32)")
            if stem == "add":
                self.emit("y = x + n", "c = c | (y < x)", "x = y")
            else:
                self.emit("c = c | (x < n)", "x = x - n")
        self.emit("c = np.broadcast_to(c, (W,)) & mask")
        self.write(destination, "u", "x", only=only)
        if carry_out != "null":
            self.write_mask(carry_out, "c")
        return True

    def _conversions(self, m: str, ins: Instruction) -> bool:
        ops = ins.operands
        fnuz = "_fnuz" if self.target == "gfx942" else ""
        if match := re.match(r"^v_cvt_f32_(fp8|bf8)$", m):
            text = ops[1]
            byte = 0
            if "src0_sel" in ins.modifiers:
                byte = int(ins.modifiers["src0_sel"][-1]) * (2 if "WORD" in ins.modifiers["src0_sel"] else 1)
            elif "byte_sel" in ins.modifiers:
                byte = int(ins.modifiers["byte_sel"])
            elif "op_sel" in ins.modifiers:
                bits = [int(x) for x in re.findall(r"\d", ins.modifiers["op_sel"])]
                byte = bits[0] | bits[1] << 1
            x = self.source(text, "u")
            self.write(
                ops[0], "f", f"from_fp8((np.asarray({x}) >> u32({8 * byte})) & u32(255), '{match.group(1)}{fnuz}')"
            )
            return True
        if match := re.match(r"^v_cvt_pk_f32_(fp8|bf8)$", m):
            high = "WORD_1" in ins.modifiers.get("src0_sel", "") or "1" in ins.modifiers.get("op_sel", "")
            shift = 16 if high else 0
            x = self.source(ops[1], "u")
            prefix, index, _ = vector_index(ops[0])
            kind = f"'{match.group(1)}{fnuz}'"
            self.emit(f"x = np.array({x}) >> u32({shift})")
            for step in (0, 1):
                row = self.row(prefix, index + step, "f")
                self.emit(f"cp({row}, from_fp8((x >> u32({8 * step})) & u32(255), {kind}), 'unsafe', mask)")
            return True
        if match := re.match(r"^v_cvt_pk_(fp8|bf8)_f32$", m):
            halves = [int(x) for x in re.findall(r"\d", ins.modifiers.get("op_sel", ""))]
            high = bool(halves and halves[-1])
            a, b = (self.source(x, "f") for x in ops[1:3])
            kind = f"'{match.group(1)}{fnuz}'"
            row = self.row(*vector_index(ops[0])[:2], "w", high)
            self.emit(f"cp({row}, to_fp8({a}, {kind}) | (to_fp8({b}, {kind}) << u32(8)), 'unsafe', mask)")
            return True
        if m in ("v_dot2_f32_f16", "v_dot2c_f32_f16"):
            a, b = ops[1], ops[2]
            c = ops[3] if len(ops) > 3 else ops[0]
            terms = [
                f"np.multiply(np.asarray({self.source(a, 'h', h)}), {self.source(b, 'h', h)}, dtype=f32)"
                for h in (False, True)
            ]
            self.write(ops[0], "f", f"{terms[0]} + {terms[1]} + {self.source(c, 'f')}")
            return True
        if match := re.match(r"^v_dot4(c?)_i32_i8$|^v_dot4_i32_iu8$", m):
            c = ops[3] if len(ops) > 3 else ops[0]
            signs = [int(x) for x in re.findall(r"\d", ins.modifiers.get("neg_lo", "[1,1,0]"))]
            if "iu8" not in m:
                signs = [1, 1]
            parts = []
            for step in range(4):
                a, b = (
                    f"bfe_{'i' if s else 'u'}({self.source(x, 'u')}, {8 * step}, 8).astype(i32)"
                    for x, s in zip(ops[1:3], signs, strict=False)
                )
                parts.append(f"{a} * {b}")
            self.write(ops[0], "i", " + ".join(parts) + f" + {self.source(c, 'i')}")
            return True
        return False

    # Matrix instructions.

    def _matrix(self, m: str, ins: Instruction) -> bool:
        shape = matrix.describe(m, self.target, ins.modifiers)
        if shape is None:
            return False
        d, a, b, c = ins.operands[:4]

        def block(text):
            vector = vector_index(text)
            if vector is None:
                return None
            prefix, index, count = vector
            rows = self.registers if prefix == "v" else self.accumulators
            return rows[index : index + count]

        blocks = [block(text) for text in (d, a, b, c)]
        if blocks[3] is None:  # an inline constant
            value = self.literal(c, {"float64": "d", "int32": "u"}.get(shape.d, "f"))
            blocks[3] = np.array(value)
        self.emit(f"{self.constant(matrix.make(shape, *blocks))}()")
        return True

    # Memory.

    def _global(self, m: str, ins: Instruction) -> bool:
        space, _, operation = m.partition("_")
        ops = list(ins.operands)
        offset = int(ins.modifiers.get("offset", "0"), 0)
        if operation.startswith("atomic_"):
            return self._global_atomic(space, operation[7:], ops, offset, ins)
        match = re.match(r"^(load|store)_(\w+)$", operation)
        if not match or (match.group(1), match.group(2)) == ("load", "lds"):
            return False
        way, kind = match.groups()
        kind = _MEMORY_KINDS.get(kind)
        if kind is None:
            return False
        if "lds" in kind:
            return False
        data, address_ops = (ops[0], ops[1:]) if way == "load" else (None, ops)
        if way == "store":
            address_ops, data = [ops[0], *ops[2:]], ops[1]
        address = self._address(space, address_ops, offset)
        if space == "scratch":
            target = "st.scratch"
        else:
            target = "st.flat" if space == "flat" else "st.memory"
        rows = self._rows(data, kind)
        self.emit(f"{target}.{way}({address}, {rows}, {kind!r}, full, mask)")
        return True

    def _rows(self, text: str, kind: str) -> str:
        prefix, index, _ = vector_index(text)
        count = int(kind[1:]) // 32 if kind.startswith("b") else 1
        return "(" + ", ".join(self.row(prefix, index + i, "u") for i in range(count)) + ",)"

    def _address(self, space: str, ops, offset: int) -> str:
        ops = [op for op in (word for op in ops for word in op.split()) if op != ""]
        if space == "flat":
            return f"{self.source(ops[0], 'U')} + u64({offset & numeric.M64})" if offset else self.source(ops[0], "U")
        if space == "scratch":
            parts = [str(offset)]
            for op in ops:
                if vector_index(op):
                    parts.append(f"{self.source(op, 'u')}.astype(i64)")
                elif op != "off":
                    parts.append(self.scalar(op))
            return "np.zeros(W, i64) + " + " + ".join(parts)
        base = [op for op in ops if scalar_index(op) is not None]
        vector = [op for op in ops if vector_index(op)]
        wide = vector_index(vector[0])[2] == 2 if vector else False
        if base:
            start = f"u64(({self.scalar(base[0], 64)} + {offset}) & {numeric.M64})"
            return f"{self.source(vector[0], 'u')} + {start}"
        if not wide:
            raise ValueError("a global address of one register without a base")
        x = self.source(vector[0], "U")
        return f"{x} + u64({offset & numeric.M64})" if offset else x

    def _global_atomic(self, space: str, name: str, ops, offset: int, ins: Instruction) -> bool:
        operation, wide = _atomic(name)
        if operation is None:
            return False
        returns = "glc" in ins.modifiers or "sc0" in ins.modifiers or "ATOMIC_RETURN" in ins.modifiers.get("th", "")
        result = ops.pop(0) if returns else None
        address = self._address(space, [ops[0], *ops[2:]], offset)
        data = vector_index(ops[1])
        rows = "(" + ", ".join(self.row(data[0], data[1] + i, "u") for i in range(data[2])) + ",)"
        out = "None"
        if result is not None:
            found = vector_index(result)
            out = "(" + ", ".join(self.row(found[0], found[1] + i, "u") for i in range(found[2])) + ",)"
        target = "st.flat" if space == "flat" else "st.memory"
        self.emit(f"{target}.atomic({address}, {operation!r}, {rows}, {out}, {wide}, mask)")
        return True

    def _shared(self, m: str, ins: Instruction) -> bool:
        ops = list(ins.operands)
        name = m[3:]
        offset = 0 if name.startswith("swizzle") else int(ins.modifiers.get("offset", "0"), 0)
        if name in ("nop",):
            return True
        if name in ("bpermute_b32", "permute_b32"):
            index, data = self.source(ops[1], "u"), self.source(ops[2], "u")
            if name == "bpermute_b32":
                self.write(ops[0], "u", f"st.bpermute({index}, {data}, {offset}, mask)")
            else:
                self.write(ops[0], "u", f"st.permute({index}, {data}, {offset}, mask)")
            return True
        if name == "swizzle_b32":
            pattern = "0" if "swizzle(" in ins.text else ins.modifiers.get("offset", "0")
            index = self.constant(_swizzle(ins.text, pattern, self.wave))
            self.write(ops[0], "u", f"st.bpermute({index}, {self.source(ops[1], 'u')}, 0, mask)")
            return True
        if match := re.match(
            r"^(read|load|write|store)(_addtid)?_(2(?:addr)?_(?:stride64_|st64_)?)?(\w+)$",
            name.replace("read2", "read_2")
            .replace("write2", "write_2")
            .replace("2st64_", "2_st64_")
            .replace("load_2addr", "load_2addr"),
        ):
            way, tid, two, kind = match.groups()
            if tid:
                return False
            way = "load" if way in ("read", "load") else "store"
            kind = _MEMORY_KINDS.get(kind)
            if kind is None:
                return False
            if not two:
                rows = self._rows(ops[0] if way == "load" else ops[1], kind)
                address = self.source(ops[1] if way == "load" else ops[0], "u")
                self.emit(f"st.lds.{way}({address}, {offset}, {rows}, {kind!r}, full, mask)")
                return True
            size = int(kind[1:]) // 8
            step = size * (64 if "64" in two else 1)
            offsets = [int(ins.modifiers.get(f"offset{i}", "0"), 0) * step for i in (0, 1)]
            words = size // 4
            if way == "load":
                prefix, index, _ = vector_index(ops[0])
                address = self.source(ops[1], "u")
                # The address may be one of the results.
                self.emit(f"x = {address}.copy()")
                for i in (0, 1):
                    rows = "(" + ", ".join(self.row(prefix, index + words * i + j, "u") for j in range(words)) + ",)"
                    self.emit(f"st.lds.load(x, {offsets[i]}, {rows}, {kind!r}, full, mask)")
            else:
                address = self.source(ops[0], "u")
                for i in (0, 1):
                    rows = self._rows(ops[1 + i], kind)
                    self.emit(f"st.lds.store({address}, {offsets[i]}, {rows}, {kind!r}, full, mask)")
            return True
        returns = "_rtn" in name
        operation, wide = _atomic(name.replace("_rtn", ""))
        if operation is None:
            return False
        result = ops.pop(0) if returns else None
        address = self.source(ops[0], "u")
        rows = [vector_index(text) for text in ops[1:]]
        # cmpst has the comparand first, cmpstore the new value.
        if operation == "cmpswap" and "cmpst_" in name:
            rows.reverse()
        words = 2 if wide else 1
        names = "(" + ", ".join(self.row(p, i + j, "u") for p, i, _ in rows for j in range(words)) + ",)"
        out = "None"
        if result is not None:
            found = vector_index(result)
            out = "(" + ", ".join(self.row(found[0], found[1] + i, "u") for i in range(found[2])) + ",)"
        self.emit(f"st.lds.atomic({address}, {offset}, {operation!r}, {names}, {out}, {wide}, mask)")
        return True


_MEMORY_KINDS = {
    "dword": "b32",
    "b32": "b32",
    "dwordx2": "b64",
    "b64": "b64",
    "dwordx3": "b96",
    "b96": "b96",
    "dwordx4": "b128",
    "b128": "b128",
    "ubyte": "u8",
    "u8": "u8",
    "sbyte": "i8",
    "i8": "i8",
    "ushort": "u16",
    "u16": "u16",
    "sshort": "i16",
    "i16": "i16",
    "byte": "u8",
    "b8": "u8",
    "short": "u16",
    "b16": "u16",
    "short_d16": "d16",
    "d16_b16": "d16",
    "u16_d16": "d16",
    "short_d16_hi": "d16_hi",
    "d16_hi_b16": "d16_hi",
    "u16_d16_hi": "d16_hi",
    "b16_d16_hi": "d16_hi",
    "byte_d16_hi": "u8_hi",
    "d16_hi_b8": "u8_hi",
    "b8_d16_hi": "u8_hi",
    "ubyte_d16": "d16_u8",
    "d16_u8": "d16_u8",
    "u8_d16": "d16_u8",
    "ubyte_d16_hi": "d16_hi_u8",
    "d16_hi_u8": "d16_hi_u8",
    "u8_d16_hi": "d16_hi_u8",
    "sbyte_d16": "d16_i8",
    "d16_i8": "d16_i8",
    "i8_d16": "d16_i8",
    "sbyte_d16_hi": "d16_hi_i8",
    "d16_hi_i8": "d16_hi_i8",
    "i8_d16_hi": "d16_hi_i8",
}


def _atomic(name: str) -> tuple[str | None, bool]:
    """(operation, whether it has 64 bits)."""
    wide = name.endswith(("_x2", "_u64", "_b64", "_i64", "_f64"))
    stem = re.sub(r"_(x2|u32|i32|b32|u64|b64|i64)$", "", name)
    stem = {"cmpst": "cmpswap", "cmpstore": "cmpswap", "wrxchg": "swap", "storexchg": "swap"}.get(stem, stem)
    signed = {"max_i32": "smax", "min_i32": "smin", "max_u32": "umax", "min_u32": "umin"}
    signed |= {"max_i64": "smax", "min_i64": "smin", "max_u64": "umax", "min_u64": "umin"}
    stem = signed.get(name, stem)
    stem = {"min_num_f32": "fmin", "max_num_f32": "fmax", "min_f32": "fmin", "max_f32": "fmax"}.get(stem, stem)
    known = ("add", "sub", "smax", "smin", "umax", "umin", "and", "or", "xor", "swap", "cmpswap", "add_f32", "add_f64")
    known += ("pk_add_f16", "fmin", "fmax", "inc", "dec")
    return (stem if stem in known else None), wide


def _swizzle(text: str, pattern: str, wave: int) -> np.ndarray:
    """Byte addresses of the source lanes of ds_swizzle."""
    lanes = np.arange(wave)
    if match := re.search(r'swizzle\((\w+),\s*"?([^)"]*)"?(?:,([^)]*))?\)', text):
        mode = match.group(1)
        if mode == "QUAD_PERM":
            order = [int(x) for x in re.findall(r"\d+", match.group(0).split(",", 1)[1])]
            return ((lanes // 4 * 4 + np.array(order)[lanes % 4]) * 4).astype(np.uint32)
        if mode == "SWAP":
            return ((lanes ^ int(match.group(2))) * 4).astype(np.uint32)
        if mode == "REVERSE":
            size = int(match.group(2))
            return ((lanes // size * size + size - 1 - lanes % size) * 4).astype(np.uint32)
        if mode == "BROADCAST":
            size, which = int(match.group(2)), int(match.group(3))
            return ((lanes // size * size + which) * 4).astype(np.uint32)
        if mode == "BITMASK_PERM":
            bits = match.group(2)
            index = np.zeros_like(lanes)
            for position, letter in enumerate(reversed(bits)):
                bit = lanes >> position & 1
                value = {"0": bit * 0, "1": bit * 0 + 1, "p": bit, "i": 1 - bit}[letter]
                index |= value << position
            return ((lanes // 32 * 32 + index) * 4).astype(np.uint32)
        raise ValueError(f"swizzle {mode}")
    value = int(pattern, 0)
    if value & 0x8000:
        return ((lanes // 4 * 4 + (value >> (2 * (lanes % 4)) & 3)) * 4).astype(np.uint32)
    index = ((lanes % 32 & (value & 31)) | (value >> 5 & 31)) ^ (value >> 10 & 31)
    return ((lanes // 32 * 32 + index) * 4).astype(np.uint32)


_BRANCHES = {
    "s_cbranch_scc0": "not S[128]",
    "s_cbranch_scc1": "S[128]",
    "s_cbranch_vccz": "not (S[106] | S[107])",
    "s_cbranch_vccnz": "S[106] | S[107]",
    "s_cbranch_execz": "not (S[126] | S[127])",
    "s_cbranch_execnz": "S[126] | S[127]",
}
_ENDS = ("s_endpgm", "s_barrier", "s_barrier_wait", "s_branch", "s_endpgm_saved")


def split_dual(ins: Instruction) -> list[Instruction]:
    """The two halves of a dual-issue instruction, in an order in which neither sees the other's result."""
    from wmma_ops.emulator.assembly import parse_instruction

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
