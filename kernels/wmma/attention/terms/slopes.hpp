// Slopes: a score loses by the distance of its key, each step what its head's slope is.
#pragma once

#include <wmma/attention/rows/dense.hpp>

namespace wmma {

template <class Others, class Slope>
struct SlopeRules : Others {
  using Arguments = RuledAttentionArguments;
  static constexpr bool kAfterCap = true;
  static constexpr bool kScored = true;

  template <class Number, class Math, int kRows>
  class Rows : public Others::template Rows<Number, Math, kRows> {
    using OfOthers = typename Others::template Rows<Number, Math, kRows>;

   public:
    template <class Arguments>
    WMMA_DEVICE Rows(const Arguments& p, uint32_t batch)
        : OfOthers(p, batch), diagonal_(static_cast<int>(p.rules.diagonal)) {}
    template <class Arguments>
    WMMA_DEVICE void begin(const Arguments& p, uint32_t batch, uint32_t head, int i) {
      OfOthers::begin(p, batch, head, i);
      slopes_[i] = convert<Number>(*matrix_of<const Slope>(p.rules.slopes, batch, head)) * Number(Math::kUnit);
    }
    template <bool kBends>
    WMMA_DEVICE Number changed(Number score, Number& bend, int query, int first, int key, int i) const {
      score = OfOthers::template changed<kBends>(score, bend, query, first, key, i);
      // From the first key, so that rows' places become numbers once.
      const Number steps = static_cast<Number>(query + diagonal_ - first) - static_cast<Number>(key - first);
      return arch::fma(-slopes_[i], arch::abs(steps), score);
    }

   private:
    Number slopes_[kRows];
    int diagonal_;
  };
};

}  // namespace wmma
