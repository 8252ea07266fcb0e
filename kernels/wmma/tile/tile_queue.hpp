// Tiles for sm_90a's matrix unit, loaded by a producer wave: items of a queue that runs round kStages
// places in shared memory. The producer runs ahead of the consumers as far as
// there are places, over whatever they do between two items.
#pragma once

#include <wmma/arch/tma.hpp>
#include <wmma/types.hpp>

namespace wmma {

template <int kStages, int kStageBytes>
class TileQueue {
 public:
  static constexpr int kBytes = kStages * kStageBytes;                     // of the places
  static constexpr int kBarrierBytes = 2 * kStages * arch::kBarrierBytes;  // `full` and `empty` of each

  // Counted, with the place that it takes: stepping on divides nothing.
  class Item {
   public:
    WMMA_DEVICE explicit Item(uint32_t number)
        : number_(number), stage_(number % kStages), phase_(number / kStages & 1) {}
    WMMA_DEVICE uint32_t number() const { return number_; }
    WMMA_DEVICE uint32_t stage() const { return stage_; }
    WMMA_DEVICE uint32_t phase() const {
      return phase_;
    }  // whether the places are taken for the second, fourth ... time
    WMMA_DEVICE void next() {
      ++number_;
      ++stage_;
      if (stage_ == kStages) {
        stage_ = 0;
        phase_ ^= 1;
      }
    }

    // So many that others take.
    WMMA_DEVICE void skip(uint32_t count) { *this = Item(number_ + count); }

   private:
    uint32_t number_;
    uint32_t stage_;
    uint32_t phase_;
  };

  WMMA_DEVICE TileQueue(uint32_t places, uint32_t barriers) : places_(places), barriers_(barriers) {}

  // By one thread, before the block meets: so many waves consume each item, and so many producers
  // arrive.
  WMMA_DEVICE void make(uint32_t consumers, uint32_t producers = 1) const {
#pragma unroll 1  // short code: it is fetched from memory first
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      arch::barrier_make(full_at(stage), producers);
      arch::barrier_make(empty_at(stage), consumers);
    }
  }

  // The same by a wave, a barrier a lane: its code is shorter still.
  WMMA_DEVICE void make_by_wave(uint32_t lane, uint32_t consumers, uint32_t producers = 1) const {
    static_assert(2 * kStages <= arch::kWaveSize, "a barrier a lane");
    if (lane < 2 * kStages) arch::barrier_make(full_at(lane), lane < kStages ? producers : consumers);
  }

  // The producing thread: when the item's place is empty again, `bytes` are announced.
  WMMA_DEVICE void open(const Item& item, uint32_t bytes) const {
    open(item, bytes, [] {});
  }
  // `tell` writes what the consumers are to see beside them.
  template <class Tell>
  WMMA_DEVICE void open(const Item& item, uint32_t bytes, const Tell& tell) const {
    await_room(item);
    tell();
    arch::barrier_arrive_for_bytes(full(item), bytes);
  }
  // Waves that write items themselves: until there is room; and when a wave's part has come.
  WMMA_DEVICE void await_room(const Item& item) const {
    arch::barrier_wait(empty(item), item.phase() ^ 1);  // at once the first time round
  }
  WMMA_DEVICE void brought(const Item& item) const { arch::barrier_arrive(full(item), arch::lane_id() == 0); }
  WMMA_DEVICE uint32_t place(const Item& item) const { return places_ + item.stage() * kStageBytes; }
  WMMA_DEVICE uint32_t full(const Item& item) const { return full_at(item.stage()); }

  // The consumers: until it has come; and when a wave is done with it.
  WMMA_DEVICE void await(const Item& item) const { arch::barrier_wait(full(item), item.phase()); }
  WMMA_DEVICE void done(const Item& item) const { arch::barrier_arrive(empty(item), arch::lane_id() == 0); }
  WMMA_DEVICE uint32_t empty(const Item& item) const { return empty_at(item.stage()); }

 private:
  WMMA_DEVICE uint32_t full_at(uint32_t stage) const { return barriers_ + stage * arch::kBarrierBytes; }
  WMMA_DEVICE uint32_t empty_at(uint32_t stage) const { return full_at(stage + kStages); }

  uint32_t places_;
  uint32_t barriers_;
};

}  // namespace wmma
