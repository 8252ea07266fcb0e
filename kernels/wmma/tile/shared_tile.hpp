// Tiles in shared memory: lines of 16-byte chunks, swizzled so that as many neighbouring lines as the banks serve in a
// cycle, read at one chunk, and as many neighbouring chunks of a line, each touch every bank once.
#pragma once

#include <wmma/target.hpp>

namespace wmma {

// What one lane moves at once.
struct alignas(16) Chunk {
  uint32_t words[4];
};

// Tiles of A and B side by side, stage after stage.
template <class TileA, class TileB>
struct StagePlaces {
  static constexpr uint32_t kStageBytes = TileA::kBytes + TileB::kBytes;

  uint32_t start;

  WMMA_DEVICE uint32_t a(uint32_t stage) const { return start + stage * kStageBytes; }
  WMMA_DEVICE uint32_t b(uint32_t stage) const { return a(stage) + TileA::kBytes; }
};

template <int kLineCount, int kLineBytes>
struct SharedTile {
  static_assert(kLineBytes % 16 == 0, "lines are made of chunks");
  static constexpr int kLines = kLineCount;
  static constexpr int kChunks = kLineBytes / 16;
  static constexpr int kRow = arch::kBankBytes / 16;  // chunks side by side in the banks
  static constexpr bool kExchanges = kChunks % kRow == 0 || kRow % kChunks == 0;
  // Lines that do not fit the exchange lie an odd number of chunks apart instead.
  static constexpr int kPitch = kExchanges ? kChunks : kChunks | 1;
  static constexpr int kBytes = kLineCount * kPitch * 16;
  // Where there are two sets of banks, rows alternate between them; those eight lines apart trade places, so that 16
  // lines that are read at one chunk meet in none.
  static constexpr bool kAlternates =
      arch::kBankSets == 2 && kExchanges && 2 * kChunks >= kRow && (kChunks <= kRow || kChunks % (2 * kRow) == 0);

  // The byte of a chunk. The chunks of a row of all banks are exchanged among each other. Where several lines share a
  // row, those eight lines apart trade places too: blocks of eight lines that are stored together then lie side by
  // side.
  static WMMA_CONSTEXPR uint32_t offset(uint32_t line, uint32_t chunk) {
    const uint32_t at = line * kPitch + chunk;
    if (!kExchanges) return at * 16;
    const uint32_t other_set = kAlternates ? line / 8 % 2 * kRow : 0;
    if (kChunks >= kRow) return (at ^ (line % kRow + other_set)) * 16;
    return (at ^ (at / kRow % kChunks + line / 8 % 2 * kChunks + other_set)) * 16;
  }

  // The byte of a line's chunk beside its first one's, as far as that is the same for all lines.
  static WMMA_CONSTEXPR uint32_t along(uint32_t chunk) { return chunk * 16; }

  // So many neighbouring chunks of a line are exchanged among each other.
  static constexpr int kPeriodChunks = !kExchanges                     ? 1
                                       : kChunks < kRow                ? kChunks
                                       : kAlternates && kChunks > kRow ? 2 * kRow
                                                                       : kRow;
  // So many lines further down the exchange is the same.
  static constexpr int kPeriod = !kExchanges ? 1 : kChunks >= kRow && !kAlternates ? kRow : 16;
};

}  // namespace wmma
