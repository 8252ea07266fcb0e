"""The arithmetic that NumPy lacks: fused multiply-add, conversions, masks as integers. Arrays hold one value a lane."""

import functools

import numpy as np

u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64
i16, i32, i64 = np.int16, np.int32, np.int64
f16, f32, f64 = np.float16, np.float32, np.float64

_SMALLEST_NORMAL = np.finfo(f32).smallest_normal
_LEAST_OF, _LARGEST_OF = (
    {kind: f64(getattr(np.iinfo(kind), of)) for kind in (i16, u16, i32, u32)} for of in ("min", "max")
)

M32 = 0xFFFFFFFF
M64 = 0xFFFFFFFFFFFFFFFF


def pair(low, high):
    """Two words as one of 64 bits."""
    return high.astype(u64) << u64(32) | low


def wide(rows):
    """The same of two registers' rows, [lanes, 2]."""
    return rows.copy().view(u64)[:, 0]


def sf32(x: int) -> np.float32:
    return u32(x).view(f32)


def sf64(x: int) -> np.float64:
    return u64(x).view(f64)


def sf16(x: int) -> np.float16:
    return u16(x & 0xFFFF).view(f16)


def si32(x: int) -> np.int32:
    return u32(x).view(i32)


def si64(x: int) -> np.int64:
    return u64(x).view(i64)


def signed(x: int, width: int = 32) -> int:
    return x - (1 << width) if x >> (width - 1) & 1 else x


def wqm(x: int) -> int:
    """Four bits set where one of the four is."""
    x |= x >> 1 & 0x7777777777777777
    x |= x >> 2 & 0x3333333333333333
    return (x & 0x1111111111111111) * 15


def sign_bits(x: int, width: int) -> int:
    """Where, from the top, a bit first differs from the sign; −1 where none does."""
    x = ~signed(x, width) if x >> (width - 1) else x
    return width - x.bit_length() if x else -1


# Masks: 64 lanes as one Python integer, remembered, since a kernel meets few.

_masks: dict[tuple[int, int], np.ndarray] = {}


def lanes_of(mask: int, wave: int) -> np.ndarray:
    found = _masks.get((mask, wave))
    if found is None:
        if len(_masks) > 4096:
            _masks.clear()
        raw = np.frombuffer((mask & M64).to_bytes(8, "little"), dtype=u8)
        found = np.unpackbits(raw, bitorder="little")[:wave].astype(bool)
        found.setflags(write=False)
        _masks[(mask, wave)] = found
    return found


def mask_of(lanes: np.ndarray) -> int:
    return int.from_bytes(np.packbits(lanes, bitorder="little").tobytes(), "little")


def round_to_odd(high, error):
    """`high + error` in float64 such that rounding it to a narrower type rounds the exact sum once.

    Where something was lost (error ≠ 0) and high's last bit is even, it moves to the odd neighbour on error's side
    (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd").
    """
    raw = np.asarray(high).view(i64)
    move = (error != 0) & (raw & 1 == 0) & np.isfinite(high)
    if not np.count_nonzero(move):
        return high
    up = (error > 0) == (high > 0)
    return np.where(move, np.where(up, raw + 1, raw - 1), raw).view(f64)


def two_sum(a, b):
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


_ONE = u64(1)
_LACKED, _MIDDLE = u64((1 << 29) - 1), u64(1 << 28)  # the bits that float32 lacks, and what they are between two of it
_LEAST_NORMAL = (f64(2.0**-126).view(u64) << _ONE) - _ONE  # float32's, without the sign


def fma32(a, b, c):
    """float32 a·b + c, rounded once."""
    p, c = np.multiply(a, b, dtype=f64), np.asarray(c, dtype=f64)  # the product is exact: 24 + 24 bits
    s = p + c
    raw = s.view(u64)
    # Rounding twice is rounding once but in the middle of two numbers, which lies elsewhere for subnormal ones.
    doubtful = (raw & _LACKED == _MIDDLE) | ((raw << _ONE) - _ONE < _LEAST_NORMAL)
    if np.count_nonzero(doubtful):
        s, error = two_sum(p, c)
        s = round_to_odd(s, np.where(np.isfinite(s), error, 0.0))
    return s.astype(f32)


def fma16(a, b, c):
    """The same of float16: what float64 rounds of such a sum lies in the middle of no two."""
    return (np.multiply(a, b, dtype=f64) + np.asarray(c, dtype=f64)).astype(f16)


def _split(a):
    t = a * 134217729.0  # 2²⁷ + 1
    high = t - (t - a)
    return high, a - high


_LEAST = f64(2.0**-900).view(u64) << _ONE
_RANGE = (f64(2.0**1000).view(u64) << u64(1)) - _LEAST


def fma64(a, b, c):
    """float64 a·b + c. The product's error is exact (Dekker) within the range; outside it, by way of mantissas."""
    a, b, c = np.asarray(a, f64), np.asarray(b, f64), np.asarray(c, f64)
    p = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    low = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    s, error = two_sum(p, c)
    rest = low + error
    # Without the sign, the numbers between two powers of 2 are those between two whole numbers.
    within = ((p.view(u64) << _ONE) - _LEAST < _RANGE) & np.isfinite(rest)
    if np.count_nonzero(within) == within.size:
        return s + rest
    beside = (np.abs(p) < 2.0**-900) & (np.abs(c) > 2.0**-800)
    plain = (a == 0) | (b == 0) | np.isnan(p) | np.isnan(c) | beside
    rounded = np.where(plain, s, s + rest)
    within = within | plain
    if np.count_nonzero(within) == within.size:
        return rounded
    return np.where(within, rounded, _fma64_anywhere(a, b, c))


def _fma64_anywhere(a, b, c):
    """The same where the product or its error leaves the range of normal numbers."""
    (am, ae), (bm, be) = np.frexp(a), np.frexp(b)
    exponent = ae + be
    p = am * bm
    (ah, al), (bh, bl) = _split(am), _split(bm)
    low = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    scaled = np.ldexp(c, -exponent)
    s, error = two_sum(p, scaled)
    high, rest = two_sum(s, low + error)
    found = np.ldexp(high, exponent)
    # A subnormal result is rounded when it is scaled, and only then.
    found = np.where(
        np.abs(found) <= np.finfo(f64).smallest_normal, np.ldexp(round_to_odd(high, rest), exponent), found
    )
    # Beside what is much larger the product counts as nothing; infinities, NaN and zeros are as NumPy has them.
    known = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (p != 0)
    return np.where(known, np.where(np.isfinite(high) & np.isfinite(rest), found, c), a * b + c)


def to_int(x, dtype):
    """Towards zero, saturating, NaN to 0."""
    x = np.minimum(np.maximum(np.trunc(np.asarray(x, dtype=f64)), _LEAST_OF[dtype]), _LARGEST_OF[dtype])
    return (np.where(np.isnan(x), 0.0, x) if _some_nan(x) else x).astype(dtype)


def to_i32(x):
    return to_int(x, i32)


def to_u32(x):
    return to_int(x, u32)


def rtz16(x):
    """float32 to float16 towards zero."""
    x = np.asarray(x, dtype=f32)
    y = x.astype(f16)
    away = np.abs(y.astype(f32)) > np.abs(x)
    raw = y.view(u16)
    # One step towards zero, also from infinity where x was finite.
    return np.where(away & ~np.isinf(x), raw - u16(1), raw).view(f16)


def bf16_round(x):
    """float32 to bfloat16's bits, to nearest even; NaN stays NaN."""
    raw = np.asarray(x, dtype=f32).view(u32)
    rounded = (raw + u32(0x7FFF) + ((raw >> u32(16)) & u32(1))) >> u32(16)
    return np.where(np.isnan(x), (raw >> u32(16)) | u32(0x40), rounded).astype(u32)


def clz32(x):
    """Leading zeros; all ones for 0, as v_ffbh / v_clz."""
    x = np.asarray(x, dtype=u32)
    _, exponent = np.frexp(x.astype(f64))
    return np.where(x == 0, u32(M32), (32 - exponent).astype(u32)).astype(u32)


def sign_bits32(x):
    """Where, from the top, a bit first differs from the sign; −1 where none does."""
    x = np.asarray(x, dtype=i32)
    return clz32((x ^ (x >> 31)).view(u32)).astype(i32)


def ctz32(x):
    x = np.asarray(x, dtype=u32)
    low = x & (~x + u32(1))
    _, exponent = np.frexp(low.astype(f64))
    return np.where(x == 0, u32(M32), (exponent - 1).astype(u32)).astype(u32)


def popcount(x):
    return np.bitwise_count(np.asarray(x, dtype=u32)).astype(u32)


def bitreverse(x):
    x = np.asarray(x, dtype=u32)
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        x = ((x >> u32(shift)) & u32(mask)) | ((x & u32(mask)) << u32(shift))
    return (x >> u32(16)) | (x << u32(16))


def bfe_u(x, offset, width):
    offset, width = u64(31) & np.asarray(offset, u64), u64(31) & np.asarray(width, u64)
    return ((np.asarray(x, u64) >> offset) & ((u64(1) << width) - u64(1))).astype(u32)


def bfe_i(x, offset, width):
    width = np.asarray(width, u64) & u64(31)
    raw = bfe_u(x, offset, width).astype(i64)
    sign = np.where(width > 0, i64(1) << (np.maximum(width, u64(1)) - u64(1)).astype(i64), 0)
    return ((raw ^ sign) - sign).astype(i32)


@functools.lru_cache(maxsize=256)
def _moves(selector: int) -> list[tuple[int, int, int]] | None:
    """(which word, by how many bits it is shifted left, the bits that stay) of a selector of bytes alone."""
    masks: dict[tuple[int, int], int] = {}
    for index in range(4):
        byte = selector >> 8 * index & 0xFF
        if byte > 7:
            return None
        key = byte // 4, 8 * (index - byte % 4)
        masks[key] = masks.get(key, 0) | 0xFF << 8 * index
    return [(*key, mask) for key, mask in masks.items()]


def perm(a, b, selector):
    """v_perm_b32: bytes of b (0–3) and a (4–7) chosen by the selector's bytes."""
    if np.ndim(selector) == 0 and (moves := _moves(int(selector))) is not None:
        out = u32(0)
        for which, left, mask in moves:
            word = (b, a)[which]
            out = out | (word << u32(left) if left >= 0 else word >> u32(-left)) & u32(mask)
        return out
    joined = pair(np.asarray(b, u32), np.asarray(a, u32))
    selector = np.asarray(selector, u32)
    out = np.zeros(np.broadcast(joined, selector).shape, dtype=u32)
    for index in range(4):
        s = (selector >> u32(8 * index)) & u32(0xFF)
        byte = (joined >> (u64(8) * np.minimum(s, u32(7)).astype(u64))).astype(u32) & u32(0xFF)
        sign_at = (u64(16) * ((s - u32(8)) & u32(3)).astype(u64)) + u64(15)
        sign = np.where((joined >> sign_at) & u64(1), u32(0xFF), u32(0))
        byte = np.where(s >= 13, u32(0xFF), np.where(s == 12, u32(0), np.where(s >= 8, sign, byte)))
        out |= byte << u32(8 * index)
    return out


def alignbit(a, b, shift):
    return (pair(np.asarray(b, u32), np.asarray(a, u32)) >> (np.asarray(shift, u64) & u64(31))).astype(u32)


def median(a, b, c):
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def _bits(x):
    """A float's bits, signed, and as many of them as it has."""
    return np.asarray(x).view({2: i16, 4: i32, 8: i64}[x.dtype.itemsize])


def quiet(x):
    """NaN with its quiet bit set, all else as it is."""
    bit = {2: 1 << 9, 4: 1 << 22, 8: 1 << 51}[x.dtype.itemsize]
    return np.where(np.isnan(x), _bits(x) | _bits(x).dtype.type(bit), _bits(x)).view(x.dtype)


def signalling(x):
    bit = {2: 1 << 9, 4: 1 << 22, 8: 1 << 51}[x.dtype.itemsize]
    return np.isnan(x) & (_bits(x) & _bits(x).dtype.type(bit) == 0)


def _number(a, b, result, rules: str):
    """min or max where an operand is NaN: the other one. Before gfx12 a signalling NaN is handed on, made quiet, but
    where the kernel's ieee_mode is 0: there it is like any."""
    na, nb = np.isnan(a), np.isnan(b)
    out = np.where(na & nb, b if rules.startswith("cdna") else a, np.where(na, b, np.where(nb, a, result)))
    if rules.endswith("without signals"):
        return out
    if rules != "num":
        out = np.where(signalling(a), a, np.where(signalling(b), b, out))
    return quiet(out)


def _propagated(a, b, result):
    """minimum or maximum where an operand is NaN: that one, the signalling first."""
    na, nb = np.isnan(a), np.isnan(b)
    out = np.where(na, a, np.where(nb, b, result))
    return quiet(np.where(signalling(a), a, np.where(signalling(b), b, out)))


def _some_nan(x) -> bool:
    return np.count_nonzero(np.isnan(x)) > 0


def _extreme(a, b, pick, join):
    """min or max in which −0 lies below +0."""
    result = pick(a, b)
    same = a == b
    if np.count_nonzero(same):  # what is equal has the same bits, but for the zeros
        result = np.where(same, join(_bits(a), _bits(b)).view(result.dtype), result)
    return result


def vmax(rules: str, a, b):
    result = _extreme(a, b, np.fmax, np.bitwise_and)
    return _number(a, b, result, rules) if _some_nan(a) or _some_nan(b) else result


def vmin(rules: str, a, b):
    result = _extreme(a, b, np.fmin, np.bitwise_or)
    return _number(a, b, result, rules) if _some_nan(a) or _some_nan(b) else result


def vmaximum(a, b):
    result = _extreme(a, b, np.maximum, np.bitwise_and)
    return _propagated(a, b, result) if _some_nan(result) else result


def vminimum(a, b):
    result = _extreme(a, b, np.minimum, np.bitwise_or)
    return _propagated(a, b, result) if _some_nan(result) else result


def vmed(rules: str, a, b, c):
    """The middle of three; the least of the numbers where one is NaN."""
    largest = vmax(rules, vmax(rules, a, b), c)
    middle = np.where(largest == b, vmax(rules, a, c), vmax(rules, a, b))
    middle = np.where(largest == a, vmax(rules, b, c), middle)
    least = vmin(rules, vmin(rules, a, b), c)
    return np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), least, middle)


def flushed(x):
    """Subnormal float32 as zero of the same sign, which some instructions take and give in every mode."""
    x = np.asarray(x)
    tiny = np.abs(x) < _SMALLEST_NORMAL
    return np.where(tiny, np.copysign(f32(0), x), x) if np.count_nonzero(tiny) else x


def mad_flushed(a, b, c):
    """v_mad_f32: rounded twice, subnormals flushed in every mode."""
    return flushed(flushed(flushed(a) * flushed(b)) + flushed(c))


def undefined(x, y):
    """A function's result y, with the NaN that the hardware gives where x is outside its domain: quiet and negative."""
    if not _some_nan(y):
        return y
    return np.where(np.isnan(y), np.where(np.isnan(x), quiet(x), np.negative(np.abs(y.dtype.type(np.nan)))), y)


def fract(x):
    """x − floor(x), below 1 also where the difference rounds to 1."""
    x = np.asarray(x)
    one = x.dtype.type(1)
    y = x - np.floor(x)
    return np.where(y >= one, np.nextafter(one, x.dtype.type(0)), y)


def clamped(x):
    """clamp of a float: to 0 … 1, NaN to 0."""
    x = np.asarray(x)
    return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))


def clamped_but_nan(x):
    """The same where the kernel's dx10_clamp is 0: NaN stays."""
    return np.where(np.isnan(x), x, clamped(x))


def saturated(x, dtype):
    """Whole numbers brought into the range of a type."""
    info = np.iinfo(dtype)
    return np.clip(x, info.min, info.max).astype(dtype)


def sad(a, b, width: int, masked: bool = False):
    """The sum of absolute differences of the operands' fields, where asked for without those whose b is 0."""
    total = i64(0)
    for shift in range(0, 32, width):
        x, y = ((np.asarray(v).astype(i64) >> shift) & ((1 << width) - 1) for v in (a, b))
        total = total + (np.abs(x - y) * (y != 0) if masked else np.abs(x - y))
    return total


def lerp(a, b, c):
    """The mean of each byte of a and b, rounded up where the byte of c is odd."""
    a, b, c = (np.asarray(v, dtype=u32) for v in (a, b, c))
    out = u32(0)
    for shift in map(u32, (0, 8, 16, 24)):
        total = (a >> shift & u32(255)) + (b >> shift & u32(255)) + (c >> shift & u32(1))
        out = out | (total >> u32(1)) << shift
    return out


def mad64(a, b, c):
    """(a·b + c as 64 bits, bit 64 of the exact sum): a and b widened to c's type, signed or not."""
    product = a * b
    total = product + c
    if total.dtype == u64:
        return total, total < product
    wrapped = ((total ^ product) & (total ^ c)) < 0
    return total, (total < 0) ^ wrapped


def classify(x, mask):
    """v_cmp_class: bits for signalling NaN, quiet NaN, −inf, −normal, −subnormal, −0, +0, …, +inf."""
    x, mask = np.broadcast_arrays(np.asarray(x), np.asarray(mask, u32))
    tiny = np.finfo(x.dtype).smallest_normal
    negative, magnitude = np.signbit(x), np.abs(x)
    bit = np.select(
        [signalling(x), np.isnan(x), np.isinf(x), magnitude == 0, magnitude < tiny],
        [0, 1, np.where(negative, 2, 9), np.where(negative, 5, 6), np.where(negative, 4, 7)],
        np.where(negative, 3, 8),
    )
    return (mask >> bit.astype(u32)) & u32(1) != 0


@functools.lru_cache(maxsize=256)
def _terms(table: int) -> list[int]:
    """The products of a (4), b (2) and c (1) whose sum without carries is the function of this truth table."""
    value = [table >> index & 1 for index in range(8)]
    for bit in (1, 2, 4):
        value = [x ^ (value[index ^ bit] if index & bit else 0) for index, x in enumerate(value)]
    return [index for index in range(8) if value[index]]


def bitop3(a, b, c, table: int):
    """v_bitop3_b32: any function of three bits, by its truth table."""
    out = np.zeros(np.broadcast(a, b, c).shape, dtype=u32)
    for term in _terms(table):
        product = [x for bit, x in ((4, a), (2, b), (1, c)) if term & bit]
        out = out ^ (functools.reduce(np.bitwise_and, product) if product else u32(M32))
    return out
