// What waves of loops/interleaved_gradients.hpp have of the others: their rows in shared memory, and the next ones in
// registers.
#pragma once

#include <wmma/attention/arguments.hpp>
#include <wmma/attention/gradients/interleaved_groups.hpp>
#include <wmma/tile/chain_tile.hpp>
#include <wmma/tile/staged_loader.hpp>

namespace wmma {

// The others' rows as two tiles in shared memory, along the head size and turned, each a tile ahead in registers.
template <class Config, class Link, int kDepth, bool kTurns>
class RowsAhead {
  using T = typename Config::Element;
  static constexpr int kOthers = Config::kOthers;
  using AlongTile = ChainTile<Link, kOthers, kDepth * sizeof(T)>;
  using TransposedTile = ChainTile<Link, kDepth, kOthers * sizeof(T)>;
  using AlongLoader =
      StagedLoader<T, T, Order::kAlongK, kOthers, kDepth, Config::kThreads, 8, false, PlainStage<T, T>, AlongTile>;
  using TransposingLoader = StagedLoader<T, T, Order::kAcrossK, kDepth, kOthers, Config::kThreads, 8, false,
                                         PlainStage<T, T>, TransposedTile>;

 public:
  static constexpr int kBytes = AlongTile::kBytes + (kTurns ? TransposedTile::kBytes : 0);

  WMMA_DEVICE RowsAhead(const AttentionOperand& x, unsigned char* tile, uint32_t thread, uint32_t lane)
      : tile_(tile),
        along_loader_(x.data, x.row_stride, 1, kOthers, thread, {}),
        transposed_loader_(x.data, 1, x.row_stride, kDepth, thread, {}),
        along_(lane),
        transposed_(lane) {}

  // The i-th part of kParts of a tile: what came is stored, and the same of the one at `next` is asked for.
  template <int kParts, bool kStores, int i>
  WMMA_DEVICE void pass_along(const char* next) {
    pass<kParts, kStores, i>(along_loader_, tile_, next);
  }
  template <int kParts, bool kStores, int i>
  WMMA_DEVICE void pass_transposed(const char* next) {
    pass<kParts, kStores, i>(transposed_loader_, tile_ + AlongTile::kBytes, next);
  }
  WMMA_DEVICE void read_along(Chunk* x, None, int n, int step) const { along_.read(x, tile_, n, step); }
  WMMA_DEVICE void read_transposed(Chunk* x, None, int n, int step) const {
    transposed_.read(x, tile_ + AlongTile::kBytes, n, step);
  }

 private:
  template <int kParts, bool kStores, int i, class Loader>
  static WMMA_DEVICE void pass(Loader& loader, unsigned char* tile, const char* next) {
    constexpr int kPieces = Loader::kBlocks * Loader::kBlockLines;
    constexpr int kFrom = detail::first_of<0, kParts, kPieces>(i);
    constexpr int kTo = detail::first_of<0, kParts, kPieces>(i + 1);
#pragma unroll
    for (int piece = kFrom; piece < kTo; ++piece) {
      const int block = piece / Loader::kBlockLines;
      const int line = piece % Loader::kBlockLines;
      if constexpr (kStores) loader.store_line(tile, block, line);
      if (line + 1 < Loader::kBlockLines) continue;
      loader.start_at(next);
      loader.fetch_block(block);
    }
  }

  unsigned char* tile_;
  AlongLoader along_loader_;
  TransposingLoader transposed_loader_;
  ColumnReader<Link, AlongTile> along_;
  ColumnReader<Link, TransposedTile> transposed_;
};

}  // namespace wmma
