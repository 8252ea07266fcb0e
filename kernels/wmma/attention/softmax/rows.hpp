// A wave's rows: results not yet divided, and of each of a lane's rows the largest score and the lane's part of the sum
// of weights.
#pragma once

#include <wmma/attention/softmax/parts.hpp>
#include <wmma/attention/terms/cap.hpp>
#include <wmma/attention/weights.hpp>

namespace wmma {

template <class Config, class Link, bool kPingPong>
class SoftmaxRows {
 protected:
  using T = typename Config::Element;
  using Number = typename Link::Sum;
  using Math = SoftmaxOf<Config, Number>;
  using Rules = typename Config::Rules;
  // Where no branch may scale results, all are scaled each time.
  static constexpr int kRescaleThreshold = kSame<Number, float> && Config::kSlice <= arch::kMostScaledColumns ? 8 : 0;

 public:
  // Of small heads a tile's weights take longer than its products: when the last are computed the matrix unit rests,
  // and packed instructions sum them up, which do not run beside its own.
  static constexpr bool kWeightsAreLonger =
      arch::kProductRate >= 2 && kPingPong && Config::kDepth + Config::kSlice <= 128;
  // Whether all but the first weights are packed beside the products that they are for. gfx950's products take so
  // little time that the weights of larger heads, too, are the longer turn.
  static constexpr bool kPacksBeside = arch::kProductRate >= 4 || kWeightsAreLonger;

 protected:
  // Of a part's results that are stored at once: its row has whole ones, as that of the results has.
  static constexpr int kPartVec = detail::lower(Config::kOutVec, 4);
  using Cut = CutWeights<T, Number, kWeightsAreLonger, Rules::kDrops || Rules::kSinks>;
  static constexpr Number kExcess = Cut::kExcess;
  static constexpr Number kLogExcess = Cut::kLogExcess;
  static constexpr int kOutSums = Config::kSlice / Link::kCols * Link::kElements;
  // Rows may be relative to less than their largest score, so that weights of 8 bits have all of their numbers.
  static constexpr int kFp8Offset = Rules::kScaled ? 8 : 0;
  // Whether what a row's scores are relative to is kept as it is added to them.
  static constexpr bool kKeepsLeast = kPingPong && kRescaleThreshold > 0;
  static constexpr bool kFolds = kFoldsParts<Config>;

 public:
  // Whether weights are cut off, and whether keys that all count can be weighed `at_once`.
  static constexpr bool kCuts = Cut::kCuts;
  static constexpr bool kAtOnce = kCuts && !kWeightsAreLonger && kRescaleThreshold > 0 &&
                                  kIsNone<typename Config::Mask> && !Rules::kScored && !Rules::kDrops &&
                                  !wmma::kStandsAlone<Config>;

  Number out[Config::kTilesM][kOutSums];

  // What scores are multiples of, found anew: to know it all the while takes a register.
  WMMA_DEVICE void know(Number unit) { unit_ = unit; }

  // Scores will be multiples of `unit`, in our unit.
  WMMA_DEVICE void clear(Number unit) {
    unit_ = unit;
    if constexpr (kFp8Offset > 0) fp8_offset_ = finite(Number(kFp8Offset) * Math::inverse(unit));
    far_ = 0;
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < kOutSums; ++i) out[m][i] = Number(0);
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        largest_[m][i] = -Math::infinity();
        sum_[m][i] = Number(0);
      }
      keep_least(m);
    }
  }

  // A sink is as a key that was seen before all others and whose value is 0: all of a row's lanes know it, one counts
  // it.
  template <class Arguments, class Place>
  WMMA_DEVICE void begin_with_sinks(const Arguments& p, const Place& place, uint32_t first_row, uint32_t lane) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        const uint32_t row = first_row + m * Link::kRows + Link::row(lane, i);
        const uint32_t there = row < place.rows ? row : place.rows - 1;
        const Number sink = Rules::template sink_of<Number, Math>(p, place, there);
        largest_[m][i] = finite(sink * inverse_unit());
        const bool is_far_number = is_far(largest_[m][i]) && arch::abs(sink) < Math::infinity();
        const Number weight = is_far_number ? Number(1) : Math::ratio(sink, below(largest_[m][i]) * unit_);
        sum_[m][i] = Link::place(lane, 0) == 0 ? kExcess * weight : Number(0);
      }
      keep_least(m);
    }
    find_far();
  }

  // Which scores count; afterwards they are multiples of what this returns, in our unit.
  template <bool kBounded, int kSums, class Mask>
  static WMMA_DEVICE Number mask(Number (&scores)[Config::kTilesM][kSums], const Mask& mask, int key, uint32_t lane,
                                 Number factor) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) mask.template apply<kBounded, kSums>(scores[m], m, key, lane, factor);
    return score_unit<Config>(mask, factor);
  }

  WMMA_DEVICE void multiply(Number factor) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int f = 0; f < kOutSums; ++f) out[m][f] *= factor;
    }
  }

  // The results, divided, where they are, and lse.
  template <class Arguments, class Place>
  WMMA_DEVICE void divide(const Arguments& p, const Place& place, uint32_t first_row, uint32_t lane) {
    Number factors[Config::kTilesM][Link::kLaneRows];
    bool blind[Config::kTilesM][Link::kLaneRows];
    each_row(lane, [&](int m, int i, uint32_t line, Number largest, Number sum) {
      blind[m][i] = sum == Number(0);  // NaN is not
      factors[m][i] = Math::share(sum);
      if (Link::place(lane, 0) != 0 || first_row + line >= place.rows) return;
      *(static_cast<Number*>(const_cast<void*>(p.lse.data)) + place.offset(p.lse, first_row + line)) =
          blind[m][i] ? -Math::infinity() : lse_of<kStandsAlone<Config>, Math>(half_of(p, largest), sum);
    });
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int f = 0; f < kOutSums; ++f) {
        const int i = Link::row_of(f);
        out[m][f] = blind[m][i] ? Number(0) : out[m][f] * factors[m][i];
      }
    }
  }

  // The results, divided, and lse.
  template <class Arguments, class Place>
  WMMA_DEVICE void store(const Arguments& p, const Place& place, uint32_t first_row, uint32_t lane) const {
    const int first_column = place.slice * Config::kSlice;
    each_row(lane, [&](int m, int i, uint32_t line, Number largest, Number sum) {
      const uint32_t row = first_row + line;
      if (row >= place.rows) return;
      const bool blind = sum == Number(0);  // NaN is not
      if (Link::place(lane, 0) == 0 && place.slice == 0) {
        *(static_cast<Number*>(const_cast<void*>(p.lse.data)) + place.offset(p.lse, row)) =
            blind ? -Math::infinity() : lse_of<kStandsAlone<Config>, Math>(half_of(p, largest), sum);
      }
      const Number factor = blind ? Number(0) : Math::share(sum);
      T* to = static_cast<T*>(const_cast<void*>(p.out.data)) + place.offset(p.out, row);
      store_sums<Link, Config::kOutVec, kOutSums>(to, p.out.column_stride, p.ev, first_column, lane, i,
                                                  [&](int f) { return blind ? Number(0) : out[m][f] * factor; });
    });
  }

  // Where keys are split, what attention_combine puts together: half of the largest score, the sum of weights, and the
  // results.
  template <class Arguments, class Place>
  WMMA_DEVICE void store_partial(const Arguments& p, const Place& place, uint32_t split, uint32_t first_row,
                                 uint32_t lane) const {
    store_parts_of_rows(p, place, first_row, lane, [&](uint32_t row) {
      const int64_t index = (static_cast<int64_t>(split) * p.batch + place.batch) * p.heads + place.head_of(row);
      return index * most_queries(p) + place.query(row);
    });
  }
  // `index_of` a row: where its part stands.
  template <class Arguments, class Place, class IndexOf>
  WMMA_DEVICE void store_parts_of_rows(const Arguments& p, const Place& place, uint32_t first_row, uint32_t lane,
                                       const IndexOf& index_of) const {
    each_row(lane, [&](int m, int i, uint32_t line, Number largest, Number sum) {
      const uint32_t row = first_row + line;
      if (row >= place.rows) return;
      Number* to = static_cast<Number*>(p.partial) + index_of(row) * (kPartHead + p.ev);
      store_part(to + kPartHead - 2, m, i, half_of(p, largest), sum, p.ev, place.slice, lane);
    });
  }

  // The same for the blocks of a cluster, in shared memory, rows `pitch` apart.
  template <class Arguments>
  WMMA_DEVICE void store_parts(const Arguments& p, Number* to, int pitch, uint32_t lane) const {
    each_row(lane, [&](int m, int i, uint32_t line, Number largest, Number sum) {
      store_part(to + line * pitch, m, i, half_of(p, largest), sum, Config::kSlice, 0, lane);
    });
  }

  // What a part of the keys gave joins the parts before it, whose results the thread has in memory of its own, `stride`
  // apart; with the last part the row has the results of all.
  template <class Arguments>
  WMMA_DEVICE void fold(const Arguments& p, Number* kept, int64_t stride, bool is_first, bool is_last) {
    Joint<Number> joints[Config::kTilesM][Link::kLaneRows];
    bool blind[Config::kTilesM][Link::kLaneRows];
    each_part(0, [&](int m, int i, uint32_t, Number largest, Number sum) {
      if (is_first) {
        all_largest_[m][i] = -Math::infinity();
        all_sum_[m][i] = Number(0);
      }
      blind[m][i] = sum == Number(0);
      joints[m][i] = join_part<Math>(all_largest_[m][i], all_sum_[m][i], half_score(p, largest), sum);
    });
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int f = 0; f < kOutSums; ++f) {
        const int i = Link::row_of(f);
        Number* at = kept + (m * kOutSums + f) * stride;
        const Number all = joints[m][i].of(is_first ? Number(0) : *at, blind[m][i] ? Number(0) : out[m][f]);
        if (is_last) {
          out[m][f] = all;
        } else {
          *at = all;
        }
      }
    }
  }

 protected:
  // While a row has seen no key, its weights are those of −∞ beside 0.
  static WMMA_DEVICE Number below(Number largest) { return largest == -Math::infinity() ? Number(0) : -largest; }
  // What is added to a row's scores before they become weights: nothing where they are differences.
  static WMMA_DEVICE Number least_of(Number largest, Number factor) {
    const Number score = largest * factor;
    const Number least = Math::kFused ? (is_near(score) ? -score : Number(0)) : below(largest);
    return kCuts ? least + kLogExcess * Math::kTwo : least;
  }
  WMMA_DEVICE void keep_least(int m) {
    if constexpr (kKeepsLeast) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) least_[m][i] = least_of(largest_[m][i], unit_);
    }
  }

  // A row's largest score, if infinite as the largest finite one: weights of infinite scores are infinite beside it.
  static WMMA_DEVICE Number finite(Number largest) { return Math::min(largest, Math::most()); }
  WMMA_DEVICE Number inverse_unit() const { return finite(Math::inverse(unit_)); }
  // A row is far whose largest score in our unit is. One that has seen no key is neither.
  static WMMA_DEVICE bool is_near(Number score) { return arch::abs(score) < Math::kFar; }
  WMMA_DEVICE bool is_far(Number largest) const {
    return Math::kFused && !is_near(largest * unit_) && largest != -Math::infinity();
  }
  WMMA_DEVICE void find_far() {
    far_ = 0;
    if constexpr (!Math::kFused) return;
    bool far = false;
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) far = far || is_far(largest_[m][i]);
    }
    far_ = arch::ballot(far);
  }
  // Scores of far rows become what they are above the largest one, before they are scaled.
  template <int kSums>
  WMMA_DEVICE void become_differences(Number (&scores)[kSums], int m) const {
    Number shift[Link::kLaneRows];
#pragma unroll
    for (int i = 0; i < Link::kLaneRows; ++i) shift[i] = is_far(largest_[m][i]) ? largest_[m][i] : Number(0);
#pragma unroll
    for (int f = 0; f < kSums; ++f) scores[f] -= shift[Link::row_of(f)];
  }

  static WMMA_DEVICE Number larger(Number x, Number y) { return Math::max(x, y); }
  template <int kSums>
  static WMMA_DEVICE Number most_of(const Number (&scores)[kSums], int row) {
    Number most = -Math::infinity();
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      if (Link::row_of(f) == row) most = Math::max(most, scores[f]);
    }
    return most;
  }
  // What a row is relative to follows the largest score seen, or stays; gives what its results are multiplied by.
  WMMA_DEVICE Number follow_row(int m, int i, Number seen, bool follows) {
    const Number largest = follows ? Math::max(largest_[m][i], finite(seen)) : largest_[m][i];
    const Number change = Math::change(largest_[m][i], below(largest), unit_);
    largest_[m][i] = largest;
    return change;
  }

  // The same of what `each_row` gives, which of several parts is half already.
  template <class Arguments>
  WMMA_DEVICE Number half_of(const Arguments& p, Number largest) const {
    if constexpr (kFolds) return largest;
    return half_score(p, largest);
  }
  // Half of a row's largest score, in our unit.
  template <class Arguments>
  WMMA_DEVICE Number half_score(const Arguments& p, Number largest) const {
    const Number unit = Number(0.5) * unit_;
    // Which of the sums that it is part of takes the product in, kernels would decide otherwise each.
    Number half;
    if constexpr (kStandsAlone<Config>) {
      half = arch::rounded_product(largest, unit);
    } else {
      half = largest * unit;
    }
    if constexpr (kCountsFromCap<Config>) {
      return half + Number(0.5) * cap_of<Number, Math>(p);
    } else {
      return half;
    }
  }

  // Each of a lane's rows, by its place among the wave's: its largest score, and its sum of weights.
  template <class Act>
  WMMA_DEVICE void each_row(uint32_t lane, const Act& act) const {
    if constexpr (kFolds) {
#pragma unroll
      for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
        for (int i = 0; i < Link::kLaneRows; ++i) {
          act(m, i, m * Link::kRows + Link::row(lane, i), all_largest_[m][i], all_sum_[m][i]);
        }
      }
    } else {
      each_part(lane, act);
    }
  }
  // The same of the part that was gone through last.
  template <class Act>
  WMMA_DEVICE void each_part(uint32_t lane, const Act& act) const {
    const auto plus = [](Number x, Number y) { return x + y; };
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        Number sum = Link::fold(sum_[m][i], plus);
        if (kCuts) sum *= Number(1) / kExcess;
        act(m, i, m * Link::kRows + Link::row(lane, i), largest_[m][i], sum);
      }
    }
  }

  WMMA_DEVICE void store_part(Number* to, int m, int i, Number largest, Number sum, int columns, uint32_t slice,
                              uint32_t lane) const {
    if (Link::place(lane, 0) == 0 && slice == 0) {
      to[0] = largest;
      to[1] = sum;
    }
    const bool blind = sum == Number(0);
    store_sums<Link, kPartVec, kOutSums>(to + 2, 1, columns, slice * Config::kSlice, lane, i,
                                         [&](int f) { return blind ? Number(0) : out[m][f]; });
  }

  Number largest_[Config::kTilesM][Link::kLaneRows];
  Number sum_[Config::kTilesM][Link::kLaneRows];
  Number least_[Config::kTilesM][kKeepsLeast ? Link::kLaneRows : 1];
  Number start_[Config::kTilesM][kAtOnce ? Link::kElements : 1];
  Number all_largest_[Config::kTilesM][kFolds ? Link::kLaneRows : 1];  // half of it, of all parts
  Number all_sum_[Config::kTilesM][kFolds ? Link::kLaneRows : 1];
  Number unit_;
  Number fp8_offset_;
  uint64_t far_;  // lanes with far rows
};

}  // namespace wmma
