// A wave's rows as operands, each lane's part of its row straight from memory; and delta of queries whose g_out a wave
// has so: what passes/delta.hpp does for all of them.
#pragma once

#include <wmma/attention/rows/dense.hpp>
#include <wmma/tile/chain_link.hpp>

namespace wmma {

// A lane's part of a row, step by step. kNeighbours: its columns are.
template <class Link, bool kNeighbours, int kSteps, class T>
WMMA_DEVICE void load_row_part(Chunk (&values)[kSteps][Link::kRowChunks], const T* row, int64_t stride, uint32_t lane) {
  static_assert(Link::kLaneRows == 1 && sizeof(T) == 2, "chunks of one row, of 16 bits");
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int chunk = 0; chunk < Link::kRowChunks; ++chunk) {
      const int column = step * Link::kDepth + static_cast<int>(Link::row_chunk(lane, chunk)) * Link::kPerChunk;
      if constexpr (kNeighbours) {
        arch::copy_value<4>(values[step][chunk].words, reinterpret_cast<const uint32_t*>(row + column));
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const T pair[2] = {row[(column + 2 * i) * stride], row[(column + 2 * i + 1) * stride]};
          values[step][chunk].words[i] = arch::pack<uint32_t>(pair);
        }
      }
    }
  }
}

// Tiles of rows from `first_row` on, whose columns are neighbours. Rows beyond the last repeat it.
template <class Link, int kTilesM, int kSteps, class Place>
WMMA_DEVICE void keep_rows(Chunk (&rows)[kTilesM][kSteps][Link::kRowChunks], const AttentionOperand& x,
                           const Place& place, int first_row, uint32_t lane) {
  using T = typename Link::Element;
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
    const uint32_t row = first_row + m * Link::kRows + Link::row(lane, 0);
    const T* from = static_cast<const T*>(x.data) + place.offset(x, row < place.rows ? row : place.rows - 1);
    load_row_part<Link, true>(rows[m], from, 1, lane);
  }
}

// delta[row] = Σ g_out·out − g_lse of kTilesM tiles of rows from first_row on, to memory and, as know(m, delta), to who
// asks: of a lane's row of each tile. The rows have no column that does not exist.
template <class Link, int kTilesM, int kSteps, class Place, class Know>
WMMA_DEVICE void sum_delta(const AttentionArguments& p, const Place& place, int first_row, uint32_t lane,
                           const Chunk (&g_out)[kTilesM][kSteps][Link::kRowChunks], const Know& know) {
  using T = typename Link::Element;
  using Number = typename Link::Sum;
  constexpr int kShare = Link::kRowChunks * Link::kPerChunk;  // of a step's columns, that a lane has: some, or all
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
    const uint32_t row = first_row + m * Link::kRows + Link::row(lane, 0);
    const uint32_t there = row < place.rows ? row : place.rows - 1;
    const T* out = static_cast<const T*>(p.out.data) + place.offset(p.out, there);
    Chunk values[kSteps][Link::kRowChunks];
    if (p.out.column_stride == 1) {
      load_row_part<Link, true>(values, out, 1, lane);
    } else {
      load_row_part<Link, false>(values, out, p.out.column_stride, lane);
    }
    Number sum(0);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      T ours[kShare];
      T others[kShare];
      arch::copy_bytes<kShare * sizeof(T)>(ours, values[step]);
      arch::copy_bytes<kShare * sizeof(T)>(others, g_out[m][step]);
#pragma unroll
      for (int i = 0; i < kShare; ++i) {
        sum = arch::fma(convert<Number>(ours[i]), convert<Number>(others[i]), sum);
      }
    }
    if constexpr (kShare < Link::kDepth) sum = Link::fold(sum, [](Number x, Number y) { return x + y; });
    if (p.g_lse.data != nullptr) sum -= static_cast<const Number*>(p.g_lse.data)[place.offset(p.g_lse, there)];
    know(m, sum);
    if (Link::place(lane, 0) == 0 && row < place.rows) {
      static_cast<Number*>(const_cast<void*>(p.delta.data))[place.offset(p.delta, row)] = sum;
    }
  }
}

}  // namespace wmma
