// Gradients on CDNA where a wave has a SIMD and all its registers to itself: the weights of a tile are computed between
// the products of its neighbours, which the matrix unit runs meanwhile. A wave owns rows of queries or of keys, in
// registers, and goes through tiles of the other side, all waves of the block at the same tile. A round has two phases:
//
//   phase             products                       beside them
//   scores of t       S, g_P: rows of t              weights of t; g_S(t−1); rows t−1 are stored transposed
//   results of t−1    P, g_S times rows transposed   weights of t; rows t+1 are stored
//
// Rows are loaded to registers one round before they are stored. A barrier ends each phase; operands of products are
// read from shared memory a few products ahead, so a phase's last are in registers when its barrier comes, and the next
// phase's first are read right behind it. gradients/interleaved_groups.hpp says what stands beside which product.
//
// kAsync (gfx950): rows t+1 are copied straight to shared memory during the scores of t, and transposed as they are
// read; nothing is stored.
//
// kStoresDq, of blocks that own keys: g_S(t−1) goes to shared memory too. Its product with the keys, a partial dQ of
// t−1 (gradients/dq_partials.hpp), is computed among the products of g_K and added to memory during g_P of t+1 and
// later.
#pragma once

#include <wmma/attention/gradients/dq_partials.hpp>
#include <wmma/attention/gradients/interleaved_direct.hpp>
#include <wmma/attention/gradients/interleaved_staged.hpp>
#include <wmma/attention/gradients/interleaved_weights.hpp>
#include <wmma/attention/gradients/tiles.hpp>
#include <wmma/attention/rows/registers.hpp>

namespace wmma {

template <bool kDirect, class Config, class Link, int kDepth, bool kTurns>
struct OtherRows {
  using Type = RowsAhead<Config, Link, kDepth, kTurns>;
  using Places = None;
};
template <class Config, class Link, int kDepth, bool kTurns>
struct OtherRows<true, Config, Link, kDepth, kTurns> {
  using Type = RowsDirect<Config, Link, kDepth>;
  using Places = PlacesInTurn;
};

template <class Config>
class InterleavedGradients {
  using Groups = InterleavedGroups<Config>;
  using T = typename Config::Element;
  using Link = typename Groups::Link;
  using Number = typename Groups::Number;
  using Place = GradientPlace<Config::kOwnsKeys>;
  using Tiles = GradientTiles<Config, Number>;
  using Span = typename Tiles::Span;
  static constexpr bool kOwnsKeys = Config::kOwnsKeys;
  static constexpr int kTilesM = Groups::kTilesM;
  static constexpr int kBlockRows = Groups::kBlockRows;

  static constexpr bool kDirect = Config::kAsync;
  using FirstRows = OtherRows<kDirect, Config, Link, Config::kDepth, true>;
  using First = typename FirstRows::Type;
  using Second = typename OtherRows<kDirect, Config, Link, Config::kValueDepth, kOwnsKeys>::Type;
  using Weights = InterleavedWeights<Config>;
  using DqQueue = Choose<Config::kStoresDq, DqPartials<Config>, NoDqPartials>;
  static constexpr int kStatisticsStart = First::kBytes + Second::kBytes;
  static constexpr int kDqStart = kStatisticsStart + Config::kWaves * Weights::kStatisticsBytes;
  static_assert(!Config::kStoresDq || kOwnsKeys, "keys store dQ partials");

 public:
  using Arguments = typename Config::Rules::Arguments;
  static constexpr int kThreads = Groups::kThreads;
  static constexpr int kSharedBytes = kDqStart + DqQueue::kBytes;

  static WMMA_DEVICE void run(const Arguments& p) {
    unsigned char* shared = dynamic_shared<unsigned char>();
    const uint32_t wave = uniform(threadIdx.x / arch::kWaveSize);
    const Place place(p, kBlockRows, Config::kSlice);
    const int first_row = static_cast<int>(place.tile) * kBlockRows;
    const int wave_row = first_row + static_cast<int>(wave) * Groups::kWaveRows;
    InterleavedGradients self(p, place, shared, wave, wave_row);
    // 1. The owned rows.
    self.load_rows(place, wave_row);
    if constexpr (Config::kStoresDq) {
      static_assert(DqQueue::kBytesOfKeys <= kSharedBytes, "they fit for a while");
      self.dq_.load_keys(p, place, first_row, shared, self.lane_);
    }
    [[maybe_unused]] uint64_t flag = 0;  // in vector registers, of which there are enough
    if constexpr (Config::kFixed) {
      static_assert(kTilesM == 1, "a lane has a key");
      const FixedPlaces<Config::kOthers * Config::kDepth> places(p);
      const uint32_t head = place.batch * (p.heads / p.group) + place.head;
      flag = arch::unshared(reinterpret_cast<uint64_t>(places.flags + head * 4));
      fixed::mark_queries<Config, Link::kRows>(p, place, self.rows_[0], wave_row, self.lane_);
    }
    // 2. The others that they meet, head by head.
    const Span span(p, place, first_row, kBlockRows, Groups::kOthers);
    const int count = (kOwnsKeys ? p.group : 1) * span.tiles(Groups::kOthers);
    if (count > 0) self.meet(Tiles(p, place, span, count), count);
    // 3. The results.
    if constexpr (Config::kFixed) {
      fixed::mark_infinite(self.first_[0], flag);
    }
    store_gradients<Link, Config>(self.first_, self.second_, p, static_cast<Number>(p.scale), place, wave_row, 0,
                                  self.lane_);
  }

 private:
  WMMA_DEVICE InterleavedGradients(const Arguments& p, const Place& place, unsigned char* shared, uint32_t wave,
                                   int wave_row)
      : p_(p),
        lane_(lane_id()),
        weights_(p, place, shared + kStatisticsStart + wave * Weights::kStatisticsBytes, lane_, wave_row),
        dq_(shared + kDqStart, wave, lane_),
        firsts_(Tiles::firsts_of(p), shared, threadIdx.x, lane_),
        seconds_(Tiles::seconds_of(p), shared + First::kBytes, threadIdx.x, lane_) {
    clear(first_);
    clear(second_);
  }

  WMMA_DEVICE void load_rows(const Place& place, int wave_row) {
    keep_rows<Link>(rows_, kOwnsKeys ? p_.k : p_.q, place, wave_row, lane_);
    keep_rows<Link>(second_rows_, kOwnsKeys ? p_.v : p_.g_out, place, wave_row, lane_);
    if constexpr (Config::kSumsDelta) {
      sum_delta<Link>(p_, place, wave_row, lane_, second_rows_, [&](int, Number delta) { weights_.know_delta(delta); });
    }
    set_aside(second_rows_);
  }

  template <int kSteps>
  static WMMA_DEVICE void set_aside(Chunk (&rows)[kTilesM][kSteps][Link::kRowChunks]) {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < kSteps * Link::kRowChunks; ++i) {
        arch::set_aside(rows[m][i / Link::kRowChunks][i % Link::kRowChunks].words);
      }
    }
  }

  using Columns = Chunk[Groups::kRing][Link::kColChunks];

  // All tiles. Of `now` the scores are next, of `next` the rows are there, or stored soon, and of `fetched` on their
  // way.
  WMMA_DEVICE void meet(Tiles tiles, int count) {
    Columns columns;
    const GradientTile first = tiles.tile();
    if constexpr (Config::kStoresDq) dq_.begin(first);
    bring(first);
    weights_.put();
    tiles.advance();
    GradientTile next = tiles.tile();
    fetch(next);
    arch::shared_barrier();
    weights_.start_scores();
    read_first<0>(columns);
    score<true>(columns, first, next, [](int) {});
    end_phase();
    weights_.template weigh_rest<Groups::kBefore>();
    weights_.put();
    tiles.advance();
    GradientTile fetched = tiles.tile();
    pass_rows<1, true, 0>(fetched);
    if constexpr (!kDirect) weights_.fetch(fetched);
    end_round<0>();
    weights_.start_scores();
    read_first<0>(columns);
    GradientTile now = first;
    for (int i = 1; i < count; ++i) {
      if constexpr (Config::kStoresDq) dq_.start(now);
      now = next;
      next = fetched;
      score<false>(columns, now, next, [&](int part) {
        if (part == 0) tiles.advance();
        tiles.place(fetched, part);
      });
      add<false>(columns, fetched);
    }
    if constexpr (Config::kStoresDq) {
      dq_.store_all();
      dq_.start(now);
    }
    weights_.template incline_rest<0>([&](int f) { put(f); });
    pass_transposed<1, true, 0>(now);
    end_phase();
    read_first<Groups::kBefore>(columns);
    add<true>(columns, fetched);
    if constexpr (Config::kStoresDq) dq_.store_all();
  }

  // The scores and g_P of a tile, from group i on.
  template <bool kFirst, int i = 0, class Advance>
  WMMA_DEVICE void score(Columns& columns, const GradientTile& now, const GradientTile& next, const Advance& advance) {
    read_ahead<kFirst, i, Groups::kBefore>(columns);
    if constexpr (i < Groups::kScores) {
      multiply(weights_.scores, rows_, columns[i % Groups::kRing], i, Groups::kTiles);
    } else {
      multiply(weights_.slopes, second_rows_, columns[i % Groups::kRing], i - Groups::kScores, Groups::kTiles);
    }
    if constexpr (!kFirst) {
      weights_.template incline<i>([&](int f) { put(f); });
      if constexpr (Config::kStoresDq) dq_.template store<i>();
    }
    pass_transposed<Groups::kStoringTransposed, !kFirst, i>(now);
    if constexpr (!kFirst) {
      if constexpr (kDirect && i == 0) weights_.fetch(next);
      copy<Groups::kScores, i>(next);
    }
    if constexpr (i == Groups::kInclining) weights_.start_slopes();
    if constexpr (i == Groups::kScores - 1) weights_.bound_scores(now);
    weights_.template weigh<i>();
    if constexpr (i >= Groups::kScores && i < Groups::kScores + Tiles::kParts) advance(i - Groups::kScores);
    arch::schedule_barrier();
    if constexpr (i + 1 < Groups::kBefore) {
      score<kFirst, i + 1>(columns, now, next, advance);
    } else {
      weights_.bound_slopes(now);
    }
  }

  // The results of the tile before, from group i on.
  template <bool kLast, int i = 0>
  WMMA_DEVICE void add(Columns& columns, const GradientTile& fetched) {
    read_ahead<kLast, Groups::kBefore + i, Groups::kCount>(columns);
    const Chunk(&x)[Link::kColChunks] = columns[(Groups::kBefore + i) % Groups::kRing];
    if constexpr (i < Groups::kValues) {
      multiply(second_, weights_.weights, x, i, Groups::kValueTiles);
    } else {
      constexpr int kAt = i - Groups::kValues;
      constexpr int kDq = Groups::dq_before(kAt);
      if constexpr (Groups::is_dq(kAt)) {
        dq_.multiply(x, kDq);
      } else {
        multiply(first_, weights_.slope_rows, x, kAt - kDq, Groups::kOutTiles);
      }
    }
    if constexpr (!kLast) {
      if constexpr (Config::kStoresDq) dq_.template store<Groups::kBefore + i>();
      weights_.template weigh<Groups::kBefore + i>();
      pass_rows<Groups::kStoring, true, i>(fetched);
      if constexpr (i == Groups::kPut) weights_.put();
      if constexpr (!kDirect && i == Groups::kPut + 1) weights_.fetch(fetched);
      if constexpr (i == Groups::kNextStart) weights_.start_scores();
    }
    arch::schedule_barrier();
    if constexpr (i + 1 < Groups::kAfter) add<kLast, i + 1>(columns, fetched);
  }

  // Before group i of a phase that ends at kEnd: the chunks of the group kAhead from there, unless they are another
  // phase's. Those are read from the barrier on, and not at all where the phase is the last.
  template <bool kIsLast, int i, int kEnd>
  WMMA_DEVICE void read_ahead(Columns& columns) {
    constexpr int kBarrier = kEnd - Groups::kSettle;
    if constexpr (i + Groups::kAhead < kEnd) {
      read(columns, i + Groups::kAhead);
    } else if constexpr (!kIsLast && i == kBarrier) {
      if constexpr (kEnd == Groups::kCount) {
        end_round<kAfterCopies>();
      } else {
        end_phase();
      }
#pragma unroll
      for (int j = kEnd; j <= i + Groups::kAhead; ++j) read(columns, j % Groups::kCount);
    } else if constexpr (!kIsLast && i > kBarrier) {
      read(columns, (i + Groups::kAhead) % Groups::kCount);
    }
  }
  template <int kStart>
  WMMA_DEVICE void read_first(Columns& columns) {
#pragma unroll
    for (int i = kStart; i < kStart + Groups::kAhead; ++i) read(columns, i);
  }
  WMMA_DEVICE void read(Columns& columns, int i) const {
    Chunk* x = columns[i % Groups::kRing];
    if (i < Groups::kScores) {
      firsts_.read_along(x, places_, i % Groups::kTiles, i / Groups::kTiles);
    } else if (i < Groups::kBefore) {
      seconds_.read_along(x, places_, (i - Groups::kScores) % Groups::kTiles, (i - Groups::kScores) / Groups::kTiles);
    } else if (i < Groups::kBefore + Groups::kValues) {
      if constexpr (kOwnsKeys) {
        seconds_.read_transposed(x, places_, (i - Groups::kBefore) % Groups::kValueTiles,
                                 (i - Groups::kBefore) / Groups::kValueTiles);
      }
    } else {
      const int at = i - Groups::kBefore - Groups::kValues;
      const int dq = Groups::dq_before(at);
      if (Groups::is_dq(at)) {
        if constexpr (Config::kStoresDq) dq_.read(x, dq);
      } else {
        firsts_.read_transposed(x, places_, (at - dq) % Groups::kOutTiles, (at - dq) / Groups::kOutTiles);
      }
    }
  }

  WMMA_DEVICE void put(int f) const {
    if constexpr (Config::kStoresDq) dq_.put(weights_.slope_rows, f);
  }

  template <int kCount, int kRowSteps>
  static WMMA_DEVICE void multiply(Number (&sums)[kTilesM][kCount],
                                   const Chunk (&rows)[kTilesM][kRowSteps][Link::kRowChunks],
                                   const Chunk (&columns)[Link::kColChunks], int group, int tiles) {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
      Link::mma(sums[m] + group % tiles * Link::kElements, rows[m][group / tiles], columns);
    }
  }

  // The first tile's rows to shared memory.
  WMMA_DEVICE void bring(const GradientTile& tile) {
    fetch(tile);
    pass_rows<1, true, 0>(tile);
    if constexpr (kDirect) {
      places_.template wait<0>();
      places_.turn();
    }
  }
  // The first tiles, which nothing is stored before.
  WMMA_DEVICE void fetch(const GradientTile& tile) {
    pass_rows<1, false, 0>(tile);
    copy<1, 0>(tile);
    weights_.fetch(tile);
  }
  // The i-th part of kParts of what goes straight to where it is read a round later.
  template <int kParts, int i>
  WMMA_DEVICE void copy(const GradientTile& next) {
    if constexpr (kDirect) {
      firsts_.template copy<kParts, i>(next.first, places_);
      seconds_.template copy<kParts, kParts == 1 ? i : i - 2>(next.second, places_);
    }
  }
  // The i-th part of kParts of what is stored and asked for next, of the second rows one group behind the first.
  template <int kParts, bool kStores, int i>
  WMMA_DEVICE void pass_rows(const GradientTile& next) {
    if constexpr (!kDirect) {
      firsts_.template pass_along<kParts, kStores, i>(next.first);
      seconds_.template pass_along<kParts, kStores, kParts == 1 ? i : i - 1>(next.second);
    }
  }
  template <int kParts, bool kStores, int i>
  WMMA_DEVICE void pass_transposed(const GradientTile& next) {
    if constexpr (!kDirect) firsts_.template pass_transposed<kParts, kStores, i>(next.first);
    if constexpr (!kDirect && kOwnsKeys) {
      seconds_.template pass_transposed<kParts, kStores, kParts == 1 ? i : i - 1>(next.second);
    }
  }

  // Ends a phase, and the next tile's rows are there: of what is on its way all but the last kLeft.
  template <int kLeft>
  WMMA_DEVICE void end_round() {
    if constexpr (kDirect) {
      arch::schedule_barrier();
      places_.template wait<kLeft>();
      end_phase();
      places_.turn();
    } else {
      end_phase();
    }
  }
  // What a wave gives comes behind its copies.
  static constexpr int kAfterCopies = Config::kStoresDq ? Link::kElements : 0;

  const Arguments& p_;
  uint32_t lane_;
  Weights weights_;
  DqQueue dq_;
  First firsts_;
  Second seconds_;
  typename FirstRows::Places places_;
  Chunk rows_[kTilesM][Groups::kSteps][Link::kRowChunks];
  Chunk second_rows_[kTilesM][Groups::kValueSteps][Link::kRowChunks];
  Number first_[kTilesM][Groups::kOutSums];     // g_Q or g_K
  Number second_[kTilesM][Groups::kValueSums];  // g_V
};

}  // namespace wmma
