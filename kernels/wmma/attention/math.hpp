// What softmax is computed with, in the accumulator's type: float in powers of 2, double in powers of e.
#pragma once

#include <wmma/exact_math.hpp>

namespace wmma {

template <class Number>
struct Softmax;

template <>
struct Softmax<float> {
  static constexpr float kUnit = kLog2E;  // scores are multiples of it
  static WMMA_DEVICE float exp(float x) { return arch::approximate_exp2(x); }
  // The logarithm of a sum of exponentials that is `largest` (in our unit) and the sum relative to it.
  static WMMA_DEVICE float log_sum(float largest, float sum) { return (largest + arch::log2(sum)) * kLn2; }
  static WMMA_DEVICE float inverse(float x) { return arch::approximate_rcp(x); }
  static WMMA_DEVICE float max(float x, float y) { return arch::max(x, y); }
  static WMMA_DEVICE float infinity() { return arch::bit_cast<float>(0x7f800000u); }
};

template <>
struct Softmax<double> {
  static constexpr double kUnit = 1.0;
  static WMMA_DEVICE double exp(double x) { return exact::decay(exact::at_most(800.0, -x)); }
  static WMMA_DEVICE double log_sum(double largest, double sum) {
    // Halley's step from the float logarithm, whose error it takes to the third power.
    const double y = static_cast<double>(arch::log2(static_cast<float>(sum)) * kLn2);
    const double power = exact::divide(1.0, exact::decay(y));
    return largest + y + 2.0 * exact::divide(sum - power, sum + power);
  }
  static WMMA_DEVICE double inverse(double x) { return exact::divide(1.0, x); }
  static WMMA_DEVICE double max(double x, double y) { return x > y ? x : y; }
  static WMMA_DEVICE double infinity() { return arch::bit_cast<double>(uint64_t{0x7ff0000000000000}); }
};

// What scores are multiplied by, as a positive factor in our unit, and what Q is multiplied by before: its sign,
// exactly. A scale of 0 is Q's as well, so that −∞, a score that does not count, stays −∞.
template <class Number>
struct ScoreScale {
  Number sign;
  Number factor;

  WMMA_DEVICE explicit ScoreScale(double scale) {
    factor = static_cast<Number>((scale < 0 ? -scale : scale) * static_cast<double>(Softmax<Number>::kUnit));
    sign = factor == Number(0) ? Number(0) : scale < 0 ? Number(-1) : Number(1);
    if (factor == Number(0)) factor = Number(1);
  }
};

}  // namespace wmma
