// Fast single-precision math: the hardware's approximations, a few units in the last place.
#pragma once

#include <wmma/target.hpp>

namespace wmma {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

WMMA_DEVICE float fast_exp2(float x) { return arch::exp2(x); }
WMMA_DEVICE float fast_log2(float x) { return arch::log2(x); }
WMMA_DEVICE float fast_exp(float x) { return arch::exp2(x * kLog2E); }
WMMA_DEVICE float fast_log(float x) { return arch::log2(x) * kLn2; }
WMMA_DEVICE float fast_rcp(float x) { return arch::rcp(x); }
WMMA_DEVICE float fast_rsqrt(float x) { return arch::rsqrt(x); }
WMMA_DEVICE float fast_sqrt(float x) { return arch::sqrt(x); }
WMMA_DEVICE float fast_sin(float x) { return arch::sin(x); }
WMMA_DEVICE float fast_cos(float x) { return arch::cos(x); }
WMMA_DEVICE float fast_sigmoid(float x) { return arch::rcp(1.0f + fast_exp(-x)); }
// From the exponential of the magnitude, so that large inputs give ±1 and never NaN.
WMMA_DEVICE float fast_tanh(float x) {
  const float decay = fast_exp(-2.0f * arch::abs(x));
  const float magnitude = (1.0f - decay) * arch::rcp(1.0f + decay);
  return x < 0.0f ? -magnitude : magnitude;
}

WMMA_DEVICE float fast_fma(float a, float b, float c) { return arch::fma(a, b, c); }
WMMA_DEVICE float fast_min(float a, float b) { return arch::min(a, b); }
WMMA_DEVICE float fast_max(float a, float b) { return arch::max(a, b); }
WMMA_DEVICE float fast_abs(float x) { return arch::abs(x); }
WMMA_DEVICE float round_even(float x) { return arch::round_even(x); }

}  // namespace wmma
