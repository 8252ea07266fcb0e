"""Code for accesses to global, shared and scratch memory."""

import re

import numpy as np

from wmma_ops.emulator import atomics, numeric
from wmma_ops.emulator.assembly import Instruction
from wmma_ops.emulator.dataflow import returns_old
from wmma_ops.emulator.memory import size_of
from wmma_ops.emulator.modifiers import CACHE, OFFSET, OFFSETS, only
from wmma_ops.emulator.operands import scalar_index, vector_index
from wmma_ops.emulator.writer import Writer

MEMORY_KINDS = {
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


def _swizzle(text: str, pattern: str, wave: int) -> np.ndarray:
    """Byte addresses of the source lanes of ds_swizzle."""
    lanes = np.arange(wave)
    if match := re.search(r'swizzle\((\w+),\s*"?([^),"]*)"?(?:,\s*([^)]*))?\)', text):
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
        if mode == "ROTATE":
            back, count = int(match.group(2)), int(match.group(3))
            return _swizzle("", str(0xC000 | back << 10 | count << 5), wave)
        if mode == "FFT":
            return _swizzle("", str(0xE000 | int(match.group(2))), wave)
        raise ValueError(f"swizzle {mode}")
    value = int(pattern, 0)
    if value >= 0xC000:
        kept = value & 31  # bits of the lane's number that stay
        if value >= 0xE000:
            moved = np.array([int(f"{lane % 32:05b}"[::-1], 2) for lane in lanes]) >> kept.bit_count()
        else:
            moved = (lanes + (-1 if value & 0x400 else 1) * (value >> 5 & 31)) & 31 & ~kept
        return ((lanes // 32 * 32 + (moved | lanes & kept)) * 4).astype(np.uint32)
    if value & 0x8000:
        return ((lanes // 4 * 4 + (value >> (2 * (lanes % 4)) & 3)) * 4).astype(np.uint32)
    index = ((lanes % 32 & (value & 31)) | (value >> 5 & 31)) ^ (value >> 10 & 31)
    return ((lanes // 32 * 32 + index) * 4).astype(np.uint32)


_ACQUIRES = re.compile(r"buffer_gl1_inv|buffer_wbinvl1|buffer_inv .*sc1|global_(wb)?inv .*SCOPE_(DEV|SYS)")


def passes_by_caches(ins: Instruction) -> bool:
    """As atomic and volatile loads do, and such stores on some targets. (What is not to stay in them has slc.)"""
    given = ins.modifiers
    return ("glc" in given and "slc" not in given) or any(name in given for name in ("sc0", "sc1", "scope"))


def acquires(ins: Instruction) -> bool:
    """Whether loads that follow see what other blocks have stored: nearer caches forget what they hold."""
    return bool(_ACQUIRES.match(ins.text.strip()))


class MemoryCode(Writer):
    def _global(self, m: str, ins: Instruction) -> bool:
        space, _, operation = m.partition("_")
        only(ins, CACHE, OFFSET)
        ops = list(ins.operands)
        offset = int(ins.modifiers.get("offset", "0"), 0)
        if operation.startswith("atomic_"):
            return self._global_atomic(space, operation[7:], ops, offset, ins)
        if (space, operation) == ("global", "load_tr_b128"):
            rows = self._rows(ops[0], "b128")
            read = f"st.memory.load({self._address(space, ops[1:], offset)}, {rows}, 'b128', full, mask)"
            return self._transposed(read, rows, 16, 8)
        match = re.match(r"^(load|store)_(\w+)$", operation)
        if not match:
            return False
        way, kind = match.groups()
        kind = MEMORY_KINDS.get(kind)
        if kind is None:
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
        uses = f", {self._loaded(data)}" if (space, way) == ("flat", "load") else ""
        atomic = ", atomic=True" if space != "scratch" and passes_by_caches(ins) else ""
        self.emit(f"{target}.{way}({address}, {rows}, {kind!r}, full, mask{uses}{atomic})")
        return True

    def _loaded(self, text: str) -> str:
        """What tells whether bytes of a loaded operand are used."""
        prefix, index, count = vector_index(text)
        return self.row(prefix, index, f"loaded{count}")

    def _rows(self, text: str, kind: str) -> str:
        if vector_index(text) is None:
            raise ValueError(f"{text!r}: not a whole register")
        prefix, index, _ = vector_index(text)
        count = int(kind[1:]) // 32 if kind.startswith("b") else 1
        return "(" + ", ".join(self.row(prefix, index + i, "u") for i in range(count)) + ",)"

    def _every_row(self, text: str) -> str:
        """Of all registers of an operand."""
        prefix, index, count = vector_index(text)
        return "(" + ", ".join(self.row(prefix, index + i, "u") for i in range(count)) + ",)"

    def _address(self, space: str, ops, offset: int) -> str:
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
        operation, wide = atomics.named(name)
        if operation is None:
            return False
        result = ops.pop(0) if returns_old(ins) else None
        address = self._address(space, [ops[0], *ops[2:]], offset)
        rows = self._every_row(ops[1])
        out = "None" if result is None else self._every_row(result)
        target = "st.flat" if space == "flat" else "st.memory"
        self.emit(f"{target}.atomic({address}, {operation!r}, {rows}, {out}, {wide}, mask)")
        return True

    def _transposed(self, read: str, rows: str, bits: int, columns: int) -> bool:
        """A read after which groups of `columns` lanes exchange elements: what they read, one lane after the other, is a
        matrix of so many columns, of which each lane gets one."""
        self.emit(f"if full: {read}; exchanged({rows}, {bits}, {columns})")
        self.emit("else: st.takes_all_lanes(mask, 'a transposed read, after which lanes exchange what they read')")
        return True

    def _within(self, what: str, address: str, offsets: tuple[int, ...], size: int) -> None:
        """Checks that an access lies in a variable that its place in the source means, where that is known."""
        if self.meant:
            self.emit(f"st.lds.within(meant, {what!r}, {address}, {offsets}, {size}, mask)")

    def _shared(self, m: str, ins: Instruction) -> bool:
        only(ins, OFFSETS)
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
        if match := re.match(r"^read_b(64|96)_tr_b(4|6|8|16)$", name):
            size, bits = map(int, match.groups())
            rows, address = self._rows(ops[0], f"b{size}"), self.source(ops[1], "u")
            self._within("read", address, (offset,), size // 8)
            align = {64: 8, 96: 16}[size]
            self.emit(f"st.lds.aligned({address}, {offset}, {align}, mask)")
            return self._transposed(f"st.lds.load({address}, {offset}, {rows}, 'b{size}', full, mask)", rows, bits, 16)
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
            kind = MEMORY_KINDS.get(kind)
            if kind is None:
                return False
            if not two:
                rows = self._rows(ops[0] if way == "load" else ops[1], kind)
                address = self.source(ops[1] if way == "load" else ops[0], "u")
                self._within("read" if way == "load" else "write", address, (offset,), size_of(kind))
                uses = f", {self._loaded(ops[0])}" if way == "load" else ""
                self.emit(f"st.lds.{way}({address}, {offset}, {rows}, {kind!r}, full, mask{uses})")
                return True
            size = int(kind[1:]) // 8
            step = size * (64 if "64" in two else 1)
            offsets = tuple(int(ins.modifiers.get(f"offset{i}", "0"), 0) * step for i in (0, 1))
            words = size // 4
            if way == "load":
                prefix, index, _ = vector_index(ops[0])
                address = self.source(ops[1], "u")
                self._within("read", address, offsets, size)
                # The address may be one of the results.
                self.emit(f"x = {address}.copy()")
                for i in (0, 1):
                    first = index + words * i
                    rows = "(" + ", ".join(self.row(prefix, first + j, "u") for j in range(words)) + ",)"
                    uses = self._loaded(f"{prefix}[{first}:{first + words - 1}]")
                    self.emit(f"st.lds.load(x, {offsets[i]}, {rows}, {kind!r}, full, mask, {uses})")
            else:
                address = self.source(ops[0], "u")
                self._within("write", address, offsets, size)
                for i in (0, 1):
                    rows = self._rows(ops[1 + i], kind)
                    self.emit(f"st.lds.store({address}, {offsets[i]}, {rows}, {kind!r}, full, mask)")
            return True
        returns = "_rtn" in name
        operation, wide = atomics.named(name.replace("_rtn", ""))
        if operation is None:
            return False
        result = ops.pop(0) if returns else None
        address = self.source(ops[0], "u")
        given = [vector_index(text) for text in ops[1:]]
        # cmpst has the comparand first, cmpstore the new value.
        if operation == "cmpswap" and "cmpst_" in name:
            given.reverse()
        words = 2 if wide else 1
        names = "(" + ", ".join(self.row(p, i + j, "u") for p, i, _ in given for j in range(words)) + ",)"
        out = "None" if result is None else self._every_row(result)
        self._within("atomic", address, (offset,), 4 * words)
        self.emit(f"st.lds.atomic({address}, {offset}, {operation!r}, {names}, {out}, {wide}, mask)")
        return True
