// Beside a mask of numbers: what a query's weights, relative to its lse, are to be multiplied by. Where lse is far from
// 0, little or nothing of the logarithm of a sum is left in it: a row whose keys all have the least number has weights
// of 1, each. The weights of such rows are summed up here; those of others are right as they are.
#pragma once

#include <wmma/attention/math.hpp>
#include <wmma/attention/rows/dense.hpp>

namespace wmma {

template <class Config>
struct FarRows {
  using T = typename Config::Element;
  using Mask = typename Config::Mask;
  using Math = Softmax<float>;
  // From here on lse's last bit is 2^-13 or more: as much as a weight of 16 bits is rounded by.
  static constexpr float kFar = 1024.0f;

  // A lane looks at a row; all of a wave's go through the keys of one that is far.
  static WMMA_DEVICE void run(const AttentionArguments& p) {
    const int64_t row = static_cast<int64_t>(blockIdx.x) * Config::kThreads + threadIdx.x;
    const bool is_there = is_row(p, row);
    const auto offset = offsets_of(p, is_there ? row : 0);
    const float lse = static_cast<const float*>(p.lse.data)[offset(p.lse)];
    const float size = arch::abs(lse);
    float factor = 1.0f;
    const uint32_t lane = lane_id();
    auto far = static_cast<uint32_t>(arch::ballot(is_there && size >= kFar && size < Math::infinity()));
    for (uint32_t of = 0; far != 0; ++of, far >>= 1) {
      if ((far & 1) == 0) continue;
      const float sum =
          sum_of(p, row - lane + of, arch::bit_cast<float>(arch::shuffle_word(arch::bit_cast<uint32_t>(lse), of)));
      if (lane == of) factor = sum == 0.0f ? 0.0f : Math::inverse(sum);
    }
    if (!is_there) return;
    static_cast<float*>(const_cast<void*>(p.delta.data))[offset(p.delta) + 1] = factor;
  }

 private:
  static WMMA_DEVICE float sum_of(const AttentionArguments& p, int64_t row, float lse) {
    const uint32_t query = row % p.sq, head = row / p.sq % p.heads, batch = row / p.sq / p.heads;
    const T* q = matrix_of<const T>(p.q, batch, head) + query * p.q.row_stride;
    const Mask* mask = matrix_of<const Mask>(p.mask, batch, head) + query * p.mask.row_stride;
    const T* keys = matrix_of<const T>(p.k, batch, head / p.group);
    float sum = 0.0f;
    for (int key = static_cast<int>(lane_id()); key < p.skv; key += arch::kWaveSize) {
      const T* k = keys + key * p.k.row_stride;
      float product = 0.0f;
      for (int e = 0; e < p.e; ++e) {
        product =
            arch::fma(convert<float>(q[e * p.q.column_stride]), convert<float>(k[e * p.k.column_stride]), product);
      }
      const float number = convert<float>(mask[key * p.mask.column_stride]);
      const float score = arch::fma(product, static_cast<float>(p.scale), number);
      sum += Math::exp((score - lse) * Math::kUnit);
    }
#pragma unroll
    for (int distance = 1; distance < arch::kWaveSize; distance *= 2) sum += shuffle_xor(sum, distance);
    return sum;
  }
};

}  // namespace wmma
