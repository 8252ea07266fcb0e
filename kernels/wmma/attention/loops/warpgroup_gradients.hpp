// Gradients on sm_90a in one persistent kernel, five products a tile, for operands of 16 bits. Two consumer warpgroups
// own 64 keys each, and sum up g_K and g_V in registers; tiles of queries and of g_out come by the copy engine (TMA).
// Scores are computed transposed, so that weights and slopes are the rows of the next products as they are.
//
//   tile i     K·Qᵀ  ║ g_Q, g_K of tile i−1 │ V·g_outᵀ                   │ g_V += weights·g_out
//   meanwhile        ║                      │ dQ partial stored, weights │ slopes
//                    └ both warpgroups have written the slopes of tile i−1 to shared memory
//
// The dQ partial, all the block's keys times their slopes, goes to shared memory, from where the copy engine adds it to
// float32 sums in memory. Blocks add in one fixed order (balanced/gradient_teams.hpp), so that sums are the same from
// run to run; the last one of a tile rounds.
//
// The third warpgroup has few registers and a job for each warp: one loads tiles, one writes lse, delta and each tile's
// place in the order for the consumers, one finds these places ahead, one waits for the block's turn and adds.
#pragma once

#include <wmma/attention/balanced/gradient_teams.hpp>
#include <wmma/attention/gradients/rows.hpp>
#include <wmma/attention/tiles/warpgroup_tiles.hpp>
#include <wmma/attention/weights.hpp>
#include <wmma/tile/box_store.hpp>

namespace wmma {

template <class Config>
struct WarpgroupGradients {
  using Arguments = MappedAttentionArguments;
  using T = typename Config::Element;
  using Link = ChainLink<MatrixProduct<T, 16>>;  // a wave's 16 rows of a warpgroup's 64 are laid out as mma.sync's
  using Math = Softmax<float>;
  static constexpr int kGroups = 2;
  static constexpr int kGroupThreads = 4 * arch::kWaveSize;
  static constexpr int kConsumers = kGroups * kGroupThreads;
  static constexpr int kThreads = kConsumers + kGroupThreads;  // the last warpgroup loads tiles, and keeps the order
  static constexpr int kConsumerRegisters = 240;
  static constexpr int kOtherRegisters = 24;
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

  using Teams = GradientTeams<Config::kCausal, kKeys, kQueries>;
  using Way = typename Teams::Way;

  static constexpr int kAhead = 2;

  // What is passed to the warpgroups beside a tile: lse and delta of its queries, and where it is.
  static constexpr int kStatistics = 2 * kQueries;
  struct Passed {
    float statistics[kStatistics];
    int query_head;  // of all in the batch
    int first_query;
    int before;   // how many blocks add to these queries before this one
    int last;     // whether none does after it
    int bounded;  // whether not every weight counts
  };
  // And of their keys.
  struct PassedPart {
    int steps;     // how many tiles follow; less than 0: no more keys do
    int key_head;  // of all in the batch
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
  struct PassedAll {
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

  static WMMA_DEVICE void run(const Arguments& p) {
    const uint32_t start = arch::shared_address(dynamic_shared<unsigned char>());
    const Owned owned(start, start + kOwnedBarriers);
    const Queue queue(start + kQueueStart, start + kQueueBarriers);
    constexpr uint32_t kConsumerWaves = kConsumers / arch::kWaveSize;
    const uint32_t wave = uniform(threadIdx.x / arch::kWaveSize);
    if (threadIdx.x == kConsumers) {
      for (const TileMap* map : {&p.q_map, &p.k_map, &p.v_map, &p.g_out_map}) arch::prefetch_map(map);
      // Of what lanes write and lanes read each arrives for itself.
      owned.make(kConsumers);
      queue.make(kConsumers, 1 + arch::kWaveSize);  // one loads a tile's rows, a wave passes what is beside them
      steps_at(start).make(arch::kWaveSize, arch::kWaveSize);
      arch::barrier_make(start + kSlopesThere, kConsumerWaves);
      dq_at(start).make(1, kConsumerWaves);
      arch::fence_barriers();
    }
    arch::block_barrier();
    if (wave < kConsumerWaves) {
      arch::take_registers<kConsumerRegisters>();
      consume(p, owned, queue, start, arch::shuffle_word(wave / 4, 0));
    } else {
      arch::release_registers<kOtherRegisters>();
      if (threadIdx.x == kConsumers) produce(p, owned, queue);
      if (wave == kConsumerWaves + 1) pass_tiles(p, start);
      if (wave == kConsumerWaves + 2) look_ahead(p, start);
      if (threadIdx.x == kConsumers + 3 * arch::kWaveSize) add_in_order(p, dq_at(start));
    }
  }

 private:
  static WMMA_DEVICE PassedAll& passed() {
    return *reinterpret_cast<PassedAll*>(dynamic_shared<unsigned char>() + kPassedStart);
  }

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
        passed().part = {teams.steps(way.part), way.key_head, way.part.key_block * kKeys, part_item.number()};
      });
      const Heads heads(p, way.key_head);
#pragma unroll 1
      for (int group = 0; group < kGroups; ++group) {
        const int row = way.part.key_block * kKeys + group * kLines, head = heads.first / p.group;
        const uint32_t to = owned.place(part_item) + group * kRowBytes, there = owned.full(part_item);
        copy<KeyRows>(to, there, p.k, p.k_map, heads.batch, head, row);
        copy<ValueRows>(to + KeyRows::kBytes, there, p.v, p.v_map, heads.batch, head, row);
      }
#pragma unroll 1
      for (int head = heads.first; head < heads.first + p.group; ++head) {
        int tile = way.part.start;
#pragma unroll 1
        for (int left = way.part.count; left > 0; --left, item.next()) {
          queue.open(item, QueryTile::kBytes + OutTile::kBytes);
          const uint32_t to = queue.place(item), there = queue.full(item);
          const int row = (way.part.begin + tile) * kQueries;
          copy<QueryTile>(to, there, p.q, p.q_map, heads.batch, head, row);
          copy<OutTile>(to + QueryTile::kBytes, there, p.g_out, p.g_out_map, heads.batch, head, row);
          if (++tile == way.part.count) tile = 0;
        }
      }
    }
    owned.open(part_item, 0, [&] { passed().part.steps = -1; });
  }

  template <class Tile>
  static WMMA_DEVICE void copy(uint32_t to, uint32_t barrier, const AttentionOperand& x, const TileMap& map,
                               uint32_t batch, uint32_t head, int row) {
#pragma unroll
    for (int box = 0; box < Tile::kBoxes; ++box) {
#pragma unroll
      for (int line = 0; line < Tile::kLines; line += kLines) {
        int32_t at[4];
        box_coordinates<T>(at, x, batch, head, row + line, box);
        arch::copy_box<4, false, false>(to + box * Tile::kBoxBytes + line * 128, &map, barrier, at, 1);
      }
    }
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
    const typename Teams::Turn turn = teams.turn(way.part, way.step + lane, place, lane);
    const Heads heads(p, way.key_head);
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

  // -------------------------------------------------------------------------- the wave that passes what is beside
  // tiles

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
    const Queue queue(start + kQueueStart, start + kQueueBarriers);
    const typename Queue::Item item(ahead.number + step);
    int lane = lane_id();
    arch::hold(lane);
    const uint32_t place = ahead.places[step];
    const typename Teams::Turn turn = ahead.turns[step];
    const int head = ahead.first_head + static_cast<int>(place >> 16);
    const int first_query = static_cast<int>(place & 0xffff) * kQueries;
    constexpr int kShare = kQueries / arch::kWaveSize;
    float statistics[2][kShare];
    // Beyond the last query lse is +∞, so that weights are 0.
    read_rows(statistics[0], p.lse, ahead.batch, head, first_query + lane, p.sq, Math::infinity());
    arch::hold(lane);  // the addresses of both at once are more than there are registers for
    read_rows(statistics[1], p.delta, ahead.batch, head, first_query + lane, p.sq, 0.0f);
    arch::barrier_wait(queue.empty(item), item.phase() ^ 1);
    Passed& to = passed().tiles[item.stage()];
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      to.statistics[i * arch::kWaveSize + lane] = unit_of(statistics[0][i]);
      to.statistics[kQueries + i * arch::kWaveSize + lane] = statistics[1][i];
    }
    to.query_head = ahead.batch * p.heads + head;
    to.first_query = first_query;
    to.before = turn.before();
    to.last = turn.before() == turn.all() - 1;
    to.bounded = first_query + kQueries > p.sq || (Config::kCausal && ahead.last_key > first_query + p.shift);
    arch::barrier_arrive(queue.full(item), true);
  }
  // A number of each of the tile's queries.
  template <int kShare>
  static WMMA_DEVICE void read_rows(float (&values)[kShare], const AttentionOperand& x, int batch, int head, int query,
                                    int end, float beyond) {
    const float* from = matrix_of<const float>(x, batch, head) + query * x.row_stride;
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      values[i] = query < end ? *from : beyond;
      query += arch::kWaveSize;
      from += arch::kWaveSize * x.row_stride;
    }
  }
  static WMMA_DEVICE float unit_of(float lse) {
    return lse == -Math::infinity() ? Math::infinity() : lse * Math::kUnit;
  }

  // ------------------------------------------------------------------------------------- the thread that adds in order

  static WMMA_DEVICE void add_in_order(const Arguments& p, const DqQueue& dq) {
#pragma unroll 1
    for (typename DqQueue::Item item(0);; item.next()) {
      dq.await(item);
      const PassedDq passed_dq = passed().passed_dq[item.stage()];
      if (passed_dq.tile < 0) break;
      uint32_t* count = counts_of(p) + passed_dq.tile;
      float* to = sums_of(p) + passed_dq.tile * (kQueries * Config::kDepth);
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
  static WMMA_DEVICE float* sums_of(const Arguments& p) {
    const int64_t counts = static_cast<int64_t>(p.batch) * p.heads * p.tiles;
    return static_cast<float*>(p.partial) + (counts + 31) / 32 * 32;
  }

  // --------------------------------------------------------------------------------------------------- the warpgroups

  struct Consumer {
    const Arguments& p;
    uint32_t start;
    uint32_t group;
    uint32_t lane;
    float factor;         // of the scores
    uint32_t number = 0;  // of the next tile; the slopes of the one before it wait to be multiplied
    uint32_t passed_dq = 0;
    uint32_t slopes[kSums / 2];  // as words
    float g_k[1][Config::kDepth / 2];
    float g_v[1][Config::kValueDepth / 2];

    WMMA_DEVICE uint32_t wave() const { return threadIdx.x / arch::kWaveSize % 4; }  // of the warpgroup
    WMMA_DEVICE uint32_t own() const { return start + group * kRowBytes; }
    WMMA_DEVICE int first_row() const { return static_cast<int>(group * kLines + wave() * 16); }  // of the block's
  };

  static WMMA_DEVICE void consume(const Arguments& p, const Owned& owned, const Queue& queue, uint32_t start,
                                  uint32_t group) {
    Consumer x{p, start, group, lane_id(), static_cast<float>(p.scale * static_cast<double>(Math::kUnit))};
    for (uint32_t number = 0;;) {
      clear(x.g_k[0]);
      clear(x.g_v[0]);
      owned.await(typename Owned::Item(number));
      int left = passed().part.steps;
      if (left < 0) break;
      // Tiles, and one step more for the slopes of the last one. (It is no step of its own: two places with products
      // are more than the assembler has registers for.)
      if (left > 0) {
        bool waits = false;
#pragma unroll 1
        while (step(x, queue, left > 0, waits)) {
          --left;
          waits = true;
        }
      }
      const HeadRows head(p.skv, p.heads / p.group, passed().part.key_head);
      const int row = passed().part.first_key + x.first_row();
      number = passed().part.number + 1;
      arch::barrier_arrive(owned.empty(typename Owned::Item(number - 1)), true);
      store_gradient<Link, Config::kOutVec>(x.g_k, p.g_k, p.e, static_cast<float>(p.scale), head, row, 0, x.lane);
      store_gradient<Link, Config::kOutVec>(x.g_v, p.g_v, p.ev, 1.0f, head, row, 0, x.lane);
    }
    const typename DqQueue::Item last = await_room(x);
    if (threadIdx.x == 0) passed().passed_dq[last.stage()].tile = -1;
    arch::wave_barrier();
    arch::barrier_arrive(dq_at(start).full(last), x.lane == 0);
  }

  // Where a result's rows are.
  struct HeadRows {
    uint32_t rows;
    uint32_t batch;
    uint32_t head;
    WMMA_DEVICE HeadRows(int at_rows, int heads, int at_head)
        : rows(at_rows), batch(at_head / heads), head(at_head % heads) {}
    WMMA_DEVICE int64_t offset(const AttentionOperand& x, uint32_t row) const {
      return batch * x.batch_stride + head * x.head_stride + static_cast<int64_t>(row) * x.row_stride;
    }
  };

  // A tile of queries, where there is one: if not, scores of whatever lies in its place are asked for, and left.
  // `waits`: slopes of the one before it do.
  static WMMA_DEVICE bool step(Consumer& x, const Queue& queue, bool is_there, bool waits) {
    arch::hold(x.start);  // what follows from it is quicker computed anew than kept: registers are few
    const typename Queue::Item item(x.number);
    const Passed& tile = passed().tiles[item.stage()];
    const uint64_t query_tile = QueryTile::operand(queue.place(item));
    const uint64_t out_tile = OutTile::operand(queue.place(item) + QueryTile::kBytes);
    // 1. Scores, and what the slopes of the tile before add.
    float weights[kSums];
    if (is_there) queue.await(item);
    arch::wgmma_fence();
    multiply<KeyRows, QueryTile, Config::kColumns>(weights, KeyRows::operand(x.own()), query_tile);
    bool stored = false;
    if (waits) {
      stored = multiply_slopes(x, queue, weights);
      arch::wgmma_wait<0>();
      slopes_are_in(x, queue);
      if (!is_there) {
        if (stored) pass_dq(x);
        return false;
      }
    }
    // 2. Weights, and g_P meanwhile.
    float slopes[kSums];
    arch::wgmma_fence();
    multiply<ValueRows, OutTile, Config::kValueColumns>(slopes, ValueRows::operand(x.own() + KeyRows::kBytes),
                                                        out_tile);
    if (stored) pass_dq(x);
    arch::wgmma_wait<1>();
    hold_sums<kSums>(weights);
    tile.bounded ? weigh<true>(weights, x, tile) : weigh<false>(weights, x, tile);
    uint32_t words[kSums / 2];
    pack_weights<T, kSums>(words, weights);
    // 3. g_V, and slopes meanwhile.
    arch::wgmma_wait<0>();
    hold_sums<kSums>(slopes);
    add<OutTile, Config::kValueDepth>(x.g_v[0], words, out_tile);
    slope(slopes, weights, x, tile);
    pack_weights<T, kSums>(x.slopes, slopes);
    store_slopes(x, x.start + kSlopeStart + item.number() % 2 * SlopeTile::kBytes, x.slopes);
    arch::fence_matrix_unit();
    arch::wave_barrier();
    arch::barrier_arrive(x.start + kSlopesThere, x.lane == 0);
    arch::wgmma_wait<0>();
    hold_sums<Config::kValueDepth / 2>(x.g_v[0]);
    ++x.number;
    return true;
  }

  // What the last tile's slopes add to g_Q, a dQ partial, and to g_K, which is under way afterwards. The
  // scores of the next tile were asked for before.
  static WMMA_DEVICE bool multiply_slopes(Consumer& x, const Queue& queue, float (&scores)[kSums]) {
    const typename Queue::Item before(x.number - 1);
    const uint32_t odd = before.number() % 2;
    arch::barrier_wait(x.start + kSlopesThere, odd);
    float g_q[1][kQuerySums];
    multiply_all_slopes(x, x.start + kSlopeStart + odd * SlopeTile::kBytes, g_q[0]);
    add<QueryTile, Config::kDepth>(x.g_k[0], x.slopes, QueryTile::operand(queue.place(before)));
    arch::wgmma_wait<1>();
    hold_sums<kSums>(scores);
    hold_sums<kQuerySums>(g_q[0]);
    return store_dq(x, passed().tiles[before.stage()], g_q);
  }
  static WMMA_DEVICE void slopes_are_in(Consumer& x, const Queue& queue) {
    hold_sums<Config::kDepth / 2>(x.g_k[0]);
    arch::barrier_arrive(queue.empty(typename Queue::Item(x.number - 1)), true);
  }

  template <int kCount>
  static WMMA_DEVICE void clear(float (&sums)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] = 0.0f;
  }

  template <class Rows, class Columns, int kWidth>
  static WMMA_DEVICE void multiply(float (&sums)[kSums], uint64_t rows, uint64_t columns) {
#pragma unroll
    for (int step = 0; step < (kWidth + kStep - 1) / kStep; ++step) {
      arch::Wgmma<T, T, kQueries>::template mma<false, false>(sums, Rows::template step<true>(rows, step, kStep),
                                                              Columns::template step<true>(columns, step, kStep),
                                                              step != 0);
    }
    arch::wgmma_commit();
  }
  template <class Columns, int kWidth, int kCount>
  static WMMA_DEVICE void add(float (&sums)[kCount], const uint32_t* words, uint64_t columns) {
    arch::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kQueries / kStep; ++step) {
      arch::WgmmaOfRows<T, kWidth>::template mma<true>(sums, words + step * 4,
                                                       Columns::template step<false>(columns, step, kStep), true);
    }
    arch::wgmma_commit();
  }
  // This warpgroup's share of the tile's g_Q: both operands lie across the keys.
  static WMMA_DEVICE void multiply_all_slopes(const Consumer& x, uint32_t slope_tile, float (&sums)[kQuerySums]) {
    const uint64_t rows = SlopeTile::operand(slope_tile + (kSharesRows ? x.group * SlopeTile::kBoxBytes : 0));
    const uint32_t bytes = kSharesRows ? 0 : x.group * kShare * static_cast<uint32_t>(sizeof(T));
    const uint32_t columns = x.start + bytes / 128 * KeyRows::kBoxBytes + bytes % 128;
    arch::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kKeys / kStep; ++step) {
      constexpr int kSteps = kLines / kStep;
      const uint64_t keys = KeyRows::operand(columns + step / kSteps * kRowBytes);
      arch::Wgmma<T, T, kShare>::template mma<true, true>(sums, SlopeTile::template step<false>(rows, step, kStep),
                                                          KeyRows::template step<false>(keys, step % kSteps, kStep),
                                                          step != 0);
    }
    arch::wgmma_commit();
  }

  // ---- weights and slopes

  static constexpr bool places_add_up() {
    for (uint32_t lane = 0; lane < arch::kWaveSize; ++lane) {
      for (int f = 0; f < kSums; ++f) {
        if (Link::place(lane, f) != Link::place(lane, 0) + Link::place(0, f)) return false;
      }
    }
    return true;
  }
  // kBounded: not every query is there, or sees every key. A lane's places are those of the first lane and some more,
  // so that each is compared as a number of the code with few of the lane's.
  template <bool kBounded>
  static WMMA_DEVICE void weigh(float (&weights)[kSums], const Consumer& x, const Passed& tile) {
    static_assert(places_add_up(), "or they are compared one by one");
    const int before = tile.first_query + static_cast<int>(Link::place(x.lane, 0));
    const int end = x.p.sq - before;
    int begin[Link::kLaneRows];
    if constexpr (kBounded && Config::kCausal) {
      const int key = passed().part.first_key + x.first_row() - static_cast<int>(x.p.shift);
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) begin[i] = key + static_cast<int>(Link::row(x.lane, i)) - before;
    }
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      const float weight =
          Math::exp(arch::fma(weights[f], x.factor, -tile.statistics[static_cast<int>(Link::place(x.lane, f))]));
      bool inside = true;
      if constexpr (kBounded) {
        const int place = static_cast<int>(Link::place(0, f));
        inside = place < end;
        if constexpr (Config::kCausal) inside = inside && place >= begin[Link::row_of(f)];
      }
      weights[f] = inside ? weight : 0.0f;
    }
  }
  // A weight of 0 has no slope, whatever it is multiplied by.
  static WMMA_DEVICE void slope(float (&slopes)[kSums], const float (&weights)[kSums], const Consumer& x,
                                const Passed& tile) {
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      slopes[f] = weights[f] * (slopes[f] - tile.statistics[kQueries + Link::place(x.lane, f)]);
    }
  }

  // A line for each key.
  static WMMA_DEVICE void store_slopes(const Consumer& x, uint32_t tile, const uint32_t (&words)[kSums / 2]) {
    constexpr int kBoxWords = kLines / 4;
#pragma unroll
    for (int box = 0; box < SlopeTile::kBoxes; ++box) {
      const ResultBox to(tile + box * SlopeTile::kBoxBytes + (x.group * kLines + x.wave() * 16) * 128, x.lane);
#pragma unroll
      for (int i = 0; i < ResultBox::kSteps; ++i) to.write(i, words + box * kBoxWords + i * 4);
    }
  }

  // ---- what the block's keys add to a tile's g_Q

  static WMMA_DEVICE typename DqQueue::Item await_room(const Consumer& x) {
    const typename DqQueue::Item item(x.passed_dq);
    arch::barrier_wait(dq_at(x.start).empty(item), item.phase() ^ 1);  // at once the first time round
    return item;
  }

  // Whether it is in shared memory, and to be passed on: not where this block's is the last.
  static WMMA_DEVICE bool store_dq(Consumer& x, const Passed& tile, float (&sums)[1][kQuerySums]) {
    const Arguments& p = x.p;
    const int64_t index = static_cast<int64_t>(tile.query_head) * p.tiles + tile.first_query / kQueries;
    constexpr int kApart = arch::kWaveSize * 4;
    const int at = (static_cast<int>(x.group * 4 + x.wave()) * (kQuerySums / 4) * arch::kWaveSize + x.lane) * 4;
    if (tile.last) {
      if (tile.before > 0) {
        const float* from = sums_of(p) + index * (kQueries * Config::kDepth) + at;
        await_turn(counts_of(p) + index, tile.before);
#pragma unroll
        for (int i = 0; i < kQuerySums; i += 4) {
          float before[4];
          arch::load_four_relaxed(before, from + i / 4 * kApart);
#pragma unroll
          for (int j = 0; j < 4; ++j) sums[0][i + j] += before[j];
        }
      }
      const HeadRows head(p.sq, p.heads, tile.query_head);
      const int row = tile.first_query + (kSharesRows ? x.group * kLines : 0) + x.wave() * 16;
      store_gradient<Link, Config::kOutVec>(sums, p.g_q, p.e, static_cast<float>(p.scale), head, row,
                                            kSharesRows ? 0 : x.group * kShare, x.lane);
      return false;
    }
    const typename DqQueue::Item item = await_room(x);
    const uint32_t to = dq_at(x.start).place(item);
#pragma unroll
    for (int i = 0; i < kQuerySums; i += 4) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) words[j] = arch::bit_cast<uint32_t>(sums[0][i + j]);
      arch::store_shared(to + (at + i / 4 * kApart) * 4, words);
    }
    if (threadIdx.x == 0) passed().passed_dq[item.stage()] = {index, tile.before};
    return true;
  }
  static WMMA_DEVICE void pass_dq(Consumer& x) {
    arch::fence_matrix_unit();
    arch::wave_barrier();
    arch::barrier_arrive(dq_at(x.start).full(typename DqQueue::Item(x.passed_dq)), x.lane == 0);
    ++x.passed_dq;
  }
};

}  // namespace wmma
