"""Small kernels as people write them, compiled for every emulated target, against NumPy.

Each is the body of `kernel(const uint* x, uint* y)` with one thread a word: `i` is the thread, `v` its word of x. What it
may call stands in HELPERS. NumPy gets the words as `x` (unsigned) and gives what y holds.
"""

import functools

import numpy as np
import pytest
import torch

import wmma_ops
from wmma_ops import jit
from wmma_ops.hardware import arch

u32, i32, u64, i64, f32, f64 = np.uint32, np.int32, np.uint64, np.int64, np.float32, np.float64
THREADS = 64
AT = np.arange(THREADS)

HELPERS = """
#include <wmma/grid.hpp>
using uint = unsigned int;
using u8 = unsigned char;
using u16 = unsigned short;
using i16 = short;
using u64 = unsigned long long;
using i64 = long long;
#define FN __attribute__((device, noinline))
#define ALWAYS __attribute__((device, always_inline)) inline

struct Three { int a; short b; u8 c[5]; };
FN void change(Three* t, int by) { t->a += by; t->b = (short)(t->b * 3); t->c[by & 3] ^= 0x5a; }
FN int twice(int x) { return 2 * x + 1; }
FN int steps(int x, int n) { for (int k = 0; k < n; ++k) x = twice(x) ^ k; return x; }
FN int add(int a, int b) { return a + b; }
FN int multiply(int a, int b) { return a * b; }
using Operation = int (*)(int, int);
struct Pair { u64 a; double b; };
FN Pair make(u64 a, double b) { Pair p; p.a = a * 3; p.b = b * 2; return p; }
__device__ int counters[64] = {5, 6, 7};
__constant__ float factors[4] = {1.5f, 2.5f, -1.0f, 8.0f};
typedef uint words16 __attribute__((ext_vector_type(16)));
typedef u16 halves __attribute__((ext_vector_type(2)));
FN uint of_pointer(const uint* p, int n) { uint s = 0; for (int k = 0; k < n; ++k) s = s * 31 + p[k]; return s; }
ALWAYS float as_float(uint x) { return __builtin_bit_cast(float, x); }
ALWAYS uint as_uint(float x) { return __builtin_bit_cast(uint, x); }
"""

RNG = np.random.default_rng(3)
WORDS = RNG.integers(0, 2**32, 2 * THREADS, dtype=np.uint64).astype(u32)
SMALL = RNG.integers(1, 1000, 2 * THREADS).astype(u32)
EDGES = np.resize(np.array([0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF, 0x10000, 255, 256], u32), 2 * THREADS)
FLOATS = np.concatenate(
    [
        (RNG.standard_normal(THREADS) * 10.0 ** RNG.integers(-6, 7, THREADS)).astype(f32),
        np.resize(np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, 1e-40, 3e38, 1e-38, 7.0], f32), THREADS),
    ]
).view(u32)


def _dynamic(x):
    v = x[:THREADS]
    a = np.stack([v + u32(k * k) for k in range(8)])
    a[v % 8, AT] = 7
    return a[(v >> u32(3)) % 8, AT] + a[AT % 8, AT]


def _struct(x):
    v = x[:THREADS].astype(i64)
    a = (v.astype(i32) + AT.astype(i32)).astype(i64)
    b = ((v & 0xFF) * 3).astype(i64)
    c = np.stack([(v >> k) & 0xFF for k in range(5)])
    c[AT & 3, AT] ^= 0x5A
    return (a + b + c.sum(axis=0)).astype(u64).astype(u32)


def _steps(x):
    out = x[:THREADS].copy()
    for k in range(5):
        out = np.where(k < AT % 5, (out * u32(2) + u32(1)) ^ u32(k), out)
    return out


def _hash(x):
    out = np.zeros(THREADS, u32)
    for k in range(6):
        out = out * u32(31) + (x[:THREADS] ^ u32(k * 77))
    return np.where(AT % 2 == 0, out, _hash_of(x))


def _hash_of(x):
    out = np.zeros(THREADS, u32)
    for k in range(6):
        out = out * u32(31) + x[AT + k]
    return out


def _switch(x):
    v = x[:THREADS]
    table = [v * u32(3), v ^ u32(0x55), v >> u32(2), ~v, v + u32(100), u32(0) - v, v & u32(0xF0F0)]
    return np.select([v % 9 == k for k in range(7)], table, u32(42))


def _division(x):
    a = x[:THREADS].astype(u64) << u64(20) | u64(12345)
    b = x[THREADS:].astype(u64) + u64(1) | (AT % 3).astype(u64) << u64(33)
    q, r = a // b, a % b
    sa = a.view(i64) * np.where(AT % 2, -1, 1)
    sq = np.sign(sa) * (np.abs(sa) // 7919)
    return (q ^ (q >> u64(32)) ^ r ^ (r >> u64(32)) ^ sq.view(u64)).astype(u32)


def _float_division(x):
    a, b = x.view(f32)[:THREADS], x.view(f32)[THREADS:]
    with np.errstate(all="ignore"):
        return _same_nan(a / b)


def _same_nan(y):
    return np.where(np.isnan(y), u32(0x7FC00000), y.view(u32)).astype(u32)


def _sqrt(x):
    with np.errstate(all="ignore"):
        return _same_nan(np.sqrt(np.abs(x.view(f32)[:THREADS])))


def _memcpy(x):
    raw = x.view(np.uint8)
    at = 4 * AT[:, None] + np.arange(13)
    return raw[at].astype(u32).sum(axis=1, dtype=u32) + raw[4 * AT + 1].astype(u32) * u32(256)


def _shared(x):
    a, b = x[:THREADS].astype(np.uint8), x[:THREADS].astype(np.uint16)
    return a[63 - AT].astype(u32) | b[AT ^ 5].astype(u32) << u32(8)


def _bits(x):
    v = x[:THREADS]
    as_bits = [f"{int(w):032b}" for w in v]
    clz = np.array([len(t) - len(t.lstrip("0")) for t in as_bits], u32)
    ctz = np.array([len(t) - len(t.rstrip("0")) for t in as_bits], u32)
    rev = np.array([int(t[::-1], 2) for t in as_bits], u32)
    pop = np.array([t.count("1") for t in as_bits], u32)
    return pop + clz * u32(64) + (ctz << u32(12)) ^ rev ^ v.byteswap()


def _bits_wide(x):
    v = [int(a) << 32 | int(b) for a, b in zip(x[:THREADS], x[THREADS:], strict=True)]
    out = []
    for w in v:
        t = f"{w:064b}"
        clz, ctz, rev = len(t) - len(t.lstrip("0")), len(t) - len(t.rstrip("0")), int(t[::-1], 2)
        out.append((w.bit_count() + clz * 128 + (ctz << 14) ^ rev ^ rev >> 32) & 0xFFFFFFFF)
    return np.array(out, u32)


def _clip(y, dtype):
    return np.clip(y, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)


def _unsigned_halves(x):
    a, b = (part.astype(np.uint16).astype(i32) for part in (x[:THREADS], x[THREADS:]))
    return _clip(a + b, np.uint16) * u32(3) + _clip(a - b, np.uint16) * u32(5)


def _saturating(x):
    a, b = x[:THREADS], x[THREADS:]
    out = _clip(a.astype(i64) + b, u32) ^ _clip(a.astype(i64) - b, u32)
    sa, sb = a.view(i32).astype(i64), b.view(i32).astype(i64)
    out = out ^ _clip(sa + sb, i32).view(u32) ^ _clip(sa - sb, i32).view(u32)
    return out + _unsigned_halves(x)


def _saturating_shorts(x):
    sa, sb = (part.astype(np.uint16).view(np.int16).astype(i32) for part in (x[:THREADS], x[THREADS:]))
    signed = _clip(sa + sb, np.int16).astype(i32) * 7 + _clip(sa - sb, np.int16).astype(i32) * 9
    return _unsigned_halves(x) + signed.view(u32)


def _wide_multiply(x):
    a = x[:THREADS].view(i32).astype(i64)
    b = x[THREADS:].view(i32).astype(i64)
    product = (a * b + (a << 7)).view(u64)
    high = np.array(
        [int(p) * int(q) >> 64 for p, q in zip(product, x[THREADS:].astype(u64) << u64(31), strict=True)], u64
    )
    return (product ^ (product >> u64(32)) ^ high).astype(u32)


def _half(x):
    a = (x[:THREADS] % 2048).astype(np.float16) / np.float16(64)
    b = (x[THREADS:] % 512).astype(np.float16) / np.float16(16) + np.float16(0.5)
    s = (a + b).astype(np.float16)
    return (s * np.float16(0.5) - b / np.float16(4)).astype(np.float16).view(np.uint16).astype(u32)


def _bf16(x):
    return (
        torch.from_numpy(x.view(f32)[:THREADS].copy()).bfloat16().view(torch.int16).numpy().view(np.uint16).astype(u32)
    )


def _rotate(x):
    v, s = x[:THREADS], x[THREADS:] % u32(32)
    return (v << s) | (v >> ((u32(32) - s) % u32(32)))


def _double(x):
    a = x[:THREADS].astype(f64) / 3.0
    b = x[THREADS:].astype(f64) + 0.25
    return ((a / b) * 1000.0 + np.sqrt(b)).astype(f32).view(u32)


def _convert(x):
    with np.errstate(all="ignore"):
        v = x[:THREADS]
        whole = v.view(i32).astype(f32)
        wide = (v.astype(u64) << u64(13)).astype(f32)
        back = (v.astype(f32) / f32(3)).astype(u32)
    return whole.view(u32) ^ wide.view(u32) ^ back


def _collatz(x):
    out = []
    for w in x[:THREADS] % 97 + 1:
        n, count = int(w), 0
        while n != 1:
            n, count = (3 * n + 1 if n % 2 else n // 2), count + 1
        out.append(count)
    return np.array(out, u32)


def _uniform(x):
    a = np.stack([x[:THREADS] * u32(k) for k in range(16)])
    a[x[65] % 16] = 9
    return a[x[64] % 16] + a[(x[64] >> u32(4)) % 16]


def _large(x):
    a = np.stack([x[:THREADS] ^ u32(k) for k in range(100)])
    a[x[:THREADS] % 100, AT] = 3
    return a[(x[:THREADS] >> u32(8)) % 100, AT] + a[AT, AT]


def _three_memories(x):
    out = []
    for i in range(THREADS):
        words = x[0:6] if i % 3 == 0 else x[i : i + 6] if i % 3 == 1 else x[i] + np.arange(6, dtype=u32)
        total = u32(0)
        for w in words:
            total = total * u32(31) + w
        out.append(total)
    return np.array(out, u32)


def _extremes(x):
    a, b = x.view(f32)[:THREADS], x.view(f32)[THREADS:]
    least = np.where(np.isnan(a), b, np.where(np.isnan(b) | (a < b), a, b))
    largest = np.where(np.isnan(a), b, np.where(np.isnan(b) | (a > b), a, b))
    return _same_nan(least) ^ _same_nan(largest) >> u32(1)


def _classes(x):
    raw = x[:THREADS] & u32(0x7FFFFFFF)
    nan, inf, zero, normal = raw > 0x7F800000, raw == 0x7F800000, raw == 0, (raw >= 0x800000) & (raw < 0x7F800000)
    flags = (nan, inf, raw < 0x7F800000, normal, x[:THREADS] >> u32(31), ~normal & ~nan & ~inf & ~zero, zero)
    quiet = nan & (raw & u32(0x400000) != 0)
    return sum(np.asarray(f).astype(u32) << u32(k) for k, f in enumerate((*flags, nan & ~quiet)))


def _scalar_floats(x):
    f = ((x[64] & u32(0x7FFFFF)) | u32(0x3F800000)).view(f32)
    g = f32(f64(f) * f64(f) + 1.5)
    total = f32(np.maximum(g, f) / f) + f32(np.floor(g)) + np.ceil(f) - np.rint(g)
    return (f32(total).view(u32) + u32(int(g)) + f32(x[65].view(i32)).view(u32)) + AT.astype(u32)


def _wide_product(x):
    out = []
    for a, b in zip(x[:THREADS], x[THREADS:], strict=True):
        p = int(a) * int(b) * int(a) * 77
        out.append((p >> 64 ^ p) & 0xFFFFFFFF)
    return np.array(out, u32)


def _checked(x):
    out = []
    for i in range(THREADS):
        v, w, n = int(x[i]), int(x[i + 64]), int(x[i + 1])
        a, b = v << 32 | w, n << 32 | v
        m = int(x[i].view(i32)) * i
        flags = (a + b >= 1 << 64) * 2 + (a < b) * 4 + (not -(2**31) <= m < 2**31) * 8
        out.append((((a + b) >> 32) + flags + a - b + m) & 0xFFFFFFFF)
    return np.array(out, u32)


def _exponents(x):
    f = x.view(f32)[:THREADS]
    mantissa, exponent = np.frexp(f)
    scaled = np.ldexp(f.astype(f64), AT - 30)
    with np.errstate(over="ignore"):
        return np.where(
            np.isfinite(f), mantissa.view(u32) + exponent.astype(u32) * u32(3) ^ scaled.astype(f32).view(u32), 0
        )


def _text(x):
    raw = np.frombuffer(b"hello world, this is text\0", np.uint8).astype(u32)
    names = np.array([ord("a"), ord("c"), ord("f")], u32)
    return raw[x[:THREADS] % 25] + raw[AT % 25] + names[x[:THREADS] % 3]


# name -> (body, NumPy, words of x)
KERNELS = {
    "a local array by index": (
        "uint a[8]; for (int k = 0; k < 8; ++k) a[k] = v + k * k;a[v % 8] = 7; y[i] = a[(v >> 3) % 8] + a[i % 8];",
        _dynamic,
        WORDS,
    ),
    "an array in registers by index": (
        "typedef uint vec __attribute__((ext_vector_type(8))); vec a;"
        "for (int k = 0; k < 8; ++k) a[k] = v + k * k; a[v % 8] = 7; y[i] = a[(v >> 3) % 8] + a[i % 8];",
        _dynamic,
        WORDS,
    ),
    "a struct by pointer": (
        "Three t; t.a = v; t.b = v & 255; for (int k = 0; k < 5; ++k) t.c[k] = v >> k;"
        "Three u = t; change(&u, i); int s = u.a - (int)i + i + u.b; for (int k = 0; k < 5; ++k) s += u.c[k]; y[i] = s;",
        _struct,
        WORDS,
    ),
    "functions": ("y[i] = steps(v, i % 5);", _steps, WORDS),
    "a pointer that is local or not": (
        "uint a[6]; for (int k = 0; k < 6; ++k) a[k] = v ^ (k * 77); y[i] = of_pointer(i % 2 ? x + i : a, 6);",
        _hash,
        WORDS,
    ),
    "switch": (
        "uint r; switch (v % 9) { case 0: r = v * 3; break; case 1: r = v ^ 0x55; break; case 2: r = v >> 2; break;"
        "case 3: r = ~v; break; case 4: r = v + 100; break; case 5: r = -v; break; case 6: r = v & 0xf0f0; break;"
        "default: r = 42; } y[i] = r;",
        _switch,
        WORDS,
    ),
    "a table": (
        "const uint t[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8, 97}; y[i] = t[v % 12] * 2 + t[i % 12];",
        lambda x: (lambda t: t[x[:THREADS] % 12] * u32(2) + t[AT % 12])(
            np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8, 97], u32)
        ),
        WORDS,
    ),
    "64-bit division": (
        "u64 a = (u64)v << 20 | 12345, b = (u64)x[i + 64] + 1 | (u64)(i % 3) << 33, q = a / b, r = a % b;"
        "i64 s = (i64)a * (i % 2 ? -1 : 1) / 7919; y[i] = (uint)(q ^ q >> 32 ^ r ^ r >> 32 ^ (u64)s);",
        _division,
        WORDS,
    ),
    "float division": (
        "float q = as_float(v) / as_float(x[i + 64]); y[i] = q != q ? 0x7fc00000u : as_uint(q);",
        _float_division,
        FLOATS,
    ),
    "float division of edges": (
        "float q = as_float(v) / as_float(x[i + 64]); y[i] = q != q ? 0x7fc00000u : as_uint(q);",
        lambda x: _float_division(x),
        np.concatenate([FLOATS[THREADS:], FLOATS[THREADS:][::-1]]),
    ),
    "square root": ("y[i] = as_uint(__builtin_sqrtf(__builtin_fabsf(as_float(v))));", _sqrt, FLOATS),
    "doubles": (
        "double a = (double)v / 3.0, b = (double)x[i + 64] + 0.25;"
        "y[i] = as_uint((float)(a / b * 1000.0 + __builtin_sqrt(b)));",
        _double,
        SMALL,
    ),
    "memcpy of odd sizes": (
        "u8 t[16]; __builtin_memcpy(t, (const u8*)x + 4 * i, 13); u8 w[3]; __builtin_memcpy(w, t + 1, 3);"
        "uint s = w[0] * 256; for (int k = 0; k < 13; ++k) s += t[k]; y[i] = s;",
        _memcpy,
        WORDS,
    ),
    "bytes and halves of shared memory": (
        "__shared__ u8 a[64]; __shared__ u16 b[64]; a[i] = v; b[i] = v; wmma::sync_workgroup();"
        "y[i] = a[63 - i] | b[i ^ 5] << 8;",
        _shared,
        WORDS,
    ),
    "an assertion": ("WMMA_ASSERT(i < 64); y[i] = v + 1;", lambda x: x[:THREADS] + u32(1), WORDS),
    "bits": (
        "uint c = v ? __builtin_clz(v) : 32, t = v ? __builtin_ctz(v) : 32;"
        "y[i] = __builtin_popcount(v) + c * 64 + (t << 12) ^ __builtin_bitreverse32(v) ^ __builtin_bswap32(v);",
        _bits,
        EDGES,
    ),
    "bits of 64": (
        "u64 w = (u64)v << 32 | x[i + 64]; uint c = w ? __builtin_clzll(w) : 64, t = w ? __builtin_ctzll(w) : 64;"
        "u64 r = __builtin_bitreverse64(w);"
        "y[i] = (uint)(__builtin_popcountll(w) + c * 128 + (t << 14) ^ r ^ r >> 32);",
        _bits_wide,
        EDGES,
    ),
    "saturating sums": (
        "uint b = x[i + 64]; u16 c = v, d = b;"
        "uint r = __builtin_elementwise_add_sat(v, b) ^ __builtin_elementwise_sub_sat(v, b);"
        "r ^= (uint)__builtin_elementwise_add_sat((int)v, (int)b) ^ (uint)__builtin_elementwise_sub_sat((int)v, (int)b);"
        "halves p = {c, c}, q = {d, d}, s = __builtin_elementwise_add_sat(p, q), t = __builtin_elementwise_sub_sat(p, q);"
        "y[i] = r + s[i & 1] * 3u + t[i & 1] * 5u;",
        _saturating,
        np.concatenate([EDGES[:THREADS], WORDS[:THREADS]]),
    ),
    "saturating sums of shorts": (
        "uint b = x[i + 64]; u16 c = v, d = b;"
        "uint r = __builtin_elementwise_add_sat(c, d) * 3u + __builtin_elementwise_sub_sat(c, d) * 5u;"
        "y[i] = r + (uint)(__builtin_elementwise_add_sat((i16)c, (i16)d) * 7 +"
        " __builtin_elementwise_sub_sat((i16)c, (i16)d) * 9);",
        _saturating_shorts,
        np.concatenate([EDGES[:THREADS], WORDS[:THREADS]]),
    ),
    "64-bit products": (
        "i64 a = (int)v, b = (int)x[i + 64]; u64 p = (u64)(a * b + (a << 7));"
        "u64 h = (u64)(((unsigned __int128)p * ((u64)x[i + 64] << 31)) >> 64); y[i] = (uint)(p ^ p >> 32 ^ h);",
        _wide_multiply,
        WORDS,
    ),
    "halves": (
        "_Float16 a = (_Float16)(float)(v % 2048) / (_Float16)64, b = (_Float16)(float)(x[i + 64] % 512) / (_Float16)16"
        " + (_Float16)0.5f; _Float16 s = a + b; _Float16 r = s * (_Float16)0.5f; _Float16 q = b / (_Float16)4; r = r - q;"
        "y[i] = __builtin_bit_cast(u16, r);",
        _half,
        SMALL,
    ),
    "bfloat16": ("y[i] = __builtin_bit_cast(u16, (__bf16)as_float(v));", _bf16, FLOATS),
    "rotation": ("uint s = x[i + 64] % 32; y[i] = v << s | v >> (32 - s) % 32;", _rotate, WORDS),
    "conversions": (
        "float a = (float)(int)v, b = (float)((u64)v << 13); uint c = (uint)((float)v / 3.0f);"
        "y[i] = as_uint(a) ^ as_uint(b) ^ c;",
        _convert,
        WORDS,
    ),
    "registers by a uniform index": (
        "words16 a; for (int k = 0; k < 16; ++k) a[k] = v * k;"
        "a[x[65] % 16] = 9; y[i] = a[x[64] % 16] + a[(x[64] >> 4) % 16];",
        _uniform,
        WORDS,
    ),
    "a large local array": (
        "uint a[100]; for (int k = 0; k < 100; ++k) a[k] = v ^ k; a[v % 100] = 3; y[i] = a[(v >> 8) % 100] + a[i];",
        _large,
        WORDS,
    ),
    "a pointer to any of three memories": (
        "__shared__ uint s[64]; uint a[6]; for (int k = 0; k < 6; ++k) a[k] = v + k; s[i] = v; wmma::sync_workgroup();"
        "y[i] = of_pointer(i % 3 == 0 ? s : i % 3 == 1 ? x + i : a, 6);",
        _three_memories,
        WORDS,
    ),
    "functions by pointer": (
        "Operation table[2] = {add, multiply}; y[i] = table[v & 1](v, i);",
        lambda x: np.where(x[:THREADS] & 1, x[:THREADS] * AT.astype(u32), x[:THREADS] + AT.astype(u32)),
        WORDS,
    ),
    "variables of the device": (
        "counters[i] += v; y[i] = counters[i] + as_uint(factors[v & 3] * 2.0f);",
        lambda x: (
            x[:THREADS]
            + np.array([5, 6, 7] + [0] * 61, u32)
            + np.array([3.0, 5.0, -2.0, 16.0], f32)[x[:THREADS] & 3].view(u32)
        ),
        WORDS,
    ),
    "a struct returned": (
        "Pair p = make(v, (double)i); y[i] = (uint)(p.a + (u64)p.b);",
        lambda x: x[:THREADS] * u32(3) + AT.astype(u32) * u32(2),
        WORDS,
    ),
    "an array of a size known when it runs": (
        "int n = (x[64] & 7) + 1; uint* p = (uint*)__builtin_alloca(4 * n); for (int k = 0; k < n; ++k) p[k] = v + k;"
        "y[i] = p[v % n];",
        lambda x: x[:THREADS] + x[:THREADS] % ((x[64] & u32(7)) + u32(1)),
        WORDS,
    ),
    "text": (
        'static const char s[] = "hello world, this is text"; static const char* const n[] = {"ab", "cde", "f"};'
        "y[i] = s[v % 25] + s[i % 25] + n[v % 3][0];",
        _text,
        WORDS,
    ),
    "larger and smaller": (
        "float a = as_float(v), b = as_float(x[i + 64]), l = __builtin_fminf(a, b), h = __builtin_fmaxf(a, b);"
        "y[i] = (l != l ? 0x7fc00000u : as_uint(l)) ^ (h != h ? 0x7fc00000u : as_uint(h)) >> 1;",
        _extremes,
        np.concatenate([FLOATS[:THREADS], np.resize(np.array([np.nan, 1.0, -2.0], f32).view(u32), THREADS)]),
    ),
    "classes of floats": (
        "float f = as_float(v); y[i] = __builtin_isnan(f) | __builtin_isinf(f) << 1 | __builtin_isfinite(f) << 2 |"
        " __builtin_isnormal(f) << 3 | (__builtin_signbit(f) ? 1 : 0) << 4 | __builtin_issubnormal(f) << 5 |"
        " __builtin_iszero(f) << 6 | __builtin_issignaling(f) << 7;",
        _classes,
        np.concatenate(
            [FLOATS[THREADS : THREADS + 10], np.array([0x7F800001, 0xFFC00000, 0x7FFFFFFF], u32), WORDS[:115]]
        ),
    ),
    "floats of all threads": (
        "float f = as_float((x[64] & 0x7fffff) | 0x3f800000), g = __builtin_fmaf(f, f, 1.5f);"
        "float t = __builtin_fmaxf(g, f) / f + __builtin_floorf(g) + __builtin_ceilf(f) - __builtin_rintf(g);"
        "y[i] = as_uint(t) + (uint)g + as_uint((float)(int)x[65]) + i;",
        _scalar_floats,
        WORDS,
    ),
    "128-bit products": (
        "unsigned __int128 p = (unsigned __int128)v * x[i + 64] * v * 77; y[i] = (uint)(p >> 64) ^ (uint)p;",
        _wide_product,
        WORDS,
    ),
    "sums that tell of overflow": (
        "u64 a = (u64)v << 32 | x[i + 64], b = (u64)x[i + 1] << 32 | v, c, d; int m;"
        "uint o = __builtin_add_overflow(a, b, &c), p = __builtin_sub_overflow(a, b, &d),"
        " q = __builtin_mul_overflow((int)v, i, &m); y[i] = (uint)(c >> 32) + o * 2 + p * 4 + q * 8 + (uint)d + m;",
        _checked,
        WORDS,
    ),
    "exponents": (
        "float f = as_float(v); int e; float m = __builtin_frexpf(f, &e);"
        "y[i] = __builtin_isfinite(f) ? as_uint(m) + e * 3 ^ as_uint(__builtin_ldexpf(f, i - 30)) : 0;",
        _exponents,
        FLOATS,
    ),
    "a loop of unknown length": (
        "uint n = v % 97 + 1, c = 0; while (n != 1) { n = n % 2 ? 3 * n + 1 : n / 2; ++c; } y[i] = c;",
        _collatz,
        WORDS,
    ),
}


# The clang that a kernel's language came with, and what older ones do.
SINCE = {
    "saturating sums of shorts": (20, "saturated sums of shorts are sums of ints"),
    "an array of a size known when it runs": (20, "arrays of a size known when it runs are refused"),
}


@functools.cache
def _kernel(name: str, *options: str) -> wmma_ops.Kernel:
    head = 'extern "C" __global__ void kernel(const uint* x, uint* y) { int i = threadIdx.x; uint v = x[i]; '
    return wmma_ops.Kernel(HELPERS + head + KERNELS[name][0] + " }", "kernel", options=options)


def _check(target: str, name: str, *options: str) -> None:
    version = jit.COMPILERS["clang"].version(target)
    first, why = SINCE.get(name, (0, ""))
    if int(version.rpartition("behind ")[2].split(".")[0]) < first:  # ROCm's generator names the front end last
        pytest.skip(f"clang {version}: before {first}, {why}")
    _, reference, words = KERNELS[name]
    x = torch.from_numpy(words.view(i32).copy())
    y = torch.zeros(THREADS, dtype=torch.int32)
    with wmma_ops.emulate(target):
        _kernel(name, *options)[1, THREADS](x, y)
    with np.errstate(over="ignore"):
        want = reference(words)
    got = y.numpy().view(u32)
    bad = np.flatnonzero(got != want)
    assert not len(bad), [(int(t), hex(got[t]), hex(want[t])) for t in bad[:4]]


@pytest.mark.parametrize("target", arch.EMULATED)
@pytest.mark.parametrize("name", KERNELS)
def test_natural_kernel(name, target):
    _check(target, name)


@pytest.mark.parametrize("target", ["gfx90a", "gfx1201"])
@pytest.mark.parametrize("name", KERNELS)
def test_without_optimisation(name, target):
    """The same through memory, calls and pointers that an optimiser would remove."""
    _check(target, name, "-O0")
