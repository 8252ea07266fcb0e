// As rocWMMA's guide writes a product: its includes, its names, a kernel with C++ linkage.
#include <hip/hip_ext.h>
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

#include <iostream>
#include <rocwmma/rocwmma.hpp>
#include <vector>

using rocwmma::float16_t;
using rocwmma::float32_t;

// For the host, which fills matrices by it.
template <typename T>
__host__ static inline void ramp(T* to, uint32_t rows, uint32_t columns) {
  for (uint32_t i = 0; i < rows * columns; ++i) to[i] = static_cast<T>(i % 5);
}

const int SIDE = 16;
const int DEPTH = 16;
const int WAVE = rocwmma::AMDGCN_WAVE_SIZE;

// A wave computes SIDE×SIDE of D = alpha·A·B + beta·C; A by rows, B by columns, C and D by rows.
__global__ void product(uint32_t m, uint32_t n, uint32_t k, float16_t const* a, float16_t const* b, float32_t const* c,
                        float32_t* d, uint32_t lda, uint32_t ldb, uint32_t ldc, uint32_t ldd, float32_t alpha,
                        float32_t beta) {
  auto left = rocwmma::fragment<rocwmma::matrix_a, SIDE, SIDE, DEPTH, float16_t, rocwmma::row_major>();
  auto right = rocwmma::fragment<rocwmma::matrix_b, SIDE, SIDE, DEPTH, float16_t, rocwmma::col_major>();
  auto result = rocwmma::fragment<rocwmma::accumulator, SIDE, SIDE, DEPTH, float32_t>();
  auto sum = rocwmma::fragment<rocwmma::accumulator, SIDE, SIDE, DEPTH, float32_t>();
  rocwmma::fill_fragment(sum, 0.0f);

  auto row = (blockIdx.x * blockDim.x + threadIdx.x) / WAVE * SIDE;
  auto column = (blockIdx.y * blockDim.y + threadIdx.y) * SIDE;
  if (row < m && column < n) {
    for (int i = 0; i < k; i += DEPTH) {
      rocwmma::load_matrix_sync(left, a + (row * lda + i), lda);
      rocwmma::load_matrix_sync(right, b + (i + column * ldb), ldb);
      rocwmma::mma_sync(sum, left, right, sum);
    }
    rocwmma::load_matrix_sync(result, c + (row * ldc + column), ldc, rocwmma::mem_row_major);
    for (int i = 0; i < result.num_elements; ++i) {
      result.x[i] = alpha * sum.x[i] + beta * result.x[i];
    }
    rocwmma::store_matrix_sync(d + (row * ldd + column), result, ldd, rocwmma::mem_row_major);
  }
}
