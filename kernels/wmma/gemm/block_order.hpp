// Which tile a block computes. Blocks that run at the same time share rows of A and columns of B in the L2 cache: they
// walk down groups of kGroup tile rows. Where a device deals blocks out to its dies in turn, each die gets a run of
// tiles.
#pragma once

#include <wmma/grid.hpp>
#include <wmma/tile/arguments.hpp>
#include <wmma/tile/config.hpp>

namespace wmma {

struct TilePlace {
  uint32_t tile_m;
  uint32_t tile_n;
};

template <int kGroup>
WMMA_DEVICE TilePlace tile_place(const GemmArguments& p, uint32_t tile) {
  if constexpr (kGroup == 0) return {0, tile};  // a single row of tiles
  const uint32_t of_group = kGroup * p.tiles_n;
  const uint32_t group = tile / of_group;
  const uint32_t inside = tile - group * of_group;
  const uint32_t left = p.tiles_m - group * kGroup;
  const uint32_t height = left < kGroup ? left : kGroup;
  const uint32_t tile_n = inside / height;
  return {group * kGroup + (inside - tile_n * height), tile_n};
}

struct BlockPlace {
  uint32_t tile;
  uint32_t split;   // which part of K
  bool is_partial;  // others have the other parts, and a second kernel adds them up
};

// The kCluster blocks of a cluster share a tile and split its K.
template <int kDies, int kCluster, Split kSplit>
WMMA_DEVICE BlockPlace block_place(const GemmArguments& p, uint32_t block) {
  BlockPlace place{block, 0, false};
  uint32_t first = 0;  // of the tiles that are dealt out together
  uint32_t count = p.tiles_m * p.tiles_n;
  if constexpr (kCluster > 1) {
    place.split = place.tile % kCluster;
    place.tile /= kCluster;
  } else if constexpr (kSplit != Split::kNone) {
    place.is_partial = kSplit == Split::kAll || place.tile >= p.whole;
    if (place.is_partial) {
      first = p.whole;
      count -= first;
      place.split = (place.tile - first) / count;
      place.tile -= place.split * count;
    } else {
      count = p.whole;
    }
  }
  if constexpr (kDies > 1) {
    const uint32_t share = count / kDies;
    const uint32_t more = count % kDies;
    const uint32_t at = place.tile - first;
    const uint32_t die = at % kDies;
    place.tile = first + die * share + (die < more ? die : more) + at / kDies;
  }
  return place;
}

// A part of what is summed up.
struct KPart {
  int64_t first;
  int64_t count;  // none where it is not positive
};

// The block's part of K, and of the second pair's: for those that split a tile, K2 stands behind K, at a whole step.
template <class Config>
WMMA_DEVICE KPart part_of_k(const GemmArguments& p, const BlockPlace& place) {
  if (Config::kCluster == 1 && !place.is_partial) return {0, p.k};
  const int64_t first = static_cast<int64_t>(place.split) * p.k_split;
  return {first, p.k - first < p.k_split ? p.k - first : p.k_split};
}
template <class Config>
WMMA_DEVICE KPart part_of_second(const GemmArguments& p, const BlockPlace& place) {
  if (Config::kCluster == 1 && !place.is_partial) return {0, p.k2};
  const int64_t whole = (p.k + Config::kBlockK - 1) / Config::kBlockK * Config::kBlockK;
  const int64_t from = static_cast<int64_t>(place.split) * p.k_split - whole;
  const int64_t first = from > 0 ? from : 0;
  const int64_t end = from + p.k_split < p.k2 ? from + p.k_split : p.k2;
  return {first, end - first};
}

}  // namespace wmma
