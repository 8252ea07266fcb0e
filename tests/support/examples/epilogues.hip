// D = epilogue(A·B + prologue(D)) on a 16x16 block a wave, one wave a block. prologue: 0 sets zero, 1 scales D by beta,
// 2 leaves D (accumulates), 3 adds β·D after the epilogue's scaling. epilogue: 0 none, 1 scales by alpha, 2 relu by a
// branch, 3 relu without one. Together every cell of α·A·B + β·D. A: m×k row-major, B: k×n column-major, D: m×n
// row-major, without gaps. Launch: grid (m / 16, n / 16).
#include <wmma/fragment.hpp>
#include <wmma/math.hpp>

extern "C" __global__ void epilogues(int n, int k, const wmma::half_t* a, const wmma::half_t* b, float* d, int prologue,
                                     int epilogue, float alpha, float beta) {
  using namespace wmma;
  using Sum = fragment<accumulator, 16, 16, 16, float>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * 16;
  const int64_t col = static_cast<int64_t>(blockIdx.y) * 16;
  float* const block = d + row * n + col;

  Sum sum, before;
  fill_fragment(sum, 0.0f);
  fill_fragment(before, 0.0f);
  if (prologue != 0) load_matrix_sync(before, block, n, mem_row_major);
  if (prologue == 1) sum = beta * before;
  if (prologue == 2) sum = before;

  fragment<matrix_a, 16, 16, 16, half_t, row_major> frag_a;
  fragment<matrix_b, 16, 16, 16, half_t, col_major> frag_b;
  for (int i = 0; i < k; i += 16) {
    load_matrix_sync(frag_a, a + row * k + i, k);
    load_matrix_sync(frag_b, b + col * k + i, k);
    mma_sync(sum, frag_a, frag_b, sum);
  }

  if (epilogue == 1) sum = alpha * sum;
  if (epilogue == 2) {
    for (int i = 0; i < sum.num_elements; ++i) {
      if (sum.x[i] < 0.0f) sum.x[i] = 0.0f;
    }
  }
  if (epilogue == 3) sum = map(sum, [](float x) { return fast_max(x, 0.0f); });
  if (prologue == 3) sum = sum + beta * before;
  store_matrix_sync(block, sum, n, mem_row_major);
}
