// Tiles as sm_90a's matrix unit reads them.
#pragma once

#include <wmma/arch/wgmma.hpp>

namespace wmma {

// Boxes of 128 bytes a line (the copy engine moves one at once), one behind the other, and the chunks of eight lines
// exchanged so that each chunk's eight touch every bank once.
template <int kLineCount, int kLineBytes>
struct WarpgroupTile {
  static_assert(kLineCount % 8 == 0 && kLineBytes % 128 == 0, "whole boxes of eight lines");
  static constexpr int kLines = kLineCount;
  static constexpr int kBoxes = kLineBytes / 128;
  static constexpr int kBoxBytes = kLineCount * 128;
  static constexpr int kBytes = kBoxes * kBoxBytes;

  // The tile, or a part of its lines, as the matrix unit's operand; and where a step of K starts in it: 32 bytes
  // further along the lines, or so many lines down.
  WMMA_DEVICE static uint64_t operand(uint32_t address) { return arch::wgmma_operand(address, kBoxBytes); }
  template <bool kAlong>
  WMMA_DEVICE static uint64_t step(uint64_t operand, int index, int lines) {
    const int bytes = kAlong ? index * 32 / 128 * kBoxBytes + index * 32 % 128 : index * lines * 128;
    return arch::wgmma_operand_after(operand, bytes);
  }
};

// Its lines from one on, and before another, by kThreads threads; for the matrix unit once they have met.
template <class Tile, int kThreads>
WMMA_DEVICE void clear_lines(unsigned char* tile, int from, uint32_t thread, int to = Tile::kLines) {
  const uint32_t none[4] = {};
  const uint32_t first = static_cast<uint32_t>(from) * 128 + thread * 16;
#pragma unroll
  for (int box = 0; box < Tile::kBoxes; ++box) {
    for (uint32_t at = first; at < static_cast<uint32_t>(to) * 128; at += kThreads * 16) {
      arch::copy_bytes<16>(tile + box * Tile::kBoxBytes + at, none);
    }
  }
  arch::fence_matrix_unit();
}

template <int kCount, class Sum>
WMMA_DEVICE void hold_sums(Sum* sums) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) arch::hold(sums[i]);
}

}  // namespace wmma
