// Rows whose results are to be the same bits whatever rows stand beside them, which a configuration says. Of many keys
// they have parts that begin at fixed places, and every part joins those before it alike: in registers where a block
// has all of them one after the other, and else in passes/combine.hpp.
#pragma once

#include <wmma/attention/math.hpp>

namespace wmma {

// Such rows. Weights that are computed at once, where all of a tile's rows see all of its keys, have other bits than
// one by one, and are none of theirs.
template <class Config, class = void>
inline constexpr bool kStandsAlone = false;
template <class Config>
inline constexpr bool kStandsAlone<Config, decltype(static_cast<void>(Config::kStandsAlone))> = Config::kStandsAlone;

// Whether a block has a tile's parts one after the other.
template <class Config, class = void>
inline constexpr bool kFoldsParts = false;
template <class Config>
inline constexpr bool kFoldsParts<Config, decltype(static_cast<void>(Config::kFolds))> = Config::kFolds;

// What results so far, and those of the part that joins them, are multiplied by.
template <class Number>
struct Joint {
  Number before;
  Number now;

  // Said as one instruction, so that no compiler takes another for one kernel than for the other.
  WMMA_DEVICE Number of(Number result, Number value) const { return arch::fma(value, now, result * before); }
};

// A part of a row, by half of its largest score and its sum of weights, joins those that are relative to `largest`.
template <class Math, class Number>
WMMA_DEVICE Joint<Number> join_part(Number& largest, Number& sum, Number half, Number part) {
  const Number most = Math::max(largest, half);
  const auto ratio = [&](Number of, Number weights) {
    const Number difference = of - most;
    return weights == Number(0) ? Number(0) : Math::ratio(difference, difference);
  };
  const Joint<Number> joint{ratio(largest, sum), ratio(half, part)};
  sum = joint.of(sum, part);
  largest = most;
  return joint;
}

// A row's lse, by half of its largest score and its sum of weights.
template <bool kAlone, class Math, class Number>
WMMA_DEVICE Number lse_of(Number half, Number sum) {
  if constexpr (kAlone) {
    half = arch::apart(half);
    sum = arch::apart(sum);
  }
  return Math::log_sum(half, sum);
}

}  // namespace wmma
