// The 16-bit floats by the names of cuda_fp16.h, cuda_bf16.h and HIP's: __half and __half2 are half_t and two of them,
// __nv_bfloat16, __hip_bfloat16 and hip_bfloat16 are bf16_t. Where the vendor's own header was included first, its
// names stay.
#pragma once

#include <wmma/compat/vector_types.hpp>
#include <wmma/types.hpp>

namespace wmma::compat {

// Two 16-bit floats in a word.
template <class T>
struct alignas(4) Pair {
  T x, y;
};

#ifdef WMMA_AMD
using float16_t = _Float16;
#else
using float16_t = half_t;
#endif

template <class T>
WMMA_DEVICE T with_bits(uint32_t bits) {
  return arch::bit_cast<T>(static_cast<uint16_t>(bits));
}

// a·b + c rounded once. The sum is right in double; its way to T leads through a float rounded to odd, which keeps what
// the last rounding has to know.
template <class T>
WMMA_DEVICE T fused(T a, T b, T c) {
  const double sum = arch::fma(static_cast<double>(static_cast<float>(a)), static_cast<double>(static_cast<float>(b)),
                               static_cast<double>(static_cast<float>(c)));
  const float nearest = static_cast<float>(sum);
  const double rest = sum - static_cast<double>(nearest);
  uint32_t bits = arch::bit_cast<uint32_t>(nearest);
  if (rest != 0 && (bits & 1) == 0) bits += (rest > 0) == (nearest > 0) ? 1u : ~0u;
  return T(arch::bit_cast<float>(bits));
}

}  // namespace wmma::compat

#if defined(WMMA_HIP_NAMES)
// HIP's compiler brings __half; its bf16 is in a header of its own.
#elif defined(__CUDA_FP16_H__)
#else

// A 16-bit float, and two of them in a word.
using __half = wmma::half_t;
using __half2 = wmma::compat::Pair<wmma::half_t>;

// float to half and back.
WMMA_DEVICE __half __float2half(float x) { return x; }
WMMA_DEVICE __half __float2half_rn(float x) { return x; }
WMMA_DEVICE float __half2float(__half x) { return x; }
WMMA_DEVICE __half2 __float2half2_rn(float x) { return {x, x}; }
WMMA_DEVICE __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
WMMA_DEVICE __half2 __float22half2_rn(float2 x) { return {x.x, x.y}; }
WMMA_DEVICE float2 __half22float2(__half2 x) { return {x.x, x.y}; }

// Integers to half and back.
WMMA_DEVICE __half __int2half_rn(int x) { return wmma::convert<__half>(x); }
WMMA_DEVICE int __half2int_rn(__half x) { return static_cast<int>(wmma::arch::round_even(static_cast<float>(x))); }
WMMA_DEVICE int __half2int_rz(__half x) { return static_cast<int>(static_cast<float>(x)); }
WMMA_DEVICE unsigned short __half_as_ushort(__half x) { return x.bits; }
WMMA_DEVICE short __half_as_short(__half x) { return static_cast<short>(x.bits); }
WMMA_DEVICE __half __ushort_as_half(unsigned short x) { return wmma::arch::bit_cast<__half>(x); }
WMMA_DEVICE __half __short_as_half(short x) { return wmma::arch::bit_cast<__half>(x); }

// The parts of a pair.
WMMA_DEVICE __half2 __halves2half2(__half x, __half y) { return {x, y}; }
WMMA_DEVICE __half2 __half2half2(__half x) { return {x, x}; }
WMMA_DEVICE __half2 make_half2(__half x, __half y) { return {x, y}; }
WMMA_DEVICE __half __low2half(__half2 x) { return x.x; }
WMMA_DEVICE __half __high2half(__half2 x) { return x.y; }
WMMA_DEVICE float __low2float(__half2 x) { return x.x; }
WMMA_DEVICE float __high2float(__half2 x) { return x.y; }
WMMA_DEVICE __half2 __low2half2(__half2 x) { return {x.x, x.x}; }
WMMA_DEVICE __half2 __high2half2(__half2 x) { return {x.y, x.y}; }
WMMA_DEVICE __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
WMMA_DEVICE __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
WMMA_DEVICE __half2 __lowhigh2highlow(__half2 x) { return {x.y, x.x}; }

#endif

#if !defined(__CUDA_BF16_H__) && !defined(_HIP_INCLUDE_HIP_AMD_DETAIL_HIP_BFLOAT16_H_)

// A bf16, and two of them in a word.
using hip_bfloat16 = wmma::bf16_t;
using __hip_bfloat16 = wmma::bf16_t;
using __nv_bfloat16 = wmma::bf16_t;
using nv_bfloat16 = wmma::bf16_t;
using __hip_bfloat162 = wmma::compat::Pair<wmma::bf16_t>;
using __nv_bfloat162 = wmma::compat::Pair<wmma::bf16_t>;
using nv_bfloat162 = wmma::compat::Pair<wmma::bf16_t>;

// float to bf16 and back.
WMMA_DEVICE __nv_bfloat16 __float2bfloat16(float x) { return x; }
WMMA_DEVICE __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
WMMA_DEVICE float __bfloat162float(__nv_bfloat16 x) { return x; }
WMMA_DEVICE __nv_bfloat162 __float2bfloat162_rn(float x) { return {x, x}; }
WMMA_DEVICE __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
WMMA_DEVICE __nv_bfloat162 __float22bfloat162_rn(float2 x) { return {x.x, x.y}; }
WMMA_DEVICE float2 __bfloat1622float2(__nv_bfloat162 x) { return {x.x, x.y}; }
WMMA_DEVICE unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
WMMA_DEVICE __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return wmma::arch::bit_cast<__nv_bfloat16>(x); }

// The parts of a pair.
WMMA_DEVICE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
WMMA_DEVICE __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
WMMA_DEVICE __nv_bfloat16 __low2bfloat16(__nv_bfloat162 x) { return x.x; }
WMMA_DEVICE __nv_bfloat16 __high2bfloat16(__nv_bfloat162 x) { return x.y; }
WMMA_DEVICE float __low2float(__nv_bfloat162 x) { return x.x; }
WMMA_DEVICE float __high2float(__nv_bfloat162 x) { return x.y; }

#endif

#define WMMA_HALF_VALUE(T, name, expression)                                                    \
  WMMA_DEVICE T name(T a, T b) {                                                                \
    const float p = a, q = b;                                                                   \
    return T(expression);                                                                       \
  }                                                                                             \
  WMMA_DEVICE wmma::compat::Pair<T> name##2(wmma::compat::Pair<T> a, wmma::compat::Pair<T> b) { \
    return {name(a.x, b.x), name(a.y, b.y)};                                                    \
  }
#define WMMA_HALF_TEST(T, name, sign)                                                           \
  WMMA_DEVICE bool name(T a, T b) { return static_cast<float>(a) sign static_cast<float>(b); }  \
  WMMA_DEVICE wmma::compat::Pair<T> name##2(wmma::compat::Pair<T> a, wmma::compat::Pair<T> b) { \
    return {T(name(a.x, b.x) ? 1.0f : 0.0f), T(name(a.y, b.y) ? 1.0f : 0.0f)};                  \
  }
#define WMMA_HALF_SIGN(T, name, change)                                         \
  WMMA_DEVICE T name(T a) { return wmma::compat::with_bits<T>(a.bits change); } \
  WMMA_DEVICE wmma::compat::Pair<T> name##2(wmma::compat::Pair<T> a) { return {name(a.x), name(a.y)}; }
#define WMMA_HALF_FUNCTIONS(T)                                                                  \
  WMMA_HALF_VALUE(T, __hadd, p + q)                                                             \
  WMMA_HALF_VALUE(T, __hsub, p - q)                                                             \
  WMMA_HALF_VALUE(T, __hmul, p* q)                                                              \
  WMMA_HALF_VALUE(T, __hmin, wmma::arch::min(p, q))                                             \
  WMMA_HALF_VALUE(T, __hmax, wmma::arch::max(p, q))                                             \
  WMMA_HALF_TEST(T, __heq, ==)                                                                  \
  WMMA_HALF_TEST(T, __hne, !=)                                                                  \
  WMMA_HALF_TEST(T, __hlt, <)                                                                   \
  WMMA_HALF_TEST(T, __hle, <=)                                                                  \
  WMMA_HALF_TEST(T, __hgt, >)                                                                   \
  WMMA_HALF_TEST(T, __hge, >=)                                                                  \
  WMMA_HALF_SIGN(T, __hneg, ^0x8000u)                                                           \
  WMMA_HALF_SIGN(T, __habs, &0x7fffu)                                                           \
  WMMA_DEVICE T __hdiv(T a, T b) { return T(static_cast<float>(a) / static_cast<float>(b)); }   \
  WMMA_DEVICE wmma::compat::Pair<T> __h2div(wmma::compat::Pair<T> a, wmma::compat::Pair<T> b) { \
    return {__hdiv(a.x, b.x), __hdiv(a.y, b.y)};                                                \
  }                                                                                             \
  WMMA_DEVICE T __hfma(T a, T b, T c) { return wmma::compat::fused(a, b, c); }                  \
  WMMA_DEVICE wmma::compat::Pair<T> __hfma2(wmma::compat::Pair<T> a, wmma::compat::Pair<T> b,   \
                                            wmma::compat::Pair<T> c) {                          \
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};                                      \
  }                                                                                             \
  WMMA_DEVICE bool __hisnan(T a) { return static_cast<float>(a) != static_cast<float>(a); }     \
  WMMA_DEVICE int __hisinf(T a) {                                                               \
    const float x = a;                                                                          \
    return x - x != x - x && x == x ? (x > 0 ? 1 : -1) : 0;                                     \
  }

#if !defined(WMMA_HIP_NAMES) && !defined(__CUDA_FP16_H__)
// Arithmetic, rounded once, and comparisons; of pairs by element, where a comparison gives 1 or 0 in each.
WMMA_HALF_FUNCTIONS(wmma::half_t)
#endif
#if !defined(__CUDA_BF16_H__) && !defined(_HIP_INCLUDE_HIP_AMD_DETAIL_HIP_BFLOAT16_H_)
// Arithmetic, rounded once, and comparisons; of pairs by element, where a comparison gives 1 or 0 in each.
WMMA_HALF_FUNCTIONS(wmma::bf16_t)
#endif
#undef WMMA_HALF_VALUE
#undef WMMA_HALF_TEST
#undef WMMA_HALF_SIGN
#undef WMMA_HALF_FUNCTIONS
