// An operand's tiles for sm_90a's matrix unit, as its copy engine is asked for them.
#pragma once

#include <wmma/arch/tma.hpp>
#include <wmma/tile/batch.hpp>
#include <wmma/tile/config.hpp>
#include <wmma/tile/warpgroup_tile.hpp>

namespace wmma {

// An operand's tiles, from the row or column `outer` and from `k` on. What lies beyond the matrix is zero. Where kShare
// blocks of a cluster take the same tiles, each brings a part of the lines, to all of `blocks`. `once`: nobody else
// reads them, nor will soon. kTiles of as many lines lie in one tile, one behind the other; `number` says which this
// is.
template <class T, Order kOrder, int kOuter, int kDepth, int kDims, int kShare = 1, int kTiles = 1>
class BoxLoader {
  static constexpr bool kAlong = kOrder == Order::kAlongK;
  static_assert(kTiles == 1 || kAlong, "across K columns are apart already");

 public:
  using Tile = WarpgroupTile<kAlong ? kTiles * kOuter : kDepth, bytes_of<T>(kAlong ? kDepth : kOuter)>;

 private:
  static constexpr int kOwn = Tile::kLines / kTiles;
  static constexpr int kLines = kOwn / kShare;  // that a block brings
  static_assert(kLines * kShare == kOwn && kLines % 8 == 0, "chunks are exchanged within eight lines");

 public:
  WMMA_DEVICE BoxLoader(const GemmArguments& p, const GemmOperand& x, const TileMap& map, uint32_t batch, int64_t outer,
                        int64_t k, bool once = false, uint32_t part = 0, uint16_t blocks = 1, int number = 0)
      : map_(&map),
        first_line_(part * kLines),
        place_(number * kOwn * 128),
        blocks_(blocks),
        once_(once),
        at_{static_cast<int32_t>(kAlong ? k : outer), static_cast<int32_t>(kAlong ? outer : k)} {
    batch_coordinates<kDims>(p, x, batch, at_ + 2);
  }

  // The next tile, on its way to shared memory.
  WMMA_DEVICE void copy(uint32_t tile, uint32_t barrier) {
#pragma unroll
    for (int box = 0; box < Tile::kBoxes; ++box) {
      int32_t at[2 + kDims];
#pragma unroll
      for (int i = 0; i < 2 + kDims; ++i) at[i] = at_[i];
      at[0] += box * (elements_in<T>(128));
      at[1] += first_line_;
      const uint32_t to = tile + box * Tile::kBoxBytes + first_line_ * 128 + place_;
      if (kDims == 0 && once_) {
        arch::copy_box<2 + kDims, (kShare > 1), true>(to, map_, barrier, at, blocks_);
      } else {
        arch::copy_box<2 + kDims, (kShare > 1), false>(to, map_, barrier, at, blocks_);
      }
    }
    at_[kAlong ? 0 : 1] += kDepth;
  }

 private:
  const TileMap* map_;
  uint32_t first_line_;
  uint32_t place_;  // of its lines in the tile, in bytes
  uint16_t blocks_;
  bool once_;
  int32_t at_[2 + kDims];
};

}  // namespace wmma
