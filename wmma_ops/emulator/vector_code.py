"""Code for the vector and matrix units' instructions."""

import re

import numpy as np

from wmma_ops.emulator import matrix, numeric
from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.operands import DTYPES, FLOATS, INLINE, SCALAR_AS, scalar_index, vector_index
from wmma_ops.emulator.vector import ACCUMULATING, COMPARED, CONDITIONS, PACKED, VALU
from wmma_ops.emulator.writer import Writer


class VectorCode(Writer):
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

    def _dpp(self, ins: Instruction) -> tuple[str, str, str, bool] | None:
        """(index of the source lane, which lanes have one, which may be written, whether the others read 0)."""
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
        return self.constant(index), self.constant(valid), self.constant(written), zero

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
            index, valid, written, zero = dpp
            # A lane that is off is no source, unless fi:1 says so.
            live = f"{valid} & mask[{index}]" if ins.modifiers.get("fi") != "1" else valid
            self.emit(f"live = {live}")
            out[0] = f"np.where(live, {out[0]}[{index}], 0).astype({out[0]}.dtype)"
            only = written if zero else f"{written} & live"
        return out, only, halves[len(kinds)] if "op_sel" in ins.modifiers else False

    def _modified(self, ins: Instruction, kind: str, expression: str) -> str:
        """clamp, and the output factors."""
        if "mul" in ins.modifiers:
            expression = f"(({expression}) * {ins.modifiers['mul']})"
        if "div" in ins.modifiers:
            expression = f"(({expression}) / {ins.modifiers['div']})"
        if "clamp" in ins.modifiers:
            if kind not in FLOATS:
                raise ValueError("clamp of an integer result")
            expression = f"np.fmin(np.fmax({expression}, 0), 1)"  # NaN becomes 0
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
                        x = SCALAR_AS[kind].format(f"S[{scalar[0] + choice}]")
                    else:
                        x = self.source(text, kind)
                elif vector_index(text):
                    x = self.source(text, kind, bool(choice))
                elif (scalar := scalar_index(text)) is not None:
                    x = SCALAR_AS[kind].format(f"(S[{scalar[0]}] >> {16 * choice})")
                elif INLINE.match(text):  # an inline float stands in the low half alone
                    x = self.source(text, kind) if not choice else self.constant(DTYPES[kind](0))
                else:
                    value = int(text, 0) & numeric.M32
                    half = (value >> (16 * choice)) & 0xFFFF
                    x = self.constant(np.uint16(half).view(DTYPES[kind]))
                out.append(f"np.negative({x})" if minus else x)
            halves.append(out)
        prefix, index, _ = vector_index(destination)
        if m == "v_pk_mov_b32":
            pairs = []  # the low result is a word of the first operand, the high one of the second
            for text, choice in zip(sources, low_of, strict=True):
                vector = vector_index(text)
                scalar = scalar_index(text)
                if vector:
                    pairs.append(self.row(vector[0], vector[1] + choice, kind))
                elif scalar is not None:
                    pairs.append(SCALAR_AS[kind].format(f"S[{scalar[0] + choice}]"))
                else:
                    pairs.append(self.source(text, kind))
            results = pairs
        else:
            results = [expression.format(*out) for out in halves]
        if "clamp" in mods:
            if kind not in FLOATS:
                raise ValueError("clamp of an integer result")
            results = [f"np.fmin(np.fmax({x}, 0), 1)" for x in results]
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
            signs = [int(x) for x in re.findall(r"\d", ins.modifiers.get("neg_lo", "[0,0,0]"))]
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
