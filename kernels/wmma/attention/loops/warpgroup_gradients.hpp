// Gradients on sm_90a in one persistent kernel, five products a tile, for operands of 16 bits. Two consumer warpgroups
// own 64 keys each, and sum up g_K and g_V in registers; tiles of queries and of g_out come by the copy engine (TMA).
// Scores are computed transposed, so that weights and slopes are the rows of the next products as they are.
//
//   tile i     K·Qᵀ │ V·g_outᵀ │        │ g_V += weights·g_out ║ dQ partial │ g_K += slopes·Q
//   meanwhile       │ weights  │ slopes │                      ║            │ dQ partial stored
//                                                             └ both warpgroups' slopes are in shared memory
//
// (Where products were asked for earlier, those of the next tile among them, ptxas waited for each product by itself,
// or it took longer: docs/decisions/nvidia.md.)
//
// The dQ partial, all the block's keys times their slopes, goes to shared memory, from where the copy engine adds it to
// float32 sums in memory. Blocks add in one fixed order (balanced/gradient_teams.hpp), so that sums are the same from
// run to run; the last one of a tile rounds.
//
// The third warpgroup has few registers and a job for each warp: one loads tiles, one writes lse, delta and each tile's
// place in the order for the consumers, one finds these places ahead, one waits for the block's turn and adds.
#pragma once

#include <wmma/attention/gradients/rows.hpp>
#include <wmma/attention/tiles/warpgroup_gradient_tiles.hpp>
#include <wmma/attention/weights.hpp>
#include <wmma/tile/box_store.hpp>
#include <wmma/tile/warpgroup_product.hpp>

namespace wmma {

template <class Config>
struct WarpgroupGradients : WarpgroupGradientTiles<Config> {
  using Tiles = WarpgroupGradientTiles<Config>;
  using Tiles::add_in_order, Tiles::await_turn, Tiles::counts_of, Tiles::dq_at, Tiles::kConsumers, Tiles::kKeys,
      Tiles::kLines, Tiles::kOwnedBarriers, Tiles::kQueries, Tiles::kQuerySums, Tiles::kRowBytes, Tiles::kShare,
      Tiles::kSharesRows, Tiles::kSlopeStart, Tiles::kSlopesThere, Tiles::kStep, Tiles::kSums, Tiles::look_ahead,
      Tiles::pass_tiles, Tiles::passed, Tiles::produce, Tiles::queue_at, Tiles::steps_at;
  using Tiles::kAddsNumbers;
  using typename Tiles::Arguments, typename Tiles::DqQueue, typename Tiles::Heads, typename Tiles::KeyRows,
      typename Tiles::Link, typename Tiles::Math, typename Tiles::OutTile, typename Tiles::Owned,
      typename Tiles::Passed, typename Tiles::QueryTile, typename Tiles::Teams, typename Tiles::Queue,
      typename Tiles::SlopeTile, typename Tiles::T, typename Tiles::ValueRows;
  static constexpr int kConsumerRegisters = 240;
  static constexpr int kOtherRegisters = 24;

  static WMMA_DEVICE void run(const Arguments& p) {
    const uint32_t start = arch::shared_address(dynamic_shared<unsigned char>());
    const Owned owned(start, start + kOwnedBarriers);
    const Queue queue = queue_at(start);
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
    arch::let_next_start();
    if (wave < kConsumerWaves) {
      arch::take_registers<kConsumerRegisters>();
      consume(p, owned, start, arch::shuffle_word(wave / 4, 0));
    } else {
      arch::release_registers<kOtherRegisters>();
      if (threadIdx.x == kConsumers) produce(p, owned, queue);
      if (wave == kConsumerWaves + 1) pass_tiles(p, start);
      if (wave == kConsumerWaves + 2) look_ahead(p, start);
      if (threadIdx.x == kConsumers + 3 * arch::kWaveSize) add_in_order(p, dq_at(start));
    }
  }

 private:
  // --------------------------------------------------------------------------------------------------- the warpgroups

  struct Consumer {
    const Arguments& p;
    uint32_t start;
    uint32_t group;
    uint32_t lane;
    float factor;         // of the scores
    uint32_t number = 0;  // of the next tile
    uint32_t passed_dq = 0;
    float g_k[1][Config::kDepth / 2];
    float g_v[1][Config::kValueDepth / 2];

    WMMA_DEVICE uint32_t wave() const { return threadIdx.x / arch::kWaveSize % 4; }  // of the warpgroup
    WMMA_DEVICE uint32_t own() const { return start + group * kRowBytes; }
    WMMA_DEVICE int first_row() const { return static_cast<int>(group * kLines + wave() * 16); }  // of the block's
  };

  static WMMA_DEVICE void consume(const Arguments& p, const Owned& owned, uint32_t start, uint32_t group) {
    constexpr double kUnit = kAddsNumbers ? 1 : static_cast<double>(Math::kUnit);
    Consumer x{p, start, group, lane_id(), static_cast<float>(p.scale * kUnit)};
    for (uint32_t number = 0;;) {
      clear(x.g_k[0]);
      clear(x.g_v[0]);
      owned.await(typename Owned::Item(number));
      const int steps = passed().part.steps;
      if (steps < 0) break;
      if constexpr (Tiles::kMasks) {
        find_mask(x, Teams::key_head(p, passed().part.share), passed().part.first_key + x.first_row());
      }
#pragma unroll 1
      for (int left = steps; left > 0; --left) take_tile(x);
      const int share = passed().part.share, row = passed().part.first_key + x.first_row();
      number = passed().part.number + 1;
      arch::barrier_arrive(owned.empty(typename Owned::Item(number - 1)), true);
      const auto scale = static_cast<float>(p.scale);
      if constexpr (Tiles::kSplitsQueries) {
        const HeadRows slice(p.skv, share + 1, share);
        store_gradient<Link, 2, float>(x.g_k, Tiles::part_of(p, 0), p.e, scale, slice, row, 0, x.lane);
        store_gradient<Link, 2, float>(x.g_v, Tiles::part_of(p, p.e), p.ev, 1.0f, slice, row, 0, x.lane);
      } else {
        const HeadRows head(p.skv, p.heads / p.group, share);
        store_gradient<Link, Config::kOutVec>(x.g_k, p.g_k, p.e, scale, head, row, 0, x.lane);
        store_gradient<Link, Config::kOutVec>(x.g_v, p.g_v, p.ev, 1.0f, head, row, 0, x.lane);
      }
    }
    const typename DqQueue::Item last = await_room(x);
    if (threadIdx.x == 0) passed().passed_dq[last.stage()].tile = -1;
    arch::wave_barrier();
    arch::barrier_arrive(dq_at(start).full(last), x.lane == 0);
  }

  // In shared memory, as registers are few; the wave's own.
  static WMMA_DEVICE void find_mask(const Consumer& x, int key_head, int first) {
    const Heads heads(x.p, key_head);
    auto& of_wave = passed().of_wave[threadIdx.x / arch::kWaveSize];
    if constexpr (Config::kHidden != Hidden::kKeys) {  // from the first head of all in the batch on
      const auto find = [&](const auto& of) {
        if (x.lane == 0) of_wave = heads.batch * (of.batch_stride - x.p.heads * of.head_stride) + first;
      };
      if constexpr (kAddsNumbers) {
        find(x.p.mask);
      } else {
        find(x.p.words);
      }
      arch::wave_barrier();
      return;
    }
    const uint8_t* mask = matrix_of<const uint8_t>(x.p.mask, heads.batch, heads.first);
    const int key = first + static_cast<int>(x.lane);  // the second half of the lanes has those of another wave
    const auto shown = arch::ballot(key < x.p.skv && mask[key * x.p.mask.column_stride] != 0);
    if (x.lane == 0) of_wave = static_cast<uint32_t>(shown);
    arch::wave_barrier();
  }

  // What a lane knows of the mask beside its scores.
  struct NoMask {
    WMMA_DEVICE void ask(const Consumer&, const Passed&) {}
  };
  // Of one of bool that does not say the same to all queries: a word for each of a lane's keys.
  struct ShownQueries {
    uint32_t words[Link::kLaneRows];

    WMMA_DEVICE void ask(const Consumer& x, const Passed& tile) {
      static_assert(LaneWords::are_of<Link, kSums>(), "as words have the queries");
      const MaskWordsArguments& of = x.p.words;
      const uint32_t first = passed().of_wave[threadIdx.x / arch::kWaveSize] + tile.query_head * of.head_stride;
      const int64_t row = first + tile.first_query / LaneWords::kColumns * of.rows + Link::row(x.lane, 0);
      const uint32_t* from =
          static_cast<const uint32_t*>(of.data) + row * LaneWords::kLanes + x.lane % LaneWords::kLanes;
      const int first_bit = LaneWords::bit_of(tile.first_query % LaneWords::kColumns);
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        words[i] = from[(Link::row(0, i) - Link::row(0, 0)) * LaneWords::kLanes] >> first_bit;
      }
    }
    WMMA_DEVICE bool shows(int f) const { return (words[Link::row_of(f)] >> LaneWords::bit_of<Link>(f) & 1) != 0; }
  };
  // Of one of numbers: on their way to where the tile's slopes will lie, sixteen keys of a query a line, of the wave
  // alone; from there as the scores are, two queries of a key.
  struct AddedNumbers {
    using Number = typename Config::Mask;
    static constexpr int kLineKeys = 16;
    static constexpr int kLineBytes = kLineKeys * static_cast<int>(sizeof(Number));
    static constexpr int kVec = Config::kMaskVec;  // that are copied at once
    static_assert(!kAddsNumbers || kQueries * kLineBytes * 4 == kLines * 128, "as large as the wave's slopes");
    uint32_t place;
    uint32_t words[4];

    // Of eight keys of a query. Where eight queries are read at once, they lie in all banks.
    static WMMA_DEVICE uint32_t place_of(uint32_t query, uint32_t half) {
      return query * kLineBytes + (half ^ query / 4 % 2) * 16;
    }
    WMMA_DEVICE void ask(const Consumer& x, const Passed& tile) {
      uint32_t lane = lane_id();
      arch::hold(lane);  // what follows from it is quicker computed anew than kept
      place = x.start + kSlopeStart + x.number % 2 * SlopeTile::kBytes + (x.group * kLines + x.wave() * 16) * 128;
      const AttentionOperand& of = x.p.mask;
      const int first_key = passed().part.first_key + x.first_row();
      const Number* from = static_cast<const Number*>(of.data) + passed().of_wave[threadIdx.x / arch::kWaveSize] +
                           tile.query_head * of.head_stride + tile.first_query * of.row_stride;
      constexpr uint32_t kOfLine = kLineKeys / kVec;
#pragma unroll
      for (uint32_t i = 0; i < kQueries * kOfLine / arch::kWaveSize; ++i) {
        const uint32_t query = (i * arch::kWaveSize + lane) / kOfLine, key = lane % kOfLine * kVec;
        const bool is_there =
            tile.first_query + static_cast<int>(query) < x.p.sq && first_key + static_cast<int>(key) < x.p.skv;
        arch::copy_async<kVec * sizeof(Number)>(place + place_of(query, key / 8) + key % 8 * sizeof(Number),
                                                from + query * of.row_stride + key, is_there);
      }
      arch::commit_async();
    }
    WMMA_DEVICE void arrive() {
      arch::wait_async<0>();
      arch::wave_barrier();
    }
    // In order.
    WMMA_DEVICE float number(int f) {
      if (f % 8 == 0) {
        const uint32_t lane = lane_id();
        arch::ldmatrix_x4<true>(words, place + place_of(f * 2 + lane / 16 * 8 + lane % 8, lane / 8 % 2));
      }
      return convert<float>(number_of_pair<Number>(words[f % 8 / 2], f % 2));
    }
  };
  using OfMask = Choose<kAddsNumbers, AddedNumbers, Choose<Config::kHidden == Hidden::kPairs, ShownQueries, NoMask>>;

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

  // Where a tile is, from what is left of it in registers: these are few, and it is quicker computed anew than kept.
  struct TileAt {
    typename Queue::Item item;
    Queue queue;
    uint64_t queries;
    uint64_t out;
    uint32_t slopes;

    WMMA_DEVICE explicit TileAt(const Consumer& x)
        : item(x.number),
          queue(queue_at(x.start)),
          queries(QueryTile::operand(queue.place(item))),
          out(OutTile::operand(queue.place(item) + QueryTile::kBytes)),
          slopes(x.start + kSlopeStart + x.number % 2 * SlopeTile::kBytes) {}
  };
  static WMMA_DEVICE TileAt tile_at(Consumer& x) {
    arch::hold(x.start);
    arch::hold(x.number);
    return TileAt(x);
  }

  static WMMA_DEVICE void take_tile(Consumer& x) {
    const TileAt at = tile_at(x);
    const Passed& tile = passed().tiles[at.item.stage()];
    // 1. Scores and g_P, and weights meanwhile.
    float weights[kSums];
    float slopes[kSums];
    at.queue.await(at.item);
    arch::wgmma_fence();
    multiply<KeyRows, QueryTile, Config::kColumns>(weights, KeyRows::operand(x.own()), at.queries);
    multiply<ValueRows, OutTile, Config::kValueColumns>(slopes, ValueRows::operand(x.own() + KeyRows::kBytes), at.out);
    OfMask mask;
    mask.ask(x, tile);
    arch::wgmma_wait<1>();
    hold_sums<kSums>(weights);
    if constexpr (kAddsNumbers) mask.arrive();
    tile.bounded ? weigh<true>(weights, x, tile, mask) : weigh<false>(weights, x, tile, mask);
    uint32_t words[kSums / 2];
    pack_weights<T, kSums>(words, weights);
    arch::wgmma_wait<0>();
    hold_sums<kSums>(slopes);
    slope(slopes, weights, x, tile);
    uint32_t slope_words[kSums / 2];
    pack_weights<T, kSums>(slope_words, slopes);
    // 2. g_V, until the other warpgroup's slopes are there.
    const TileAt again = tile_at(x);
    store_slopes(x, again.slopes, slope_words);
    add<OutTile, Config::kValueDepth>(x.g_v[0], words, again.out);
    arch::fence_matrix_unit();
    arch::wave_barrier();
    arch::barrier_arrive(x.start + kSlopesThere, x.lane == 0);
    arch::barrier_wait(x.start + kSlopesThere, x.number % 2);
    // 3. What all slopes add to g_Q, a dQ partial, and its own to g_K.
    float g_q[1][kQuerySums];
    multiply_all_slopes(x, again.slopes, g_q[0]);
    arch::wgmma_wait<1>();
    hold_sums<Config::kValueDepth / 2>(x.g_v[0]);
    add<QueryTile, Config::kDepth>(x.g_k[0], slope_words, again.queries);
    arch::wgmma_wait<1>();
    hold_sums<kQuerySums>(g_q[0]);
    const TileAt finally = tile_at(x);
    if (store_dq(x, passed().tiles[finally.item.stage()], g_q)) pass_dq(x);
    arch::wgmma_wait<0>();
    hold_sums<Config::kDepth / 2>(x.g_k[0]);
    arch::barrier_arrive(finally.queue.empty(finally.item), true);
    ++x.number;
  }

  template <int kCount>
  static WMMA_DEVICE void clear(float (&sums)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] = 0.0f;
  }

  template <class Rows, class Columns, int kWidth>
  static WMMA_DEVICE void multiply(float (&sums)[kSums], uint64_t rows, uint64_t columns) {
    multiply_lines<T, Rows, Columns, kWidth>(sums, rows, columns);
    arch::wgmma_commit();
  }
  template <class Columns, int kWidth, int kCount>
  static WMMA_DEVICE void add(float (&sums)[kCount], const uint32_t* words, uint64_t columns) {
    arch::wgmma_fence();
    add_products<T, Columns, kQueries, kWidth>(sums, words, columns);
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
  static WMMA_DEVICE void weigh(float (&weights)[kSums], const Consumer& x, const Passed& tile, OfMask& mask) {
    static_assert(places_add_up(), "or they are compared one by one");
    const int before = tile.first_query + static_cast<int>(Link::place(x.lane, 0));
    int end[Link::kLaneRows];
    uint32_t shown = 0;  // from the lane's first key on
    if constexpr (Config::kHidden == Hidden::kKeys) {
      static_assert(Link::row(1, 0) == Link::row(0, 0) && Link::row(4, 0) == 1 &&
                    Link::row(5, 1) == Link::row(0, 1) + 1);
      uint32_t wave = threadIdx.x / arch::kWaveSize;
      arch::hold(wave);  // it is quicker computed anew than kept
      shown = passed().of_wave[wave] >> Link::row(x.lane, 0);
    }
    int begin[Link::kLaneRows];
    if constexpr (kBounded) {
      const int key = passed().part.first_key + x.first_row() - before;
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        const int row = key + static_cast<int>(Link::row(x.lane, i));
        begin[i] = row - static_cast<int>(x.p.shift);
        // Of keys that are not there scores are 0: beside an lse far below it their weights would be infinite.
        end[i] = row + before < x.p.skv ? x.p.sq - before : 0;
        if constexpr (Config::kWindowed) {
          const int after = row - static_cast<int>(x.p.rules.from) + 1;
          end[i] = after < end[i] ? after : end[i];
        }
      }
    }
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      const float* statistics = tile.statistics + Link::place(x.lane, f);
      float weight;
      if constexpr (kAddsNumbers) {
        weight = arch::fma(weights[f], x.factor, mask.number(f)) - statistics[0];
        weight = Math::exp(weight * Math::kUnit) * statistics[2 * kQueries];
      } else {
        weight = Math::exp(arch::fma(weights[f], x.factor, -statistics[0]));
      }
      bool inside = true;
      if constexpr (kBounded) {
        const int place = static_cast<int>(Link::place(0, f));
        inside = place < end[Link::row_of(f)];
        if constexpr (Config::kCausal) inside = inside && place >= begin[Link::row_of(f)];
      }
      if constexpr (Config::kHidden == Hidden::kKeys) {
        inside = inside && (shown >> Link::row(0, Link::row_of(f)) & 1) != 0;
      } else if constexpr (Config::kHidden == Hidden::kPairs) {
        inside = inside && mask.shows(f);
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
      if constexpr (Config::kHidden != Hidden::kNone || kAddsNumbers) slopes[f] = weights[f] == 0.0f ? 0.0f : slopes[f];
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
        const float* from = query_sums(p) + index * (kQueries * Config::kDepth) + at;
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
