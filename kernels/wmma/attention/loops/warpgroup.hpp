// The forward loop of sm_90a: a producer warp and one to three consumer warpgroups of 64 rows each, persistent blocks.
//
//   producer    for each tile of rows its queries, then tile by tile keys and values, by the copy engine (TMA), as far
//               ahead as queues have places: it waits for a place to be empty, consumers for it to be full
//   consumer    Q·K(0)  weights(0)  Q·K(1), P·V(0)   weights(1)  Q·K(2), P·V(1) …
//                                   └ both under way; weights(1) start as soon as Q·K(1) is done
//
// Consumers take turns at the matrix unit, ordered by named barriers (ping-pong): one computes weights while others
// multiply. The producer releases registers to them. Operands have 16 bits, or 8, with values transposed before
// (passes/transpose.hpp), or both: then one more warpgroup widens keys and values in between (tiles/widened_tiles.hpp).
#pragma once

#include <wmma/attention/softmax.hpp>
#include <wmma/attention/terms/hidden.hpp>
#include <wmma/attention/terms/row_mask.hpp>
#include <wmma/attention/tiles/warpgroup_tiles.hpp>
#include <wmma/attention/weights.hpp>
#include <wmma/tile/box_store.hpp>

namespace wmma {

template <class Config>
struct WarpgroupAttention : WarpgroupTiles<Config> {
  using Tiles = WarpgroupTiles<Config>;
  using Rules = typename Config::Rules;
  using typename Tiles::Arguments;
  using Element = typename Config::Element;
  using T = typename Tiles::T;  // of what is multiplied
  using Tiles::kConsumers;
  using Tiles::kGroupRows;
  using Tiles::kGroups;
  using Tiles::kGroupThreads;
  using Tiles::kKeys;
  using Tiles::kMappedOut;
  using Tiles::kPacked;
  using Tiles::kTransposed;
  using Tiles::kWidens;
  using typename Tiles::Keys;
  using typename Tiles::KeyTile;
  using typename Tiles::Place;
  using typename Tiles::Queries;
  using typename Tiles::QueryTile;
  using typename Tiles::ResultTile;
  using typename Tiles::Values;
  using typename Tiles::ValueTile;
  using Link = ChainLink<MatrixProduct<Element, 16>>;  // a wave's 16 rows of a warpgroup's 64 lie as mma.sync's do
  static constexpr int kSums = kKeys / 2;              // of a lane's scores
  static constexpr int kOutSums = Config::kSlice / 2;
  // Whether any row's results change: fewer are quicker multiplied.
  static constexpr bool kAsksFirst = kOutSums > 64 || Rules::kCapped || kTransposed;
  // Of 8 bits the unit does not sum up exactly enough for all keys: a tile's results are added to those of the others.
  // Together with that these follow, where registers are there for the factors.
  static constexpr bool kFollowsLater = kTransposed && !(kGroups == 3 && Config::kCausal);
  static constexpr int kStep = 32 / sizeof(T);  // of what is summed up, that one product takes
  static constexpr int kSteps = (Config::kColumns + kStep - 1) / kStep;
  static constexpr int kValueSteps = kKeys / kStep;
  // Few rows wait for memory, from where their instructions come as well: a loop for tiles without bounds costs more
  // than it saves, and time to compile.
  static constexpr bool kBoundsAll = Config::kSplit;
  // Of one block a unit there are enough registers for all.
  static constexpr bool kReleasesRegisters = kGroups > 1 || kWidens || Config::kOccupancy > 1;
  static constexpr bool kProducerLooks = Tiles::kBalanced || Tiles::kBlocks;  // at more than it loads
  static constexpr bool kProducerFindsPages =
      Tiles::kPageSize > 0 && kOutSums <= 64;  // wider results need the registers
  static constexpr int kConsumerRegisters = Config::kOccupancy > 1 ? (kProducerFindsPages ? 200 : 208)
                                            : kWidens              ? (kGroups == 1 ? 248 : 200)
                                            : kGroups == 3         ? 160
                                            : kProducerFindsPages  ? 224
                                            : kProducerLooks       ? 232
                                                                   : 240;
  // What is left for the others of all that the block has when it starts: nobody could take more.
  static constexpr int kWarpgroups = Tiles::kThreads / kGroupThreads;
  static constexpr int kStartRegisters = 65536 / Config::kOccupancy / Tiles::kThreads / 8 * 8 * kWarpgroups;
  static_assert(Config::kOccupancy == 1 || (kGroups == 1 && !kWidens), "no registers are left for more");
  static constexpr int kProducerRegisters =
      (kStartRegisters - kGroups * kConsumerRegisters) / (kWarpgroups - kGroups) / 8 * 8;

  using OfMask = Choose<Config::kMaskInPairs, MaskPairs<typename Config::Mask, Link, kKeys>,
                        MaskRows<typename Config::Mask, Link::kLaneRows>>;
  using Mask = RowMask<Config, Link, float, true, OfMask>;
  using Hides = HiddenKeys<Config::kHidden, Link, kKeys>;
  using Softmax = RunningSoftmax<Config, Link, Products::kUnderWay>;

  static WMMA_DEVICE void run(const Arguments& p) {
    if constexpr (Config::kSplit || Tiles::kSplitsLast) arch::let_next_start();
    const uint32_t start = arch::shared_address(dynamic_shared<unsigned char>());
    const uint32_t wave = uniform(threadIdx.x / arch::kWaveSize);
    const bool produces = threadIdx.x == kConsumers;
    if (produces) {
      arch::prefetch_map(&p.q_map);
      arch::prefetch_map(&p.k_map);
      arch::prefetch_map(&p.v_map);
      if constexpr (kMappedOut) arch::prefetch_map(&p.out_map);
    }
    constexpr uint32_t kProducer = kConsumers / arch::kWaveSize;
    if (wave == kProducer) {
      const uint32_t lane = lane_id();
#pragma unroll
      for (int group = 0; group < kGroups; ++group)
        Tiles::queries_of(start, group).make_by_wave(lane, kGroupThreads / arch::kWaveSize);
      constexpr uint32_t kBringers = kWidens ? Tiles::kWideners : 1;
      Tiles::keys_at(start).make_by_wave(lane, kConsumers / arch::kWaveSize, kBringers);
      Tiles::values_at(start).make_by_wave(lane, kConsumers / arch::kWaveSize, kBringers);
      if constexpr (kWidens) Tiles::narrow_at(start).make_by_wave(lane, kBringers);
      arch::fence_barriers();
    }
    if (wave > kProducer && !kWidens) {  // nobody waits for those that have nothing to do with the queues
      arch::barrier_pass<Tiles::kThreads>(kMade);
    } else {
      arch::barrier_meet<Tiles::kThreads>(kMade);
    }
    if (wave >= kProducer) {
      if constexpr (kReleasesRegisters) arch::release_registers<kProducerRegisters>();
      if (wave == kProducer) {
        if (Tiles::kProducesByWave || produces) Tiles::produce(p, start);
      } else if constexpr (Tiles::kSequences && (kWidens || !Tiles::kBalanced)) {
        if (!Tiles::kBalanced && wave == kProducer + 1) Tiles::prefetch_places(p);
        if constexpr (Config::kFillsRest) {
          constexpr uint32_t kFirst = (kProducer + 2) * arch::kWaveSize;
          if (threadIdx.x >= kFirst) Tiles::fill_rest(p, threadIdx.x - kFirst);
        }
        if constexpr (kWidens) Tiles::widen(start, wave - kProducer - 1);
      }
    } else {
      if constexpr (kReleasesRegisters) arch::take_registers<kConsumerRegisters>();
      // One for all lanes as the compiler knows it too, which takes none of their registers.
      const uint32_t of_group = kTransposed ? arch::shuffle_word(wave % 4, 0) : wave % 4;
      consume(p, start, arch::shuffle_word(wave / 4, 0), of_group);
    }
  }

 private:
  // Those of the block's tiles of keys that a warpgroup's own rows look at.
  struct Span {
    static constexpr bool kBounds = Tiles::kBlockRows >= kKeys && (Config::kCausal || Tiles::kWindowed);
    static constexpr bool kOwn = !kPacked && !Tiles::kBlocks && (kBounds || Tiles::kSequences);
    int begin;
    int end;
    int whole_begin;  // as the block's
    int whole;

    WMMA_DEVICE Span(const typename Tiles::Work& work, const Place& place, uint32_t group)
        : begin(work.begin), end(work.end), whole_begin(work.whole_begin), whole(work.whole) {
      if constexpr (kOwn) {
        const uint32_t first = work.first_row + group * kGroupRows;
        if (Tiles::kSequences && first >= place.rows) {
          end = begin;
        } else {
          Tiles::bound(*this, work.own, place, first < place.rows ? first : place.rows - 1, first + kGroupRows);
        }
      }
    }
  };

  // Whether a first tile of which rows see no more than half is multiplied to there only.
  static constexpr bool kHalves = Span::kOwn && Config::kCausal && kKeys == 128 && !kTransposed && !Config::kSplit;

  // What a warpgroup goes through the tiles with.
  struct Consumer {
    Keys keys;
    Values values;
    typename Keys::Item key{0};
    typename Values::Item value{0};
    uint32_t group;
    uint32_t lane;
    float factor;  // of the scores
    bool once;     // rows look once at their scores
    uint64_t queries = 0;
    uint32_t weights[kValueSteps * 4];
    Softmax rows;
    Hides hides;
    float part[kTransposed ? kOutSums : 1];  // a tile's results
    float factors[Link::kLaneRows];          // of the others when it is added

    WMMA_DEVICE Consumer(const Arguments& p, uint32_t start, uint32_t at_group, float at_factor)
        : keys(Tiles::keys_at(start)),
          values(Tiles::values_at(start)),
          group(at_group),
          lane(lane_id()),
          factor(at_factor),
          once(Softmax::looks_once(p)) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) factors[i] = 1.0f;
    }
  };

  static WMMA_DEVICE void consume(const Arguments& p, uint32_t start, uint32_t group, uint32_t wave) {
    const ScoreScale<float, SoftmaxOf<Config, float>> scale(p.scale);
    const Queries queries = Tiles::queries_of(start, group);
    Consumer x(p, start, group, scale.factor);
    typename Queries::Item query(0);
    typename Queries::Item before(0);  // whose place is not given back yet
    bool is_kept = false;
    const auto give_back = [&] {
      if (!is_kept) return;
      if (x.lane == 0) arch::await_stores_read<0>();
      queries.done(before);
      is_kept = false;
    };
    for (int other = group - 1; other >= 0; --other) arch::barrier_pass<kConsumers>(kTurns + other);
    const auto consume_tile = [&](const typename Tiles::Work& work, uint32_t index) {
      if (!work.is_there()) return;
      const uint32_t first_row = first_row_of(work, group, wave);
      const Place place = place_of(work, group);
      float sign = scale.sign;
      if constexpr (Rules::kScaled || kWidens) {
        const ScoreScale<float, SoftmaxOf<Config, float>> own(scale_of_one(p, work, place));
        x.factor = own.factor;
        sign = own.sign;
      }
      x.rows.clear(score_unit<Config>(CapOf<Config>(p, false), x.factor));
      if constexpr (Rules::kSinks) {
        if (work.part.split == 0) x.rows.begin_with_sinks(work.own, place, first_row, x.lane);
      }
      if (work.tiles > 0) {
        // 1. The queries.
        if constexpr (!Tiles::kBalanced) queries.await(query);
        if (sign != 1.0f) {
          multiply_queries(dynamic_shared<unsigned char>() + (queries.place(query) - start), sign, group);
        }
        x.queries = QueryTile::operand(queries.place(query));
        Mask mask(work.own, place, x.lane, first_row, work.end);
        x.hides.begin(p, place, first_row, x.lane);
        // 2. The tiles; those whose every key counts for every row come last, but for those where a window begins.
        const Span span(work, place, group);
        float scores[1][kSums];
        int key = work.last;
        if constexpr (Span::kOwn) {
          for (; key >= span.end && key >= work.begin; key -= kKeys) pass(x);
        }
        if constexpr (Tiles::kBlocks) {
          typename Tiles::Present present = work.present;
          mask.whole = present.is_whole(key);
          first_step(p, x, scores, mask, key);
          if constexpr (Tiles::kSequences && !kWidens) clear_values(x, start, work.own.skv - key);
          give_back();
          for (;;) {
            key = present.last(key - kKeys, work.begin);
            if (key < work.begin) break;
            mask.whole = present.is_whole(key);
            if (key >= span.whole || key < span.whole_begin || (Rules::kHides && !mask.whole)) {
              step<true>(p, x, scores, mask, key);
            } else {
              step<false>(p, x, scores, mask, key);
            }
          }
          last_values(x);
        } else if (!Span::kOwn || key >= span.begin) {
          const bool is_half = kHalves && span.end - key <= kKeys / 2;
          if constexpr (kHalves) {
            float half[1][kSums / 2];
            if (is_half) first_step(p, x, half, mask, key);
          }
          if (!is_half) first_step(p, x, scores, mask, key);
          if constexpr (Tiles::kSequences && !kWidens) clear_values(x, start, work.own.skv - key);
          give_back();
          key -= kKeys;
          for (; key >= span.begin && (kBoundsAll || key >= span.whole); key -= kKeys)
            step<true>(p, x, scores, mask, key);
          if constexpr (!kBoundsAll) {
            for (; key >= span.whole_begin; key -= kKeys) step<false>(p, x, scores, mask, key);
            if constexpr (Tiles::kWindowed) {
              for (; key >= span.begin; key -= kKeys) step<true>(p, x, scores, mask, key);
            }
          }
          last_values(x);
        }
        if constexpr (Span::kOwn) {
          for (; key >= work.begin; key -= kKeys) pass(x);
          give_back();
        }
      }
      // 3. The results. Where a sequence's belong is found anew: to know it all the while takes registers.
      const uint32_t box = queries.place(query) + wave * ResultBox::kBytes;
      if constexpr (Tiles::kBalanced) {
        finish(p, x, typename Tiles::Work(p, Tiles::listed_to(query, group)), wave, box);
      } else if constexpr (Tiles::kSequences) {
        arch::hold(index);
        finish(p, x, typename Tiles::Work(p, index, work.part.split), wave, box);
      } else {
        finish(p, x, work, wave, box);
      }
      if (Tiles::kBalanced || work.tiles > 0) {
        if (work.tiles == 0) give_back();
        before = query;
        is_kept = true;
        if constexpr (Config::kQueryStages == 1) give_back();
        query.next();
      }
    };
    if constexpr (Tiles::kBalanced) {
      for (;;) {
        queries.await(query);
        const ListedTile tile = Tiles::listed_to(query, group);
        if (tile.queries.length == 0) break;
        consume_tile(typename Tiles::Work(p, tile), 0);
      }
    } else {
      for (typename Tiles::Walk walk(p); walk.more(); walk.next()) {
        if (walk.is_there()) Tiles::each_part(p, walk.index(), consume_tile);
      }
    }
    if (x.lane == 0) arch::await_stores_read<0>();
  }

  // Of scores, where heads have scales of their own.
  static WMMA_DEVICE double scale_of_one(const Arguments& p, const typename Tiles::Work& work, const Place& place) {
    if constexpr (kWidens) {
      return work.own.scale;
    } else {
      return scale_of_scores(p, place);
    }
  }

  static WMMA_DEVICE uint32_t first_row_of(const typename Tiles::Work& work, uint32_t group, uint32_t wave) {
    return work.first_row + group * kGroupRows + wave * 16;
  }
  // With the warpgroup's own rows.
  static WMMA_DEVICE Place place_of(const typename Tiles::Work& work, uint32_t group) {
    Place place = work.place;
    if constexpr (kPacked) {
      const uint32_t after = work.first_row + (group + 1) * kGroupRows;
      place.rows = after < place.rows ? after : place.rows;
    }
    return place;
  }

  // ---- ping-pong at the matrix unit: who has issued its products lets the others issue theirs

  // Barriers. From the first one on nobody meets as a block: waves have left.
  static constexpr int kMade = 0;  // the queues are there
  static constexpr int kTurns = 1;
  static constexpr int kMeetings = kTurns + kGroups;
  static WMMA_DEVICE void begin_phase(const Consumer& x) {
    if constexpr (kGroups > 1) arch::barrier_meet<kConsumers>(kTurns + x.group);
  }
  static WMMA_DEVICE void end_phase(const Consumer& x) {
#pragma unroll
    for (int i = 1; i < kGroups; ++i) arch::barrier_pass<kConsumers>(kTurns + (x.group + i) % kGroups);
  }

  // Of the tile's first keys, as many as there are scores for.
  template <int kCount>
  static WMMA_DEVICE void first_step(const Arguments& p, Consumer& x, float (&scores)[1][kCount], Mask& mask, int key) {
    x.hides.ask(p, key);
    mask.ask(key);
    x.keys.await(x.key);
    begin_phase(x);
    multiply_keys(x, scores[0]);
    end_phase(x);
    keys_are_in<0>(x, scores[0]);
    weigh<true, true>(x, scores, mask, key);
  }

  // A tile whose keys none of its rows looks at.
  static WMMA_DEVICE void pass(Consumer& x) {
    x.keys.await(x.key);
    x.values.await(x.value);
    begin_phase(x);
    end_phase(x);
    x.keys.done(x.key);
    x.key.next();
    x.values.done(x.value);
    x.value.next();
  }

  // The scores of the tile before it are weights; afterwards its own are.
  template <bool kBounded>
  static WMMA_DEVICE void step(const Arguments& p, Consumer& x, float (&scores)[1][kSums], Mask& mask, int key) {
    x.hides.ask(p, key);
    mask.ask(key);
    x.keys.await(x.key);
    begin_phase(x);
    multiply_keys(x, scores[0]);
    x.values.await(x.value);
    multiply_values(x);
    end_phase(x);
    keys_are_in<1>(x, scores[0]);
    weigh<kBounded, false>(x, scores, mask, key);
  }

  static WMMA_DEVICE void last_values(Consumer& x) {
    x.values.await(x.value);
    multiply_values(x);
    values_are_in(x);
  }

  template <int kCount>
  static WMMA_DEVICE void multiply_keys(const Consumer& x, float (&scores)[kCount]) {
    const uint64_t keys = KeyTile::operand(x.keys.place(x.key));
    arch::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      arch::Wgmma<T, T, 2 * kCount>::template mma<false, false>(
          scores, QueryTile::template step<true>(x.queries, step, kStep),
          KeyTile::template step<true>(keys, step, kStep), step != 0);
    }
    arch::wgmma_commit();
  }

  static WMMA_DEVICE void multiply_values(Consumer& x) {
    const uint64_t values = ValueTile::operand(x.values.place(x.value));
    arch::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kValueSteps; ++step) {
      if constexpr (kTransposed) {
        arch::WgmmaOfRows<T, Config::kSlice>::template mma<false>(
            x.part, x.weights + step * 4, ValueTile::template step<true>(values, step, kStep), step != 0);
        continue;
      }
      arch::WgmmaOfRows<T, Config::kSlice>::template mma<true>(
          x.rows.out[0], x.weights + step * 4, ValueTile::template step<false>(values, step, kStep), true);
    }
    arch::wgmma_commit();
  }

  // kUnderWay: products that were asked for later.
  template <int kUnderWay, int kCount>
  static WMMA_DEVICE void keys_are_in(Consumer& x, float (&scores)[kCount]) {
    arch::wgmma_wait<kUnderWay>();
    hold_sums<kCount>(scores);
    x.keys.done(x.key);
    x.key.next();
  }

  static WMMA_DEVICE void values_are_in(Consumer& x) {
    arch::wgmma_wait<0>();
    if constexpr (kTransposed) {
      hold_sums<kOutSums>(x.part);
      x.rows.add(x.part, x.factors);
    } else {
      hold_sums<kOutSums>(x.rows.out[0]);
    }
    x.values.done(x.value);
    x.value.next();
  }

  // Scores become weights, while the products of the weights before them are under way; then results follow the
  // largest score, and the weights are where those before were. kFirst: there are none before.
  template <bool kBounded, bool kFirst, int kCount>
  static WMMA_DEVICE void weigh(Consumer& x, float (&scores)[1][kCount], Mask& mask, int key) {
    const float factor = Softmax::template mask<kBounded>(scores, mask, key, x.lane, x.factor);
    x.hides.hide(scores[0], key);
    float factors[Link::kLaneRows];
    x.rows.look(scores[0], factor, factors, x.once);
    x.rows.exponentiate(scores[0], factor);
    if constexpr (Rules::kDrops) mask.template drop<kCount>(scores[0], 0, key, x.lane);
    if constexpr (!kFirst) values_are_in(x);
    if constexpr (kFollowsLater) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) x.factors[i] = factors[i];
    } else if constexpr (!kFirst) {
      const bool changes = factors[0] != 1.0f || factors[1] != 1.0f;
      if (!kAsksFirst || arch::ballot(changes) != 0) x.rows.rescale(factors);
    }
    if constexpr (kTransposed) {
      pack_narrow_weights<kCount>(x.weights, scores[0]);
    } else {
      pack_weights<Element, kCount>(x.weights, scores[0]);
#pragma unroll
      for (int i = kCount / 2; i < kSums / 2; ++i) x.weights[i] = 0;  // of keys that were not looked at
    }
  }

  // ---- queries and results

  // For scales that are not above 0, of which a product with the others cannot tell.
  static WMMA_DEVICE void multiply_queries(unsigned char* tile, float sign, uint32_t group) {
    for (uint32_t at = threadIdx.x % kGroupThreads * 16; at < QueryTile::kBytes; at += kGroupThreads * 16) {
      constexpr int kCount = 16 / sizeof(T);
      alignas(16) T values[kCount];
      arch::copy<kCount>(values, reinterpret_cast<const T*>(tile + at));
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] = convert<T>(convert<float>(values[i]) * sign);
      arch::copy<kCount>(reinterpret_cast<T*>(tile + at), values);
    }
    arch::fence_matrix_unit();
    arch::barrier_meet<kGroupThreads>(kMeetings + group);
  }

  // Of a sequence's last tile, of which `there` keys are its own, or more than that: the values behind these in the
  // same part, which are another's, count for nothing, but what is not a number would count as that.
  static WMMA_DEVICE void clear_values(Consumer& x, uint32_t start, int there) {
    if (there >= kKeys || there % Tiles::kPartLines == 0) return;
    x.values.await(x.value);
    unsigned char* tile = dynamic_shared<unsigned char>() + (x.values.place(x.value) - start);
    const int after = (there / Tiles::kPartLines + 1) * Tiles::kPartLines;
    clear_lines<ValueTile, kGroupThreads>(tile, there, threadIdx.x % kGroupThreads, after);
    arch::barrier_meet<kGroupThreads>(kMeetings + x.group);
  }

  static WMMA_DEVICE void finish(const Arguments& p, Consumer& x, const typename Tiles::Work& work, uint32_t wave,
                                 uint32_t box) {
    const uint32_t first_row = first_row_of(work, x.group, wave);
    const Place place = place_of(work, x.group);
    if constexpr (!Rules::kScaled && !kWidens) {
      x.rows.know(
          score_unit<Config>(CapOf<Config>(p, false), ScoreScale<float, SoftmaxOf<Config, float>>(p.scale).factor));
    }
    if constexpr (Rules::kDrops) x.rows.multiply(static_cast<float>(p.rules.kept));
    if constexpr (Rules::kScaled || kWidens) x.rows.multiply(scale_of_values(p, place));
    if constexpr (Tiles::kFolds) {
      float* kept = static_cast<float*>(p.partial) + static_cast<int64_t>(blockIdx.x) * kConsumers * kOutSums;
      const bool is_last = work.part.split + 1 == work.parts;
      x.rows.fold(p, kept + threadIdx.x, kConsumers, work.part.split == 0, is_last);
      if (!is_last) return;
    }
    if constexpr (Config::kSplit) {
      x.rows.store_partial(work.own, place, work.part.split, first_row, x.lane);
    } else if (Tiles::kSplitsLast && work.part.is_part) {
      x.rows.store_parts_of_rows(work.own, place, first_row, x.lane, [&](uint32_t row) {
        return last_row<Tiles::kBlockRows>(p, work.part, row - work.first_row);
      });
    } else if (kMappedOut && work.tiles > 0) {
      // By way of the queries' lines, which none of the warpgroup reads any more once all meet; where a sequence ends
      // among a wave's rows, a box would have rows of a neighbour.
      const bool in_boxes = !Tiles::kSequences || first_row + 16 <= place.rows;
      if (in_boxes) x.rows.divide(work.own, place, first_row, x.lane);
      arch::barrier_meet<kGroupThreads>(kMeetings + x.group);
      if (in_boxes) {
        store(p, x, work, place, first_row, box);
      } else {
        x.rows.store(work.own, place, first_row, x.lane);
      }
    } else {
      x.rows.store(work.own, place, first_row, x.lane);
    }
  }

  // A wave's results, divided, by way of its queries' lines.
  static WMMA_DEVICE void store(const Arguments& p, Consumer& x, const typename Tiles::Work& work, const Place& place,
                                uint32_t first_row, uint32_t own) {
#pragma unroll
    for (int box = 0; box < ResultTile::kBoxes; ++box) {
      const ResultBox to(own + box * QueryTile::kBoxBytes, x.lane);
#pragma unroll
      for (int step = 0; step < ResultBox::kSteps; ++step) {
        const float* sums = x.rows.out[0] + (box * ResultBox::kSteps + step) * 8;
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = rounded_pair<Element>(sums[i * 2], sums[i * 2 + 1]);
        to.write(step, words);
      }
    }
    arch::fence_matrix_unit();
    arch::wave_barrier();
    if (x.lane == 0 && first_row < place.rows) {
#pragma unroll
      for (int box = 0; box < ResultTile::kBoxes; ++box) {
        int32_t at[4];
        box_coordinates<Element>(at, p.out, place.batch, place.head, work.query(first_row), box);
        arch::store_box<4>(own + box * QueryTile::kBoxBytes, &p.out_map, at);
      }
      arch::commit_stores();
    }
  }
};

}  // namespace wmma
