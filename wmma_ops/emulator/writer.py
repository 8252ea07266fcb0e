"""The generated text's vocabulary: rows and constants by name, operands as expressions, results as assignments."""

import functools
import re

import numpy as np

from wmma_ops.emulator import narrow, numeric
from wmma_ops.emulator.assembly import Instruction, KernelText
from wmma_ops.emulator.memory import PRIVATE_BASE, SHARED_BASE
from wmma_ops.emulator.operands import (
    DTYPES,
    DUMP,
    EXEC,
    FLOATS,
    INLINE,
    NULL,
    NUMBER,
    SCALAR_AS,
    SCALARS,
    WIDE,
    scalar_index,
    vector_index,
)
from wmma_ops.emulator.reading import Text
from wmma_ops.emulator.shared_names import Meant


@functools.lru_cache(maxsize=32768)
def _highest(text: str) -> int:
    """The largest number of a vector register in an instruction."""
    return max(map(int, re.findall(r"\bv\[?(?:\d+:)?(\d+)", text)), default=0)


@functools.cache
def _namespace(rules: str, dx10_clamp: int, wave: int) -> dict:
    """What generated code names beside its parameters."""
    found = {name: getattr(of, name) for of in (narrow, numeric) for name in dir(of) if not name.startswith("__")}
    for name in ("vmin", "vmax", "vmed"):
        found[name] = functools.partial(found[name], rules)
    if not dx10_clamp:
        found["clamped"] = numeric.clamped_but_nan
    below = [(1 << lane) - 1 for lane in range(wave)]
    return found | {
        "np": np,
        "cp": np.copyto,
        "W": wave,
        "SHARED_BASE": SHARED_BASE,
        "PRIVATE_BASE": PRIVATE_BASE,
        "below_low": np.array([b & 0xFFFFFFFF for b in below], dtype=np.uint32),
        "below_high": np.array([b >> 32 for b in below], dtype=np.uint32),
    }


class Writer:
    """Names registers and constants in the generated text, reads operands and writes results."""

    def __init__(self, kernel: KernelText, target: str, instructions: list[Instruction]):
        self.kernel = kernel
        self.target = target
        self.wave = kernel.facts.get("wavefront_size", 64)
        self.cdna = target.startswith("gfx9")
        # Inline assembly may name registers that the compiler did not count.
        named = max((_highest(ins.text) for ins in instructions), default=0)
        vgprs = max(kernel.descriptor.get("next_free_vgpr", 0), kernel.facts.get("vgpr_count", 0), 4, named)
        self.registers = np.zeros((vgprs + 4, self.wave), dtype=np.uint32)
        agprs = kernel.facts.get("agpr_count", 0)
        offset = kernel.descriptor.get("accum_offset", vgprs)
        self.accumulators = np.zeros((max(agprs, vgprs - offset, 0) + 260, self.wave), dtype=np.uint32)
        self.scalars = [0] * SCALARS
        self.rules = "num" if target.startswith("gfx12") else "cdna" if self.cdna else "rdna3"  # of minimum and maximum
        described = kernel.descriptor
        if self.rules != "num" and not described.get("ieee_mode", 1):
            self.rules += " without signals"
        self.modes = self.rules, described.get("dx10_clamp", 1)
        self.namespace = _namespace(*self.modes, self.wave)
        # Of float32's subnormals: 0 takes and gives zeros for them, 1 gives, 2 takes, 3 does neither.
        self.described_denormals = self.denormals = described.get("float_denorm_mode_32", 3)
        self.constants: list = []  # of the instruction at hand
        self.lines: list[str] = []
        self.unknown: dict[str, Instruction] = {}
        self.meant: Meant | None = None  # by the instruction at hand, of shared memory

    # Names.

    def constant(self, value) -> str:
        self.constants.append(value)
        return f"k{len(self.constants) - 1}"

    def row(self, prefix: str, index: int, kind: str, high: bool = False) -> str:
        """The name of a register's row seen as `kind`."""
        if high and kind not in "hws":
            raise ValueError("the high half of an operand of more than 16 bits")
        return f"{prefix}{index}_{kind}{'_high' if high else ''}"

    # Reading operands.

    def _needs_float(self, kind: str) -> None:
        if kind not in FLOATS:
            raise ValueError("the sign of an operand that is read as a whole number")

    def literal(self, text: str, kind: str):
        """The NumPy scalar of an inline constant or literal as `kind`."""
        if INLINE.match(text):
            value = float(text)
            if kind == "d":
                return np.float64(value)
            if kind == "h":
                return np.float16(value)
            if kind in "ws":
                return np.float16(value).view(DTYPES[kind])
            if kind in "UI":
                return np.float64(value).view(np.uint64 if kind == "U" else np.int64)
            return np.float32(value).view(DTYPES[kind])
        value = int(text, 0)
        if kind in "fui":
            return np.uint32(value & 0xFFFFFFFF).view(DTYPES[kind])
        if kind in "hws":
            return np.uint16(value & 0xFFFF).view(DTYPES[kind])
        if kind == "d":  # a literal is the high half, a small integer its own bits
            bits = value & numeric.M64 if -16 <= value <= 64 else (value & 0xFFFFFFFF) << 32
            return np.uint64(bits).view(np.float64)
        return np.uint64(value & numeric.M64).view(np.int64 if kind == "I" else np.uint64)

    def source(self, text: str, kind: str, high: bool = False) -> str:
        """The expression of an operand as `kind`."""
        text = text.strip()
        if text.startswith("neg(") or (text.startswith("-") and not NUMBER.match(text) and not INLINE.match(text)):
            inner = text[4:-1] if text.startswith("neg(") else text[1:]
            self._needs_float(kind)
            return f"np.negative({self.source(inner, kind, high)})"
        if text.startswith(("|", "abs(")):
            self._needs_float(kind)
            inner = text[1:-1] if text.startswith("|") else text[4:-1]
            return f"np.abs({self.source(inner, kind, high)})"
        if text.startswith("lit("):
            text = text[4:-1]
        if text.endswith((".l", ".h")):
            if kind not in "hws":
                raise ValueError(f"{text!r}: half of a register read as more")
            high, text = text.endswith(".h"), text[:-2]
        if vector := vector_index(text):
            prefix, index, _ = vector
            if kind in WIDE:
                return f"wide({self.row(prefix, index, 'pair')})" + ("" if kind == "U" else f".view({WIDE[kind]})")
            return self.row(prefix, index, kind, high)
        if scalar_index(text) is not None:
            return SCALAR_AS[kind].format(self.scalar(text, 64 if kind in WIDE else 32, high))
        if NUMBER.match(text) or INLINE.match(text):
            return self.constant(self.literal(text, kind))
        if text in ("src_shared_base", "src_private_base", "src_vccz", "src_execz"):
            return SCALAR_AS[kind].format(self.scalar(text, 64 if kind in WIDE else 32))
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
        if INLINE.match(text):
            kind, view = {16: (np.float16, np.uint16), 32: (np.float32, np.uint32), 64: (np.float64, np.uint64)}[width]
            return str(int(kind(float(text)).view(view)))
        value = int(text, 0)
        return str(value & (numeric.M64 if width == 64 else numeric.M32))

    def taken(self, expression: str, kind: str) -> str:
        """An operand of arithmetic, zero where the kernel has subnormals taken so."""
        return f"flushed({expression})" if kind == "f" and self.denormals in (0, 2) else expression

    def given(self, expression: str, kind: str) -> str:
        """A result of arithmetic likewise."""
        return f"flushed({expression})" if kind == "f" and self.denormals in (0, 1) else expression

    def keeps_denormals(self) -> None:
        if self.denormals != 3:
            raise ValueError("not emulated where float32's subnormals are zeros (float_denorm_mode_32)")

    # Writing results.

    def emit(self, *lines: str) -> None:
        """Adds lines of Python: of our own words and of numbers, never of an instruction's text."""
        if any(isinstance(line, Text) for line in lines):
            raise TypeError(f"the text of an instruction as Python: {lines!r}")
        self.lines.extend(lines)

    def write_scalar(self, text: str, expression: str, width: int = 32) -> None:
        index, _ = scalar_index(text)
        if index == NULL:
            self.emit(f"S[{DUMP}] = {expression}")
            return
        if width == 64:
            given = [f"r = {expression}"] if expression != "r" else []
            self.emit(*given, f"S[{index}] = r & {numeric.M32}", f"S[{index + 1}] = r >> 32")
        else:
            self.emit(f"S[{index}] = {expression}")
        if index in (EXEC, EXEC + 1):
            self.emit("full, mask = st.exec_changed()")

    def write_mask(self, text: str, expression: str) -> None:
        """A lane mask into vcc, exec or a scalar register (pair)."""
        self.write_scalar(text, f"mask_of({expression})", 64 if self.wave == 64 else 32)

    def write(
        self, text: str, kind: str, expression: str, *, high: bool = False, only: str | None = None, keep: bool = False
    ) -> None:
        """A row, in the lanes of exec (and of `only`)."""
        if text.endswith((".l", ".h")):
            if kind not in "hws":
                raise ValueError(f"{text!r}: half of a register for a result of more")
            high, text = text.endswith(".h"), text[:-2]
        if (scalar := scalar_index(text)) is not None and vector_index(text) is None:
            raise ValueError(f"vector result in {text!r} ({scalar})")
        prefix, index, _ = vector_index(text)
        where = "mask" if only is None else f"(mask & {only})"
        if kind in WIDE:
            low, top = self.row(prefix, index, "u"), self.row(prefix, index + 1, "u")
            self.emit(f"t = np.asarray({expression}).view(u64)")
            both = f"cp({low}, t, 'unsafe', {where}); cp({top}, t >> u64(32), 'unsafe', {where})"
            if only is None:
                self.emit(f"if full: {low}[:] = t; {top}[:] = t >> u64(32)", f"else: {both}")
            else:
                self.emit(both)
            return
        name = self.row(prefix, index, kind, high)
        if kind in "hws" and self.cdna and not high and not keep:
            # GFX9 clears the high half.
            name = self.row(prefix, index, "u")
            expression = f"np.asarray({expression}).view(u16)"
        if only is None:
            self.emit(f"t = {expression}", f"if full: {name}[:] = t", f"else: cp({name}, t, 'unsafe', mask)")
        else:
            self.emit(f"cp({name}, {expression}, 'unsafe', {where})")
