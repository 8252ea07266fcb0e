// The main loop of sm_90a for operands of 16 and 8 bits that go to shared memory as they are: warpgroups multiply them
// straight from there. A product is always under way: it is awaited when the next one was started.
#pragma once

#include <wmma/tile/panel_ring.hpp>
#include <wmma/tile/wave_tile.hpp>

namespace wmma {

template <class Product, class LoaderA, class LoaderB, bool kAlongA, bool kAlongB, class A, class B, int kN, int kDepth,
          int kStages, int kShare>
struct WgmmaLoop {
  using Wave = WaveTile<Product, 16, kN>;  // a wave's part of its warpgroup's 64 rows
  using TileA = typename LoaderA::Tile;
  using TileB = typename LoaderB::Tile;
  using Sum = typename Product::Compute;
  // The matrix unit keeps some 14 bits of a sum of fp8 products, so each tile's is added to the others in float32.
  static constexpr bool kAddsParts = kIsFp8<A>;
  static constexpr int kStep = 32 / sizeof(A);  // of K that one product takes
  static constexpr int kSteps = kDepth / kStep;
  using Ring = PanelRing<LoaderA, LoaderB, kStages, kShare>;
  static constexpr int kBytes = Ring::kBytes;
  static_assert(kStages >= 2, "one tile is multiplied while another arrives");

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
    const uint32_t tiles = static_cast<uint32_t>((k + kDepth - 1) / kDepth);
    Ring ring(a, b, shared, tiles);
    Sum* sums = &wave.sums[0][0][0];
    Sum part[kN / 2];
    Sum* into = kAddsParts ? part : sums;
    hold_sums<kN / 2>(sums);
    uint32_t stage = 0;  // that is multiplied, and how many tiles it held before
    uint32_t turn = 0;
    uint32_t before = 0;  // the same of the tile before
    uint32_t before_turn = 0;
    for (uint32_t tile = 0; tile < tiles; ++tile) {
      ring.await(stage, turn);
      multiply(into, ring.a(stage) + reader.first, ring.b(stage));
      if constexpr (kAddsParts) {
        arch::wgmma_wait<0>();
        hold_sums<kN / 2>(part);
        ring.refill(a, b, stage, turn);
#pragma unroll
        for (int i = 0; i < kN / 2; ++i) sums[i] += part[i];
      } else {
        arch::wgmma_wait<1>();  // the product before this one has read its tile
        if (tile > 0) ring.refill(a, b, before, before_turn);
      }
      before = stage;
      before_turn = turn;
      if (++stage == kStages) {
        stage = 0;
        ++turn;
      }
    }
    arch::wgmma_wait<0>();
    hold_sums<kN / 2>(sums);
    ring.close();
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
