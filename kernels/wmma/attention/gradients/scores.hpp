// A wave's sums of a tile of attention's gradients, scores and g_P: where they start from, which of them count, and the
// operands that they become.
#pragma once

#include <wmma/attention/gradients/tiles.hpp>
#include <wmma/attention/weights.hpp>

namespace wmma {

// Scores end as multiples of a factor relative to lse.
template <class Number>
class GradientStart {
  using Math = Softmax<Number>;

 public:
  Number factor;  // scores are multiples of it, in our unit

  WMMA_DEVICE explicit GradientStart(double scale) : factor(factor_of(scale)), inverse_(Number(1) / factor) {}
  // `more` is added to the score, in our unit.
  WMMA_DEVICE Number of(Number lse, Number more) const {
    // Where no key was seen, scores end as −∞.
    const Number relative = -lse * Number(Math::kUnit);
    const Number start = (more == Number(0) ? relative : relative + more) * inverse_;
    return lse == -Math::infinity() ? -start : start;
  }
  // A score that does not count: it ends as −∞.
  WMMA_DEVICE Number never() const { return factor < Number(0) ? Math::infinity() : -Math::infinity(); }

 private:
  // A scale of 0 leaves of scores nothing beside lse.
  static WMMA_DEVICE Number factor_of(double scale) {
    const Number factor = static_cast<Number>(scale * static_cast<double>(Math::kUnit));
    return factor == Number(0) ? arch::bit_cast<Number>(0x0d800000u) : factor;  // 2^−100
  }

  Number inverse_;
};

template <class Config, class Groups>
class GradientScores {
  static_assert(!Config::Rules::kScored, "scores are products");
  static_assert(Groups::kTilesM == 1, "a lane has one row");
  using Sight = wmma::Sight<Config::kCausal, typename Config::Rules>;
  using Sums = typename Groups::Sums;

 protected:
  using T = typename Config::Element;
  using Link = typename Groups::Link;
  using Number = typename Groups::Number;
  using Math = Softmax<Number>;
  using Cut = CutWeights<T, Number>;
  using Place = GradientPlace<Config::kOwnsKeys>;
  using Arguments = typename Config::Rules::Arguments;
  static constexpr bool kOwnsKeys = Config::kOwnsKeys;
  static constexpr int kOthers = Groups::kOthers;
  static constexpr int kSums = Groups::kSums;
  static constexpr int kStatistics = kOwnsKeys ? 2 * kOthers : 0;  // lse and delta of a tile's queries

 public:
  static constexpr int kStatisticsBytes = kStatistics * static_cast<int>(sizeof(Number));

  Sums scores;
  Sums slopes;                       // g_P, then g_S
  typename Groups::Weights weights;  // as operands, as the next
  typename Groups::Weights slope_rows;

  // Of a lane's query, where it owns queries.
  WMMA_DEVICE void know_delta(Number delta) { starts_[1] = arch::unshared(-delta); }

  // Scores start so that they end as multiples of the factor relative to lse; g_P relative to delta.
  WMMA_DEVICE void start_scores() { start(scores, 0); }
  WMMA_DEVICE void start_slopes() { start(slopes, 1); }

 protected:
  WMMA_DEVICE GradientScores(const Arguments& p, const Place& place, unsigned char* statistics, uint32_t lane,
                             int wave_row)
      : p_(p),
        lane_(lane),
        wave_row_(wave_row),
        first_row_(wave_row / Groups::kBlockRows * Groups::kBlockRows),
        start_(p.scale),
        statistics_(reinterpret_cast<Number*>(statistics)) {}
  // What is known of owned queries.
  WMMA_DEVICE void know_rows(const Arguments& p, const Place& place) {
    if constexpr (!kOwnsKeys) {
      uint32_t row = wave_row_ + Link::row(lane_, 0);
      row = row < place.rows ? row : place.rows - 1;
      starts_[0] = start_of(static_cast<const Number*>(p.lse.data)[place.offset(p.lse, row)]);
      if (!Config::kSumsDelta) {
        know_delta(static_cast<const Number*>(p.delta.data)[place.offset(p.delta, row)]);
      }
    }
  }
  WMMA_DEVICE Number start_of(Number lse) const { return start_.of(lse, Cut::kLogExcess); }

  // Whether not all of the tile's scores count. Those that do not become −∞ times the factor's sign, and nothing
  // follows from them.
  WMMA_DEVICE bool is_bounded(const GradientTile& tile) const {
    return tile.skipped > 0 ||
           wmma::is_bounded<kOwnsKeys, Groups::kBlockRows, kOthers, Sight>(p_, first_row_, tile.row);
  }
  WMMA_DEVICE void bound(Sums& sums, Number nothing, const GradientTile& tile) const {
    const uint32_t lane = arch::unshared(lane_);  // so that nothing of this is done where nothing is bounded
    const int row = wave_row_ + static_cast<int>(Link::row(lane, 0));
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      const int other = static_cast<int>(Link::place(lane, f));
      bool inside = other >= tile.skipped;
      const int query = kOwnsKeys ? tile.row + other : row;
      inside = inside && Sight::sees(p_, query, kOwnsKeys ? row : tile.row + other);
      sums[0][f] = inside ? sums[0][f] : nothing;
    }
  }

  const Arguments& p_;
  uint32_t lane_;
  int wave_row_;   // its first
  int first_row_;  // of the block
  GradientStart<Number> start_;
  Number* statistics_;
  Number starts_[2];

 private:
  WMMA_DEVICE void start(Sums& sums, int which) const {
#pragma unroll
    for (int f = 0; f < kSums; f += 4) {
      if constexpr (kOwnsKeys) {
        const Number* from = statistics_ + which * kOthers + Link::place(lane_, f);
        arch::copy_bytes<16>(sums[0] + f, __builtin_assume_aligned(from, 16));
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[0][f + i] = starts_[which];
      }
    }
  }
};

}  // namespace wmma
