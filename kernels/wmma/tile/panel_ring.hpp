// Tiles for sm_90a's matrix unit, brought by its copy engine: a thread asks for a tile ahead of its turn, and barriers
// in shared memory tell when it is there and when everyone is done with it.
#pragma once

#include <wmma/arch/sm90.hpp>
#include <wmma/arch/tma.hpp>
#include <wmma/tile/block_order.hpp>
#include <wmma/tile/panel_tile.hpp>
#include <wmma/tile/shared_tile.hpp>

namespace wmma {

// An operand's tiles, from the row or column `outer` and from `k` on. What lies beyond the matrix is zero. The blocks
// of a cluster of kShare take the same tiles: each brings a part of the lines, to all of them.
template <class T, Order kOrder, int kOuter, int kDepth, int kDims, int kShare = 1>
class PanelLoader {
  static constexpr bool kAlong = kOrder == Order::kAlongK;

 public:
  using Tile = PanelTile<kAlong ? kOuter : kDepth, (kAlong ? kDepth : kOuter) * static_cast<int>(sizeof(T))>;

 private:
  static constexpr int kLines = Tile::kLines / kShare;  // that a block brings
  static_assert(kLines * kShare == Tile::kLines && kLines % 8 == 0, "chunks are exchanged within eight lines");

 public:
  WMMA_DEVICE PanelLoader(const GemmArguments& p, const GemmOperand& x, const TileMap& map, uint32_t batch,
                          int64_t outer, int64_t k)
      : map_(&map),
        first_line_(kShare > 1 ? blockIdx.x % kShare * kLines : 0),
        at_{static_cast<int32_t>(kAlong ? k : outer), static_cast<int32_t>(kAlong ? outer : k)} {
#pragma unroll
    for (int i = 0; i < kDims; ++i) {  // the innermost first
      const int dim = kBatchDims - 1 - i;
      const uint32_t size = static_cast<uint32_t>(p.batch_sizes[dim]);
      at_[2 + i] = x.batch_strides[dim] == 0 ? 0 : static_cast<int32_t>(batch % size);
      batch /= size;
    }
  }

  WMMA_DEVICE void prefetch() const { arch::prefetch_map(map_); }

  // The next tile, on its way to shared memory.
  WMMA_DEVICE void copy(uint32_t tile, uint32_t barrier) {
#pragma unroll
    for (int panel = 0; panel < Tile::kPanels; ++panel) {
      int32_t at[2 + kDims];
#pragma unroll
      for (int i = 0; i < 2 + kDims; ++i) at[i] = at_[i];
      at[0] += panel * (128 / static_cast<int>(sizeof(T)));
      at[1] += first_line_;
      arch::copy_box<2 + kDims, (kShare > 1)>(tile + panel * Tile::kPanelBytes + first_line_ * 128, map_, barrier, at,
                                              (1 << kShare) - 1);
    }
    at_[kAlong ? 0 : 1] += kDepth;
  }

 private:
  const TileMap* map_;
  uint32_t first_line_;
  int32_t at_[2 + kDims];
};

// kStages tiles of A and B in shared memory. Each has two barriers: `there` counts the bytes that come, `free` the
// waves that are done with them, in all kShare blocks that take a tile of B together.
template <class LoaderA, class LoaderB, int kStages, int kShare>
class PanelRing {
  using Places = StagePlaces<typename LoaderA::Tile, typename LoaderB::Tile>;

 public:
  static constexpr int kBytes = kStages * (static_cast<int>(Places::kStageBytes) + 2 * arch::kBarrierBytes);

  // The memory may have served something else.
  WMMA_DEVICE PanelRing(LoaderA& a, LoaderB& b, unsigned char* shared, uint32_t tiles)
      : places_{arch::shared_address(shared)}, tiles_(tiles), asked_(0) {
    arch::fence_matrix_unit();
    if (is_asking()) {
      a.prefetch();
      b.prefetch();
#pragma unroll 1  // short code: it is fetched from memory first
      for (uint32_t stage = 0; stage < kStages; ++stage) {
        arch::barrier_make(there(stage), 1);
        arch::barrier_make(free(stage), kShare * (blockDim.x / arch::kWaveSize));
      }
      arch::fence_barriers();
    }
    meet();  // what comes from another block finds the barriers made
    if (is_asking()) {
#pragma unroll 1
      for (uint32_t stage = 0; stage < kStages && asked_ < tiles_; ++stage) ask(a, b, stage);
    }
    arch::wave_barrier();
  }

  WMMA_DEVICE uint32_t a(uint32_t stage) const { return places_.a(stage); }
  WMMA_DEVICE uint32_t b(uint32_t stage) const { return places_.b(stage); }

  // `turn` counts the tiles that a stage held before.
  WMMA_DEVICE void await(uint32_t stage, uint32_t turn) const { arch::barrier_wait(there(stage), turn & 1); }

  // This wave is done with a stage; when all are, the tile that is to come there is asked for.
  WMMA_DEVICE void refill(LoaderA& a, LoaderB& b, uint32_t stage, uint32_t turn) {
    if constexpr (kShare > 1) {
      if (arch::lane_id() < kShare) arch::barrier_arrive_in(arch::lane_id(), free(stage));
    } else {
      if (arch::lane_id() == 0) arch::barrier_arrive(free(stage));
    }
    if (is_asking() && asked_ < tiles_) {
      arch::barrier_wait(free(stage), turn & 1);
      ask(a, b, stage);
    }
    arch::wave_barrier();
  }

  // Everyone has all tiles.
  WMMA_DEVICE void close() const {
    meet();
    if (is_asking()) {
#pragma unroll 1
      for (uint32_t stage = 0; stage < kStages; ++stage) {
        arch::barrier_drop(there(stage));
        arch::barrier_drop(free(stage));
      }
    }
  }

 private:
  WMMA_DEVICE uint32_t there(uint32_t stage) const { return places_.a(kStages) + stage * arch::kBarrierBytes; }
  WMMA_DEVICE uint32_t free(uint32_t stage) const { return there(stage + kStages); }
  static WMMA_DEVICE void meet() {
    if constexpr (kShare > 1) {
      arch::cluster_barrier();
    } else {
      arch::block_barrier();
    }
  }
  static WMMA_DEVICE bool is_asking() { return threadIdx.x == 0; }

  WMMA_DEVICE void ask(LoaderA& a, LoaderB& b, uint32_t stage) {
    ++asked_;
    arch::barrier_arrive_for_bytes(there(stage), Places::kStageBytes);
    a.copy(places_.a(stage), there(stage));
    b.copy(places_.b(stage), there(stage));
  }

  Places places_;
  uint32_t tiles_;
  uint32_t asked_;  // tiles, so far
};

}  // namespace wmma
