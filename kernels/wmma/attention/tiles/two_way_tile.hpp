// A tile of rows that is read both ways: as an operand that is summed up along its columns, and, a slice of its
// columns, as one that is summed up along its rows.
#pragma once

#include <wmma/attention/tiles/key_value_loaders.hpp>

namespace wmma {

// kRows rows of kColumns columns (kDepth with what is zero), of which kSlice are turned. kTurns: whether they are at
// all.
template <class T, class Link, Order kOrder, int kVec, bool kWide, int kRows, int kColumns, int kDepth, int kSlice,
          bool kTurns, int kThreads>
class StagedTwoWayTile {
  using AlongTile = ChainTile<Link, kRows, kDepth * sizeof(T)>;
  using TransposedTile = ChainTile<Link, kSlice, kRows * sizeof(T)>;
  static constexpr Order kTransposedOrder = kOrder == Order::kAlongK ? Order::kAcrossK : Order::kAlongK;
  using AlongLoader = StagedLoader<T, T, kOrder, kRows, kDepth, kThreads, kVec, kWide, PlainStage<T, T>, AlongTile>;
  using TransposingLoader =
      StagedLoader<T, T, kTransposedOrder, kSlice, kRows, kThreads, kVec, kWide, PlainStage<T, T>, TransposedTile>;

 public:
  using Along = ColumnReader<Link, AlongTile>;
  using Transposed = ColumnReader<Link, TransposedTile>;
  using Address = const unsigned char*;
  static constexpr int kBytes = AlongTile::kBytes + (kTurns ? TransposedTile::kBytes : 0);

  // Fills the tile with `rows` rows from `data` on, and the columns from `first_column` on turned. Between barriers.
  static WMMA_DEVICE void load(unsigned char* tile, const T* data, const AttentionOperand& x, int rows,
                               int first_column, uint32_t thread) {
    AlongLoader along(data, x.row_stride, x.column_stride, rows, thread, {});
    along.template fetch<kColumns % kDepth != 0>(kColumns);
    if constexpr (kTurns) {
      // A slice that has none of the columns takes the first ones: its results are not stored.
      const int first = first_column < kColumns ? first_column : 0;
      TransposingLoader transposed(data + first * x.column_stride, x.column_stride, x.row_stride, kColumns - first,
                                   thread, {});
      transposed.template fetch<true>(rows);
      along.template store<false>(tile);
      transposed.template store<false>(tile + AlongTile::kBytes);
    } else {
      along.template store<false>(tile);
    }
  }
  static WMMA_DEVICE void arrive() {}
  static WMMA_DEVICE Address along(const unsigned char* tile) { return tile; }
  static WMMA_DEVICE Address transposed(const unsigned char* tile) { return tile + AlongTile::kBytes; }
};

#ifdef WMMA_NVIDIA

// One tile for both: ldmatrix turns it.
template <class T, class Link, int kRows, int kColumns, int kDepth, int kThreads>
class AsyncTwoWayTile {
  using Loader = AsyncLoader<T, Order::kAlongK, kRows, kDepth, kThreads>;
  using Tile = typename Loader::Tile;

 public:
  using Along = ColumnReader<Link, Tile>;
  using Transposed = TransposedReader<Link, Tile>;
  using Address = uint32_t;
  static constexpr int kBytes = Tile::kBytes;

  static WMMA_DEVICE void load(unsigned char* tile, const T* data, const AttentionOperand& x, int rows, int,
                               uint32_t thread) {
    const Loader along(data, x.row_stride, 1, rows, thread);
    along.template copy<kColumns % kDepth != 0>(arch::shared_address(tile), kColumns);
    arch::commit_async();
  }
  static WMMA_DEVICE void arrive() { arch::wait_async<0>(); }
  static WMMA_DEVICE Address along(const unsigned char* tile) { return arch::shared_address(tile); }
  static WMMA_DEVICE Address transposed(const unsigned char* tile) { return arch::shared_address(tile); }
};

#endif

}  // namespace wmma
