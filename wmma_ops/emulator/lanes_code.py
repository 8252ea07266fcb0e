"""Code for what moves values between lanes and scalars, and for registers named by an index."""

import re

import numpy as np

from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.bits import WORD
from wmma_ops.emulator.modifiers import SELECT, only
from wmma_ops.emulator.operands import M0, vector_index
from wmma_ops.emulator.writer import Writer

_FROM_OFF = frozenset({"bound_ctrl", "fi"})
INDEXED = "v_indexed_mov_b32"  # a v_mov_b32 between s_set_gpr_idx_on and _off; its modifiers say which operands are


class LanesCode(Writer):
    def _lanes_others(self, m: str, ins: Instruction) -> bool:
        if m.startswith("v_movrel") or m == INDEXED:
            return self._moved(m, ins)
        if m in ("v_permlane16_b32", "v_permlanex16_b32"):
            return self._permlane16(m, ins)
        if m in ("v_permlane32_swap_b32", "v_permlane16_swap_b32"):
            return self._permlane_swap(m, ins)
        only(ins)
        ops = list(ins.operands)
        if m == "v_readfirstlane_b32":
            self.write_scalar(ops[0], f"int({self.source(ops[1], 'u')}[st.first_lane()])")
        elif m == "v_readlane_b32":
            self.write_scalar(ops[0], f"int({self.source(ops[1], 'u')}[{self.scalar(ops[2])} & (W - 1)])")
        elif m == "v_writelane_b32":
            self.emit(f"{self.source(ops[0], 'u')}[{self.scalar(ops[2])} & (W - 1)] = {self.scalar(ops[1])}")
        elif m == "v_permlane64_b32":
            index = self.constant(np.arange(self.wave) ^ 32)
            self.write(ops[0], "u", f"{self.source(ops[1], 'u')}[{index}]")
        elif m == "v_swap_b32":
            a, b = self.source(ops[0], "u"), self.source(ops[1], "u")
            self.emit(f"t = {a}.copy()", f"cp({a}, {b}, 'unsafe', mask)", f"cp({b}, t, 'unsafe', mask)")
        else:
            return False
        return True

    def _permlane_swap(self, m: str, ins: Instruction) -> bool:
        """The odd rows of the first trade places with the even rows of the second."""
        only(ins, _FROM_OFF)
        half = 32 if "32_" in m else 16
        a, b = (self.source(op, "u") for op in ins.operands)
        odd = self.constant(np.arange(self.wave) // half % 2 == 1)
        index = self.constant(np.arange(self.wave) ^ half)
        of_a, of_b = f"{a}[{index}]", f"{b}[{index}]"
        if "bound_ctrl" in ins.modifiers and "fi" not in ins.modifiers:  # from a lane that is off comes 0
            of_a, of_b = (f"np.where(mask[{index}], {row}, u32(0))" for row in (of_a, of_b))
        self.emit(f"t0, t1 = np.where({odd}, {of_b}, {a}), np.where({odd}, {b}, {of_a})")
        self.emit(f"cp({a}, t0, 'unsafe', mask)", f"cp({b}, t1, 'unsafe', mask)")
        return True

    def _permlane16(self, m: str, ins: Instruction) -> bool:
        only(ins, SELECT)
        # op_sel has another meaning here: DPP's fi and bound_ctrl.
        fetch, bound, *rest = [int(x) for x in re.findall(r"\d", ins.modifiers.get("op_sel", ""))] + [0] * 2
        if any(rest):
            raise ValueError("op_sel beyond fi and bound_ctrl")
        ops = ins.operands
        low, high, across = self.scalar(ops[2]), self.scalar(ops[3]), int(m == "v_permlanex16_b32")
        row = self.source(ops[1], "u")
        self.emit(f"x = st.permlane16({low}, {high}, {across})")
        if fetch:
            self.write(ops[0], "u", f"{row}[x]")
            return True
        self.emit("live = mask[x]")
        value = f"np.where(live, {row}[x], u32(0))"
        self.write(ops[0], "u", value, only=None if bound else "live")
        return True

    # Registers named by an index.

    def _moved(self, m: str, ins: Instruction) -> bool:
        only(ins, frozenset({"source", "destination"}) if m == INDEXED else frozenset())
        offset = f"S[{M0}]"
        if m == INDEXED:
            offset = f"(S[{M0}] & 255)"
            source, destination = (offset if name in ins.modifiers else "" for name in ("source", "destination"))
        elif m == "v_movrelsd_2_b32":
            source, destination = f"(S[{M0}] & 1023)", f"(S[{M0}] >> 16 & 1023)"
        elif match := re.match(r"^v_movrel(s?)(d?)_b32$", m):
            source, destination = (offset if letter else "" for letter in match.groups())
        else:
            return False
        into, given = ins.operands
        value = self._register(given, source) if source else self.source(given, "u")
        self.emit(f"x = {value}")
        if destination:
            self.emit(f"cp({self._register(into, destination)}, x, 'unsafe', mask)")
            self.emit(f"st.written['v%d' % ({vector_index(into)[1]} + {destination})] = {WORD}")
        else:
            self.emit(f"cp({self.source(into, 'u')}, x, 'unsafe', mask)")
        return True

    def _register(self, text: str, offset: str) -> str:
        found = vector_index(text)
        if found is None or found[0] != "v":
            raise ValueError(f"{text!r} by an index")
        return f"st.register({found[1]} + {offset})"

    def _index_mode(self, m: str, ins: Instruction) -> bool:
        """s_set_gpr_idx_…: the index and what it applies to are kept in m0; program.py reads the latter ahead."""
        ops = ins.operands
        if m == "s_set_gpr_idx_off":
            return True
        if m in ("s_set_gpr_idx_on", "s_set_gpr_idx_idx"):
            self.emit(f"S[{M0}] = S[{M0}] & 0xFFFFFF00 | {self.scalar(ops[0])} & 255")
        if m in ("s_set_gpr_idx_on", "s_set_gpr_idx_mode"):
            self.emit(f"S[{M0}] = S[{M0}] & 0xFFFF0FFF | {index_bits(ops[-1]) << 12}")
        return True


def index_bits(text: str) -> int:
    """gpr_idx(SRC0,DST), or a number, as bits: sources 0, 1 and 2, destination."""
    if match := re.fullmatch(r"gpr_idx\(([\w,\s]*)\)", text):
        names = [name.strip() for name in match[1].split(",") if name.strip()]
        return sum(1 << ("SRC0", "SRC1", "SRC2", "DST").index(name) for name in names)
    return int(text, 0)


def name_indexed(instructions: list[Instruction], starts: set[int]) -> list[Instruction]:
    """The same, with every v_mov_b32 to which a register index applies under a name of its own.

    `starts` are the places that control may come to from elsewhere: the index mode must be off there.
    """
    if not any(ins.mnemonic.startswith("s_set_gpr_idx") for ins in instructions):
        return instructions
    out, mode = [], None
    for at, ins in enumerate(instructions):
        m = ins.mnemonic
        if mode is not None and at in starts:
            raise ValueError(f"{ins.text!r}: registers indexed by s_set_gpr_idx_on across a branch")
        if m in ("s_set_gpr_idx_on", "s_set_gpr_idx_mode"):
            if m.endswith("on") or mode is not None:
                mode = index_bits(ins.operands[-1])
        elif m == "s_set_gpr_idx_off":
            mode = None
        elif mode is not None and (
            m.startswith(("v_", "ds_", "global_", "flat_", "buffer_")) or "m0" in ins.operands[:1]
        ):
            if m.removesuffix("_e32") != "v_mov_b32" or mode & 6:
                raise ValueError(f"{ins.text!r}: not emulated with registers indexed by s_set_gpr_idx_on")
            names = {name: "1" for name, bit in (("source", 1), ("destination", 8)) if mode & bit}
            ins = ins._replace(mnemonic=INDEXED, modifiers={**ins.modifiers, **names})
        out.append(ins)
    return out
