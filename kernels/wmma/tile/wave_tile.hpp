// One wave's part of a block's product: its accumulators, and the products of a tile in shared memory.
#pragma once

#include <wmma/tile/product.hpp>

namespace wmma {

// kM×kN of the block; waves that split K take every kWavesK-th step of a tile.
template <class Product, int kM, int kN>
struct WaveTile {
  using Compute = typename Product::Compute;
  using C = typename Product::C;
  static constexpr int kTilesM = kM / Product::kRows;
  static constexpr int kTilesN = kN / Product::kCols;
  static_assert(kM % Product::kRows == 0 && kN % Product::kCols == 0, "whole products");

  Compute sums[kTilesM][kTilesN][C::kElements];

  WMMA_DEVICE void clear() {
#pragma unroll
    for (int i = 0; i < kTilesM; ++i) {
#pragma unroll
      for (int j = 0; j < kTilesN; ++j) {
#pragma unroll
        for (int e = 0; e < C::kElements; ++e) sums[i][j][e] = Compute(0);
      }
    }
  }

  // The operands of one step in registers.
  struct Operands {
    Chunk a[kTilesM][Product::kChunksA];
    Chunk b[kTilesN][Product::kChunksB];
  };

  WMMA_DEVICE void multiply(const Operands& x) {
#pragma unroll
    for (int i = 0; i < kTilesM; ++i) multiply_row(x, i);
  }
  WMMA_DEVICE void multiply_row(const Operands& x, int i) {
#pragma unroll
    for (int j = 0; j < kTilesN; ++j) Product::mma(sums[i][j], x.a[i], x.b[j]);
  }
};

// In how many parts a product takes its operands.
template <class Product, class = void>
inline constexpr int kPartsOf = 1;
template <class Product>
inline constexpr int kPartsOf<Product, decltype(static_cast<void>(Product::kParts))> = Product::kParts;

// Reads an operand's kTiles tiles of step after step from a tile whose lines run along K. The addresses differ from
// step to step by more than a sum, but not from line to line: so each step has its own, computed once.
template <class Product, class Tile, bool kIsA, int kTiles, int kSteps>
class LineReader {
  static constexpr int kSide = kIsA ? Product::kRows : Product::kCols;
  static constexpr int kChunks = kIsA ? Product::kChunksA : Product::kChunksB;
  static constexpr int kOfPart = kChunks / kPartsOf<Product>;  // the other parts lie as the first

 public:
  WMMA_DEVICE LineReader(uint32_t lane, uint32_t first, uint32_t first_step, uint32_t step_stride) {
    constexpr int kChunksOfStep = Product::kDepth / Product::kPerChunk;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint32_t chunk = (first_step + step * step_stride) * kChunksOfStep;
#pragma unroll
      for (int i = 0; i < kOfPart; ++i) {
        at_[step][i] = kIsA ? Tile::offset(first + Product::a_line(lane, i), chunk + Product::a_chunk(lane, i))
                            : Tile::offset(first + Product::b_line(lane, i), chunk + Product::b_chunk(lane, i));
      }
    }
  }

  WMMA_DEVICE void read(Chunk (&x)[kTiles][kChunks], const unsigned char* tile, int step) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) read_tile(x[n], tile, step, n);
  }

  WMMA_DEVICE void read_tile(Chunk (&x)[kChunks], const unsigned char* tile, int step, int n) const {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      const int beside = i / kOfPart * (Tile::kBytes / kPartsOf<Product>)+n * (kSide * Tile::kPitch * 16);
      x[i] = Product::load(tile + at_[step][i % kOfPart] + beside);
    }
  }

 private:
  // Whole products further down the swizzle is the same again, so they lie at constant distances.
  static_assert(kSide % Tile::kPeriod == 0, "the swizzle repeats");
  uint32_t at_[kSteps][kOfPart];
};

// A's and B's operands, each by its reader.
template <class ReaderA, class ReaderB>
class OperandReader {
 public:
  WMMA_DEVICE OperandReader(uint32_t lane, uint32_t first_row, uint32_t first_col, uint32_t first_step,
                            uint32_t step_stride)
      : a_(lane, first_row, first_step, step_stride), b_(lane, first_col, first_step, step_stride) {}

  template <class Operands>
  WMMA_DEVICE void read(Operands& x, const unsigned char* a, const unsigned char* b, int step) const {
    a_.read(x.a, a, step);
    b_.read(x.b, b, step);
  }

  template <class Operands>
  WMMA_DEVICE void read_tile(Operands& x, const unsigned char* a, const unsigned char* b, int step, int n) const {
    constexpr int kTilesN = sizeof(x.b) / sizeof(x.b[0]);
    if (n == 0 || n > kTilesN) {
      const int i = n == 0 ? 0 : n - kTilesN;
      a_.read_tile(x.a[i], a, step, i);
    } else {
      b_.read_tile(x.b[n - 1], b, step, n - 1);
    }
  }

 private:
  ReaderA a_;
  ReaderB b_;
};

}  // namespace wmma
