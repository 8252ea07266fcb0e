// What parts of a sum have, added up.
#pragma once

#include <wmma/grid.hpp>
#include <wmma/tile/rounding.hpp>

namespace wmma {

// [parts, count] in their order: kThreads threads for 32 of the sums, which need as many numbers of shared memory.
template <class To, int kThreads, class Number>
WMMA_DEVICE void add_parts(const Number* partial, int parts, int64_t count, To* to) {
  constexpr int kWide = 32, kDeep = kThreads / kWide;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kWide + threadIdx.x % kWide;
  Number sum(0);
  if (at < count) {
#pragma unroll 4
    for (int part = threadIdx.x / kWide; part < parts; part += kDeep) sum += partial[part * count + at];
  }
  Number* const shared = dynamic_shared<Number>();
  shared[threadIdx.x] = sum;
  arch::block_barrier();
  if (threadIdx.x >= kWide || at >= count) return;
#pragma unroll
  for (int deep = 1; deep < kDeep; ++deep) sum += shared[deep * kWide + threadIdx.x];
  to[at] = finished<To>(sum);
}

}  // namespace wmma
