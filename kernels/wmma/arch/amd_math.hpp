// What <wmma/math.hpp> takes from AMD's hardware beyond amd.hpp: single instructions, and the compiler's square root.
#pragma once

#include <wmma/arch/amd.hpp>

namespace wmma::arch {

WMMA_DEVICE double abs(double x) { return __builtin_fabs(x); }
WMMA_DEVICE float copysign(float x, float sign) { return __builtin_copysignf(x, sign); }
WMMA_DEVICE double copysign(double x, double sign) { return __builtin_copysign(x, sign); }
WMMA_DEVICE float floor(float x) { return __builtin_floorf(x); }
WMMA_DEVICE double floor(double x) { return __builtin_floor(x); }
WMMA_DEVICE float ceil(float x) { return __builtin_ceilf(x); }
WMMA_DEVICE double ceil(double x) { return __builtin_ceil(x); }
WMMA_DEVICE float trunc(float x) { return __builtin_truncf(x); }
WMMA_DEVICE double trunc(double x) { return __builtin_trunc(x); }

// Rounded correctly.
WMMA_DEVICE float exact_sqrt(float x) { return __builtin_sqrtf(x); }
WMMA_DEVICE double exact_sqrt(double x) { return __builtin_sqrt(x); }

// Within 2^-22, of normal numbers and to them; 2^-20 is what may be relied on in double.
WMMA_DEVICE float approximate_rcp(float x) { return __builtin_amdgcn_rcpf(x); }
WMMA_DEVICE double approximate_rcp(double x) { return __builtin_amdgcn_rcp(x); }
WMMA_DEVICE float approximate_exp2(float x) { return exp2(x); }
WMMA_DEVICE float approximate_rsqrt(float x) { return __builtin_amdgcn_rsqf(x); }
WMMA_DEVICE double approximate_rsqrt(double x) { return __builtin_amdgcn_rsq(x); }
constexpr bool kApproximatesSubnormalDoubles = true;

// x·2^exponent, rounded once; |exponent| < 2000 in double and 250 in float.
WMMA_DEVICE float scale(float x, int exponent) { return __builtin_amdgcn_ldexpf(x, exponent); }
WMMA_DEVICE double scale(double x, int exponent) { return __builtin_amdgcn_ldexp(x, exponent); }
// The same for any exponent.
WMMA_DEVICE float scale_any(float x, int exponent) { return __builtin_amdgcn_ldexpf(x, exponent); }
WMMA_DEVICE double scale_any(double x, int exponent) { return __builtin_amdgcn_ldexp(x, exponent); }

// x = mantissa·2^exponent with 0.5 ≤ |mantissa| < 1; 0 for the exponent of 0, and of infinity and NaN, whose mantissa
// is themselves.
WMMA_DEVICE float mantissa(float x) { return __builtin_amdgcn_frexp_mantf(x); }
WMMA_DEVICE double mantissa(double x) { return __builtin_amdgcn_frexp_mant(x); }
WMMA_DEVICE int exponent(float x) { return __builtin_amdgcn_frexp_expf(x); }
WMMA_DEVICE int exponent(double x) { return __builtin_amdgcn_frexp_exp(x); }

WMMA_DEVICE int leading_zeros(uint64_t x) { return __builtin_clzll(x); }

// The rounded product, which no later sum takes as a fused one.
WMMA_DEVICE float multiply(float a, float b) {
#pragma clang fp contract(off)
  return a * b;
}
WMMA_DEVICE double multiply(double a, double b) {
#pragma clang fp contract(off)
  return a * b;
}

}  // namespace wmma::arch
