"""Code for the scalar unit's accesses to memory, by an address or through a buffer resource."""

import re

from wmma_ops.emulator import atomics
from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.modifiers import CACHE, OFFSET, only
from wmma_ops.emulator.operands import NUMBER, scalar_index
from wmma_ops.emulator.writer import Writer

_COUNTS = {"dword": 1, "b32": 1, "dwordx2": 2, "b64": 2, "b96": 3, "dwordx4": 4, "b128": 4}
_COUNTS |= {"dwordx8": 8, "b256": 8, "dwordx16": 16, "b512": 16}
_SMALL = ("u8", "i8", "u16", "i16")
_ACCESS = re.compile(r"^s_(buffer_)?(load|store|atomic)_(\w+)$")


class ScalarMemoryCode(Writer):
    def _scalar_memory(self, m: str, ins: Instruction) -> bool:
        buffer, way, kind = _ACCESS.match(m).groups()
        only(ins, CACHE, OFFSET)
        data, base, *offsets = ins.operands
        index, given = scalar_index(data)
        offset = self._scalar_offset(offsets, ins)
        start, count = scalar_index(base)
        if buffer and count != 4:
            raise ValueError(f"{base!r}: a buffer resource has four registers")
        place = f"S[{start}:{start + 4}], {offset}" if buffer else f"{self.scalar(base, 64)} + {offset}"
        memory = "st.buffers" if buffer else "st.memory"
        if way == "atomic":
            operation, wide = atomics.named(kind)
            if operation is None or "_f" in kind:
                return False
            result = f"{memory}.scalar_atomic({place}, {operation!r}, S[{index}:{index + given}], {wide})"
            self.emit(f"S[{index}:{index + (2 if wide else 1)}] = {result}" if "glc" in ins.modifiers else result)
        elif kind in _COUNTS:
            words = f"S[{index}:{index + _COUNTS[kind]}]"
            if way == "load":
                self.emit(f"{words} = {memory}.scalar_words({place}, {_COUNTS[kind]})")
            else:
                self.emit(f"{memory}.scalar_store({place}, {words})")
        elif way == "load" and kind in _SMALL:
            self.emit(f"S[{index}] = {memory}.scalar_small({place}, {kind!r})")
        else:
            return False
        return True

    def _scalar_offset(self, ops, ins: Instruction) -> str:
        parts = []
        for op in ops:
            for word in op.split():
                if word.startswith("offset:"):
                    word = word[7:]
                if scalar_index(word) is not None and word != "null":
                    parts.append(self.scalar(word))
                elif NUMBER.match(word):
                    parts.append(str(int(word, 0)))
        if "offset" in ins.modifiers:
            parts.append(str(int(ins.modifiers["offset"], 0)))
        return " + ".join(parts) or "0"
