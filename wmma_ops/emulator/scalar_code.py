"""Code for the scalar unit's instructions."""

import re

from wmma_ops.emulator import numeric
from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.modifiers import only
from wmma_ops.emulator.operands import M0, SCC, scalar_index
from wmma_ops.emulator.scalar import COMPARE, SALU, SAVEEXEC, signed
from wmma_ops.emulator.vector import CONDITIONS
from wmma_ops.emulator.writer import Writer


def denormals_set(ins: Instruction) -> int | None:
    """The mode of float32's subnormals from an instruction on that sets it, and nothing else that is not as it was."""
    if not ins.mnemonic.startswith(("s_setreg_imm32_b32", "s_denorm_mode")):
        return None
    what, value = re.sub(r"\s", "", ins.operands[0]) if ins.operands else "", ins.operands[-1:]
    if ins.mnemonic.startswith("s_setreg_imm32_b32") and what == "hwreg(HW_REG_MODE,4,2)":
        return int(value[0], 0) & 3
    both = ins.mnemonic.startswith("s_setreg_imm32_b32") and what == "hwreg(HW_REG_MODE,4,4)"
    if (both or ins.mnemonic == "s_denorm_mode") and int(value[0], 0) >> 2 & 3 == 3:
        return int(value[0], 0) & 3
    return None


class ScalarCode(Writer):
    def _salu(self, m: str, ins: Instruction) -> None:
        if m.endswith("_f32"):
            self.keeps_denormals()
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
        self.write_scalar(destination, f"t & {mask}" if scc is None else "r", width)
        if scc is not None and index != SCC:
            self.emit(f"S[{SCC}] = q")

    def _scalar_others(self, m: str, ins: Instruction) -> bool:
        ops = ins.operands
        only(ins)
        if match := re.match(r"^s_cmp(k?)_(\w+?)_([iu])(32|64)$", m):
            _, condition, sign, width = match.groups()
            if condition not in COMPARE:
                return False
            a, b = (self.scalar(text, int(width)) for text in ops)
            if sign == "i":
                # The constant of the k form has 16 bits, which the text shows unsigned.
                b = signed(f"({b} & 0xFFFF)", 16) if _ else signed(b, int(width))
                a = signed(a, int(width))
            self.emit(f"S[{SCC}] = int({a} {COMPARE[condition]} {b})")
            return True
        if match := re.match(r"^s_cmp_(\w+)_f(16|32)$", m):
            if match.group(1) not in CONDITIONS:
                return False
            width = match.group(2)
            a, b = (f"sf{width}({self.scalar(text, int(width))})" for text in ops)
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
        if match := re.match(r"^s_movrel([sd])_b(32|64)$", m):
            wide = match.group(2) == "64"
            into, given = ops
            first, _ = scalar_index(given if match.group(1) == "s" else into)
            self.emit(f"i = st.scalar_index({first} + S[{M0}], {2 if wide else 1})")
            if match.group(1) == "s":
                self.write_scalar(into, "S[i] | S[i + 1] << 32" if wide else "S[i]", 64 if wide else 32)
            else:
                self.emit(f"x = {self.scalar(given, 64 if wide else 32)}", f"S[i] = x & {numeric.M32}")
                if wide:
                    self.emit("S[i + 1] = x >> 32")
            return True
        if m in ("s_cmov_b32", "s_cmov_b64", "s_cmovk_i32"):
            width = 64 if m.endswith("b64") else 32
            value = self.scalar(ops[1], width)
            if m == "s_cmovk_i32":
                value = f"(signed({value} & 0xFFFF, 16) & {numeric.M32})"
            self.write_scalar(ops[0], f"{value} if S[{SCC}] else {self.scalar(ops[0], width)}", width)
            return True
        if m in ("s_memtime", "s_memrealtime"):
            self.write_scalar(ops[0], "st.clock()" if m == "s_memtime" else "st.realtime()", 64)
            return True
        if m == "s_getreg_b32":
            self.write_scalar(ops[0], f"st.getreg({self.constant(ops[1])})")
            return True
        if m == "s_round_mode":
            return int(ops[0], 0) == 0  # to nearest even, as the arithmetic here does
        if m == "s_barrier_signal" and ops == ("-1",):
            self.emit("st.signal()")
            return True
        if m == "s_sethalt":
            self.emit("st.halt()")
            return True
        if m == "s_trap":
            self.emit(f"st.trap({int(ops[0], 0)})")
            return True
        if m.startswith("s_sendmsg_rtn") and "DOORBELL" in ins.text:
            self.emit("st.halt()")  # on the way to a trap handler
            return True
        if m.startswith("s_sendmsg_rtn") and "REALTIME" in ins.text:
            self.write_scalar(ops[0], "st.realtime()", 64 if m.endswith("64") else 32)
            return True
        return False
