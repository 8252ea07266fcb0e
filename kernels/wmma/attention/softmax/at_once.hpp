// Where all keys count, weights are computed as if no row had to follow. Where one has, which their sum tells, the tile
// is computed again.
#pragma once

#include <wmma/attention/softmax/following.hpp>

namespace wmma {

template <class Config, class Link, bool kPingPong>
class SoftmaxAtOnce : public FollowingSoftmax<Config, Link, kPingPong> {
  using Following = FollowingSoftmax<Config, Link, kPingPong>;
  using Number = typename Link::Sum;
  using Math = SoftmaxOf<Config, Number>;
  using Following::find_far, Following::follow_row, Following::inverse_unit, Following::is_far, Following::is_near,
      Following::kLogExcess, Following::kOutSums, Following::kRescaleThreshold, Following::larger, Following::most_of,
      Following::largest_, Following::start_, Following::sum_, Following::unit_;

 public:
  WMMA_DEVICE void clear(Number unit) {
    Following::clear(unit);
    start();
  }
  template <int kSums, class Beside>
  WMMA_DEVICE void weigh(Number (&scores)[Config::kTilesM][kSums], Number factor, const Beside& beside) {
    this->follow(scores, factor, [&] { start(); });
    this->exponentiate(scores, factor, beside);
  }

  // Keys that all count are weighed at once. Their scores start from what they are relative to, so that it is
  // subtracted when they are there; and no score is looked at: that one is too large for it the sum of the weights
  // tells.
  template <int kSums>
  WMMA_DEVICE void begin_at_once(Number (&scores)[Config::kTilesM][kSums]) const {
    begin_from(scores, start_);
  }
  // Such scores become weights. False where a row's are too large; nothing is summed up then, and `sums` tells which.
  template <int kSums>
  WMMA_DEVICE bool weigh_at_once(Number (&weights)[Config::kTilesM][kSums], Number (&sums)[Config::kTilesM],
                                 const Number (&scores)[Config::kTilesM][kSums], Number factor, bool anyway) {
    constexpr int kParts = 4;
    bool large = false;
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int f = 0; f < kSums; ++f) weights[m][f] = scores[m][f] * factor;
      arch::schedule_barrier();  // they pair
#pragma unroll
      for (int f = 0; f < kSums; ++f) weights[m][f] = Math::exp(weights[m][f]);
      Number parts[kParts];
#pragma unroll
      for (int f = 0; f < kSums; ++f) {
        parts[f % kParts] = f < kParts ? weights[m][f] : parts[f % kParts] + weights[m][f];
      }
      sums[m] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
      large = large || is_large<kSums>(sums[m]);
    }
    if (!anyway && arch::ballot(large) != 0) return false;
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) sum_[m][0] += sums[m];
    return true;
  }
  // Where they were, scores begin again: with what is known of rows that have seen a key, so that those that stay have
  // the same bits.
  template <int kSums>
  WMMA_DEVICE void begin_again(Number (&scores)[Config::kTilesM][kSums]) const {
    Number from[Config::kTilesM][Link::kElements];
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) arch::spread<Link::kElements>(from[m], begun_from(m));
    begin_from(scores, from);
  }
  // Then what rows with too large ones are relative to, and no others, follows their scores. Results are to follow by
  // `factors`, in a branch of its own: where another has products too, compilers copy them each time.
  template <int kSums>
  WMMA_DEVICE void raise(Number (&scores)[Config::kTilesM][kSums], Number (&factors)[Config::kTilesM],
                         const Number (&sums)[Config::kTilesM]) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
      Number most = most_of(scores[m], 0);
      const Number from = begun_from(m);
      const bool follows = Link::fold(Number(is_large<kSums>(sums[m])), larger) != Number(0);
      most = Link::fold(most, larger);
      factors[m] = follow_row(m, 0, most - from, follows);
      sum_[m][0] *= factors[m];
      Number change = follows ? start_of(m) - from : Number(0);
      // A far row's become what they are above its largest, which may be one of them.
      if (is_far(largest_[m][0])) change = from == Number(0) ? -largest_[m][0] : -most;
#pragma unroll
      for (int f = 0; f < kSums; ++f) scores[m][f] += change;
    }
  }
  WMMA_DEVICE void rescale_all(const Number (&factors)[Config::kTilesM]) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int f = 0; f < kOutSums; ++f) this->out[m][f] *= factors[m];
    }
    find_far();
    start();
  }

 private:
  // Whether a lane's kSums weights may be larger than 2^kRescaleThreshold. NaN is.
  template <int kSums>
  static WMMA_DEVICE bool is_large(Number sum) {
    return !(sum <= Number(kSums << kRescaleThreshold));
  }

  // Where scores start from. Not where the row has seen no key, or is far: all of its weights are too large then.
  WMMA_DEVICE Number start_of(int m) const {
    const bool near = is_near(largest_[m][0] * unit_);
    return near ? arch::fma(kLogExcess, inverse_unit(), -largest_[m][0]) : Math::infinity();
  }
  // Where they start once more.
  WMMA_DEVICE Number begun_from(int m) const { return start_[m][0] == Math::infinity() ? Number(0) : start_[m][0]; }
  template <int kSums, int kFrom>
  static WMMA_DEVICE void begin_from(Number (&scores)[Config::kTilesM][kSums],
                                     const Number (&from)[Config::kTilesM][kFrom]) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int f = 0; f < kSums; ++f) scores[m][f] = from[m][f % kFrom];
    }
  }
  WMMA_DEVICE void start() {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) arch::spread<Link::kElements>(start_[m], start_of(m));
  }
};

}  // namespace wmma
