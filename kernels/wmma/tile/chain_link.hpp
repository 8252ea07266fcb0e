// Two products in a row that do not leave the wave: D1[row, n] = Σ_h f(D0[row, h])·B1[h, n]. Both take their operands
// from lines along what is summed up, one line a row or a column. A wave owns whole rows of both.
//
// On AMD each product is computed transposed, by exchanging its operands: all sums of a lane then belong to one row,
// lane % side, and are several of its columns. Which column stands on which line of the matrix unit's tile is free.
// It is dealt so that a lane's sums, in order, are runs of neighbouring columns, and kShare of them are what the lane
// brings to a step of the next product: `line` says which line of memory a line of the tile reads, `place` which column
// a sum belongs to. On NVIDIA two accumulators of m16n8 are A of the next m16n8k16 as they are.
//
// Where neither fits (kStays is false) the sums go through the wave's own shared memory: `write`, a wave barrier, and
// they are read like any operand.
#pragma once

#include <wmma/grid.hpp>
#include <wmma/tile/config.hpp>
#include <wmma/tile/product.hpp>

namespace wmma {

namespace detail {

// kCount sums, rounded to T, as the words of T in memory.
template <class T, int kCount, class Sum>
WMMA_DEVICE void pack(uint32_t* words, const Sum* sums) {
  if constexpr (kSame<T, half_t>) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) words[i / 2] = arch::half_pair(sums[i], sums[i + 1]);
  } else if constexpr (kSame<T, bf16_t>) {
#pragma unroll
    for (int i = 0; i < kCount; i += 2) words[i / 2] = arch::bf16_pair(sums[i], sums[i + 1]);
  } else {
    T values[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = convert<T>(sums[i]);
    arch::copy_bytes<kCount * sizeof(T)>(words, values);
  }
}

// x of all lanes whose numbers differ in the bits of kMasks alone, put together by `f`.
template <class T, class F>
WMMA_DEVICE T fold(T x, F f) {
  return x;
}
template <int kMask, int... kMasks, class T, class F>
WMMA_DEVICE T fold(T x, F f) {
#if defined(WMMA_RDNA3) || defined(WMMA_RDNA4)
  if constexpr (kMask == 16 && sizeof(T) == 4) {
    x = f(x, arch::bit_cast<T>(arch::other_half(arch::bit_cast<uint32_t>(x))));
  } else
#endif
  {
    x = f(x, shuffle_xor(x, kMask));
  }
  if constexpr (sizeof...(kMasks) > 0) x = fold<kMasks...>(x, f);
  return x;
}

}  // namespace detail

template <class Product>
struct Chain;

// Rows are A and columns are B, as they stand.
template <class P>
struct ChainInOrder {
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
struct Chain<MatrixProduct<T, kSide>> {
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

  static WMMA_CONSTEXPR uint32_t place(uint32_t lane, int sum) {
    return sum / kShare * kDepth + lane / kRows * kShare + sum % kShare;
  }
  static WMMA_CONSTEXPR uint32_t row(uint32_t lane, int) { return lane % kRows; }
  static WMMA_CONSTEXPR int row_of(int) { return 0; }

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
    constexpr int kWords = kShare * sizeof(T) / 4;
#ifdef WMMA_RDNA3
    join_halves<kWords>(rows->words, words, arch::lane_id());
#else
    static_assert(kWords == 4 * kRowChunks, "whole chunks");
    arch::copy_bytes<kWords * 4>(rows, words);  // which tells the compiler that they are read as another type
#endif
  }
};

#else

template <class T, int kSide>
struct Chain<MatrixProduct<T, kSide>> : ChainInOrder<MatrixProduct<T, kSide>> {
  using Base = ChainInOrder<MatrixProduct<T, kSide>>;
  using Element = T;
  using Sum = typename Base::Sum;
  static constexpr bool kStays = sizeof(T) == 2;
  static constexpr int kShare = 8;
  static constexpr int kWhole = Base::kDepth > Base::kCols ? Base::kDepth : Base::kCols;
  static constexpr int kRun = 2;
  static constexpr int kLaneRows = kSame<T, double> ? 1 : 2;

  static WMMA_CONSTEXPR uint32_t row(uint32_t lane, int i) { return lane / 4 + 8 * i; }
  static WMMA_CONSTEXPR int row_of(int sum) { return kLaneRows == 1 ? 0 : sum / 2 % 2; }

  template <class F>
  static WMMA_DEVICE Sum fold(Sum x, F f) {
    return detail::fold<1, 2>(x, f);
  }

  static WMMA_DEVICE void join(Chunk* rows, const uint32_t* words) {
#pragma unroll
    for (int i = 0; i < 4; ++i) rows->words[i] = words[i];
  }
};

#endif

template <class T>
struct Chain<LaneProduct<T>> : ChainInOrder<LaneProduct<T>> {
  using Base = ChainInOrder<LaneProduct<T>>;
  using Product = LaneProduct<T>;
  using Element = T;
  static constexpr bool kStays = false;
  static constexpr int kShare = 1;
  static constexpr int kWhole = Base::kCols;
  static constexpr int kRun = 1;
  static constexpr int kLaneRows = Product::kSide;
#ifdef WMMA_AMD
  // A step is hundreds of instructions here: written out, they spill registers and take clang many seconds.
  static constexpr bool kStepsLoop = true;
#endif

  static WMMA_CONSTEXPR uint32_t row(uint32_t lane, int i) { return Base::C::row(lane, i * Product::kSide); }
  static WMMA_CONSTEXPR int row_of(int sum) { return sum % Base::kElements / Product::kSide; }

  template <class F>
  static WMMA_DEVICE T fold(T x, F f) {
    if constexpr (arch::kWaveSize == 32) {
      return detail::fold<8, 16>(x, f);
    } else {
      return detail::fold<8, 16, 32>(x, f);
    }
  }
};

}  // namespace wmma
