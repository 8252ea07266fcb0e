// Reductions and scans over the lanes of a wave, or over groups of kWidth of them, a power of two.
//
// All lanes of the wave take part; those that end in _sync are among the lanes of a mask (lanes.hpp). Values have 1, 2,
// 4 or 8 bytes. They are combined in pairs of neighbours, then pairs of pairs: ((0, 1), (2, 3)), ((4, 5), (6, 7)) … Of
// a mask's lanes those are neighbours that follow each other in it. So float sums have the same bits in every run and
// on every target, for the same number of lanes; the last lane's inclusive scan is the reduction. Sums and least and
// greatest values of half_t and bf16_t are computed in float and rounded once.
#pragma once

#include <wmma/lanes.hpp>
#include <wmma/operators.hpp>

namespace wmma {

namespace detail {

template <int kWidth>
inline constexpr bool kIsWidth = kWidth > 0 && kWidth <= kWaveSize && (kWidth & (kWidth - 1)) == 0;

// Each lane's value with those of its group: both halves of every pair of groups know theirs.
template <int kStep, int kWidth, class T, class F>
WMMA_DEVICE T folded(T value, F f) {
  if constexpr (kStep < kWidth) {
    const T other = by_words(value, [](uint32_t word) { return arch::fold_word<kStep>(word); });
    return folded<2 * kStep, kWidth>(f(value, other), f);
  } else {
    return value;
  }
}

// Each lane's value with those of the lanes before it in its group: upper halves take the lower ones' last. Lanes below
// are read alone, so that those above may be absent.
template <int kStep, int kWidth, class T, class F>
WMMA_DEVICE T scanned(T value, F f) {
  if constexpr (kStep < kWidth) {
    const T before = by_words(value, [](uint32_t word) { return arch::spread_word<kStep>(word); });
    if (lane_id() & kStep) value = f(before, value);
    return scanned<2 * kStep, kWidth>(value, f);
  } else {
    return value;
  }
}

// The lane that a mask names after n others.
WMMA_DEVICE uint32_t lane_of_rank(uint64_t mask, uint32_t n) {
  uint32_t lane = 0;
#pragma unroll
  for (int half = kWaveSize / 2; half > 0; half /= 2) {
    const uint32_t below = count_bits(mask >> lane & ((uint64_t{1} << half) - 1));
    if (n < below) continue;
    n -= below;
    lane += half;
  }
  return lane;
}

template <class T, class F>
WMMA_DEVICE T scanned_among(uint64_t mask, T value, F f) {
  if (mask == kAllLanes) return scanned<1, kWaveSize>(value, f);
  const uint32_t count = count_bits(mask), rank = count_bits(mask & lane_mask_lt());
  for (uint32_t step = 1; step < count; step *= 2) {
    const bool upper = rank & step;
    const uint32_t source = upper ? lane_of_rank(mask, (rank & ~(2 * step - 1)) | (step - 1)) : lane_id();
    const T before = shuffle_among(mask, value, source);
    if (upper) value = f(before, value);
  }
  return value;
}

}  // namespace detail

// All values of a group by an associative f, for each of its lanes.
template <int kWidth = kWaveSize, class T, class F>
WMMA_DEVICE T wave_reduce(T value, F f) {
  static_assert(detail::kIsWidth<kWidth>, "wmma: a width is a power of two, up to the wave's lanes");
  if constexpr (detail::kCommutes<F>) {
    return detail::folded<1, kWidth>(value, f);
  } else {
    return detail::shuffle_from(detail::scanned<1, kWidth>(value, f), lane_id() | (kWidth - 1));
  }
}
// The same among the lanes of a mask.
template <class Mask, class T, class F>
WMMA_DEVICE T wave_reduce_sync(Mask mask, T value, F f) {
  const uint64_t among = detail::checked_mask(mask);
  if (among == kAllLanes) return wave_reduce(value, f);
  return detail::shuffle_among(among, detail::scanned_among(among, value, f), arch::highest_bit(among));
}

// This lane's value and those before it in its group, by an associative f.
template <int kWidth = kWaveSize, class T, class F>
WMMA_DEVICE T wave_inclusive_scan(T value, F f) {
  static_assert(detail::kIsWidth<kWidth>, "wmma: a width is a power of two, up to the wave's lanes");
  return detail::scanned<1, kWidth>(value, f);
}
// The same among the lanes of a mask.
template <class Mask, class T, class F>
WMMA_DEVICE T wave_inclusive_scan_sync(Mask mask, T value, F f) {
  return detail::scanned_among(detail::checked_mask(mask), value, f);
}

// The values before this lane's, by an associative f; `first` where there are none.
template <int kWidth = kWaveSize, class T, class F>
WMMA_DEVICE T wave_exclusive_scan(T value, F f, typename Identity<T>::Type first) {
  const T before = shuffle_up(wave_inclusive_scan<kWidth>(value, f), 1);
  return lane_id() % kWidth == 0 ? first : before;
}
// The same among the lanes of a mask.
template <class Mask, class T, class F>
WMMA_DEVICE T wave_exclusive_scan_sync(Mask mask, T value, F f, typename Identity<T>::Type first) {
  const uint64_t among = detail::checked_mask(mask), below = among & lane_mask_lt();
  const T sum = detail::scanned_among(among, value, f);
  const T before = detail::shuffle_among(among, sum, below ? arch::highest_bit(below) : lane_id());
  return below ? before : first;
}

// The sum of the group's values up to this lane's.
template <int kWidth = kWaveSize, class T>
WMMA_DEVICE T wave_inclusive_sum(T value) {
  return static_cast<T>(wave_inclusive_scan<kWidth>(detail::carried(value), Sum{}));
}
// The same among the lanes of a mask.
template <class Mask, class T>
WMMA_DEVICE T wave_inclusive_sum_sync(Mask mask, T value) {
  return static_cast<T>(wave_inclusive_scan_sync(mask, detail::carried(value), Sum{}));
}
// The sum of the group's values before this lane's.
template <int kWidth = kWaveSize, class T>
WMMA_DEVICE T wave_exclusive_sum(T value) {
  return static_cast<T>(wave_exclusive_scan<kWidth>(detail::carried(value), Sum{}, 0));
}
// The same among the lanes of a mask.
template <class Mask, class T>
WMMA_DEVICE T wave_exclusive_sum_sync(Mask mask, T value) {
  return static_cast<T>(wave_exclusive_scan_sync(mask, detail::carried(value), Sum{}, 0));
}

// The sum of a group of lanes, for each of them.
template <int kWidth = kWaveSize, class T>
WMMA_DEVICE T wave_sum(T value) {
  return static_cast<T>(wave_reduce<kWidth>(detail::carried(value), Sum{}));
}
// The sum of a mask's lanes, for each of them.
template <class Mask, class T>
WMMA_DEVICE T wave_sum_sync(Mask mask, T value) {
  return static_cast<T>(wave_reduce_sync(mask, detail::carried(value), Sum{}));
}

// The least value of a group of lanes, for each of them.
template <int kWidth = kWaveSize, class T>
WMMA_DEVICE T wave_min(T value) {
  return static_cast<T>(wave_reduce<kWidth>(detail::carried(value), Min{}));
}
// The least value of a mask's lanes, for each of them.
template <class Mask, class T>
WMMA_DEVICE T wave_min_sync(Mask mask, T value) {
  return static_cast<T>(wave_reduce_sync(mask, detail::carried(value), Min{}));
}

// The greatest value of a group of lanes, for each of them.
template <int kWidth = kWaveSize, class T>
WMMA_DEVICE T wave_max(T value) {
  return static_cast<T>(wave_reduce<kWidth>(detail::carried(value), Max{}));
}
// The greatest value of a mask's lanes, for each of them.
template <class Mask, class T>
WMMA_DEVICE T wave_max_sync(Mask mask, T value) {
  return static_cast<T>(wave_reduce_sync(mask, detail::carried(value), Max{}));
}

// All bits that every value has of a group of lanes, for each of them.
template <int kWidth = kWaveSize, class T>
WMMA_DEVICE T wave_and(T value) {
  return static_cast<T>(wave_reduce<kWidth>(detail::carried(value), BitAnd{}));
}
// All bits that every value has of a mask's lanes, for each of them.
template <class Mask, class T>
WMMA_DEVICE T wave_and_sync(Mask mask, T value) {
  return static_cast<T>(wave_reduce_sync(mask, detail::carried(value), BitAnd{}));
}

// All bits that any value has of a group of lanes, for each of them.
template <int kWidth = kWaveSize, class T>
WMMA_DEVICE T wave_or(T value) {
  return static_cast<T>(wave_reduce<kWidth>(detail::carried(value), BitOr{}));
}
// All bits that any value has of a mask's lanes, for each of them.
template <class Mask, class T>
WMMA_DEVICE T wave_or_sync(Mask mask, T value) {
  return static_cast<T>(wave_reduce_sync(mask, detail::carried(value), BitOr{}));
}

// The bits that an odd number of values have of a group of lanes, for each of them.
template <int kWidth = kWaveSize, class T>
WMMA_DEVICE T wave_xor(T value) {
  return static_cast<T>(wave_reduce<kWidth>(detail::carried(value), BitXor{}));
}
// The bits that an odd number of values have of a mask's lanes, for each of them.
template <class Mask, class T>
WMMA_DEVICE T wave_xor_sync(Mask mask, T value) {
  return static_cast<T>(wave_reduce_sync(mask, detail::carried(value), BitXor{}));
}

}  // namespace wmma
