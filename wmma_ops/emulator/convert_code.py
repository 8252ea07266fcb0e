"""Code for vector instructions on parts of registers: mixed precision, float8, dot products, wide multiply-add."""

import re

from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.modifiers import CLAMP, HALVES, NONE, SELECT, only
from wmma_ops.emulator.operands import vector_index
from wmma_ops.emulator.vector import VALU
from wmma_ops.emulator.writer import Writer


def _ones(ins: Instruction, name: str, count: int) -> list[int]:
    found = [int(x) for x in re.findall(r"\d", ins.modifiers.get(name, ""))]
    return found + [0] * (count - len(found))


class ConvertCode(Writer):
    def _conversions(self, m: str, ins: Instruction) -> bool:
        for pattern, code in (
            (r"^v_mad_(?:co_)?([ui])64_[ui]32$", self._mad_wide),
            (r"^v_s_(exp|log|rcp|rsq|sqrt)_f(32|16)$", self._of_scalar),
            (r"^v_bitop3_b(32|16)$", self._bitop),
            (r"^v_fma_mix(lo|hi)?_f(?:32|16)$", self._mix),
            (r"^v_cvt_f32_(fp8|bf8)$", self._from_fp8),
            (r"^v_cvt_pk_f32_(fp8|bf8)$", self._from_fp8_pair),
            (r"^v_cvt_pk_(fp8|bf8)_f32$", self._to_fp8_pair),
            (r"^v_dot2c?_f32_(f16|bf16)$", self._dot_floats),
            (r"^v_dot([248])c?_([iu]32)_([iu]{1,2})(4|8|16)$", self._dot),
        ):
            if match := re.match(pattern, m):
                code(ins, *match.groups())
                return True
        if m.startswith("v_div_scale_"):
            only(ins)
            kind = "d" if m.endswith("f64") else "f"
            # No scaling: the fixup divides exactly, whatever the steps between gave.
            self.write(ins.operands[0], kind, self.source(ins.operands[2], kind))
            if ins.operands[1] != "null":
                self.write_mask(ins.operands[1], "np.zeros(W, bool)")
            return True
        return False

    def _mad_wide(self, ins: Instruction, sign: str) -> None:
        only(ins)
        ops = ins.operands
        kind, narrow, cast = ("I", "i", "i64") if sign == "i" else ("U", "u", "u64")
        a, b = (f"np.asarray({self.source(x, narrow)}).astype({cast})" for x in ops[2:4])
        self.emit(f"x, c = mad64({a}, {b}, np.asarray({self.source(ops[4], kind)}))")
        self.write(ops[0], kind, "x")
        if ops[1] != "null":
            self.write_scalar(ops[1], "mask_of(c & mask) if np.count_nonzero(c) else 0", self.wave)

    def _of_scalar(self, ins: Instruction, name: str, width: str) -> None:
        """The vector unit's function of a scalar register, into one."""
        only(ins)
        kind, bits = ("f", "u32") if width == "32" else ("h", "u16")
        x = f"np.asarray({self.source(ins.operands[1], kind)})"
        value = VALU[f"v_{name}_f{width}"][2].format(x)
        self.write_scalar(ins.operands[0], f"int(np.asarray({value}).view({bits}))")

    def _bitop(self, ins: Instruction, width: str) -> None:
        kind, cast = ("u", "u32") if width == "32" else ("w", "u16")
        only(ins, frozenset({"bitop3"}), NONE if width == "32" else SELECT)
        table = int(ins.modifiers.get("bitop3", "0"), 0)
        *halves, high = _ones(ins, "op_sel", 4)
        out = [self.source(text, kind, bool(half)) for text, half in zip(ins.operands[1:4], halves, strict=True)]
        self.write(ins.operands[0], kind, f"bitop3({', '.join(out)}, {table}).astype({cast})", high=bool(high))

    def _mix(self, ins: Instruction, half: str | None) -> None:
        only(ins, HALVES, CLAMP)
        ops = ins.operands
        out = []
        for text, high, narrow in zip(ops[1:4], _ones(ins, "op_sel", 3), _ones(ins, "op_sel_hi", 3), strict=True):
            if narrow:
                out.append(f"np.asarray({self.source(text, 'h', bool(high))}).astype(f32)")
            elif high:
                raise ValueError("op_sel on an operand of 32 bits")
            else:
                out.append(self.taken(self.source(text, "f"), "f"))
        result = f"fma32({', '.join(out)})"
        result = result if half else self.given(result, "f")
        if "clamp" in ins.modifiers:
            result = f"clamped({result})"
        if half:
            row = self.row(*vector_index(ops[0])[:2], "h", half == "hi")
            self.emit(f"cp({row}, ({result}).astype(f16), 'unsafe', mask)")
        else:
            self.write(ops[0], "f", result)

    # float8

    def _kind(self, name: str) -> str:
        return repr(name + ("_fnuz" if self.target == "gfx942" else ""))

    def _part(self, ins: Instruction, names: frozenset[str]) -> int:
        """The byte at which the operand's part begins."""
        only(ins, names)
        mods = ins.modifiers
        if mods.get("dst_sel", "DWORD") != "DWORD":
            raise ValueError("dst_sel is not emulated on this instruction")
        select = mods.get("src0_sel", "DWORD")
        byte = 0 if select == "DWORD" else int(select[-1]) * (2 if select.startswith("WORD") else 1)
        return byte + int(mods.get("byte_sel", "0"))

    def _from_fp8(self, ins: Instruction, name: str) -> None:
        ops = ins.operands
        byte = self._part(ins, frozenset("src0_sel dst_sel dst_unused byte_sel op_sel".split()))
        first, second, *rest = _ones(ins, "op_sel", 2)
        if any(rest):
            raise ValueError("op_sel beyond the byte")
        byte |= first | second << 1
        code = f"(np.asarray({self.source(ops[1], 'u')}) >> u32({8 * byte})) & u32(255)"
        self.write(ops[0], "f", f"decode({code}, {self._kind(name)})")

    def _from_fp8_pair(self, ins: Instruction, name: str) -> None:
        ops = ins.operands
        byte = self._part(ins, frozenset("src0_sel dst_sel dst_unused op_sel".split()))
        high, *rest = _ones(ins, "op_sel", 1)
        text = ops[1]
        if text.endswith((".l", ".h")):
            byte, text = byte + 2 * text.endswith(".h"), text[:-2]
        if any(rest) or byte % 2:
            raise ValueError("neither half of the operand")
        self.emit(f"x = np.array({self.source(text, 'u')}) >> u32({8 * (byte | 2 * high)})")
        prefix, index, _ = vector_index(ops[0])
        for step in (0, 1):
            codes = f"(x >> u32({8 * step})) & u32(255)"
            self.emit(f"cp({self.row(prefix, index + step, 'f')}, decode({codes}, {self._kind(name)}), 'unsafe', mask)")

    def _to_fp8_pair(self, ins: Instruction, name: str) -> None:
        only(ins, SELECT)
        into, *sources = ins.operands
        *halves, high = _ones(ins, "op_sel", 3)
        if any(halves):
            raise ValueError("op_sel on an operand of 32 bits")
        if into.endswith((".l", ".h")):
            high, into = into.endswith(".h"), into[:-2]
        a, b = (f"encode({self.source(text, 'f')}, {self._kind(name)})" for text in sources)
        row = self.row(*vector_index(into)[:2], "w", bool(high))
        self.emit(f"cp({row}, {a} | ({b} << u32(8)), 'unsafe', mask)")

    # Dot products

    def _dot_floats(self, ins: Instruction, kind: str) -> None:
        only(ins)
        self.keeps_denormals()
        into, a, b, *rest = ins.operands
        c = self.source(rest[0] if rest else into, "f")
        if kind == "bf16":
            self._dot_bfloats(ins, into, a, b, c)
            return
        terms = [
            f"np.multiply(np.asarray({self.source(a, 'h', high)}), {self.source(b, 'h', high)}, dtype=f32)"
            for high in (False, True)
        ]
        self.write(into, "f", f"{c} + {terms[0]} + {terms[1]}")

    def _dot_bfloats(self, ins: Instruction, into: str, a: str, b: str, c: str) -> None:
        """Of gfx950, whose document gives the order of the sum; elsewhere how it is rounded is not known."""
        if self.target != "gfx950":
            raise ValueError("products of bfloat16 outside matrix instructions")

        def product(high: bool) -> str:
            x, y = (f"(np.asarray({self.source(text, 'w', high)}).astype(u32) << u32(16)).view(f32)" for text in (a, b))
            return f"{x} * {y}"

        low, high = product(False), product(True)
        self.write(into, "f", f"{c} + {low} + {high}" if "dot2c" in ins.mnemonic else f"{low} + {high} + {c}")

    def _dot(self, ins: Instruction, count: str, result: str, signs: str, width: str) -> None:
        """Whole numbers: the exact sum, brought into range with clamp."""
        if int(count) * int(width) != 32:
            raise ValueError("a dot product of another shape")
        only(ins, CLAMP, frozenset({"neg_lo"}) if signs == "iu" else NONE)
        into, a, b, *rest = ins.operands
        kind = result[0]
        c = self.source(rest[0] if rest else into, kind)
        signed = _ones(ins, "neg_lo", 3) if signs == "iu" else [signs == "i"] * 2
        terms = [f"np.asarray({c}).astype(i64)"]
        for step in range(int(count)):
            x, y = (
                f"bfe_{'i' if s else 'u'}({self.source(text, 'u')}, {int(width) * step}, {width}).astype(i64)"
                for text, s in zip((a, b), signed, strict=False)
            )
            terms.append(f"{x} * {y}")
        total = " + ".join(terms)
        narrow = "i32" if kind == "i" else "u32"
        self.write(
            into, kind, f"saturated({total}, {narrow})" if "clamp" in ins.modifiers else f"({total}).astype({narrow})"
        )
