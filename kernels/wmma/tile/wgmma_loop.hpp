// The main loop of sm_90a for operands of 16 and 8 bits that go to shared memory as they are: kStages tiles there,
// filled by asynchronous copies, multiplied by warpgroups straight from there. A product is always under way: it is
// awaited when the next one was started. The tile that K does not fill comes first.
#pragma once

#include <wmma/arch/wgmma.hpp>
#include <wmma/tile/async_loop.hpp>

namespace wmma {

// A tile as the matrix unit takes it: panels of 128 bytes a line, one behind the other, and the chunks of eight lines
// exchanged so that each chunk's eight touch every bank once.
template <int kLineCount, int kLineBytes>
struct PanelTile {
  static_assert(kLineCount % 8 == 0 && kLineBytes % 128 == 0, "whole panels of eight lines");
  static constexpr int kLines = kLineCount;
  static constexpr int kChunks = kLineBytes / 16;
  static constexpr int kPanelBytes = kLineCount * 128;
  static constexpr int kBytes = kLineBytes / 128 * kPanelBytes;
  static constexpr int kPeriod = 8;

  static WMMA_CONSTEXPR uint32_t offset(uint32_t line, uint32_t chunk) {
    return chunk / 8 * kPanelBytes + line * 128 + (chunk % 8 ^ line % 8) * 16;
  }
};

template <class Product, class LoaderA, class LoaderB, bool kAlongA, bool kAlongB, class A, class B, int kN, int kDepth,
          int kStages>
struct WgmmaLoop {
  using Wave = WaveTile<Product, 16, kN>;  // a wave's part of its warpgroup's 64 rows
  using TileA = typename LoaderA::Tile;
  using TileB = typename LoaderB::Tile;
  using Sum = typename Product::Compute;
  // The matrix unit keeps some 14 bits of a sum of fp8 products, so each tile's is added to the others in float32.
  static constexpr bool kAddsParts = kIsFp8<A>;
  static constexpr int kStep = 32 / sizeof(A);  // of K that one product takes
  static constexpr int kSteps = kDepth / kStep;
  static constexpr uint32_t kStageBytes = TileA::kBytes + TileB::kBytes;
  static constexpr int kBytes = kStages * static_cast<int>(kStageBytes);
  static_assert(kStages >= 4, "one tile is multiplied, one was, and others arrive");

  struct Reader {
    uint32_t first;  // of the warpgroup's rows, in bytes from the tile's start

    WMMA_DEVICE Reader(uint32_t, uint32_t first_row, uint32_t, uint32_t, uint32_t) {
      const uint32_t group = arch::shuffle_word(first_row / 64, 0);
      first = group * (kAlongA ? 64 * 128 : TileA::kPanelBytes);
    }
  };

  static WMMA_DEVICE void run(Wave& wave, LoaderA& a, LoaderB& b, unsigned char* shared, int64_t k,
                              const Reader& reader) {
    if (k <= 0) return;
    const uint32_t start = arch::shared_address(shared);
    const uint32_t tiles = static_cast<uint32_t>((k + kDepth - 1) / kDepth);
    const int first = static_cast<int>(k - static_cast<int64_t>(tiles - 1) * kDepth);
    a.template copy<true>(start, first);
    b.template copy<true>(start + TileA::kBytes, first);
    arch::commit_async();
    a.advance(first);
    b.advance(first);
    uint32_t asked = 1;  // tiles whose copies were started
#pragma unroll
    for (int i = 1; i < kStages - 2; ++i) {
      if (asked < tiles) copy_next(a, b, start + i * kStageBytes);
      ++asked;
      arch::commit_async();
    }
    Sum* sums = &wave.sums[0][0][0];
    Sum part[kN / 2];
    Sum* into = kAddsParts ? part : sums;
    hold(sums);
    arrive();
    uint32_t stage = 0;             // that is multiplied
    uint32_t filled = kStages - 2;  // that is filled next
    for (uint32_t tile = 0; tile < tiles; ++tile) {
      multiply(into, start + stage * kStageBytes + reader.first, start + stage * kStageBytes + TileA::kBytes);
      if (asked < tiles) copy_next(a, b, start + filled * kStageBytes);
      ++asked;
      arch::commit_async();
      stage = stage + 1 == kStages ? 0 : stage + 1;
      filled = filled + 1 == kStages ? 0 : filled + 1;
      if constexpr (kAddsParts) {
        arch::wgmma_wait<0>();
        hold(part);
#pragma unroll
        for (int i = 0; i < kN / 2; ++i) sums[i] += part[i];
      } else {
        arch::wgmma_wait<1>();  // the product before this one has read its tile
      }
      arrive();
    }
    arch::wgmma_wait<0>();
    hold(sums);
  }

 private:
  // The next tile is there for everyone, and everyone is done with the product before the last.
  static WMMA_DEVICE void arrive() {
    arch::wait_async<kStages - 3>();
    arch::fence_matrix_unit();
    arch::block_barrier();
  }

  static WMMA_DEVICE void multiply(Sum* sums, uint32_t a, uint32_t b) {
    arch::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      arch::Wgmma<A, B, kN>::template mma<!kAlongA, !kAlongB>(
          sums, arch::wgmma_operand(a + step_bytes<kAlongA, TileA>(step), TileA::kPanelBytes),
          arch::wgmma_operand(b + step_bytes<kAlongB, TileB>(step), TileB::kPanelBytes), !kAddsParts || step != 0);
    }
    arch::wgmma_commit();
  }

  // Where a step starts: further along its lines, or so many lines down.
  template <bool kAlong, class Tile>
  static WMMA_CONSTEXPR uint32_t step_bytes(int step) {
    return kAlong ? step * 32 / 128 * Tile::kPanelBytes + step * 32 % 128 : step * kStep * 128;
  }

  static WMMA_DEVICE void hold(Sum* sums) {
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) arch::hold(sums[i]);
  }

  static WMMA_DEVICE void copy_next(LoaderA& a, LoaderB& b, uint32_t to) {
    a.template copy<false>(to);
    b.template copy<false>(to + TileA::kBytes);
    a.advance(kDepth);
    b.advance(kDepth);
  }
};

}  // namespace wmma
