// Tiles in shared memory: lines of 16-byte chunks, swizzled so that eight neighbouring lines, read at one chunk, and
// eight neighbouring chunks of a line each touch every bank once.
#pragma once

#include <wmma/target.hpp>

namespace wmma {

// What one lane moves at once.
struct alignas(16) Chunk {
  uint32_t words[4];
};

template <int kLineCount, int kLineBytes>
struct SharedTile {
  static_assert(kLineBytes % 16 == 0, "lines are made of chunks");
  static constexpr int kLines = kLineCount;
  static constexpr int kChunks = kLineBytes / 16;
  static constexpr bool kExchanges = kChunks % 8 == 0 || 8 % kChunks == 0;
  // Lines that do not fit the exchange lie an odd number of chunks apart instead.
  static constexpr int kPitch = kExchanges ? kChunks : kChunks | 1;
  static constexpr int kBytes = kLineCount * kPitch * 16;

  // The byte of a chunk. The chunks of 128 bytes, a row of all banks, are exchanged among each other; eight lines
  // further down the exchange is the same.
  static WMMA_CONSTEXPR uint32_t offset(uint32_t line, uint32_t chunk) {
    const uint32_t at = line * kPitch + chunk;
    if (!kExchanges) return at * 16;
    return (at ^ (kChunks >= 8 ? line % 8 : at / 8 % kChunks)) * 16;
  }
};

}  // namespace wmma
