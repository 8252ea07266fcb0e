// A product whose sums become an operand of the next one without leaving the wave's registers. Both products take their
// weights as the lines of the first operand and a wave's rows as the second one, so a lane's sums belong to one row
// (two on NVIDIA) and are neighbours along the weights' lines. Which line of a tile a lane reads is dealt so that they
// are whole chunks of the next product's operand, and so that lanes read without bank conflicts.
#pragma once

#include <wmma/tile/wave_tile.hpp>

namespace wmma {

namespace detail {

// Where `turned`, neighbouring parts of kPart values each trade places.
template <int kCount, int kPart, class X>
WMMA_DEVICE void exchange_parts(X* x, bool turned) {
#pragma unroll
  for (int first = 0; first < kCount; first += 2 * kPart) {
#pragma unroll
    for (int i = first; i < first + kPart; ++i) {
      const X low = x[i];
      const X high = x[i + kPart];
      x[i] = turned ? high : low;
      x[i + kPart] = turned ? low : high;
    }
  }
}

}  // namespace detail

#ifdef WMMA_AMD

// kRows lines by 16 rows: as many 16x16 instructions as fill the chunks of one step. Lane group g = lane / 16 holds
// lines g·kElements and on. Some groups hold the two halves of every eight exchanged (`turns`): where instructions deal
// lines by fours or twos, all groups reading the same part of eight lines would meet in the banks.
template <class T>
struct ChainProduct {
  using Inner = MatrixProduct<T, 16>;
  using Compute = typename Inner::Compute;
  static constexpr int kDepth = Inner::kDepth;
  static constexpr int kRows = kDepth;
  static constexpr int kCols = 16;
  static constexpr int kPerChunk = Inner::kPerChunk;
  static constexpr int kTiles = kRows / 16;
  static constexpr int kTileElements = Inner::C::kElements;
  static constexpr int kChunksA = kTiles * Inner::kChunksA;
  static constexpr int kChunksB = Inner::kChunksB;
#ifdef WMMA_RDNA4
  static constexpr bool kTurns = false;
#else
  static constexpr bool kTurns = true;
#endif

  static WMMA_CONSTEXPR bool turns(uint32_t group) { return kTurns && ((group ^ group >> 1) & 1) != 0; }

  struct C {
    static constexpr int kElements = kTiles * kTileElements;
    static WMMA_CONSTEXPR int row(uint32_t lane, int e) {
      return static_cast<int>(lane / 16) * kElements + (e ^ (turns(lane / 16) ? 4 : 0));
    }
    static WMMA_CONSTEXPR int col(uint32_t lane, int) { return lane % 16; }
  };

  static WMMA_CONSTEXPR uint32_t a_line(uint32_t lane, int i) {
    const int row = lane % 16;  // of the instruction's result
    const uint32_t owner = Inner::C::owner_lane(row, 0);
    return C::row(owner, i / Inner::kChunksA * kTileElements + Inner::C::owner_element(row, 0));
  }
  static WMMA_CONSTEXPR uint32_t a_chunk(uint32_t lane, int i) { return Inner::a_chunk(lane, i % Inner::kChunksA); }
  static WMMA_CONSTEXPR uint32_t b_line(uint32_t lane, int i) { return Inner::b_line(lane, i); }
  static WMMA_CONSTEXPR uint32_t b_chunk(uint32_t lane, int i) { return Inner::b_chunk(lane, i); }
  static WMMA_DEVICE Chunk load(const unsigned char* at) { return Inner::load(at); }

  static WMMA_DEVICE void mma(Compute* d, const Chunk* a, const Chunk* b) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) Inner::mma(d + i * kTileElements, a + i * Inner::kChunksA, b);
  }

  // The finished elements of a step's lines, as words, as the next product's chunks.
  static WMMA_DEVICE void chunks(Chunk* to, uint32_t* words, uint32_t lane) {
    constexpr int kWords = C::kElements * static_cast<int>(sizeof(T)) / 4;
    constexpr int kHalf = static_cast<int>(sizeof(T));  // words of four elements
    exchange<kWords, kHalf>(words, lane);
#ifdef WMMA_RDNA3
    uint32_t all[2 * kWords];
    join_halves<kWords>(all, words, lane);
    arch::copy_bytes<kChunksB * 16>(to, all);
#else
    arch::copy_bytes<kChunksB * 16>(to, words);
#endif
  }

  // A lane's sums as runs along the lines: kRuns rows of kRun neighbours.
  static constexpr int kRuns = 1;
  static constexpr int kRun = C::kElements;
  static WMMA_CONSTEXPR uint32_t run_line(uint32_t lane) { return lane / 16 * kRun; }
  static WMMA_CONSTEXPR uint32_t run_row(uint32_t lane, int) { return lane % 16; }
  static WMMA_DEVICE void runs(Compute* to, const Compute* sums, uint32_t lane) {
#pragma unroll
    for (int e = 0; e < kRun; ++e) to[e] = sums[e];
    exchange<kRun, 4>(to, lane);
  }

 private:
  // Puts the exchanged halves, kHalf values each, in order.
  template <int kCount, int kHalf, class X>
  static WMMA_DEVICE void exchange(X* x, uint32_t lane) {
    if constexpr (kTurns) detail::exchange_parts<kCount, kHalf>(x, turns(lane / 16));
  }
};

// The product that the chain ends with.
template <class T>
using LastProduct = ChainProduct<T>;

#else

// mma.sync with the weights' lines as its columns. 16-bit sums lie as the next operand's words already; for 8-bit ones
// each pair of instructions deals sixteen lines so that four neighbours meet in a lane.
template <class T>
struct ChainProduct {
  using Inner = MatrixProduct<T, 16>;
  using Compute = typename Inner::Compute;
  static constexpr int kDepth = Inner::kDepth;
  static constexpr int kRows = kDepth;
  static constexpr int kCols = 16;
  static constexpr int kPerChunk = Inner::kPerChunk;
  static constexpr int kChunksA = kRows / 16;
  static constexpr int kChunksB = 1;

  struct C {
    static constexpr int kElements = kRows / 2;
    static WMMA_CONSTEXPR int row(uint32_t lane, int e) {
      const int pair = e / 4 % 2;
      const int inside = sizeof(T) == 2 ? pair * 8 + lane % 4 * 2 : pair * 2 + lane % 4 * 4;
      return e / 8 * 16 + inside + e % 2;
    }
    static WMMA_CONSTEXPR int col(uint32_t lane, int e) { return lane / 4 + e / 2 % 2 * 8; }
  };

  static WMMA_CONSTEXPR uint32_t a_line(uint32_t lane, int i) {
    const uint32_t column = lane % 8;  // of instruction lane / 16
    return sizeof(T) == 2 ? Inner::b_line(lane, 0) : i * 16 + column / 2 * 4 + lane / 16 * 2 + column % 2;
  }
  static WMMA_CONSTEXPR uint32_t a_chunk(uint32_t lane, int) { return Inner::b_chunk(lane, 0); }
  static WMMA_CONSTEXPR uint32_t b_line(uint32_t lane, int) { return Inner::a_line(lane, 0); }
  static WMMA_CONSTEXPR uint32_t b_chunk(uint32_t lane, int) { return Inner::a_chunk(lane, 0); }
  static WMMA_CONSTEXPR uint32_t a_depth_line(uint32_t lane) { return Inner::b_depth_line(lane); }
  static WMMA_CONSTEXPR uint32_t a_outer_chunk(uint32_t lane) { return Inner::b_outer_chunk(lane); }
  static WMMA_CONSTEXPR uint32_t b_depth_line(uint32_t lane) { return Inner::a_depth_line(lane); }
  static WMMA_CONSTEXPR uint32_t b_outer_chunk(uint32_t lane) { return Inner::a_outer_chunk(lane); }
  static WMMA_DEVICE Chunk load(const unsigned char* at) { return Inner::load(at); }

  static WMMA_DEVICE void mma(Compute* d, const Chunk* a, const Chunk* b) { multiply<kChunksA>(d, a, b); }

  // The finished elements of a step's lines, as words, as the next product's chunk. Words of 8-bit ones have two rows'
  // pairs.
  static WMMA_DEVICE void chunks(Chunk* to, const uint32_t* words, uint32_t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(T) == 2) {
        to->words[i] = words[i];
      } else {
        const uint32_t* pair = words + i / 2 * 2;
        to->words[i] =
            i % 2 == 0 ? arch::pair_halves<false>(pair[0], pair[1]) : arch::pair_halves<true>(pair[0], pair[1]);
      }
    }
  }

 protected:
  // kCount times 16 lines.
  template <int kCount>
  static WMMA_DEVICE void multiply(Compute* d, const Chunk* a, const Chunk* b) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) Inner::mma(d + i * 8, b, a + i);
  }
};

// The product that the chain ends with: 32 lines by 16 rows, dealt so that a lane's sums are eight neighbouring lines
// of two rows. Lane q = lane % 4 of a quad has their pairs in the order of p ^ q: the lines of one ldmatrix then lie in
// different banks.
template <class T>
struct LastProduct : ChainProduct<T> {
  using Compute = typename ChainProduct<T>::Compute;
  static constexpr int kRows = 32;
  static constexpr int kChunksA = 2;

  struct C {
    static constexpr int kElements = 16;
  };

  static WMMA_CONSTEXPR uint32_t a_line(uint32_t lane, int i) {
    const uint32_t column = lane % 8;
    const uint32_t pair = i * 2 + lane / 16;
    return column / 2 * 8 + (pair ^ column / 2) * 2 + column % 2;
  }

  static WMMA_DEVICE void mma(Compute* d, const Chunk* a, const Chunk* b) {
    ChainProduct<T>::template multiply<kChunksA>(d, a, b);
  }

  static constexpr int kRuns = 2;
  static constexpr int kRun = 8;
  static WMMA_CONSTEXPR uint32_t run_line(uint32_t lane) { return lane % 4 * kRun; }
  static WMMA_CONSTEXPR uint32_t run_row(uint32_t lane, int run) { return lane / 4 + run * 8; }
  static WMMA_DEVICE void runs(Compute* to, const Compute* sums, uint32_t lane) {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
#pragma unroll
        for (int e = 0; e < 2; ++e) to[run * kRun + pair * 2 + e] = sums[pair * 4 + run * 2 + e];
      }
      detail::exchange_parts<kRun, 2>(to + run * kRun, (lane & 1) != 0);
      detail::exchange_parts<kRun, 4>(to + run * kRun, (lane & 2) != 0);
    }
  }
};

#endif

// Reads the chunks of groups of lines, step by step, from a tile whose lines run along the depth. Addresses differ by a
// constant from group to group of lines, and from step to step once the swizzle repeats: only those before are kept.
template <class Product, class Tile, bool kWeights, int kSteps>
class LineReader {
  static constexpr int kSide = kWeights ? Product::kRows : Product::kCols;
  static constexpr int kChunks = kWeights ? Product::kChunksA : Product::kChunksB;
  static constexpr int kOfStep = Product::kDepth / Product::kPerChunk;  // chunks of a line
  static constexpr int kPeriod = !Tile::kExchanges ? 1 : Tile::kChunks < Tile::kRow ? kSteps : Tile::kRow / kOfStep;
  static constexpr int kKept = kPeriod < 1 ? 1 : kPeriod < kSteps ? kPeriod : kSteps;
  static_assert(kSide % Tile::kPeriod == 0, "the swizzle repeats");

 public:
  WMMA_DEVICE explicit LineReader(uint32_t lane) {
#pragma unroll
    for (int step = 0; step < kKept; ++step) {
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        const uint32_t line = kWeights ? Product::a_line(lane, i) : Product::b_line(lane, i);
        const uint32_t chunk = kWeights ? Product::a_chunk(lane, i) : Product::b_chunk(lane, i);
        at_[step][i] = Tile::offset(line, step * kOfStep + chunk);
      }
    }
  }

  WMMA_DEVICE void read(Chunk* chunks, const unsigned char* tile, int group, int step) const {
    const int further = group * (kSide * Tile::kPitch * 16) + step / kKept * (kKept * kOfStep * 16);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) chunks[i] = Product::load(tile + at_[step % kKept][i] + further);
  }

 private:
  uint32_t at_[kKept][kChunks];
};

// One step of a product: `rows` gives the rows' operand, `reader` the lines' from `tile`.
template <class Product, int kLines, int kRows, class Rows, class Reader>
WMMA_DEVICE void multiply_step(WaveTile<Product, kLines, kRows>& sums, const Rows& rows, const Reader& reader,
                               const unsigned char* tile, int step) {
  using Sums = WaveTile<Product, kLines, kRows>;
  Chunk x[Sums::kTilesN][Product::kChunksB];
#pragma unroll
  for (int i = 0; i < Sums::kTilesN; ++i) rows.read(x[i], i, step);
#pragma unroll
  for (int group = 0; group < Sums::kTilesM; ++group) {
    Chunk lines[Product::kChunksA];
    reader.read(lines, tile, group, step);
#pragma unroll
    for (int i = 0; i < Sums::kTilesN; ++i) Product::mma(sums.sums[group][i], lines, x[i]);
  }
  arch::schedule_barrier();  // the steps' lines, all read at once, would fill the registers
}

}  // namespace wmma
