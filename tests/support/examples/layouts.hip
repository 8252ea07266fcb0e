// D = (s·A)·B + C on one block, every operand in the memory order that a macro names (row_major or col_major) and C and
// D also in the order given at run time. D once more through accumulator_swapped. One wave. WMMA_BLOCK 16 or 32.
#include <wmma/fragment.hpp>

#ifndef WMMA_LAYOUT_A
#define WMMA_LAYOUT_A row_major
#endif
#ifndef WMMA_LAYOUT_B
#define WMMA_LAYOUT_B col_major
#endif
#ifndef WMMA_LAYOUT_C
#define WMMA_LAYOUT_C row_major
#endif
#ifndef WMMA_INPUT
#define WMMA_INPUT wmma::half_t
#endif
#ifndef WMMA_OUTPUT
#define WMMA_OUTPUT float
#endif
#ifndef WMMA_BLOCK
#define WMMA_BLOCK 16
#endif
#ifndef WMMA_BLOCK_K
#define WMMA_BLOCK_K 16
#endif

using Input = WMMA_INPUT;
using Output = WMMA_OUTPUT;

// d: in C's order; d_run_time: in the order `order` (0 row-major, 1 column-major), as c_run_time, which is added too.
extern "C" __global__ void layouts(const Input* a, const Input* b, const Output* c, const Output* c_run_time, Output* d,
                                   Output* d_run_time, int lda, int ldb, int ldc, int ldd, float scale, int order) {
  using namespace wmma;
  constexpr int kBlock = WMMA_BLOCK;
  constexpr int kBlockK = WMMA_BLOCK_K;
  fragment<matrix_a, kBlock, kBlock, kBlockK, Input, WMMA_LAYOUT_A> frag_a;
  fragment<matrix_b, kBlock, kBlock, kBlockK, Input, WMMA_LAYOUT_B> frag_b;
  fragment<accumulator, kBlock, kBlock, kBlockK, Output, WMMA_LAYOUT_C> frag_c;
  load_matrix_sync(frag_a, a, lda);
  load_matrix_sync(frag_b, b, ldb);
  load_matrix_sync(frag_c, c, ldc);
  for (int i = 0; i < frag_a.num_elements; ++i) frag_a[i] = convert<Input>(scale * static_cast<float>(frag_a[i]));
  mma_sync(frag_c, frag_a, frag_b, frag_c);
  store_matrix_sync(d, frag_c, ldd);

  fragment<accumulator_swapped, kBlock, kBlock, kBlockK, Output> swapped;
  load_matrix_sync(swapped, c_run_time, ldc, static_cast<layout_t>(order));
  mma_sync(swapped, frag_a, frag_b, swapped);
  store_matrix_sync(d_run_time, swapped, ldd, static_cast<layout_t>(order));
}
