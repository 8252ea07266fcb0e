// Fast single-precision math: the hardware's approximations. Each function's line states its bound and the range it
// holds on, from what the vendors state of their instructions; rounding of the argument counts. Subnormal arguments and
// results may come out as zero. The functions of <wmma/math.hpp> are right everywhere.
#pragma once

#include <wmma/target.hpp>

namespace wmma {

// log2(e) and ln(2).
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// 2^x, relative error at most 2^-22, for x from -126 to 128.
WMMA_DEVICE float fast_exp2(float x) { return arch::exp2(x); }
// log2(x) for normal x > 0: error at most 2^-21·max(1, |log2(x)|).
WMMA_DEVICE float fast_log2(float x) { return arch::log2(x); }
// e^x, relative error at most 2^-22 + 2^-23·|x|, for x from -87.3 to 88.7.
WMMA_DEVICE float fast_exp(float x) { return arch::exp2(x * kLog2E); }
// ln(x) for normal x > 0: error at most 2^-21·max(1, |ln(x)|).
WMMA_DEVICE float fast_log(float x) { return arch::log2(x) * kLn2; }
// 1 / x, relative error at most 2^-22, for |x| from 2^-126 to 2^126.
WMMA_DEVICE float fast_rcp(float x) { return arch::rcp(x); }
// 1 / √x, relative error at most 2^-22, for normal x > 0.
WMMA_DEVICE float fast_rsqrt(float x) { return arch::rsqrt(x); }
// √x, relative error at most 2^-22, for normal x > 0, and 0 for 0.
WMMA_DEVICE float fast_sqrt(float x) { return arch::sqrt(x); }
// sin(x), x in radians, |x| ≤ 314: absolute error at most 2^-20 + 2^-23·|x|, so that small results have few right
// digits.
WMMA_DEVICE float fast_sin(float x) { return arch::sin(x); }
// cos(x), x in radians, |x| ≤ 314: absolute error at most 2^-20 + 2^-23·|x|, so that small results have few right
// digits.
WMMA_DEVICE float fast_cos(float x) { return arch::cos(x); }
// 1 / (1 + e^-x): relative error at most 2^-21 + 2^-23·|x| for x ≥ -87.3, and 0 for what is far below.
WMMA_DEVICE float fast_sigmoid(float x) { return arch::rcp(1.0f + fast_exp(-x)); }
// tanh(x), relative error at most 2^-20 for every x.
WMMA_DEVICE float fast_tanh(float x) {
  // (tanh(x) / x − 1) / x² in x², for |x| < 0.4: 2^-23 of tanh(x). Beyond, from the exponential of the magnitude, so
  // that large inputs give ±1 and never NaN.
  const float square = x * x;
  const float slope = arch::fma(arch::fma(-0.0477947034f, square, 0.132776409f), square, -0.33331883f);
  const float small = arch::fma(x * square, slope, x);
  const float decay = fast_exp(-2.0f * arch::abs(x));
  const float magnitude = (1.0f - decay) * arch::rcp(1.0f + decay);
  const float large = x < 0.0f ? -magnitude : magnitude;
  return arch::abs(x) < 0.4f ? small : large;
}

// a·b + c, rounded once.
WMMA_DEVICE float fast_fma(float a, float b, float c) { return arch::fma(a, b, c); }
// The smaller of both; the number where one is NaN.
WMMA_DEVICE float fast_min(float a, float b) { return arch::min(a, b); }
// The larger of both; the number where one is NaN.
WMMA_DEVICE float fast_max(float a, float b) { return arch::max(a, b); }
// |x|.
WMMA_DEVICE float fast_abs(float x) { return arch::abs(x); }
// The nearest integer, the even one of two.
WMMA_DEVICE float round_even(float x) { return arch::round_even(x); }

}  // namespace wmma
