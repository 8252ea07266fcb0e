// Keys and values of 8 bits on their way to a matrix unit that is to multiply 16: the copy engine brings tiles of both
// as they are, in the order in which they are taken, to a queue of their own, and waves that have nothing else to do
// write them to the places of the tiles that are multiplied.
#pragma once

#include <wmma/tile/tile_queue.hpp>
#include <wmma/tile/warpgroup_tile.hpp>
#include <wmma/tile/widening.hpp>

namespace wmma {

// Tiles of kKeys lines. `Element` is what they become, by kWaves waves.
template <class Element, int kKeys, int kLineBytes, int kStages, int kWaves>
class NarrowTiles {
  static_assert(kKeys % 8 == 0, "the chunks of eight lines are exchanged");

 public:
  using Tile = WarpgroupTile<kKeys, kLineBytes>;
  using Queue = TileQueue<kStages, Tile::kBytes>;
  static constexpr int kPassedBytes = (kStages * 4 + 15) / 16 * 16;  // of each place: what came there
  enum Kind : uint32_t { kKeysCame, kValuesCame, kNoMore };
  // Of a sequence's values, of which `there` are left from the tile's first on, those behind them are another's: they
  // count for nothing, but what is not a number would count as that. Keys that do not count are seen to with scores.
  static WMMA_DEVICE uint32_t values_came(int there) {
    return kValuesCame | static_cast<uint32_t>(there < kKeys ? there : kKeys) << kKindBits;
  }

  // By one of the waves: tiles as they come, until there are no more, to the queues of keys and of values.
  template <class KeyTile, class ValueTile, class Keys, class Values>
  static WMMA_DEVICE void widen(const Queue& queue, const uint32_t* passed, const Keys& keys, const Values& values,
                                uint32_t wave) {
    const Share share(wave, lane_id());
    typename Keys::Item key(0);
    typename Values::Item value(0);
    for (typename Queue::Item item(0);; item.next()) {
      queue.await(item);
      // By the lane that gives the place back: what others had read of it would have to be given back by them, too.
      const uint32_t came = shuffle(share.lane == 0 ? passed[item.stage()] : 0, 0);
      if (came == kNoMore) return;
      if (came == kKeysCame) {
        widen_to<KeyTile>(keys, key, queue.place(item), share);
        key.next();
      } else {
        clear(queue.place(item), came >> kKindBits, share);
        widen_to<ValueTile>(values, value, queue.place(item), share);
        value.next();
      }
      queue.done(item);
    }
  }

 private:
  static constexpr int kKindBits = 2;

  // What a lane has of a tile: of eight lines of a box one, of that sixteen neighbours. Of the two lines that eight
  // lanes have, the chunks are in the two halves of a narrow box, and in the even and the odd places of a wide one: no
  // bank is met twice. Waves that have one part more of a box have one less of the next.
  struct Share {
    uint32_t lane;
    uint32_t line;
    uint32_t chunk;
    uint32_t first[2];  // eight lines of either half, and every kWaves-th of them after these

    WMMA_DEVICE Share(uint32_t wave, uint32_t of_lane)
        : lane(of_lane), line(lane / 8 ^ lane / 4 % 2 * 5), chunk(lane % 4), first{wave, kWaves - 1 - wave} {}
    WMMA_DEVICE uint32_t in(uint32_t tile, int half) const {
      return tile + first[half] * 1024 + line * 128 + ((chunk ^ line) * 16 ^ half * 64);
    }
  };
  static constexpr int kParts = kKeys / 8;

  // A lane's own numbers from the line `there` on.
  static WMMA_DEVICE void clear(uint32_t tile, uint32_t there, const Share& share) {
    if (there >= kKeys) return;
    const uint32_t none[4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll 1
      for (uint32_t part = share.first[half], at = share.in(tile, half); part < kParts;
           part += kWaves, at += kWaves * 1024) {
        if (part * 8 + share.line < there) continue;
#pragma unroll
        for (int box = 0; box < Tile::kBoxes; ++box) arch::store_shared(at + box * Tile::kBoxBytes, none);
      }
    }
  }

  template <class Wide, class WideQueue>
  static WMMA_DEVICE void widen_to(const WideQueue& queue, const typename WideQueue::Item& item, uint32_t from,
                                   const Share& share) {
    queue.await_room(item);
    widen_tile<Wide>(queue.place(item), from, share);
    arch::fence_matrix_unit();
    arch::wave_barrier();
    queue.brought(item);
  }

  template <class Wide>
  static WMMA_DEVICE void widen_tile(uint32_t to, uint32_t from, const Share& share) {
    constexpr int kRounds = (kParts + kWaves - 1) / kWaves;
    const uint32_t (&first)[2] = share.first;
    const uint32_t wide = to + share.line * 128 + (share.chunk * 2 ^ share.line) * 16;
    const uint32_t halves[2] = {share.in(from, 0), share.in(from, 1)};
    const uint32_t chunks[2][2] = {{wide + first[0] * 1024, (wide ^ 16) + first[0] * 1024},
                                   {wide + first[1] * 1024, (wide ^ 16) + first[1] * 1024}};
    const auto each = [&](int pair, const auto& act) {
#pragma unroll
      for (int half = 0; half < detail::lower(Wide::kBoxes - 2 * pair, 2); ++half) {
#pragma unroll
        for (int i = 0; i < kRounds; ++i) {
          if ((i + 1) * kWaves <= kParts || first[half] + i * kWaves < kParts) act(half, i, i * kWaves * 1024);
        }
      }
    };
#pragma unroll
    for (int pair = 0; pair < (Wide::kBoxes + 1) / 2; ++pair) {  // of wide boxes, that a narrow one has
      uint32_t words[2][kRounds][4];
      each(pair, [&](int half, int i, uint32_t part) {
        arch::load_shared(words[half][i], halves[half] + part + pair * Tile::kBoxBytes);
      });
      each(pair, [&](int half, int i, uint32_t part) {
        const uint32_t further = part + (2 * pair + half) * Wide::kBoxBytes;
        uint32_t pairs[8];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          pairs[2 * j] = detail::pair_of_e4m3<Element, false>(words[half][i][j]);
          pairs[2 * j + 1] = detail::pair_of_e4m3<Element, true>(words[half][i][j]);
        }
        arch::store_shared(chunks[half][0] + further, pairs);
        arch::store_shared(chunks[half][1] + further, pairs + 4);
      });
    }
  }
};

}  // namespace wmma
