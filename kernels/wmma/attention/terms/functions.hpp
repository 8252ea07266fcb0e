// Score functions and mask functions of users' own. Their expressions are in the text of a kernel, as a struct of what
// ScoreFunctions has here: which there are, and
//   changed(p, score, batch, head, query, key)  a score in place of another,
//   slope(p, score, batch, head, query, key)    by how much more it changes than the other does,
//   shows(p, batch, head, query, key)           whether the query sees the key.
// Small tensors that they read are arguments; types and dimensions of these are in the text as well.
#pragma once

#include <wmma/attention/rows/dense.hpp>
#include <wmma/math.hpp>

namespace wmma {

// A small tensor, called by its indices: of floating numbers the score's type, of others their own. An index outside
// gives NaN, of whole numbers the least, of bools false. kWide: 32 bits do not count its elements.
template <class Number, class Stored, int kDims, bool kWide>
class ScoreTensor {
 public:
  WMMA_DEVICE explicit ScoreTensor(const ScoreTensorOperand& x) : x_(x) {}
  template <class... Indices>
  WMMA_DEVICE auto operator()(Indices... indices) const {
    static_assert(sizeof...(Indices) == kDims, "an index for each dimension");
    using Place = Choose<kWide, uint64_t, uint32_t>;
    bool there = true;
    Place at = 0;
    int dim = 0;
    ((there = is_inside(indices, x_.sizes[dim]) && there,
      at += static_cast<Place>(indices) * static_cast<Place>(x_.strides[dim++])),
     ...);
    // Something is read whatever the indices are, as there is always a first one: many reads are on their way together.
    const Stored value = static_cast<const Stored*>(x_.data)[there ? at : 0];
    if constexpr (kSame<Stored, uint8_t>) {
      return there && value != 0;
    } else if constexpr (kSame<Stored, int32_t> || kSame<Stored, int64_t>) {
      constexpr Stored kLeast = static_cast<Stored>(uint64_t{1} << (8 * sizeof(Stored) - 1));
      return there ? value : kLeast;
    } else {
      return there ? convert<Number>(value) : math::not_a_number<Number>();
    }
  }

 private:
  template <class Index>
  static WMMA_DEVICE bool is_inside(Index index, int size) {
    static_assert(Index(1) / 2 == 0, "indices are whole numbers: int(x) makes one");
    using Whole = Choose<sizeof(Index) == 8, uint64_t, uint32_t>;  // what is negative is large
    return static_cast<Whole>(index) < static_cast<Whole>(size);
  }

  const ScoreTensorOperand& x_;
};

// What expressions may call beside math.hpp's.
struct ScoreFunctions {
  static constexpr bool kChanges = false;
  static constexpr bool kHides = false;
  template <class X, class Y>
  static WMMA_DEVICE auto min(X x, Y y) {
    return x < y ? x : y;
  }
  template <class X, class Y>
  static WMMA_DEVICE auto max(X x, Y y) {
    return x < y ? y : x;
  }
};

template <class Others, class FunctionsType>
struct FunctionRules : Others {
  using Functions = FunctionsType;
  using Arguments = ModifiedArguments<RuledAttentionArguments>;
  static constexpr bool kChanges = Functions::kChanges;
  static constexpr bool kHides = Functions::kHides;
  static constexpr bool kAfterCap = true;
  static constexpr bool kScored = true;
  static constexpr bool kBends = Others::kBends || kChanges;

  template <class Number, class Math, int kRows>
  class Rows : public Others::template Rows<Number, Math, kRows> {
    using OfOthers = typename Others::template Rows<Number, Math, kRows>;

   public:
    template <class Arguments>
    WMMA_DEVICE Rows(const Arguments& p, uint32_t batch)
        : OfOthers(p, batch), functions_(p.functions), batch_(static_cast<int>(p.rules.first_batch + batch)) {}
    template <class Arguments>
    WMMA_DEVICE void begin(const Arguments& p, uint32_t batch, uint32_t head, int i) {
      OfOthers::begin(p, batch, head, i);
      heads_[i] = static_cast<int>(head);
    }
    template <bool kBends>
    WMMA_DEVICE Number changed(Number score, Number& bend, int query, int first, int key, int i) const {
      const Number before = OfOthers::template changed<kBends>(score, bend, query, first, key, i);
      if constexpr (kBends && kChanges) bend *= Functions::slope(functions_, before, batch_, heads_[i], query, key);
      if constexpr (kChanges) return Functions::changed(functions_, before, batch_, heads_[i], query, key);
      return before;
    }
    WMMA_DEVICE bool shows(int query, int key, int i) const {
      return Functions::shows(functions_, batch_, heads_[i], query, key);
    }

   private:
    const ScoreFunctionArguments& functions_;
    int batch_;
    int heads_[kRows];
  };
};

}  // namespace wmma
