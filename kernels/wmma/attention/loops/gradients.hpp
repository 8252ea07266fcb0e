// The gradients' loop that every target has, for any configuration. With P = exp(scale·Q·Kᵀ + mask − lse), computed
// again:
//   g_V = Pᵀ·g_out,  g_S = P·(g_out·Vᵀ − delta),  g_Q = scale·g_S·K,  g_K = scale·g_Sᵀ·Q
// Where weights are dropped, g_V's P and g_out·Vᵀ are as well.
//
// One kernel owns rows of queries and goes through the keys, for g_Q; another owns rows of keys and goes through the
// queries of all heads that share them, in order, for g_K and g_V. Both are the same but for who owns what. The owned
// rows stay in shared memory; of each tile of the other side, between two barriers of the block, each wave has
//
//   1. S and g_P      from the tile's rows along the head size
//   2. P and g_S      in registers
//   3. the results    += P or g_S times the tile's rows transposed
//
// kAsync: there are two buffers, and the next tile is copied during this one; else a tile is loaded before it is used.
//
// Weights and slopes are computed as by GradientElements' lanes, but spelled here: by way of those, clang spilled nine
// of gfx908's registers.
#pragma once

#include <wmma/attention/gradients/elements.hpp>
#include <wmma/attention/tiles/two_way_tile.hpp>
#include <wmma/attention/weights.hpp>

namespace wmma {

template <class Config>
struct AttentionBackward {
  using T = typename Config::Element;
  using Link = ChainLink<typename ProductOf<Config::kLanes, T, Config::kSide>::Type>;
  using Elements = GradientElements<Config, Link>;
  using Number = typename Elements::Number;
  using Mask = typename Elements::Mask;
  using Math = typename Elements::Math;
  using Rules = typename Elements::Rules;
  using Arguments = typename Elements::Arguments;
  using Sight = typename Elements::Sight;
  using Place = typename Elements::Place;
  using Passed = typename Elements::Passed;
  static constexpr bool kOwnsKeys = Config::kOwnsKeys;
  static constexpr bool kCorrects = Elements::kCorrects;
  static constexpr int kThreads = Config::kWaves * arch::kWaveSize;
  static constexpr int kWaveRows = Config::kTilesM * Link::kRows;
  static constexpr int kBlockRows = Config::kWaves * kWaveRows;
  static constexpr int kOthers = Config::kOthers;  // rows of a tile of those that are not owned
  static constexpr int kTiles = kOthers / Link::kCols;
  static constexpr int kSums = kTiles * Link::kElements;
  static constexpr int kOutTiles = Config::kSlice / Link::kCols;
  static constexpr int kOutSums = kOutTiles * Link::kElements;
  static_assert(kOthers % Link::kWhole == 0 && Config::kSlice % Link::kWhole == 0, "whole tiles");

  // Of scores and of g_P: rows with Q's columns, or with V's. `first` is Q and K, `second` g_out and V.
  using FirstRows = ChainTile<PlainLines, kBlockRows, Config::kDepth * sizeof(T)>;
  using SecondRows = ChainTile<PlainLines, kBlockRows, Config::kValueDepth * sizeof(T)>;
  using WeightTile = ChainTile<PlainLines, kBlockRows, kOthers * sizeof(T)>;

  template <bool kAsync, class>
  struct Tiles {
    using First = StagedTwoWayTile<T, Link, Config::kFirstOrder, Config::kFirstVec, Config::kWide, kOthers,
                                   Config::kColumns, Config::kDepth, Config::kSlice, true, kThreads>;
    using Second = StagedTwoWayTile<T, Link, Config::kSecondOrder, Config::kSecondVec, Config::kWide, kOthers,
                                    Config::kValueColumns, Config::kValueDepth, Config::kSlice, kOwnsKeys, kThreads>;
  };
#ifdef WMMA_NVIDIA
  template <class Unused>
  struct Tiles<true, Unused> {
    using First = AsyncTwoWayTile<T, Link, kOthers, Config::kColumns, Config::kDepth, kThreads>;
    using Second = AsyncTwoWayTile<T, Link, kOthers, Config::kValueColumns, Config::kValueDepth, kThreads>;
  };
#endif
  using First = typename Tiles<Config::kAsync, void>::First;
  using Second = typename Tiles<Config::kAsync, void>::Second;
  static constexpr int kSecondRowsStart = FirstRows::kBytes;
  // Tiles of both, and what is passed beside queries; two where one is filled while the other is multiplied.
  static constexpr int kPassedStart = First::kBytes + Second::kBytes;
  static constexpr int kBufferBytes = kPassedStart + Passed::kBytes;
  static constexpr int kBuffers = Config::kAsync ? 2 : 1;
  static constexpr int kBufferStart = kSecondRowsStart + SecondRows::kBytes;
  static constexpr int kWeightStart = kBufferStart + kBuffers * kBufferBytes;
  static constexpr int kSharedBytes = kWeightStart + (Link::kStays ? 0 : 2 * WeightTile::kBytes);

  using Visit =
      Choose<Rules::kBlocks, BlockedVisit<kOwnsKeys, kBlockRows, kOthers, Rules>, OthersVisit<kOwnsKeys, kOthers>>;

  struct Wave {
    Number first[Config::kTilesM][kOutSums];                                   // g_Q or g_K
    Number second[kOwnsKeys ? Config::kTilesM : 1][kOwnsKeys ? kOutSums : 1];  // g_V
    typename Elements::Rows rows[Config::kTilesM];
  };

  struct Reading {
    RowReader<Link, FirstRows> first_rows;
    RowReader<Link, SecondRows> second_rows;
    typename First::Along first;
    typename Second::Along second;
    typename First::Transposed first_transposed;
    typename Second::Transposed second_transposed;
    RowReader<Link, WeightTile> weights;
    WMMA_DEVICE Reading(uint32_t lane, uint32_t wave_row)
        : first_rows(lane, wave_row),
          second_rows(lane, wave_row),
          first(lane),
          second(lane),
          first_transposed(lane),
          second_transposed(lane),
          weights(lane, wave_row) {}
  };

  static WMMA_DEVICE Place place_of(const Arguments& p) { return Place(p, kBlockRows, Config::kSlice); }

  static WMMA_DEVICE void run(const Arguments& p) {
    unsigned char* shared = dynamic_shared<unsigned char>();
    const uint32_t thread = threadIdx.x;
    const uint32_t lane = lane_id();
    const uint32_t wave_row = uniform(thread / arch::kWaveSize) * kWaveRows;
    const Place place = place_of(p);
    const int first_row = static_cast<int>(place.tile) * kBlockRows;
    const Reading reading(lane, wave_row);

    // 1. The owned rows.
    load_rows<FirstRows, T, Config::kDepth, Config::kRowVec, kThreads, arch::kMostAtOnce>(
        shared, kOwnsKeys ? p.k : p.q, place, first_row, 0, p.e, thread, Number(1));
    load_rows<SecondRows, T, Config::kValueDepth, Config::kSecondRowVec, kThreads, arch::kMostAtOnce>(
        shared + kSecondRowsStart, kOwnsKeys ? p.v : p.g_out, place, first_row, 0, p.ev, thread, Number(1));
    Wave wave;
    clear(wave.first);
    if constexpr (kOwnsKeys) clear(wave.second);
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
      wave.rows[m] = {};
      if constexpr (!kOwnsKeys) wave.rows[m].load(p, place, first_row + wave_row + m * Link::kRows, lane);
    }

    // 2. The others that they meet, head by head.
    const OthersSpan<kOwnsKeys, Config::kCausal, Rules> span(p, place, first_row, kBlockRows, kOthers);
    const int first_column = place.slice * Config::kSlice;
    const int visits = (kOwnsKeys ? p.group : 1) * span.tiles(kOthers);
    Visit visit{p, place, span.others, span.begin, span.end, first_row, lane};
    Visit next = visit;
    if (Config::kAsync && visit.is_there(0, visits)) load(shared + kBufferStart, next, first_column, thread);
    for (int i = 0; visit.is_there(i, visits); ++i) {
      unsigned char* buffer = shared + kBufferStart + i % kBuffers * kBufferBytes;
      if constexpr (Config::kAsync) {
        // The tile is there, and everyone is done with the one before.
        First::arrive();
        arch::block_barrier();
        next.advance(span.end, span.begin);
        if (next.is_there(i + 1, visits))
          load(shared + kBufferStart + (i + 1) % kBuffers * kBufferBytes, next, first_column, thread);
      } else {
        arch::tile_barrier();
        load(buffer, visit, first_column, thread);
        arch::tile_barrier();
      }
      bool whole = false;
      if constexpr (Rules::kBlocks) whole = visit.is_whole();
      const bool bounded = visit.rows() < kOthers || (Rules::kBlocks && Rules::kHides && !whole) ||
                           is_bounded<kOwnsKeys, kBlockRows, kOthers, Sight>(p, first_row, visit.at);
      const Meeting meeting{p,         place,    shared,       buffer,           lane, wave_row,
                            first_row, visit.at, visit.rows(), visit.other_head, whole};
      if (bounded) {
        step<true>(wave, reading, meeting);
      } else {
        step<false>(wave, reading, meeting);
      }
      visit.advance(span.end, span.begin);
    }

    // 3. The results.
    if constexpr (kCorrects && !kOwnsKeys) {
#pragma unroll
      for (int m = 0; m < Config::kTilesM; ++m) {
        Elements::correct(wave.first[m], wave.rows[m], p, place, first_row + wave_row + m * Link::kRows, lane);
      }
    }
    store_gradients<Link, Config>(wave.first, wave.second, p, static_cast<Number>(p.scale), place, first_row + wave_row,
                                  first_column, lane);
  }

 private:
  static WMMA_DEVICE void load(unsigned char* buffer, const Visit& visit, int first_column, uint32_t thread) {
    const AttentionArguments& p = visit.p;
    const AttentionOperand& x = kOwnsKeys ? p.q : p.k;
    const AttentionOperand& y = kOwnsKeys ? p.g_out : p.v;
    const T* first = matrix_of<const T>(x, visit.place.batch, visit.other_head) + visit.at * x.row_stride;
    const T* second = matrix_of<const T>(y, visit.place.batch, visit.other_head) + visit.at * y.row_stride;
    First::load(buffer, first, x, visit.rows(), first_column, thread);
    Second::load(buffer + First::kBytes, second, y, visit.rows(), first_column, thread);
    if constexpr (kOwnsKeys) {
      Passed::template write<kThreads>(buffer + kPassedStart, static_cast<const Arguments&>(p), visit.place.batch,
                                       visit.other_head, visit.at, visit.rows(), thread);
    }
  }

  struct Meeting {
    const Arguments& p;
    const Place& place;
    unsigned char* shared;
    unsigned char* buffer;
    uint32_t lane;
    uint32_t wave_row;
    int first_row;
    int at;  // the first of the others
    int rows;
    uint32_t other_head;
    bool whole;  // its block, of a block mask
  };

  // One tile of others.
  template <bool kBounded>
  static WMMA_DEVICE void step(Wave& wave, const Reading& reading, const Meeting& x) {
    Number weights[Config::kTilesM][kSums];
    Number slopes[Config::kTilesM][kSums];
    clear(weights);
    clear(slopes);
    constexpr int kSteps = Config::kDepth / Link::kDepth;
    constexpr int kValueSteps = Config::kValueDepth / Link::kDepth;
    multiply<kSteps>(weights, reading.first_rows, x.shared, reading.first, First::along(x.buffer));
    multiply<kValueSteps>(slopes, reading.second_rows, x.shared + kSecondRowsStart, reading.second,
                          Second::along(x.buffer + First::kBytes));
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) differentiate<kBounded>(weights[m], slopes[m], wave, x, m);
    add<1>(wave.first, slopes, reading, x, reading.first_transposed, First::transposed(x.buffer));
    if constexpr (kOwnsKeys) {
      add<0>(wave.second, weights, reading, x, reading.second_transposed, Second::transposed(x.buffer + First::kBytes));
    }
  }

  template <int kSteps, class Rows, class Columns, class Address>
  static WMMA_DEVICE void multiply(Number (&sums)[Config::kTilesM][kSums], const Rows& rows_reader,
                                   const unsigned char* rows_tile, const Columns& columns, Address tile) {
    chain_product<Link, kTiles, kSteps>(sums, columns, tile,
                                        [&](Chunk(&rows)[Config::kTilesM][Link::kRowChunks], int step) {
#pragma unroll
                                          for (int m = 0; m < Config::kTilesM; ++m) {
                                            rows_reader.read(rows[m], rows_tile, m, step);
                                          }
                                        });
  }

  // Products become weights P, and g_P becomes g_S.
  template <bool kBounded>
  static WMMA_DEVICE void differentiate(Number* weights, Number* slopes, Wave& wave, const Meeting& x, int m) {
    const Number factor = static_cast<Number>(x.p.scale * static_cast<double>(Math::kUnit));
    const Number* statistics = reinterpret_cast<const Number*>(x.buffer + kPassedStart);
    const CapOf<Config> cap(x.p, true);
    typename Rules::template Rows<Number, Math, 1> terms(x.p, x.place.batch);
    const uint32_t head = kOwnsKeys ? x.other_head : x.place.head;
    terms.begin(x.p, x.place.batch, head, 0);
    Number kept_factor(1);
    if constexpr (Rules::kDrops) kept_factor = static_cast<Number>(x.p.rules.kept);
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      const int i = Link::row_of(f);
      const int other = static_cast<int>(Link::place(x.lane, f));
      const int row = x.first_row + static_cast<int>(x.wave_row + m * Link::kRows + Link::row(x.lane, i));
      const Number lse = kOwnsKeys ? statistics[other] : wave.rows[m].lse[i];
      const Number delta = kOwnsKeys ? statistics[kOthers + other] : wave.rows[m].delta[i];
      const int query = kOwnsKeys ? x.at + other : row;
      const int key = kOwnsKeys ? row : x.at + other;
      bool inside = true;
      if constexpr (kBounded) {
        inside = other < x.rows && Sight::sees(x.p, query, key);
      }
      Number bend(1);
      Number score;
      if constexpr (Rules::kScored) {
        score = cap.template score<true>(weights[f], factor, bend);
        if constexpr (Rules::kAfterCap) score = terms.template changed<Rules::kBends>(score, bend, query, key, key, 0);
        if (!kCorrects) score -= lse;
      } else {
        score = kCorrects ? weights[f] * factor : arch::fma(weights[f], factor, -lse);
      }
      if constexpr (!kIsNone<Mask>) {
        // Rows beyond the last have no mask.
        const bool there = inside && row < static_cast<int>(x.place.rows);
        MaskRows<Mask, 1> mask(x.p);
        mask.begin(x.p, x.place.batch, head, query, 0);
        if (there) inside = mask.add(score, key, 0, f);
      }
      if constexpr (Rules::kHides && (kBounded || !Rules::kBlocks)) {
        const bool shown = terms.shows(query, key, 0);
        inside = inside && ((Rules::kBlocks && x.whole) || shown);
      }
      if constexpr (kCorrects) {
        weights[f] = inside ? Math::ratio(score, -lse) : Number(0);
        if (kOwnsKeys) weights[f] *= statistics[2 * kOthers + other];
        if (!kOwnsKeys) wave.rows[m].sum[i] += weights[f];
      } else {
        weights[f] = inside ? Math::exp(score) : Number(0);
      }
      if constexpr (Rules::kDrops) {
        const DropoutRow& drawn =
            kOwnsKeys ? reinterpret_cast<const DropoutRow*>(x.buffer + kPassedStart + Passed::kDrawnStart)[other]
                      : wave.rows[m].drawn[i];
        const bool kept = keeps(drawn, static_cast<unsigned>(key), x.p.rules.threshold);
        slopes[f] = inside ? weights[f] * ((kept ? slopes[f] * kept_factor : Number(0)) - delta) : Number(0);
        if constexpr (kOwnsKeys) weights[f] = kept ? weights[f] * kept_factor : Number(0);
      } else {
        slopes[f] = inside ? weights[f] * (slopes[f] - delta) : Number(0);
      }
      if constexpr (Rules::kBends) slopes[f] = inside ? slopes[f] * bend : Number(0);
    }
  }

  // to += rows·turned; rows that do not stay go by way of the wave's part of a tile, one for each `kWhich`.
  template <int kWhich, class Transposed, class Address>
  static WMMA_DEVICE void add(Number (&to)[Config::kTilesM][kOutSums], const Number (&from)[Config::kTilesM][kSums],
                              const Reading& reading, const Meeting& x, const Transposed& transposed, Address tile) {
    unsigned char* own = x.shared + kWeightStart + kWhich * WeightTile::kBytes;
    if constexpr (!Link::kStays) {
#pragma unroll
      for (int m = 0; m < Config::kTilesM; ++m) {
        write_sums<Link, WeightTile, kSums>(own, x.lane, x.wave_row + m * Link::kRows, from[m]);
      }
      arch::wave_barrier();
    }
    multiply_weights<Link, kOutTiles, kOthers / Link::kDepth>(to, from, reading.weights, own, transposed, tile);
  }
};

}  // namespace wmma
