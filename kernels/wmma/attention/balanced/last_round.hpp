// Where persistent blocks take tile after tile of rows and a few are left for a last round: several blocks share
// each of these, every one with a part of the keys. What they sum up goes to memory, as where all keys are split; a
// second kernel puts it together (passes/combine.hpp).
#pragma once

#include <wmma/attention/rows/dense.hpp>

namespace wmma {

// Some blocks' work: a tile, or a part of its keys.
struct TilePart {
  uint32_t tile;  // of all heads'
  uint32_t split;
  bool is_part;
};

// `p` has the number of whole tiles, which come first.
template <class Arguments>
WMMA_DEVICE uint32_t last_tiles(const Arguments& p) {
  return static_cast<uint32_t>(p.tiles) * p.heads * p.batch - p.whole;
}
template <class Arguments>
WMMA_DEVICE TilePart last_part_of(const Arguments& p, uint32_t index) {
  if (index < static_cast<uint32_t>(p.whole)) return {index, 0, false};
  const uint32_t at = index - p.whole;
  return {p.whole + at / p.splits, at % p.splits, true};
}

// Which row of the splits' a tile's line is: those of a split stand together.
template <int kTileRows, class Arguments>
WMMA_DEVICE int64_t last_row(const Arguments& p, const TilePart& part, uint32_t line) {
  return (static_cast<int64_t>(part.split) * last_tiles(p) + (part.tile - p.whole)) * kTileRows + line;
}

}  // namespace wmma
