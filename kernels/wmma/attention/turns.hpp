// Attention's tiles of keys by two groups of waves in turns: while one multiplies, the other has its scores become
// weights and brings what comes next. The groups are a turn apart, and a barrier ends each turn, so that of the two
// waves of a SIMD one is always at the matrix unit.
//
//   turn       0          1                2                    3
//   group 0    Q·K(0)     weights(0)       P·V(0), Q·K(1)       weights(1)
//   group 1               Q·K(0)           weights(0)           P·V(0), Q·K(1)
//
// The first group brings keys, the second values, each a tile while it is not multiplying: both are doubled in shared
// memory, since the groups are at different tiles.
#pragma once

#include <wmma/attention/rows.hpp>
#include <wmma/attention/weights.hpp>
#include <wmma/tile/chain.hpp>
#include <wmma/tile/staged_loader.hpp>

namespace wmma {

template <class Config, class Link>
struct TilesInTurns {
  using T = typename Config::Element;
  using KeyTile = ChainTile<Link, Config::kKeys, Config::kDepth * sizeof(T)>;
  using ValueTile = ChainTile<Link, Config::kSlice, Config::kKeys * sizeof(T)>;
  static constexpr int kGroupThreads = Config::kWaves / 2 * arch::kWaveSize;
  static constexpr int kKeyBytes = KeyTile::kBytes;
  static constexpr int kValueBytes = ValueTile::kBytes;
  static constexpr int kBytes = 2 * (kKeyBytes + kValueBytes);
};

// What the first group brings. Tiles come from the last to the first; `last` is the last one's first key, of which
// `keys` exist.
template <class Config, class Link>
class KeySupply {
  using Tiles = TilesInTurns<Config, Link>;
  using T = typename Config::Element;
  static constexpr bool kRaggedDepth = Config::kColumns % Config::kDepth != 0;

 public:
  static constexpr bool kIsSecond = false;

  WMMA_DEVICE KeySupply(const AttentionArguments& p, const T* k, const T*, unsigned char* tiles, int last, int keys,
                        int, uint32_t thread)
      : last_(k + last * p.k.row_stride, p.k.row_stride, p.k.column_stride, keys, thread, {}),
        others_(k + last * p.k.row_stride, p.k.row_stride, p.k.column_stride, Config::kKeys, thread, {}),
        tiles_(tiles),
        step_(Config::kKeys * p.k.row_stride * static_cast<int64_t>(sizeof(T))) {}

  WMMA_DEVICE void fetch_last() { last_.template fetch<kRaggedDepth>(Config::kColumns); }
  WMMA_DEVICE void store_last() { last_.template store<false>(tiles_); }
  // The next tile, or, where there is none, the same again: what is loaded always is no choice of registers.
  WMMA_DEVICE void fetch(bool there) {
    others_.move(there ? -step_ : 0);
    others_.template fetch<kRaggedDepth>(Config::kColumns);
  }
  WMMA_DEVICE void store(uint32_t buffer) { others_.template store<false>(tiles_ + buffer * Tiles::kKeyBytes); }

 private:
  using Loader = StagedLoader<T, T, Config::kKeyOrder, Config::kKeys, Config::kDepth, Tiles::kGroupThreads,
                              Config::kKeyVec, false, PlainStage<T, T>, typename Tiles::KeyTile>;
  Loader last_;
  Loader others_;
  unsigned char* tiles_;
  int64_t step_;  // of a tile, in bytes
};

// What the second group brings, turned on the way: values' lines run along the keys.
template <class Config, class Link>
class ValueSupply {
  using Tiles = TilesInTurns<Config, Link>;
  using T = typename Config::Element;

 public:
  static constexpr bool kIsSecond = true;

  WMMA_DEVICE ValueSupply(const AttentionArguments& p, const T*, const T* v, unsigned char* tiles, int last, int keys,
                          int columns, uint32_t thread)
      : values_(v + last * p.v.row_stride, p.v.column_stride, p.v.row_stride, columns, thread, {}),
        tiles_(tiles + 2 * Tiles::kKeyBytes),
        step_(Config::kKeys * p.v.row_stride * static_cast<int64_t>(sizeof(T))),
        ragged_(keys) {}

  WMMA_DEVICE void fetch_last() { values_.template fetch<true>(ragged_); }
  WMMA_DEVICE void store_last() { store(0); }
  WMMA_DEVICE void fetch(bool there) {
    values_.move(there ? -step_ : 0);
    values_.template fetch<false>();
  }
  WMMA_DEVICE void store(uint32_t buffer) { values_.template store<false>(tiles_ + buffer * Tiles::kValueBytes); }

 private:
  using Loader = StagedLoader<T, T, Config::kValueOrder, Config::kSlice, Config::kKeys, Tiles::kGroupThreads,
                              Config::kValueVec, false, PlainStage<T, T>, typename Tiles::ValueTile>;
  Loader values_;
  unsigned char* tiles_;
  int64_t step_;  // of a tile, in bytes
  int ragged_;
};

// The turns of one group.
template <class Config, class Link, class Wave, class Supply>
class AttentionTurns {
  using Number = typename Link::Sum;
  using Tiles = TilesInTurns<Config, Link>;
  using T = typename Config::Element;
  static constexpr int kSums = Config::kKeys / Link::kCols * Link::kElements;
  using Scores = Number[Config::kTilesM][kSums];
  using KeyGroups = ChainGroups<Link, Config::kKeys / Link::kCols, Config::kDepth / Link::kDepth>;
  using ValueGroups = ChainGroups<Link, Config::kSlice / Link::kCols, Config::kKeys / Link::kDepth>;
  // Columns are read kAhead groups before they are multiplied: all of the values' and then all of the keys'.
  static constexpr int kAhead = 2;
  static constexpr int kGroups = ValueGroups::kCount + KeyGroups::kCount;
  using Columns = Chunk[kAhead + 1][detail::upper(KeyGroups::kGroup, ValueGroups::kGroup)][Link::kColChunks];
  using Weights = Chunk[Config::kTilesM][Config::kKeys / Link::kDepth][Link::kRowChunks];

 public:
  WMMA_DEVICE AttentionTurns(Wave& wave, Supply& supply, const unsigned char* tiles, uint32_t lane)
      : wave_(wave), supply_(supply), tiles_(tiles), keys_(lane), values_(lane) {}

  // The tiles that start at `last` … begin; the last one's keys and values are in the first buffers, and of the one
  // before it the group's part is on its way. Every key before `whole` counts for every row.
  template <class Mask>
  WMMA_DEVICE void run(const Mask& mask, int begin, int last, int whole, uint32_t lane, Number factor) {
    Scores scores;
    Columns columns;
    Weights weights;
    if (Supply::kIsSecond) arch::shared_barrier();
    read<ValueGroups::kCount, kGroups>(columns, 1);
    multiply<ValueGroups::kCount, kGroups>(scores, weights, columns, 1);
    end_turn();
    uint32_t buffer = 0;
    int key = last;
    const int bounded = whole < last ? whole : last;  // from here on; the last tile may be ragged
    for (; key > begin; key -= Config::kKeys, buffer ^= 1) {
      read<0, kGroups>(columns, buffer);
      supply_.store(buffer ^ 1);
      supply_.fetch(key - Config::kKeys > begin);
      weigh(weights, scores, mask, key, key >= bounded, lane, factor);
      end_turn();
      arch::priority<1>();
      multiply<0, kGroups>(scores, weights, columns, buffer);
      arch::priority<0>();
      end_turn();
    }
    read<0, ValueGroups::kCount>(columns, buffer);
    weigh(weights, scores, mask, key, true, lane, factor);
    end_turn();
    multiply<0, ValueGroups::kCount>(scores, weights, columns, buffer);
    if (!Supply::kIsSecond) end_turn();
  }

 private:
  // A turn at a tile's weights.
  template <class Mask>
  WMMA_DEVICE void weigh(Weights& weights, Scores& scores, const Mask& mask, int key, bool bounded, uint32_t lane,
                         Number factor) {
    arch::schedule_barrier();
    wave_.weigh(scores, bounded ? Wave::template mask<true>(scores, mask, key, lane, factor)
                                : Wave::template mask<false>(scores, mask, key, lane, factor));
    pack(weights, scores);
  }

  // A turn at the matrix unit, or its groups kFirst … kEnd: P·V of the tile in `buffer`, and Q·K of the next one.
  template <int kFirst, int kEnd>
  WMMA_DEVICE void multiply(Scores& scores, const Weights& weights, Columns& columns, uint32_t buffer) {
#pragma unroll
    for (int i = kFirst; i < kEnd; ++i) {
      if (i + kAhead < kEnd) read_group(columns, buffer, i + kAhead);
      if (i < ValueGroups::kCount) {
        ValueGroups::multiply(wave_.out, weights, columns[i % (kAhead + 1)], i);
      } else {
        if (i == ValueGroups::kCount) clear(scores);
        KeyGroups::multiply(scores, wave_.queries, columns[i % (kAhead + 1)], i - ValueGroups::kCount);
      }
      arch::schedule_barrier();
    }
  }

  // The first columns of a turn whose groups are kFirst … kEnd.
  template <int kFirst, int kEnd>
  WMMA_DEVICE void read(Columns& columns, uint32_t buffer) const {
#pragma unroll
    for (int i = kFirst; i < kFirst + kAhead && i < kEnd; ++i) read_group(columns, buffer, i);
  }
  WMMA_DEVICE void read_group(Columns& columns, uint32_t buffer, int i) const {
    if (i < ValueGroups::kCount) {
      ValueGroups::read(columns[i % (kAhead + 1)], values_, value_tile(buffer), i);
    } else {
      KeyGroups::read(columns[i % (kAhead + 1)], keys_, key_tile(buffer ^ 1), i - ValueGroups::kCount);
    }
  }

  static WMMA_DEVICE void end_turn() {
    arch::schedule_barrier();
    arch::shared_barrier();
    arch::schedule_barrier();
  }

  static WMMA_DEVICE void clear(Scores& scores) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) scores[m][i] = Number(0);
    }
  }

  static WMMA_DEVICE void pack(Weights& weights, const Scores& scores) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int step = 0; step < Config::kKeys / Link::kDepth; ++step) {
        uint32_t words[Link::kShare * sizeof(T) / 4];
        pack_weights<T, Link::kShare>(words, scores[m] + step * Link::kShare);
        Link::join(weights[m][step], words);
#pragma unroll
        for (int i = 0; i < Link::kRowChunks; ++i) arch::settle(weights[m][step][i].words[0]);
      }
    }
  }

  WMMA_DEVICE const unsigned char* key_tile(uint32_t buffer) const { return tiles_ + buffer * Tiles::kKeyBytes; }
  WMMA_DEVICE const unsigned char* value_tile(uint32_t buffer) const {
    return tiles_ + 2 * Tiles::kKeyBytes + buffer * Tiles::kValueBytes;
  }

  Wave& wave_;
  Supply& supply_;
  const unsigned char* tiles_;
  ColumnReader<Link, typename Tiles::KeyTile> keys_;
  ColumnReader<Link, typename Tiles::ValueTile> values_;
};

}  // namespace wmma
