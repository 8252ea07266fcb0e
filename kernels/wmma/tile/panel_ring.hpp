// Tiles for sm_90a's matrix unit, brought by its copy engine: a thread asks for a tile ahead of its turn, and barriers
// in shared memory tell when it is there and when everyone is done with it.
#pragma once

#include <wmma/arch/sm90.hpp>
#include <wmma/tile/panel_loader.hpp>
#include <wmma/tile/shared_tile.hpp>

namespace wmma {

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
