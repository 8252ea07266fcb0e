// Products of a warpgroup's 64 rows on sm_90a, of 16 bits, asked for and under way: of rows in shared memory, and of
// rows in registers.
#pragma once

#include <wmma/tile/warpgroup_tile.hpp>

namespace wmma {

constexpr int kWarpgroupStep = 16;  // of what is summed up, that one product takes

// sums = rows·columnsᵀ, both along kWidth elements of their lines: kCount numbers of each lane are twice as many
// columns.
template <class T, class Rows, class Columns, int kWidth, int kCount>
WMMA_DEVICE void multiply_lines(float (&sums)[kCount], uint64_t rows, uint64_t columns) {
#pragma unroll
  for (int step = 0; step < (kWidth + kWarpgroupStep - 1) / kWarpgroupStep; ++step) {
    arch::Wgmma<T, T, kCount * 2>::template mma<false, false>(
        sums, Rows::template step<true>(rows, step, kWarpgroupStep),
        Columns::template step<true>(columns, step, kWarpgroupStep), step != 0);
  }
}

// sums += words·columns, kLines of these: the words are rows of as many elements.
template <class T, class Columns, int kLines, int kWidth, int kCount>
WMMA_DEVICE void add_products(float (&sums)[kCount], const uint32_t* words, uint64_t columns) {
#pragma unroll
  for (int step = 0; step < kLines / kWarpgroupStep; ++step) {
    arch::WgmmaOfRows<T, kWidth>::template mma<true>(
        sums, words + step * 4, Columns::template step<false>(columns, step, kWarpgroupStep), true);
  }
}

}  // namespace wmma
