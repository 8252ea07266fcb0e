// Which tile of the result a block computes, how much of its K, and which tile comes next: one type, that every loop
// takes. It is composed of how tiles are numbered, how the device's dies share them, how K is split, and how a block
// goes on; an order that is none of these is one more type here, and a name in wmma_ops/plan/gemm/tile_order.py, which
// says the same on the host.
#pragma once

#include <wmma/grid.hpp>
#include <wmma/tile/arguments.hpp>
#include <wmma/tile/config.hpp>

namespace wmma {

// ------------------------------------------------------------------------------------------------- how tiles are
// numbered

struct TileIndex {
  uint32_t m;
  uint32_t n;
};

// Down groups of kRows rows of tiles, then to the right: blocks that run at the same time share rows of A and columns
// of B in the L2 cache. 0: there is a single row.
template <int kRows>
struct GroupedRows {
  static constexpr int kGroup = kRows;

  static WMMA_DEVICE TileIndex index(const GemmArguments& p, uint32_t tile) {
    if constexpr (kRows == 0) return {0, tile};
    const uint32_t of_group = kRows * p.tiles_n;
    const uint32_t group = tile / of_group;
    const uint32_t inside = tile - group * of_group;
    const uint32_t left = p.tiles_m - group * kRows;
    const uint32_t height = left < kRows ? left : kRows;
    const uint32_t n = inside / height;
    return {group * kRows + (inside - n * height), n};
  }
};

// A device that assigns blocks to its dies round-robin: each die gets a run of tiles, and its L2 cache one region.
template <int kDies>
struct RunsOfDies {
  // Of `count` tiles from `first` on, the one for the block that would have `tile`.
  static WMMA_DEVICE uint32_t tile(uint32_t tile, uint32_t first, uint32_t count) {
    const uint32_t share = count / kDies;
    const uint32_t more = count % kDies;
    const uint32_t at = tile - first;
    const uint32_t die = at % kDies;
    return first + die * share + (die < more ? die : more) + at / kDies;
  }
};
template <>
struct RunsOfDies<1> {
  static WMMA_DEVICE uint32_t tile(uint32_t tile, uint32_t, uint32_t) { return tile; }
};

// --------------------------------------------------------------------------------------------------------- how K is
// split

// What a block computes at once.
struct BlockTile {
  uint32_t number;
  uint32_t split;   // which part of K
  bool is_partial;  // others have the other parts, and a second kernel adds them up
};

// Every block has all of K.
struct WholeK {
  static constexpr int kCluster = 1;
  static constexpr bool kIsSplit = false;       // among blocks whose sums a second kernel adds up
  static constexpr bool kEveryPartial = false;  // all of them

  template <class Dies>
  static WMMA_DEVICE BlockTile tile(const GemmArguments& p, uint32_t block) {
    return {Dies::tile(block, 0, p.tiles_m * p.tiles_n), 0, false};
  }
  static WMMA_DEVICE uint32_t blocks(const GemmArguments& p) { return p.tiles_m * p.tiles_n; }  // of a matrix
};

// The kBlocks blocks of a cluster share a tile and split its K: they add up by themselves.
template <int kBlocks>
struct ClusterK : WholeK {
  static constexpr int kCluster = kBlocks;

  template <class Dies>
  static WMMA_DEVICE BlockTile tile(const GemmArguments& p, uint32_t block) {
    return {Dies::tile(block / kBlocks, 0, p.tiles_m * p.tiles_n), block % kBlocks, false};
  }
  static WMMA_DEVICE uint32_t blocks(const GemmArguments& p) { return p.tiles_m * p.tiles_n * kBlocks; }
};

// Blocks share each tile from `whole` on, and a second kernel adds up.
template <bool kAll>
struct SplitFrom {
  static constexpr int kCluster = 1;
  static constexpr bool kIsSplit = true;
  static constexpr bool kEveryPartial = kAll;

  template <class Dies>
  static WMMA_DEVICE BlockTile tile(const GemmArguments& p, uint32_t block) {
    BlockTile x{block, 0, false};
    uint32_t first = 0;  // of the tiles that are assigned at once
    uint32_t count = p.tiles_m * p.tiles_n;
    x.is_partial = kAll || x.number >= p.whole;
    if (x.is_partial) {
      first = p.whole;
      count -= first;
      x.split = (block - first) / count;
      x.number -= x.split * count;
    } else {
      count = p.whole;
    }
    x.number = Dies::tile(x.number, first, count);
    return x;
  }
  static WMMA_DEVICE uint32_t blocks(const GemmArguments& p) {
    return p.whole + (p.tiles_m * p.tiles_n - p.whole) * p.splits;
  }
};
using SplitK = SplitFrom<true>;
using SplitLastRound = SplitFrom<false>;

// A part of what is summed up.
struct KPart {
  int64_t first;
  int64_t count;  // none where it is not positive
};

// ------------------------------------------------------------------------------------------------------ how a block
// goes on

// The same tile of one matrix of the batch after the other: they stand along the grid's y.
template <int kBatchDims>
class BatchAlongY {
 public:
  static constexpr bool kGoesOn = kBatchDims > 0;
  static constexpr bool kPersistent = false;

  WMMA_DEVICE BatchAlongY() : batch_(kBatchDims > 0 ? blockIdx.y : 0) {}
  template <class Parts = WholeK>
  WMMA_DEVICE bool valid(const GemmArguments& p) const {
    return batch_ < p.batch;
  }
  WMMA_DEVICE void next() { batch_ += gridDim.y; }
  template <class Parts = WholeK>
  WMMA_DEVICE uint32_t batch(const GemmArguments&) const {
    return batch_;
  }
  template <class Parts>
  WMMA_DEVICE uint32_t block(const GemmArguments&) const {  // within its matrix
    return blockIdx.x;
  }

 private:
  uint32_t batch_;
};

// The batch's matrices stand one behind the other along x: a block computes one tile, or is persistent and takes every
// gridDim.x-th through the whole batch.
template <int kBatchDims, bool kPersistent_>
class BatchAlongX {
 public:
  static constexpr bool kGoesOn = kPersistent_;
  static constexpr bool kPersistent = kPersistent_;

  WMMA_DEVICE BatchAlongX() : index_(blockIdx.x) {}
  template <class Parts>
  WMMA_DEVICE bool valid(const GemmArguments& p) const {
    return index_ < end<Parts>(p);
  }
  WMMA_DEVICE void next() { index_ += gridDim.x; }
  template <class Parts>
  WMMA_DEVICE uint32_t batch(const GemmArguments& p) const {
    return kBatchDims > 0 ? index_ / Parts::blocks(p) : 0;
  }
  template <class Parts>
  WMMA_DEVICE uint32_t block(const GemmArguments& p) const {
    return index_ - batch<Parts>(p) * Parts::blocks(p);
  }
  template <class Parts>
  WMMA_DEVICE bool is_last(const GemmArguments& p) const {
    return index_ + gridDim.x >= end<Parts>(p);
  }
  // How many tiles the block computes.
  template <class Parts>
  static WMMA_DEVICE uint32_t count(const GemmArguments& p) {
    return (end<Parts>(p) - blockIdx.x + gridDim.x - 1) / gridDim.x;
  }

 private:
  template <class Parts>
  static WMMA_DEVICE uint32_t end(const GemmArguments& p) {
    return kPersistent ? Parts::blocks(p) * static_cast<uint32_t>(p.batch) : blockIdx.x + 1;
  }

  uint32_t index_;
};

// --------------------------------------------------------------------------------------------------------------- the
// order

// Starts at the block's first tile. Tiles are kBlockM×kBlockN, and a loop's steps kBlockK of K.
template <class Numbering, class Dies, class Parts, class Schedule, int kBlockM, int kBlockN, int kBlockK>
class TileOrder {
 public:
  static constexpr int kGroup = Numbering::kGroup;
  static constexpr int kCluster = Parts::kCluster;
  static constexpr bool kIsSplit = Parts::kIsSplit;
  static constexpr bool kEveryPartial = Parts::kEveryPartial;
  static constexpr bool kGoesOn = Schedule::kGoesOn;  // whether there may be another tile
  static constexpr bool kPersistent = Schedule::kPersistent;

  WMMA_DEVICE bool valid(const GemmArguments& p) const { return schedule_.template valid<Parts>(p); }
  WMMA_DEVICE void next() { schedule_.next(); }
  WMMA_DEVICE bool is_last(const GemmArguments& p) const { return schedule_.template is_last<Parts>(p); }
  static WMMA_DEVICE uint32_t count(const GemmArguments& p) { return Schedule::template count<Parts>(p); }

  WMMA_DEVICE uint32_t batch(const GemmArguments& p) const { return schedule_.template batch<Parts>(p); }
  WMMA_DEVICE BlockTile tile(const GemmArguments& p) const {
    return Parts::template tile<Dies>(p, schedule_.template block<Parts>(p));
  }
  static WMMA_DEVICE TileIndex index(const GemmArguments& p, uint32_t tile) { return Numbering::index(p, tile); }
  static WMMA_DEVICE int64_t row(const TileIndex& x) { return static_cast<int64_t>(x.m) * kBlockM; }
  static WMMA_DEVICE int64_t column(const TileIndex& x) { return static_cast<int64_t>(x.n) * kBlockN; }

  // The tile's part of K, and of the second pair's: for those that split a tile, K2 stands behind K, at a whole step.
  static WMMA_DEVICE KPart k(const GemmArguments& p, const BlockTile& tile) {
    if (kCluster == 1 && !tile.is_partial) return {0, p.k};
    const int64_t first = static_cast<int64_t>(tile.split) * p.k_split;
    return {first, p.k - first < p.k_split ? p.k - first : p.k_split};
  }
  static WMMA_DEVICE KPart second_k(const GemmArguments& p, const BlockTile& tile) {
    if (kCluster == 1 && !tile.is_partial) return {0, p.k2};
    const int64_t whole = (p.k + kBlockK - 1) / kBlockK * kBlockK;
    const int64_t from = static_cast<int64_t>(tile.split) * p.k_split - whole;
    const int64_t first = from > 0 ? from : 0;
    const int64_t end = from + p.k_split < p.k2 ? from + p.k_split : p.k2;
    return {first, end - first};
  }

 private:
  Schedule schedule_;
};

// Blocks of kRows rows of all columns, through the whole batch: every gridDim.x-th falls to a block, and of those that
// do, every `teams`-th to a team of its waves.
template <int kBatchDims, int kRows>
class RowOrder {
 public:
  WMMA_DEVICE RowOrder(const GemmArguments& p, uint32_t team, uint32_t teams)
      : down_(static_cast<uint32_t>((p.m + kRows - 1) / kRows)),
        all_(down_ * static_cast<uint32_t>(p.batch)),
        index_(blockIdx.x + team * gridDim.x),
        step_(teams * gridDim.x) {}
  WMMA_DEVICE bool valid() const { return index_ < all_; }
  WMMA_DEVICE void next() { index_ += step_; }
  WMMA_DEVICE uint32_t batch() const { return kBatchDims > 0 ? index_ / down_ : 0; }
  WMMA_DEVICE int64_t row() const { return static_cast<int64_t>(index_ - batch() * down_) * kRows; }

 private:
  uint32_t down_;
  uint32_t all_;
  uint32_t index_;
  uint32_t step_;
};

}  // namespace wmma
