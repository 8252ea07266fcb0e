// The product kernel. Before this file the planner puts a `struct Config` (wmma_ops/plan/gemm/planner.py says what it
// holds) and the header of its main loop, and defines WMMA_GEMM_REDUCE where the kernel is the second one of a split-K
// product, or WMMA_GEMM_ROW_SUMS where it adds up what tiles have of the sums of A's rows.
#include <wmma/gemm/kernel.hpp>

#ifdef WMMA_GEMM_REDUCE
WMMA_KERNEL(Config::kReduceThreads, 2) void gemm_reduce(WMMA_ARGUMENTS(wmma::GemmKernel<Config>::Arguments) arguments) {
  wmma::gemm_reduce<Config>(arguments);
}
#elif defined(WMMA_GEMM_ROW_SUMS)
WMMA_KERNEL(Config::kReduceThreads, 2)
void gemm_row_sums(WMMA_ARGUMENTS(wmma::GemmKernel<Config>::Arguments) p) {
  wmma::arch::await_previous();
  using Sums = Config::RowSums;
  wmma::add_parts<Sums, Config::kReduceThreads>(p.row_partial, p.sum_slabs, p.m, static_cast<Sums*>(p.row_sums));
}
#else
static_assert(wmma::GemmKernel<Config>::kThreads == Config::kThreads, "the planner and the kernel agree");
static_assert(wmma::GemmKernel<Config>::kSharedBytes == Config::kSharedBytes, "the planner and the kernel agree");

#define WMMA_GEMM(...)                                                                   \
  WMMA_KERNEL(Config::kThreads, Config::kOccupancy, Config::kMostWaves)                  \
  __VA_ARGS__ void gemm(WMMA_ARGUMENTS(wmma::GemmKernel<Config>::Arguments) arguments) { \
    wmma::GemmKernel<Config>::run(arguments);                                            \
  }
#ifdef WMMA_GEMM_CLUSTER
WMMA_GEMM(WMMA_CLUSTER(wmma::GemmKernel<Config>::kClusterBlocks))
#else
WMMA_GEMM()
#endif
#endif
