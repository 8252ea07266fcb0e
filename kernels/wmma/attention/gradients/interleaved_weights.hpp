// The weights of a tile of attention's gradients and what follows from them, by parts that go beside products
// (gradients/interleaved_groups.hpp): each by instructions of its own, as packed ones do not run beside products.
#pragma once

#include <wmma/attention/gradients/interleaved_groups.hpp>
#include <wmma/attention/gradients/scores.hpp>
#include <wmma/attention/weights.hpp>

namespace wmma {

template <class Config>
class GradientWeights {
  using Groups = InterleavedGroups<Config>;
  using T = typename Config::Element;
  using Link = typename Groups::Link;
  using Number = typename Groups::Number;
  using Math = Softmax<Number>;
  using Sums = typename Groups::Sums;
  using Weights = typename Groups::Weights;
  using Place = GradientPlace<Config::kOwnsKeys>;
  using Arguments = typename Config::Rules::Arguments;
  using Sight = wmma::Sight<Config::kCausal, typename Config::Rules>;
  static_assert(!Config::Rules::kScored, "scores are products");
  static constexpr bool kOwnsKeys = Config::kOwnsKeys;
  static constexpr int kTilesM = Groups::kTilesM;
  static constexpr int kOthers = Groups::kOthers;
  static constexpr int kSums = Groups::kSums;

 public:
  // Of the queries of a tile, each wave's own, where it owns keys.
  static constexpr int kStatisticsBytes = kOwnsKeys ? 2 * kOthers * static_cast<int>(sizeof(Number)) : 0;

  Sums scores;
  Sums slopes;      // g_P, then g_S
  Weights weights;  // rounded, as the next
  Weights slope_rows;

  WMMA_DEVICE GradientWeights(const Arguments& p, const Place& place, unsigned char* statistics, uint32_t lane,
                              int wave_row)
      : p_(p),
        lane_(lane),
        wave_row_(wave_row),
        first_row_(wave_row / Groups::kBlockRows * Groups::kBlockRows),
        start_(p.scale),
        statistics_(reinterpret_cast<Number*>(statistics)),
        lines_{line_bytes(lane, p.lse), line_bytes(lane, p.delta)} {
    if constexpr (!kOwnsKeys) {
#pragma unroll
      for (int m = 0; m < kTilesM; ++m) {
        uint32_t row = wave_row + m * Link::kRows + Link::row(lane, 0);
        row = row < place.rows ? row : place.rows - 1;
        starts_[m][0] = start_.of(static_cast<const Number*>(p.lse.data)[place.offset(p.lse, row)]);
        if (!Config::kSumsDelta) {
          know_delta(m, static_cast<const Number*>(p.delta.data)[place.offset(p.delta, row)]);
        }
      }
    }
  }

  // Of a lane's row of the m-th tile of queries that it owns.
  WMMA_DEVICE void know_delta(int m, Number delta) { starts_[m][1] = -delta; }

  // The statistics of a tile's queries: loads, then what the sums start from goes to shared memory.
  WMMA_DEVICE void ask(const GradientTile& tile) {
    if constexpr (kOwnsKeys) {
      arch::renew(lines_[0]);
      arch::renew(lines_[1]);
      asked_[0] = *reinterpret_cast<const Number*>(tile.lse + lines_[0]);
      asked_[1] = *reinterpret_cast<const Number*>(tile.delta + lines_[1]);
    }
  }
  WMMA_DEVICE void put() {
    if constexpr (kOwnsKeys) {
      statistics_[lane_ % kOthers] = start_.of(asked_[0]);
      statistics_[kOthers + lane_ % kOthers] = -asked_[1];
    }
  }
  // Scores start so that they end as multiples of the factor relative to lse; g_P relative to delta.
  WMMA_DEVICE void start_scores() { start(scores, 0); }
  WMMA_DEVICE void start_slopes() { start(slopes, 1); }

  // Scores that do not count become −∞ times the factor's sign, and nothing follows from them.
  WMMA_DEVICE void bound_scores(const GradientTile& tile) { bound(scores, start_.never(), tile); }
  WMMA_DEVICE void bound_slopes(const GradientTile& tile) { bound(slopes, Number(0), tile); }

  // What goes beside group i.
  template <int i>
  WMMA_DEVICE void weigh() {
    constexpr int kFrom = detail::first_of<Groups::kWeighing, Groups::kWeighingEnd, kSums>(i);
    constexpr int kTo = detail::first_of<Groups::kWeighing, Groups::kWeighingEnd, kSums>(i + 1);
#pragma unroll
    for (int f = kFrom; f < kTo; ++f) {
#pragma unroll
      for (int m = 0; m < kTilesM; ++m) {
        probabilities_[m][f] = Math::exp(scores[m][f] * start_.factor);
        if (f + 1 < kSums) arch::follows(scores[m][f + 1], probabilities_[m][f]);
      }
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
  WMMA_DEVICE void start(Sums& sums, int which) const {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
      for (int f = 0; f < kSums; f += 4) {
        if constexpr (kOwnsKeys) {
          const Number* from = statistics_ + which * kOthers + Link::place(lane_, f);
          arch::copy_bytes<16>(sums[m] + f, __builtin_assume_aligned(from, 16));
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[m][f + i] = starts_[m][which];
        }
      }
    }
  }

  WMMA_DEVICE void bound(Sums& sums, Number nothing, const GradientTile& tile) const {
    const bool bounded =
        tile.skipped > 0 || is_bounded<kOwnsKeys, Groups::kBlockRows, kOthers, Sight>(p_, first_row_, tile.row);
    if (!bounded) return;
    bound_sums<Config, Groups>(sums, nothing, p_, lane_, wave_row_, tile);
  }

  // g_P becomes g_S, of a lane's sums f and f + 1.
  WMMA_DEVICE void bend(int f) {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
      slopes[m][f] = product(slopes[m][f], probabilities_[m][f], f);
      slopes[m][f + 1] = product(slopes[m][f + 1], probabilities_[m][f + 1], f + 1);
    }
  }
  // Neighbours by different instructions, of which the compiler makes no packed one.
  static WMMA_DEVICE Number product(Number x, Number y, int f) {
    return f % 2 == 0 ? x * y : arch::fma(x, y, Number(0));
  }

  // A lane's sums f and f + 1, rounded.
  static WMMA_DEVICE void pack(Weights& rows, const Sums& sums, int f) {
    const int word = f % Link::kShare / 2;
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
      uint32_t& pair = rows[m][f / Link::kShare][word / 4].words[word % 4];
      pack_weights<T, 2>(&pair, sums[m] + f);
      arch::settle(pair);
    }
  }

  const Arguments& p_;
  uint32_t lane_;
  int wave_row_;   // its first
  int first_row_;  // of the block
  GradientStart<Number> start_;
  Number* statistics_;
  uint32_t lines_[2];  // a lane's query, in bytes from the tile's first
  Number starts_[kTilesM][2];
  Number asked_[2];
  Sums probabilities_;
};

}  // namespace wmma
