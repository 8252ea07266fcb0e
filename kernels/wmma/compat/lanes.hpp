// Shuffles, votes and matches of a warp's lanes by CUDA's names, with a mask (_sync) and, as HIP has them, without. A
// mask has a bit for each lane: 64 bits on CDNA. Where lanes of a warp take different ways, name those that come by a
// mask: without one NVIDIA's calls wait for all lanes, HIP's do not.
#pragma once

#include <wmma/block.hpp>
#include <wmma/lanes.hpp>
#include <wmma/wave.hpp>

#if defined(WMMA_NVIDIA)
// Instructions without a mask are gone there: all lanes take part.
#define __ballot(vote) wmma::vote_ballot(vote)
#define __any(vote) wmma::vote_any(vote)
#define __all(vote) wmma::vote_all(vote)
#endif

#if !defined(WMMA_HIP_NAMES)

// The lane within its warp.
WMMA_DEVICE unsigned __lane_id() { return wmma::lane_id(); }

// A lane's value: of a lane by its number, of the lane `delta` below or above, of the lane whose number differs in
// bits.
template <class T>
WMMA_DEVICE T __shfl(T value, int source, int width = wmma::kWaveSize) {
  return wmma::shuffle(value, source, width);
}
template <class T>
WMMA_DEVICE T __shfl_up(T value, unsigned delta, int width = wmma::kWaveSize) {
  return wmma::shuffle_up(value, static_cast<int>(delta), width);
}
template <class T>
WMMA_DEVICE T __shfl_down(T value, unsigned delta, int width = wmma::kWaveSize) {
  return wmma::shuffle_down(value, static_cast<int>(delta), width);
}
template <class T>
WMMA_DEVICE T __shfl_xor(T value, int bits, int width = wmma::kWaveSize) {
  return wmma::shuffle_xor(value, bits, width);
}

#endif

#if !defined(WMMA_NVIDIA) && !defined(WMMA_HIP_NAMES)

// The same among the lanes of a mask.
template <class Mask, class T>
WMMA_DEVICE T __shfl_sync(Mask mask, T value, int source, int width = wmma::kWaveSize) {
  return wmma::shuffle_sync(mask, value, source, width);
}
template <class Mask, class T>
WMMA_DEVICE T __shfl_up_sync(Mask mask, T value, unsigned delta, int width = wmma::kWaveSize) {
  return wmma::shuffle_up_sync(mask, value, static_cast<int>(delta), width);
}
template <class Mask, class T>
WMMA_DEVICE T __shfl_down_sync(Mask mask, T value, unsigned delta, int width = wmma::kWaveSize) {
  return wmma::shuffle_down_sync(mask, value, static_cast<int>(delta), width);
}
template <class Mask, class T>
WMMA_DEVICE T __shfl_xor_sync(Mask mask, T value, int bits, int width = wmma::kWaveSize) {
  return wmma::shuffle_xor_sync(mask, value, bits, width);
}

// Votes: a bit for each lane, whether any lane, whether all.
WMMA_DEVICE unsigned long long __ballot(int vote) { return wmma::vote_ballot(vote != 0); }
WMMA_DEVICE int __any(int vote) { return wmma::vote_any(vote != 0); }
WMMA_DEVICE int __all(int vote) { return wmma::vote_all(vote != 0); }

// Votes among the lanes of a mask.
template <class Mask>
WMMA_DEVICE unsigned long long __ballot_sync(Mask mask, int vote) {
  return wmma::vote_ballot_sync(mask, vote != 0);
}
template <class Mask>
WMMA_DEVICE int __any_sync(Mask mask, int vote) {
  return wmma::vote_any_sync(mask, vote != 0);
}
template <class Mask>
WMMA_DEVICE int __all_sync(Mask mask, int vote) {
  return wmma::vote_all_sync(mask, vote != 0);
}

// The lanes that come to this call together.
WMMA_DEVICE unsigned long long __activemask() { return wmma::active_mask(); }

// The lanes of a mask that hold this lane's value; all of them, with *alike set, where all hold one value, else none.
template <class Mask, class T>
WMMA_DEVICE unsigned long long __match_any_sync(Mask mask, T value) {
  return wmma::match_any_sync(mask, value);
}
template <class Mask, class T>
WMMA_DEVICE unsigned long long __match_all_sync(Mask mask, T value, int* alike) {
  const unsigned long long found = wmma::match_all_sync(mask, value);
  *alike = found != 0;
  return found;
}

// Waits for a warp's lanes, or for those of a mask; what they wrote before is seen after.
WMMA_DEVICE void __syncwarp() { wmma::sync_wave(); }
template <class Mask>
WMMA_DEVICE void __syncwarp(Mask mask) {
  wmma::sync_wave(mask);
}

// Whole numbers of a mask's lanes as one, for each of them.
template <class Mask, class T>
WMMA_DEVICE T __reduce_add_sync(Mask mask, T value) {
  return wmma::wave_sum_sync(mask, value);
}
template <class Mask, class T>
WMMA_DEVICE T __reduce_min_sync(Mask mask, T value) {
  return wmma::wave_min_sync(mask, value);
}
template <class Mask, class T>
WMMA_DEVICE T __reduce_max_sync(Mask mask, T value) {
  return wmma::wave_max_sync(mask, value);
}
template <class Mask, class T>
WMMA_DEVICE T __reduce_and_sync(Mask mask, T value) {
  return wmma::wave_and_sync(mask, value);
}
template <class Mask, class T>
WMMA_DEVICE T __reduce_or_sync(Mask mask, T value) {
  return wmma::wave_or_sync(mask, value);
}
template <class Mask, class T>
WMMA_DEVICE T __reduce_xor_sync(Mask mask, T value) {
  return wmma::wave_xor_sync(mask, value);
}

// A barrier of the block that counts votes, or tells whether all or any are true.
WMMA_DEVICE int __syncthreads_count(int vote) { return wmma::block_sum(vote != 0 ? 1 : 0); }
WMMA_DEVICE int __syncthreads_and(int vote) { return wmma::block_min(vote != 0 ? 1 : 0); }
WMMA_DEVICE int __syncthreads_or(int vote) { return wmma::block_max(vote != 0 ? 1 : 0); }

#endif
