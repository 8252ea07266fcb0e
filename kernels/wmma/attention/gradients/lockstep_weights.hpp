// The weights of a tile of attention's gradients and what follows from them, where a wave computes them between
// products (loops/lockstep_gradients.hpp): by instructions that pair.
#pragma once

#include <wmma/attention/gradients/groups.hpp>
#include <wmma/attention/gradients/scores.hpp>
#include <wmma/attention/weights.hpp>

namespace wmma {

template <class Config>
class LockstepWeights {
  using Groups = GradientGroups<Config>;
  using T = typename Config::Element;
  using Link = typename Groups::Link;
  using Number = typename Groups::Number;
  using Math = Softmax<Number>;
  using Cut = CutWeights<T, Number>;
  using Place = GradientPlace<Config::kOwnsKeys>;
  using Arguments = typename Config::Rules::Arguments;
  using Sight = wmma::Sight<Config::kCausal, typename Config::Rules>;
  static_assert(!Config::Rules::kScored, "scores are products");
  static constexpr bool kOwnsKeys = Config::kOwnsKeys;
  static constexpr int kOthers = Groups::kOthers;
  static constexpr int kSums = Groups::kSums;
  static constexpr int kWeightSteps = Groups::kWeightSteps;
  // g_S of half_t may be too large for it, and then has to be infinite: it is rounded.
  static constexpr bool kCutsSlopes = Cut::kCuts && kSame<T, bf16_t>;

 public:
  // Of the queries of a tile, where it owns keys: lse and delta of each.
  static constexpr int kStatistics = kOwnsKeys ? 2 * kOthers : 0;
  static constexpr int kStatisticsBytes = kStatistics * static_cast<int>(sizeof(Number));
  // By how much g_S is larger than it is.
  static constexpr Number kExcess = kCutsSlopes ? Number(1) : Cut::kExcess;

  Number scores[1][kSums];
  Number slopes[1][kSums];  // g_P, then g_S
  Chunk weights[kWeightSteps][Link::kRowChunks];
  Chunk slope_rows[kWeightSteps][Link::kRowChunks];

  WMMA_DEVICE LockstepWeights(const Arguments& p, const Place& place, unsigned char* statistics, uint32_t wave,
                              uint32_t lane, int wave_row)
      : p_(p),
        start_(p.scale),
        lane_(lane),
        wave_row_(wave_row),
        puts_(wave < kStatistics / arch::kWaveSize),
        is_delta_(threadIdx.x / kOthers % 2 == 1),
        statistics_(reinterpret_cast<Number*>(statistics)),
        line_(threadIdx.x % kOthers *
              static_cast<uint32_t>((is_delta_ ? p.delta : p.lse).row_stride * sizeof(Number))) {
    start_.factor = arch::bit_cast<Number>(arch::uniform(arch::bit_cast<uint32_t>(start_.factor)));
    if constexpr (!kOwnsKeys) {
      uint32_t row = wave_row + Link::row(lane, 0);
      row = row < place.rows ? row : place.rows - 1;
      starts_[0] = start_of(static_cast<const Number*>(p.lse.data)[place.offset(p.lse, row)]);
      if (!Config::kSumsDelta) know_delta(static_cast<const Number*>(p.delta.data)[place.offset(p.delta, row)]);
    }
  }

  // Of a lane's query, where it owns queries.
  WMMA_DEVICE void know_delta(Number delta) { starts_[1] = arch::unshared(-delta); }

  // The statistics of a tile's queries, one a thread: loads, then what the sums start from goes to shared memory.
  WMMA_DEVICE void ask(const GradientTile& tile) {
    if constexpr (kOwnsKeys) {
      if (!puts_) return;
      arch::renew(line_);
      asked_ = *reinterpret_cast<const Number*>((is_delta_ ? tile.delta : tile.lse) + line_);
    }
  }
  WMMA_DEVICE void put() {
    if constexpr (kOwnsKeys) {
      if (puts_) statistics_[threadIdx.x] = is_delta_ ? -asked_ : start_of(asked_);
    }
  }
  // Scores start so that they end as multiples of the factor relative to lse; g_P relative to delta.
  WMMA_DEVICE void start_scores() { start(scores[0], 0); }
  WMMA_DEVICE void start_slopes() { start(slopes[0], 1); }

  // Scores of what is not seen become −∞ times the factor's sign, and nothing follows from them.
  WMMA_DEVICE void bound(const GradientTile& tile) {
    const int first_row = wave_row_ / Groups::kBlockRows * Groups::kBlockRows;
    const bool bounded =
        tile.skipped > 0 || is_bounded<kOwnsKeys, Groups::kBlockRows, kOthers, Sight>(p_, first_row, tile.row);
    if (!bounded) return;
    bound_sums<Config, Groups>(scores, start_.never(), p_, lane_, wave_row_, tile);
    bound_sums<Config, Groups>(slopes, Number(0), p_, lane_, wave_row_, tile);
  }

  // The weights, g_S, and both as operands.
  WMMA_DEVICE void weigh() {
    Number* p = scores[0];
    Number* g = slopes[0];
#pragma unroll
    for (int f = 0; f < kSums; ++f) p[f] *= start_.factor;
    arch::schedule_barrier();  // they pair
#pragma unroll
    for (int f = 0; f < kSums; ++f) p[f] = Math::exp(p[f]);
#pragma unroll
    for (int f = 0; f < kSums; ++f) g[f] *= p[f];
    arch::schedule_barrier();
    if constexpr (kOwnsKeys) join<Cut::kCuts>(weights, p);
    join<kCutsSlopes>(slope_rows, g);
  }

 private:
  WMMA_DEVICE Number start_of(Number lse) const { return start_.of(lse, Cut::kLogExcess); }

  WMMA_DEVICE void start(Number (&sums)[kSums], int which) const {
#pragma unroll
    for (int f = 0; f < kSums; f += 4) {
      if constexpr (kOwnsKeys) {
        const Number* from = statistics_ + which * kOthers + Link::place(lane_, f);
        arch::copy_bytes<16>(sums + f, __builtin_assume_aligned(from, 16));
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[f + i] = starts_[which];
      }
    }
  }

  template <bool kCut>
  static WMMA_DEVICE void join(Chunk (&rows)[kWeightSteps][Link::kRowChunks], const Number* sums) {
#pragma unroll
    for (int step = 0; step < kWeightSteps; ++step) {
      uint32_t words[Link::kShare / 2];
      pack_weights<T, Link::kShare, kCut>(words, sums + step * Link::kShare);
      Link::join(rows[step], words);
    }
  }

  const Arguments& p_;
  GradientStart<Number> start_;
  uint32_t lane_;
  int wave_row_;  // its first
  bool puts_;     // a statistic, which is one or the other
  bool is_delta_;
  Number* statistics_;
  uint32_t line_;  // its query, in bytes from the tile's first
  Number starts_[2];
  Number asked_;
};

}  // namespace wmma
