// What scores and g_P of a tile become in a lane's registers, element by element: weights P and slopes g_S, by any
// rules; and what is known of queries before. Of the loops whose blocks own rows, but that the waves' spells weights
// and slopes by itself (loops/gradients.hpp).
#pragma once

#include <wmma/attention/gradients/rows.hpp>
#include <wmma/attention/terms/cap.hpp>
#include <wmma/attention/terms/dropout.hpp>
#include <wmma/attention/terms/mask.hpp>

namespace wmma {

// A mask of numbers, or a function of scores, may bring lse so far from 0 that of the logarithm of a sum little or
// nothing is left in it: a row whose keys all have the least number has weights of 1 relative to lse, each. The kernel
// that owns queries sums up a row's weights and leaves, beside delta, what they are to be multiplied by.
template <class Config, class Link>
struct GradientElements {
  using Number = typename Link::Sum;
  using Mask = typename Config::Mask;
  using Math = SoftmaxOf<Config, Number>;
  using Rules = typename Config::Rules;
  using Arguments = typename Rules::Arguments;
  using Sight = wmma::Sight<Config::kCausal, Rules>;
  static constexpr bool kOwnsKeys = Config::kOwnsKeys;
  static constexpr int kOthers = Config::kOthers;
  static constexpr bool kCorrects = kTakesNumbers<Config>;  // weights relative to lse
  using Place = GradientPlace<kOwnsKeys>;

  // Of a lane's rows of a tile of the matrix unit, where queries are owned: lse in our unit, +∞ where a row saw no key.
  struct Rows {
    Number lse[Link::kLaneRows];
    Number delta[Link::kLaneRows];
    Number sum[Link::kLaneRows];  // the lane's part of the weights, where they are corrected
    DropoutRow drawn[Link::kLaneRows];

    WMMA_DEVICE void load(const Arguments& p, const Place& place, int first_row, uint32_t lane) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        uint32_t row = first_row + Link::row(lane, i);
        row = row < place.rows ? row : place.rows - 1;
        lse[i] = unit_of(static_cast<const Number*>(p.lse.data)[place.offset(p.lse, row)]);
        delta[i] = static_cast<const Number*>(p.delta.data)[place.offset(p.delta, row)];
        if constexpr (Rules::kDrops) drawn[i] = dropout_row_of(p, place.batch, place.head, row);
      }
    }
  };

  // Of a tile's queries, where keys are owned: the same, in shared memory.
  struct Passed {
    static constexpr int kStatistics = kCorrects ? 3 : 2;
    static constexpr int kDrawnStart = kOwnsKeys ? kStatistics * kOthers * static_cast<int>(sizeof(Number)) : 0;
    static constexpr int kBytes =
        kDrawnStart + (kOwnsKeys && Rules::kDrops ? kOthers * static_cast<int>(sizeof(DropoutRow)) : 0);

    // By kThreads threads. Queries beyond the last repeat it.
    template <int kThreads>
    static WMMA_DEVICE void write(unsigned char* passed, const Arguments& p, uint32_t batch, uint32_t head, int at,
                                  int rows, uint32_t thread) {
      const Number* lse = matrix_of<const Number>(p.lse, batch, head);
      const Number* delta = matrix_of<const Number>(p.delta, batch, head);
      Number* to = reinterpret_cast<Number*>(passed);
#pragma unroll 1
      for (int i = static_cast<int>(thread); i < kOthers; i += kThreads) {
        const int64_t row = at + (i < rows ? i : rows - 1);
        to[i] = unit_of(lse[row * p.lse.row_stride]);
        to[kOthers + i] = delta[row * p.delta.row_stride];
        if constexpr (kCorrects) to[2 * kOthers + i] = delta[row * p.delta.row_stride + p.delta.column_stride];
        if constexpr (Rules::kDrops) {
          reinterpret_cast<DropoutRow*>(passed + kDrawnStart)[i] =
              dropout_row_of(p, batch, head, static_cast<uint32_t>(row));
        }
      }
    }
  };

  static WMMA_DEVICE Number unit_of(Number lse) {
    return lse == -Math::infinity() ? Math::infinity() : lse * Number(Math::kUnit);
  }

  // What is known of an element when its weight is, and is asked for when its slope is.
  struct Known {
    bool inside = true;
    Number bend = Number(1);
  };

  // A lane's elements of a tile of the matrix unit's rows. kBounded: not every row meets every other.
  template <bool kBounded>
  class Lane {
   public:
    static constexpr bool kHides = Rules::kHides && (kBounded || !Rules::kBlocks);
    static constexpr bool kSelects = kBounded || !kIsNone<Mask> || kHides;  // some elements do not count

    // `other_head`: of the queries, where keys are owned, and of the keys, where queries are. `first_row`: of the
    // matrix unit's tile. `at`: the first of so many others that there are. `whole`: their block, of a block mask.
    WMMA_DEVICE Lane(const Arguments& p, const Place& place, uint32_t other_head, int first_row, int at, int others,
                     bool whole, uint32_t lane, const unsigned char* passed)
        : p_(p),
          place_(place),
          lane_(lane),
          head_(kOwnsKeys ? other_head : place.head),
          first_row_(first_row),
          at_(at),
          others_(others),
          whole_(whole),
          passed_(passed),
          factor_(static_cast<Number>(p.scale * static_cast<double>(Math::kUnit))),
          cap_(p, true),
          terms_(p, place.batch) {
      terms_.begin(p, place.batch, head_, 0);
    }

    // The weight of a product, a lane's f-th, whose query has this lse.
    WMMA_DEVICE Number weight(Number product, Number lse, int f, Rows& rows, Known& known) const {
      const int i = Link::row_of(f);
      const int other = static_cast<int>(Link::place(lane_, f));
      const int row = first_row_ + static_cast<int>(Link::row(lane_, i));
      const int query = kOwnsKeys ? at_ + other : row;
      const int key = kOwnsKeys ? row : at_ + other;
      bool inside = true;
      if constexpr (kBounded) {
        inside = other < others_ && Sight::sees(p_, query, key);
      }
      Number score;
      if constexpr (Rules::kScored) {
        score = cap_.template score<true>(product, factor_, known.bend);
        if constexpr (Rules::kAfterCap) {
          score = terms_.template changed<Rules::kBends>(score, known.bend, query, key, key, 0);
        }
        if (!kCorrects) score -= lse;
      } else {
        score = kCorrects ? product * factor_ : arch::fma(product, factor_, -lse);
      }
      if constexpr (!kIsNone<Mask>) {
        // Rows beyond the last have no mask.
        const bool there = inside && row < static_cast<int>(place_.rows);
        MaskRows<Mask, 1> mask(p_);
        mask.begin(p_, place_.batch, head_, query, 0);
        if (there) inside = mask.add(score, key, 0, f);
      }
      if constexpr (kHides) {
        const bool shown = terms_.shows(query, key, 0);
        inside = inside && ((Rules::kBlocks && whole_) || shown);
      }
      known.inside = inside;
      if (kSelects && !inside) score = -Math::infinity();  // chosen before the exponential: after it that is a branch
      if constexpr (kCorrects) {
        Number weight = Math::ratio(score, -lse);
        if (kOwnsKeys) weight *= statistics()[2 * kOthers + other];
        if (!kOwnsKeys) rows.sum[i] += weight;
        return weight;
      } else {
        return Math::exp(score);
      }
    }

    // g_P becomes the slope; where weights are dropped and keys owned, the weight becomes what is left of it.
    WMMA_DEVICE void slope(Number& weight, Number& slope, Number delta, int f, const Rows& rows,
                           const Known& known) const {
      Number change = slope;
      bool kept = true;
      if constexpr (Rules::kDrops) {
        kept = keeps_it(f, rows);
        change = kept ? change * kept_factor() : Number(0);
      }
      change = weight * (change - delta);
      if constexpr (Rules::kDrops && kOwnsKeys) drop(weight, kept);
      if constexpr (Rules::kBends) change *= known.bend;
      slope = known.inside ? change : Number(0);
    }
    // What is left of a weight that has no slope here.
    WMMA_DEVICE void drop(Number& weight, int f, const Rows& rows) const {
      if constexpr (Rules::kDrops) drop(weight, keeps_it(f, rows));
    }

   private:
    WMMA_DEVICE const Number* statistics() const { return reinterpret_cast<const Number*>(passed_); }
    WMMA_DEVICE Number kept_factor() const { return static_cast<Number>(p_.rules.kept); }
    WMMA_DEVICE bool keeps_it(int f, const Rows& rows) const {
      const int i = Link::row_of(f);
      const int other = static_cast<int>(Link::place(lane_, f));
      const DropoutRow& drawn =
          kOwnsKeys ? reinterpret_cast<const DropoutRow*>(passed_ + Passed::kDrawnStart)[other] : rows.drawn[i];
      const int key = kOwnsKeys ? first_row_ + static_cast<int>(Link::row(lane_, i)) : at_ + other;
      return keeps(drawn, static_cast<unsigned>(key), p_.rules.threshold);
    }
    WMMA_DEVICE void drop(Number& weight, bool kept) const { weight = kept ? weight * kept_factor() : Number(0); }

    const Arguments& p_;
    const Place& place_;
    uint32_t lane_;
    uint32_t head_;  // of the queries
    int first_row_;
    int at_;
    int others_;
    bool whole_;
    const unsigned char* passed_;
    Number factor_;
    CapOf<Config> cap_;
    typename Rules::template Rows<Number, Math, 1> terms_;
  };

  // Rows whose weights do not sum up to 1: their sums, g_Q, and what those that own keys multiply weights by.
  template <int kSums>
  static WMMA_DEVICE void correct(Number (&sums)[kSums], Rows& rows, const Arguments& p, const Place& place,
                                  int first_row, uint32_t lane) {
    const auto plus = [](Number x, Number y) { return x + y; };
    Number factors[Link::kLaneRows];
#pragma unroll
    for (int i = 0; i < Link::kLaneRows; ++i) {
      Number sum = Link::fold(rows.sum[i], plus);
      const uint32_t row = first_row + Link::row(lane, i);
      if constexpr (Rules::kSinks) {
        sum += Math::ratio(Rules::template sink_of<Number, Math>(p, place, row), -rows.lse[i]);
      }
      factors[i] = sum == Number(0) ? Number(0) : Math::inverse(sum);
      if (row < place.rows && place.slice == 0 && Link::place(lane, 0) == 0) {
        static_cast<Number*>(const_cast<void*>(p.delta.data))[place.offset(p.delta, row) + p.delta.column_stride] =
            factors[i];
      }
    }
#pragma unroll
    for (int f = 0; f < kSums; ++f) sums[f] *= factors[Link::row_of(f)];
  }
};

}  // namespace wmma
