// A soft cap, first of what is done to scores.
#pragma once

#include <wmma/attention/softmax/parts.hpp>
#include <wmma/attention/terms/scores.hpp>

namespace wmma {

// A cap in Math's unit.
template <class Number, class Math, class Arguments>
WMMA_DEVICE Number cap_of(const Arguments& p) {
  return static_cast<Number>(p.rules.cap * static_cast<double>(Math::kUnit));
}

// A soft cap on scores in Math's unit; those of the forward kernel are products that have the scale's sign already.
// kQuick: by 1 − 2/(1 + e^2x), off by 2^-21 at most, whatever x is: times a cap up to kQuickCaps little beside the
// rounding of 16-bit weights.
template <bool kQuick, class Number, class Math>
class SoftCap {
 public:
  static constexpr bool kSharesReciprocals = kQuick && arch::kSharesReciprocals;
  template <class Arguments>
  WMMA_DEVICE SoftCap(const Arguments& p, bool is_signed) {
    const double steepness = (kQuick ? 2 * kLog2E : 1.0) * p.rules.steepness;
    steepness_ = static_cast<Number>(is_signed || steepness >= 0 ? steepness : -steepness);
    cap_ = cap_of<Number, Math>(p);
  }
  // kBends: `bend` is by how much less a score changes than the product, scaled, does.
  template <bool kBends>
  WMMA_DEVICE Number score(Number product, Number, Number& bend) const {
    const Number x = product * steepness_;
    if constexpr (kQuick && !kBends) return inverted_score(-Math::inverse(Number(1) + Math::exp(x)));
    Number part;
    if constexpr (kQuick) {
      part = arch::fma(Number(-2), Math::inverse(Number(1) + Math::exp(x)), Number(1));
    } else {
      part = activate<kTanh>(x);
    }
    bend = arch::fma(-part, part, Number(1));
    return cap_ * part;
  }
#ifdef WMMA_NVIDIA
  // Products of one row to −1/(1 + e^2x), with one inverse for all; if one is NaN they all are. Times twice the cap
  // these are scores, less the cap, which is reached before 2^31.
  WMMA_DEVICE void invert(Number& a, Number& b, Number& c, Number& d) const {
    const auto power = [&](Number x) { return Math::exp(arch::least_or_nan(x * steepness_, Number(31))); };
    const Number of_a = Number(1) + power(a), of_c = Number(1) + power(c);
    const Number power_b = power(b), power_d = power(d);
    const Number of_ab = arch::fma(of_a, power_b, of_a), of_cd = arch::fma(of_c, power_d, of_c);
    const Number inverse = -Math::inverse(of_ab * of_cd);
    const Number ab = inverse * of_cd, cd = inverse * of_ab;
    a = arch::fma(ab, power_b, ab);
    b = ab * of_a;
    c = arch::fma(cd, power_d, cd);
    d = cd * of_c;
  }
#endif
  WMMA_DEVICE Number inverted_score(Number inverse) const { return arch::fma(twice_the_cap(), inverse, cap_); }
  WMMA_DEVICE Number twice_the_cap() const { return Number(2) * cap_; }

 private:
  Number cap_;
  Number steepness_;
};

// kQuickly: the cap is at most kQuickCaps.
template <class Others, bool kQuickly>
struct CapRules : Others {
  using Arguments = RuledAttentionArguments;
  static constexpr bool kCapped = true;
  static constexpr bool kScored = true;
  static constexpr bool kBends = true;
  template <class T, class Math>
  using Cap = SoftCap<sizeof(T) == 2 && kQuickly, typename ComputeType<T>::Type, Math>;
};

// A kernel's, of what its products are summed up in.
template <class Config, class T = typename Config::Element>
using CapOf = typename Config::Rules::template Cap<T, SoftmaxOf<Config, typename ComputeType<T>::Type>>;

// Whether a kernel counts scores from the cap down, in twice the cap: what all are less is nothing to a softmax.
template <class Config>
inline constexpr bool kCountsFromCap = Config::Rules::kCapped && !Config::Rules::kAfterCap && !Config::Rules::kSinks &&
                                       kIsNone<typename Config::Mask> && CapOf<Config>::kSharesReciprocals;

// Whether a mask does no more to scores than to hide some, which then stay products. So it is where rows stand alone:
// of other rows bits of the same mask may be at hand (passes/mask_words.hpp), which leave them so.
template <class Config>
inline constexpr bool kOnlyHides =
    kStandsAlone<Config> && kSame<typename Config::Mask, uint8_t> && !Config::Rules::kScored;

// What scores are multiples of, in our unit, once they are more than products by `factor`.
template <class Config, class Number>
WMMA_DEVICE Number score_unit(const CapOf<Config>& cap, Number factor) {
  if constexpr (kCountsFromCap<Config>) {
    return cap.twice_the_cap();
  } else {
    const bool stay = (kIsNone<typename Config::Mask> || kOnlyHides<Config>) && !Config::Rules::kScored;
    return stay ? factor : Number(1);
  }
}

}  // namespace wmma
