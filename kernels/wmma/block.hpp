// Reductions and scans over the threads of a block, in the order of their ranks. All of them call, as for a barrier.
//
// Values have 1, 2, 4 or 8 bytes, and are combined as wave.hpp says: reductions have the same bits in every run and on
// every target, for the same number of threads; scans of floats in every run, on targets of one wave size. Each call
// has three barriers, and a value in shared memory for each wave that a block may have.
#pragma once

#include <wmma/grid.hpp>
#include <wmma/wave.hpp>

namespace wmma {

namespace detail {

template <class T>
struct BlockScan {
  T inclusive;  // of the thread's wave alone
  T before;     // all waves before it; means nothing in the first
  T total;
};

template <class T, class F>
WMMA_DEVICE BlockScan<T> block_scan(T value, F f) {
  constexpr int kMostWaves = 1024 / kWaveSize;
  __shared__ BitsOf<T> ends[kMostWaves];
  const auto put = [&](uint32_t wave, T end) { ends[wave] = arch::bit_cast<BitsOf<T>>(end); };
  const auto get = [&](uint32_t wave) { return arch::bit_cast<T>(ends[wave]); };
  const uint32_t lane = lane_id(), wave = wave_id(), waves = wave_count();
  // 1. Each wave by itself; its last thread has all of it.
  const T inclusive = scanned<1, kWaveSize>(value, f);
  if (lane == kWaveSize - 1 || thread_rank() == block_threads() - 1) put(wave, inclusive);
  arch::block_barrier();
  // 2. The first wave, which is whole where there are others, takes the waves as its lanes.
  if (wave == 0) {
    const T end = scanned<1, kMostWaves>(lane < waves ? get(lane) : inclusive, f);
    if (lane < waves) put(lane, end);
  }
  arch::block_barrier();
  // 3. What another call writes there must wait for the last read.
  const BlockScan<T> found{inclusive, get(wave == 0 ? 0 : wave - 1), get(waves - 1)};
  arch::block_barrier();
  return found;
}

}  // namespace detail

// All threads' values by an associative f, for each of them.
template <class T, class F>
WMMA_DEVICE T block_reduce(T value, F f) {
  return detail::block_scan(value, f).total;
}

// This thread's value and those before it, by an associative f.
template <class T, class F>
WMMA_DEVICE T block_inclusive_scan(T value, F f) {
  const auto found = detail::block_scan(value, f);
  return wave_id() == 0 ? found.inclusive : f(found.before, found.inclusive);
}

// The values before this thread's, by an associative f; `first` where there are none.
template <class T, class F>
WMMA_DEVICE T block_exclusive_scan(T value, F f, typename Identity<T>::Type first) {
  const auto found = detail::block_scan(value, f);
  const T within = shuffle_up(found.inclusive, 1);
  if (lane_id() == 0) return wave_id() == 0 ? first : found.before;
  return wave_id() == 0 ? within : f(found.before, within);
}

// The sum of the values up to this thread's.
template <class T>
WMMA_DEVICE T block_inclusive_sum(T value) {
  return static_cast<T>(block_inclusive_scan(detail::carried(value), Sum{}));
}
// The sum of the values before this thread's.
template <class T>
WMMA_DEVICE T block_exclusive_sum(T value) {
  return static_cast<T>(block_exclusive_scan(detail::carried(value), Sum{}, 0));
}

// The sum of all threads, for each of them.
template <class T>
WMMA_DEVICE T block_sum(T value) {
  return static_cast<T>(block_reduce(detail::carried(value), Sum{}));
}

// The least value of all threads, for each of them.
template <class T>
WMMA_DEVICE T block_min(T value) {
  return static_cast<T>(block_reduce(detail::carried(value), Min{}));
}

// The greatest value of all threads, for each of them.
template <class T>
WMMA_DEVICE T block_max(T value) {
  return static_cast<T>(block_reduce(detail::carried(value), Max{}));
}

// All bits that every value has of all threads, for each of them.
template <class T>
WMMA_DEVICE T block_and(T value) {
  return static_cast<T>(block_reduce(detail::carried(value), BitAnd{}));
}

// All bits that any value has of all threads, for each of them.
template <class T>
WMMA_DEVICE T block_or(T value) {
  return static_cast<T>(block_reduce(detail::carried(value), BitOr{}));
}

// The bits that an odd number of values have of all threads, for each of them.
template <class T>
WMMA_DEVICE T block_xor(T value) {
  return static_cast<T>(block_reduce(detail::carried(value), BitXor{}));
}

}  // namespace wmma
