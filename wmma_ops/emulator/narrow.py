"""Floats of 8, 6 and 4 bits: their values, and conversions to them with rounding to nearest even or by random bits.

fp8 is E4M3, bf8 E5M2 (OCP's, or gfx942's own with _fnuz), fp6 E2M3, bf6 E3M2, fp4 E2M1. What conversions do where the
type has no such value is said by AMD's ISA document of CDNA4 and by HIP's own conversions on the host: fp6, bf6 and fp4
give their largest, for NaN too.
"""

import math
from dataclasses import dataclass

import numpy as np

u32, u64, i64, f32, f64 = np.uint32, np.uint64, np.int64, np.float32, np.float64


@dataclass(frozen=True)
class Format:
    exponent: int  # bits
    mantissa: int
    bias: int
    nan: int | None = None  # the code, without a sign
    infinity: int | None = None
    fnuz: bool = False  # NaN is what would be −0

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    def value(self, code: int) -> float:
        magnitude = code & (self.sign - 1)
        sign = -1.0 if code & self.sign else 1.0
        if self.fnuz and code == self.sign:
            return math.nan
        if not self.fnuz and self.infinity is not None and magnitude >= self.infinity:
            return sign * math.inf if magnitude == self.infinity else math.nan
        if not self.fnuz and self.infinity is None and magnitude == self.nan:
            return math.nan
        exponent, mantissa = divmod(magnitude, 1 << self.mantissa)
        if exponent == 0:
            return sign * mantissa * 2.0 ** (1 - self.bias - self.mantissa)
        return sign * (1 + mantissa / (1 << self.mantissa)) * 2.0 ** (exponent - self.bias)


FORMATS = {
    "fp8": Format(4, 3, 7, nan=0x7F),
    "bf8": Format(5, 2, 15, nan=0x7F, infinity=0x7C),
    "fp8_fnuz": Format(4, 3, 8, fnuz=True),
    "bf8_fnuz": Format(5, 2, 16, fnuz=True),
    "fp6": Format(2, 3, 1),
    "bf6": Format(3, 2, 3),
    "fp4": Format(2, 1, 1),
}
VALUES = {
    kind: np.array([form.value(code) for code in range(1 << form.bits)], dtype=f32) for kind, form in FORMATS.items()
}


def decode(codes, kind: str):
    return VALUES[kind][np.asarray(codes, dtype=np.intp)]


def _signed(code, beyond, x, form: Format):
    """Codes of magnitudes with the sign of x, and what stands for NaN and for what is larger than the largest."""
    sign = np.where(np.signbit(x), u32(form.sign), u32(0))
    if form.fnuz:
        code = np.where(code == 0, u32(0), code | sign)
        return np.where(np.isnan(x) | beyond, u32(form.sign), code).astype(u32)
    if form.nan is None:
        return np.where(np.isnan(x), u32(form.sign - 1), code).astype(u32) | sign
    code = np.where(beyond, u32(form.nan if form.infinity is None else form.infinity), code) | sign
    return np.where(np.isnan(x), u32(form.nan), code).astype(u32)


def encode(x, kind: str):
    """Floats to codes, to nearest even. Beyond the largest: infinity where the type has one, else NaN, else the largest.

    So the hardware does unless MODE.FP16_OVFL is set, which asks for the largest of 8-bit types.
    """
    form = FORMATS[kind]
    positive = VALUES[kind][: form.sign].astype(f64)
    order = np.arange(form.sign)[np.isfinite(positive)]
    values = positive[order]
    magnitude = np.abs(np.asarray(x, dtype=f64))
    index = np.clip(np.searchsorted(values, magnitude), 1, len(values) - 1)
    low, high = values[index - 1], values[index]
    middle = (low + high) / 2
    up = (magnitude > middle) | ((magnitude == middle) & (order[index] % 2 == 0))
    code = np.where(up, order[index], order[index - 1]).astype(u32)
    # The next value, had the type one more, rounds back where it is nearer to the largest, or as near and that is even.
    step = values[-1] - values[-2]
    beyond = magnitude > values[-1] + step / 2
    if order[-1] % 2:
        beyond |= magnitude == values[-1] + step / 2
    return _signed(code, beyond, x, form)


def unpacked(registers: np.ndarray, bits: int) -> np.ndarray:
    """[registers, lanes] as codes [lanes, elements], which lie one after the other from the low bits up."""
    of_lanes = np.ascontiguousarray(registers.T).view(np.uint8)
    single = np.unpackbits(of_lanes, axis=1, bitorder="little")
    return single.reshape(len(single), -1, bits) @ (1 << np.arange(bits, dtype=np.intp))


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """The way back."""
    single = (codes[:, :, None] >> np.arange(bits, dtype=codes.dtype)) & codes.dtype.type(1)
    of_lanes = np.packbits(single.reshape(len(codes), -1).astype(np.uint8), axis=1, bitorder="little")
    return np.ascontiguousarray(of_lanes).view(u32).T


def exchanged(rows, bits: int, columns: int) -> None:
    """Transposes, in place, what groups of `columns` lanes hold: element r of a lane c becomes what was at place
    r · columns + c of the group's elements, one lane's after the other's."""
    held = np.stack(rows)
    if bits < 8:
        codes = unpacked(held, bits)
    else:
        codes = np.ascontiguousarray(held.T).view({8: np.uint8, 16: np.uint16}[bits])
    turned = codes.reshape(-1, codes.shape[1], columns).transpose(0, 2, 1).reshape(codes.shape)
    turned = packed(turned, bits) if bits < 8 else np.ascontiguousarray(turned).view(u32).T
    for row, new in zip(rows, turned, strict=True):
        row[:] = new


def power(byte):
    """The factor that an E8M0 scale means: 2^(byte − 127), NaN for 255."""
    byte = np.asarray(byte).astype(i64)
    return np.where(byte == 255, np.nan, np.ldexp(1.0, byte - 127))


def factor(scale):
    """That of a conversion's scale: a float, of which the exponent alone counts."""
    return power(np.asarray(scale) >> u32(23) & u32(255))


def shrunk(x, scale):
    """Floats divided by a scale, exactly; NaN keeps its sign."""
    x = np.asarray(x, dtype=f64)
    return np.copysign(np.abs(x) / factor(scale), x)


def prng(x):
    """v_prng_b32: the pseudo-random number that follows one."""
    x = np.asarray(x)
    return x << u32(1) ^ np.where(x >> u32(31), u32(197), u32(0))


def seeds(first, count: int) -> np.ndarray:
    """Of elements one after the other: each the pseudo-random number that follows the last."""
    found = [np.asarray(first)]
    while len(found) < count:
        found.append(prng(found[-1]))
    return np.stack(found)


def encode_random(x, seed, kind: str, mantissa: int):
    """Floats to codes by random bits: what the shorter mantissa has no room for is added to the seed's highest bits, and
    a carry rounds up. `mantissa` is that of the type that x came from, below which nothing counts."""
    form = FORMATS[kind]
    x = np.asarray(x, dtype=f64)
    finite = np.isfinite(x)
    magnitude = np.where(finite, np.abs(x), 0.0)
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, 1 - form.bias)
    lost = mantissa - form.mantissa
    whole = np.minimum(np.ldexp(magnitude, mantissa - exponent), 2.0**40).astype(i64)
    kept = whole + (np.asarray(seed).astype(i64) >> (32 - lost)) >> lost
    return encode(np.where(finite, np.copysign(np.ldexp(kept.astype(f64), exponent - form.mantissa), x), x), kind)


def floats_of(block: np.ndarray, kind: str) -> np.ndarray:
    """[registers, lanes] of float32, or of pairs of float16 or bfloat16, as float32 [elements, lanes]."""
    if kind == "f32":
        return block.view(f32).copy()
    halves = block.view(np.uint16).reshape(*block.shape, 2).transpose(0, 2, 1).reshape(-1, block.shape[1])
    return (
        np.ascontiguousarray(halves).view(np.float16).astype(f32)
        if kind == "f16"
        else (halves.astype(u32) << u32(16)).view(f32)
    )
