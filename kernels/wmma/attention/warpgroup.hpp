// The forward attention kernel of sm_90a for operands of 16 bits that go to shared memory as they are. Warpgroups have
// 64 rows each and take the tiles of keys in turn: while one weighs its scores, the matrix unit has the others'
// products, and its own with the values of the tile before. A wave that does nothing else has the copy engine bring
// queries, keys and values as far ahead as there is room; blocks walk from tile of rows to tile of rows.
//
//   warpgroup   Q·K(0)  weights(0)  Q·K(1), P·V(0)   weights(1)  Q·K(2), P·V(1) …
//                                   └ both under way while the weights of 1 are computed as soon as Q·K(1) is there
#pragma once

#include <wmma/arch/wgmma.hpp>
#include <wmma/attention/combine.hpp>
#include <wmma/attention/mask.hpp>
#include <wmma/attention/softmax.hpp>
#include <wmma/attention/weights.hpp>
#include <wmma/tile/box_store.hpp>
#include <wmma/tile/tile_queue.hpp>
#include <wmma/tile/warpgroup_tile.hpp>

namespace wmma {

template <class Config>
struct WarpgroupAttention {
  using Arguments = MappedAttentionArguments;
  using T = typename Config::Element;
  using Link = ChainLink<MatrixProduct<T, 16>>;  // a wave's 16 rows of a warpgroup's 64 are laid out as mma.sync's
  static constexpr int kGroups = Config::kGroups;
  static constexpr int kGroupThreads = 4 * arch::kWaveSize;
  static constexpr int kTakers = kGroups * kGroupThreads;
  static constexpr int kThreads = kTakers + kGroupThreads;  // the last warpgroup asks for tiles
  // Heads that share keys may lie packed in a warpgroup's lines, one query's after the other's: as many whole queries
  // as there is room for.
  static constexpr int kPackedHeads = Config::kPackedHeads;
  static constexpr bool kPacked = kPackedHeads > 1;
  static constexpr int kLines = 64;
  static constexpr int kGroupRows = kLines / kPackedHeads * kPackedHeads;
  static constexpr int kBlockRows = kGroups * kGroupRows;
  static constexpr int kKeys = Config::kKeys;
  static constexpr int kSums = kKeys / 2;  // of a lane's scores
  static constexpr int kOutSums = Config::kSlice / 2;
  static constexpr bool kAsksFirst = kOutSums > 64;  // whether any row's results change: fewer are quicker multiplied
  static constexpr int kStep = 16;                   // of what is summed up, that one product takes
  static constexpr int kSteps = (Config::kColumns + kStep - 1) / kStep;
  static constexpr int kValueSteps = kKeys / kStep;
  static constexpr bool kGivesRegisters = kGroups > 1;  // otherwise there are enough for all
  static constexpr int kTakerRegisters = kGroups == 3 ? 160 : 240;
  static constexpr int kAskerRegisters = kGroups == 3 ? 32 : 24;
  static_assert(kGroups <= 3, "as many as registers are there for");

  using QueryTile = WarpgroupTile<kLines, Config::kDepth* static_cast<int>(sizeof(T))>;
  using KeyTile = WarpgroupTile<kKeys, Config::kDepth* static_cast<int>(sizeof(T))>;
  using ValueTile = WarpgroupTile<kKeys, Config::kSlice* static_cast<int>(sizeof(T))>;
  using Queries = TileQueue<Config::kQueryStages, QueryTile::kBytes>;  // one for each warpgroup
  using Keys = TileQueue<Config::kStages, KeyTile::kBytes>;
  using Values = TileQueue<Config::kStages, ValueTile::kBytes>;
  // Results lie where their rows' queries lay until the copy engine has taken them away.
  static constexpr bool kMappedOut = Config::kMappedOut;
  static_assert(!kMappedOut || !kPacked, "a box has rows of one head");
  static_assert(!kMappedOut || ValueTile::kBoxes <= QueryTile::kBoxes, "results are no wider than queries");
  static constexpr int kKeyStart = kGroups * Queries::kBytes;
  static constexpr int kValueStart = kKeyStart + Keys::kBytes;
  static constexpr int kBarriers = kValueStart + Values::kBytes;
  static constexpr int kKeyBarriers = kBarriers + kGroups * Queries::kBarrierBytes;
  static constexpr int kValueBarriers = kKeyBarriers + Keys::kBarrierBytes;
  static constexpr int kSharedBytes = kValueBarriers + Values::kBarrierBytes;

  using Place = AttentionPlace<kPacked>;
  using Mask = RowMask<Config, Link, float>;
  using Softmax = RunningSoftmax<Config, Link>;

  static WMMA_DEVICE void run(const Arguments& p) {
    const uint32_t start = arch::shared_address(dynamic_shared<unsigned char>());
    const uint32_t wave = uniform(threadIdx.x / arch::kWaveSize);
    const bool asks = threadIdx.x == kTakers;
    if (asks) {
      arch::prefetch_map(&p.q_map);
      arch::prefetch_map(&p.k_map);
      arch::prefetch_map(&p.v_map);
      if constexpr (kMappedOut) arch::prefetch_map(&p.out_map);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) queries_of(start, group).make(kGroupThreads / arch::kWaveSize);
      keys_at(start).make(kTakers / arch::kWaveSize);
      values_at(start).make(kTakers / arch::kWaveSize);
      arch::fence_barriers();
    }
    arch::block_barrier();
    if (wave >= kTakers / arch::kWaveSize) {
      if constexpr (kGivesRegisters) arch::give_registers<kAskerRegisters>();
      if (asks) ask(p, start);
    } else {
      if constexpr (kGivesRegisters) arch::take_registers<kTakerRegisters>();
      take(p, start, arch::shuffle_word(wave / 4, 0), wave % 4);
    }
  }

 private:
  static WMMA_DEVICE Queries queries_of(uint32_t start, uint32_t group) {
    return Queries(start + group * Queries::kBytes, start + kBarriers + group * Queries::kBarrierBytes);
  }
  static WMMA_DEVICE Keys keys_at(uint32_t start) { return Keys(start + kKeyStart, start + kKeyBarriers); }
  static WMMA_DEVICE Values values_at(uint32_t start) { return Values(start + kValueStart, start + kValueBarriers); }

  // A tile of rows and the keys that it looks at, or a part of them; the last tile of keys comes first.
  struct Work {
    uint32_t split;
    Place place;
    uint32_t first_row;
    int begin = 0;
    int end;
    int whole;  // every key before it counts for every row
    int tiles = 0;
    int last = 0;

    WMMA_DEVICE Work(const Arguments& p, uint32_t index)
        : split(Config::kSplit ? index % p.splits : 0),
          place(p, tile_of(p, Config::kSplit ? index / p.splits : index)),
          first_row(place.tile * kBlockRows),
          end(p.skv) {
      if constexpr (Config::kSplit) {
        begin = static_cast<int>(split) * p.keys_of_split;
        end = end - begin < p.keys_of_split ? end : begin + p.keys_of_split;
      }
      int seen = end;
      if constexpr (Config::kCausal) {
        const uint32_t after = first_row + kBlockRows < place.rows ? first_row + kBlockRows : place.rows;
        end = clamped(place.query(after - 1) + p.shift + 1, begin, end);
        seen = clamped(place.query(first_row) + p.shift + 1, begin, end);
      }
      whole = begin + (seen - begin) / kKeys * kKeys;
      if (end > begin) {
        tiles = (end - begin + kKeys - 1) / kKeys;
        last = begin + (tiles - 1) * kKeys;
      }
    }
  };

  // Some heads together, and then others: their tiles from the longest on, or back again where an even number of such
  // parts is left, so that what blocks get changes little from one to the next.
  static WMMA_DEVICE HeadTile tile_of(const Arguments& p, uint32_t index) {
    const uint32_t heads = static_cast<uint32_t>(p.heads) / kPackedHeads * p.batch;
    HeadTile at(index, heads, p.tiles, p.together);
    if constexpr (Config::kCausal) {
      const uint32_t left = (heads - 1) / p.together - at.head / p.together;
      if (left % 2 == 1) at.tile = p.tiles - 1 - at.tile;
    }
    return at;
  }

  // The blocks' way through all of it: where rows see more keys than others, every second time from the other end.
  class Walk {
   public:
    WMMA_DEVICE explicit Walk(const Arguments& p)
        : all_(static_cast<uint32_t>(p.tiles) * p.heads / kPackedHeads * p.batch * (Config::kSplit ? p.splits : 1)) {}
    WMMA_DEVICE bool more() const { return first_ < all_; }
    WMMA_DEVICE uint32_t index() const {
      const uint32_t back = first_ + gridDim.x - 1 - blockIdx.x;
      return Config::kCausal && odd_ && first_ + gridDim.x <= all_ ? back : first_ + blockIdx.x;
    }
    WMMA_DEVICE bool is_there() const { return index() < all_; }
    WMMA_DEVICE void next() {
      first_ += gridDim.x;
      odd_ = !odd_;
    }

   private:
    uint32_t all_;
    uint32_t first_ = 0;
    bool odd_ = false;
  };

  // ------------------------------------------------------------------------------------------------- the asking thread

  static WMMA_DEVICE void ask(const Arguments& p, uint32_t start) {
    const Keys keys = keys_at(start);
    const Values values = values_at(start);
    typename Queries::Item query(0);
    typename Keys::Item key(0);
    typename Values::Item value(0);
    for (Walk walk(p); walk.more(); walk.next()) {
      if (!walk.is_there()) continue;
      const Work work(p, walk.index());
      if (work.tiles == 0) continue;
#pragma unroll 1
      for (int group = 0; group < kGroups; ++group) {
        const Queries queries = queries_of(start, group);
        ask_queries(p, queries, query, work.place, work.first_row + group * kGroupRows);
      }
      query.next();
      int at = work.last;
      copy<KeyTile>(keys, key, p.k, p.k_map, work.place.batch, work.place.key_head, at);
      key.next();
#pragma unroll 1
      for (int i = 1; i < work.tiles; ++i, at -= kKeys) {
        copy<KeyTile>(keys, key, p.k, p.k_map, work.place.batch, work.place.key_head, at - kKeys);
        key.next();
        copy<ValueTile>(values, value, p.v, p.v_map, work.place.batch, work.place.key_head, at);
        value.next();
      }
      copy<ValueTile>(values, value, p.v, p.v_map, work.place.batch, work.place.key_head, at);
      value.next();
    }
  }

  static WMMA_DEVICE void ask_queries(const Arguments& p, const Queries& queries, const typename Queries::Item& query,
                                      const Place& place, uint32_t row) {
    if constexpr (!kPacked) {
      copy<QueryTile>(queries, query, p.q, p.q_map, place.batch, place.head, row);
    } else {
      queries.open(query, QueryTile::kBoxes * kGroupRows * 128);
#pragma unroll
      for (int box = 0; box < QueryTile::kBoxes; ++box) {
        int32_t at[5];
        coordinates(at + 1, p.q, place.batch, place.key_head, place.query(row), box);
        at[0] = at[1];
        at[1] = 0;  // of the heads that share keys, the first
        arch::copy_box<5, false, false>(queries.place(query) + box * QueryTile::kBoxBytes, &p.q_map,
                                        queries.there(query), at, 1);
      }
    }
  }

  // A tile, from its row on, to the queue's next place.
  template <class Tile, class Queue, class Item>
  static WMMA_DEVICE void copy(const Queue& queue, const Item& item, const AttentionOperand& x, const TileMap& map,
                               uint32_t batch, uint32_t head, uint32_t row) {
    queue.open(item, Tile::kBytes);
#pragma unroll
    for (int box = 0; box < Tile::kBoxes; ++box) {
      int32_t at[4];
      coordinates(at, x, batch, head, row, box);
      arch::copy_box<4, false, false>(queue.place(item) + box * Tile::kBoxBytes, &map, queue.there(item), at, 1);
    }
  }
  // Of a box of 64 columns; a head that others share, or a batch, is there once.
  static WMMA_DEVICE void coordinates(int32_t* at, const AttentionOperand& x, uint32_t batch, uint32_t head,
                                      uint32_t row, int box) {
    at[0] = box * (128 / static_cast<int>(sizeof(T)));
    at[1] = static_cast<int32_t>(row);
    at[2] = x.head_stride == 0 ? 0 : static_cast<int32_t>(head);
    at[3] = x.batch_stride == 0 ? 0 : static_cast<int32_t>(batch);
  }

  // --------------------------------------------------------------------------------------------------- the warpgroups

  // What a warpgroup goes through the tiles with.
  struct Taking {
    Keys keys;
    Values values;
    typename Keys::Item key{0};
    typename Values::Item value{0};
    uint32_t group;
    uint32_t lane;
    float factor;  // of the scores
    uint64_t queries = 0;
    uint32_t weights[kValueSteps * 4];
    Softmax rows;

    WMMA_DEVICE Taking(uint32_t start, uint32_t at_group, float at_factor)
        : keys(keys_at(start)), values(values_at(start)), group(at_group), lane(lane_id()), factor(at_factor) {}
  };

  static WMMA_DEVICE void take(const Arguments& p, uint32_t start, uint32_t group, uint32_t wave) {
    const ScoreScale<float> scale(p.scale);
    const Queries queries = queries_of(start, group);
    Taking x(start, group, scale.factor);
    typename Queries::Item query(0);
    typename Queries::Item before(0);  // whose place is not given back yet
    bool is_kept = false;
    const auto give_back = [&] {
      if (!is_kept) return;
      if (x.lane == 0) arch::await_stores_read<0>();
      queries.done(before);
      is_kept = false;
    };
    for (int other = group - 1; other >= 0; --other) arch::barrier_pass<kTakers>(kTurns + other);
    for (Walk walk(p); walk.more(); walk.next()) {
      if (!walk.is_there()) continue;
      const Work work(p, walk.index());
      const uint32_t first_row = work.first_row + group * kGroupRows + wave * 16;
      Place place = work.place;  // with the warpgroup's own rows
      if constexpr (kPacked) {
        const uint32_t after = work.first_row + (group + 1) * kGroupRows;
        place.rows = after < place.rows ? after : place.rows;
      }
      x.rows.clear();
      if (work.tiles > 0) {
        // 1. The queries.
        queries.await(query);
        if (scale.sign != 1.0f) {
          multiply_queries(dynamic_shared<unsigned char>() + (queries.place(query) - start), scale.sign, group);
        }
        x.queries = QueryTile::operand(queries.place(query));
        const Mask mask(p, place, x.lane, first_row, work.end);
        // 2. The tiles; those whose every key counts for every row come last.
        float scores[1][kSums];
        int key = work.last;
        first_step(x, scores, mask, key);
        give_back();
        key -= kKeys;
        for (; key >= work.begin && key >= work.whole; key -= kKeys) step<true>(x, scores, mask, key);
        for (; key >= work.begin; key -= kKeys) step<false>(x, scores, mask, key);
        last_values(x);
      }
      // 3. The results.
      if constexpr (Config::kSplit) {
        x.rows.store_partial(p, place, work.split, first_row, x.lane);
      } else if (kMappedOut && work.tiles > 0) {
        store(p, x, place, first_row, queries.place(query) + wave * ResultBox::kBytes);
      } else {
        x.rows.store(p, place, first_row, x.lane);
      }
      if (work.tiles > 0) {
        before = query;
        is_kept = true;
        if constexpr (Config::kQueryStages == 1) give_back();
        query.next();
      }
    }
    if (x.lane == 0) arch::await_stores_read<0>();
  }

  // ---- a turn at the matrix unit: whoever has asked for its products lets the others ask for theirs

  static constexpr int kTurns = 1;  // the first of the barriers
  static constexpr int kMeetings = kTurns + kGroups;
  static WMMA_DEVICE void begin_turn(const Taking& x) {
    if constexpr (kGroups > 1) arch::barrier_meet<kTakers>(kTurns + x.group);
  }
  static WMMA_DEVICE void end_turn(const Taking& x) {
#pragma unroll
    for (int i = 1; i < kGroups; ++i) arch::barrier_pass<kTakers>(kTurns + (x.group + i) % kGroups);
  }

  static WMMA_DEVICE void first_step(Taking& x, float (&scores)[1][kSums], const Mask& mask, int key) {
    x.keys.await(x.key);
    begin_turn(x);
    multiply_keys(x, scores[0]);
    end_turn(x);
    keys_are_in<0>(x, scores[0]);
    weigh<true, true>(x, scores, mask, key);
  }

  // The scores of the tile before it are weights; afterwards its own are.
  template <bool kBounded>
  static WMMA_DEVICE void step(Taking& x, float (&scores)[1][kSums], const Mask& mask, int key) {
    x.keys.await(x.key);
    begin_turn(x);
    multiply_keys(x, scores[0]);
    x.values.await(x.value);
    multiply_values(x);
    end_turn(x);
    keys_are_in<1>(x, scores[0]);
    weigh<kBounded, false>(x, scores, mask, key);
  }

  static WMMA_DEVICE void last_values(Taking& x) {
    x.values.await(x.value);
    multiply_values(x);
    values_are_in(x);
  }

  static WMMA_DEVICE void multiply_keys(const Taking& x, float (&scores)[kSums]) {
    const uint64_t keys = KeyTile::operand(x.keys.place(x.key));
    arch::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      arch::Wgmma<T, T, kKeys>::template mma<false, false>(scores,
                                                           QueryTile::template step<true>(x.queries, step, kStep),
                                                           KeyTile::template step<true>(keys, step, kStep), step != 0);
    }
    arch::wgmma_commit();
  }

  static WMMA_DEVICE void multiply_values(Taking& x) {
    const uint64_t values = ValueTile::operand(x.values.place(x.value));
    arch::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kValueSteps; ++step) {
      arch::WgmmaOfRows<T, Config::kSlice>::template mma<true>(
          x.rows.out[0], x.weights + step * 4, ValueTile::template step<false>(values, step, kStep), true);
    }
    arch::wgmma_commit();
  }

  // kUnderWay: products that were asked for later.
  template <int kUnderWay>
  static WMMA_DEVICE void keys_are_in(Taking& x, float (&scores)[kSums]) {
    arch::wgmma_wait<kUnderWay>();
    hold_sums<kSums>(scores);
    x.keys.done(x.key);
    x.key.next();
  }

  static WMMA_DEVICE void values_are_in(Taking& x) {
    arch::wgmma_wait<0>();
    hold_sums<kOutSums>(x.rows.out[0]);
    x.values.done(x.value);
    x.value.next();
  }

  // Scores become weights, while the products of the weights before them are under way; then results follow the
  // largest score, and the weights are where those before were. kFirst: there are none before.
  template <bool kBounded, bool kFirst>
  static WMMA_DEVICE void weigh(Taking& x, float (&scores)[1][kSums], const Mask& mask, int key) {
    const float factor = Softmax::template mask<kBounded>(scores, mask, key, x.lane, x.factor);
    float factors[Link::kLaneRows];
    x.rows.look(scores[0], factor, factors);
    x.rows.exponentiate(scores[0], factor);
    if constexpr (!kFirst) {
      values_are_in(x);
      const bool changes = factors[0] != 1.0f || factors[1] != 1.0f;
      if (!kAsksFirst || arch::ballot(changes) != 0) x.rows.rescale(factors);
    }
    pack_weights<T, kSums>(x.weights, scores[0]);
  }

  // ---- queries and results

  // For scales that are not above 0, of which a product with the others cannot tell.
  static WMMA_DEVICE void multiply_queries(unsigned char* tile, float sign, uint32_t group) {
    for (uint32_t at = threadIdx.x % kGroupThreads * 16; at < QueryTile::kBytes; at += kGroupThreads * 16) {
      alignas(16) T values[8];
      arch::copy<8>(values, reinterpret_cast<const T*>(tile + at));
#pragma unroll
      for (int i = 0; i < 8; ++i) values[i] = convert<T>(convert<float>(values[i]) * sign);
      arch::copy<8>(reinterpret_cast<T*>(tile + at), values);
    }
    arch::fence_matrix_unit();
    arch::barrier_meet<kGroupThreads>(kMeetings + group);
  }

  // A wave's results by way of its queries' lines, which none of its warpgroup reads any more.
  static WMMA_DEVICE void store(const Arguments& p, Taking& x, const Place& place, uint32_t first_row, uint32_t own) {
    x.rows.divide(p, place, first_row, x.lane);
    arch::barrier_meet<kGroupThreads>(kMeetings + x.group);
#pragma unroll
    for (int box = 0; box < ValueTile::kBoxes; ++box) {
      const ResultBox to(own + box * QueryTile::kBoxBytes, x.lane);
#pragma unroll
      for (int step = 0; step < ResultBox::kSteps; ++step) {
        const float* sums = x.rows.out[0] + (box * ResultBox::kSteps + step) * 8;
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = rounded_pair<T>(sums[i * 2], sums[i * 2 + 1]);
        to.write(step, words);
      }
    }
    arch::fence_matrix_unit();
    arch::wave_barrier();
    if (x.lane == 0 && first_row < place.rows) {
#pragma unroll
      for (int box = 0; box < ValueTile::kBoxes; ++box) {
        int32_t at[4];
        coordinates(at, p.out, place.batch, place.head, first_row, box);
        arch::store_box<4>(own + box * QueryTile::kBoxBytes, &p.out_map, at);
      }
      arch::commit_stores();
    }
  }
};

}  // namespace wmma
