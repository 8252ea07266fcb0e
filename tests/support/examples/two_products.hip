// D1 = α1·D0·B1 + β1·C1 with D0 = α0·A0·B0 rounded to f16 and never in memory. One wave computes 16 rows of D1 in
// columns of 16: A0 m×k row-major, B0 k×16 and B1 16×n column-major, C1 and D1 m×n row-major, no gaps. m, n, k are
// multiples of 16. Launch: one wave a block, m / 16 blocks.
#include <wmma/fragment.hpp>

extern "C" __global__ void two_products(int n, int k, const wmma::half_t* a0, const wmma::half_t* b0,
                                        const wmma::half_t* b1, const float* c1, float* d1, float alpha0, float alpha1,
                                        float beta1) {
  using namespace wmma;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * 16;

  // 1. D0, computed as (B0ᵀ·A0ᵀ)ᵀ so that its registers are those of an A.
  fragment<matrix_a, 16, 16, 16, half_t, row_major> frag_a0;
  fragment<matrix_b, 16, 16, 16, half_t, col_major> frag_b;
  fragment<accumulator_swapped, 16, 16, 16, float> d0;
  fill_fragment(d0, 0.0f);
  for (int i = 0; i < k; i += 16) {
    load_matrix_sync(frag_a0, a0 + row * k + i, k);
    load_matrix_sync(frag_b, b0 + i, k);
    mma_sync(d0, frag_a0, frag_b, d0);
  }
  const fragment<matrix_a, 16, 16, 16, half_t, row_major> frag_d0 = to_matrix_a<half_t>(alpha0 * d0);

  // 2. The second product, also swapped: its rows lie in a lane, so that C1 and D1 move in wide accesses.
  for (int j = 0; j < n; j += 16) {
    fragment<accumulator_swapped, 16, 16, 16, float> sum, c;
    fill_fragment(sum, 0.0f);
    load_matrix_sync(frag_b, b1 + static_cast<int64_t>(j) * 16, 16);
    mma_sync(sum, frag_d0, frag_b, sum);
    load_matrix_sync(c, c1 + row * n + j, n, mem_row_major);
    store_matrix_sync(d1 + row * n + j, alpha1 * sum + beta1 * c, n, mem_row_major);
  }
}
