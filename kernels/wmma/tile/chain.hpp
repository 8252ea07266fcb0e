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
    // Both halves of the wave want all of the row; each has half.
    const bool upper = arch::lane_id() >= 16;
    uint32_t* to = rows->words;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const uint32_t other = arch::other_half(words[i]);
      to[i] = upper ? other : words[i];
      to[kWords + i] = upper ? words[i] : other;
    }
#else
    static_assert(kWords == 4 * kRowChunks, "whole chunks");
    arch::copy_bytes<kWords * 4>(rows, words);  // which tells the compiler that they are read as another type
#endif
  }
};

#else

template <class T, int kSide>
struct Chain<MatrixProduct<T, kSide>> {
  using Product = MatrixProduct<T, kSide>;
  using Element = T;
  using Sum = typename Product::Compute;
  using C = typename Product::C;
  static constexpr bool kStays = sizeof(T) == 2;
  static constexpr int kRows = Product::kRows;
  static constexpr int kCols = Product::kCols;
  static constexpr int kDepth = Product::kDepth;
  static constexpr int kPerChunk = Product::kPerChunk;
  static constexpr int kElements = C::kElements;
  static constexpr int kRowChunks = Product::kChunksA;
  static constexpr int kColChunks = Product::kChunksB;
  static constexpr int kShare = 8;
  static constexpr int kWhole = kDepth > kCols ? kDepth : kCols;
  static constexpr int kRun = 2;
  static constexpr int kLaneRows = kSame<T, double> ? 1 : 2;

  static WMMA_CONSTEXPR uint32_t row_line(uint32_t lane, int i) { return Product::a_line(lane, i); }
  static WMMA_CONSTEXPR uint32_t row_chunk(uint32_t lane, int i) { return Product::a_chunk(lane, i); }
  static WMMA_CONSTEXPR uint32_t col_line(uint32_t lane, int i) { return Product::b_line(lane, i); }
  static WMMA_CONSTEXPR uint32_t col_chunk(uint32_t lane, int i) { return Product::b_chunk(lane, i); }
  static WMMA_CONSTEXPR uint32_t first_line(int tile) { return tile * kCols; }
  static WMMA_CONSTEXPR uint32_t rank(uint32_t line) { return line; }

  static WMMA_CONSTEXPR uint32_t place(uint32_t lane, int sum) {
    return sum / kElements * kCols + C::col(lane, sum % kElements);
  }
  static WMMA_CONSTEXPR uint32_t row(uint32_t lane, int i) { return lane / 4 + 8 * i; }
  static WMMA_CONSTEXPR int row_of(int sum) { return kLaneRows == 1 ? 0 : sum / 2 % 2; }

  static WMMA_DEVICE void mma(Sum* d, const Chunk* rows, const Chunk* cols) { Product::mma(d, rows, cols); }

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
struct Chain<LaneProduct<T>> {
  using Product = LaneProduct<T>;
  using Element = T;
  using Sum = T;
  using C = typename Product::C;
  static constexpr bool kStays = false;
  static constexpr int kRows = Product::kRows;
  static constexpr int kCols = Product::kCols;
  static constexpr int kDepth = Product::kDepth;
  static constexpr int kPerChunk = Product::kPerChunk;
  static constexpr int kElements = C::kElements;
  static constexpr int kRowChunks = Product::kChunksA;
  static constexpr int kColChunks = Product::kChunksB;
  static constexpr int kShare = 1;
  static constexpr int kWhole = kCols;
  static constexpr int kRun = 1;
  static constexpr int kLaneRows = Product::kSide;

  static WMMA_CONSTEXPR uint32_t row_line(uint32_t lane, int i) { return Product::a_line(lane, i); }
  static WMMA_CONSTEXPR uint32_t row_chunk(uint32_t lane, int i) { return Product::a_chunk(lane, i); }
  static WMMA_CONSTEXPR uint32_t col_line(uint32_t lane, int i) { return Product::b_line(lane, i); }
  static WMMA_CONSTEXPR uint32_t col_chunk(uint32_t lane, int i) { return Product::b_chunk(lane, i); }
  static WMMA_CONSTEXPR uint32_t first_line(int tile) { return tile * kCols; }
  static WMMA_CONSTEXPR uint32_t rank(uint32_t line) { return line; }

  static WMMA_CONSTEXPR uint32_t place(uint32_t lane, int sum) {
    return sum / kElements * kCols + C::col(lane, sum % kElements);
  }
  static WMMA_CONSTEXPR uint32_t row(uint32_t lane, int i) { return C::row(lane, i * Product::kSide); }
  static WMMA_CONSTEXPR int row_of(int sum) { return sum % kElements / Product::kSide; }

  static WMMA_DEVICE void mma(Sum* d, const Chunk* rows, const Chunk* cols) { Product::mma(d, rows, cols); }

  template <class F>
  static WMMA_DEVICE Sum fold(Sum x, F f) {
    if constexpr (arch::kWaveSize == 32) {
      return detail::fold<8, 16>(x, f);
    } else {
      return detail::fold<8, 16, 32>(x, f);
    }
  }
};

// A tile of kLineCount lines, swizzled so that the lines of `rank` 0, 1, 2, … read at one chunk touch every bank once.
template <class Lines, int kLineCount, int kLineBytes>
struct ChainTile {
  static_assert(kLineBytes % 16 == 0, "lines are made of chunks");
  static constexpr int kLines = kLineCount;
  static constexpr int kChunks = kLineBytes / 16;
  static constexpr int kRow = arch::kBankBytes / 16;  // chunks side by side in the banks
  static constexpr bool kExchanges = kChunks % kRow == 0 || kRow % kChunks == 0;
  // Lines that do not fit the exchange lie an odd number of chunks apart instead.
  static constexpr int kPitch = kExchanges ? kChunks : kChunks | 1;
  static constexpr int kBytes = kLineCount * kPitch * 16;
  // So many neighbouring chunks of a line are exchanged among each other.
  static constexpr int kPeriodChunks = !kExchanges ? 1 : kChunks < kRow ? kChunks : kRow;
  static constexpr int kLinesOfRow = kChunks < kRow ? kRow / kChunks : 1;

  static WMMA_CONSTEXPR uint32_t offset(uint32_t line, uint32_t chunk) {
    const uint32_t at = line * kPitch + chunk;
    return (kExchanges ? at ^ Lines::rank(line) / kLinesOfRow % kPeriodChunks : at) * 16;
  }
};

// Where a lane finds a line's chunks step by step. Steps differ by more than a sum only within a tile's period, so no
// more addresses than that has are kept.
template <class Tile, int kChunksOfStep>
class StepPlaces {
  static constexpr int kKept = Tile::kPeriodChunks > kChunksOfStep ? Tile::kPeriodChunks / kChunksOfStep : 1;

 public:
  WMMA_DEVICE StepPlaces() = default;
  WMMA_DEVICE StepPlaces(uint32_t line, uint32_t chunk) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) at_[i] = Tile::offset(line, chunk + i * kChunksOfStep);
  }
  // In bytes, `line` lines further down: a number by which the swizzle repeats.
  WMMA_DEVICE uint32_t at(int step, int line) const {
    return at_[step % kKept] + (step / kKept * kKept * kChunksOfStep + line * Tile::kPitch) * 16;
  }

 private:
  uint32_t at_[kKept];
};

// A wave's rows as an operand: tile m, step by step.
template <class Chain, class Tile>
class RowReader {
 public:
  WMMA_DEVICE RowReader(uint32_t lane, uint32_t first_row) {
#pragma unroll
    for (int i = 0; i < Chain::kRowChunks; ++i) {
      places_[i] = Places(first_row + Chain::row_line(lane, i), Chain::row_chunk(lane, i));
    }
  }
  template <class Address>
  WMMA_DEVICE void read(Chunk* x, Address tile, int m, int step) const {
#pragma unroll
    for (int i = 0; i < Chain::kRowChunks; ++i) {
      x[i] = Chain::Product::load(tile + places_[i].at(step, m * Chain::kRows));
    }
  }

 private:
  using Places = StepPlaces<Tile, Chain::kDepth / Chain::kPerChunk>;
  Places places_[Chain::kRowChunks];
};

// Columns as an operand: tile n, step by step.
template <class Chain, class Tile>
class ColumnReader {
 public:
  WMMA_DEVICE explicit ColumnReader(uint32_t lane) {
#pragma unroll
    for (int i = 0; i < Chain::kColChunks; ++i) {
      places_[i] = Places(Chain::col_line(lane, i), Chain::col_chunk(lane, i));
    }
  }
  template <class Address>
  WMMA_DEVICE void read(Chunk* x, Address tile, int n, int step) const {
#pragma unroll
    for (int i = 0; i < Chain::kColChunks; ++i) {
      x[i] = Chain::Product::load(tile + places_[i].at(step, Chain::first_line(n)));
    }
  }

 private:
  using Places = StepPlaces<Tile, Chain::kDepth / Chain::kPerChunk>;
  Places places_[Chain::kColChunks];
};

// sums[m] += rows·columnsᵀ for kTilesM tiles of rows and kTiles of columns, kSteps deep from kFirst on. `take(rows,
// step)` gives the rows' operands. The columns' are read a group ahead of their use, and no further: registers hold no
// more of them.
#ifdef WMMA_AMD
constexpr int kMostChunks = 4;
#else
constexpr int kMostChunks = 2;
#endif
template <class Chain, int kTiles, int kSteps, int kFirst = 0, int kTilesM, int kSums, class Sum, class Reader,
          class Address, class Take>
WMMA_DEVICE void chain_product(Sum (&sums)[kTilesM][kSums], const Reader& reader, Address tile, const Take& take) {
  constexpr int kGroup =
      detail::divisor_up_to(kTiles, kMostChunks < Chain::kColChunks ? 1 : kMostChunks / Chain::kColChunks);
  constexpr int kGroups = kTiles / kGroup;
  Chunk rows[kTilesM][Chain::kRowChunks];
  Chunk columns[2][kGroup][Chain::kColChunks];
  const auto read = [&](int i) {
#pragma unroll
    for (int n = 0; n < kGroup; ++n)
      reader.read(columns[i % 2][n], tile, i % kGroups * kGroup + n, kFirst + i / kGroups);
  };
  read(0);
#pragma unroll
  for (int i = 0; i < kSteps * kGroups; ++i) {
    if (i + 1 < kSteps * kGroups) read(i + 1);
    if (i % kGroups == 0) take(rows, kFirst + i / kGroups);
#pragma unroll
    for (int n = 0; n < kGroup; ++n) {
#pragma unroll
      for (int m = 0; m < kTilesM; ++m) {
        Chain::mma(sums[m] + (i % kGroups * kGroup + n) * Chain::kElements, rows[m], columns[i % 2][n]);
      }
    }
    arch::schedule_barrier();
  }
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) arch::settle(sums[m][n * Chain::kElements]);
  }
}

// Sums of a tile of rows as lines of shared memory, for chains whose sums do not stay.
template <class Chain, class Tile, int kCount, class Sum>
WMMA_DEVICE void write_sums(unsigned char* tile, uint32_t lane, uint32_t first_row, const Sum* sums) {
  using T = typename Chain::Element;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const uint32_t byte = Chain::place(lane, i) * static_cast<uint32_t>(sizeof(T));
    const uint32_t line = first_row + Chain::row(lane, Chain::row_of(i));
    *reinterpret_cast<T*>(tile + Tile::offset(line, byte / 16) + byte % 16) = convert<T>(sums[i]);
  }
}

}  // namespace wmma
