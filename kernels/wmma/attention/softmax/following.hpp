// Results follow before scores become weights.
#pragma once

#include <wmma/attention/softmax/rows.hpp>

namespace wmma {

template <class Config, class Link, bool kPingPong>
class FollowingSoftmax : public SoftmaxRows<Config, Link, kPingPong> {
 protected:
  using Rows = SoftmaxRows<Config, Link, kPingPong>;
  using Number = typename Link::Sum;
  using Math = SoftmaxOf<Config, Number>;
  using Rows::become_differences, Rows::far_, Rows::find_far, Rows::follow_row, Rows::kKeepsLeast, Rows::kOutSums,
      Rows::kRescaleThreshold, Rows::kWeightsAreLonger, Rows::keep_least, Rows::larger, Rows::largest_, Rows::least_,
      Rows::least_of, Rows::most_of, Rows::sum_;

 public:
  // Scores, multiples of `factor`, become weights relative to the largest so far; what was summed up before follows.
  // `beside(i)` is done before the i-th score of a lane's first tile of rows does.
  template <int kSums, class Beside>
  WMMA_DEVICE void weigh(Number (&scores)[Config::kTilesM][kSums], Number factor, const Beside& beside) {
    follow(scores, factor, [] {});
    exponentiate(scores, factor, beside);
  }

 protected:
  // What rows are relative to follows their largest score, and what was summed up before follows it: at once, or,
  // where lanes are asked quickly, once the score has grown by kRescaleThreshold, so that weights stay below
  // 2^kRescaleThreshold.
  template <int kSums, class Then>
  WMMA_DEVICE void follow(Number (&scores)[Config::kTilesM][kSums], Number factor, const Then& then) {
    Number most[Config::kTilesM][Link::kLaneRows];
    bool grew = false;
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        most[m][i] = most_of(scores[m], i);
        grew = grew || grows(most[m][i] - largest_[m][i], factor);
      }
    }
    if (kRescaleThreshold > 0 && (arch::ballot(grew) | far_) == 0) return;
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
      Number factors[Link::kLaneRows];
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        const Number seen = Link::fold(most[m][i], larger);
        // A row follows only its own scores: its results are the same whatever the wave's others are.
        factors[i] = follow_row(m, i, seen, kRescaleThreshold == 0 || grows(seen - largest_[m][i], factor));
        sum_[m][i] *= factors[i];
      }
      keep_least(m);
#pragma unroll
      for (int f = 0; f < kOutSums; ++f) this->out[m][f] *= factors[Link::row_of(f)];
    }
    find_far();
    if (__builtin_expect(far_ != 0, 0)) {
#pragma unroll
      for (int m = 0; m < Config::kTilesM; ++m) become_differences(scores[m], m);
    }
    then();
  }
  // Whether a row follows a score that is so much larger than its largest. Where none was seen, −∞ has no difference.
  static WMMA_DEVICE bool grows(Number difference, Number factor) {
    return difference * factor > Number(kRescaleThreshold) * Math::kTwo;
  }

  template <int kSums, class Beside>
  WMMA_DEVICE void exponentiate(Number (&scores)[Config::kTilesM][kSums], Number factor, const Beside& beside) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
      Number least[Link::kLaneRows];
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        if constexpr (kKeepsLeast) {
          least[i] = least_[m][i];
        } else {
          least[i] = least_of(arch::unshared(largest_[m][i]), factor);
        }
      }
#pragma unroll
      for (int f = 0; f < kSums; ++f) {
        const int i = Link::row_of(f);
        if (m == 0) beside(f);
        scores[m][f] = Math::weight(scores[m][f], factor, least[i]);
        if (!kWeightsAreLonger) sum_[m][i] += scores[m][f];
      }
      if constexpr (kWeightsAreLonger) {
        arch::schedule_barrier();
        Number parts[4];
#pragma unroll
        for (int f = 0; f < kSums; ++f) parts[f % 4] = f < 4 ? scores[m][f] : parts[f % 4] + scores[m][f];
        sum_[m][0] += (parts[0] + parts[1]) + (parts[2] + parts[3]);
      }
      if (m + 1 < Config::kTilesM) arch::follows(largest_[m + 1][0], sum_[m][0]);
    }
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) arch::settle(sum_[m][i]);
    }
  }
};

}  // namespace wmma
