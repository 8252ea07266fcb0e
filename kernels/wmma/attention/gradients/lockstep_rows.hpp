// What waves of loops/lockstep_gradients.hpp have of the others: a tile of them in shared memory, and the next one in
// registers.
#pragma once

#include <wmma/attention/gradients/groups.hpp>
#include <wmma/attention/gradients/tiles.hpp>
#include <wmma/tile/chain_tile.hpp>
#include <wmma/tile/staged_loader.hpp>

namespace wmma {

// The others' rows as tiles in shared memory, along the head size and turned: each row is loaded once for both. One
// half of a block's threads bring rows of Q or K, the other half of g_out or V.
template <class Config>
class LockstepRows {
  using Groups = GradientGroups<Config>;
  using T = typename Config::Element;
  using Link = typename Groups::Link;
  static constexpr int kOthers = Config::kOthers;
  static constexpr int kDepth = Config::kDepth;
  static constexpr int kHalf = Groups::kThreads / 2;
  using AlongTile = PaddedTile<kOthers, kDepth * sizeof(T)>;
  using TransposedTile = ChainTile<Link, kDepth, kOthers * sizeof(T)>;
  using Loader =
      StagedLoader<T, T, Order::kAcrossK, kDepth, kOthers, kHalf, 8, false, PlainStage<T, T>, TransposedTile>;
  static constexpr bool kTransposesBoth = Config::kOwnsKeys;  // else Q or K alone
  static constexpr int kTransposedStart = 2 * AlongTile::kBytes;

 public:
  static constexpr int kBytes = kTransposedStart + (kTransposesBoth ? 2 : 1) * TransposedTile::kBytes;

  WMMA_DEVICE LockstepRows(const AttentionOperand& first, const AttentionOperand& second, unsigned char* tiles,
                           uint32_t wave, uint32_t lane)
      : is_second_(wave >= Config::kWaves / 2),
        loader_(nullptr, 1, is_second_ ? second.row_stride : first.row_stride, kDepth, threadIdx.x % kHalf, {}),
        along_(lane),
        transposed_(lane),
        tiles_(tiles),
        along_to_(tiles + (is_second_ ? AlongTile::kBytes : 0)),
        transposed_to_(tiles + kTransposedStart + (is_second_ ? TransposedTile::kBytes : 0)) {}

  WMMA_DEVICE void fetch(const GradientTile& tile) {
    loader_.start_at(is_second_ ? tile.second : tile.first);
    loader_.template fetch<false>();
  }
  WMMA_DEVICE void store_along() { loader_.template store_across<AlongTile>(along_to_); }
  WMMA_DEVICE void store_transposed() {
    if (kTransposesBoth || !is_second_) loader_.template store<false>(transposed_to_);
  }

  // Of the first rows, or the second.
  template <bool kSecond>
  WMMA_DEVICE void read_along(Chunk* x, int n, int step) const {
    along_.read(x, tiles_ + (kSecond ? AlongTile::kBytes : 0), n, step);
  }
  template <bool kSecond>
  WMMA_DEVICE void read_transposed(Chunk* x, int n, int step) const {
    transposed_.read(x, tiles_ + kTransposedStart + (kSecond ? TransposedTile::kBytes : 0), n, step);
  }

 private:
  bool is_second_;
  Loader loader_;
  ColumnReader<Link, AlongTile> along_;
  ColumnReader<Link, TransposedTile> transposed_;
  unsigned char* tiles_;
  unsigned char* along_to_;
  unsigned char* transposed_to_;
};

}  // namespace wmma
