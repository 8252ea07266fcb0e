// Packed sequences by persistent blocks: nobody knows beforehand how many tiles of rows there are and how long each
// takes. The kernel before writes a list of them, those with the most keys first, and each block takes the next one
// whenever there is room for its queries: dynamic scheduling. (In which order tiles of about as many keys are taken may
// change from run to run; results do not.)
//
// Where no sequence has more than one tile of a head, blocks begin with those of the first sequences, each with that of
// its number, and the list, which is written meanwhile, has the others.
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

  WMMA_DEVICE TileList(const SequencesArguments& p, int heads)
      : listed_(static_cast<uint32_t*>(p.partial)),
        list_(reinterpret_cast<ListedTile*>(static_cast<unsigned char*>(p.partial) + kHeadBytes)),
        head_group_(p.head_group),
        unlisted_(p.sequences.unlisted * heads) {}

  WMMA_DEVICE bool begins_with_list() const { return blockIdx.x >= unlisted_; }
  // By one thread of each block: of those that begin with the list, the first tile is that of their number.
  WMMA_DEVICE uint32_t count() const { return listed_[1] * head_group_; }
  WMMA_DEVICE uint32_t first() const { return begins_with_list() ? blockIdx.x - unlisted_ : next(); }
  WMMA_DEVICE uint32_t next() const { return gridDim.x - unlisted_ + atomic_add(listed_, 1u); }
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
  uint32_t unlisted_;  // tiles that blocks begin with
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
    const int heads = p.heads / Config::kPackedHeads;
    const TileList list(p, heads);
    const int parts = heads / p.head_group;
    for (int i = threadIdx.x; i < kLengths; i += Config::kThreads) counts[i] = 0;
    arch::block_barrier();
    for (int i = of.unlisted + threadIdx.x; i < of.count; i += Config::kThreads) {
      atomic_add(&counts[order(of, keys_of(p, i))], static_cast<uint32_t>(tiles(queries_of(of, i)) * parts));
    }
    arch::block_barrier();
    const uint32_t lane = lane_id();
    if (threadIdx.x < kWave) add_up(list, counts, starts, lane);
    arch::block_barrier();
    // A wave looks at a sequence with each of its lanes, as far as others have some too. Who has few tiles writes them;
    // else those of one are written by all, and then another's.
    constexpr int kWaves = Config::kThreads / kWave;
    const int listed = of.count - of.unlisted;
    const int share = detail::lower((listed + kWaves - 1) / kWaves, static_cast<int>(kWave));
    for (int first = of.unlisted + threadIdx.x / kWave * share; first < of.count; first += kWaves * share) {
      const int own = static_cast<int>(lane) < share ? first + static_cast<int>(lane) : of.count;
      const Stretch queries = queries_of(of, own);
      const Stretch keys = keys_of(p, own);
      const int count = tiles(queries) * parts;
      const uint32_t place = count == 0 ? 0 : atomic_add(&starts[order(of, keys)], static_cast<uint32_t>(count));
      const auto put = [&](ListedTile tile, uint32_t from, int all, int begin, int step) {
        const int of_part = all / parts;
        for (int at = begin; at < all; at += step) {
          const int part = at / of_part;
          tile.head = part * p.head_group;
          tile.tile = of_part - 1 - (at - part * of_part);  // later ones see more keys
          list.put(from + at, tile);
        }
      };
      if (arch::ballot(count > kFew) == 0) {
        put({queries, keys, own}, place, count, 0, 1);
      } else {
        for (int i = 0; i < share; ++i) {
          put({shuffle(queries, i), shuffle(keys, i), first + i}, shuffle(place, i), shuffle(count, i),
              static_cast<int>(lane), kWave);
        }
      }
    }
  }

 private:
  static constexpr int kFew = 4;

  // By a wave: where the tiles of each length start, and how many tiles there are. A lane has neighbours.
  static WMMA_DEVICE void add_up(const TileList& list, const uint32_t* counts, uint32_t* starts, uint32_t lane) {
    constexpr int kOwn = kLengths / kWave;
    uint32_t own = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own += counts[lane * kOwn + i];
    uint32_t after = own;
#pragma unroll
    for (uint32_t step = 1; step < kWave; step *= 2) {
      const uint32_t other = shuffle(after, static_cast<int>(lane - step) & static_cast<int>(kWave - 1));
      if (lane >= step) after += other;
    }
    uint32_t before = after - own;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      starts[lane * kOwn + i] = before;
      before += counts[lane * kOwn + i];
    }
    if (lane == kWave - 1) list.begin(after);
  }

  static WMMA_DEVICE int tiles(const Stretch& queries) {
    return (queries.length * Config::kPackedHeads + Config::kTileRows - 1) / Config::kTileRows;
  }
  static WMMA_DEVICE int order(const SequenceArguments& of, const Stretch& keys) {
    const float share = static_cast<float>(keys.length) / static_cast<float>(of.longest_k + 1ll);
    return kLengths - 1 - clamped(static_cast<int64_t>(share * kLengths), 0, kLengths - 1);
  }
};

}  // namespace wmma
