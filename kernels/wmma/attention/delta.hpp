// The first kernel of attention's gradients: delta[row] = Σ g_out·out − g_lse.
#pragma once

#include <wmma/attention/rows.hpp>

namespace wmma {

// A wave for each row.
template <class Config>
WMMA_DEVICE void attention_delta(const AttentionArguments& p) {
  using T = typename Config::Element;
  using Number = typename ComputeType<T>::Type;
  const uint32_t lane = lane_id();
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * Config::kThreads + threadIdx.x) / arch::kWaveSize;
  if (row >= rows_of_all(p)) return;
  const auto offset = offsets_of(p, row);
  const T* out = static_cast<const T*>(p.out.data) + offset(p.out);
  const T* g_out = static_cast<const T*>(p.g_out.data) + offset(p.g_out);
  Number sum(0);
  for (int column = static_cast<int>(lane); column < p.ev; column += arch::kWaveSize) {
    sum = arch::fma(convert<Number>(out[column * p.out.column_stride]),
                    convert<Number>(g_out[column * p.g_out.column_stride]), sum);
  }
#pragma unroll
  for (int mask = 1; mask < arch::kWaveSize; mask *= 2) sum += shuffle_xor(sum, mask);
  if (p.g_lse.data != nullptr) sum -= static_cast<const Number*>(p.g_lse.data)[offset(p.g_lse)];
  if (lane == 0) static_cast<Number*>(const_cast<void*>(p.delta.data))[offset(p.delta)] = sum;
}

}  // namespace wmma
