// The weights of a tile of attention's gradients and what follows from them, by parts that go beside products
// (gradients/interleaved_groups.hpp): each by instructions of its own, as packed ones do not run beside products.
#pragma once

#include <wmma/attention/gradients/interleaved_groups.hpp>
#include <wmma/attention/gradients/scores.hpp>

namespace wmma {

template <class Config>
class InterleavedWeights : public GradientScores<Config, InterleavedGroups<Config>> {
  using Groups = InterleavedGroups<Config>;
  using Base = GradientScores<Config, Groups>;
  using T = typename Config::Element;
  using Link = typename Groups::Link;
  using Number = typename Groups::Number;
  using Sums = typename Groups::Sums;
  static constexpr bool kOwnsKeys = Config::kOwnsKeys;
  static constexpr int kOthers = Groups::kOthers;
  static constexpr int kSums = Groups::kSums;

 public:
  using Base::scores;
  using Base::slope_rows;
  using Base::slopes;
  using Base::weights;

  // Each wave has statistics of its own.
  WMMA_DEVICE InterleavedWeights(const typename Base::Arguments& p, const typename Base::Place& place,
                                 unsigned char* statistics, uint32_t lane, int wave_row)
      : Base(p, place, statistics, lane, wave_row), lines_{line_bytes(lane, p.lse), line_bytes(lane, p.delta)} {
    this->know_rows(p, place);
  }

  // The statistics of a tile's queries: loads, then what the sums start from goes to shared memory.
  WMMA_DEVICE void fetch(const GradientTile& tile) {
    if constexpr (kOwnsKeys) {
      arch::renew(lines_[0]);
      arch::renew(lines_[1]);
      fetched_[0] = *reinterpret_cast<const Number*>(tile.lse + lines_[0]);
      fetched_[1] = *reinterpret_cast<const Number*>(tile.delta + lines_[1]);
    }
  }
  WMMA_DEVICE void put() {
    if constexpr (kOwnsKeys) {
      this->statistics_[this->lane_ % kOthers] = this->start_of(fetched_[0]);
      this->statistics_[kOthers + this->lane_ % kOthers] = -fetched_[1];
    }
  }
  WMMA_DEVICE void bound_scores(const GradientTile& tile) {
    const Number never = this->start_.never();
    if (this->is_bounded(tile)) this->bound(scores, never, tile);
  }
  WMMA_DEVICE void bound_slopes(const GradientTile& tile) {
    if (this->is_bounded(tile)) this->bound(slopes, Number(0), tile);
  }

  // What goes beside group i.
  template <int i>
  WMMA_DEVICE void weigh() {
    constexpr int kFrom = detail::first_of<Groups::kWeighing, Groups::kWeighingEnd, kSums>(i);
    constexpr int kTo = detail::first_of<Groups::kWeighing, Groups::kWeighingEnd, kSums>(i + 1);
#pragma unroll
    for (int f = kFrom; f < kTo; ++f) {
      probabilities_[0][f] = Softmax<Number>::exp(scores[0][f] * this->start_.factor);
      if (f + 1 < kSums) arch::follows(scores[0][f + 1], probabilities_[0][f]);
    }
    if constexpr (kOwnsKeys) {
      constexpr int kFromPair = detail::first_of<Groups::kWeighingEnd, Groups::kCount, kSums / 2>(i);
      constexpr int kToPair = detail::first_of<Groups::kWeighingEnd, Groups::kCount, kSums / 2>(i + 1);
#pragma unroll
      for (int pair = kFromPair; pair < kToPair; ++pair) {
        pack(weights, probabilities_, 2 * pair);
        bend(2 * pair);
      }
    }
  }
  // `then(f)` is done with each two from f on.
  template <int i, class Then>
  WMMA_DEVICE void incline(const Then& then) {
    constexpr int kFrom = detail::first_of<0, Groups::kInclining, kSums / 2>(i);
    constexpr int kTo = detail::first_of<0, Groups::kInclining, kSums / 2>(i + 1);
#pragma unroll
    for (int pair = kFrom; pair < kTo; ++pair) {
      const int f = 2 * pair;
      if constexpr (!kOwnsKeys) bend(f);
      pack(slope_rows, slopes, f);
      then(f);
    }
  }
  // All that goes beside groups from the i-th on.
  template <int i>
  WMMA_DEVICE void weigh_rest() {
    weigh<i>();
    if constexpr (i + 1 < Groups::kCount) weigh_rest<i + 1>();
  }
  template <int i, class Then>
  WMMA_DEVICE void incline_rest(const Then& then) {
    incline<i>(then);
    if constexpr (i + 1 < Groups::kInclining) incline_rest<i + 1>(then);
  }

 private:
  static WMMA_DEVICE uint32_t line_bytes(uint32_t lane, const AttentionOperand& x) {
    return lane % kOthers * static_cast<uint32_t>(x.row_stride * sizeof(Number));
  }

  // g_P becomes g_S, of a lane's sums f and f + 1.
  WMMA_DEVICE void bend(int f) {
    slopes[0][f] = product(slopes[0][f], probabilities_[0][f], f);
    slopes[0][f + 1] = product(slopes[0][f + 1], probabilities_[0][f + 1], f + 1);
  }
  // Neighbours by different instructions, of which the compiler makes no packed one.
  static WMMA_DEVICE Number product(Number x, Number y, int f) {
    return f % 2 == 0 ? x * y : arch::fma(x, y, Number(0));
  }

  // A lane's sums f and f + 1, rounded.
  static WMMA_DEVICE void pack(typename Groups::Weights& rows, const Sums& sums, int f) {
    const int word = f % Link::kShare / 2;
    uint32_t& pair = rows[0][f / Link::kShare][word / 4].words[word % 4];
    pack_weights<T, 2>(&pair, sums[0] + f);
    arch::settle(pair);
  }

  uint32_t lines_[2];  // a lane's query, in bytes from the tile's first
  Number fetched_[2];
  Sums probabilities_;
};

}  // namespace wmma
