"""Code for the vector and matrix units' instructions."""

import re

import numpy as np

from wmma_ops.emulator import matrix, numeric
from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.modifiers import CLAMP, DPP, HALVES, NONE, SDWA, SELECT, SIGNS, only
from wmma_ops.emulator.operands import DTYPES, FLOATS, INLINE, NUMBER, SCALAR_AS, scalar_index, vector_index
from wmma_ops.emulator.vector import (
    ACCUMULATING,
    COMPARED,
    CONDITIONS,
    KEEPS_HIGH,
    PACKED,
    PACKED_SATURATING,
    SATURATING,
    VALU,
)
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
        if (extend and kind in FLOATS) or ((negative or absolute) and kind not in FLOATS):
            raise ValueError("the sign of an operand of another type")
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
        elif "row_mirror" in mods:
            index = rows + 15 - within
        elif "row_half_mirror" in mods:
            index = lanes // 8 * 8 + 7 - lanes % 8
        elif DPP & set(mods):
            raise ValueError("DPP of an unknown form")
        else:
            return None
        banks = int(mods.get("bank_mask", "0xf"), 0)
        row_mask = int(mods.get("row_mask", "0xf"), 0)
        written = ((row_mask >> (lanes // 16)) & 1).astype(bool) & ((banks >> (lanes % 16 // 4)) & 1).astype(bool)
        # Of groups of eight, lanes that are off give 0. (bound_ctrl:0 is the older name of the same bit as bound_ctrl:1.)
        zero = "bound_ctrl" in mods or "dpp8" in mods
        return self.constant(index), self.constant(valid), self.constant(written), zero

    def _operands(self, ins: Instruction, texts, kinds) -> tuple[list[str], str | None, bool]:
        """(expressions, mask of lanes to write beside exec, whether the result goes to the high half)."""
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

    def _every_lane(self, only: str | None) -> None:
        """A lane mask has a bit for every lane: refused at run time where DPP leaves some of exec's lanes out."""
        if only is not None:
            self.emit(f"st.all_live({only}, mask)")

    def _modified(self, ins: Instruction, kind: str, expression: str) -> str:
        """clamp of a float: to 0 … 1, NaN to 0."""
        if "clamp" not in ins.modifiers:
            return expression
        if kind not in FLOATS:
            raise ValueError("clamp is not emulated on this instruction")
        return f"clamped({expression})"

    def _valu(self, m: str, ins: Instruction) -> None:
        kind, kinds, expression = VALU.get(m) or ACCUMULATING[m]
        whole = "clamp" in ins.modifiers and m in SATURATING
        if whole:
            kind, kinds, expression = SATURATING[m]
        halves = SELECT if any(k in "hws" for k in kind + kinds) else NONE
        clamp = CLAMP if whole or kind in FLOATS else NONE
        only(ins, DPP, SDWA, halves, clamp)
        destination, *sources = ins.operands
        if len(sources) != len(kinds):
            raise ValueError(f"{len(sources)} sources; takes {len(kinds)}")
        out, lanes, high = self._operands(ins, sources, kinds)
        out = [self.taken(x, k) for x, k in zip(out, kinds, strict=True)]
        values = {"D": self.taken(self.source(destination, kind, high), kind)} if m in ACCUMULATING else {}
        if whole:
            out = [f"np.asarray({x}).astype(i64)" for x in out]
            dtype = np.dtype(DTYPES[kind]).name.replace("uint", "u").replace("int", "i")
            result = f"saturated({expression.format(*out)}, {dtype})"
        else:
            if any(name in expression for name in (".astype", ".view")):
                out = [f"np.asarray({x})" if x[0] != "v" else x for x in out]
            result = self._modified(ins, kind, self.given(expression.format(*out, **values), kind))
        if ins.modifiers.get("dst_sel", "DWORD") != "DWORD":
            if m in ACCUMULATING:
                raise ValueError("part of a result that is also an operand")
            self._write_sdwa(destination, kind, result, ins)
            return
        self.write(destination, kind, result, high=high, only=lanes, keep=m in KEEPS_HIGH)

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
        floats = kind in FLOATS
        whole = "clamp" in ins.modifiers and m in PACKED_SATURATING
        if whole:
            kind = PACKED_SATURATING[m]
        only(ins, HALVES, SIGNS if floats else NONE, CLAMP if floats or whole else NONE)
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
                    elif choice and text != "0":
                        raise ValueError("the high word of a constant")
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
                if whole:
                    x = f"np.asarray({x}).astype(i64)"
                out.append(self.taken(f"np.negative({x})" if minus else x, kind))
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
            results = [self.given(expression.format(*out), kind) for out in halves]
        if whole:
            results = [f"saturated({x}, {'u16' if kind == 'w' else 'i16'})" for x in results]
        elif "clamp" in mods:
            results = [f"clamped({x})" for x in results]
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
        only(ins, DPP, frozenset({"src0_sel", "src1_sel"}), SELECT if kind and kind in "hws" else NONE)
        ops = list(ins.operands)
        # The result is named unless it is vcc (e32) or exec.
        named = len(ops) == 3
        destination = ops.pop(0) if named else "vcc"
        if to_exec and (not named or destination in ("exec", "exec_lo")):
            destination = "exec" if self.wave == 64 else "exec_lo"
        if destination == "vcc" and self.wave == 32:
            destination = "vcc_lo"
        if condition == "class":
            out, lanes, _ = self._operands(ins, ops, kind + "u")
            expression = f"classify(np.asarray({out[0]}), {out[1]})"
        elif kind is None or (condition not in CONDITIONS and condition not in ("t", "f")):
            return False
        else:
            out, lanes, _ = self._operands(ins, ops, kind * 2)
            out = [self.taken(x, kind) for x in out]
            expression = {"t": "np.True_", "f": "np.False_"}.get(condition) or CONDITIONS[condition].format(*out)
        self._every_lane(lanes)
        self.write_mask(destination, f"({expression}) & mask")
        if to_exec and destination not in ("exec", "exec_lo"):
            self.write_scalar(
                "exec_lo", self.scalar(destination, 64 if self.wave == 64 else 32), 64 if self.wave == 64 else 32
            )
        return True

    def _lanes(self, text: str) -> str:
        """A mask operand (vcc or a scalar register) as lanes."""
        return f"lanes_of({self.scalar(text, 64 if self.wave == 64 else 32)}, W)"

    def _select(self, m: str, ins: Instruction) -> bool:
        ops = list(ins.operands)
        wide = m == "v_cndmask_b32"
        only(ins, DPP, SDWA if wide else SELECT)
        if len(ops) == 3:
            ops.append("vcc")
        signs = any(letter in "".join(ops[1:3]) for letter in "-|") and not all(NUMBER.match(x) for x in ops[1:3])
        kind = ("f" if signs else "u") if wide else "w"
        out, lanes, high = self._operands(ins, ops[1:3], kind * 2)
        chosen = f"np.where({self._lanes(ops[3])}, {out[1]}, {out[0]})"
        if ins.modifiers.get("dst_sel", "DWORD") != "DWORD":
            self._write_sdwa(ops[0], kind, chosen, ins)
        else:
            self.write(ops[0], kind, chosen, high=high, only=lanes)
        return True

    def _carried(self, m: str, ins: Instruction) -> bool:
        if match := re.match(r"^v_(add|sub|subrev)(c|b|brev)?_co(_ci)?_u32$", m):
            stem, carried = match.group(1), bool(match.group(2) or match.group(3))
            return self._carry("subrev" if stem == "subrev" or match.group(2) == "brev" else stem, carried, ins)
        if match := re.match(r"^v_(subbrev|subb)_co_u32$", m):
            return self._carry("subrev" if match.group(1) == "subbrev" else "sub", True, ins)
        return False

    def _carry(self, stem: str, carried: bool, ins: Instruction) -> bool:
        only(ins, DPP, SDWA, CLAMP)
        if ins.modifiers.get("dst_sel", "DWORD") != "DWORD":
            raise ValueError("dst_sel is not emulated on this instruction")
        destination, carry_out, *rest = ins.operands
        out, lanes, _ = self._operands(ins, rest[:2], "uu")
        self._every_lane(lanes)
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
        self.emit("c = c & mask")
        limit = numeric.M32 if stem == "add" else 0
        self.write(destination, "u", f"np.where(c, u32({limit}), x)" if "clamp" in ins.modifiers else "x", only=lanes)
        if carry_out != "null":
            self.write_mask(carry_out, "c")
        return True

    # Matrix instructions.

    def _matrix(self, m: str, ins: Instruction) -> bool:
        only(ins, HALVES, SIGNS, CLAMP, frozenset({"cbsz", "abid", "blgp", "neg"}))
        shape = matrix.describe(m, self.target, ins.modifiers)
        if shape is None:
            return False
        if shape.a == "float32":
            self.keeps_denormals()
        texts = list(ins.operands)
        if shape.indices is not None:
            texts.insert(3, texts[0])  # the result is what is added to
        found = [vector_index(text) for text in texts[:4]]
        blocks = [self.row(*vector[:2], f"block{vector[2]}") for vector in found if vector]
        if found[3] is None:  # an inline constant
            value = self.literal(texts[3], {"float64": "d", "int32": "u"}.get(shape.d, "f"))
            blocks.append(self.constant(np.array(value)))
        blocks += [self.row(*vector_index(text)[:2], "u") for text in texts[4:]]
        unit = matrix.make(shape, self.wave, *(vector[2] for vector in found[:3]))
        self.emit("if not full: st.takes_all_lanes(mask)")
        self.emit(f"{self.constant(unit)}({', '.join(blocks)})")
        return True
