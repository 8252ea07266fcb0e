// What slices of the queries give the gradients of keys and values where a kernel splits them: float32 of each key head
// and slice, each key's row of both. A kernel of its own adds them up, in their order.
#pragma once

#include <wmma/arch/sm90.hpp>
#include <wmma/attention/rows/dense.hpp>

namespace wmma {

// The sums of tiles of queries (loops/warpgroup_gradients.hpp), behind a number for each.
WMMA_DEVICE float* query_sums(const MappedAttentionArguments& p) {
  const int64_t tiles = static_cast<int64_t>(p.batch) * p.heads * p.tiles;
  return static_cast<float*>(p.partial) + (tiles + 31) / 32 * 32;
}

// Behind those, of kTileSums each: the parts from a column on, as a matrix for each slice of each key head.
template <int kTileSums>
WMMA_DEVICE AttentionOperand key_parts(const MappedAttentionArguments& p, int column) {
  AttentionOperand x{};
  x.data = query_sums(p) + static_cast<int64_t>(p.batch) * p.heads * p.tiles * kTileSums + column;
  x.column_stride = 1;
  x.row_stride = p.e + p.ev;
  x.head_stride = p.skv * x.row_stride;
  return x;
}

// Four columns of a key a thread.
template <class Config>
WMMA_DEVICE void add_key_parts(const MappedAttentionArguments& p) {
  using T = typename Config::Element;
  constexpr int kEach = 4;
  arch::await_previous();
  arch::let_next_start();
  const int wide = (p.e + p.ev) / kEach;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * Config::kThreads + threadIdx.x, key = item / wide;
  const int heads = p.heads / p.group, head = static_cast<int>(key / p.skv), column = item % wide * kEach;
  if (head >= heads * p.batch) return;
  const AttentionOperand of = key_parts<Config::kTileSums>(p, column);
  const float* from =
      static_cast<const float*>(of.data) + head * p.query_slices * of.head_stride + key % p.skv * of.row_stride;
  alignas(16) float sums[kEach] = {};
  for (int slice = 0; slice < p.query_slices; ++slice, from += of.head_stride) {
    alignas(16) float part[kEach];
    arch::copy_value<kEach>(part, from);
#pragma unroll
    for (int i = 0; i < kEach; ++i) sums[i] += part[i];
  }
  const bool of_keys = column < p.e;
  const AttentionOperand& x = of_keys ? p.g_k : p.g_v;
  T* to = matrix_of<T>(x, head / heads, head % heads) + key % p.skv * x.row_stride +
          (of_keys ? column : column - p.e) * x.column_stride;
  alignas(16) T result[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) result[i] = convert<T>(sums[i]);
  store_run<kEach, Config::kOutVec>(to, x.column_stride, result, kEach);
}

}  // namespace wmma
