// Packed sequences by persistent blocks: nobody knows beforehand how many tiles of rows there are and how long each
// takes. The kernel before writes a list of them, those with the most keys first, and each block takes the next one
// whenever there is room for its queries: dynamic scheduling. (In which order tiles of about as many keys are taken may
// change from run to run; results do not.)
#pragma once

#include <wmma/atomics.hpp>
#include <wmma/attention/rows/varlen.hpp>

namespace wmma {

// A tile of a sequence's rows, of one head, or, in the list, of p.head_group ones.
struct alignas(16) ListedTile {
  Stretch queries;
  Stretch keys;
  int sequence;
  int head;
  int tile;
  int unused;
};

WMMA_DEVICE ListedTile as_the_first_lane_has(const ListedTile& of) {
  return {shuffle(of.queries, 0), shuffle(of.keys, 0), shuffle(of.sequence, 0),
          shuffle(of.head, 0),    shuffle(of.tile, 0), 0};
}

class TileList {
 public:
  static constexpr int kHeadBytes = sizeof(ListedTile);  // before the list

  WMMA_DEVICE explicit TileList(const AttentionArguments& p)
      : listed_(static_cast<uint32_t*>(p.partial)),
        list_(reinterpret_cast<ListedTile*>(static_cast<unsigned char*>(p.partial) + kHeadBytes)),
        head_group_(p.head_group) {}

  // By one thread of each block: the block's first tile is that of its number.
  WMMA_DEVICE uint32_t count() const { return listed_[1] * head_group_; }
  WMMA_DEVICE uint32_t next() const { return gridDim.x + atomic_add(listed_, 1u); }
  WMMA_DEVICE ListedTile at(uint32_t index) const {
    const uint32_t place = index / head_group_;
    ListedTile tile = list_[place];
    tile.head += static_cast<int>(index - place * head_group_);
    return tile;
  }

  WMMA_DEVICE void begin(uint32_t count) const {
    listed_[0] = 0;
    listed_[1] = count;
  }
  WMMA_DEVICE void put(uint32_t place, const ListedTile& tile) const { list_[place] = tile; }

 private:
  uint32_t* listed_;
  ListedTile* list_;
  uint32_t head_group_;
};

// By a whole block: the list. kTileRows of a block, where kPackedHeads are in a query's.
template <class Config>
class TileListWriter {
  static constexpr int kLengths = 64;  // that are told apart
  static constexpr uint32_t kWave = arch::kWaveSize;

 public:
  template <class Arguments>
  static WMMA_DEVICE void run(const Arguments& p) {
    __shared__ uint32_t counts[kLengths];
    __shared__ uint32_t starts[kLengths];
    const SequenceArguments& of = p.sequences;
    const TileList list(p);
    const int parts = p.heads / Config::kPackedHeads / p.head_group;
    for (int i = threadIdx.x; i < kLengths; i += Config::kThreads) counts[i] = 0;
    arch::block_barrier();
    for (int i = threadIdx.x; i < of.count; i += Config::kThreads) {
      atomic_add(&counts[order(of, keys_of(p, i))], static_cast<uint32_t>(tiles(queries_of(of, i)) * parts));
    }
    arch::block_barrier();
    for (int i = threadIdx.x; i < kLengths; i += Config::kThreads) {
      uint32_t before = 0;
#pragma unroll 16
      for (int j = 0; j < kLengths; ++j) before += j < i ? counts[j] : 0;
      starts[i] = before;
      if (i == kLengths - 1) list.begin(before + counts[i]);
    }
    arch::block_barrier();
    // A wave looks at a sequence with each of its lanes, as far as others have some too, and writes the tiles of one
    // after the other.
    constexpr int kWaves = Config::kThreads / kWave;
    const uint32_t lane = lane_id();
    const int share = detail::lower((of.count + kWaves - 1) / kWaves, static_cast<int>(kWave));
    for (int first = threadIdx.x / kWave * share; first < of.count; first += kWaves * share) {
      const int own = static_cast<int>(lane) < share ? first + static_cast<int>(lane) : of.count;
      const Stretch queries = queries_of(of, own);
      const Stretch keys = keys_of(p, own);
      const int count = tiles(queries) * parts;
      const uint32_t place = count == 0 ? 0 : atomic_add(&starts[order(of, keys)], static_cast<uint32_t>(count));
      for (int i = 0; i < share; ++i) {
        ListedTile tile{shuffle(queries, i), shuffle(keys, i), first + i};
        const int all = shuffle(count, i), from = static_cast<int>(shuffle(place, i));
        const int of_part = all / parts;
        for (int at = static_cast<int>(lane); at < all; at += kWave) {
          const int part = at / of_part;
          tile.head = part * p.head_group;
          tile.tile = of_part - 1 - (at - part * of_part);  // later ones see more keys
          list.put(from + at, tile);
        }
      }
    }
  }

 private:
  static WMMA_DEVICE int tiles(const Stretch& queries) {
    return (queries.length * Config::kPackedHeads + Config::kTileRows - 1) / Config::kTileRows;
  }
  static WMMA_DEVICE int order(const SequenceArguments& of, const Stretch& keys) {
    return kLengths - 1 - static_cast<int>(static_cast<int64_t>(keys.length) * kLengths / (of.longest_k + 1ll));
  }
};

}  // namespace wmma
