// The ping-pong loop of CDNA: two groups of waves, one on the matrix unit while the other computes weights and loads
// what comes next. The groups are one phase apart, and a barrier of the block ends each phase, so that of the two waves
// of a SIMD one is always multiplying.
//
//   phase      0          1                2                    3
//   group 0    Q·K(0)     weights(0)       P·V(0), Q·K(1)       weights(1)
//   group 1               Q·K(0)           weights(0)           P·V(0), Q·K(1)
//
// Both groups read the same tiles; group 0 loads those of keys, group 1 those of values (tiles/ping_pong_loaders.hpp),
// each into two buffers, as the groups are at different tiles. What a group loads is in shared memory by the barrier
// that ends its phase of weights. forward.hpp loads the queries and stores the results.
#pragma once

#include <wmma/attention/tiles/ping_pong_loaders.hpp>
#include <wmma/attention/weights.hpp>

namespace wmma {

template <class Config, class Link>
struct PingPongTiles {
  using T = typename Config::Element;
  using KeyTile = ChainTile<Link, Config::kKeys, Config::kDepth * sizeof(T)>;
  using ValueTile = Choose<Config::kAsync, TransposedTile<Config::kKeys, Config::kSlice * sizeof(T)>,
                           ChainTile<Link, Config::kSlice, Config::kKeys * sizeof(T)>>;
  using ValueReader =
      Choose<Config::kAsync, TransposedColumns<Link, ValueTile, Config::kSlice>, ColumnReader<Link, ValueTile>>;
  static constexpr int kGroupThreads = Config::kWaves / 2 * arch::kWaveSize;
  static constexpr int kKeyBytes = KeyTile::kBytes;
  static constexpr int kValueBytes = ValueTile::kBytes;
  static constexpr int kBytes = 2 * (kKeyBytes + kValueBytes);
};

// The phases of one group.
template <class Config, class Link, class Wave, class TileLoader>
class PingPong {
  using Number = typename Link::Sum;
  using Tiles = PingPongTiles<Config, Link>;
  using T = typename Config::Element;
  static constexpr int kWeightSteps = Config::kKeys / Link::kDepth;
  static constexpr int kSums = Config::kKeys / Link::kCols * Link::kElements;
  using Scores = Number[Config::kTilesM][kSums];
  using KeyGroups = ChainGroups<Link, Config::kKeys / Link::kCols, Config::kDepth / Link::kDepth>;
  using ValueGroups = ChainGroups<Link, Config::kSlice / Link::kCols, Config::kKeys / Link::kDepth>;
  // Columns are read kAhead groups before they are multiplied: all of the values' and then all of the keys'.
  static constexpr int kAhead = 2;
  static constexpr int kGroups = ValueGroups::kCount + KeyGroups::kCount;
  using Columns = Chunk[kAhead + 1][detail::upper(KeyGroups::kGroup, ValueGroups::kGroup)][Link::kColChunks];
  using Weights = Chunk[Config::kTilesM][kWeightSteps][Link::kRowChunks];

 public:
  WMMA_DEVICE PingPong(Wave& wave, TileLoader& loader, const unsigned char* tiles, uint32_t lane)
      : wave_(wave), loader_(loader), tiles_(tiles), keys_(lane), values_(lane) {}

  // The tiles that start at span.last … begin; the last one's keys and values are in the first buffers, and of the one
  // before it the group's part is on its way. Every key from span.whole_begin to before span.whole counts for every
  // row.
  template <class Mask, class Span>
  WMMA_DEVICE void run(const Mask& mask, const Span& span, uint32_t lane, Number factor) {
    const int begin = span.begin;
    const int last = span.last;
    Scores scores;
    Columns columns;
    Weights weights;
    if (TileLoader::kIsSecond) arch::shared_barrier();
    read<ValueGroups::kCount, kGroups>(columns, 1);
    multiply<ValueGroups::kCount, kGroups>(scores, weights, columns, 1, [](int) {});
    end_phase();
    uint32_t buffer = 0;
    int key = last;
    const int bounded = span.whole < last ? span.whole : last;  // from here on; the last tile may be ragged
    for (; key > begin; key -= Config::kKeys, buffer ^= 1) {
      const bool more = key - Config::kKeys > begin;  // than the tile whose keys are multiplied next
      loader_.before_weights(buffer, more);
      const bool is_bounded = key >= bounded || (Config::Rules::kWindowed && key < span.whole_begin);
      weigh<kGroups>(weights, scores, columns, buffer, mask, key, is_bounded, lane, factor);
      loader_.after_weights();
      end_phase();
      arch::priority<1>();
      multiply<0, kGroups>(scores, weights, columns, buffer,
                           [&](int i) { loader_.template beside_products<kGroups>(buffer, more, i); });
      arch::priority<0>();
      end_phase();
    }
    weigh<ValueGroups::kCount>(weights, scores, columns, buffer, mask, key, true, lane, factor);
    loader_.after_weights();
    end_phase();
    multiply<0, ValueGroups::kCount>(scores, weights, columns, buffer, [](int) {});
    if (!TileLoader::kIsSecond) end_phase();
  }

 private:
  // A phase of weights. Beside these it reads the first columns of the phase that follows, of kEnd groups.
  template <int kEnd, class Mask>
  WMMA_DEVICE void weigh(Weights& weights, Scores& scores, Columns& columns, uint32_t buffer, const Mask& mask, int key,
                         bool bounded, uint32_t lane, Number factor) {
    arch::schedule_barrier();
    Number scale;
    if (bounded) {
      scale = Wave::template mask<true>(scores, mask, key, lane, factor);
#pragma unroll
      for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
        for (int i = 0; i < kSums; i += Link::kElements) arch::together<Link::kElements>(scores[m] + i);
      }
    } else {
      scale = Wave::template mask<false>(scores, mask, key, lane, factor);
    }
    wave_.weigh(scores, scale, [&](int i) {
      constexpr int kApart = kSums / kAhead;
      if (i % kApart != 0 || i / kApart >= kEnd) return;
      arch::schedule_barrier();
      read_group(columns, buffer, i / kApart);
      arch::schedule_barrier();
    });
    constexpr int kPacked = Wave::kPacksBeside ? 1 : kWeightSteps;  // the others are beside their products
#pragma unroll
    for (int step = 0; step < kPacked; ++step) pack(weights, scores, step);
  }

  // A phase of products, or its groups kFirst … kEnd: P·V of the tile in `buffer`, and Q·K of the next one.
  // `beside(i)` is done with each.
  template <int kFirst, int kEnd, class Beside>
  WMMA_DEVICE void multiply(Scores& scores, Weights& weights, Columns& columns, uint32_t buffer, const Beside& beside) {
    const auto read_ahead = [&](int i, int part, int parts) {
      if (i + kAhead < kEnd) read_group(columns, buffer, i + kAhead, part, parts);
      arch::schedule_barrier();
    };
    // A loop each: in one the compiler would see, until it is unrolled, queries before the first, where the wave's
    // largest scores and sums are, and would make one value of both.
#pragma unroll
    for (int i = kFirst; i < detail::lower(kEnd, ValueGroups::kCount); ++i) {
      const int next = i / ValueGroups::kGroups + 1;
      if (Wave::kPacksBeside && i % ValueGroups::kGroups == 0 && next < kWeightSteps) pack(weights, scores, next);
      ValueGroups::multiply(wave_.out, weights, columns[i % (kAhead + 1)], i,
                            [&](int n) { read_ahead(i, n, ValueGroups::kGroup); });
      beside(i);
      arch::schedule_barrier();
    }
#pragma unroll
    for (int i = detail::upper(kFirst, ValueGroups::kCount); i < kEnd; ++i) {
      if (i == ValueGroups::kCount) clear(scores);
      KeyGroups::multiply(scores, wave_.queries, columns[i % (kAhead + 1)], i - ValueGroups::kCount,
                          [&](int n) { read_ahead(i, n, KeyGroups::kGroup); });
      beside(i);
      arch::schedule_barrier();
    }
  }

  // The first columns of a phase whose groups are kFirst … kEnd.
  template <int kFirst, int kEnd>
  WMMA_DEVICE void read(Columns& columns, uint32_t buffer) const {
#pragma unroll
    for (int i = kFirst; i < kFirst + kAhead && i < kEnd; ++i) read_group(columns, buffer, i);
  }
  WMMA_DEVICE void read_group(Columns& columns, uint32_t buffer, int i, int part = 0, int parts = 1) const {
    if (i < ValueGroups::kCount) {
      ValueGroups::read(columns[i % (kAhead + 1)], values_, value_tile(buffer), i, part, parts);
    } else {
      KeyGroups::read(columns[i % (kAhead + 1)], keys_, key_tile(buffer ^ 1), i - ValueGroups::kCount, part, parts);
    }
  }

  static WMMA_DEVICE void pack(Weights& weights, const Scores& scores, int step) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
      uint32_t words[Link::kShare * sizeof(T) / 4];
      pack_weights<T, Link::kShare, Wave::kCuts>(words, scores[m] + step * Link::kShare);
      Link::join(weights[m][step], words);
#pragma unroll
      for (int i = 0; i < 4 * Link::kRowChunks; ++i) arch::settle(weights[m][step][i / 4].words[i % 4]);
    }
  }

  WMMA_DEVICE const unsigned char* key_tile(uint32_t buffer) const { return tiles_ + buffer * Tiles::kKeyBytes; }
  WMMA_DEVICE const unsigned char* value_tile(uint32_t buffer) const {
    return tiles_ + 2 * Tiles::kKeyBytes + buffer * Tiles::kValueBytes;
  }

  Wave& wave_;
  TileLoader& loader_;
  const unsigned char* tiles_;
  ColumnReader<Link, typename Tiles::KeyTile> keys_;
  typename Tiles::ValueReader values_;
};

}  // namespace wmma
