// What bears on attention's scores beside queries, keys and a mask, and is chosen when a kernel is compiled: which keys
// a query sees, a soft cap, what a key's distance costs, and sinks. Scores are
//   cap·tanh(scale·Q·Kᵀ / cap) − slope·|i + diagonal − j|
// and query i sees the keys j with i + from ≤ j ≤ i + shift. A head's sink is one more score of each of its rows. Of
// the weights dropout keeps some.
#pragma once

#include <wmma/attention/math.hpp>
#include <wmma/attention/rows/dense.hpp>
#include <wmma/attention/terms/dropout.hpp>

namespace wmma {

template <bool kFrom, bool kCap, class SinkType, class SlopeType, bool kDropout = false, bool kLargeCap = false>
struct ScoreRules {
  using Sink = SinkType;
  using Slope = SlopeType;
  static constexpr bool kWindowed = kFrom;
  static constexpr bool kCapped = kCap;
  static constexpr bool kCapsQuickly = !kLargeCap;  // the cap is at most kQuickCaps
  static constexpr bool kSinks = !kIsNone<Sink>;
  static constexpr bool kSlopes = !kIsNone<Slope>;
  static constexpr bool kScored = kCapped || kSlopes;  // scores are more than products
  static constexpr bool kDrops = kDropout;
  static constexpr bool kChanges = false;  // by functions of users' own: see terms/functions.hpp
  static constexpr bool kHides = false;
  static constexpr bool kBlocks = false;     // see rows/blocks.hpp
  static constexpr bool kSequences = false;  // see rows/varlen.hpp
  static constexpr int kPageSize = 0;        // see rows/paged.hpp; 0: a sequence's keys lie together
  static constexpr bool kScaled = false;     // see rows/scaled.hpp
  using Narrow = None;  // see rows/paged.hpp: what keys and values are kept as, if not as queries are
  using Arguments = Choose<kFrom || kCap || kSinks || kSlopes || kDrops, RuledAttentionArguments, AttentionArguments>;
};

using PlainScores = ScoreRules<false, false, None, None>;

// What a kernel by these rules is given, that without functions is given `Others`.
template <class Rules, class Others>
using ArgumentsBy = Choose<Rules::kChanges || Rules::kHides, ModifiedArguments<Others>, Others>;

// The same where sm_90's copy engine brings tiles.
template <class Rules>
using MappedArgumentsBy = Choose<Rules::kChanges || Rules::kHides || !kIsNone<typename Rules::Narrow>,
                                 MappedArguments<typename Rules::Arguments>, MappedAttentionArguments>;

// Keys and values in memory.
template <class Config>
using StoredOf =
    Choose<kIsNone<typename Config::Rules::Narrow>, typename Config::Element, typename Config::Rules::Narrow>;

// Which keys a query sees, and which queries see a key: both from one to another. kCausal: it sees none beyond its
// place and p.shift.
template <bool kCausal, class Rules>
struct Sight {
  template <class Arguments>
  static WMMA_DEVICE int first_key(const Arguments& p, int64_t query, int low, int high) {
    if constexpr (Rules::kWindowed) {
      return clamped(query + p.rules.from, low, high);
    } else {
      return low;
    }
  }
  template <class Arguments>
  static WMMA_DEVICE int keys_end(const Arguments& p, int64_t query, int low, int high) {
    return kCausal ? clamped(query + p.shift + 1, low, high) : high;
  }
  template <class Arguments>
  static WMMA_DEVICE int first_query(const Arguments& p, int64_t key, int low, int high) {
    return kCausal ? clamped(key - p.shift, low, high) : low;
  }
  template <class Arguments>
  static WMMA_DEVICE int queries_end(const Arguments& p, int64_t key, int low, int high) {
    if constexpr (Rules::kWindowed) {
      return clamped(key - p.rules.from + 1, low, high);
    } else {
      return high;
    }
  }
  template <class Arguments>
  static WMMA_DEVICE bool sees(const Arguments& p, int query, int key) {
    bool inside = true;
    if constexpr (kCausal) inside = key <= query + p.shift;
    if constexpr (Rules::kWindowed) inside = inside && key >= query + p.rules.from;
    return inside;
  }
  // Whether not all of these queries see all of these keys.
  template <class Arguments>
  static WMMA_DEVICE bool bounds(const Arguments& p, int64_t first_query, int64_t last_query, int64_t first_key,
                                 int64_t last_key) {
    bool crossed = false;
    if constexpr (kCausal) crossed = last_key > first_query + p.shift;
    if constexpr (Rules::kWindowed) crossed = crossed || first_key < last_query + p.rules.from;
    return crossed;
  }
};

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
  static constexpr bool kTogether = kQuick && arch::kInvertsTogether;
  template <class Arguments>
  WMMA_DEVICE SoftCap(const Arguments& p, bool is_signed) {
    const double steepness = (kQuick ? 2 * kLog2E : 1.0) * p.rules.steepness;
    steepness_ = static_cast<Number>(is_signed || steepness >= 0 ? steepness : -steepness);
    cap_ = cap_of<Number, Math>(p);
  }
  WMMA_DEVICE Number score(Number product, Number, Number& bend) const {
    const Number x = product * steepness_;
    Number part;
    if constexpr (kQuick) {
      part = arch::fma(Number(-2), Math::inverse(Number(1) + Math::exp(x)), Number(1));
    } else {
      part = activate<kTanh>(x);
    }
    bend = arch::fma(-part, part, Number(1));
    return cap_ * part;
  }
  WMMA_DEVICE Number score(Number product, Number factor) const {
    if constexpr (kQuick) {
      return inverted_score(-Math::inverse(Number(1) + Math::exp(product * steepness_)));
    } else {
      Number bend;
      return score(product, factor, bend);
    }
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
struct NoCap {
  static constexpr bool kTogether = false;
  template <class Arguments>
  WMMA_DEVICE NoCap(const Arguments&, bool) {}
  template <class Number>
  WMMA_DEVICE Number score(Number product, Number factor, Number& bend) const {
    bend = Number(1);
    return product * factor;
  }
  template <class Number>
  WMMA_DEVICE Number score(Number product, Number factor) const {
    return product * factor;
  }
};

template <class Rules, class T, class Math>
using CapOf =
    Choose<Rules::kCapped, SoftCap<sizeof(T) == 2 && Rules::kCapsQuickly, typename ComputeType<T>::Type, Math>, NoCap>;

// Products to scores.
template <class Rules, class T, class Math>
class Scorer : public CapOf<Rules, T, Math> {
  using Cap = CapOf<Rules, T, Math>;

 public:
  using Number = typename ComputeType<T>::Type;
  template <class Arguments>
  WMMA_DEVICE Scorer(const Arguments& p, bool is_signed) : Cap(p, is_signed) {}
  // `bend` is by how much less a score changes than the product, scaled, does.
  using Cap::kTogether;
  using Cap::score;

  // What a step away costs, of a row that `offset` finds in an operand.
  template <class Arguments, class Offset>
  static WMMA_DEVICE Number slope_of(const Arguments& p, const Offset& offset) {
    using Slope = typename Rules::Slope;
    return convert<Number>(static_cast<const Slope*>(p.rules.slopes.data)[offset(p.rules.slopes)]) *
           Number(Math::kUnit);
  }
  // What a score loses by the distance of its key.
  static WMMA_DEVICE Number distant(Number score, Number slope, Number steps) {
    return arch::fma(-slope, arch::abs(steps), score);
  }
};

// Whether a kernel counts scores from the cap down, in twice the cap: what all are less is nothing to a softmax.
template <class Config>
inline constexpr bool kCountsFromCap =
    Config::Rules::kCapped && !Config::Rules::kSlopes && !Config::Rules::kSinks && kIsNone<typename Config::Mask> &&
    !Config::Rules::kChanges && !Config::Rules::kHides &&
    Scorer<typename Config::Rules, typename Config::Element, Softmax<float>>::kTogether;

// What scores are multiples of, in our unit, once they are more than products by `factor`.
template <class Config, class Number, class Arguments>
WMMA_DEVICE Number score_unit(const Arguments& p, Number factor) {
  if constexpr (kCountsFromCap<Config>) {
    return Number(2) * cap_of<Number, Softmax<Number>>(p);
  } else {
    return kIsNone<typename Config::Mask> && !Config::Rules::kScored ? factor : Number(1);
  }
}

// The row of scores of a query of a head.
template <class Arguments>
WMMA_DEVICE DropoutRow dropout_row_of(const Arguments& p, uint32_t batch, uint32_t head, uint32_t query) {
  return dropout_row(*p.rules.seed, query, head, p.rules.first_batch + batch);
}

// The sink of a row, in Math's unit.
template <class Rules, class Number, class Math, class Arguments, class Offset>
WMMA_DEVICE Number sink_of(const Arguments& p, const Offset& offset) {
  using Sink = typename Rules::Sink;
  return convert<Number>(static_cast<const Sink*>(p.rules.sinks.data)[offset(p.rules.sinks)]) * Number(Math::kUnit);
}

}  // namespace wmma
