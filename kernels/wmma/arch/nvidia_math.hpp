// What <wmma/math.hpp> takes from NVIDIA's hardware beyond nvidia.hpp.
#pragma once

#include <wmma/arch/nvidia.hpp>

namespace wmma::arch {

WMMA_DEVICE double abs(double x) { return ::fabs(x); }
WMMA_DEVICE float copysign(float x, float sign) { return ::copysignf(x, sign); }
WMMA_DEVICE double copysign(double x, double sign) { return ::copysign(x, sign); }
WMMA_DEVICE float floor(float x) { return ::floorf(x); }
WMMA_DEVICE double floor(double x) { return ::floor(x); }
WMMA_DEVICE float ceil(float x) { return ::ceilf(x); }
WMMA_DEVICE double ceil(double x) { return ::ceil(x); }
WMMA_DEVICE float trunc(float x) { return ::truncf(x); }
WMMA_DEVICE double trunc(double x) { return ::trunc(x); }

// Rounded correctly.
WMMA_DEVICE float exact_sqrt(float x) { return ::__fsqrt_rn(x); }
WMMA_DEVICE double exact_sqrt(double x) { return ::__dsqrt_rn(x); }

// Within 2^-22 in float and 2^-20 in double, of normal numbers and to them: keeping denormals would double the
// instructions.
#define WMMA_APPROXIMATE(name, type, letter, instruction)    \
  WMMA_DEVICE type name(type x) {                            \
    type y;                                                  \
    asm(instruction " %0, %1;" : "=" letter(y) : letter(x)); \
    return y;                                                \
  }
WMMA_APPROXIMATE(approximate_rcp, float, "f", "rcp.approx.ftz.f32")
WMMA_APPROXIMATE(approximate_rcp, double, "d", "rcp.approx.ftz.f64")
WMMA_APPROXIMATE(approximate_exp2, float, "f", "ex2.approx.ftz.f32")
WMMA_APPROXIMATE(approximate_rsqrt, float, "f", "rsqrt.approx.ftz.f32")
WMMA_APPROXIMATE(approximate_rsqrt, double, "d", "rsqrt.approx.ftz.f64")
#undef WMMA_APPROXIMATE
constexpr bool kApproximatesSubnormalDoubles = false;

WMMA_DEVICE float least_or_nan(float x, float y) {
  float z;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}

// x·2^exponent in two steps, so that denormal results come out, rounded once; |exponent| < 2000 in double and 250 in
// float.
WMMA_DEVICE float scale(float x, int exponent) {
  const int half = exponent >> 1;
  return x * bit_cast<float>(static_cast<uint32_t>(127 + half) << 23) *
         bit_cast<float>(static_cast<uint32_t>(127 + exponent - half) << 23);
}
WMMA_DEVICE double scale(double x, int exponent) {
  const int half = exponent >> 1;
  const double first = bit_cast<double>(static_cast<uint64_t>(1023 + half) << 52);
  const double second = bit_cast<double>(static_cast<uint64_t>(1023 + exponent - half) << 52);
  return x * first * second;
}
// The same for any exponent.
WMMA_DEVICE float scale_any(float x, int exponent) { return ::ldexpf(x, exponent); }
WMMA_DEVICE double scale_any(double x, int exponent) { return ::ldexp(x, exponent); }

// x = mantissa·2^exponent with 0.5 ≤ |mantissa| < 1; 0 for the exponent of 0, and of infinity and NaN, whose mantissa
// is themselves.
WMMA_DEVICE float mantissa(float x) {
  int exponent;
  return ::frexpf(x, &exponent);
}
WMMA_DEVICE double mantissa(double x) {
  int exponent;
  return ::frexp(x, &exponent);
}
WMMA_DEVICE int exponent(float x) {
  int exponent;
  ::frexpf(x, &exponent);
  return exponent;
}
WMMA_DEVICE int exponent(double x) {
  int exponent;
  ::frexp(x, &exponent);
  return exponent;
}

WMMA_DEVICE int leading_zeros(uint64_t x) { return ::__clzll(static_cast<long long>(x)); }

// The rounded product, which no later sum takes as a fused one.
WMMA_DEVICE float multiply(float a, float b) { return ::__fmul_rn(a, b); }
WMMA_DEVICE double multiply(double a, double b) { return ::__dmul_rn(a, b); }

}  // namespace wmma::arch
