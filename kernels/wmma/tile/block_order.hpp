// Which tile a block computes. Blocks that run at the same time share rows of A and columns of B in the L2 cache: they
// walk down groups of kGroup tile rows. Where a device deals blocks out to its dies in turn, each die gets a run of
// tiles.
#pragma once

#include <wmma/grid.hpp>
#include <wmma/tile/gemm_arguments.hpp>

namespace wmma {

struct BlockPlace {
  uint32_t tile_m;
  uint32_t tile_n;
  uint32_t split;
};

// The kCluster blocks of a cluster share a tile and split its K.
template <int kGroup, int kDies, int kCluster>
WMMA_DEVICE BlockPlace block_place(const GemmArguments& p) {
  const uint32_t tiles = p.tiles_m * p.tiles_n;
  uint32_t tile = blockIdx.x;
  BlockPlace place{0, 0, 0};
  if constexpr (kCluster > 1) {
    place.split = tile % kCluster;
    tile /= kCluster;
  } else if (p.splits > 1) {
    place.split = tile / tiles;
    tile -= place.split * tiles;
  }
  if constexpr (kDies > 1) {
    const uint32_t share = tiles / kDies;
    const uint32_t more = tiles % kDies;
    const uint32_t die = tile % kDies;
    tile = die * share + (die < more ? die : more) + tile / kDies;
  }
  const uint32_t of_group = kGroup * p.tiles_n;
  const uint32_t group = tile / of_group;
  const uint32_t inside = tile - group * of_group;
  const uint32_t left = p.tiles_m - group * kGroup;
  const uint32_t height = left < kGroup ? left : kGroup;
  place.tile_n = inside / height;
  place.tile_m = group * kGroup + (inside - place.tile_n * height);
  return place;
}

// Where the batch's matrix starts in an operand, in elements. The kDims innermost of the struct's dimensions are in
// use.
template <int kDims>
WMMA_DEVICE int64_t batch_offset(const GemmArguments& p, const GemmOperand& x, uint32_t batch) {
  int64_t offset = 0;
#pragma unroll
  for (int d = kBatchDims - 1; d > kBatchDims - kDims; --d) {
    const uint32_t size = static_cast<uint32_t>(p.batch_sizes[d]);
    const uint32_t rest = batch / size;
    offset += static_cast<int64_t>(batch - rest * size) * x.batch_strides[d];
    batch = rest;
  }
  if constexpr (kDims > 0) offset += static_cast<int64_t>(batch) * x.batch_strides[kBatchDims - kDims];
  return offset;
}

}  // namespace wmma
