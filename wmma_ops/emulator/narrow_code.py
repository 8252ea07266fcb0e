"""Code for gfx950's conversions from and to floats of 8, 6 and 4 bits, with scales and by random bits; its packed shifts."""

import re

from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.modifiers import SELECT, only
from wmma_ops.emulator.narrow import FORMATS
from wmma_ops.emulator.operands import vector_index
from wmma_ops.emulator.writer import Writer

_MANTISSA = {"f32": 23, "f16": 10, "bf16": 7}
_NARROW, _WIDE = "fp8|bf8|fp6|bf6|fp4", "f32|f16|bf16"


def _selected(ins: Instruction) -> list[int]:
    return [*map(int, re.findall(r"\d", ins.modifiers.get("op_sel", ""))), 0, 0, 0, 0][:4]


class NarrowCode(Writer):
    def _narrow(self, m: str, ins: Instruction) -> bool:
        for pattern, code in (
            (rf"^v_cvt_scalef32_(sr_)?(pk_|pk32_|2xpk16_)?({_NARROW})_({_WIDE})$", self._to_narrow),
            (rf"^v_cvt_scalef32_(pk_|pk32_)?({_WIDE})_({_NARROW})$", self._from_narrow),
            (r"^v_cvt_sr_(fp8|bf8)_f32$", self._to_byte),
            (r"^v_ashr_pk_([iu])8_i32$", self._shifted_bytes),
        ):
            if match := re.match(pattern, m):
                only(ins, SELECT)
                code(ins, *match.groups())
                return True
        return False

    def _block(self, text: str) -> str:
        if vector_index(text) is None:
            raise ValueError(f"{text!r}: not registers")
        prefix, index, count = vector_index(text)
        return self.row(prefix, index, f"block{count}")

    def _bare(self, text: str) -> str:
        """A scale as bits: its sign is of no concern."""
        return self.source(text.strip("-|"), "u")

    def _single(self, text: str, kind: str) -> str:
        if kind == "bf16":
            return f"(np.asarray({self.source(text, 'w')}).astype(u32) << u32(16)).view(f32)"
        return self.source(text, kind[0] if kind == "f32" else "h")

    def _put(self, text: str, value: str, shift: int, bits: int) -> None:
        """Into a part of a register whose rest stays."""
        kept = ~((1 << bits) - 1 << shift) & 0xFFFFFFFF
        self.write(text, "u", f"({self.source(text, 'u')} & u32({kept})) | ({value}) << u32({shift})")

    def _put_rows(self, text: str, value: str) -> None:
        prefix, index, count = vector_index(text)
        self.emit(f"y = {value}")
        self.emit(*(f"cp({self.row(prefix, index + i, 'u')}, y[{i}], 'unsafe', mask)" for i in range(count)))

    # To narrow floats

    def _to_narrow(self, ins: Instruction, random: str | None, form: str | None, kind: str, source: str) -> None:
        into, *sources, scale = ins.operands
        seed = self.source(sources.pop(), "u") if random else None
        if form is None:
            values, count = f"np.broadcast_to({self._single(sources[0], source)}, (1, W))", 1
        elif form == "2xpk16_":
            values = f"np.stack(({', '.join(self._block(x) for x in sources)}), 1).reshape(32, W).view(f32)"
            count = 32
        elif len(sources) == 2:
            rows = (f"np.broadcast_to({self.source(x, 'f')}, W)" for x in sources)
            values, count = f"np.stack(({', '.join(rows)}))", 2
        else:
            values = f"floats_of({self._block(sources[0])}, {source!r})"
            count = vector_index(sources[0])[2] * (1 if source == "f32" else 2)
        if count != {None: 1, "pk_": 2, "pk32_": 32, "2xpk16_": 32}[form]:
            raise ValueError(f"{sources[0]!r}: {count} elements")
        values = self.taken(values, source[0] if source == "f32" else "")
        x = f"shrunk({values}, {self._bare(scale)})"
        if random:
            code = f"encode_random({x}, seeds({seed}, {count}), {kind!r}, {_MANTISSA[source]})"
        else:
            code = f"encode({x}, {kind!r})"
        bits = FORMATS[kind].bits
        if count == 32:
            self._put_rows(into, f"packed({code}.T, {bits})")
            return
        self.emit(f"x = {code}")
        first, second, third, fourth = _selected(ins)
        if kind == "fp4" or random:
            place, used = 8 * (third | fourth << 1), first | second
        else:
            word = fourth if len(sources) == 2 else third
            place, used = 16 * word, first | second | (third if len(sources) == 2 else fourth)
        if used:
            raise ValueError("op_sel on an operand")
        self._put(into, "x[0]" if count == 1 else f"x[0] | x[1] << u32({bits})", place, bits * count)

    def _to_byte(self, ins: Instruction, kind: str) -> None:
        into, given, seed = ins.operands
        first, second, third, fourth = _selected(ins)
        if first | second:
            raise ValueError("op_sel on an operand")
        if "byte_sel" in ins.modifiers:
            raise ValueError("byte_sel")
        kind += "_fnuz" if self.target == "gfx942" else ""
        value = f"encode_random({self.source(given, 'f')}, {self.source(seed, 'u')}, {kind!r}, 23)"
        self._put(into, value, 8 * (third | fourth << 1), 8)

    # From them

    def _from_narrow(self, ins: Instruction, form: str | None, wide: str, kind: str) -> None:
        into, given, scale = ins.operands
        first, second, third, fourth = _selected(ins)
        bits = FORMATS[kind].bits
        if form == "pk32_":
            codes, part = f"unpacked({self._block(given)}, {bits}).T", 0
        else:
            part = 16 * first if form and bits == 8 else 8 * (first | second << 1)
            steps = (0, bits) if form else (0,)
            x = f"np.broadcast_to({self.source(given, 'u')}, W)"
            each = (f"{x} >> u32({part + step}) & u32({(1 << bits) - 1})" for step in steps)
            codes = f"np.stack(({', '.join(each)},))"
        if fourth or (second and form and bits == 8) or (third and (form or wide != "f16")):
            raise ValueError("op_sel beyond the operand's part")
        value = f"decode({codes}, {kind!r}) * factor({self._bare(scale)})"
        if wide == "f32":
            self._put_rows(into, f"{self.given(f'({value}).astype(f32)', 'f')}.view(u32)")
        elif form is None:
            row = self.row(*vector_index(into)[:2], "h", bool(third))
            self.emit(f"cp({row}, ({value})[0].astype(f16), 'unsafe', mask)")
        else:
            halves = f"({value}).astype(f16).view(u16).astype(u32)" if wide == "f16" else f"bf16_round({value})"
            self.emit(f"x = {halves}")
            self._put_rows(into, "x[0::2] | x[1::2] << u32(16)")

    def _shifted_bytes(self, ins: Instruction, sign: str) -> None:
        into, a, b, count = ins.operands
        *others, high = _selected(ins)
        if any(others):
            raise ValueError("op_sel on an operand")
        low, most = (-128, 127) if sign == "i" else (0, 255)
        shift = f"(np.asarray({self.source(count, 'u')}) & u32(31)).astype(i32)"
        x, y = (f"(np.clip({self.source(text, 'i')} >> {shift}, {low}, {most}) & 255).astype(u32)" for text in (a, b))
        self._put(into, f"{x} | {y} << u32(8)", 16 * high, 16)
