"""Matrix instructions: which element of A, B and D each lane holds, and the product.

Written from the ISA's own description of the lanes, apart from wmma_ops/hardware/layouts.py, so that each checks the other.
Element e of a lane counts through its registers from the low bits up.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wmma_ops.emulator import numeric

_TYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "bf16_1k": "bfloat16",
    "f32": "float32",
    "xf32": "xfloat32",
    "f64": "float64",
    "i8": "int8",
    "iu8": "int8",
    "iu4": "int4",
    "fp8": "fp8",
    "bf8": "bf8",
}
_BITS = {"float16": 16, "bfloat16": 16, "float32": 32, "xfloat32": 32, "float64": 64, "int8": 8, "uint8": 8}
_BITS |= {"int4": 4, "uint4": 4, "fp8": 8, "bf8": 8, "fp8_fnuz": 8, "bf8_fnuz": 8}


@dataclass(frozen=True)
class Shape:
    family: str  # cdna, rdna3, rdna4
    m: int
    n: int
    k: int
    blocks: int
    a: str
    b: str
    d: str
    high: bool = False  # rdna3's 16-bit results in the high halves


def describe(mnemonic: str, target: str, modifiers: dict[str, str]) -> Shape | None:
    if any(int(modifiers.get(name, "0"), 0) for name in ("cbsz", "abid", "blgp")):
        return None
    if mnemonic.startswith("v_mfma") and {"neg_lo", "neg_hi", "op_sel", "op_sel_hi", "clamp"} & set(modifiers):
        return None
    fnuz = "_fnuz" if target == "gfx942" else ""
    if match := re.match(r"^v_mfma_(f32|f64|i32)_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?([a-z]\w*)$", mnemonic):
        d, m, n, k, blocks, types = match.groups()
        m, n, k = int(m), int(n), int(k)
        parts = re.match(r"^(fp8|bf8)_(fp8|bf8)$", types)
        a, b = (parts.groups()) if parts else (types, types)
        a, b = _TYPES.get(a), _TYPES.get(b)
        if a is None or b is None:
            return None
        if a in ("fp8", "bf8"):
            a, b = a + fnuz, b + fnuz
        # Older mnemonics leave the number of blocks out; it follows from the K that one block takes.
        single = {"float32": 1, "xfloat32": 2, "float16": 4, "bfloat16": 4, "int8": 4, "float64": 1}
        groups = 64 // m
        if a == "float64" and m == 4:
            blocks = 4
        if blocks is None:
            least = 2 if types == "bf16" and "_" not in mnemonic.split("x")[-1] else single.get(a, 8)
            blocks = groups if k <= least else 1
        return Shape("cdna", m, n, k, int(blocks), a, b, {"f32": "float32", "f64": "float64", "i32": "int32"}[d])
    if match := re.match(r"^v_wmma_(f32|f16|bf16|i32)_16x16x(16|32)_(\w+)$", mnemonic):
        d, k, types = match.groups()
        family = "rdna4" if target.startswith("gfx12") else "rdna3"
        parts = re.match(r"^(fp8|bf8)_(fp8|bf8)$", types)
        a, b = parts.groups() if parts else (types, types)
        a, b = _TYPES.get(a), _TYPES.get(b)
        if a is None or b is None:
            return None
        negated = [int(x) for x in re.findall(r"\d", modifiers.get("neg_lo", "[0,0,0]"))]
        if a in ("int8", "int4"):  # neg_lo says which operands are signed
            a = a if negated[0] else "u" + a
            b = b if negated[1] else "u" + b
            if "clamp" in modifiers or negated[2]:
                return None
        elif any(negated):
            return None
        # On rdna3, narrow results lie in one half of each register.
        high = "1" in modifiers.get("op_sel", "")
        if high and (family != "rdna3" or d not in ("f16", "bf16") or modifiers["op_sel"] != "[0,0,1]"):
            return None
        if {"neg_hi", "op_sel_hi"} & set(modifiers):
            return None
        d = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i32": "int32"}[d]
        return Shape(family, 16, 16, int(k), 1, a, b, d, high)
    return None


def operand_position(shape: Shape, lane: int, element: int, count: int) -> tuple[int, int, int]:
    """(row of A or column of B, k, block)."""
    if shape.family == "cdna":
        group = lane // shape.m
        if shape.a == "float64" and shape.m == 4:
            return lane % 4, lane // 16, group % 4
        if shape.blocks > 1:
            return lane % shape.m, element, group
        return lane % shape.m, count * group + element, 0
    if shape.family == "rdna3":
        return lane % 16, element, 0
    return lane % 16, count * (lane // 16) + element, 0


def result_position(shape: Shape, lane: int, element: int) -> tuple[int, int, int]:
    """(row, column, block) of D."""
    if shape.family == "rdna3":
        return 2 * element + lane // 16, lane % 16, 0
    if shape.family == "rdna4":
        return 8 * (lane // 16) + element, lane % 16, 0
    n = shape.n
    if shape.d == "float64":
        return (lane // 16, lane % 4, lane // 4 % 4) if n == 4 else (4 * element + lane // 16, lane % 16, 0)
    if n == 4:
        return element, lane % 4, lane // 4
    per_block = n * n // 64
    block, e = divmod(element, per_block)
    return e // 4 * (256 // n) + 4 * (lane // n) + e % 4, lane % n, block


def _elements(registers: np.ndarray, kind: str) -> np.ndarray:
    """[registers, lanes] as values [lanes, elements], exact in float32 (float64, for 64 bits)."""
    count, lanes = registers.shape
    if kind == "float64":
        wide = numeric.pair(registers[0::2], registers[1::2]).view(np.float64)
        return wide.T
    if kind in ("int4", "uint4"):
        nibbles = (registers[:, :, None] >> np.arange(0, 32, 4, dtype=np.uint32)) & np.uint32(15)
        values = nibbles.astype(np.int32)
        if kind == "int4":
            values = (values ^ 8) - 8
    else:
        view = {"float16": np.float16, "bfloat16": np.uint16, "float32": np.float32, "xfloat32": np.float32}
        view |= {"int8": np.int8, "uint8": np.uint8}
        values = registers.view(view.get(kind, np.uint8)).reshape(count, lanes, -1)
        if kind == "bfloat16":
            values = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        elif kind == "xfloat32":  # the unit takes 10 bits of mantissa
            values = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        elif kind in numeric.FP8:
            values = numeric.FP8[kind][values]
    return values.transpose(1, 0, 2).reshape(lanes, -1)


@functools.cache
def make(shape: Shape, lanes: int, registers_d: int, registers_a: int, registers_b: int) -> Callable[..., None]:
    """The instruction on register rows d, a, b and c of these numbers; c may be a constant."""
    integer = shape.d == "int32"
    work = np.float64 if integer or shape.d == "float64" else np.float32

    def gather(kind, registers):
        count = registers * 32 // _BITS[kind]
        index = np.zeros((shape.blocks, shape.m, shape.k), dtype=np.intp)
        found = np.zeros(index.shape, dtype=bool)
        for lane in range(lanes):
            for element in range(count):
                row, k, block = operand_position(shape, lane, element, count)
                if shape.family != "rdna3" or lane < 16:
                    index[block, row, k] = lane * count + element
                    found[block, row, k] = True
        if not found.all():
            raise ValueError(f"operands of {registers} registers do not fill {shape}")
        return index

    index_a, index_b = gather(shape.a, registers_a), gather(shape.b, registers_b)
    narrow = shape.d in ("float16", "bfloat16")
    per_register = 2 if narrow and shape.family == "rdna4" else 1
    count = registers_d * per_register // (2 if shape.d == "float64" else 1)
    position = np.array([[result_position(shape, lane, e) for lane in range(lanes)] for e in range(count)])
    rows, columns, blocks = position[..., 0], position[..., 1], position[..., 2]

    def read_c(c):
        if c.ndim == 0:
            return c.astype(work)
        if shape.d == "float64":
            return numeric.pair(c[0::2], c[1::2]).view(np.float64)
        if narrow:
            halves = c.view(np.uint16).reshape(c.shape[0], lanes, 2)
            if shape.family == "rdna4":
                halves = halves.transpose(0, 2, 1).reshape(-1, lanes)
            else:
                halves = halves[:, :, int(shape.high)]
            if shape.d == "bfloat16":
                return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)
            return np.ascontiguousarray(halves).view(np.float16).astype(np.float32)
        return c.view(np.int32).astype(np.float64) if integer else c.view(np.float32)

    def write_d(d, values):
        if shape.d == "float64":
            raw = np.ascontiguousarray(values).view(np.uint64)
            d[0::2], d[1::2] = raw & np.uint64(0xFFFFFFFF), raw >> np.uint64(32)
        elif integer:
            d[:] = (values.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)
        elif narrow:
            if shape.d == "float16":
                raw = values.astype(np.float16).view(np.uint16)
            else:
                raw = numeric.bf16_round(values).astype(np.uint16)
            halves = d.view(np.uint16).reshape(d.shape[0], lanes, 2)
            if shape.family == "rdna4":
                halves[:] = raw.reshape(d.shape[0], 2, lanes).transpose(0, 2, 1)
            else:
                halves[:, :, int(shape.high)] = raw
        else:
            d.view(np.float32)[:] = values

    replicated = shape.family == "rdna3"

    def run(d, a, b, c):
        if replicated and not (np.array_equal(a[:, :16], a[:, 16:]) and np.array_equal(b[:, :16], b[:, 16:])):
            raise ValueError("A and B must be the same in lanes 0–15 and 16–31")
        left = _elements(a, shape.a).ravel()[index_a].astype(work)
        right = _elements(b, shape.b).ravel()[index_b].astype(work)
        product = np.matmul(left, right.transpose(0, 2, 1))
        write_d(d, product[blocks, rows, columns] + read_c(c))

    return run
