// Where a batch's matrices lie in an operand.
#pragma once

#include <wmma/target.hpp>
#include <wmma/tile/arguments.hpp>

namespace wmma {

// Where the batch's matrix starts in an operand, in elements. The kDims innermost of the struct's dimensions are in
// use.
template <int kDims>
WMMA_DEVICE int64_t batch_offset(const GemmArguments& p, const GemmOperand& x, uint32_t batch) {
  int64_t offset = 0;
#pragma unroll
  for (int d = kBatchDims - 1; d > kBatchDims - kDims; --d) {
    const uint32_t size = static_cast<uint32_t>(p.batch_sizes[d]);
    const uint32_t rest = batch / size;
    offset += static_cast<int64_t>(batch - rest * size) * x.batch_strides[d];
    batch = rest;
  }
  if constexpr (kDims > 0) offset += static_cast<int64_t>(batch) * x.batch_strides[kBatchDims - kDims];
  return offset;
}

// Where the batch's matrix lies in its map: the innermost dimension first.
template <int kDims>
WMMA_DEVICE void batch_coordinates(const GemmArguments& p, const GemmOperand& x, uint32_t batch, int32_t* at) {
#pragma unroll
  for (int i = 0; i < kDims; ++i) {
    const int dim = kBatchDims - 1 - i;
    const uint32_t size = static_cast<uint32_t>(p.batch_sizes[dim]);
    at[i] = x.batch_strides[dim] == 0 ? 0 : static_cast<int32_t>(batch % size);
    batch /= size;
  }
}

}  // namespace wmma
