// What AMD's lanes do together, beyond what amd.hpp has.
#pragma once

#include <wmma/target.hpp>

namespace wmma::arch {

// Lanes that part come together again before they go on: a mask's lanes are all here or never.
constexpr bool kLanesComeTogether = true;

WMMA_DEVICE uint64_t active_mask() { return ballot(true); }
WMMA_DEVICE int lowest_bit(uint64_t bits) { return __builtin_ctzll(bits); }
WMMA_DEVICE int highest_bit(uint64_t bits) { return 63 - __builtin_clzll(bits); }

WMMA_DEVICE uint64_t ballot_among(uint64_t mask, bool vote) { return ballot(vote) & mask; }
WMMA_DEVICE void wave_barrier_among(uint64_t) { wave_barrier(); }
WMMA_DEVICE uint32_t shuffle_word_among(uint64_t, uint32_t word, uint32_t source_lane) {
  return shuffle_word(word, source_lane);
}

// The lanes that have the same word: one word after the other, until this lane's has been called.
WMMA_DEVICE uint64_t match_word(uint64_t, uint32_t word) {
  while (true) {
    const uint64_t same = ballot(word == uniform(word));
    if (word == uniform(word)) return same;
  }
}

template <int kControl>
WMMA_DEVICE uint32_t by_dpp(uint32_t word) {
  return __builtin_amdgcn_mov_dpp(static_cast<int>(word), kControl, 0xf, 0xf, true);
}
template <int kPattern>
WMMA_DEVICE uint32_t by_swizzle(uint32_t word) {
  return __builtin_amdgcn_ds_swizzle(static_cast<int>(word), kPattern);
}

// Of groups of 2·kStep lanes whose halves have one word each: the other half's.
template <int kStep>
WMMA_DEVICE uint32_t fold_word(uint32_t word) {
  if constexpr (kStep == 1) return by_dpp<0xb1>(word);   // quad_perm:[1,0,3,2]
  if constexpr (kStep == 2) return by_dpp<0x4e>(word);   // quad_perm:[2,3,0,1]
  if constexpr (kStep == 4) return by_dpp<0x141>(word);  // row_half_mirror
  if constexpr (kStep == 8) return by_dpp<0x140>(word);  // row_mirror
#ifdef WMMA_CDNA
  if constexpr (kStep == 16) return by_swizzle<0x401f>(word);  // lane ^ 16
  if constexpr (kStep == 32) {
    const uint32_t low = __builtin_amdgcn_readlane(word, 0), high = __builtin_amdgcn_readlane(word, 32);
    return lane_id() & 32 ? low : high;
  }
#else
  if constexpr (kStep == 16) return other_half(word);
#endif
}

// In the upper halves of groups of 2·kStep lanes: the word of the lower half's last lane.
template <int kStep>
WMMA_DEVICE uint32_t spread_word(uint32_t word) {
  if constexpr (kStep == 1) return by_dpp<0xa0>(word);  // quad_perm:[0,0,2,2]
  if constexpr (kStep == 2) return by_dpp<0x55>(word);  // quad_perm:[1,1,1,1]
#ifdef WMMA_CDNA
  if constexpr (kStep == 4) return by_swizzle<3 << 5 | 0x18>(word);  // lane & 24 | 3
  if constexpr (kStep == 8) return by_swizzle<7 << 5 | 0x10>(word);  // lane & 16 | 7
  if constexpr (kStep == 16) return by_swizzle<15 << 5>(word);       // 15
  if constexpr (kStep == 32) return __builtin_amdgcn_readlane(word, 31);
#else
  if constexpr (kStep == 4) {  // row_share:3 and row_share:11, each for its lanes (compilers move dpp8 into branches)
    const int low = __builtin_amdgcn_update_dpp(word, word, 0x153, 0xf, 0x2, false);
    return __builtin_amdgcn_update_dpp(low, word, 0x15b, 0xf, 0x8, false);
  }
  if constexpr (kStep == 8) return by_dpp<0x157>(word);  // row_share:7
  if constexpr (kStep == 16) return __builtin_amdgcn_readlane(word, 15);
#endif
}

}  // namespace wmma::arch
