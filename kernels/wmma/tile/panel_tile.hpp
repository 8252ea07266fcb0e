// Tiles as sm_90a's matrix unit reads them.
#pragma once

#include <wmma/arch/wgmma.hpp>

namespace wmma {

// Panels of 128 bytes a line, one behind the other, and the chunks of eight lines exchanged so that each chunk's eight
// touch every bank once.
template <int kLineCount, int kLineBytes>
struct PanelTile {
  static_assert(kLineCount % 8 == 0 && kLineBytes % 128 == 0, "whole panels of eight lines");
  static constexpr int kLines = kLineCount;
  static constexpr int kPanels = kLineBytes / 128;
  static constexpr int kPanelBytes = kLineCount * 128;
  static constexpr int kBytes = kPanels * kPanelBytes;

  // Where a step of K starts: 32 bytes further along the lines, or so many lines down.
  template <bool kAlong>
  static WMMA_CONSTEXPR uint32_t step_bytes(int step, int lines) {
    return kAlong ? step * 32 / 128 * kPanelBytes + step * 32 % 128 : step * lines * 128;
  }
};

template <int kCount, class Sum>
WMMA_DEVICE void hold_sums(Sum* sums) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) arch::hold(sums[i]);
}

}  // namespace wmma
