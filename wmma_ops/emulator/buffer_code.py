"""Code for accesses through a buffer resource, and for loads straight to shared memory."""

import re

from wmma_ops.emulator import atomics
from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.dataflow import returns_old
from wmma_ops.emulator.memory import size_of
from wmma_ops.emulator.memory_code import MEMORY_KINDS, MemoryCode, passes_by_caches
from wmma_ops.emulator.modifiers import BUFFER, CACHE, OFFSET, TO_SHARED, only
from wmma_ops.emulator.operands import M0, scalar_index, vector_index


class BufferCode(MemoryCode):
    def _buffer(self, m: str, ins: Instruction) -> bool:
        only(ins, CACHE, OFFSET, BUFFER)
        way, _, name = m.removeprefix("buffer_").partition("_")
        if way == "atomic":
            operation, wide = atomics.named(name)
            if operation is None:
                return False
            rows = self._every_row(ins.operands[0])
            out = rows if returns_old(ins) else "None"
            self.emit(f"st.buffers.atomic({self._buffer_place(ins, 1)}, {operation!r}, {rows}, {out}, {wide}, mask)")
            return True
        kind = MEMORY_KINDS.get(name)
        if way not in ("load", "store") or kind is None:
            return False
        rows = self._rows(ins.operands[0], kind)
        atomic = passes_by_caches(ins)
        self.emit(f"st.buffers.{way}({self._buffer_place(ins, 1)}, {rows}, {kind!r}, full, mask, {atomic})")
        return True

    def _buffer_place(self, ins: Instruction, first: int) -> str:
        """The resource's words, each lane's index and offset, and the scalar offset: of the operands from `first` on."""
        address, resource, scalar = ins.operands[first:]
        start, count = scalar_index(resource)
        if count != 4:
            raise ValueError(f"{resource!r}: a buffer resource has four registers")
        distance = int(ins.modifiers.get("offset", "0"), 0)
        offset = f"u32({distance})"
        by_index, by_offset = "idxen" in ins.modifiers, "offen" in ins.modifiers
        wanted = by_index + by_offset
        given = vector_index(address)
        if (given[2] if given else 0) != wanted or (given is None and address != "off"):
            raise ValueError(f"{address!r}: the address has {wanted} registers, as idxen and offen say")
        index = "None"
        if given:
            prefix, number, _ = given
            if by_index:
                index = self.row(prefix, number, "u")
            if by_offset:
                row = self.row(prefix, number + by_index, "u")
                offset = f"{row} + {offset}" if distance else row
        return f"S[{start}:{start + 4}], {index}, {offset}, {self.scalar(scalar)}"

    def _to_shared(self, m: str, ins: Instruction) -> bool:
        """Each lane's words lie behind those of the lane before it, from M0 and the instruction's offset on."""
        only(ins, CACHE, OFFSET, BUFFER, TO_SHARED)
        match = re.match(r"^(buffer|global)_load_(?:lds_)?(\w+)$", m)
        kind = MEMORY_KINDS.get(match.group(2)) if match else None
        if kind not in ("u8", "i8", "u16", "i16", "b32", "b96", "b128"):
            return False
        if len(ins.operands) != (3 if match.group(1) == "buffer" else 2):
            raise ValueError("with lds a load names no register for what it loads")
        if kind in ("b96", "b128") and self.target != "gfx950":
            raise ValueError("12 and 16 bytes a lane go straight to shared memory on gfx950 alone")
        size, offset = max(size_of(kind), 4), int(ins.modifiers.get("offset", "0"), 0)
        self.emit(f"x = st.to_shared(S[{M0}] + {offset}, {size})", f"t = tuple(np.zeros(({size // 4}, W), u32))")
        self._within("write", "x", (0,), size)
        if match.group(1) == "buffer":
            self.emit(f"st.buffers.load({self._buffer_place(ins, 0)}, t, {kind!r}, full, mask)")
        else:
            self.emit(f"st.memory.load({self._address('global', list(ins.operands), offset)}, t, {kind!r}, full, mask)")
        self.emit("st.lds.bring(x, t, full, mask)")
        return True
