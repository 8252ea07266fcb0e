// Columns of a chain's products (chain_link.hpp) from tiles of shared memory whose lines run along them: gfx950 turns
// them as it reads.
#pragma once

#include <wmma/tile/chain_link.hpp>
#include <wmma/tile/direct_loader.hpp>

namespace wmma {

// Tile n, step by step. Four lines of the matrix unit's tile that follow each other do so in memory.
template <class Link, class Tile, int kColumns>
class TransposedColumns {
  static constexpr int kTiles = kColumns / Link::kCols;
  static_assert(Link::kColChunks == 1 && Link::kPerChunk == 8, "16 bits, a chunk a lane");

 public:
  WMMA_DEVICE explicit TransposedColumns(uint32_t lane) {
    const uint32_t group = lane / 16 * 16;
    const uint32_t within = lane % 16;
    const uint32_t line = Link::col_chunk(group, 0) * 8 + within / 4;
    const uint32_t column = Link::col_line(group + within % 4 * 4, 0);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const uint32_t chunk = (Link::first_line(n) + column) / 8;
      at_[n] = Tile::offset(line, chunk) + column % 8 * 2;
      if constexpr (Tile::kReadAlong) below_[n] = Tile::offset(line + 4, chunk) + column % 8 * 2;
    }
  }
  WMMA_DEVICE void read(Chunk* x, const unsigned char* tile, int n, int step) const {
    const unsigned char* const from = tile + step * (Link::kDepth * Tile::kPitch * 16);
    if constexpr (Tile::kReadAlong) {
      arch::read_transposed(x->words, from + at_[n]);
      arch::read_transposed(x->words + 2, from + below_[n]);
    } else {
      read_transposed_chunk<Tile>(*x, from + at_[n]);
    }
  }

 private:
  uint32_t at_[kTiles];
  uint32_t below_[kTiles];  // four lines further down
};

}  // namespace wmma
