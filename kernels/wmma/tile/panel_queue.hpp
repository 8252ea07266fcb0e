// Tiles for sm_90a's matrix unit, asked for by a wave that does nothing else: items of a queue that runs round kStages
// places in shared memory. The wave that asks runs ahead of those that take as far as there are places, over whatever
// they do between two items.
#pragma once

#include <wmma/arch/tma.hpp>
#include <wmma/types.hpp>

namespace wmma {

template <int kStages, int kStageBytes>
class PanelQueue {
 public:
  static constexpr int kBytes = kStages * kStageBytes;                     // of the places
  static constexpr int kBarrierBytes = 2 * kStages * arch::kBarrierBytes;  // `there` and `free` of each

  WMMA_DEVICE PanelQueue(uint32_t places, uint32_t barriers) : places_(places), barriers_(barriers) {}

  // By one thread, before the block meets: each item is taken by so many waves.
  WMMA_DEVICE void make(uint32_t takers) const {
#pragma unroll 1  // short code: it is fetched from memory first
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      arch::barrier_make(there_at(stage), 1);
      arch::barrier_make(free_at(stage), takers);
    }
  }

  // The asking thread: when the item's place is free again, `bytes` are announced.
  WMMA_DEVICE void open(uint32_t item, uint32_t bytes) const {
    const uint32_t turn = item / kStages;
    arch::barrier_wait(free_at(item % kStages), turn & 1 ^ 1);  // at once the first time round
    arch::barrier_arrive_for_bytes(there(item), bytes);
  }
  WMMA_DEVICE uint32_t place(uint32_t item) const { return places_ + item % kStages * kStageBytes; }
  WMMA_DEVICE uint32_t there(uint32_t item) const { return there_at(item % kStages); }

  // The takers: until it has come; and when a wave is done with it.
  WMMA_DEVICE void await(uint32_t item) const { arch::barrier_wait(there(item), item / kStages & 1); }
  WMMA_DEVICE void done(uint32_t item) const {
    if (arch::lane_id() == 0) arch::barrier_arrive(free(item));
  }
  WMMA_DEVICE uint32_t free(uint32_t item) const { return free_at(item % kStages); }

 private:
  WMMA_DEVICE uint32_t there_at(uint32_t stage) const { return barriers_ + stage * arch::kBarrierBytes; }
  WMMA_DEVICE uint32_t free_at(uint32_t stage) const { return there_at(stage + kStages); }

  uint32_t places_;
  uint32_t barriers_;
};

}  // namespace wmma
