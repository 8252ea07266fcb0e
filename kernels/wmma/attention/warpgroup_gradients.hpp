// The gradients of attention by sm_90a's warpgroups, for operands of 16 bits that go to shared memory as they are; see
// backward.hpp for what is computed by whom. Each warpgroup owns 64 rows and multiplies them by the tiles of others
// that the copy engine brings; while one computes weights, the matrix unit has the other's products. A tile is read
// both ways, as it lies: along its columns for scores, across them for what these add to the gradients.
#pragma once

#include <wmma/arch/wgmma.hpp>
#include <wmma/attention/gradient_rows.hpp>
#include <wmma/attention/warpgroup_tiles.hpp>
#include <wmma/attention/weights.hpp>

namespace wmma {

template <class Config>
struct WarpgroupGradients {
  using Arguments = MappedAttentionArguments;
  using T = typename Config::Element;
  using Link = ChainLink<MatrixProduct<T, 16>>;  // a wave's 16 rows of a warpgroup's 64 are laid out as mma.sync's
  using Math = Softmax<float>;
  static constexpr bool kOwnsKeys = Config::kOwnsKeys;
  static constexpr int kGroups = 2;
  static constexpr int kGroupThreads = 4 * arch::kWaveSize;
  static constexpr int kTakers = kGroups * kGroupThreads;
  static constexpr int kThreads = kTakers + kGroupThreads;  // the last warpgroup asks for tiles
  static constexpr int kTakerRegisters = 240;
  static constexpr int kAskerRegisters = 24;
  static constexpr int kLines = 64;  // of a warpgroup's rows, and of each box that the copy engine brings
  static constexpr int kBlockRows = kGroups * kLines;
  static constexpr int kOthers = Config::kOthers;
  static constexpr int kSums = kOthers / 2;  // of a lane's weights
  static constexpr int kStep = 16;           // of what is summed up, that one product takes
  static_assert(kOthers % kLines == 0, "whole boxes");

  template <int kCount, int kColumns>
  using Tile = WarpgroupTile<kCount, kColumns* static_cast<int>(sizeof(T))>;
  using FirstRows = Tile<kLines, Config::kDepth>;  // with Q's columns: Q or K; `second` with V's: g_out or V
  using SecondRows = Tile<kLines, Config::kValueDepth>;
  using First = Tile<kOthers, Config::kDepth>;
  using Second = Tile<kOthers, Config::kValueDepth>;
  using Queue = TileQueue<Config::kStages, First::kBytes + Second::kBytes>;
  static constexpr int kRowBytes = FirstRows::kBytes + SecondRows::kBytes;  // of a warpgroup
  static constexpr int kQueueStart = kGroups * kRowBytes;
  // Where keys are owned: lse and delta of a tile's queries, for each warpgroup, two tiles' in turn.
  static constexpr int kStatistics = 2 * kOthers;
  static constexpr int kStatisticsStart = kQueueStart + Queue::kBytes;
  static constexpr int kBarriers = kStatisticsStart + (kOwnsKeys ? kGroups * 2 * kStatistics * 4 : 0);
  static constexpr int kSharedBytes = kBarriers + Queue::kBarrierBytes + arch::kBarrierBytes;

  using Place = GradientPlace<kOwnsKeys>;
  using Visit = OthersVisit<kOwnsKeys, kOthers>;
  using Span = OthersSpan<kOwnsKeys, Config::kCausal>;

  static WMMA_DEVICE void run(const Arguments& p) {
    unsigned char* shared = dynamic_shared<unsigned char>();
    const uint32_t start = arch::shared_address(shared);
    const Queue queue(start + kQueueStart, start + kBarriers);
    const uint32_t rows_there = start + kBarriers + Queue::kBarrierBytes;
    const uint32_t wave = uniform(threadIdx.x / arch::kWaveSize);
    const bool asks = threadIdx.x == kTakers;
    if (asks) {
      for (const TileMap* map : {&p.q_map, &p.k_map, &p.v_map, &p.g_out_map}) arch::prefetch_map(map);
      queue.make(kTakers / arch::kWaveSize);
      arch::barrier_make(rows_there, 1);
      arch::fence_barriers();
    }
    arch::block_barrier();
    const Place place(p, kBlockRows, Config::kSlice);
    const int first_row = static_cast<int>(place.tile) * kBlockRows;
    const Span span(p, place, first_row, kBlockRows, kOthers);
    const int visits = (kOwnsKeys ? p.group : 1) * span.tiles(kOthers);
    if (wave >= kTakers / arch::kWaveSize) {
      arch::give_registers<kAskerRegisters>();
      if (asks) ask(p, queue, start, rows_there, place, first_row, span, visits);
    } else {
      arch::take_registers<kTakerRegisters>();
      take(p, queue, shared, rows_there, place, first_row, span, visits, arch::shuffle_word(wave / 4, 0), wave % 4);
    }
  }

 private:
  // ------------------------------------------------------------------------------------------------- the asking thread

  static WMMA_DEVICE void ask(const Arguments& p, const Queue& queue, uint32_t start, uint32_t rows_there,
                              const Place& place, int first_row, const Span& span, int visits) {
    arch::barrier_arrive_for_bytes(rows_there, kGroups * kRowBytes);
#pragma unroll 1
    for (int group = 0; group < kGroups; ++group) {
      const uint32_t to = start + group * kRowBytes;
      const int row = first_row + group * kLines;
      copy<FirstRows>(to, rows_there, kOwnsKeys ? p.k : p.q, kOwnsKeys ? p.k_map : p.q_map, place.batch, place.head,
                      row);
      copy<SecondRows>(to + FirstRows::kBytes, rows_there, kOwnsKeys ? p.v : p.g_out, kOwnsKeys ? p.v_map : p.g_out_map,
                       place.batch, place.head, row);
    }
    Visit visit(p, place, span.others, span.begin);
    typename Queue::Item item(0);
#pragma unroll 1
    for (int i = 0; i < visits; ++i, item.next(), visit.advance(span.end, span.begin)) {
      queue.open(item, First::kBytes + Second::kBytes);
      copy<First>(queue.place(item), queue.there(item), kOwnsKeys ? p.q : p.k, kOwnsKeys ? p.q_map : p.k_map,
                  place.batch, visit.other_head, visit.at);
      copy<Second>(queue.place(item) + First::kBytes, queue.there(item), kOwnsKeys ? p.g_out : p.v,
                   kOwnsKeys ? p.g_out_map : p.v_map, place.batch, visit.other_head, visit.at);
    }
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

  // --------------------------------------------------------------------------------------------------- the warpgroups

  // Its own rows' lse, in our unit, and delta, where it owns queries.
  struct Rows {
    float lse[Link::kLaneRows];
    float delta[Link::kLaneRows];
    int first;
    uint32_t lane;
  };

  static WMMA_DEVICE void take(const Arguments& p, const Queue& queue, unsigned char* shared, uint32_t rows_there,
                               const Place& place, int block_row, const Span& span, int visits, uint32_t group,
                               uint32_t wave) {
    Rows rows;
    rows.lane = lane_id();
    rows.first = block_row + static_cast<int>(group * kLines + wave * 16);
    float first[1][Config::kDepth / 2];                        // g_Q or g_K
    float second[1][kOwnsKeys ? Config::kValueDepth / 2 : 1];  // g_V
    clear(first[0]);
    clear(second[0]);
    if constexpr (!kOwnsKeys) load_statistics(rows, p, place);
    float* statistics = reinterpret_cast<float*>(shared + kStatisticsStart) + group * 2 * kStatistics;
    const uint32_t own = arch::shared_address(shared) + group * kRowBytes;
    const uint64_t first_rows = FirstRows::operand(own);
    const uint64_t second_rows = SecondRows::operand(own + FirstRows::kBytes);
    Visit visit(p, place, span.others, span.begin);
    float next = kOwnsKeys && visits > 0 ? statistic(p, place, visit) : 0.0f;
    typename Queue::Item item(0);
    if (visits > 0) arch::barrier_wait(rows_there, 0);
#pragma unroll 1
    for (int i = 0; i < visits; ++i, item.next()) {
      const int at = visit.at;
      const int count = visit.rows();
      visit.advance(span.end, span.begin);
      if constexpr (kOwnsKeys) {
        statistics[i % 2 * kStatistics + threadIdx.x % kGroupThreads] = next;
        arch::barrier_meet<kGroupThreads>(1 + group);
        if (i + 1 < visits) next = statistic(p, place, visit);
      }
      const float* columns = statistics + i % 2 * kStatistics;
      const bool bounded =
          count < kOthers || (Config::kCausal && is_on_diagonal<kOwnsKeys, kBlockRows, kOthers>(p, block_row, at));
      // 1. Scores, and g_P.
      queue.await(item);
      const uint64_t first_tile = First::operand(queue.place(item));
      const uint64_t second_tile = Second::operand(queue.place(item) + First::kBytes);
      float weights[kSums];
      float slopes[kSums];
      multiply<FirstRows, First, Config::kColumns>(weights, first_rows, first_tile);
      multiply<SecondRows, Second, Config::kValueColumns>(slopes, second_rows, second_tile);
      // 2. Weights, and g_S.
      uint32_t weight_words[kSums / 2];
      uint32_t slope_words[kSums / 2];
      arch::wgmma_wait<1>();
      hold_sums<kSums>(weights);
      bounded ? weigh<true>(weights, p, rows, columns, at, count) : weigh<false>(weights, p, rows, columns, at, count);
      if constexpr (kOwnsKeys) pack_weights<T, kSums>(weight_words, weights);
      arch::wgmma_wait<0>();
      hold_sums<kSums>(slopes);
      slope(slopes, weights, rows, columns);
      pack_weights<T, kSums>(slope_words, slopes);
      // 3. What they add.
      arch::wgmma_fence();
      if constexpr (kOwnsKeys) add<Second, Config::kValueDepth>(second[0], weight_words, second_tile);
      add<First, Config::kDepth>(first[0], slope_words, first_tile);
      arch::wgmma_commit();
      arch::wgmma_wait<0>();
      hold_sums<Config::kDepth / 2>(first[0]);
      if constexpr (kOwnsKeys) hold_sums<Config::kValueDepth / 2>(second[0]);
      queue.done(item);
    }
    store_gradient<Link, Config::kOutVec>(first, kOwnsKeys ? p.g_k : p.g_q, p.e, static_cast<float>(p.scale), place,
                                          rows.first, 0, rows.lane);
    if constexpr (kOwnsKeys) {
      store_gradient<Link, Config::kOutVec>(second, p.g_v, p.ev, 1.0f, place, rows.first, 0, rows.lane);
    }
  }

  template <int kCount>
  static WMMA_DEVICE void clear(float (&sums)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] = 0.0f;
  }

  template <class Rows, class Columns, int kWidth>
  static WMMA_DEVICE void multiply(float (&sums)[kSums], uint64_t rows, uint64_t columns) {
    arch::wgmma_fence();
#pragma unroll
    for (int step = 0; step < (kWidth + kStep - 1) / kStep; ++step) {
      arch::Wgmma<T, T, kOthers>::template mma<false, false>(sums, Rows::template step<true>(rows, step, kStep),
                                                             Columns::template step<true>(columns, step, kStep),
                                                             step != 0);
    }
    arch::wgmma_commit();
  }
  template <class Columns, int kWidth, int kCount>
  static WMMA_DEVICE void add(float (&sums)[kCount], const uint32_t* words, uint64_t columns) {
#pragma unroll
    for (int step = 0; step < kOthers / kStep; ++step) {
      arch::WgmmaOfRows<T, kWidth>::template mma<true>(sums, words + step * 4,
                                                       Columns::template step<false>(columns, step, kStep), true);
    }
  }

  static WMMA_DEVICE float unit_of(float lse) {
    return lse == -Math::infinity() ? Math::infinity() : lse * Math::kUnit;
  }

  static WMMA_DEVICE void load_statistics(Rows& rows, const Arguments& p, const Place& place) {
#pragma unroll
    for (int i = 0; i < Link::kLaneRows; ++i) {
      uint32_t row = rows.first + Link::row(rows.lane, i);
      row = row < place.rows ? row : place.rows - 1;
      rows.lse[i] = unit_of(static_cast<const float*>(p.lse.data)[place.offset(p.lse, row)]);
      rows.delta[i] = static_cast<const float*>(p.delta.data)[place.offset(p.delta, row)];
    }
  }
  // A thread's of a tile of queries: lse of one, or delta. Beyond the last lse is +∞, so that weights are 0.
  static WMMA_DEVICE float statistic(const Arguments& p, const Place& place, const Visit& visit) {
    const int which = threadIdx.x % kGroupThreads;
    const bool is_lse = which < kOthers;
    const int line = is_lse ? which : which - kOthers;
    if (line >= visit.rows()) return is_lse ? Math::infinity() : 0.0f;
    const AttentionOperand& x = is_lse ? p.lse : p.delta;
    const float value = matrix_of<const float>(x, place.batch, visit.other_head)[(visit.at + line) * x.row_stride];
    return is_lse ? unit_of(value) : value;
  }
  static_assert(!kOwnsKeys || kStatistics == kGroupThreads, "a thread for each");

  template <bool kBounded>
  static WMMA_DEVICE void weigh(float (&weights)[kSums], const Arguments& p, const Rows& rows, const float* columns,
                                int at, int count) {
    const float factor = static_cast<float>(p.scale * static_cast<double>(Math::kUnit));
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      const int i = Link::row_of(f);
      const int other = static_cast<int>(Link::place(rows.lane, f));
      bool inside = true;
      if constexpr (kBounded) {
        const int row = rows.first + static_cast<int>(Link::row(rows.lane, i));
        const int query = kOwnsKeys ? at + other : row;
        const int key = kOwnsKeys ? row : at + other;
        inside = other < count && (!Config::kCausal || key <= query + p.shift);
      }
      const float weight = Math::exp(arch::fma(weights[f], factor, -(kOwnsKeys ? columns[other] : rows.lse[i])));
      weights[f] = inside ? weight : 0.0f;
    }
  }
  // A weight of 0 has no slope, whatever it is multiplied by.
  static WMMA_DEVICE void slope(float (&slopes)[kSums], const float (&weights)[kSums], const Rows& rows,
                                const float* columns) {
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      const int other = static_cast<int>(Link::place(rows.lane, f));
      slopes[f] = weights[f] * (slopes[f] - (kOwnsKeys ? columns[kOthers + other] : rows.delta[Link::row_of(f)]));
    }
  }
};

}  // namespace wmma
