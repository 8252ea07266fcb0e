// The weights of a tile of attention's gradients and what follows from them, where a wave computes them between
// products (loops/lockstep_gradients.hpp): by instructions that pair.
#pragma once

#include <wmma/attention/gradients/groups.hpp>
#include <wmma/attention/gradients/scores.hpp>

namespace wmma {

template <class Config>
class LockstepWeights : public GradientScores<Config, GradientGroups<Config>> {
  using Groups = GradientGroups<Config>;
  using Base = GradientScores<Config, Groups>;
  using T = typename Config::Element;
  using Link = typename Groups::Link;
  using Number = typename Groups::Number;
  using Cut = typename Base::Cut;
  static constexpr bool kOwnsKeys = Config::kOwnsKeys;
  static constexpr int kOthers = Groups::kOthers;
  static constexpr int kSums = Groups::kSums;
  // g_S of half_t may be too large for it, and then has to be infinite: it is rounded.
  static constexpr bool kCutsSlopes = Cut::kCuts && kSame<T, bf16_t>;

 public:
  // By how much g_S is larger than it is.
  static constexpr Number kExcess = kCutsSlopes ? Number(1) : Cut::kExcess;

  WMMA_DEVICE LockstepWeights(const typename Base::Arguments& p, const typename Base::Place& place,
                              unsigned char* statistics, uint32_t wave, uint32_t lane, int wave_row)
      : Base(p, place, statistics, lane, wave_row),
        puts_(wave < Base::kStatistics / arch::kWaveSize),
        is_delta_(threadIdx.x / kOthers % 2 == 1),
        line_(threadIdx.x % kOthers *
              static_cast<uint32_t>((is_delta_ ? p.delta : p.lse).row_stride * sizeof(Number))) {
    Number& factor = this->start_.factor;
    factor = arch::bit_cast<Number>(arch::uniform(arch::bit_cast<uint32_t>(factor)));
    this->know_rows(p, place);
  }

  // The statistics of a tile's queries, one a thread: loads, then what the sums start from goes to shared memory.
  WMMA_DEVICE void fetch(const GradientTile& tile) {
    if constexpr (kOwnsKeys) {
      if (!puts_) return;
      arch::renew(line_);
      fetched_ = *reinterpret_cast<const Number*>((is_delta_ ? tile.delta : tile.lse) + line_);
    }
  }
  WMMA_DEVICE void put() {
    if constexpr (kOwnsKeys) {
      if (puts_) this->statistics_[threadIdx.x] = is_delta_ ? -fetched_ : this->start_of(fetched_);
    }
  }
  WMMA_DEVICE void bound(const GradientTile& tile) {
    if (!this->is_bounded(tile)) return;
    Base::bound(this->scores, this->start_.never(), tile);
    Base::bound(this->slopes, Number(0), tile);
  }

  // The weights, g_S, and both as operands.
  WMMA_DEVICE void weigh() {
    Number* p = this->scores[0];
    Number* g = this->slopes[0];
#pragma unroll
    for (int f = 0; f < kSums; ++f) p[f] *= this->start_.factor;
    arch::schedule_barrier();  // they pair
#pragma unroll
    for (int f = 0; f < kSums; ++f) p[f] = Softmax<Number>::exp(p[f]);
#pragma unroll
    for (int f = 0; f < kSums; ++f) g[f] *= p[f];
    arch::schedule_barrier();
    if constexpr (kOwnsKeys) join<Cut::kCuts>(this->weights[0], p);
    join<kCutsSlopes>(this->slope_rows[0], g);
  }

 private:
  template <bool kCut>
  static WMMA_DEVICE void join(Chunk (&rows)[Groups::kWeightSteps][Link::kRowChunks], const Number* sums) {
#pragma unroll
    for (int step = 0; step < Groups::kWeightSteps; ++step) {
      uint32_t words[Link::kShare / 2];
      pack_weights<T, Link::kShare, kCut>(words, sums + step * Link::kShare);
      Link::join(rows[step], words);
    }
  }

  bool puts_;  // a statistic, which is one or the other
  bool is_delta_;
  uint32_t line_;  // its query, in bytes from the tile's first
  Number fetched_;
};

}  // namespace wmma
