// Products that a target has no matrix instruction for: plain FMA, each operand value fetched from its lane by a
// shuffle. With 16 rows, lane l of A holds row l % 16 and the l / 16-th run of 16 k; B likewise by column.
#pragma once

#include <wmma/layout.hpp>

namespace wmma {

template <class Element, class Accumulator, class AccumulatorLayout>
struct FmaTile {
  using C = AccumulatorLayout;
  using Compute = Accumulator;
  static constexpr int kDepth = 16;
  static constexpr int kRunA = kDepth * C::kRows / arch::kWaveSize;
  static constexpr int kRunB = kDepth * C::kCols / arch::kWaveSize;
  using A = RunLayout<C::kRows, kRunA, kRunA>;
  using B = RunLayout<C::kCols, kRunB, kRunB>;

  static WMMA_DEVICE Accumulator fetch(const Element& x, uint32_t lane) {
    Element y;
    if constexpr (sizeof(Element) == 8) {
      const uint64_t bits = arch::bit_cast<uint64_t>(x);
      const uint64_t low = arch::shuffle_word(static_cast<uint32_t>(bits), lane);
      const uint64_t high = arch::shuffle_word(static_cast<uint32_t>(bits >> 32), lane);
      y = arch::bit_cast<Element>(low | high << 32);
    } else {
      y = arch::bit_cast<Element>(arch::shuffle_word(arch::bit_cast<uint32_t>(x), lane));
    }
    return y;
  }

  static WMMA_DEVICE void mma(Accumulator* d, const Element* a, const Element* b) {
    const uint32_t lane = arch::unshared(arch::lane_id());
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      Accumulator rows[C::kElements];
      Accumulator cols[C::kElements];
#pragma unroll
      for (int e = 0; e < C::kElements; ++e) {
        // Elements in the same row or column of the lane share one fetch.
        int same_row = e;
        int same_col = e;
        for (int i = e - 1; i >= 0; --i) {
          if (C::row(0, i) == C::row(0, e)) same_row = i;
          if (C::col(0, i) == C::col(0, e)) same_col = i;
        }
        rows[e] = same_row < e ? rows[same_row] : fetch(a[k % kRunA], k / kRunA * C::kRows + C::row(lane, e));
        cols[e] = same_col < e ? cols[same_col] : fetch(b[k % kRunB], k / kRunB * C::kCols + C::col(lane, e));
      }
#pragma unroll
      for (int e = 0; e < C::kElements; ++e) d[e] = arch::fma(rows[e], cols[e], d[e]);
      arch::schedule_barrier();
    }
  }
};

}  // namespace wmma
