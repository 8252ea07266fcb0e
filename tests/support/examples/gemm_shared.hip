// D = α·A·B + β·C with A and B staged in shared memory by cooperative loads. Launch: blockDim (4 waves, 2), so a block
// of 4x2 waves computes 64x32 of D; m, n, k multiples of 64, 32, 16. Layouts as in gemm.hip.
#include <wmma/fragment.hpp>

constexpr int kWavesM = 4;
constexpr int kWavesN = 2;
constexpr int kDepth = 16;
constexpr int kPitch = kDepth + 8;  // elements; the 16 padding bytes spread the rows over the banks

extern "C" __global__ void gemm_shared(int m, int n, int k, const wmma::half_t* a, const wmma::half_t* b,
                                       const float* c, float* d, int lda, int ldb, int ldc, int ldd, float alpha,
                                       float beta) {
  using namespace wmma;
  __shared__ __attribute__((aligned(16))) half_t shared_a[kWavesM * 16 * kPitch];
  __shared__ __attribute__((aligned(16))) half_t shared_b[kWavesN * 16 * kPitch];
  const int wave_m = static_cast<int>(uniform(threadIdx.x / kWaveSize));
  const int wave_n = static_cast<int>(uniform(threadIdx.y));
  const int row = (static_cast<int>(blockIdx.x) * kWavesM + wave_m) * 16;
  const int col = (static_cast<int>(blockIdx.y) * kWavesN + wave_n) * 16;
  WMMA_ASSERT(row < m && col < n);

  fragment<matrix_a, 16, 16, kDepth, half_t, row_major> frag_a;
  fragment<matrix_b, 16, 16, kDepth, half_t, col_major> frag_b;
  fragment<accumulator, 16, 16, kDepth, float> sum;
  fill_fragment(sum, 0.0f);
  half_t* const tile_a = shared_a + wave_m * 16 * kPitch;
  half_t* const tile_b = shared_b + wave_n * 16 * kPitch;
  for (int i = 0; i < k; i += kDepth) {
    // 1. The waves of one row of the block share its A, those of one column its B.
    load_matrix_coop_sync(frag_a, a + static_cast<int64_t>(row) * lda + i, lda);
    load_matrix_coop_sync(frag_b, b + static_cast<int64_t>(col) * ldb + i, ldb, wave_m, kWavesM);
    sync_workgroup();  // the last product's reads are done
    store_matrix_coop_sync(tile_a, frag_a, kPitch);
    store_matrix_coop_sync(tile_b, frag_b, kPitch, wave_m, kWavesM, kWavesM);
    sync_workgroup();
    // 2. Each wave reads whole tiles.
    load_matrix_sync(frag_a, tile_a, kPitch);
    load_matrix_sync(frag_b, tile_b, kPitch);
    mma_sync(sum, frag_a, frag_b, sum);
  }

  fragment<accumulator, 16, 16, kDepth, float> frag_c;
  load_matrix_sync(frag_c, c + static_cast<int64_t>(row) * ldc + col, ldc, mem_row_major);
  frag_c = alpha * sum + beta * frag_c;
  store_matrix_sync(d + static_cast<int64_t>(row) * ldd + col, frag_c, ldd, mem_row_major);
}
