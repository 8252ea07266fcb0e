// Math by C's names with an f for float, CUDA's intrinsics with two underscores, and the overloaded names without a
// prefix. What begins with __ and ends in f is the hardware's approximation, what ends in _rn is rounded once.
#pragma once

#include <wmma/math.hpp>

#if !defined(WMMA_HIP_NAMES) && !defined(INFINITY)
// Infinity and a NaN, as constants.
#define INFINITY __builtin_bit_cast(float, 0x7f800000)
#define NAN __builtin_bit_cast(float, 0x7fc00000)
#endif

#if !defined(WMMA_NVIDIA) && !defined(WMMA_HIP_NAMES)

// The overloads of wmma/math.hpp, for float, double and 16-bit types.
using wmma::abs;
using wmma::acos;
using wmma::acosh;
using wmma::asin;
using wmma::asinh;
using wmma::atan;
using wmma::atan2;
using wmma::atanh;
using wmma::cbrt;
using wmma::ceil;
using wmma::copysign;
using wmma::cos;
using wmma::cosh;
using wmma::cospi;
using wmma::erf;
using wmma::erfc;
using wmma::erfinv;
using wmma::exp;
using wmma::exp10;
using wmma::exp2;
using wmma::expm1;
using wmma::fabs;
using wmma::fdim;
using wmma::floor;
using wmma::fma;
using wmma::fmax;
using wmma::fmin;
using wmma::fmod;
using wmma::frexp;
using wmma::hypot;
using wmma::ilogb;
using wmma::isfinite;
using wmma::isinf;
using wmma::isnan;
using wmma::ldexp;
using wmma::log;
using wmma::log10;
using wmma::log1p;
using wmma::log2;
using wmma::logb;
using wmma::modf;
using wmma::nearbyint;
using wmma::nextafter;
using wmma::pow;
using wmma::remainder;
using wmma::rint;
using wmma::round;
using wmma::rsqrt;
using wmma::signbit;
using wmma::sin;
using wmma::sincos;
using wmma::sinh;
using wmma::sinpi;
using wmma::sqrt;
using wmma::tan;
using wmma::tanh;
using wmma::trunc;

#define WMMA_MATH_1(name) \
  WMMA_DEVICE float name##f(float x) { return wmma::name(x); }
#define WMMA_MATH_2(name) \
  WMMA_DEVICE float name##f(float x, float y) { return wmma::name(x, y); }

// The same for float alone.
WMMA_MATH_1(acos)
WMMA_MATH_1(acosh)
WMMA_MATH_1(asin)
WMMA_MATH_1(asinh)
WMMA_MATH_1(atan)
WMMA_MATH_1(atanh)
WMMA_MATH_1(cbrt)
WMMA_MATH_1(ceil)
WMMA_MATH_1(cos)
WMMA_MATH_1(cosh)
WMMA_MATH_1(cospi)
WMMA_MATH_1(erf)
WMMA_MATH_1(erfc)
WMMA_MATH_1(erfinv)
WMMA_MATH_1(exp)
WMMA_MATH_1(exp10)
WMMA_MATH_1(exp2)
WMMA_MATH_1(expm1)
WMMA_MATH_1(fabs)
WMMA_MATH_1(floor)
WMMA_MATH_1(log)
WMMA_MATH_1(log10)
WMMA_MATH_1(log1p)
WMMA_MATH_1(log2)
WMMA_MATH_1(logb)
WMMA_MATH_1(nearbyint)
WMMA_MATH_1(rint)
WMMA_MATH_1(round)
WMMA_MATH_1(rsqrt)
WMMA_MATH_1(sin)
WMMA_MATH_1(sinh)
WMMA_MATH_1(sinpi)
WMMA_MATH_1(sqrt)
WMMA_MATH_1(tan)
WMMA_MATH_1(tanh)
WMMA_MATH_1(trunc)
WMMA_MATH_2(atan2)
WMMA_MATH_2(copysign)
WMMA_MATH_2(fdim)
WMMA_MATH_2(fmax)
WMMA_MATH_2(fmin)
WMMA_MATH_2(fmod)
WMMA_MATH_2(hypot)
WMMA_MATH_2(nextafter)
WMMA_MATH_2(pow)
WMMA_MATH_2(remainder)
WMMA_DEVICE float fmaf(float x, float y, float z) { return wmma::fma(x, y, z); }
WMMA_DEVICE float frexpf(float x, int* exponent) { return wmma::frexp(x, exponent); }
WMMA_DEVICE float ldexpf(float x, int exponent) { return wmma::ldexp(x, exponent); }
WMMA_DEVICE float modff(float x, float* whole) { return wmma::modf(x, whole); }
WMMA_DEVICE int ilogbf(float x) { return wmma::ilogb(x); }
WMMA_DEVICE void sincosf(float x, float* sine, float* cosine) { wmma::sincos(x, sine, cosine); }
#undef WMMA_MATH_1
#undef WMMA_MATH_2

namespace wmma::compat {

template <class A, class B>
inline constexpr bool kAreNumbers = math::kRank<A> < math::kRefused && math::kRank<B> < math::kRefused;

}  // namespace wmma::compat

// The lesser and the greater of two numbers; of a number and a NaN the number.
template <class A, class B, wmma::EnableIf<wmma::compat::kAreNumbers<A, B>> = 0>
WMMA_DEVICE auto min(A a, B b) {
  using T = decltype(true ? a : b);
  const T p = a, q = b;
  return q < p || p != p ? q : p;
}
template <class A, class B, wmma::EnableIf<wmma::compat::kAreNumbers<A, B>> = 0>
WMMA_DEVICE auto max(A a, B b) {
  using T = decltype(true ? a : b);
  const T p = a, q = b;
  return q > p || p != p ? q : p;
}

// The hardware's approximations.
WMMA_DEVICE float __sinf(float x) { return wmma::fast_sin(x); }
WMMA_DEVICE float __cosf(float x) { return wmma::fast_cos(x); }
WMMA_DEVICE float __tanf(float x) { return wmma::fast_sin(x) * wmma::fast_rcp(wmma::fast_cos(x)); }
WMMA_DEVICE void __sincosf(float x, float* sine, float* cosine) {
  *sine = wmma::fast_sin(x);
  *cosine = wmma::fast_cos(x);
}
WMMA_DEVICE float __expf(float x) { return wmma::fast_exp(x); }
WMMA_DEVICE float __exp10f(float x) { return wmma::fast_exp2(x * 3.3219280948873623f); }
WMMA_DEVICE float __logf(float x) { return wmma::fast_log(x); }
WMMA_DEVICE float __log2f(float x) { return wmma::fast_log2(x); }
WMMA_DEVICE float __log10f(float x) { return wmma::fast_log2(x) * 0.30102999566398120f; }
WMMA_DEVICE float __powf(float x, float y) { return wmma::fast_exp2(y * wmma::fast_log2(x)); }
WMMA_DEVICE float __fdividef(float x, float y) { return x * wmma::fast_rcp(y); }

// x from 0 to 1.
WMMA_DEVICE float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

#define WMMA_ROUNDED(T, name, sign) \
  WMMA_DEVICE T name(T x, T y) { _Pragma("clang fp contract(off)") return x sign y; }

// Rounded once to nearest even, and never one with the next.
WMMA_ROUNDED(float, __fadd_rn, +)
WMMA_ROUNDED(float, __fsub_rn, -)
WMMA_ROUNDED(float, __fmul_rn, *)
WMMA_ROUNDED(float, __fdiv_rn, /)
WMMA_ROUNDED(double, __dadd_rn, +)
WMMA_ROUNDED(double, __dsub_rn, -)
WMMA_ROUNDED(double, __dmul_rn, *)
WMMA_ROUNDED(double, __ddiv_rn, /)
WMMA_DEVICE float __fmaf_rn(float x, float y, float z) { return wmma::fma(x, y, z); }
WMMA_DEVICE double __fma_rn(double x, double y, double z) { return wmma::fma(x, y, z); }
WMMA_DEVICE float __frcp_rn(float x) { return 1.0f / x; }
WMMA_DEVICE double __drcp_rn(double x) { return 1.0 / x; }
WMMA_DEVICE float __fsqrt_rn(float x) { return wmma::sqrt(x); }
WMMA_DEVICE double __dsqrt_rn(double x) { return wmma::sqrt(x); }
#undef WMMA_ROUNDED

#endif
