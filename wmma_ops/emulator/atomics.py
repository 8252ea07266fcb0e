"""Atomics: their names, what each makes of the value of one place, and which bytes of it matter."""

import re

import numpy as np

from wmma_ops.emulator import numeric

u16, u32, u64 = np.uint16, np.uint32, np.uint64
f16, f32, f64 = np.float16, np.float32, np.float64

_INTEGERS = ("add", "sub", "smax", "smin", "umax", "umin", "and", "or", "xor", "inc", "dec", "swap", "cmpswap")
_FLOATS = ("add_f32", "add_f64", "min_f32", "max_f32", "min_f64", "max_f64", "pk_add_f16", "pk_add_bf16")
_OTHER_NAMES = {"cmpst": "cmpswap", "cmpstore": "cmpswap", "wrxchg": "swap", "storexchg": "swap"}
_WIDE = re.compile(r"_(x2|[ui]64|b64|f64)$")
_SIZE = re.compile(r"_(x2|[ui]32|[ui]64|b32|b64)$")
_SIGNED = re.compile(r"^(max|min)_([iu])(?:32|64)$")
_NEGATIVE_ZERO = 0x8000


def named(name: str) -> tuple[str | None, bool]:
    """(operation, whether it has 64 bits) of a mnemonic without its first word: the operation is None if it is not known."""
    plain = name.replace("_num_", "_")
    plain = {"fmin": "min_f32", "fmax": "max_f32"}.get(plain, plain)  # older names
    if match := _SIGNED.match(plain):
        plain = ("s" if match[2] == "i" else "u") + match[1]
    elif plain not in _FLOATS:
        plain = _SIZE.sub("", plain)
    operation = _OTHER_NAMES.get(plain, plain)
    return (operation if operation in _INTEGERS + _FLOATS else None), bool(_WIDE.search(name))


def _of_floats(operation: str, old: int, data: int) -> int:
    """add, min or max of two floats given as bits."""
    word, kind = (u64, f64) if operation.endswith("64") else (u32, f32)
    x, y = word(old).view(kind), word(data).view(kind)
    way = {"add": np.add, "min": lambda a, b: numeric.vmin("num", a, b), "max": lambda a, b: numeric.vmax("num", a, b)}
    return int(np.asarray(way[operation[:3]](x, y), kind).view(word))


def _of_pairs(kind: str, old: int, data: int) -> int:
    """Both halves' sums."""
    x, y = np.array([old, data], u32).view(u16).reshape(2, 2)
    if kind == "f16":
        return int((x.view(f16) + y.view(f16)).view(u32)[0])
    of_bfloat = (half.astype(u32) << u32(16) for half in (x, y))
    low, high = numeric.bf16_round(np.add(*(half.view(f32) for half in of_bfloat))).tolist()
    return low | high << 16


def result(operation: str, old: int, data: int, compare: int, wide: bool) -> int:
    """The new value of one place, all as unsigned integers."""
    bits = 64 if wide else 32
    if operation in _FLOATS:
        with np.errstate(all="ignore"):
            pairs = operation.startswith("pk_")
            return _of_pairs(operation[7:], old, data) if pairs else _of_floats(operation, old, data)

    def signed(x):
        return numeric.signed(x, bits)

    match operation:
        case "add":
            return (old + data) & ((1 << bits) - 1)
        case "sub":
            return (old - data) & ((1 << bits) - 1)
        case "smax":
            return old if signed(old) >= signed(data) else data
        case "smin":
            return old if signed(old) <= signed(data) else data
        case "umax":
            return max(old, data)
        case "umin":
            return min(old, data)
        case "and":
            return old & data
        case "or":
            return old | data
        case "xor":
            return old ^ data
        case "swap":
            return data
        case "cmpswap":
            return data if old == compare else old
        case "inc":
            return 0 if old >= data else old + 1
        case "dec":
            return data if old == 0 or old > data else old - 1
    raise ValueError(operation)


def may_be_partial(operation: str) -> bool:
    """Atomics of smaller types take the whole word: a pair is added to with −0 beside, and a loop of compare-and-swap
    changes some bytes alone."""
    return operation == "cmpswap" or operation.startswith("pk_")


def bytes_that_count(operation: str, size: int, old: int, new: int, data: int) -> np.ndarray:
    """Which bytes of a place an atomic is about. The others may lie outside a tensor, or be unwritten."""
    if operation == "cmpswap":
        return np.frombuffer((old ^ new).to_bytes(size, "little"), np.uint8) != 0
    if operation.startswith("pk_"):
        return np.repeat([data & 0xFFFF != _NEGATIVE_ZERO, data >> 16 != _NEGATIVE_ZERO], 2)
    return np.ones(size, dtype=bool)
