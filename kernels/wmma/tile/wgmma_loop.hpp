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

  // Where a step of K starts: 32 bytes further along the lines, or so many lines down.
  template <bool kAlong>
  static WMMA_CONSTEXPR uint32_t step_bytes(int step, int lines) {
    return kAlong ? step * 32 / 128 * kPanelBytes + step * 32 % 128 : step * lines * 128;
  }
};

// Until the next of kStages tiles is there for everyone, and everyone is done with the product before the last.
template <int kStages>
WMMA_DEVICE void arrive_for_products() {
  arch::wait_async<kStages - 3>();
  arch::fence_matrix_unit();
  arch::block_barrier();
}

template <int kCount, class Sum>
WMMA_DEVICE void hold_sums(Sum* sums) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) arch::hold(sums[i]);
}

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
  using Ring = TileRing<LoaderA, LoaderB, kDepth, kStages, kStages - 2>;
  static constexpr int kBytes = Ring::kBytes;
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
    Ring ring(a, b, shared, k);
    Sum* sums = &wave.sums[0][0][0];
    Sum part[kN / 2];
    Sum* into = kAddsParts ? part : sums;
    hold_sums<kN / 2>(sums);
    arrive_for_products<kStages>();
    uint32_t stage = 0;             // that is multiplied
    uint32_t filled = kStages - 2;  // that is filled next
    for (uint32_t tile = 0; tile < ring.tiles(); ++tile) {
      multiply(into, ring.a(stage) + reader.first, ring.b(stage));
      ring.ask(a, b, filled);
      stage = stage + 1 == kStages ? 0 : stage + 1;
      filled = filled + 1 == kStages ? 0 : filled + 1;
      if constexpr (kAddsParts) {
        arch::wgmma_wait<0>();
        hold_sums<kN / 2>(part);
#pragma unroll
        for (int i = 0; i < kN / 2; ++i) sums[i] += part[i];
      } else {
        arch::wgmma_wait<1>();  // the product before this one has read its tile
      }
      arrive_for_products<kStages>();
    }
    arch::wgmma_wait<0>();
    hold_sums<kN / 2>(sums);
  }

 private:
  static WMMA_DEVICE void multiply(Sum* sums, uint32_t a, uint32_t b) {
    arch::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      arch::Wgmma<A, B, kN>::template mma<!kAlongA, !kAlongB>(
          sums, arch::wgmma_operand(a + TileA::template step_bytes<kAlongA>(step, kStep), TileA::kPanelBytes),
          arch::wgmma_operand(b + TileB::template step_bytes<kAlongB>(step, kStep), TileB::kPanelBytes),
          !kAddsParts || step != 0);
    }
    arch::wgmma_commit();
  }
};

}  // namespace wmma
