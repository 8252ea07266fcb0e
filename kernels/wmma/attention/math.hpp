// What softmax is computed with, in the accumulator's type: float in powers of 2, double in powers of e.
#pragma once

#include <wmma/exact_math.hpp>
#include <wmma/tile/config.hpp>

namespace wmma {

template <class Number>
struct Softmax;

template <>
struct Softmax<float> {
  static constexpr float kUnit = kLog2E;  // scores are multiples of it
  static WMMA_DEVICE float exp(float x) { return arch::approximate_exp2(x); }
  // The logarithm of a sum of exponentials that is `largest` (in our unit) and the sum relative to it.
  // Half of `largest` is given: in our unit the whole may be more than a float can be.
  static WMMA_DEVICE float log_sum(float half, float sum) { return (half + 0.5f * arch::log2(sum)) * (2.0f * kLn2); }
  static WMMA_DEVICE float inverse(float x) { return arch::approximate_rcp(x); }
  // What weights of this sum are multiplied by. An infinite score's is infinite, and all of its row's results are NaN.
  static WMMA_DEVICE float share(float sum) { return inverse(sum) + (sum - sum); }
  static WMMA_DEVICE float max(float x, float y) { return arch::max(x, y); }
  static WMMA_DEVICE float min(float x, float y) { return arch::min(x, y); }
  static WMMA_DEVICE float infinity() { return arch::bit_cast<float>(0x7f800000u); }
  static WMMA_DEVICE float most() { return arch::bit_cast<float>(0x7f7fffffu); }  // the largest finite number
  static constexpr float kFar = 16777216.0f;  // beyond it numbers are more than 1 apart
};

template <>
struct Softmax<double> {
  static constexpr double kUnit = 1.0;
  static WMMA_DEVICE double exp(double x) { return x == infinity() ? x : exact::decay(exact::at_most(800.0, -x)); }
  static WMMA_DEVICE double log_sum(double half, double sum) {
    const double largest = 2.0 * half;
    if (sum == infinity()) return sum;
    // Halley's step from the float logarithm, whose error it takes to the third power.
    const double y = static_cast<double>(arch::log2(static_cast<float>(sum)) * kLn2);
    const double power = exact::divide(1.0, exact::decay(y));
    return largest + y + 2.0 * exact::divide(sum - power, sum + power);
  }
  static WMMA_DEVICE double inverse(double x) { return exact::divide(1.0, x); }
  static WMMA_DEVICE double share(double sum) { return inverse(sum) + (sum - sum); }
  static WMMA_DEVICE double max(double x, double y) { return x > y ? x : y; }
  static WMMA_DEVICE double min(double x, double y) { return x < y ? x : y; }
  static WMMA_DEVICE double infinity() { return arch::bit_cast<double>(uint64_t{0x7ff0000000000000}); }
  static WMMA_DEVICE double most() { return arch::bit_cast<double>(uint64_t{0x7fefffffffffffff}); }
  static constexpr double kFar = 9007199254740992.0;
};

// Whether what a mask adds are numbers; one of bool comes as bytes.
template <class Mask>
inline constexpr bool kAddsNumbers = !kIsNone<Mask> && !kSame<Mask, uint8_t>;

// The same of scores beside a mask. One of numbers is added to scores as they are, in no unit: of the least numbers,
// with which masks hide keys, none would be left in ours.
template <class Number, class Mask, bool kPlain = kAddsNumbers<Mask>>
struct MaskedSoftmax : Softmax<Number> {
  // Whether scores are scaled and made relative by one rounding. What a product that is far from 0 loses when it is
  // rounded by itself, as the largest is, is more than exp takes.
  static constexpr bool kFused = true;
  static constexpr Number kTwo = Number(1);  // by how much a score is larger whose weight is twice another's
  static WMMA_DEVICE Number weight(Number score, Number factor, Number least) {
    return Softmax<Number>::exp(arch::fma(score, factor, least));
  }
  static WMMA_DEVICE Number ratio(Number score, Number least) { return Softmax<Number>::exp(score + least); }
  // The same of multiples of `factor`.
  static WMMA_DEVICE Number change(Number before, Number least, Number factor) {
    return Softmax<Number>::exp((before + least) * factor);
  }
};

template <class Number, class Mask>
struct MaskedSoftmax<Number, Mask, true> : Softmax<Number> {
  static constexpr bool kFused = false;
  using Unit = Softmax<Number>;
  static constexpr Number kUnit = Number(1);
  static constexpr Number kTwo = Number(kLn2);
  static WMMA_DEVICE Number weight(Number score, Number, Number least) { return ratio(score, least); }
  static WMMA_DEVICE Number ratio(Number score, Number least) { return Unit::exp((score + least) * Unit::kUnit); }
  static WMMA_DEVICE Number change(Number before, Number least, Number) { return ratio(before, least); }
  static WMMA_DEVICE Number log_sum(Number half, Number sum) {
    return Number(2) * half + Unit::log_sum(Number(0), sum);
  }
};

// Whether scores are more than products by numbers of any size: a mask's, or what a function makes of them.
template <class Config>
inline constexpr bool kTakesNumbers = kAddsNumbers<typename Config::Mask> || Config::Rules::kChanges;

template <class Config, class Number>
using SoftmaxOf = MaskedSoftmax<Number, typename Config::Mask, kTakesNumbers<Config>>;

// What scores are multiplied by, as a positive factor in our unit, and what Q is multiplied by before: its sign,
// exactly. A scale of 0 is Q's as well, so that −∞, a score that does not count, stays −∞.
template <class Number, class Math = Softmax<Number>>
struct ScoreScale {
  Number sign;
  Number factor;

  WMMA_DEVICE explicit ScoreScale(double scale) {
    factor = static_cast<Number>((scale < 0 ? -scale : scale) * static_cast<double>(Math::kUnit));
    sign = factor == Number(0) ? Number(0) : scale < 0 ? Number(-1) : Number(1);
    if (factor == Number(0)) factor = Number(1);
  }
};

}  // namespace wmma
