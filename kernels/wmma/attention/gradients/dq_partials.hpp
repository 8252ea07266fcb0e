// What the keys of a block of loops/interleaved_gradients.hpp add to the gradients of queries, tile by tile: g_S·K, so
// that no other kernel computes scores again. A wave has one matrix tile of it, summed up over all keys of the block,
// whose g_S it finds in shared memory, and adds it to sums in memory, in whatever order blocks come. kFixed: they are
// whole numbers (gradients/fixed_point.hpp), the same in each order. Of float32 their last bits are not the same from
// run to run.
//
// There a tile's sums lie as lanes have them, so that neighbours add to neighbours; reduce_dq, the last kernel,
// makes rows of them.
#pragma once

#include <wmma/attention/gradients/fixed_point.hpp>
#include <wmma/attention/gradients/interleaved_groups.hpp>
#include <wmma/attention/gradients/tiles.hpp>
#include <wmma/tile/chain_tile.hpp>
#include <wmma/tile/staged_loader.hpp>

namespace wmma {

// Where a lane's f-th sum of a wave is in a tile: a column of K, and a query.
template <class Config>
struct DqPlaces {
  using Link = ChainLink<MatrixProduct<typename Config::Element, Config::kSide>>;
  using Number = typename Link::Sum;
  static constexpr int kElements = Link::kElements;
  static constexpr int kWaveNumbers = kElements * arch::kWaveSize;
  static constexpr int kNumbers = Config::kWaves * kWaveNumbers;  // of a tile
  static constexpr int kColumnTiles = Config::kDepth / Link::kRows;
  static_assert(kNumbers == Config::kOthers * Config::kDepth, "a wave has a matrix tile");

  static WMMA_CONSTEXPR int column(uint32_t wave, uint32_t lane) {
    return static_cast<int>(wave % kColumnTiles * Link::kRows + Link::row(lane, 0));
  }
  static WMMA_CONSTEXPR int first_query(uint32_t wave) {
    return static_cast<int>(Link::first_line(static_cast<int>(wave) / kColumnTiles));
  }
  static WMMA_CONSTEXPR int query(uint32_t wave, uint32_t lane, int f) {
    return first_query(wave) + static_cast<int>(Link::place(lane, f));
  }
};

// What a wave multiplies its sums of a tile by, so that they are whole numbers: each query's own, in shared memory from
// the tile's products on, until the next one's are there. A lane reads those of four sums before it gives the four
// before.
template <class Config>
class DqFactors {
  using Places = DqPlaces<Config>;
  using Link = typename Places::Link;
  static constexpr int kOthers = Config::kOthers;
  static constexpr int kFours = Link::kElements / 4;

 public:
  static constexpr int kBytes = Config::kWaves * kOthers * static_cast<int>(sizeof(float));

  WMMA_DEVICE DqFactors(unsigned char* shared, uint32_t wave, uint32_t lane)
      : put_(reinterpret_cast<float*>(shared) + wave * kOthers + lane % kOthers),
        read_(reinterpret_cast<const float*>(shared) + wave * kOthers + Places::query(wave, lane, 0)) {}

  // `sizes`: of the first head's queries.
  WMMA_DEVICE void know(int unit, const char* sizes, uint32_t lane) {
    unit_ = unit;
    sizes_ = arch::unshared(reinterpret_cast<uint64_t>(sizes + lane % kOthers * 4));
  }
  WMMA_DEVICE void put_nothing() const { *put_ = 0.0f; }
  WMMA_DEVICE void fetch(const GradientTile& tile) {
    using Global = const __attribute__((address_space(1))) int*;
    fetched_ = *(Global)(sizes_ + static_cast<uint32_t>(tile.sizes));
  }
  WMMA_DEVICE void put() const { *put_ = fixed::power(unit_ - fetched_); }
  WMMA_DEVICE void read(int four) {
    if (four >= kFours) return;
    arch::copy_bytes<16>(factors_[four % 2], __builtin_assume_aligned(read_ + Link::place(0, 4 * four), 16));
  }
  // The fractions of what is left are cut off, as one instruction does; NaN is 0.
  WMMA_DEVICE int32_t whole(float sum, int f) const { return static_cast<int32_t>(sum * factors_[f / 4 % 2][f % 4]); }

 private:
  float* put_;
  const float* read_;
  uint64_t sizes_;  // of a lane's query, where it lies in memory: vector registers are there
  int unit_;
  int fetched_;
  float factors_[2][4];
};

// Where sums are given as they are.
template <class Config>
struct NoFactors {
  static constexpr int kBytes = 0;
  WMMA_DEVICE NoFactors(unsigned char*, uint32_t, uint32_t) {}
  WMMA_DEVICE void put_nothing() const {}
  WMMA_DEVICE void fetch(const GradientTile&) const {}
  WMMA_DEVICE void put() const {}
  WMMA_DEVICE void read(int) const {}
};

template <class Config>
class DqPartials {
  using Groups = InterleavedGroups<Config>;
  using Places = DqPlaces<Config>;
  using T = typename Config::Element;
  using Link = typename Groups::Link;
  using Number = typename Groups::Number;
  using Weights = typename Groups::Weights;
  using Factors = Choose<Config::kFixed, DqFactors<Config>, NoFactors<Config>>;
  static constexpr int kKeys = Groups::kBlockRows;
  static constexpr int kSteps = Groups::kDqProducts;
  // A line a query. Where all banks are eight chunks, those that are read together are lines whose numbers differ
  // by 24.
  using SlopeTile = PaddedTile<Config::kOthers, kKeys * sizeof(T), arch::kBankBytes == 128 ? 4 : 0>;
  using KeyTile = ChainTile<Link, Config::kDepth, kKeys * sizeof(T)>;
  using KeyLoader =
      StagedLoader<T, T, Order::kAcrossK, Config::kDepth, kKeys, Groups::kThreads, 8, false, PlainStage<T, T>, KeyTile>;

 public:
  static constexpr int kBytes = SlopeTile::kBytes + Factors::kBytes;
  static constexpr int kBytesOfKeys = KeyTile::kBytes;  // while they are loaded

  WMMA_DEVICE DqPartials(unsigned char* slopes, uint32_t wave, uint32_t lane)
      : wave_(wave),
        columns_(lane),
        put_(slopes + put_offset(wave, lane)),
        read_(slopes + SlopeTile::offset(Places::first_query(wave), 0)),
        own_((wave * Places::kWaveNumbers + lane) * static_cast<uint32_t>(sizeof(Number))),
        factors_(slopes + SlopeTile::kBytes, wave, lane) {
#pragma unroll
    for (int f = 0; f < Link::kElements; ++f) sums_[f] = Number(0);
  }

  // The wave's columns of the block's keys, by way of shared memory that nobody uses yet. Keys beyond the last are 0:
  // their g_S is that of the last.
  template <class Place>
  WMMA_DEVICE void load_keys(const AttentionArguments& p, const Place& place, int first_row, unsigned char* shared,
                             uint32_t lane) {
    const T* from = static_cast<const T*>(p.k.data) + place.offset(p.k, static_cast<uint32_t>(first_row));
    KeyLoader loader(from, 1, p.k.row_stride, Config::kDepth, threadIdx.x, {});
    const int there = static_cast<int>(place.rows) - first_row;
    loader.template fetch<true>(there);
    loader.template store<true>(shared, there);
    arch::shared_barrier();
    if constexpr (Config::kFixed) {
      fixed::drop_none<T, KeyTile, Config::kDepth, kKeys * sizeof(T) / 16, Groups::kThreads>(shared);
      arch::shared_barrier();
    }
    const RowReader<Link, KeyTile> reader(lane, wave_ % Places::kColumnTiles * Link::kRows);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) reader.read(keys_[step], shared, 0, step);
    arch::shared_barrier();
    if constexpr (Config::kFixed) {
      const FixedPlaces<Places::kNumbers> places(p);
      const uint32_t head = place.batch * (p.heads / p.group) + place.head;
      const char* sizes = places.sizes + int64_t{4} * head * p.group * p.sq;
      factors_.know(fixed::unit_of_head(p, places, head), sizes, lane);
    }
  }

  // A lane's g_S of two neighbouring queries, from f on.
  WMMA_DEVICE void put(const Weights& slope_rows, int f) const {
    const int word = f % Link::kShare / 2;
    const uint32_t pair = slope_rows[0][f / Link::kShare][word / 4].words[word % 4];
    put_half(f, static_cast<uint16_t>(pair));
    put_half(f + 1, static_cast<uint16_t>(pair >> 16));
  }

  WMMA_DEVICE void read(Chunk* x, int step) const { columns_.read(x, read_, 0, step); }
  WMMA_DEVICE void multiply(const Chunk* x, int step) {
    if (step == 0) {
      to_ = next_;
      factors_.put();
#pragma unroll
      for (int f = 0; f < Link::kElements; ++f) sums_[f] = Number(0);
    }
    Link::mma(sums_, keys_[step], x);
  }

  // Before the first products nothing changes what is added to.
  WMMA_DEVICE void begin(const GradientTile& tile) {
    next_ = to_ = tile.dq;
    factors_.put_nothing();
  }
  // The tile whose products are next.
  WMMA_DEVICE void start(const GradientTile& tile) {
    next_ = tile.dq;
    factors_.fetch(tile);
  }
  // What goes beside group i.
  template <int i>
  WMMA_DEVICE void store() {
    if constexpr (i == Groups::kDqProductsStart - 2) factors_.read(0);
    constexpr int kFrom = detail::first_of<Groups::kDqProductsStart, Groups::kDqProductsEnd, Link::kElements>(i);
    constexpr int kTo = detail::first_of<Groups::kDqProductsStart, Groups::kDqProductsEnd, Link::kElements>(i + 1);
#pragma unroll
    for (int f = kFrom; f < kTo; ++f) store_sum(f);
  }
  WMMA_DEVICE void store_all() {
    factors_.read(0);
#pragma unroll
    for (int f = 0; f < Link::kElements; ++f) store_sum(f);
  }

 private:
  static WMMA_DEVICE uint32_t put_offset(uint32_t wave, uint32_t lane) {
    const uint32_t key = wave * Groups::kWaveRows + Link::row(lane, 0);
    return SlopeTile::offset(Link::place(lane, 0), key / 8) + key % 8 * static_cast<uint32_t>(sizeof(T));
  }
  WMMA_DEVICE void store_sum(int f) {
    if (f % 4 == 0) factors_.read(f / 4 + 1);
    if constexpr (Config::kFixed) {
      arch::add_in_memory(reinterpret_cast<int32_t*>(to_ + own_) + f * arch::kWaveSize, factors_.whole(sums_[f], f));
    } else {
      arch::add_in_memory(reinterpret_cast<Number*>(to_ + own_) + f * arch::kWaveSize, sums_[f]);
    }
  }
  WMMA_DEVICE void put_half(int f, uint16_t bits) const {
    arch::copy_bytes<2>(put_ + SlopeTile::offset(Link::place(0, f), 0), &bits);
  }

  uint32_t wave_;
  ColumnReader<Link, SlopeTile> columns_;
  unsigned char* put_;         // a lane's first g_S
  const unsigned char* read_;  // the wave's first query
  uint32_t own_;               // a lane's first sum in a tile, in bytes
  char* next_;
  char* to_;
  Factors factors_;
  Chunk keys_[kSteps][Link::kRowChunks];
  Number sums_[Link::kElements];
};

// Where none are given.
struct NoDqPartials {
  static constexpr int kBytes = 0;
  template <class... PassedDq>
  WMMA_DEVICE explicit NoDqPartials(const PassedDq&...) {}
};

// The last kernel: eight columns of a query a thread. The last tile of a head starts where the queries allow.
template <class Config, class Arguments>
WMMA_DEVICE void reduce_dq(const Arguments& p) {
  using Places = DqPlaces<Config>;
  using Number = typename Places::Number;
  using Sum = Choose<Config::kFixed, int32_t, Number>;
  using T = typename Config::Element;
  constexpr uint32_t kEach = 8;
  constexpr uint32_t kThreadsOfTile = Places::kNumbers / kEach;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreadsOfTile + threadIdx.x;
  const uint32_t of_head = static_cast<uint32_t>(blockIdx.x) % p.tiles;
  const uint32_t head = static_cast<uint32_t>(blockIdx.x) / p.tiles;
  const uint32_t number = threadIdx.x * kEach;
  const uint32_t wave = number / Places::kWaveNumbers;
  const uint32_t lane = number % arch::kWaveSize;
  const int f = static_cast<int>(number / arch::kWaveSize % Places::kElements);

  const int at = static_cast<int>(of_head) * Config::kOthers;
  const int first = detail::lower(at, p.sq - Config::kOthers);
  const int query = first + Places::query(wave, lane, f);
  Number scale = static_cast<Number>(p.scale);
  Number mark(0);
  if constexpr (Config::kFixed) {
    const FixedPlaces<Places::kNumbers> places(p);
    const int unit = fixed::unit_of_head(p, places, head / p.group);
    const int64_t row = static_cast<int64_t>(head) * p.sq + query;
    scale *= fixed::inverse_power(unit - reinterpret_cast<const int*>(places.sizes)[row]);
    mark = reinterpret_cast<const Number*>(places.marks)[row];
    if (fixed::is_infinite(p, places, head / p.group)) mark = arch::bit_cast<float>(fixed::kNaN);
  }
  if (query < at) return;
  alignas(16) Sum sums[kEach];
  arch::copy_value<kEach>(sums, static_cast<const Sum*>(p.partial) + thread * kEach);
  alignas(16) T results[kEach];
#pragma unroll
  for (uint32_t i = 0; i < kEach; ++i) results[i] = convert<T>(arch::fma(static_cast<Number>(sums[i]), scale, mark));
  const AttentionOperand& x = p.g_q;
  T* to = static_cast<T*>(const_cast<void*>(x.data)) + head / p.heads * x.batch_stride +
          head % p.heads * x.head_stride + query * x.row_stride + Places::column(wave, lane) * x.column_stride;
  if constexpr (Config::kOutVec == kEach) {
    arch::copy_value<kEach>(to, results);
  } else {
#pragma unroll
    for (uint32_t i = 0; i < kEach; ++i) to[i * x.column_stride] = results[i];
  }
}

}  // namespace wmma
