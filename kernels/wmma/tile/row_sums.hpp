// The sums of A's rows beside a product of sm_90a's warpgroups: the products of its tiles with eight columns of ones,
// of which each lane has the sums of two rows, twice.
#pragma once

#include <wmma/arch/wgmma.hpp>
#include <wmma/grid.hpp>
#include <wmma/tile/tile_order.hpp>

namespace wmma {

struct Always {
  static constexpr bool value = true;
};
struct Never {
  static constexpr bool value = false;
};

// Eight columns of ones by 32 bytes of K; none where nobody asks for sums.
template <bool kThere, class T>
struct OnesBeside {
  static constexpr int kBytes = 0;
  static WMMA_DEVICE void lay(unsigned char*) {}
};
template <class T>
struct OnesBeside<true, T> {
  static constexpr int kBytes = 256;
  // By one wave, before all meet.
  static WMMA_DEVICE void lay(unsigned char* to) {
    constexpr int kOfLane = kBytes / static_cast<int>(arch::kWaveSize) / static_cast<int>(sizeof(T));
    alignas(8) T ones[kOfLane];
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) ones[i] = convert<T>(1.0f);
    arch::copy_bytes<8>(to + lane_id() * 8, ones);
    arch::fence_matrix_unit();
  }
};

// Of a warpgroup's kParts times 64 rows.
template <class Config, class T, int kParts, bool kThere = kSumsRows<Config>>
struct RowSums {
  template <class Tile, bool kAlong, int kSteps>
  WMMA_DEVICE void add(int, uint64_t, uint64_t) {}
};
template <class Config, class T, int kParts>
struct RowSums<Config, T, kParts, true> {
  static constexpr int kSums = 4;  // of a lane: two rows, eight apart, by two columns
  float sums[kParts][kSums];

  WMMA_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
#pragma unroll
      for (int j = 0; j < kSums; ++j) sums[i][j] = 0.0f;
      hold_sums<kSums>(sums[i]);
    }
  }
  // A tile's, once the product before has been asked for.
  template <class Tile, bool kAlong, int kSteps>
  WMMA_DEVICE void add(int part, uint64_t rows, uint64_t ones) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      arch::Wgmma<T, T, 8>::template mma<!kAlong, false>(
          sums[part], Tile::template step<kAlong>(rows, step, elements_in<T>(32)), ones, true);
    }
  }
  // Once they are done; of a tile that is alone with all of K, in the place of every split. `row` is the wave's first.
  WMMA_DEVICE void store(const GemmArguments& p, const TileIndex& index, const BlockTile& tile, bool alone,
                         int64_t row) {
    const uint32_t lane = lane_id();
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      hold_sums<kSums>(sums[i]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t at = row + i * 64 + lane / 4 + half * 8;
        if (lane % 4 != 0 || at >= p.m) continue;
        p.row_partial[(static_cast<int64_t>(tile.split) * p.tiles_n + index.n) * p.m + at] = sums[i][half * 2];
        for (uint32_t split = 1; alone && split < p.splits; ++split) {
          p.row_partial[(static_cast<int64_t>(split) * p.tiles_n + index.n) * p.m + at] = 0.0f;
        }
      }
    }
  }
};

}  // namespace wmma
