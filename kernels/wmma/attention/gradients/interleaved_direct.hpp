// What waves of loops/interleaved_gradients.hpp have of the others where tiles go straight to shared memory and are
// turned as they are read (gfx950): each row is loaded once, for both.
#pragma once

#include <wmma/attention/gradients/interleaved_groups.hpp>
#include <wmma/tile/chain_tile.hpp>
#include <wmma/tile/transposed_columns.hpp>

namespace wmma {

// Three places for tiles: of one scores are computed, of the one before it the results, and the next one is on its way.
class PlacesInTurn {
 public:
  // The next tile is there: the one whose results are done makes room.
  WMMA_DEVICE void turn() {
    const uint32_t free = before_;
    before_ = now_;
    now_ = next_;
    next_ = free;
  }
  // All copies but the last kLeft are there.
  template <int kLeft>
  WMMA_DEVICE void wait() const {
    arch::wait_copies<kLeft>();
  }
  WMMA_DEVICE uint32_t before() const { return before_; }
  WMMA_DEVICE uint32_t now() const { return now_; }
  WMMA_DEVICE uint32_t next() const { return next_; }

 private:
  uint32_t before_ = 1;
  uint32_t now_ = 2;
  uint32_t next_ = 0;
};

template <class Config, class Link, int kDepth>
class RowsDirect {
  using T = typename Config::Element;
  static constexpr int kOthers = Config::kOthers;
  using Tile = TransposedTile<kOthers, kDepth * sizeof(T), true>;
  using Loader = DirectLoader<T, Order::kAlongK, kOthers, kDepth, Config::kThreads, Tile>;

 public:
  static constexpr int kBytes = 3 * Tile::kBytes;

  WMMA_DEVICE RowsDirect(const AttentionOperand& x, unsigned char* tiles, uint32_t thread, uint32_t lane)
      : tiles_(tiles),
        loader_(static_cast<const T*>(x.data), x.row_stride, 1, kOthers, thread),
        along_(lane),
        transposed_(lane) {}

  // The i-th part of kParts of the tile at `next` is put on its way.
  template <int kParts, int i>
  WMMA_DEVICE void copy(const char* next, const PlacesInTurn& places) {
    constexpr int kFrom = detail::first_of<0, kParts, Loader::kCopies>(i);
    constexpr int kTo = detail::first_of<0, kParts, Loader::kCopies>(i + 1);
    loader_.start_at(next);
#pragma unroll
    for (int n = kFrom; n < kTo; ++n) loader_.copy(tiles_ + places.next() * Tile::kBytes, n);
  }
  WMMA_DEVICE void read_along(Chunk* x, const PlacesInTurn& places, int n, int step) const {
    along_.read(x, tiles_ + places.now() * Tile::kBytes, n, step);
  }
  WMMA_DEVICE void read_transposed(Chunk* x, const PlacesInTurn& places, int n, int step) const {
    transposed_.read(x, tiles_ + places.before() * Tile::kBytes, n, step);
  }

 private:
  unsigned char* tiles_;
  Loader loader_;
  ColumnReader<Link, Tile> along_;
  TransposedColumns<Link, Tile, kDepth> transposed_;
};

}  // namespace wmma
