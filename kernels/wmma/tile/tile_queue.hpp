// Tiles for sm_90a's matrix unit, asked for by a wave that does nothing else: items of a queue that runs round kStages
// places in shared memory. The wave that asks runs ahead of those that take as far as there are places, over whatever
// they do between two items.
#pragma once

#include <wmma/arch/tma.hpp>
#include <wmma/types.hpp>

namespace wmma {

template <int kStages, int kStageBytes>
class TileQueue {
 public:
  static constexpr int kBytes = kStages * kStageBytes;                     // of the places
  static constexpr int kBarrierBytes = 2 * kStages * arch::kBarrierBytes;  // `there` and `free` of each

  // Counted, with the place that it takes: stepping on divides nothing.
  class Item {
   public:
    WMMA_DEVICE explicit Item(uint32_t number)
        : number_(number), stage_(number % kStages), odd_(number / kStages & 1) {}
    WMMA_DEVICE uint32_t number() const { return number_; }
    WMMA_DEVICE uint32_t stage() const { return stage_; }
    WMMA_DEVICE uint32_t odd() const { return odd_; }  // whether the places are taken for the second, fourth ... time
    WMMA_DEVICE void next() {
      ++number_;
      ++stage_;
      if (stage_ == kStages) {
        stage_ = 0;
        odd_ ^= 1;
      }
    }

   private:
    uint32_t number_;
    uint32_t stage_;
    uint32_t odd_;
  };

  WMMA_DEVICE TileQueue(uint32_t places, uint32_t barriers) : places_(places), barriers_(barriers) {}

  // By one thread, before the block meets: each item is taken by so many waves, and brought by so many
  // that arrive.
  WMMA_DEVICE void make(uint32_t takers, uint32_t bringers = 1) const {
#pragma unroll 1  // short code: it is fetched from memory first
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      arch::barrier_make(there_at(stage), bringers);
      arch::barrier_make(free_at(stage), takers);
    }
  }

  // The same by a wave, a barrier a lane: its code is shorter still.
  WMMA_DEVICE void make_together(uint32_t lane, uint32_t takers, uint32_t bringers = 1) const {
    static_assert(2 * kStages <= arch::kWaveSize, "a barrier a lane");
    if (lane < 2 * kStages) arch::barrier_make(there_at(lane), lane < kStages ? bringers : takers);
  }

  // The asking thread: when the item's place is free again, `bytes` are announced.
  WMMA_DEVICE void open(const Item& item, uint32_t bytes) const {
    open(item, bytes, [] {});
  }
  // `tell` writes what the takers are to see beside them.
  template <class Tell>
  WMMA_DEVICE void open(const Item& item, uint32_t bytes, const Tell& tell) const {
    await_room(item);
    tell();
    arch::barrier_arrive_for_bytes(there(item), bytes);
  }
  // Waves that bring items themselves: until there is room; and when a wave's part has come.
  WMMA_DEVICE void await_room(const Item& item) const {
    arch::barrier_wait(free(item), item.odd() ^ 1);  // at once the first time round
  }
  WMMA_DEVICE void brought(const Item& item) const { arch::barrier_arrive(there(item), arch::lane_id() == 0); }
  WMMA_DEVICE uint32_t place(const Item& item) const { return places_ + item.stage() * kStageBytes; }
  WMMA_DEVICE uint32_t there(const Item& item) const { return there_at(item.stage()); }

  // The takers: until it has come; and when a wave is done with it.
  WMMA_DEVICE void await(const Item& item) const { arch::barrier_wait(there(item), item.odd()); }
  WMMA_DEVICE void done(const Item& item) const { arch::barrier_arrive(free(item), arch::lane_id() == 0); }
  WMMA_DEVICE uint32_t free(const Item& item) const { return free_at(item.stage()); }

 private:
  WMMA_DEVICE uint32_t there_at(uint32_t stage) const { return barriers_ + stage * arch::kBarrierBytes; }
  WMMA_DEVICE uint32_t free_at(uint32_t stage) const { return there_at(stage + kStages); }

  uint32_t places_;
  uint32_t barriers_;
};

}  // namespace wmma
