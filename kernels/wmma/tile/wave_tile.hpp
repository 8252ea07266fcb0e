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
    for (int i = 0; i < kTilesM; ++i) {
#pragma unroll
      for (int j = 0; j < kTilesN; ++j) Product::mma(sums[i][j], x.a[i], x.b[j]);
    }
  }
};

// Reads operands of step after step from tiles whose lines run along K. The addresses differ from step to step by more
// than a sum, but not from line to line: so each step has its own, computed once.
template <class Product, class TileA, class TileB, int kTilesM, int kTilesN, int kSteps>
class OperandReader {
 public:
  WMMA_DEVICE OperandReader(uint32_t lane, uint32_t first_row, uint32_t first_col, uint32_t first_step,
                            uint32_t step_stride) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint32_t k = first_step + step * step_stride;
#pragma unroll
      for (int i = 0; i < Product::kChunksA; ++i) {
        a_[step][i] =
            TileA::offset(first_row + Product::a_line(lane, i), k * kChunksOfStep + Product::a_chunk(lane, i));
      }
#pragma unroll
      for (int i = 0; i < Product::kChunksB; ++i) {
        b_[step][i] =
            TileB::offset(first_col + Product::b_line(lane, i), k * kChunksOfStep + Product::b_chunk(lane, i));
      }
    }
  }

  template <class Operands>
  WMMA_DEVICE void read(Operands& x, const unsigned char* a, const unsigned char* b, int step) const {
    read_a(x, a, step);
    read_b(x, b, step);
  }

 private:
  template <class Operands>
  WMMA_DEVICE void read_a(Operands& x, const unsigned char* tile, int step) const {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < Product::kChunksA; ++i) x.a[m][i] = Product::load(tile + a_[step][i] + m * kRowsA);
    }
  }
  template <class Operands>
  WMMA_DEVICE void read_b(Operands& x, const unsigned char* tile, int step) const {
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
#pragma unroll
      for (int i = 0; i < Product::kChunksB; ++i) x.b[n][i] = Product::load(tile + b_[step][i] + n * kRowsB);
    }
  }

  // Whole products further down the swizzle is the same again, so they lie at constant distances.
  static_assert(Product::kRows % TileA::kPeriod == 0 && Product::kCols % TileB::kPeriod == 0, "the swizzle repeats");
  static constexpr int kChunksOfStep = Product::kDepth / Product::kPerChunk;
  static constexpr int kRowsA = Product::kRows * TileA::kPitch * 16;
  static constexpr int kRowsB = Product::kCols * TileB::kPitch * 16;

  uint32_t a_[kSteps][Product::kChunksA];
  uint32_t b_[kSteps][Product::kChunksB];
};

}  // namespace wmma
