// Results follow when the products that are under way meanwhile are there.
#pragma once

#include <wmma/attention/softmax/rows.hpp>
#include <wmma/attention/terms/hidden.hpp>

namespace wmma {

template <class Config, class Link, bool kPingPong>
class DeferredSoftmax : public SoftmaxRows<Config, Link, kPingPong> {
  using Rows = SoftmaxRows<Config, Link, kPingPong>;
  using Number = typename Link::Sum;
  using Math = SoftmaxOf<Config, Number>;
  using Rows::become_differences, Rows::below, Rows::finite, Rows::inverse_unit, Rows::is_far, Rows::is_near,
      Rows::kFp8Offset, Rows::fp8_offset_, Rows::kOutSums, Rows::larger, Rows::largest_, Rows::least_of, Rows::most_of,
      Rows::sum_;
  // A soft cap bounds how far a row's scores are apart. Where bfloat16 has the weights, whose exponents are float's,
  // what a row is relative to may be left as the first keys had it: kCapHeadroom above them, so that nothing overflows.
  static constexpr bool kBoundedScores = kCountsFromCap<Config> && kSame<typename Config::Element, bf16_t>;
  static constexpr int kCapHeadroom = 40;
  static constexpr int kMostApart = 150;
  // Beside a mask the vote on far rows is taken before lanes compare their scores: on an H200 4 x 32 x 2048 x 64 with
  // one of bool took 864 µs, 1072 otherwise; without a mask it is taken afterwards, 525 µs and 538 of 4 x 16 x 4096
  // x 64.
  static constexpr bool kVotesEarly = !kIsNone<typename Config::Mask> || Config::kHidden != Hidden::kNone;

 public:
  // Whether rows need no second look at their scores.
  template <class Arguments>
  static WMMA_DEVICE bool looks_once(const Arguments& p) {
    if constexpr (kBoundedScores) return Number(2) * cap_of<Number, Math>(p) <= Number(kMostApart);
    return false;
  }

  // What rows are relative to follows the largest score; their results have to follow by these factors.
  template <int kSums>
  WMMA_DEVICE void look(Number (&scores)[kSums], Number factor, Number (&factors)[Link::kLaneRows], bool once) {
    if constexpr (kBoundedScores) {
      if (once) {
        look_once(scores);
#pragma unroll
        for (int i = 0; i < Link::kLaneRows; ++i) factors[i] = Number(1);
        return;
      }
    }
    Number most[Link::kLaneRows];
    bool far = false;
    if constexpr (kVotesEarly) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        most[i] = most_of(scores, i);
        far = far || is_far(Math::max(largest_[0][i], most[i]));
      }
    }
    bool differs = kVotesEarly && Math::kFused && arch::ballot(far) != 0;
#pragma unroll
    for (int i = 0; i < Link::kLaneRows; ++i) {
      if constexpr (!kVotesEarly) most[i] = most_of(scores, i);
      const Number seen = finite(Link::fold(most[i], larger));
      const Number largest = Math::max(largest_[0][i], kFp8Offset > 0 ? seen - this->fp8_offset_ : seen);
      factors[i] = Math::change(largest_[0][i], below(largest), factor);
      largest_[0][i] = largest;
      sum_[0][i] *= factors[i];
      if constexpr (!kVotesEarly) far = far || !is_near(largest * factor);
    }
    if constexpr (!kVotesEarly && Math::kFused) differs = arch::ballot(far) != 0;
    if (__builtin_expect(differs, 0)) become_differences(scores, 0);
  }
  template <int kSums>
  WMMA_DEVICE void look_once(const Number (&scores)[kSums]) {
    bool known = true;
#pragma unroll
    for (int i = 0; i < Link::kLaneRows; ++i) known = known && largest_[0][i] != -Math::infinity();
    if (arch::ballot(!known) == 0) return;
#pragma unroll
    for (int i = 0; i < Link::kLaneRows; ++i) {
      const Number largest = finite(largest_of(scores, i) + Number(kCapHeadroom) * inverse_unit());
      largest_[0][i] = largest_[0][i] == -Math::infinity() ? largest : largest_[0][i];
    }
  }
  template <int kSums>
  WMMA_DEVICE void exponentiate(Number (&scores)[kSums], Number factor) {
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      const int i = Link::row_of(f);
      scores[f] = Math::weight(scores[f], factor, least_of(largest_[0][i], factor));
      sum_[0][i] += scores[f];
    }
  }
  WMMA_DEVICE void rescale(const Number (&factors)[Link::kLaneRows]) {
#pragma unroll
    for (int f = 0; f < kOutSums; ++f) this->out[0][f] *= factors[Link::row_of(f)];
  }

  // Results follow the factors and a part of them is added, that was not there yet when these were found.
  WMMA_DEVICE void add(const Number (&part)[kOutSums], const Number (&factors)[Link::kLaneRows]) {
#pragma unroll
    for (int f = 0; f < kOutSums; ++f) this->out[0][f] = arch::fma(this->out[0][f], factors[Link::row_of(f)], part[f]);
  }

 private:
  template <int kSums>
  static WMMA_DEVICE Number largest_of(const Number (&scores)[kSums], int row) {
    return Link::fold(most_of(scores, row), larger);
  }
};

}  // namespace wmma
