// Two products in a row that do not leave the wave: D1[row, n] = Σ_h f(D0[row, h])·B1[h, n]. Both take their operands
// from lines along what is summed up, one line a row or a column. A wave owns whole rows of both.
//
// On AMD each product is computed transposed, by exchanging its operands: all sums of a lane then belong to one row,
// lane % side, and are several of its columns. Which column stands on which line of the matrix unit's tile is free.
// It is dealt so that a lane's sums, in order, are runs of neighbouring columns, and kShare of them are what the lane
// brings to a step of the next product: `line` says which line of memory a line of the tile reads, `place` which column
// a sum belongs to, and `sum_of` puts a lane's sums into the order of runs: kRun neighbours of one row, then of the
// next. On NVIDIA two accumulators of m16n8 are A of the next m16n8k16 as they are.
//
// Where neither fits (kStays is false) the sums go through the wave's own shared memory: `write`, a wave barrier, and
// they are read like any operand.
#pragma once

#include <wmma/grid.hpp>
#include <wmma/tile/config.hpp>
#include <wmma/tile/product.hpp>
#include <wmma/tile/rounding.hpp>

namespace wmma {

namespace detail {

// x of all lanes whose numbers differ in the bits of kMasks alone, put together by `f`.
template <class T, class F>
WMMA_DEVICE T fold(T x, F f) {
  return x;
}
template <int kMask, int... kMasks, class T, class F>
WMMA_DEVICE T fold(T x, F f) {
  if constexpr (arch::kIsRdna && kMask == 16 && sizeof(T) == 4) {
    x = f(x, arch::bit_cast<T>(arch::fold_word<16>(arch::bit_cast<uint32_t>(x))));
  } else {
    x = f(x, shuffle_xor(x, kMask));
  }
  if constexpr (sizeof...(kMasks) > 0) x = fold<kMasks...>(x, f);
  return x;
}

}  // namespace detail

template <class Product>
struct ChainLink;

// Rows are A and columns are B, as they stand.
template <class P>
struct LinkInOrder {
  using Product = P;
  using Sum = typename P::Compute;
  using C = typename P::C;
  static constexpr int kRows = P::kRows;
  static constexpr int kCols = P::kCols;
  static constexpr int kDepth = P::kDepth;
  static constexpr int kPerChunk = P::kPerChunk;
  static constexpr int kElements = C::kElements;
  static constexpr int kRowChunks = P::kChunksA;
  static constexpr int kColChunks = P::kChunksB;
  static constexpr bool kStepsLoop = false;

  static WMMA_CONSTEXPR uint32_t row_line(uint32_t lane, int i) { return P::a_line(lane, i); }
  static WMMA_CONSTEXPR uint32_t row_chunk(uint32_t lane, int i) { return P::a_chunk(lane, i); }
  static WMMA_CONSTEXPR uint32_t col_line(uint32_t lane, int i) { return P::b_line(lane, i); }
  static WMMA_CONSTEXPR uint32_t col_chunk(uint32_t lane, int i) { return P::b_chunk(lane, i); }
  static WMMA_CONSTEXPR uint32_t first_line(int tile) { return tile * kCols; }
  static WMMA_CONSTEXPR uint32_t rank(uint32_t line) { return line; }

  static WMMA_CONSTEXPR uint32_t place(uint32_t lane, int sum) {
    return sum / kElements * kCols + C::col(lane, sum % kElements);
  }

  static WMMA_DEVICE void mma(Sum* d, const Chunk* rows, const Chunk* cols) { P::mma(d, rows, cols); }
};

#ifdef WMMA_AMD

template <class T, int kSide>
struct ChainLink<MatrixProduct<T, kSide>> {
  using Product = MatrixProduct<T, kSide>;
  using Element = T;
  using Sum = typename Product::Compute;
  using C = typename Product::C;
  static constexpr bool kStays = true;
  static constexpr int kRows = C::kCols;
  static constexpr int kCols = C::kRows;
  static constexpr int kDepth = Product::kDepth;
  static constexpr int kPerChunk = Product::kPerChunk;
  static constexpr int kElements = C::kElements;
  static constexpr int kRowChunks = Product::kChunksB;
  static constexpr int kColChunks = Product::kChunksA;
  static constexpr bool kStepsLoop = false;
  static constexpr int kShare = kDepth / (arch::kWaveSize / kRows);  // neighbouring columns of a lane
  static constexpr int kWhole = kDepth > kCols ? kDepth : kCols;     // columns come in so many
  static constexpr int kRun = kShare;
  static constexpr int kLaneRows = 1;

  static WMMA_CONSTEXPR uint32_t row_line(uint32_t lane, int i) { return Product::b_line(lane, i); }
  static WMMA_CONSTEXPR uint32_t row_chunk(uint32_t lane, int i) { return Product::b_chunk(lane, i); }
  static WMMA_CONSTEXPR uint32_t col_line(uint32_t lane, int i) { return line(Product::a_line(lane, i)); }
  static WMMA_CONSTEXPR uint32_t col_chunk(uint32_t lane, int i) { return Product::a_chunk(lane, i); }

  // Memory's line of the first tile's line, and where the lines of other tiles start.
  static WMMA_CONSTEXPR uint32_t line(uint32_t of_tile) {
    return place(C::owner_lane(of_tile, 0), C::owner_element(of_tile, 0));
  }
  static WMMA_CONSTEXPR uint32_t first_line(int tile) { return place(0, tile * kElements); }
  // Undoes `line`; the same for all tiles but for multiples of 16.
  static WMMA_CONSTEXPR uint32_t rank(uint32_t line) {
    const uint32_t group = line % kDepth / kShare;
    const uint32_t element = (line / kDepth * kShare + line % kShare) % kElements;
    return C::row(group * kRows, element);
  }
  // Whether it is a line of every second group of lanes.
  static WMMA_CONSTEXPR uint32_t half(uint32_t line) { return line / kShare % 2; }

  static WMMA_CONSTEXPR uint32_t place(uint32_t lane, int sum) {
    return sum / kShare * kDepth + lane / kRows * kShare + sum % kShare;
  }
  static WMMA_CONSTEXPR uint32_t row(uint32_t lane, int) { return lane % kRows; }
  static WMMA_CONSTEXPR int row_of(int) { return 0; }
  static WMMA_CONSTEXPR int sum_of(int i) { return i; }

  static WMMA_DEVICE void mma(Sum* d, const Chunk* rows, const Chunk* cols) { Product::mma(d, cols, rows); }

  template <class F>
  static WMMA_DEVICE Sum fold(Sum x, F f) {
    if constexpr (arch::kWaveSize == 32) {
      return detail::fold<16>(x, f);
    } else if constexpr (kSide == 32) {
      return detail::fold<32>(x, f);
    } else {
      return detail::fold<16, 32>(x, f);
    }
  }

  // What a lane brings to a step of the next product, of the words of its kShare sums.
  static WMMA_DEVICE void join(Chunk* rows, const uint32_t* words) {
    constexpr int kWords = bytes_of<T>(kShare) / 4;
    if constexpr (arch::kHoldsOperandsTwice) {
      join_halves<kWords>(rows->words, words, arch::lane_id());
    } else {
      static_assert(kWords == 4 * kRowChunks, "whole chunks");
      arch::copy_bytes<kWords * 4>(rows, words);  // which tells the compiler that they are read as another type
    }
  }
};

// The link that a chain ends with.
template <class T, int kSide>
using LastLink = ChainLink<MatrixProduct<T, kSide>>;

#else

// kPairs pairs of sums of a lane are neighbours: lane q of a quad has the q-th 2·kPairs of every 8·kPairs columns.
template <class T, int kSide, int kPairs>
struct PairLink : LinkInOrder<MatrixProduct<T, kSide>> {
  using Base = LinkInOrder<MatrixProduct<T, kSide>>;
  using Product = MatrixProduct<T, kSide>;
  using Element = T;
  using Sum = typename Base::Sum;
  static constexpr bool kStays = kBitsOf<T> <= 16;
  static constexpr int kShare = Base::kDepth / 2;
  static constexpr int kWhole = detail::upper(Base::kDepth, detail::upper(Base::kCols, 8 * kPairs));
  static constexpr int kRun = 2 * kPairs;
  static constexpr int kLaneRows = kSame<T, double> ? 1 : 2;

  static WMMA_CONSTEXPR uint32_t col_line(uint32_t lane, int i) { return line(Product::b_line(lane, i)); }
  static WMMA_CONSTEXPR uint32_t line(uint32_t of_tile) {
    if constexpr (kPairs == 1) return of_tile;
    constexpr uint32_t kGroup = 8 * kPairs;
    return of_tile / kGroup * kGroup + of_tile % 8 / 2 * kRun + of_tile / 8 % kPairs * 2 + of_tile % 2;
  }
  static WMMA_CONSTEXPR uint32_t first_line(int tile) { return line(tile * Base::kCols); }
  static WMMA_CONSTEXPR uint32_t rank(uint32_t line) {
    if constexpr (kPairs == 1) return line;
    constexpr uint32_t kGroup = 8 * kPairs;
    return line / kGroup * kGroup + line / 2 % kPairs * 8 + line % kGroup / kRun * 2 + line % 2;
  }
  static WMMA_CONSTEXPR uint32_t half(uint32_t line) { return line / 8 % 2; }
  static WMMA_CONSTEXPR uint32_t place(uint32_t lane, int sum) { return line(Base::place(lane, sum)); }

  static WMMA_CONSTEXPR uint32_t row(uint32_t lane, int i) { return lane / 4 + 8 * i; }
  static WMMA_CONSTEXPR int row_of(int sum) { return kLaneRows == 1 ? 0 : sum / 2 % 2; }
  static WMMA_CONSTEXPR int sum_of(int i) {
    return i / (2 * kRun) * (2 * kRun) + i % kRun / 2 * 4 + i / kRun % 2 * 2 + i % 2;
  }

  template <class F>
  static WMMA_DEVICE Sum fold(Sum x, F f) {
    return detail::fold<1, 2>(x, f);
  }

  // Words of 8-bit sums have two rows' pairs.
  static WMMA_DEVICE void join(Chunk* rows, const uint32_t* words) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kBitsOf<T> == 8) {
        const uint32_t* two = words + i / 2 * 2;
        rows->words[i] =
            i % 2 == 0 ? arch::pair_halves<false>(two[0], two[1]) : arch::pair_halves<true>(two[0], two[1]);
      } else {
        rows->words[i] = words[i];
      }
    }
  }
};

// Two accumulators of 16-bit products are A of the next one as they are; of 8-bit ones, where four columns of a lane
// are neighbours.
template <class T, int kSide>
struct ChainLink<MatrixProduct<T, kSide>> : PairLink<T, kSide, kBitsOf<T> == 8 ? 2 : 1> {};

// The link that a chain ends with: a lane's sums are eight neighbours of each of its rows, which are stored at once.
template <class T, int kSide>
using LastLink = PairLink<T, kSide, 4>;

#endif

template <class T>
struct ChainLink<LaneProduct<T>> : LinkInOrder<LaneProduct<T>> {
  using Base = LinkInOrder<LaneProduct<T>>;
  using Product = LaneProduct<T>;
  using Element = T;
  static constexpr bool kStays = false;
  static constexpr int kShare = 1;
  static constexpr int kWhole = Base::kCols;
  static constexpr int kRun = 1;
  static constexpr int kLaneRows = Product::kSide;
  // A step is hundreds of instructions here: written out, they spill registers and take clang many seconds.
  static constexpr bool kStepsLoop = arch::kIsCdna || arch::kIsRdna;

  static WMMA_CONSTEXPR uint32_t row(uint32_t lane, int i) { return Base::C::row(lane, i * Product::kSide); }
  static WMMA_CONSTEXPR int row_of(int sum) { return sum % Base::kElements / Product::kSide; }
  static WMMA_CONSTEXPR int sum_of(int i) { return i; }

  template <class F>
  static WMMA_DEVICE T fold(T x, F f) {
    if constexpr (arch::kWaveSize == 32) {
      return detail::fold<8, 16>(x, f);
    } else {
      return detail::fold<8, 16, 32>(x, f);
    }
  }
};

// A product of a main loop whose sums go on as a chain's: rows are A, the columns of whole steps B.
template <class Link>
struct LinkedProduct : Link::Product {
  using Compute = typename Link::Sum;
  static constexpr int kRows = Link::kRows;
  static constexpr int kCols = Link::kWhole;
  static constexpr int kTiles = kCols / Link::kCols;
  static constexpr int kChunksA = Link::kRowChunks;
  static constexpr int kChunksB = kTiles * Link::kColChunks;

  struct C {
    static constexpr int kElements = kTiles * Link::kElements;
  };

  static WMMA_CONSTEXPR uint32_t a_line(uint32_t lane, int i) { return Link::row_line(lane, i); }
  static WMMA_CONSTEXPR uint32_t a_chunk(uint32_t lane, int i) { return Link::row_chunk(lane, i); }
  static WMMA_CONSTEXPR uint32_t b_line(uint32_t lane, int i) {
    return Link::first_line(i / Link::kColChunks) + Link::col_line(lane, i % Link::kColChunks);
  }
  static WMMA_CONSTEXPR uint32_t b_chunk(uint32_t lane, int i) { return Link::col_chunk(lane, i % Link::kColChunks); }

  static WMMA_DEVICE void mma(Compute* d, const Chunk* rows, const Chunk* cols) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) Link::mma(d + i * Link::kElements, rows, cols + i * Link::kColChunks);
  }
};

// What ends a phase of products: the block's barrier, which none of its instructions crosses.
WMMA_DEVICE void end_phase() {
  arch::schedule_barrier();
  arch::shared_barrier();
  arch::schedule_barrier();
}

}  // namespace wmma
