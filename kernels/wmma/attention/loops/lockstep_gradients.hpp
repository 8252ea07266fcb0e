// Gradients on RDNA, where vector instructions wait for the matrix unit: all waves of a block go through the tiles in
// lockstep, each with 16 rows of queries or of keys of its own. A tile t of the other side has two phases of products,
// and between them each wave computes its weights:
//
//   phase                products                       beside them
//   S and g_P of t       rows of t                      rows t are stored transposed; rows t+1 are loaded to registers
//   weights of t         none                           rows t+1 are stored
//   results of t         P, g_S times rows transposed
//
// A barrier, which waits for shared memory alone, ends each phase of products. Operands are read a few products ahead:
// a phase's last are in registers when its barrier comes, and the next phase's first are read right behind it.
#pragma once

#include <wmma/attention/gradients/lockstep_rows.hpp>
#include <wmma/attention/gradients/lockstep_weights.hpp>
#include <wmma/attention/rows/registers.hpp>

namespace wmma {

template <class Config>
class LockstepGradients {
  using Groups = GradientGroups<Config>;
  using T = typename Config::Element;
  using Link = typename Groups::Link;
  using Number = typename Groups::Number;
  using Place = GradientPlace<Config::kOwnsKeys>;
  using Tiles = GradientTiles<Config, Number>;
  using Span = typename Tiles::Span;
  using Others = LockstepRows<Config>;
  using Weights = LockstepWeights<Config>;
  static constexpr bool kOwnsKeys = Config::kOwnsKeys;
  static constexpr int kBlockRows = Groups::kBlockRows;
  static_assert(Groups::kTilesM == 1 && Config::kDepth == Config::kValueDepth, "rows of both are alike");
  static_assert(Groups::kAhead < Groups::kScores, "one phase ahead at most");

  // The owned rows: in registers, or the second or both in shared memory where these hold too much else.
  static constexpr int kKept = Config::kKeptRows;
  using RowTile = PaddedTile<kBlockRows, Config::kDepth * sizeof(T)>;
  using Rows = Chunk[1][Groups::kSteps][Link::kRowChunks];
  static constexpr int kStatisticsStart = Others::kBytes;
  static constexpr int kRowsStart = kStatisticsStart + Weights::kStatisticsBytes;

 public:
  using Arguments = typename Config::Rules::Arguments;
  static constexpr int kThreads = Groups::kThreads;
  static constexpr int kSharedBytes = kRowsStart + (2 - kKept) * RowTile::kBytes;

  static WMMA_DEVICE void run(const Arguments& p) {
    unsigned char* shared = dynamic_shared<unsigned char>();
    const uint32_t wave = uniform(threadIdx.x / arch::kWaveSize);
    const Place place(p, kBlockRows, Config::kSlice);
    const int first_row = static_cast<int>(place.tile) * kBlockRows;
    const int wave_row = first_row + static_cast<int>(wave) * Groups::kWaveRows;
    LockstepGradients self(p, place, shared, wave, wave_row);
    // 1. The owned rows.
    self.load_rows(place, first_row, wave_row);
    // 2. The others that they meet, head by head.
    const Span span(p, place, first_row, kBlockRows, Groups::kOthers);
    const int count = (kOwnsKeys ? p.group : 1) * span.tiles(Groups::kOthers);
    if (count > 0) self.meet(Tiles(p, place, span, count), count);
    // 3. The results.
    const Number scale = static_cast<Number>(p.scale) * (Number(1) / Weights::kExcess);
    store_gradients<Link, Config>(self.first_, self.second_, p, scale, place, wave_row, 0, self.lane_);
  }

 private:
  WMMA_DEVICE LockstepGradients(const Arguments& p, const Place& place, unsigned char* shared, uint32_t wave,
                                int wave_row)
      : p_(p),
        lane_(lane_id()),
        shared_rows_(shared + kRowsStart),
        weights_(p, place, shared + kStatisticsStart, wave, lane_, wave_row),
        others_(Tiles::firsts_of(p), Tiles::seconds_of(p), shared, wave, lane_),
        row_reader_(lane_, wave * Groups::kWaveRows) {
    clear(first_);
    if constexpr (kOwnsKeys) clear(second_);
  }

  WMMA_DEVICE void load_rows(const Place& place, int first_row, int wave_row) {
    const AttentionOperand& first = kOwnsKeys ? p_.k : p_.q;
    const AttentionOperand& second = kOwnsKeys ? p_.v : p_.g_out;
    if constexpr (kKept > 0) keep_rows<Link>(rows_[0], first, place, wave_row, lane_);
    if constexpr (kKept > 1 || Config::kSumsDelta) keep_rows<Link>(rows_[1], second, place, wave_row, lane_);
    if constexpr (Config::kSumsDelta) {
      sum_delta<Link>(p_, place, wave_row, lane_, rows_[1], [&](int, Number delta) { weights_.know_delta(delta); });
    }
    const auto load = [&](int at, const AttentionOperand& x) {
      wmma::load_rows<RowTile, T, Config::kDepth, 8, kThreads, arch::kMostAtOnce>(
          shared_rows_ + at * RowTile::kBytes, x, place, first_row, 0, p_.e, threadIdx.x, Number(1));
    };
    if constexpr (kKept < 1) load(0, first);
    if constexpr (kKept < 2) load(1 - kKept, second);
  }

  using Columns = Chunk[Groups::kRing][Link::kColChunks];

  // All tiles. Of `now` the rows are stored along, and in registers to be stored turned.
  WMMA_DEVICE void meet(Tiles tiles, int count) {
    Columns columns;
    GradientTile now = tiles.tile();
    others_.fetch(now);
    weights_.fetch(now);
    others_.store_along();
    weights_.put();
    end_phase();
    begin_tile();
    read_first(columns);
    for (int left = count; left > 0; --left) {
      GradientTile next;
      multiply(columns, tiles, now, next);
      now = next;
    }
  }

  // One tile, from group i on. Behind the last comes one that is read and not multiplied.
  template <int i = 0>
  WMMA_DEVICE void multiply(Columns& columns, Tiles& tiles, const GradientTile& now, GradientTile& next) {
    if constexpr (i == 0) {
      others_.store_transposed();
      tiles.advance();
      next = tiles.tile();
      others_.fetch(next);
      weights_.fetch(next);
    }
    if constexpr (i == Groups::kScores / 2) weights_.start_slopes();
    if constexpr (i == Groups::kBefore) {
      settle(weights_.scores[0]);
      settle(weights_.slopes[0]);
      others_.store_along();
      weights_.put();
      weights_.bound(now);
      weights_.weigh();
    }
    if constexpr (i == Groups::kBefore - Groups::kAhead) end_phase();
    if constexpr (i == Groups::kCount - Groups::kAhead) {
      end_phase();
      begin_tile();
    }
    read<(i + Groups::kAhead) % Groups::kCount>(columns);
    multiply_group<i>(columns[i % Groups::kRing]);
    arch::schedule_barrier();
    if constexpr (i + 1 < Groups::kCount) {
      multiply<i + 1>(columns, tiles, now, next);
    } else {
      settle(first_[0]);
    }
  }

  WMMA_DEVICE void begin_tile() {
    weights_.start_scores();
    if constexpr (kKept < 1) read_row<0>();
  }
  template <int i = 0>
  WMMA_DEVICE void read_first(Columns& columns) const {
    read<i>(columns);
    if constexpr (i + 1 < Groups::kAhead) read_first<i + 1>(columns);
  }

  template <int i>
  WMMA_DEVICE void read(Columns& columns) const {
    Chunk* x = columns[i % Groups::kRing];
    if constexpr (i < Groups::kBefore) {
      constexpr bool kSecond = i >= Groups::kScores;
      constexpr int kAt = i % Groups::kScores;
      others_.template read_along<kSecond>(x, kAt % Groups::kTiles, kAt / Groups::kTiles);
    } else {
      constexpr bool kSecond = i < Groups::kBefore + Groups::kValues;
      constexpr int kAt = (i - Groups::kBefore) % Groups::kOuts;
      others_.template read_transposed<kSecond>(x, kAt % Groups::kOutTiles, kAt / Groups::kOutTiles);
    }
  }

  template <int i>
  WMMA_DEVICE void multiply_group(const Chunk (&x)[Link::kColChunks]) {
    if constexpr (i < Groups::kBefore) {
      constexpr bool kSecond = i >= Groups::kScores;
      constexpr int kStep = i / Groups::kTiles;  // of both
      Number* sums = (kSecond ? weights_.slopes : weights_.scores)[0] + i % Groups::kTiles * Link::kElements;
      constexpr int kNext = kStep + 1;
      if constexpr (i % Groups::kTiles == 0 && kNext >= kKept * Groups::kSteps && kNext < 2 * Groups::kSteps) {
        read_row<kNext>();
      }
      if constexpr (kSecond < kKept) {
        Link::mma(sums, rows_[kSecond][0][kStep % Groups::kSteps], x);
      } else {
        Link::mma(sums, ahead_[kStep % kAheadRows], x);
      }
    } else {
      constexpr bool kSecond = i < Groups::kBefore + Groups::kValues;
      constexpr int kAt = (i - Groups::kBefore) % Groups::kOuts;
      Number* sums = (kSecond ? second_[0] : first_[0]) + kAt % Groups::kOutTiles * Link::kElements;
      Link::mma(sums, (kSecond ? weights_.weights : weights_.slope_rows)[0][kAt / Groups::kOutTiles], x);
    }
  }

  // A step of the owned rows, of both.
  template <int kStep>
  WMMA_DEVICE void read_row() {
    const unsigned char* tile = shared_rows_ + (kStep / Groups::kSteps - kKept) * RowTile::kBytes;
    row_reader_.read(ahead_[kStep % kAheadRows], tile, 0, kStep % Groups::kSteps);
  }

  // Products end before a branch that follows: compilers move them behind it otherwise, and all that they read stays in
  // registers.
  template <int kSums>
  static WMMA_DEVICE void settle(const Number (&sums)[kSums]) {
#pragma unroll
    for (int f = 0; f < kSums; f += Link::kElements) arch::settle(sums[f]);
  }

  static constexpr int kAheadRows = 2;

  const Arguments& p_;
  uint32_t lane_;
  unsigned char* shared_rows_;
  Weights weights_;
  Others others_;
  RowReader<Link, RowTile> row_reader_;
  Rows rows_[2];
  Chunk ahead_[kAheadRows][Link::kRowChunks];
  Number first_[1][Groups::kOutSums];     // g_Q or g_K
  Number second_[1][Groups::kValueSums];  // g_V
};

}  // namespace wmma
