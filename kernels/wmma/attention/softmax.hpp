// The softmax of attention's forward kernel as keys come tile by tile: each row's results are relative to the largest
// score so far, and follow it.
#pragma once

#include <wmma/attention/rows.hpp>

namespace wmma {

// A wave's rows: results not yet divided, and of each of a lane's rows the largest score and the lane's part of the sum
// of weights.
template <class Config, class Link>
class RunningSoftmax {
  using T = typename Config::Element;
  using Number = typename Link::Sum;
  using Math = Softmax<Number>;
  static constexpr int kOutSums = Config::kSlice / Link::kCols * Link::kElements;

 public:
  Number out[Config::kTilesM][kOutSums];

  WMMA_DEVICE void clear() {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < kOutSums; ++i) out[m][i] = Number(0);
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        largest_[m][i] = -Math::infinity();
        sum_[m][i] = Number(0);
      }
    }
  }

  // Scores become weights relative to the largest score so far; what was summed up before follows.
  template <bool kBounded, int kSums, class Mask>
  WMMA_DEVICE void weigh(Number (&scores)[Config::kTilesM][kSums], const Mask& mask, int key, uint32_t lane,
                         Number factor) {
    const auto larger = [](Number x, Number y) { return Math::max(x, y); };
    if constexpr (!kIsNone<typename Config::Mask>) {
#pragma unroll
      for (int m = 0; m < Config::kTilesM; ++m) mask.template apply<kBounded, kSums>(scores[m], m, key, lane, factor);
      factor = Number(1);
    }
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
      if constexpr (kIsNone<typename Config::Mask>) {
        mask.template apply<kBounded, kSums>(scores[m], m, key, lane, factor);
      }
      Number least[Link::kLaneRows];
      Number follow[Link::kLaneRows];
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        Number most = -Math::infinity();
#pragma unroll
        for (int f = 0; f < kSums; ++f) {
          if (Link::row_of(f) == i) most = Math::max(most, scores[m][f]);
        }
        const Number largest = Math::max(largest_[m][i], Link::fold(most, larger) * factor);
        // While a row has seen no key, its weights are those of −∞ beside 0.
        least[i] = largest == -Math::infinity() ? Number(0) : -largest;
        follow[i] = Math::exp(largest_[m][i] + least[i]);
        largest_[m][i] = largest;
        sum_[m][i] *= follow[i];
      }
#pragma unroll
      for (int f = 0; f < kSums; ++f) {
        const int i = Link::row_of(f);
        scores[m][f] = Math::exp(arch::fma(scores[m][f], factor, least[i]));
        sum_[m][i] += scores[m][f];
      }
#pragma unroll
      for (int f = 0; f < kOutSums; ++f) out[m][f] *= follow[Link::row_of(f)];
    }
  }

  // The results, divided, and lse.
  template <class Place>
  WMMA_DEVICE void store(const AttentionArguments& p, const Place& place, uint32_t first_row, uint32_t lane) const {
    const int first_column = place.slice * Config::kSlice;
    each_row(lane, [&](int m, int i, uint32_t line, Number largest, Number sum) {
      const uint32_t row = first_row + line;
      if (row >= place.rows) return;
      const bool blind = sum == Number(0);  // NaN is not
      if (Link::place(lane, 0) == 0 && place.slice == 0) {
        *(static_cast<Number*>(const_cast<void*>(p.lse.data)) + place.offset(p.lse, row)) =
            blind ? -Math::infinity() : Math::log_sum(largest, sum);
      }
      const Number factor = blind ? Number(0) : Math::inverse(sum);
      T* to = static_cast<T*>(const_cast<void*>(p.out.data)) + place.offset(p.out, row);
      store_sums<Link, Config::kOutVec, kOutSums>(to, p.out.column_stride, p.ev, first_column, lane, i,
                                                  [&](int f) { return blind ? Number(0) : out[m][f] * factor; });
    });
  }

  // Where keys are split, what attention_combine puts together: the largest score, the sum of weights, and the results.
  template <class Place>
  WMMA_DEVICE void store_partial(const AttentionArguments& p, const Place& place, uint32_t split, uint32_t first_row,
                                 uint32_t lane) const {
    each_row(lane, [&](int m, int i, uint32_t line, Number largest, Number sum) {
      const uint32_t row = first_row + line;
      if (row >= place.rows) return;
      const int64_t index = (static_cast<int64_t>(split) * p.batch + place.batch) * p.heads + place.head_of(row);
      Number* to = static_cast<Number*>(p.partial) + (index * p.sq + place.query(row)) * (2 + p.ev);
      store_part(to, m, i, largest, sum, p.ev, place.slice, lane);
    });
  }

  // The same for the blocks of a cluster, in shared memory, rows `pitch` apart.
  WMMA_DEVICE void store_parts(Number* to, int pitch, uint32_t lane) const {
    each_row(lane, [&](int m, int i, uint32_t line, Number largest, Number sum) {
      store_part(to + line * pitch, m, i, largest, sum, Config::kSlice, 0, lane);
    });
  }

 private:
  // Each of a lane's rows, by its place among the wave's: its largest score and its sum of weights.
  template <class Act>
  WMMA_DEVICE void each_row(uint32_t lane, const Act& act) const {
    const auto plus = [](Number x, Number y) { return x + y; };
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        const Number sum = Link::fold(sum_[m][i], plus);
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
    store_sums<Link, 1, kOutSums>(to + 2, 1, columns, slice * Config::kSlice, lane, i,
                                  [&](int f) { return blind ? Number(0) : out[m][f]; });
  }

  Number largest_[Config::kTilesM][Link::kLaneRows];
  Number sum_[Config::kTilesM][Link::kLaneRows];
};

}  // namespace wmma
