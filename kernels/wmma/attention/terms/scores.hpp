// What bears on attention's scores beside queries, keys and a mask, and is chosen when a kernel is compiled: terms, a
// header each in this folder, whose types say of their own what differs from the type that they are put around.
// Scores are
//   cap·tanh(scale·Q·Kᵀ / cap) − slope·|i + diagonal − j|
// and query i sees the keys j with i + from ≤ j ≤ i + shift. A head's sink is one more score of each of its rows. Of
// the weights dropout keeps some.
#pragma once

#include <wmma/attention/math.hpp>
#include <wmma/attention/rows/dense.hpp>

namespace wmma {

struct NoCap {
  static constexpr bool kSharesReciprocals = false;
  template <class Arguments>
  WMMA_DEVICE NoCap(const Arguments&, bool) {}
  template <bool kBends, class Number>
  WMMA_DEVICE Number score(Number product, Number factor, Number&) const {
    return product * factor;
  }
};

// No term: products, scaled.
struct PlainScores {
  static constexpr bool kWindowed = false;
  static constexpr bool kCapped = false;
  static constexpr bool kChanges = false;   // by functions of users' own
  static constexpr bool kHides = false;     // likewise
  static constexpr bool kAfterCap = false;  // something bears on capped scores
  static constexpr bool kScored = false;    // scores are more than products
  static constexpr bool kBends = false;     // and may change by more or less than these do
  static constexpr bool kSinks = false;
  static constexpr bool kDrops = false;
  static constexpr bool kBlocks = false;     // see rows/blocks.hpp
  static constexpr bool kSequences = false;  // see rows/varlen.hpp
  static constexpr int kPageSize = 0;        // see rows/paged.hpp; 0: a sequence's keys lie together
  static constexpr bool kScaled = false;     // see rows/scaled.hpp
  using Narrow = None;  // see rows/paged.hpp: what keys and values are kept as, if not as queries are
  using Arguments = AttentionArguments;
  template <class T, class Math>
  using Cap = NoCap;

  // What terms keep of kRows rows of scores, each begun with its head, and do to these, once capped and in Math's unit.
  template <class Number, class Math, int kRows>
  struct Rows {
    template <class Arguments>
    WMMA_DEVICE Rows(const Arguments&, uint32_t) {}
    template <class Arguments>
    WMMA_DEVICE void begin(const Arguments&, uint32_t, uint32_t, int) {}
    // The score of a query, row `i`, and a key, one of those that a lane has from `first` on. kBends: `bend`, by how
    // much more it changes than the product, follows.
    template <bool kBends>
    WMMA_DEVICE Number changed(Number score, Number& bend, int query, int first, int key, int i) const {
      return score;
    }
  };
};

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

}  // namespace wmma
