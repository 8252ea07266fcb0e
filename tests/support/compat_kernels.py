"""Kernels in the names of HIP, CUDA and rocWMMA, with what they are held to, on whatever machine."""

import math

import numpy as np
import torch
from machine import Machine

import wmma_ops

HEAD = "#include <hip/hip_runtime.h>\n#include <hip/hip_fp16.h>\n"


def lines_kernel(head: str, rows, parameters: str) -> wmma_ops.Kernel:
    """Every line's value into the result's place of the line's number, in one thread."""
    body = "\n".join(f"  r[{i}] = {line};" for i, (line, _) in enumerate(rows))
    return wmma_ops.Kernel(f"{head}\n__global__ void lines({parameters}) {{\n{body}\n}}", "lines")


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


def _bits(x: float) -> int:
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
    ("__umulhi(x, z)", _signed(X * Z >> 32)),
    ("__mulhi(y, x)", Y * X >> 32),
    ("__umul64hi(w, w) >> 8", _signed(WIDE * WIDE >> 72)),
    ("__mul24(y, x)", _signed(Y * (X - (1 << 24)))),
    ("__umul24(z, x)", _signed((Z & 0xFFFFFF) * X)),
    ("__sad(y, x, 3)", X + 5 + 3),
    ("__usad(x, z, 3)", _signed(Z - X + 3)),
    ("__hadd(y, x)", (Y + X) >> 1),
    ("__rhadd(y, x)", (Y + X + 1) >> 1),
    ("__float_as_int(f)", _bits(2.5)),
    ("__float_as_uint(-f)", _bits(-2.5)),
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
    ("__float_as_int(__int2float_rn(y))", _bits(-5.0)),
    ("__float_as_int(__uint2float_rn(z))", _bits(float(np.float32(Z)))),
    ("__float_as_int(__double2float_rn(f / 3.0))", _bits(2.5 / 3)),
    ("__int2double_rn(y) == -5.0", 1),
    # float4 and its kin
    ("make_float4(1, f, 3, 4).y == f && make_int2(x, y).y == y && make_uchar3(1, 2, 300 & 255).z == 44", 1),
    ("sizeof(float4) + sizeof(float3) * 100 + sizeof(double2) * 10000 + sizeof(uchar4) * 1000000", 4161216),
    ("alignof(float4) + alignof(float3) * 100 + alignof(short4) * 10000 + alignof(longlong4) * 1000000", 16080416),
    ("dim3(7).y + dim3(7, 8).x * 10 + dim3(1, 2, 3).z * 100", 371),
    ("reinterpret_cast<const int4*>(q)->w * 10 + __ldg(reinterpret_cast<const int2*>(q)).y", 42),
]


BITS_KERNEL = lines_kernel(HEAD, BITS, "int* r, int x, int y, unsigned z, unsigned long long w, float f, const int* q")


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
    ("__low2float(__float2half2_rn(c)) + __high2float(__floats2half2_rn(a, c))", 2 * HC),
    ("__half22float2(__halves2half2(__float2half(a), __float2half(b))).y", HB),
    ("__half2float(__low2half(__lowhigh2highlow(__floats2half2_rn(a, b))))", HB),
    ("__half2float(__high2half(__half2half2(__float2half(a))))", A),
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
    ("(float)hip_bfloat16(b) + (float)__hip_bfloat16(b)", 2 * BB),
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
    "float* r, float a, float b, float c, float e, float t, float n",
)


def check_halves(on: Machine):
    check_lines(on, HALVES_KERNEL, HALVES + BFLOATS, (A, B, C, EXACT, 2.0**-9, math.nan), torch.float32)


# What THREADS threads do to the place of the row's number, which holds the first number before and the second after.
THREADS = 96
ATOMICS = [
    ("atomicAdd(at, i)", 5, 5 + THREADS * (THREADS - 1) // 2),
    ("atomicAdd_block(at, 1)", 0, THREADS),
    ("atomicAdd_system(at, -1)", 0, -THREADS),
    ("atomicSub(at, 2)", 7, 7 - 2 * THREADS),
    ("atomicMin(at, i - 4)", 7, -4),
    ("atomicMax(at, 3 * i)", 7, 3 * THREADS - 3),
    ("atomicMin((unsigned*)at, i + 9)", -1, 9),
    ("atomicAnd(at, ~(1 << i % 9))", 1023, 512),
    ("atomicOr(at, 1 << i % 9)", 512, 1023),
    ("atomicXor(at, 1 << i % 32)", 1, 0xFFFFFFFE - (1 << 32) if THREADS // 32 % 2 else 1),
    ("atomicInc((unsigned*)at, 9)", 0, THREADS % 10),
    ("atomicDec((unsigned*)at, 9)", 0, -THREADS % 10),
    ("atomicExch(at, 6 + (i > THREADS))", 1, 6),
    ("atomicCAS(at, 0, i + 1 > 0)", 0, 1),
    ("atomicCAS_block(at, 3, 4)", 5, 5),
    ("atomicAdd((float*)at, 0.5f)", 0, _bits(THREADS / 2)),
    ("atomicMax_block(at, i)", 0, THREADS - 1),
    ("atomicAdd((__half2*)at, __floats2half2_rn(1, 2))", 0, 0x5A00 << 16 | 0x5600),
    ("atomicAdd(s, 1); __syncthreads(); if (i == 0) *at = *s", 0, THREADS),
    ("__threadfence(); __threadfence_block(); __threadfence_system(); atomicAdd(at, i % warpSize < 32)", 0, None),
]
_BODY = "\n".join(f"  {{ int* at = r + {n}; {line}; }}" for n, (line, _, _) in enumerate(ATOMICS))
ATOMICS_KERNEL = wmma_ops.Kernel(
    f"""{HEAD}
const int THREADS = {THREADS};
__global__ void __launch_bounds__(THREADS) atomics(int* r) {{
  __shared__ int s[1];
  const int i = threadIdx.x;
  if (i == 0) *s = 0;
  __syncthreads();
{_BODY}
}}""",
    "atomics",
)


def check_atomics(on: Machine):
    got = torch.tensor([before for _, before, _ in ATOMICS], dtype=torch.int32)
    on.run(ATOMICS_KERNEL, 1, THREADS, got)
    wanted = [after if after is not None else (THREADS if on.wave == 32 else 64) for _, _, after in ATOMICS]
    wrong = [
        f"{line} leaves {found} for {value}"
        for (line, _, _), found, value in zip(ATOMICS, got.tolist(), wanted, strict=True)
        if found != value
    ]
    assert not wrong, "\n".join(wrong)


KERNELS = {"bits": BITS_KERNEL, "halves": HALVES_KERNEL, "atomics": ATOMICS_KERNEL}
