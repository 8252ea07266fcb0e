// Where the sums of a tile of attention's gradients start from, and which of them count: scores then end as multiples
// of a factor relative to lse.
#pragma once

#include <wmma/attention/gradients/tiles.hpp>

namespace wmma {

template <class Number>
class GradientStart {
  using Math = Softmax<Number>;

 public:
  Number factor;  // scores are multiples of it, in our unit

  WMMA_DEVICE explicit GradientStart(double scale) : factor(factor_of(scale)), inverse_(Number(1) / factor) {}
  // `more` is added to the score, in our unit.
  WMMA_DEVICE Number of(Number lse, Number more = Number(0)) const {
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

// A wave's sums that do not count become `nothing`.
template <class Config, class Groups, int kTilesM, int kSums, class Number, class Arguments>
WMMA_DEVICE void bound_sums(Number (&sums)[kTilesM][kSums], Number nothing, const Arguments& p, uint32_t lane,
                            int wave_row, const GradientTile& tile) {
  using Link = typename Groups::Link;
  using Sight = wmma::Sight<Config::kCausal, typename Config::Rules>;
  lane = arch::unshared(lane);  // so that nothing of this is done where nothing is bounded
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      const int other = static_cast<int>(Link::place(lane, f));
      bool inside = other >= tile.skipped;
      const int row = wave_row + m * Link::kRows + static_cast<int>(Link::row(lane, 0));
      const int query = Config::kOwnsKeys ? tile.row + other : row;
      inside = inside && Sight::sees(p, query, Config::kOwnsKeys ? row : tile.row + other);
      sums[m][f] = inside ? sums[m][f] : nothing;
    }
  }
}

}  // namespace wmma
