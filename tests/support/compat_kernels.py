"""Kernels in the names of HIP, CUDA and rocWMMA, with what they are held to, on whatever machine."""

import math

import numpy as np
import torch
from machine import Machine

import wmma_ops

HEAD = "#include <hip/hip_runtime.h>\n#include <hip/hip_fp16.h>\n"


def lines_kernel(head: str, rows, parameters: str, before: str = "") -> wmma_ops.Kernel:
    """Every row's expression into the result's place of the row's number, in one thread."""
    body = "\n".join(f"  r[{i}] = {row[0]};" for i, row in enumerate(rows))
    return wmma_ops.Kernel(f"{head}\n__global__ void lines({parameters}) {{\n  {before}\n{body}\n}}", "lines")


def check_lines(on: Machine, kernel: wmma_ops.Kernel, rows, arguments, dtype):
    """Rows of (expression, its value)."""
    got = torch.full((len(rows),), 77, dtype=dtype)
    on.run(kernel, 1, 1, got, *arguments)
    wanted = torch.tensor([value for _, value in rows], dtype=dtype)
    wrong = [
        f"{line} is {found.item()} for {value.item()}"
        for (line, _), found, value in zip(rows, got, wanted, strict=True)
        if not (found == value or (found != found and value != value))
    ]
    assert not wrong, "\n".join(wrong)


def _signed(x: int) -> int:
    return (x & 0xFFFFFFFF) - ((x & 0x80000000) << 1)


def float_bits(x: float) -> int:
    return int(np.float32(x).view(np.int32))


# With x = 0x00f0a001, y = -5, z = 0x89abcdef as given to the kernel, so that nothing is known to the compiler.
X, Y, Z = 0x00F0A001, -5, 0x89ABCDEF
WIDE = (X << 32) | Z
BITS = [
    ("__popc(x)", X.bit_count()),
    ("__popcll(w)", WIDE.bit_count()),
    ("__clz(x)", 8),
    ("__clz(x - x)", 32),
    ("__clzll(w)", 8),
    ("__clzll(w - w)", 64),
    ("__ffs(x)", 1),
    ("__ffs(x << 9)", 10),
    ("__ffs(x - x)", 0),
    ("__ffsll((long long)(w << 5))", 6),
    ("__brev(x)", _signed(int(f"{X:032b}"[::-1], 2))),
    ("__brevll(w) >> 32", _signed(int(f"{WIDE:064b}"[::-1], 2) >> 32)),
    ("__byte_perm(x, z, 0x7041)", _signed(0x8901EFA0)),
    ("__funnelshift_l(z, x, 36)", _signed((WIDE << 4) >> 32)),
    ("__funnelshift_r(z, x, 36)", _signed(WIDE >> 4)),
    ("sizeof(size_t) * 256 + sizeof(ptrdiff_t)", 0x808),
    ("size_t(y) > x && ptrdiff_t(y) < 0", 1),
    ("__umulhi(x, z)", _signed(X * Z >> 32)),
    ("__mulhi(y, x)", Y * X >> 32),
    ("__umul64hi(w, w) >> 8", _signed(WIDE * WIDE >> 72)),
    ("__mul24(y, x)", _signed(Y * (X - (1 << 24)))),
    ("__umul24(z, x)", _signed((Z & 0xFFFFFF) * X)),
    ("__sad(y, x, 3)", X + 5 + 3),
    ("__usad(x, z, 3)", _signed(Z - X + 3)),
    ("__hadd(y, x)", (Y + X) >> 1),
    ("__rhadd(y, x)", (Y + X + 1) >> 1),
    ("__float_as_int(f)", float_bits(2.5)),
    ("__float_as_uint(-f)", float_bits(-2.5)),
    ("__float_as_int(__int_as_float(x))", X),
    ("__float_as_int(__uint_as_float(x))", X),
    ("__double2hiint(-(double)f)", _signed(int(np.float64(-2.5).view(np.uint64)) >> 32)),
    ("__double2loint(f / 3.0)", _signed(int(np.float64(2.5 / 3).view(np.uint64)))),
    ("__double2hiint(__hiloint2double(x, y))", X),
    ("__double2loint(__longlong_as_double(__double_as_longlong(__hiloint2double(x, y))))", Y),
    ("__float2int_rn(f)", 2),
    ("__float2int_rn(-f - 1)", -4),
    ("__float2int_rz(-f)", -2),
    ("__float2uint_rn(f + 1)", 4),
    ("__float2uint_rz(f)", 2),
    ("__double2int_rn(f)", 2),
    ("__double2int_rz(-f)", -2),
    ("__float_as_int(__int2float_rn(y))", float_bits(-5.0)),
    ("__float_as_int(__uint2float_rn(z))", float_bits(float(np.float32(Z)))),
    ("__float_as_int(__double2float_rn(f / 3.0))", float_bits(2.5 / 3)),
    ("__int2double_rn(y) == -5.0", 1),
    # float4 and its kin
    ("make_float4(1, f, 3, 4).y == f && make_int2(x, y).y == y && make_uchar3(1, 2, 300 & 255).z == 44", 1),
    ("sizeof(float4) + sizeof(float3) * 100 + sizeof(double2) * 10000 + sizeof(uchar4) * 1000000", 4161216),
    ("alignof(float4) + alignof(float3) * 100 + alignof(short4) * 10000 + alignof(longlong4) * 1000000", 16080416),
    ("uchar(300) + ushort(70000) + (int)ulong(1) + (int)longlong(-2) + (int)ulonglong(3) + uint(4)", 44 + 4464 + 6),
    ("int16_t(70000) + uint8_t(300) + (int)sizeof(int64_t) + (int)sizeof(uint64_t)", 4464 + 44 + 16),
    ("clock_t(clock64() >= 0) + (clock() >= 0)", 2),
    ("dim3(7).y + dim3(7, 8).x * 10 + dim3(1, 2, 3).z * 100", 371),
    ("reinterpret_cast<const int4*>(q)->w * 10 + __ldg(reinterpret_cast<const int2*>(q)).y", 42),
]


BITS_KERNEL = lines_kernel(
    f"#include <cstddef>\n#include <stddef.h>\n{HEAD}",
    BITS,
    "int* r, int x, int y, unsigned z, unsigned long long w, float f, const int* q",
)


def check_bits(on: Machine):
    q = torch.tensor([1, 2, 3, 4], dtype=torch.int32)
    check_lines(on, BITS_KERNEL, BITS, (X, Y, Z, WIDE, 2.5, q), torch.int32)


def _half(x: float, dtype: torch.dtype = torch.float16) -> float:
    return torch.tensor(x, dtype=torch.float64).to(dtype).item()


# a = 1.5, b = -0.333…, c = 2049 (no half), as floats; the results as floats.
A, B, C = 1.5, float(np.float32(-1 / 3)), 2049.0
HB, HC = _half(B), _half(C)
EXACT = 1 + 2.0**-10  # 1 + ulp: its square less 1 needs the product's every digit
HALVES = [
    ("__half2float(__float2half(c))", HC),
    ("__half2float(__float2half_rn(b))", HB),
    ("(float)__half(b)", HB),
    ("(float)half(b) + __high2float(half2{__float2half(a), __float2half(b)})", 2 * HB),
    ("__low2float(__float2half2_rn(c)) + __high2float(__floats2half2_rn(a, c))", 2 * HC),
    ("__half22float2(__halves2half2(__float2half(a), __float2half(b))).y", HB),
    ("__half2float(__low2half(__lowhigh2highlow(__floats2half2_rn(a, b))))", HB),
    ("__half2float(__high2half(__half2half2(__float2half(a))))", A),
    (
        "__low2float(__float22half2_rn(make_float2(c, a))) + __high2float(make_half2(__float2half(a), __float2half(b)))",
        HC + HB,
    ),
    ("__half2float(__short_as_half(0x3e01))", 1.5 + 2.0**-10),
    ("__low2float(__highs2half2(__floats2half2_rn(a, b), __floats2half2_rn(b, a)))", HB),
    ("__high2float(__lows2half2(__floats2half2_rn(a, b), __floats2half2_rn(b, a)))", HB),
    ("__high2float(__low2half2(__floats2half2_rn(a, b))) + __low2float(__high2half2(__floats2half2_rn(a, b)))", A + HB),
    ("__half_as_ushort(__float2half(a)) + __half_as_short(__float2half(a))", 2 * 0x3E00),
    ("__half2float(__ushort_as_half(0x3e01))", 1.5 + 2.0**-10),
    ("__half2int_rn(__float2half(a + 1)) + 10 * __half2int_rz(__float2half(-a))", 2 - 10),
    ("__half2float(__int2half_rn((int)c))", HC),
    ("__half2float(__hadd(__float2half(a), __float2half(b)))", _half(A + HB)),
    ("__half2float(__hsub(__float2half(a), __float2half(b)))", _half(A - HB)),
    ("__half2float(__hmul(__float2half(b), __float2half(b)))", _half(HB * HB)),
    ("__half2float(__hdiv(__float2half(a), __float2half(b)))", _half(A / HB)),
    ("__half2float(__hfma(__float2half(e), __float2half(e), __float2half(-1 - t)))", _half(EXACT * EXACT - 1 - 2**-9)),
    # a little more than halfway between two halves, by less than float tells
    ("__half2float(__hfma(__float2half(p), __float2half(q), __float2half(1)))", 1 + 2.0**-10),
    ("__low2float(__hfma2(__float2half2_rn(e), __float2half2_rn(e), __float2half2_rn(t)))", _half(EXACT**2 + 2**-9)),
    ("__high2float(__hadd2(__floats2half2_rn(a, a), __floats2half2_rn(a, b)))", _half(A + HB)),
    ("__high2float(__hmul2(__floats2half2_rn(a, a), __floats2half2_rn(a, b)))", _half(A * HB)),
    ("__high2float(__hsub2(__floats2half2_rn(a, a), __floats2half2_rn(a, b)))", _half(A - HB)),
    ("__high2float(__h2div(__floats2half2_rn(a, a), __floats2half2_rn(a, b)))", _half(A / HB)),
    ("__half2float(__hneg(__float2half(b))) + __half2float(__habs(__float2half(b)))", -2 * HB),
    ("__half2float(__hmin(__float2half(a), __float2half(b)))", HB),
    ("__half2float(__hmax(__float2half(n), __float2half(b)))", HB),
    ("__hlt(__float2half(b), __float2half(a)) + 10 * __hge(__float2half(b), __float2half(a))", 1),
    ("__heq(__float2half(n), __float2half(n)) + 10 * __hne(__float2half(n), __float2half(n))", 10),
    ("__hgt(__float2half(b), __float2half(a)) + 10 * __hle(__float2half(b), __float2half(a))", 10),
    ("__high2float(__hlt2(__floats2half2_rn(a, b), __floats2half2_rn(a, a)))", 1),
    ("__hisnan(__float2half(n)) + 10 * __hisinf(__float2half(-1e30f * a)) + 100 * __hisinf(__float2half(n))", -9),
]
BF16 = torch.bfloat16
BB, BC = _half(B, BF16), _half(C, BF16)
BFLOATS = [
    ("__bfloat162float(__float2bfloat16(c))", BC),
    ("__bfloat162float(__float2bfloat16_rn(b))", BB),
    (
        "__bfloat162float(__nv_bfloat16(b)) + __low2float(__hip_bfloat162{b, a}) + __high2float(__nv_bfloat162{b, a})",
        2 * BB + A,
    ),
    ("(float)hip_bfloat16(b) + (float)__hip_bfloat16(b)", 2 * BB),
    ("(float)nv_bfloat16(b) + __low2float(nv_bfloat162{b, a})", 2 * BB),
    ("__low2float(__floats2bfloat162_rn(b, a)) + __high2float(__float2bfloat162_rn(c))", BB + BC),
    ("__bfloat1622float2(__halves2bfloat162(__float2bfloat16(a), __float2bfloat16(b))).y", BB),
    ("__bfloat162float(__high2bfloat16(__bfloat162bfloat162(__float2bfloat16(b))))", BB),
    ("__bfloat162float(__low2bfloat16(__float22bfloat162_rn(make_float2(b, a))))", BB),
    ("__bfloat16_as_ushort(__float2bfloat16(a)) + __bfloat162float(__ushort_as_bfloat16(0x3fc0))", 0x3FC0 + 1.5),
    ("__bfloat162float(__hadd(__float2bfloat16(a), __float2bfloat16(b)))", _half(A + BB, BF16)),
    ("__bfloat162float(__hmul(__float2bfloat16(b), __float2bfloat16(b)))", _half(BB * BB, BF16)),
    (
        "__bfloat162float(__hfma(__float2bfloat16(b), __float2bfloat16(b), __float2bfloat16(a)))",
        _half(BB * BB + A, BF16),
    ),
    ("__high2float(__hadd2(__floats2bfloat162_rn(a, a), __floats2bfloat162_rn(a, b)))", _half(A + BB, BF16)),
    ("__hlt(__float2bfloat16(b), __float2bfloat16(a))", 1),
]


HALVES_KERNEL = lines_kernel(
    f"{HEAD}#include <hip/hip_bf16.h>\n",
    HALVES + BFLOATS,
    "float* r, float a, float b, float c, float e, float t, float n, float p, float q",
)


def check_halves(on: Machine):
    check_lines(
        on,
        HALVES_KERNEL,
        HALVES + BFLOATS,
        (A, B, C, EXACT, 2.0**-9, math.nan, 1141 / 2**10, 1838 / 2**22),
        torch.float32,
    )


# Of x = 0.7, y = 1.9, z = -2.5 and n = NaN, what names of math give; the hardware's approximations to fewer digits.
X1, Y1, Z1 = (float(np.float32(v)) for v in (0.7, 1.9, -2.5))
ONE = "trunc acos asin asinh atan atanh ceil cos cosh erf erfc exp expm1 floor log log10 log1p log2 sin sinh sqrt tan tanh"
TWO = "atan2 copysign fmod hypot pow remainder"
MATH = [
    *((f"{name}f(x)", getattr(math, name)(X1), 3e-7) for name in ONE.split()),
    *((f"{name}(x)", getattr(math, name)(X1), 3e-7) for name in ONE.split()),
    *((f"{name}f(y, z)", getattr(math, name)(Y1, Z1), 3e-7) for name in TWO.split()),
    *((f"{name}(y, z)", getattr(math, name)(Y1, Z1), 3e-7) for name in TWO.split()),
    ("acoshf(y)", math.acosh(Y1), 3e-7),
    ("cbrtf(z) + fabsf(z) + fabs(z) - 5", -(2.5 ** (1 / 3)), 3e-7),
    ("exp2f(z) + exp2(x)", 2**Z1 + 2**X1, 3e-7),
    ("exp10f(x)", 10**X1, 3e-7),
    ("rsqrtf(y)", Y1**-0.5, 3e-7),
    ("rintf(z) + nearbyintf(z) * 10 + roundf(z) * 100", -322, 0),
    ("sinpif(x) + cospif(x)", math.sin(math.pi * X1) + math.cos(math.pi * X1), 1e-6),
    ("fmaxf(y, n) + fminf(z, n) + fdimf(y, z)", Y1 + Z1 + Y1 - Z1, 3e-7),
    ("fmaf(x, y, z)", X1 * Y1 + Z1, 3e-7),
    ("ldexpf(x, 3) + ilogbf(y) + logbf(z)", 8 * X1 + 1, 3e-7),
    ("nextafterf(x, y) > x", 1, 0),
    ("isnan(n) + 10 * isinf(1 / (x - x)) + 100 * isfinite(x) + 1000 * signbit(z)", 1111, 0),
    ("(v = frexpf(y, &e), v + 10 * e)", Y1 / 2 + 10, 3e-7),
    ("(v = modff(z, &w), v + 10 * w)", -20.5, 3e-7),
    ("(sincosf(x, &v, &w), v - w)", math.sin(X1) - math.cos(X1), 3e-6),
    ("pow(-2.0f, 3.0f)", -8, 0),
    ("min(x, y) + max(2, 3) + min(1u, 2u) + max(x, n) + abs(-3)", X1 + 3 + 1 + X1 + 3, 3e-7),
    ("__sinf(x) + __cosf(y)", math.sin(X1) + math.cos(Y1), 1e-5),
    ("__tanf(x)", math.tan(X1), 1e-5),
    ("(__sincosf(x, &v, &w), v)", math.sin(X1), 1e-5),
    ("__expf(y) + __exp10f(x)", math.exp(Y1) + 10**X1, 1e-5),
    ("__logf(y) + __log2f(y) + __log10f(y)", math.log(Y1) + math.log2(Y1) + math.log10(Y1), 1e-5),
    ("__powf(y, z)", Y1**Z1, 1e-5),
    ("__fdividef(y, z)", Y1 / Z1, 1e-5),
    ("__saturatef(z) + __saturatef(x) + __saturatef(y) + __saturatef(n)", X1 + 1, 3e-7),
    ("__fadd_rn(__fmul_rn(c, c), -d)", 0, 0),
    ("__fmaf_rn(c, c, -d) == 0", 0, 0),
    ("__fsub_rn(y, x) + __fdiv_rn(y, x)", Y1 - X1 + Y1 / X1, 3e-7),
    ("__dadd_rn(x, y) + __dsub_rn(x, y) + __dmul_rn(x, y) + __ddiv_rn(x, y)", 2 * X1 + X1 * Y1 + X1 / Y1, 3e-7),
    ("__fma_rn(x, y, z) + __frcp_rn(x) + __drcp_rn(x)", X1 * Y1 + Z1 + 2 / X1, 3e-7),
    ("__fsqrt_rn(y) + __dsqrt_rn(y)", 2 * Y1**0.5, 3e-7),
]
MATH_KERNEL = lines_kernel(
    "#include <cmath>\n#include <hip/hip_runtime.h>\n",
    MATH,
    "float* r, float x, float y, float z, float n, float c, float d",
    "int e; float v, w;",
)


def check_math(on: Machine):
    got = torch.full((len(MATH),), torch.nan)
    c = float(np.float32(1 + 2**-12))  # its square takes 25 digits
    on.run(MATH_KERNEL, 1, 1, got, X1, Y1, Z1, math.nan, c, float(np.float32(c * c)))
    wrong = [
        f"{line} is {found} for {value}"
        for (line, value, bound), found in zip(MATH, got.tolist(), strict=True)
        if not abs(found - value) <= bound * max(abs(value), 1e-3)
    ]
    assert not wrong, "\n".join(wrong)


KERNELS = {"bits": BITS_KERNEL, "halves": HALVES_KERNEL, "math": MATH_KERNEL}
