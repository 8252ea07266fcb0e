// Gradients on sm_90a whose blocks own rows, of any head size to 256 and by any rules, for operands of 16 bits: what
// the kernel whose blocks own keys and add to the queries' (loops/warpgroup_gradients.hpp) has no registers or no rules
// for. Two consumer warpgroups, or one where two blocks are to share a unit, own 64 rows each, of the queries or of the
// keys, and go through tiles of 64 others, which come by the copy engine (TMA). A launch gives g_Q; or g_K, g_V, or
// both, as many as registers hold: what others give is multiplied again, and no block waits for another.
//
//   tile i     S │ g_P     │ g_V += weights·g_out │ g_Q or g_K += slopes·others
//   meanwhile    │ weights │ slopes               │ (the other warpgroup's)
//
// Of packed sequences a block has rows of one; the others behind that one's last are the next one's, and are cleared.
// Of a block mask the tiles come that it has.
//
// Nothing is under way from one tile to the next: where something was, ptxas waited for each product by itself.
#pragma once

#include <wmma/attention/gradients/elements.hpp>
#include <wmma/attention/gradients/lane_queries.hpp>
#include <wmma/attention/rows/varlen.hpp>
#include <wmma/attention/tiles/warpgroup_tiles.hpp>
#include <wmma/attention/weights.hpp>
#include <wmma/tile/chain.hpp>
#include <wmma/tile/warpgroup_product.hpp>

namespace wmma {

template <class Config>
struct WarpgroupOwners {
  using T = typename Config::Element;
  using Link = ChainLink<MatrixProduct<T, 16>>;  // a wave's 16 rows of a warpgroup's 64 are laid out as mma.sync's
  using Elements = GradientElements<Config, Link>;
  using Rules = typename Config::Rules;
  using Arguments = MappedArgumentsBy<Rules>;
  using Own = typename Elements::Arguments;  // what of these is there: not sequences, say
  using Of = Choose<Rules::kSequences, OneSequence<T, float, Rules>, NoSequence<Own>>;
  using Place = typename Elements::Place;
  using Passed = typename Elements::Passed;
  static constexpr bool kOwnsKeys = Config::kOwnsKeys;
  static constexpr bool kGivesFirst = Config::kGivesFirst;    // g_Q or g_K, by slopes
  static constexpr bool kGivesSecond = Config::kGivesSecond;  // g_V, by weights
  static_assert(kGivesFirst || kGivesSecond);
  static_assert(kOwnsKeys || !kGivesSecond, "values are with keys");
  static constexpr int kGroups = Config::kWaves / 4;
  static constexpr int kGroupThreads = 4 * arch::kWaveSize;
  static constexpr int kConsumers = kGroups * kGroupThreads;
  static constexpr int kThreads = kConsumers + kGroupThreads;
  static constexpr uint32_t kConsumerWaves = kConsumers / arch::kWaveSize;
  static constexpr int kLines = 64;  // of a warpgroup, of a tile, and of each box that the copy engine brings
  static constexpr int kBlockRows = kGroups * kLines;
  static constexpr int kOthers = Config::kOthers;
  static_assert(kOthers == kLines, "a box");
  static constexpr int kSums = kOthers / 2;  // of a lane's weights
  // What is known of the queries of a lane's sums.
  struct OwnQueries {
    const float* numbers;
    WMMA_DEVICE OwnQueries(const float*, const float* own, uint32_t) : numbers(own) {}
    WMMA_DEVICE void read() {}
    WMMA_DEVICE float operator()(int f) const { return numbers[Link::row_of(f)]; }
  };
  using Queries = Choose<kOwnsKeys, LaneQueries<Link, kSums>, OwnQueries>;
  static constexpr int kMeetings = 1;                                  // barriers of a warpgroup by itself
  static constexpr int kConsumerRegisters = kGroups == 1 ? 216 : 232;  // of half a unit's, or of all
  static constexpr int kOtherRegisters = 40;
  // Where a slope needs no more than the weight, weights are computed while g_P is multiplied.
  static constexpr bool kWeighsFirst = !Rules::kBends;
  // Where weights are what values are multiplied by, that is done while slopes are computed.
  // (Beside rules of scores registers are too few with wide heads: ptxas then waits for each product by itself.)
  static constexpr bool kAddsEarly = kGivesFirst && kGivesSecond && kWeighsFirst && !Rules::kDrops &&
                                     (Config::kDepth <= kLines || (kIsNone<typename Config::Mask> && !Rules::kScored));

  // 64 rows of queries or keys, and of g_out or values.
  using FirstTile = WarpgroupTile<kLines, Config::kDepth* static_cast<int>(sizeof(T))>;
  using SecondTile = WarpgroupTile<kLines, Config::kValueDepth* static_cast<int>(sizeof(T))>;
  static constexpr int kRowBytes = FirstTile::kBytes + (kGivesFirst ? SecondTile::kBytes : 0);  // of a warpgroup
  using Owned = TileQueue<1, kGroups * kRowBytes>;
  using First = TileQueue<Config::kFirstStages, FirstTile::kBytes>;
  using Second = TileQueue<Config::kSecondStages, SecondTile::kBytes>;
  using PassedQueue = TileQueue<Config::kFirstStages, Passed::kBytes>;

  static constexpr int kFirstStart = Owned::kBytes;
  static constexpr int kSecondStart = kFirstStart + First::kBytes;
  static constexpr int kPassedStart = kSecondStart + Second::kBytes;
  static constexpr int kOwnedBarriers = kPassedStart + PassedQueue::kBytes;
  static constexpr int kFirstBarriers = kOwnedBarriers + Owned::kBarrierBytes;
  static constexpr int kSecondBarriers = kFirstBarriers + First::kBarrierBytes;
  static constexpr int kPassedBarriers = kSecondBarriers + Second::kBarrierBytes;
  static constexpr int kSharedBytes = kPassedBarriers + PassedQueue::kBarrierBytes;

  struct Queues {
    Owned owned;
    First first;
    Second second;
    PassedQueue passed;
    WMMA_DEVICE explicit Queues(uint32_t start)
        : owned(start, start + kOwnedBarriers),
          first(start + kFirstStart, start + kFirstBarriers),
          second(start + kSecondStart, start + kSecondBarriers),
          passed(start + kPassedStart, start + kPassedBarriers) {}
  };

  // A block's rows, and the tiles of others that they meet, head by head.
  struct Work : Of {
    using Of::own;
    using Visit =
        Choose<Rules::kBlocks, BlockedVisit<kOwnsKeys, kBlockRows, kOthers, Rules>, OthersVisit<kOwnsKeys, kOthers>>;
    Place place;
    int first_row;
    OthersSpan<kOwnsKeys, Config::kCausal, Rules> span;
    int visits;

    WMMA_DEVICE explicit Work(const Arguments& p)
        : Of(p, Rules::kSequences ? static_cast<int>(uniform(Place(p, kBlockRows, Config::kSlice).batch)) : 0),
          place(own, kBlockRows, Config::kSlice),
          first_row(static_cast<int>(place.tile) * kBlockRows),
          span(own, place, first_row, kBlockRows, kOthers),
          visits((kOwnsKeys ? own.group : 1) * span.tiles(kOthers)) {}
    // There are blocks for as many tiles as the longest sequence may have.
    WMMA_DEVICE bool is_there() const { return !Rules::kSequences || first_row < static_cast<int>(place.rows); }
    WMMA_DEVICE Visit begin() const {
      return Visit{own, place, span.others, span.begin, span.end, first_row, lane_id()};
    }
    // Where in the tensors they lie.
    WMMA_DEVICE uint32_t own_row(uint32_t row) const { return kOwnsKeys ? Of::key(row) : Of::query(row); }
    WMMA_DEVICE uint32_t other_row(uint32_t row) const { return kOwnsKeys ? Of::query(row) : Of::key(row); }
  };

  // One that follows another of these fills the units that this leaves: all it reads was there before that began,
  // unless weights are corrected, by factors that the one of queries finds. It ends after it, for what comes next to
  // rely on.
  static WMMA_DEVICE void run(const Arguments& p) {
    static_assert(!Config::kFollows || !Elements::kCorrects, "it reads what it does not wait for");
    if constexpr (!Config::kFollows) arch::await_previous();
    arch::let_next_start();
    work(p);
    if constexpr (Config::kFollows) arch::await_previous();
  }

 private:
  static WMMA_DEVICE void work(const Arguments& p) {
    if constexpr (Rules::kSequences) {
      if (!Work(p).is_there()) return;
    }
    const uint32_t start = arch::shared_address(dynamic_shared<unsigned char>());
    const Queues queues(start);
    const uint32_t wave = uniform(threadIdx.x / arch::kWaveSize);
    if (threadIdx.x == kConsumers) {
      for (const TileMap* map : {&p.q_map, &p.k_map, &p.v_map, &p.g_out_map}) arch::prefetch_map(map);
      queues.owned.make(kConsumerWaves);
      queues.first.make(kConsumerWaves);
      queues.second.make(kConsumerWaves);
      // Of what lanes write and lanes read each arrives for itself.
      if constexpr (kOwnsKeys) queues.passed.make(kConsumers, arch::kWaveSize);
      arch::fence_barriers();
    }
    arch::block_barrier();
    if (wave < kConsumerWaves) {
      arch::take_registers<kConsumerRegisters>();
      consume(p, queues, arch::shuffle_word(wave / 4, 0));
    } else {
      arch::release_registers<kOtherRegisters>();
      if (Rules::kBlocks ? wave == kConsumerWaves : threadIdx.x == kConsumers) produce(p, queues);
      if (kOwnsKeys && wave == kConsumerWaves + 1) pass_tiles(p, queues);
    }
  }

  // --------------------------------------------------------------------------------------------- what brings tiles

  // By one thread; where there is a block mask its wave looks at that.
  static WMMA_DEVICE void produce(const Arguments& p, const Queues& queues) {
    const bool leads = !Rules::kBlocks || lane_id() == 0;
    const Work work(p);
    typename Work::Visit visit = work.begin();
    if (!visit.is_there(0, work.visits)) return;
    const typename Owned::Item owned(0);
    typename First::Item first(0);
    typename Second::Item second(0);
    const auto bring_owned = [&](auto tile, int offset, const AttentionOperand& x, const TileMap& map) {
#pragma unroll 1
      for (int group = 0; group < kGroups; ++group) {
        copy_tile<T, decltype(tile), kLines>(queues.owned.place(owned) + group * kRowBytes + offset,
                                             queues.owned.full(owned), x, map, work.place.batch, work.place.head,
                                             work.own_row(work.first_row + group * kLines));
      }
    };
    if (leads) {
      queues.owned.open(owned, kGroups * kRowBytes);
      bring_owned(FirstTile(), 0, kOwnsKeys ? p.k : p.q, kOwnsKeys ? p.k_map : p.q_map);
      if constexpr (kGivesFirst) {
        bring_owned(SecondTile(), FirstTile::kBytes, kOwnsKeys ? p.v : p.g_out, kOwnsKeys ? p.v_map : p.g_out_map);
      }
    }
#pragma unroll 1
    for (int i = 0; visit.is_there(i, work.visits); ++i, first.next(), second.next()) {
      if (leads) {
        const uint32_t row = work.other_row(visit.at);
        queues.first.open(first, FirstTile::kBytes);
        copy_tile<T, FirstTile, kLines>(queues.first.place(first), queues.first.full(first), kOwnsKeys ? p.q : p.k,
                                        kOwnsKeys ? p.q_map : p.k_map, work.place.batch, visit.other_head, row);
        queues.second.open(second, SecondTile::kBytes);
        copy_tile<T, SecondTile, kLines>(queues.second.place(second), queues.second.full(second),
                                         kOwnsKeys ? p.g_out : p.v, kOwnsKeys ? p.g_out_map : p.v_map, work.place.batch,
                                         visit.other_head, row);
      }
      visit.advance(work.span.end, work.span.begin);
    }
  }

  // The wave that passes lse, delta and dropout of queries to those that own keys.
  static WMMA_DEVICE void pass_tiles(const Arguments& p, const Queues& queues) {
    const Work work(p);
    typename Work::Visit visit = work.begin();
    typename PassedQueue::Item passed(0);
#pragma unroll 1
    for (int i = 0; visit.is_there(i, work.visits); ++i, passed.next()) {
      queues.passed.await_room(passed);
      Passed::template write<arch::kWaveSize>(passed_at(passed), work.own, work.place.batch, visit.other_head, visit.at,
                                              visit.rows(), lane_id());
      arch::barrier_arrive(queues.passed.full(passed), true);
      visit.advance(work.span.end, work.span.begin);
    }
  }
  static WMMA_DEVICE unsigned char* passed_at(const typename PassedQueue::Item& passed) {
    return dynamic_shared<unsigned char>() + kPassedStart + passed.stage() * Passed::kBytes;
  }

  // --------------------------------------------------------------------------------------------------- the warpgroups

  static WMMA_DEVICE void consume(const Arguments& p, const Queues& queues, uint32_t group) {
    const Work work(p);
    const Own& of_one = work.own;
    const uint32_t lane = lane_id();
    const int group_row = work.first_row + static_cast<int>(group) * kLines;
    const int first_row = group_row + static_cast<int>(threadIdx.x / arch::kWaveSize % 4) * Link::kRows;
    typename Elements::Rows rows{};
    if constexpr (!kOwnsKeys) rows.load(of_one, work.place, first_row, lane);
    float first_sums[1][kGivesFirst ? Config::kDepth / 2 : 1];
    float second_sums[1][kGivesSecond ? Config::kValueDepth / 2 : 1];
    clear(first_sums);
    clear(second_sums);

    typename Work::Visit visit = work.begin();
    if (visit.is_there(0, work.visits)) {
      const uint64_t own = FirstTile::operand(queues.owned.place(typename Owned::Item(0)) + group * kRowBytes);
      const uint64_t own_second =
          SecondTile::operand(queues.owned.place(typename Owned::Item(0)) + group * kRowBytes + FirstTile::kBytes);
      queues.owned.await(typename Owned::Item(0));
#pragma unroll 1
      for (uint32_t number = 0; visit.is_there(static_cast<int>(number), work.visits); ++number) {
        const typename First::Item first(number);
        const typename Second::Item second(number);
        const typename PassedQueue::Item passed(number);
        // 1. Scores, and g_P.
        float weights[kSums];
        float slopes[kSums];
        if constexpr (kOwnsKeys) queues.passed.await(passed);
        queues.first.await(first);
        queues.second.await(second);
        if constexpr (Rules::kSequences) {
          if (visit.rows() < kOthers) clear_others(first, second, visit.rows(), group);
        }
        arch::wgmma_fence();
        multiply_lines<T, FirstTile, FirstTile, Config::kColumns>(weights, own,
                                                                  FirstTile::operand(queues.first.place(first)));
        arch::wgmma_commit();
        // (What is read of shared memory waits there until products before it have begun: so before g_P.)
        const float* statistics = reinterpret_cast<const float*>(passed_at(passed));
        Queries lse(statistics, rows.lse, lane), delta(statistics + kOthers, rows.delta, lane);
        if constexpr (kWeighsFirst) lse.read();
        if constexpr (kGivesFirst) {
          arch::wgmma_fence();
          multiply_lines<T, SecondTile, SecondTile, Config::kValueColumns>(
              slopes, own_second, SecondTile::operand(queues.second.place(second)));
          arch::wgmma_commit();
        }
        bool whole = false;
        if constexpr (Rules::kBlocks) whole = visit.is_whole();
        const bool bounded =
            visit.rows() < kOthers || (Rules::kBlocks && Rules::kHides && !whole) ||
            is_bounded<kOwnsKeys, kLines, kOthers, typename Elements::Sight>(of_one, group_row, visit.at);
        const auto each = [&](auto how) {
          const auto by = [&](auto is_bounded) {
            const typename Elements::template Lane<decltype(is_bounded)::kIs> of(of_one, work.place, visit.other_head,
                                                                                 first_row, visit.at, visit.rows(),
                                                                                 whole, lane, passed_at(passed));
#pragma unroll
            for (int f = 0; f < kSums; ++f) how(of, f);
          };
          bounded ? by(Is<true>()) : by(Is<false>());
        };
        // 2. Weights, while g_P is multiplied where a slope needs no more than these.
        arch::wgmma_wait<kGivesFirst && kWeighsFirst ? 1 : 0>();
        hold_sums<kSums>(weights);
        if constexpr (!kWeighsFirst) lse.read();
        if constexpr (!kGivesFirst) queues.first.done(first);
        if constexpr (!kGivesFirst || kWeighsFirst) {
          each([&](const auto& of, int f) {
            typename Elements::Known known;
            weights[f] = of.weight(weights[f], lse(f), f, rows, known);
            if constexpr (!kGivesFirst) of.drop(weights[f], f, rows);
          });
        }
        // 3. g_V behind it, and slopes meanwhile; g_Q or g_K.
        if constexpr (kAddsEarly) add_weights(second_sums, weights, second, queues);
        if constexpr (kGivesFirst) {
          delta.read();
          if constexpr (kWeighsFirst) arch::wgmma_wait<kAddsEarly ? 1 : 0>();
          hold_sums<kSums>(slopes);
          if constexpr (!kGivesSecond) queues.second.done(second);
          each([&](const auto& of, int f) {
            typename Elements::Known known;
            if constexpr (kWeighsFirst) {
              known.inside = !of.kSelects || weights[f] != 0.0f;
            } else {
              weights[f] = of.weight(weights[f], lse(f), f, rows, known);
            }
            of.slope(weights[f], slopes[f], delta(f), f, rows, known);
          });
          uint32_t words[kSums / 2];
          pack_weights<T, kSums>(words, slopes);
          if constexpr (kGivesSecond && !kAddsEarly) add_weights(second_sums, weights, second, queues);
          arch::wgmma_fence();
          add_products<T, FirstTile, kOthers, Config::kDepth>(first_sums[0], words,
                                                              FirstTile::operand(queues.first.place(first)));
          arch::wgmma_commit();
        } else {
          add_weights(second_sums, weights, second, queues);
        }
        if constexpr (kOwnsKeys) arch::barrier_arrive(queues.passed.empty(passed), true);
        arch::wgmma_wait<0>();
        if constexpr (kGivesFirst) {
          hold_sums<Config::kDepth / 2>(first_sums[0]);
          queues.first.done(first);
        }
        if constexpr (kGivesSecond) {
          hold_sums<Config::kValueDepth / 2>(second_sums[0]);
          queues.second.done(second);
        }
        visit.advance(work.span.end, work.span.begin);
      }
    }

    if constexpr (Elements::kCorrects && !kOwnsKeys) {
      Elements::correct(first_sums[0], rows, of_one, work.place, first_row, lane);
    }
    if constexpr (kGivesFirst) {
      store_gradient<Link, Config::kOutVec>(first_sums, kOwnsKeys ? of_one.g_k : of_one.g_q, of_one.e,
                                            static_cast<float>(of_one.scale), work.place, first_row, 0, lane);
    }
    if constexpr (kGivesSecond) {
      store_gradient<Link, Config::kOutVec>(second_sums, of_one.g_v, of_one.ev, 1.0f, work.place, first_row, 0, lane);
    }
  }

  // What weights of 0 are multiplied by, which may be no numbers. By each warpgroup for itself.
  static WMMA_DEVICE void clear_others(const typename First::Item& first, const typename Second::Item& second,
                                       int there, uint32_t group) {
    unsigned char* shared = dynamic_shared<unsigned char>();
    const uint32_t thread = threadIdx.x % kGroupThreads;
    if constexpr (kGivesFirst) {
      clear_lines<FirstTile, kGroupThreads>(shared + kFirstStart + first.stage() * FirstTile::kBytes, there, thread);
    }
    if constexpr (kGivesSecond) {
      clear_lines<SecondTile, kGroupThreads>(shared + kSecondStart + second.stage() * SecondTile::kBytes, there,
                                             thread);
    }
    arch::barrier_meet<kGroupThreads>(kMeetings + static_cast<int>(group));
  }

  template <int kCount>
  static WMMA_DEVICE void add_weights(float (&sums)[1][kCount], const float (&weights)[kSums],
                                      const typename Second::Item& second, const Queues& queues) {
    uint32_t words[kSums / 2];
    pack_weights<T, kSums>(words, weights);
    arch::wgmma_fence();
    add_products<T, SecondTile, kOthers, Config::kValueDepth>(sums[0], words,
                                                              SecondTile::operand(queues.second.place(second)));
    arch::wgmma_commit();
  }

  template <bool kValue>
  struct Is {
    static constexpr bool kIs = kValue;
  };
};

}  // namespace wmma
