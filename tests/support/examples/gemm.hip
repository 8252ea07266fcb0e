// D = α·A·B + β·C, one 16x16 block (WMMA_BLOCK 32: 32x32) a wave. A: m×k row-major, B: k×n column-major, C and D: m×n
// row-major, leading dimensions in elements. m, n multiples of the block, k of WMMA_BLOCK_K. Launch: any block whose
// x is a multiple of the wave size; x counts waves along m, y along n.
#include <wmma/fragment.hpp>

#ifndef WMMA_INPUT
#define WMMA_INPUT wmma::half_t
#endif
#ifndef WMMA_OUTPUT
#define WMMA_OUTPUT float
#endif
#ifndef WMMA_COMPUTE
#define WMMA_COMPUTE float
#endif
#ifndef WMMA_BLOCK
#define WMMA_BLOCK 16
#endif
#ifndef WMMA_BLOCK_K
#define WMMA_BLOCK_K 16
#endif

using Input = WMMA_INPUT;
using Output = WMMA_OUTPUT;
using Compute = WMMA_COMPUTE;
using Scale = typename wmma::ComputeType<Compute>::Type;
constexpr int kBlock = WMMA_BLOCK;
constexpr int kBlockK = WMMA_BLOCK_K;

extern "C" __global__ void gemm(int m, int n, int k, const Input* a, const Input* b, const Output* c, Output* d,
                                int lda, int ldb, int ldc, int ldd, Scale alpha, Scale beta) {
  using namespace wmma;
  const int row = static_cast<int>(uniform((blockIdx.x * blockDim.x + threadIdx.x) / kWaveSize)) * kBlock;
  const int col = static_cast<int>(uniform(blockIdx.y * blockDim.y + threadIdx.y)) * kBlock;
  if (row >= m || col >= n) return;

  fragment<matrix_a, kBlock, kBlock, kBlockK, Input, row_major> frag_a;
  fragment<matrix_b, kBlock, kBlock, kBlockK, Input, col_major> frag_b;
  fragment<accumulator, kBlock, kBlock, kBlockK, Compute> sum;
  fill_fragment(sum, Compute(0));
  for (int i = 0; i < k; i += kBlockK) {
    load_matrix_sync(frag_a, a + static_cast<int64_t>(row) * lda + i, lda);
    load_matrix_sync(frag_b, b + static_cast<int64_t>(col) * ldb + i, ldb);
    mma_sync(sum, frag_a, frag_b, sum);
  }

  fragment<accumulator, kBlock, kBlock, kBlockK, Output> frag_c;
  load_matrix_sync(frag_c, c + static_cast<int64_t>(row) * ldc + col, ldc, mem_row_major);
  for (int i = 0; i < frag_c.num_elements; ++i) {
    frag_c.x[i] = convert<Output>(alpha * convert<Scale>(sum.x[i]) + beta * convert<Scale>(frag_c.x[i]));
  }
  store_matrix_sync(d + static_cast<int64_t>(row) * ldd + col, frag_c, ldd, mem_row_major);
}
