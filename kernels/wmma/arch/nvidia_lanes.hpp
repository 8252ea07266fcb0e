// What NVIDIA's lanes do together, beyond what nvidia.hpp has.
#pragma once

#include <wmma/target.hpp>

namespace wmma::arch {

// A mask's lanes may come one after the other: the call waits for them.
constexpr bool kLanesComeTogether = false;

WMMA_DEVICE uint64_t active_mask() { return __activemask(); }
WMMA_DEVICE int lowest_bit(uint64_t bits) { return __ffsll(static_cast<long long>(bits)) - 1; }
WMMA_DEVICE int highest_bit(uint64_t bits) { return 63 - __clzll(static_cast<long long>(bits)); }

WMMA_DEVICE uint64_t ballot_among(uint64_t mask, bool vote) { return __ballot_sync(static_cast<uint32_t>(mask), vote); }
WMMA_DEVICE void wave_barrier_among(uint64_t mask) { __syncwarp(static_cast<uint32_t>(mask)); }
WMMA_DEVICE uint32_t shuffle_word_among(uint64_t mask, uint32_t word, uint32_t source_lane) {
  return __shfl_sync(static_cast<uint32_t>(mask), word, static_cast<int>(source_lane));
}
WMMA_DEVICE uint64_t match_word(uint64_t mask, uint32_t word) {
  return __match_any_sync(static_cast<uint32_t>(mask), word);
}

// Of groups of 2·kStep lanes whose halves have one word each: the other half's.
template <int kStep>
WMMA_DEVICE uint32_t fold_word(uint32_t word) {
  return __shfl_xor_sync(~0u, word, kStep);
}

// In the upper halves of groups of 2·kStep lanes: the word of the lower half's last lane.
template <int kStep>
WMMA_DEVICE uint32_t spread_word(uint32_t word) {
  return __shfl_sync(~0u, word, static_cast<int>((lane_id() & ~(2u * kStep - 1)) | (kStep - 1)));
}

}  // namespace wmma::arch
