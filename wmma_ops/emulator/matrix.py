"""Matrix instructions: which element of A, B and D each lane holds, and the product.

Written from the ISA's own description of the lanes, apart from wmma_ops/hardware/layouts.py, so that each checks the other.
Element e of a lane counts through its registers from the low bits up.

Of a sparse product A has two of every four elements along k, packed; a register tells for each which of the four it is.
Of a scaled one each 32 elements along k of a row of A, or column of B, have a common factor 2^(byte − 127).
"""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wmma_ops.emulator import narrow, numeric

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
_BITS |= {"int4": 4, "uint4": 4} | {kind: form.bits for kind, form in narrow.FORMATS.items()}
_FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")  # of A by cbsz, of B by blgp, where the mnemonic says f8f6f4
_SCALED = 32  # elements of one scale
_RESULTS = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i32": "int32"}


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
    formats: bool = False  # A's and B's types were chosen by cbsz and blgp
    scales: tuple[int, int] | None = None  # which byte of their registers holds A's and B's scales
    indices: int | None = None  # the first bit of the indices of a sparse A
    block: int | None = None  # the block of A that all products take
    lanes: int = 0  # blgp: which lanes B's come from
    negated: tuple[bool, bool, bool] = (False, False, False)  # A, B, C


def describe(mnemonic: str, target: str, modifiers: dict[str, str]) -> Shape | None:
    if re.match(r"^v_s?mfma", mnemonic):
        if "clamp" in modifiers:
            raise ValueError("clamp is not emulated on this instruction")
        for pattern, describe_form in (
            (r"^v_mfma_(scale_)?f32_(\d+)x(\d+)x(\d+)_f8f6f4$", _of_formats),
            (r"^v_smfmac_(f32|i32)_(\d+)x(\d+)x(\d+)_(\w+)$", _sparse),
            (r"^v_mfma_(f32|f64|i32)_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?([a-z]\w*)$", _mfma),
        ):
            if match := re.match(pattern, mnemonic):
                return describe_form(target, modifiers, *match.groups())
        return None
    if any(_number(modifiers, name) for name in ("cbsz", "abid", "blgp")):
        return None
    return _wmma(mnemonic, target, modifiers)


def _number(modifiers: dict[str, str], name: str) -> int:
    return int(modifiers.get(name, "0"), 0)


def _without(modifiers: dict[str, str], *names: str) -> None:
    if found := sorted(set(names) & set(modifiers)):
        raise ValueError(f"{', '.join(found)}: not emulated on this instruction")


def _operand_types(types: str, target: str) -> tuple[str | None, str | None]:
    parts = re.match(r"^(fp8|bf8)_(fp8|bf8)$", types)
    fnuz = "_fnuz" if parts and target == "gfx942" else ""
    a, b = (_TYPES.get(name) for name in (parts.groups() if parts else (types, types)))
    return (a + fnuz, b + fnuz) if a and b else (None, None)


def _bits(modifiers: dict[str, str], name: str) -> list[int]:
    return [*map(int, re.findall(r"\d", modifiers.get(name, ""))), 0, 0, 0][:3]


def _of_formats(target: str, modifiers: dict[str, str], scaled: str | None, m: str, n: str, k: str) -> Shape | None:
    _without(modifiers, "neg_lo", "neg_hi", "neg", "abid", *(() if scaled else ("op_sel", "op_sel_hi")))
    a, b = _number(modifiers, "cbsz"), _number(modifiers, "blgp")
    if max(a, b) >= len(_FORMATS):
        raise ValueError(f"cbsz:{a} blgp:{b}: the formats are 0 to {len(_FORMATS) - 1}: {', '.join(_FORMATS)}")
    low, high = _bits(modifiers, "op_sel"), _bits(modifiers, "op_sel_hi")
    scales = (low[0] | high[0] << 1, low[1] | high[1] << 1) if scaled else None
    kinds = _FORMATS[a], _FORMATS[b]
    return Shape("cdna", int(m), int(n), int(k), 1, *kinds, "float32", formats=True, scales=scales)


def _sparse(target: str, modifiers: dict[str, str], d: str, m: str, n: str, k: str, types: str) -> Shape | None:
    _without(modifiers, "neg_lo", "neg_hi", "neg", "blgp", "op_sel", "op_sel_hi")
    a, b = _operand_types(types, target)
    if a is None:
        return None
    # gfx950's forms of twice the K keep their halves apart in B; no public page says how A and its indices lie then.
    if int(m) * int(k) != {16: 512, 8: 1024}[_BITS[a]]:
        return None
    width = 8 if _BITS[a] == 16 else 16  # of a set of indices
    which = _number(modifiers, "abid") % (32 // width) if _number(modifiers, "cbsz") == 0 else 0
    return Shape("cdna", int(m), int(n), int(k), 1, a, b, _RESULTS[d], indices=width * which)


def _mfma(target: str, modifiers: dict[str, str], d: str, m: str, n: str, k: str, blocks: str | None, types: str):
    _without(modifiers, "neg_lo", "neg_hi", "op_sel", "op_sel_hi")
    a, b = _operand_types(types, target)
    if a is None:
        return None
    m, n, k = int(m), int(n), int(k)
    # Older mnemonics leave the number of blocks out; it follows from the K that one block takes.
    single = {"float32": 1, "xfloat32": 2, "float16": 4, "bfloat16": 4, "int8": 4, "float64": 1}
    if a == "float64" and m == 4:
        blocks = 4
    if blocks is None:
        least = 2 if types == "bf16" and target in ("gfx908", "gfx90a") else single.get(a, 8)
        blocks = 64 // m if k <= least else 1
    cbsz, abid, lanes = (_number(modifiers, name) for name in ("cbsz", "abid", "blgp"))
    newer = target in ("gfx942", "gfx950")
    negated = tuple(map(bool, _bits(modifiers, "neg")))
    if any(negated) and not (a == "float64" and newer):
        raise ValueError("neg stands on products of float64, from gfx942 on")
    if lanes and (a == "float64" or (newer and int(blocks) == 1 and a != "float32")):
        raise ValueError("blgp: the hardware does not heed it on this instruction")
    if (cbsz or abid) and (a == "float64" or int(blocks) == 1 or abid >> cbsz):
        raise ValueError(f"cbsz:{cbsz} abid:{abid} of {blocks} blocks")
    if cbsz and 1 << cbsz != int(blocks):  # AMD's ISA document and its calculator say different things here
        raise ValueError(f"cbsz:{cbsz} of {blocks} blocks: only one block for all is emulated")
    block = abid if cbsz else None
    return Shape("cdna", m, n, k, int(blocks), a, b, _RESULTS[d], block=block, lanes=lanes, negated=negated)


def _wmma(mnemonic: str, target: str, modifiers: dict[str, str]) -> Shape | None:
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
        return Shape(family, 16, 16, int(k), 1, a, b, _RESULTS[d], high)
    return None


def operand_position(shape: Shape, lane: int, element: int, count: int, run: int) -> tuple[int, int, int]:
    """(row of A or column of B, k, block), where `run` elements of a lane follow each other along k."""
    if shape.family == "cdna":
        group = lane // shape.m
        if shape.a == "float64" and shape.m == 4:
            return lane % 4, lane // 16, group % 4
        if shape.blocks > 1:
            return lane % shape.m, element, group
        return lane % shape.m, run * (64 // shape.m * (element // run) + group) + element % run, 0
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


_VIEWS = {"float64": np.uint64, "float16": np.float16, "bfloat16": np.uint16, "float32": np.float32, "int8": np.int8}
_VIEWS["xfloat32"] = np.float32


def _elements(registers: np.ndarray, kind: str, places: np.ndarray) -> np.ndarray:
    """The values, exact in float32 (float64, for 64 bits), at places among [registers, lanes, those of a word] or, where
    they do not lie so, [lanes, elements]."""
    if kind == "float64":
        return numeric.pair(registers[0::2], registers[1::2]).view(np.float64).take(places)
    if kind in ("fp6", "bf6", "fp4"):
        return narrow.VALUES[kind][narrow.unpacked(registers, _BITS[kind])].take(places)
    if kind in ("int4", "uint4"):
        nibbles = (registers[:, :, None] >> np.arange(0, 32, 4, dtype=np.uint32)) & np.uint32(15)
        values = nibbles.astype(np.int32).take(places)
        return (values ^ 8) - 8 if kind == "int4" else values
    values = registers.view(_VIEWS.get(kind, np.uint8)).take(places)
    if kind == "bfloat16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind == "xfloat32":  # the unit takes 10 bits of mantissa
        return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return narrow.VALUES[kind].take(values) if kind in narrow.VALUES else values


def _places(kind: str, lanes: int, registers: int, index: np.ndarray) -> np.ndarray:
    """Where `_elements` finds what is at these places among [lanes, elements]."""
    if kind in ("fp6", "bf6", "fp4"):
        return index
    lane, element = np.divmod(index, registers * 32 // _BITS[kind])
    of_word = max(32 // _BITS[kind], 1)
    register, part = np.divmod(element, of_word)
    return (register * lanes + lane) * of_word + part


_SOURCE_LANES = {  # of B's, by blgp
    0: lambda lane: lane,
    1: lambda lane: lane % 32,
    2: lambda lane: lane % 32 + 32,
    3: lambda lane: (lane + 16) % 64,
    4: lambda lane: lane % 16,
    5: lambda lane: lane % 16 + 16,
    6: lambda lane: lane % 16 + 32,
    7: lambda lane: lane % 16 + 48,
}


def _sources(shape: Shape, lanes: int, kind: str, registers: int, depth: int, blgp: int = 0) -> np.ndarray:
    """[block, row of A or column of B, k]: where the operand's element is among [lanes, elements]."""
    count = registers * 32 // _BITS[kind]
    run = 16 if shape.formats and _BITS[kind] == 8 else count
    index = np.zeros((shape.blocks, shape.m, depth), dtype=np.intp)
    found = np.zeros(index.shape, dtype=bool)
    for lane in range(lanes):
        for element in range(count):
            row, k, block = operand_position(shape, lane, element, count, run)
            if shape.family != "rdna3" or lane < 16:
                index[block, row, k] = _SOURCE_LANES[blgp](lane) * count + element
                found[block, row, k] = True
    if not found.all():
        raise ValueError(f"operands of {registers} registers do not fill {shape}")
    return index


def _spread(shape: Shape, index: np.ndarray, registers: int) -> Callable[..., np.ndarray]:
    """Of a sparse A: a function from its packed values [block, row, k] and the indices' register to all values."""
    count = registers * 32 // _BITS[shape.a]
    lane, element = np.divmod(index, count)
    shift = (shape.indices + 2 * element).astype(np.uint32)
    first = np.arange(shape.k // 2) // 2 * 4

    def run(values, indices):
        which = (indices[lane] >> shift & np.uint32(3)).astype(np.intp)
        if (which[..., 0::2] >= which[..., 1::2]).any():
            raise ValueError("a sparse operand's indices: of each two the first must be the lower")
        out = np.zeros((shape.blocks, shape.m, shape.k), values.dtype)
        np.put_along_axis(out, first + which, values, axis=2)
        return out

    return run


def _factors(shape: Shape, register: np.ndarray, byte: int) -> np.ndarray:
    """[row of A or column of B, k] from a register that has the scales of one row after the other."""
    scales = narrow.power(register >> np.uint32(8 * byte) & np.uint32(255))
    return scales.reshape(-1, shape.m).T.repeat(_SCALED, axis=1)


@functools.cache
def make(shape: Shape, lanes: int, registers_d: int, registers_a: int, registers_b: int) -> Callable[..., None]:
    """The instruction on register rows d, a, b and c of these numbers, and those of two scales, or of a sparse A's
    indices; c may be a constant."""
    integer = shape.d == "int32"
    work = np.float64 if integer or shape.formats or shape.d == "float64" else np.float32

    index_a = _sources(shape, lanes, shape.a, registers_a, shape.k if shape.indices is None else shape.k // 2)
    index_b = _sources(shape, lanes, shape.b, registers_b, shape.k, shape.lanes)
    if shape.block is not None:
        index_a = index_a[[shape.block] * shape.blocks]
    places_a, places_b = (
        _places(kind, lanes, registers, index)
        for kind, registers, index in ((shape.a, registers_a, index_a), (shape.b, registers_b, index_b))
    )
    spread = _spread(shape, index_a, registers_a) if shape.indices is not None else None
    sign_a, sign_b, sign_c = (-1 if negative else 1 for negative in shape.negated)
    negated = any(shape.negated)
    halved = shape.d in ("float16", "bfloat16")
    per_register = 2 if halved and shape.family == "rdna4" else 1
    count = registers_d * per_register // (2 if shape.d == "float64" else 1)
    position = np.array([[result_position(shape, lane, e) for lane in range(lanes)] for e in range(count)])
    rows, columns, blocks = position[..., 0], position[..., 1], position[..., 2]
    places_d = (blocks * shape.m + rows) * shape.n + columns

    def read_c(c):
        if c.ndim == 0:
            return c.astype(work)
        if shape.d == "float64":
            return numeric.pair(c[0::2], c[1::2]).view(np.float64)
        if halved:
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
        elif halved:
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

    def run(d, a, b, c, *more):
        if replicated and any(np.count_nonzero(x[:, :16] != x[:, 16:]) for x in (a, b)):
            raise ValueError("A and B must be the same in lanes 0–15 and 16–31")
        left = _elements(a, shape.a, places_a).astype(work, copy=False)
        right = _elements(b, shape.b, places_b).astype(work, copy=False)
        if spread:
            left = spread(left, *more)
        elif shape.scales:
            left, right = (
                x * _factors(shape, row, byte) for x, row, byte in zip((left, right), more, shape.scales, strict=True)
            )
        product = np.matmul(left, right.transpose(0, 2, 1)).take(places_d)
        if negated:
            write_d(d, sign_a * sign_b * product + sign_c * read_c(c))
        else:
            write_d(d, product + read_c(c))

    return run
