// The forward loop that every target has, for any configuration: waves own rows of queries, and go through the tiles of
// keys together, from the last one to the first, which may be the only ragged one. Of a tile t, `step` has
//
//   1. S = Q·K(t)ᵀ           meanwhile V(t) comes
//   2. P = exp2(S − max)     of each wave's own rows (softmax.hpp); meanwhile K(t−1) comes
//   3. out += P·V(t)
//
// Barriers of the block keep a tile until all waves have read it: tiles/key_value_loaders.hpp has them, and the ways by
// which tiles come. Where keys are split, blocks leave parts of rows, which a cluster, or passes/combine.hpp, puts
// together. Config::kPingPong: two groups of waves instead (ping_pong.hpp).
#pragma once

#include <wmma/arch/sm90.hpp>
#include <wmma/attention/loops/ping_pong.hpp>
#include <wmma/attention/passes/combine.hpp>
#include <wmma/attention/rows/blocks.hpp>
#include <wmma/attention/softmax.hpp>
#include <wmma/attention/terms/row_mask.hpp>
#include <wmma/attention/tiles/key_value_loaders.hpp>
#include <wmma/attention/weights.hpp>

namespace wmma {

template <class Config>
struct AttentionKernel {
  using Rules = typename Config::Rules;
  using Arguments = typename Rules::Arguments;
  using Sight = wmma::Sight<Config::kCausal, Rules>;
  using T = typename Config::Element;
  using Link = ChainLink<typename ProductOf<Config::kLanes, T, Config::kSide>::Type>;
  using Number = typename Link::Sum;
  static constexpr int kThreads = Config::kWaves * arch::kWaveSize;
  static constexpr int kWaveRows = Config::kTilesM * Link::kRows;
  static constexpr int kBlockRows = Config::kWaves * kWaveRows;
  static constexpr int kTiles = Config::kKeys / Link::kCols;      // of a row tile's scores
  static constexpr int kOutTiles = Config::kSlice / Link::kCols;  // of its results
  static constexpr int kSums = kTiles * Link::kElements;
  static constexpr int kSteps = Config::kDepth / Link::kDepth;
  static constexpr int kValueSteps = Config::kKeys / Link::kDepth;
  static_assert(Config::kKeys % Link::kWhole == 0 && Config::kSlice % Link::kWhole == 0, "whole tiles");
  static_assert(Config::kDepth % Link::kDepth == 0, "whole steps");

  using KeyValueTiles = typename KeyValueTilesOf<Config::kAsync && !Config::kPingPong, Config, Link, kThreads>::Type;
  using QueryTile = ChainTile<PlainLines, kBlockRows, Config::kDepth * sizeof(T)>;
  using WeightTile = ChainTile<PlainLines, kBlockRows, Config::kKeys * sizeof(T)>;
  using Queries = RowReader<Link, QueryTile>;
  using Weights = RowReader<Link, WeightTile>;
  static constexpr bool kKeepsQueries = Config::kKeepsQueries;
  static_assert(!kKeepsQueries || KeyValueTiles::kDepths == 1, "all of a row");
  static constexpr int kWeightBytes = Link::kStays ? 0 : WeightTile::kBytes;
  using PingPongTiles = wmma::PingPongTiles<Config, Link>;
  static_assert(!Config::kPingPong || (kKeepsQueries && Link::kStays), "shared memory is keys' and values'");
  static_assert(!Config::kPingPong || !(Rules::kDrops || Rules::kBlocks), "not there");
  using Stored = StoredOf<Config>;
  static_assert(kSame<Stored, T> || !(Config::kPingPong || Config::kAsync), "they convert nothing on the way");
  static_assert(!Rules::kBlocks || !Config::kPacked, "a tile's rows are in one block");
  static constexpr int kKeyValueBytes = Config::kPingPong ? PingPongTiles::kBytes : KeyValueTiles::kBytes;
  // Queries that stay in registers come by way of the tiles' memory, where these do not fill it meanwhile.
  static constexpr bool kSharesMemory = kKeepsQueries && !(Config::kPingPong && Config::kAsync);
  static constexpr int kTileBytes = kSharesMemory ? detail::upper(QueryTile::kBytes, kKeyValueBytes) + kWeightBytes
                                                  : QueryTile::kBytes + kKeyValueBytes + kWeightBytes;
  static constexpr int kKeyValueStart = kSharesMemory ? 0 : QueryTile::kBytes;
  static constexpr int kWeightStart = kTileBytes - kWeightBytes;

  // Whether the blocks that split a tile's keys are a cluster, which puts their parts together.
  static constexpr bool kMeets = Config::kCluster > 1;
  static constexpr int kPartial = 2 + Config::kSlice;
  static_assert(!kMeets || Link::kRun <= 2, "what a lane stores at once lies at an even number");
  static constexpr int kPartBytes = kMeets ? kBlockRows * kPartial * static_cast<int>(sizeof(Number)) : 0;
  static constexpr int kSharedBytes = kTileBytes > kPartBytes ? kTileBytes : kPartBytes;

  // Whether a tile's parts come one after the other.
  static constexpr bool kFolds = kFoldsParts<Config>;
  static constexpr int kOutSums = Config::kTilesM * (Config::kSlice / Link::kCols) * Link::kElements;

  using Place = AttentionPlace<Config::kPacked>;
  using Mask = RowMask<Config, Link, Number>;
  using Scale = ScoreScale<Number, SoftmaxOf<Config, Number>>;

  using Walk = TilesOfBlocks<Rules, kBlockRows, Config::kKeys>;

  struct Wave : RunningSoftmax<Config, Link, Config::kPingPong ? Products::kInPingPong : Products::kBefore> {
    Chunk queries[kKeepsQueries ? Config::kTilesM : 1][kKeepsQueries ? kSteps : 1][Link::kRowChunks];
  };

  static WMMA_DEVICE Place place_of(const Arguments& p) { return Place(p, blockIdx.x / Config::kCluster); }

  static WMMA_DEVICE void run(const Arguments& p) {
    if constexpr (Config::kSplit && !kMeets) arch::let_next_start();
    unsigned char* shared = dynamic_shared<unsigned char>();
    const uint32_t thread = threadIdx.x;
    const uint32_t lane = lane_id();
    const uint32_t wave_row = uniform(thread / arch::kWaveSize) * kWaveRows;
    const uint32_t split = kMeets ? blockIdx.x % Config::kCluster : blockIdx.y;
    const Place place = place_of(p);
    const uint32_t first_row = place.tile * kBlockRows;
    Scale scale(p.scale);
    if constexpr (Wave::kAtOnce) {
      scale.factor = arch::bit_cast<Number>(arch::uniform(arch::bit_cast<uint32_t>(scale.factor)));
    }

    const auto last_query = [&] {
      const uint32_t after = first_row + kBlockRows < place.rows ? first_row + kBlockRows : place.rows;
      return place.query(after - 1);
    };
    Wave wave;
    // 1. The keys that this block looks at, and of them those that all of its rows see. What a window or a sequence
    // leaves is split, but where parts begin at fixed places.
    int begin = 0;
    int end = p.skv;
    int share = p.keys_of_split;
    if constexpr (Rules::kWindowed || Rules::kSequences) {
      begin = Sight::first_key(p, place.query(first_row), 0, end) / Config::kKeys * Config::kKeys;
      end = Sight::keys_end(p, last_query(), begin, end);
      if constexpr (!kStandsAlone<Config>) {
        const int tiles = (end - begin + Config::kKeys - 1) / Config::kKeys;
        share = (tiles + p.splits - 1) / p.splits * Config::kKeys;
      }
    }
    const Block block{p, place, shared, first_row, thread, lane, wave_row, scale};
    if constexpr (Config::kSplit) {
      begin += static_cast<int>(split) * share;
      end = end - begin < share ? end : begin + share;
    }
    if constexpr (Config::kCausal) end = Sight::keys_end(p, last_query(), begin, end);
    if constexpr (kFolds) {
      static_assert(Config::kKept == kThreads * kOutSums, "the planner and the kernel agree");
      Number* kept = static_cast<Number*>(p.partial) + static_cast<int64_t>(blockIdx.x) * kThreads * kOutSums + thread;
      for (int from = begin; from == begin || from < end; from += share) {
        if (from > begin) arch::tile_barrier();  // some still read the part before
        weigh_keys(wave, block, from, end - from < share ? end : from + share, from == begin, last_query);
        finish(wave, p);
        wave.fold(p, kept, kThreads, from == begin, from + share >= end);
      }
    } else {
      weigh_keys(wave, block, begin, end, !Config::kSplit || split == 0, last_query);
      finish(wave, p);
    }

    // 4. The results.
    if constexpr (kMeets) {
      Number* partials = reinterpret_cast<Number*>(shared);  // they lie where the tiles lay
      arch::tile_barrier();
      wave.store_parts(p, partials + wave_row * kPartial, kPartial, lane);
      arch::cluster_barrier();
      combine(p, place, partials, first_row, split * kThreads + thread);
      arch::cluster_barrier();  // nobody leaves while others read its shared memory
    } else if constexpr (Config::kSplit) {
      wave.store_partial(p, place, split, first_row + wave_row, lane);
    } else {
      wave.store(p, place, first_row + wave_row, lane);
    }
  }

 private:
  struct Reading {
    Queries queries;
    typename KeyValueTiles::Keys keys;
    typename KeyValueTiles::Values values;
    Weights weights;
    WMMA_DEVICE Reading(uint32_t lane, uint32_t wave_row)
        : queries(lane, wave_row), keys(lane), values(lane), weights(lane, wave_row) {}
  };

  struct Block {
    const Arguments& p;
    const Place& place;
    unsigned char* shared;
    uint32_t first_row;
    uint32_t thread;
    uint32_t lane;
    uint32_t wave_row;
    Scale scale;
  };

  // All that keys from `begin` to `end` give.
  template <class LastQuery>
  static WMMA_DEVICE void weigh_keys(Wave& wave, const Block& block, int begin, int end, bool is_first,
                                     const LastQuery& last_query) {
    const Arguments& p = block.p;
    const Place& place = block.place;
    const uint32_t first_row = block.first_row;
    const uint32_t lane = block.lane;
    Walk walk(p, place, first_row, lane);
    if constexpr (Rules::kBlocks) {
      if (end > begin) {
        const int last = walk.last(begin + (end - begin - 1) / Config::kKeys * Config::kKeys, begin) + Config::kKeys;
        end = last < end ? last : end;
      }
    }

    wave.clear(score_unit<Config>(CapOf<Config>(p, false), block.scale.factor));
    if constexpr (Rules::kSinks) {
      if (is_first) wave.begin_with_sinks(p, place, first_row + block.wave_row, lane);
    }
    if (end > begin) {
      const int tiles = (end - begin + Config::kKeys - 1) / Config::kKeys;
      const int last = begin + (tiles - 1) * Config::kKeys;
      const int last_keys = p.skv - last < Config::kKeys ? p.skv - last : Config::kKeys;
      const Stored* k = matrix_of<const Stored>(p.k, place.batch, place.key_head);
      const int first_column = place.slice * Config::kSlice;
      const Stored* v = matrix_of<const Stored>(p.v, place.batch, place.key_head) + first_column * p.v.column_stride;
      Mask mask(p, place, lane, first_row + block.wave_row, end);
      // Tiles whose every key counts for every row, and the others. The last is one of the others, and comes first.
      int seen_begin = begin;
      int seen_end = end;
      if constexpr (arch::kWavesPart) {
        seen_begin = clamped(mask.seen_begin(), begin, end);
        seen_end = clamped(mask.seen_end(), begin, end);
      } else {
        if constexpr (Rules::kWindowed) seen_begin = Sight::first_key(p, last_query(), begin, end);
        if constexpr (Config::kCausal) seen_end = Sight::keys_end(p, place.query(first_row), begin, end);
      }
      const int whole = begin + (seen_end - begin) / Config::kKeys * Config::kKeys;
      const int whole_begin = begin + (seen_begin - begin + Config::kKeys - 1) / Config::kKeys * Config::kKeys;
      const Span span{begin, last, last_keys, whole_begin, whole, p.ev - first_column};
      if constexpr (Config::kPingPong) {
        if (uniform(block.thread / PingPongTiles::kGroupThreads) == 0) {
          ping_pong_loop<KeyLoaderOf<Config, Link>>(wave, k, v, block, mask, span);
        } else {
          ping_pong_loop<ValueLoaderOf<Config, Link>>(wave, k, v, block, mask, span);
        }
      } else {
        forward_loop(wave, k, v, block, mask, span, walk);
      }
    }
  }

  static WMMA_DEVICE void finish(Wave& wave, const Arguments& p) {
    if constexpr (Rules::kDrops) wave.multiply(static_cast<Number>(p.rules.kept));
    if constexpr (!kSame<Stored, T>) wave.multiply(static_cast<Number>(p.of_values));
  }

  // The parts of the cluster's blocks: its threads share the elements.
  static WMMA_DEVICE void combine(const AttentionArguments& p, const Place& place, const Number* partials,
                                  uint32_t first_row, uint32_t thread) {
    const uint32_t left = place.rows - first_row;
    const uint32_t count = (left < kBlockRows ? left : kBlockRows) * p.ev;
    for (uint32_t at = thread; at < count; at += Config::kCluster * kThreads) {
      const uint32_t line = at / p.ev;
      const uint32_t column = at - line * p.ev;
      const Number* row = partials + line * kPartial;
      Number largest[Config::kCluster];
      Number sum[Config::kCluster];
      Number value[Config::kCluster];
#pragma unroll
      for (int i = 0; i < Config::kCluster; ++i) {
        arch::load_shared_of<1>(i, row, largest + i);
        arch::load_shared_of<1>(i, row + 1, sum + i);
        arch::load_shared_of<1>(i, row + 2 + column, value + i);
      }
      Parts<Number, SoftmaxOf<Config, Number>> parts;
#pragma unroll
      for (int i = 0; i < Config::kCluster; ++i) parts.look(largest[i]);
#pragma unroll
      for (int i = 0; i < Config::kCluster; ++i) parts.add(largest[i], sum[i], value + i);
      parts.template store<T>(p, column, [&](const AttentionOperand& x) { return place.offset(x, first_row + line); });
    }
  }

  // The tiles of keys, by where they start.
  struct Span {
    int begin;
    int last;
    int last_keys;  // of the last one, that exist
    int whole_begin;
    int whole;
    int value_columns;
  };

  // All waves together: a tile's scores, its weights, its share of the results.
  static WMMA_DEVICE void forward_loop(Wave& wave, const Stored* k, const Stored* v, const Block& block, Mask& mask,
                                       const Span& span, Walk& walk) {
    const Arguments& p = block.p;
    [[maybe_unused]] int next = walk.last(span.last - Config::kKeys, span.begin);
    KeyValueTiles key_values(p, k, v, block.shared + kKeyValueStart, span.last, next, span.last_keys,
                             span.value_columns, block.thread);
    const Reading reading(block.lane, block.wave_row);
    // 1. Queries, and the last tile.
    key_values.fetch();
    if constexpr (KeyValueTiles::kDepths == 1) {
      load_queries(block.shared, p, block.place, block.first_row, 0, block.thread, block.scale.sign);
      if constexpr (kKeepsQueries) {
        arch::tile_barrier();
        keep_queries(wave, reading.queries, block.shared);
        arch::tile_barrier();
      }
    }
    key_values.begin();
    // 2. The tiles. After the first one of those that are not whole nothing is on its way.
    int key = span.last;
    if constexpr (Rules::kBlocks) {
      while (true) {
        const bool more = next >= span.begin;
        const int behind = more ? walk.last(next - Config::kKeys, span.begin) : next;
        key_values.go(key - next, next - behind);
        mask.whole = walk.is_whole(key);
        const bool is_last = key == span.last;
        if (!more || is_last || key >= span.whole || key < span.whole_begin || (Rules::kHides && !mask.whole)) {
          step<true>(wave, key_values, block, reading, mask, key, more, is_last);
        } else {
          step<false>(wave, key_values, block, reading, mask, key, true, false);
        }
        if (!more) return;
        key = next;
        next = behind;
      }
    }
    for (;;) {
      step<true>(wave, key_values, block, reading, mask, key, key > span.begin, key == span.last);
      if (key <= span.begin) break;
      key -= Config::kKeys;
      for (; key > span.begin && key < span.whole; key -= Config::kKeys) {
        if (Rules::kWindowed && key < span.whole_begin) break;
        step<false>(wave, key_values, block, reading, mask, key, true, false);
      }
    }
  }

  // Two groups of waves (ping_pong.hpp), each with a loader of its own: of keys, or of values.
  template <class TileLoader>
  static WMMA_DEVICE void ping_pong_loop(Wave& wave, const T* k, const T* v, const Block& block, const Mask& mask,
                                         const Span& span) {
    const Arguments& p = block.p;
    unsigned char* tiles = block.shared + kKeyValueStart;
    TileLoader loader(p, k, v, tiles, span.last, span.last_keys, span.value_columns,
                      block.thread % PingPongTiles::kGroupThreads);
    loader.fetch_last();
    load_queries(block.shared, p, block.place, block.first_row, 0, block.thread, block.scale.sign);
    arch::shared_barrier();
    keep_queries(wave, Queries(block.lane, block.wave_row), block.shared);
    if constexpr (kSharesMemory) arch::shared_barrier();
    loader.store_last();
    loader.last_is_there();
    if (span.last > span.begin) loader.begin();
    arch::shared_barrier();
    PingPong<Config, Link, Wave, TileLoader> loop(wave, loader, tiles, block.lane);
    loop.run(mask, span, block.lane, block.scale.factor);
  }

  static WMMA_DEVICE void load_queries(unsigned char* shared, const AttentionArguments& p, const Place& place,
                                       uint32_t first_row, int first_column, uint32_t thread, Number sign) {
    constexpr int kAtOnce =
        detail::lower(arch::kMostAtOnce, KeyValueTiles::kDepths == 1 ? 8 : 2);  // else sums fill the registers
    load_rows<QueryTile, T, Config::kDepth, Config::kQueryVec, kThreads, kAtOnce>(shared, p.q, place, first_row,
                                                                                  first_column, p.e, thread, sign);
  }

  static WMMA_DEVICE void keep_queries(Wave& wave, const Queries& queries, const unsigned char* shared) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) queries.read(wave.queries[m][step], shared, m, step);
    }
  }

  // One tile of keys, from `key` on.
  template <bool kBounded>
  static WMMA_DEVICE void step(Wave& wave, KeyValueTiles& key_values, const Block& block, const Reading& reading,
                               const Mask& mask, int key, bool more, bool is_last) {
    constexpr bool kAtOnce = Wave::kAtOnce && !kBounded && KeyValueTiles::kDepths == 1;
    Number scores[Config::kTilesM][kSums];
    if constexpr (kAtOnce) {
      wave.begin_at_once(scores);
    } else {
      clear(scores);
    }
    key_values.template before_scores<kBounded>(more);
    arch::schedule_barrier();
    if constexpr (KeyValueTiles::kDepths == 1) {
      multiply_keys(scores, wave, key_values, reading, block.shared);
    } else {
      for (int depth = 0; depth < KeyValueTiles::kDepths; ++depth) {
        arch::tile_barrier();
        load_queries(block.shared, block.p, block.place, block.first_row, depth * Config::kDepth, block.thread,
                     block.scale.sign);
        key_values.template next_depth<kBounded>(depth, is_last);
        arch::tile_barrier();
        multiply_keys(scores, wave, key_values, reading, block.shared);
      }
      key_values.rewind(is_last);
    }
    arch::schedule_barrier();
    key_values.template after_scores<kBounded>(more);
    if constexpr (kAtOnce) {
      Number weights[Config::kTilesM][kSums];
      Number sums[Config::kTilesM];
      Number factors[Config::kTilesM];
      bool again = false;
      for (; !wave.weigh_at_once(weights, sums, scores, block.scale.factor, again); again = true) {
        wave.begin_again(scores);
        multiply_keys(scores, wave, key_values, reading, block.shared);
        wave.raise(scores, factors, sums);
      }
      if (again) wave.rescale_all(factors);
#pragma unroll
      for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) scores[m][i] = weights[m][i];
      }
    } else {
      wave.weigh(scores, Wave::template mask<kBounded>(scores, mask, key, block.lane, block.scale.factor), [](int) {});
    }
    if constexpr (Rules::kDrops) {
#pragma unroll
      for (int m = 0; m < Config::kTilesM; ++m) mask.template drop<kSums>(scores[m], m, key, block.lane);
    }
    if constexpr (!Link::kStays) {
#pragma unroll
      for (int m = 0; m < Config::kTilesM; ++m) {
        write_sums<Link, WeightTile, kSums>(block.shared + kWeightStart, block.lane, block.wave_row + m * Link::kRows,
                                            scores[m]);
      }
      arch::wave_barrier();
    }
    arch::schedule_barrier();
    key_values.template before_values<kBounded>(more);
    arch::schedule_barrier();
    multiply_weights<Link, kOutTiles, kValueSteps, Wave::kCuts>(
        wave.out, scores, reading.weights, block.shared + kWeightStart, reading.values, key_values.value_tile());
    key_values.after_values();
  }

  // scores += Q·Kᵀ
  static WMMA_DEVICE void multiply_keys(Number (&scores)[Config::kTilesM][kSums], const Wave& wave,
                                        const KeyValueTiles& key_values, const Reading& reading,
                                        const unsigned char* shared) {
    multiply_part<0>(scores, wave, key_values, reading, shared);
  }

  // Long float sums are put together from shorter ones: their error grows with their length.
  static constexpr bool kInParts = kSame<T, float> && Config::kColumns > 128;
  static constexpr int kPart = kInParts ? detail::lower(kSteps, 32 / Link::kDepth) : kSteps;

  template <int kFirst>
  static WMMA_DEVICE void multiply_part(Number (&scores)[Config::kTilesM][kSums], const Wave& wave,
                                        const KeyValueTiles& key_values, const Reading& reading,
                                        const unsigned char* shared) {
    constexpr int kCount = detail::lower(kPart, kSteps - kFirst);
    const auto take = [&](Chunk(&rows)[Config::kTilesM][Link::kRowChunks], int step) {
#pragma unroll
      for (int m = 0; m < Config::kTilesM; ++m) {
        if constexpr (kKeepsQueries) {
#pragma unroll
          for (int i = 0; i < Link::kRowChunks; ++i) rows[m][i] = wave.queries[m][step][i];
        } else {
          reading.queries.read(rows[m], query_tile(shared), m, step);
        }
      }
    };
    if constexpr (kInParts) {
      Number part[Config::kTilesM][kSums] = {};
      chain_product<Link, kTiles, kCount, kFirst>(part, reading.keys, key_values.key_tile(), take);
#pragma unroll
      for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) scores[m][i] += part[m][i];
      }
    } else {
      chain_product<Link, kTiles, kCount, kFirst>(scores, reading.keys, key_values.key_tile(), take);
    }
    if constexpr (kFirst + kCount < kSteps) multiply_part<kFirst + kCount>(scores, wave, key_values, reading, shared);
  }

  static WMMA_DEVICE auto query_tile(const unsigned char* shared) {
#ifdef WMMA_NVIDIA
    if constexpr (Config::kAsync) {
      return arch::shared_address(shared);
    } else
#endif
    {
      return shared;
    }
  }
};

}  // namespace wmma
