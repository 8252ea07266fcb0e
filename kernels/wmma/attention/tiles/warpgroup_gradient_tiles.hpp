// The tiles of the gradients on sm_90a (loops/warpgroup_gradients.hpp): how they lie in shared memory, what is passed
// with them, and the waves that bring them, find the order of dQ partials, and add these to memory in it.
#pragma once

#include <wmma/attention/balanced/gradient_teams.hpp>
#include <wmma/attention/passes/key_parts.hpp>
#include <wmma/attention/terms/hidden.hpp>
#include <wmma/attention/terms/mask.hpp>
#include <wmma/attention/tiles/warpgroup_tiles.hpp>
#include <wmma/tile/chain.hpp>

namespace wmma {

// Of each wave's rows, where there is a mask: which keys it shows to all queries, a bit each; else where the words of
// these keys are, or what the mask adds to their scores.
template <class T, int kWaves>
struct MaskOfWaves {
  T of_wave[kWaves];
};
template <class T>
struct MaskOfWaves<T, 0> {};

template <class Config>
struct WarpgroupGradientTiles {
  using Arguments = MappedAttentionArguments;
  using T = typename Config::Element;
  using Link = ChainLink<MatrixProduct<T, 16>>;  // a wave's 16 rows of a warpgroup's 64 are laid out as mma.sync's
  using Math = Softmax<float>;
  static constexpr int kGroups = 2;
  static constexpr int kGroupThreads = 4 * arch::kWaveSize;
  static constexpr int kConsumers = kGroups * kGroupThreads;
  static constexpr int kThreads = kConsumers + kGroupThreads;  // the last warpgroup loads tiles, and keeps the order
  static constexpr int kLines = 64;  // of a warpgroup's keys, and of each box that the copy engine brings
  static constexpr int kKeys = kGroups * kLines;
  static constexpr int kQueries = Config::kQueries;  // of a tile
  static constexpr int kSums = kQueries / 2;         // of a lane's weights
  static constexpr int kStep = 16;                   // of what is summed up, that one product takes
  static_assert(kQueries == kLines || kQueries == kGroups * kLines, "whole boxes");

  template <int kCount, int kColumns>
  using Tile = WarpgroupTile<kCount, kColumns* static_cast<int>(sizeof(T))>;
  using KeyRows = Tile<kLines, Config::kDepth>;  // of a warpgroup
  using ValueRows = Tile<kLines, Config::kValueDepth>;
  using QueryTile = Tile<kQueries, Config::kDepth>;
  using OutTile = Tile<kQueries, Config::kValueDepth>;  // of g_out
  using SlopeTile = Tile<kKeys, kQueries>;
  static constexpr int kRowBytes = KeyRows::kBytes + ValueRows::kBytes;  // of a warpgroup
  using Owned = TileQueue<1, kGroups * kRowBytes>;
  using Queue = TileQueue<Config::kStages, QueryTile::kBytes + OutTile::kBytes>;

  // What a warpgroup has of a tile's g_Q: its rows, where these are as many, else a part of all rows' columns.
  static constexpr bool kSharesRows = kQueries > kLines;
  static constexpr int kShare = kSharesRows ? Config::kDepth : Config::kDepth / kGroups;
  static constexpr int kQuerySums = kShare / 2;  // of a lane
  static_assert(kShare <= kLines, "of one box");

  static constexpr bool kSplitsQueries = Config::kSplitsQueries;
  using Teams = GradientTeams<Config::kCausal, Config::kWindowed, kSplitsQueries, kKeys, kQueries>;
  using Way = typename Teams::Way;

  static constexpr int kAhead = 2;

  // What is passed to the warpgroups beside a tile: lse and delta of its queries, beside a mask of numbers what their
  // weights are multiplied by (passes/far_rows.hpp), and where it is.
  static constexpr bool kAddsNumbers = wmma::kAddsNumbers<typename Config::Mask>;
  static constexpr int kStatistics = kAddsNumbers ? 3 : 2;
  struct Passed {
    float statistics[kStatistics * kQueries];
    int query_head;  // of all in the batch
    int first_query;
    int before;   // how many blocks add to these queries before this one
    int last;     // whether none does after it
    int bounded;  // whether not every weight counts
  };
  // And of their keys.
  struct PassedPart {
    int steps;  // how many tiles follow; less than 0: no more keys do
    int share;  // as Teams::Way has it
    int first_key;
    uint32_t number;  // of the part, which consumers need not keep
  };
  // What is passed to the one that adds to memory.
  struct PassedDq {
    int64_t tile;  // of queries, among all; less than 0: none comes after it
    int before;
  };
  // Steps to be passed on, found while those before them are.
  struct Ahead {
    int count;  // 0: no more come
    uint32_t lot;
    uint32_t number;  // of the first step
    int batch;
    int first_head;  // of the queries
    int last_key;
    uint32_t places[arch::kWaveSize];  // a head from the first one on, and a tile
    typename Teams::Turn turns[arch::kWaveSize];
  };
  static constexpr bool kMasks = kAddsNumbers || Config::kHidden != Hidden::kNone;
  struct PassedAll : MaskOfWaves<Choose<kAddsNumbers, int64_t, uint32_t>, kMasks ? kConsumers / arch::kWaveSize : 0> {
    PassedDq passed_dq[Config::kDqStages];
    PassedPart part;
    Passed tiles[Config::kStages];
    Ahead ahead[kAhead];
    Way producing, looking;  // where those are that do: their registers are few
  };

  using Steps = TileQueue<kAhead, 0>;

  static constexpr int kQueueStart = Owned::kBytes;
  static constexpr int kSlopeStart = kQueueStart + Queue::kBytes;
  static constexpr int kDqBytes = kQueries * Config::kDepth * 4;
  using DqQueue = TileQueue<Config::kDqStages, kDqBytes>;  // to the one that adds
  static constexpr int kDqStart = kSlopeStart + 2 * SlopeTile::kBytes;
  static constexpr int kPassedStart = kDqStart + DqQueue::kBytes;
  static constexpr int kOwnedBarriers = kPassedStart + (static_cast<int>(sizeof(PassedAll)) + 7) / 8 * 8;
  static constexpr int kQueueBarriers = kOwnedBarriers + Owned::kBarrierBytes;
  static constexpr int kSlopesThere = kQueueBarriers + Queue::kBarrierBytes;
  static constexpr int kDqBarriers = kSlopesThere + arch::kBarrierBytes;
  static constexpr int kStepBarriers = kDqBarriers + DqQueue::kBarrierBytes;
  static constexpr int kSharedBytes = kStepBarriers + Steps::kBarrierBytes;

  static WMMA_DEVICE PassedAll& passed() {
    return *reinterpret_cast<PassedAll*>(dynamic_shared<unsigned char>() + kPassedStart);
  }

  static WMMA_DEVICE Queue queue_at(uint32_t start) { return Queue(start + kQueueStart, start + kQueueBarriers); }
  static WMMA_DEVICE Steps steps_at(uint32_t start) { return Steps(0, start + kStepBarriers); }
  static WMMA_DEVICE DqQueue dq_at(uint32_t start) { return DqQueue(start + kDqStart, start + kDqBarriers); }

  // The first head of the queries that see a part's keys, in its batch.
  struct Heads {
    int batch;
    int first;
    WMMA_DEVICE Heads(const Arguments& p, int key_head)
        : batch(key_head / (p.heads / p.group)), first(key_head * p.group - batch * p.heads) {}
  };

  // ------------------------------------------------------------------------------------------------ the producer
  // thread

  static WMMA_DEVICE void produce(const Arguments& p, const Owned& owned, const Queue& queue) {
    const Teams teams(p);
    Way& way = passed().producing;
    typename Owned::Item part_item(0);
    typename Queue::Item item(0);
#pragma unroll 1
    for (bool more = teams.begin(way); more; more = teams.next_part(way), part_item.next()) {
      owned.open(part_item, kGroups * kRowBytes, [&] {
        passed().part = {teams.steps(way.part), way.share, way.part.key_block * kKeys, part_item.number()};
      });
      const Heads heads(p, Teams::key_head(p, way.share));
#pragma unroll 1
      for (int group = 0; group < kGroups; ++group) {
        const int row = way.part.key_block * kKeys + group * kLines, head = heads.first / p.group;
        const uint32_t to = owned.place(part_item) + group * kRowBytes, there = owned.full(part_item);
        copy_tile<T, KeyRows, kLines>(to, there, p.k, p.k_map, heads.batch, head, row);
        copy_tile<T, ValueRows, kLines>(to + KeyRows::kBytes, there, p.v, p.v_map, heads.batch, head, row);
      }
#pragma unroll 1
      for (int head = heads.first; head < heads.first + p.group; ++head) {
        int tile = way.part.start;
#pragma unroll 1
        for (int left = way.part.count; left > 0; --left, item.next()) {
          queue.open(item, QueryTile::kBytes + OutTile::kBytes);
          const uint32_t to = queue.place(item), there = queue.full(item);
          const int row = (way.part.begin + tile) * kQueries;
          copy_tile<T, QueryTile, kLines>(to, there, p.q, p.q_map, heads.batch, head, row);
          copy_tile<T, OutTile, kLines>(to + QueryTile::kBytes, there, p.g_out, p.g_out_map, heads.batch, head, row);
          if (++tile == way.part.count) tile = 0;
        }
      }
    }
    owned.open(part_item, 0, [&] { passed().part.steps = -1; });
  }

  // ------------------------------------------------------------------------------ the wave that finds what comes next

  static WMMA_DEVICE void look_ahead(const Arguments& p, uint32_t start) {
    const Teams teams(p);
    Way& way = passed().looking;
    // By the first lane alone, for all of them, once all have read what it changes.
    const auto first_lane = [&](auto how) {
      bool found = false;
      arch::wave_barrier();
      if (threadIdx.x % arch::kWaveSize == 0) found = how();
      arch::wave_barrier();
      return arch::ballot(found) != 0;
    };
#pragma unroll 1
    for (bool more = first_lane([&] { return teams.begin(way); }); more;
         more = first_lane([&] { return teams.next_part(way); })) {
#pragma unroll 1
      while (teams.ahead(way) > 0) {
        arch::hold(start);  // what follows from it is quicker computed anew than kept
        find_steps(p, teams, way, steps_at(start));
        first_lane([&] { return teams.next_steps(way), false; });
      }
    }
    const Steps steps = steps_at(start);
    room_for_steps(way, steps).count = 0;
    arch::barrier_arrive(steps.full(typename Steps::Item(way.lot)), true);
  }
  static WMMA_DEVICE Ahead& room_for_steps(const Way& way, const Steps& steps) {
    const typename Steps::Item item(way.lot);
    arch::barrier_wait(steps.empty(item), item.phase() ^ 1);
    return passed().ahead[item.stage()];
  }
  // One for each lane.
  static WMMA_DEVICE void find_steps(const Arguments& p, const Teams& teams, const Way& way, const Steps& steps) {
    int lane = lane_id();
    arch::hold(lane);  // what follows from it is not kept from one time to the next
    const typename Teams::Place place = teams.place(way.part, way.step + lane);
    const typename Teams::Turn turn = teams.turn(way, way.step + lane, place, lane);
    const Heads heads(p, Teams::key_head(p, way.share));
    Ahead& to = room_for_steps(way, steps);
    to.count = teams.ahead(way);
    to.lot = way.lot;
    to.number = way.number;
    to.batch = heads.batch;
    to.first_head = heads.first;
    to.last_key = (way.part.key_block + 1) * kKeys - 1;
    to.places[lane] = static_cast<uint32_t>(place.head) << 16 | static_cast<uint32_t>(place.tile);
    to.turns[lane] = turn;
    arch::barrier_arrive(steps.full(typename Steps::Item(way.lot)), true);
  }

  // -------------------------------------------------------------------------------- the wave that passes statistics

  static WMMA_DEVICE void pass_tiles(const Arguments& p, uint32_t start) {
#pragma unroll 1
    for (uint32_t lot = 0;;) {
      const typename Steps::Item item(lot);
      steps_at(start).await(item);
      const Ahead& ahead = passed().ahead[item.stage()];
      if (ahead.count == 0) break;
#pragma unroll 1
      for (int i = 0; i < ahead.count; ++i) {
        arch::hold(start);  // what follows from it is quicker computed anew than kept
        pass_tile(p, start, ahead, i);
      }
      lot = ahead.lot;  // likewise
      arch::barrier_arrive(steps_at(start).empty(typename Steps::Item(lot)), true);
      ++lot;
    }
  }
  static WMMA_DEVICE void pass_tile(const Arguments& p, uint32_t start, const Ahead& ahead, int step) {
    const Queue queue = queue_at(start);
    const typename Queue::Item item(ahead.number + step);
    int lane = lane_id();
    arch::hold(lane);
    const uint32_t place = ahead.places[step];
    const typename Teams::Turn turn = ahead.turns[step];
    const int head = ahead.first_head + static_cast<int>(place >> 16);
    const int first_query = static_cast<int>(place & 0xffff) * kQueries;
    constexpr int kShare = kQueries / arch::kWaveSize;
    float statistics[kStatistics][kShare];
    // Beyond the last query lse is +∞, so that weights are 0.
    read_rows<1>(statistics, p.lse, ahead.batch, head, first_query + lane, p.sq, Math::infinity());
    arch::hold(lane);  // the addresses of both at once are more than there are registers for
    read_rows<kStatistics - 1>(statistics + 1, p.delta, ahead.batch, head, first_query + lane, p.sq, 0.0f);
    arch::barrier_wait(queue.empty(item), item.phase() ^ 1);
    Passed& to = passed().tiles[item.stage()];
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      to.statistics[i * arch::kWaveSize + lane] = unit_of(statistics[0][i]);
      to.statistics[kQueries + i * arch::kWaveSize + lane] = statistics[1][i];
      if constexpr (kAddsNumbers) to.statistics[2 * kQueries + i * arch::kWaveSize + lane] = statistics[2][i];
    }
    to.query_head = ahead.batch * p.heads + head;
    to.first_query = first_query;
    to.before = turn.before();
    to.last = turn.before() == turn.all() - 1;
    to.bounded =
        first_query + kQueries > p.sq || ahead.last_key >= p.skv ||
        (Config::kCausal && ahead.last_key > first_query + p.shift) ||
        (Config::kWindowed && ahead.last_key - kKeys + 1 < first_query + kQueries - 1 + static_cast<int>(p.rules.from));
    arch::barrier_arrive(queue.full(item), true);
  }
  // Numbers of each of the tile's queries, which lie side by side.
  template <int kCount, int kShare>
  static WMMA_DEVICE void read_rows(float (*values)[kShare], const AttentionOperand& x, int batch, int head, int query,
                                    int end, float beyond) {
    const float* from = matrix_of<const float>(x, batch, head) + query * x.row_stride;
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
#pragma unroll
      for (int column = 0; column < kCount; ++column) values[column][i] = query < end ? from[column] : beyond;
      query += arch::kWaveSize;
      from += arch::kWaveSize * x.row_stride;
    }
  }
  static WMMA_DEVICE float unit_of(float lse) {
    return lse == -Math::infinity() ? Math::infinity() : kAddsNumbers ? lse : lse * Math::kUnit;
  }

  // ------------------------------------------------------------------------------------- the thread that adds in order

  static WMMA_DEVICE void add_in_order(const Arguments& p, const DqQueue& dq) {
#pragma unroll 1
    for (typename DqQueue::Item item(0);; item.next()) {
      dq.await(item);
      const PassedDq passed_dq = passed().passed_dq[item.stage()];
      if (passed_dq.tile < 0) break;
      uint32_t* count = counts_of(p) + passed_dq.tile;
      float* to = query_sums(p) + passed_dq.tile * (kQueries * Config::kDepth);
      if (passed_dq.before == 0) {
        arch::store_bytes(to, dq.place(item), kDqBytes);
      } else {
        await_turn(count, passed_dq.before);
        arch::add_floats(to, dq.place(item), kDqBytes);
      }
      arch::commit_stores();
      arch::await_stores_read<0>();
      dq.done(item);
      arch::await_stores<0>();
      arch::store_released(count, static_cast<uint32_t>(passed_dq.before) + 1);
    }
  }
  static WMMA_DEVICE void await_turn(const uint32_t* count, int before) {
    while (arch::load_acquired(count) != static_cast<uint32_t>(before)) continue;
  }
  // Of each tile of queries, by how many blocks' keys it was added to; then the sums, as the lanes have them.
  static WMMA_DEVICE uint32_t* counts_of(const Arguments& p) { return static_cast<uint32_t*>(p.partial); }
  // Where queries are split, behind these: what a slice gives keys and values, from a column on.
  static WMMA_DEVICE AttentionOperand part_of(const Arguments& p, int column) {
    return key_parts<kQueries * Config::kDepth>(p, column);
  }
};

}  // namespace wmma
