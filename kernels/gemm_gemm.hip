// Two products in one kernel: D1 = alpha1·D0·B1 + beta1·C + bias1 with D0 = act(alpha0·A·B0 + bias0) [· (A·gate)],
// rounded to A's type and never in memory. Each wave owns rows of A, D0 and D1. The planner puts a `struct Config`
// before this file (wmma_ops/plan/gemm_gemm/planner.py says what it holds), and defines WMMA_RESIDENT where all weights
// stay in shared memory, WMMA_WARPGROUPS where sm_90a's warpgroups multiply.
#ifdef WMMA_WARPGROUPS
#include <wmma/gemm_gemm/warpgroup.hpp>
using Kernel = wmma::WgmmaKernel<Config>;
#elif defined(WMMA_RESIDENT)
#include <wmma/gemm_gemm/resident.hpp>
using Kernel = wmma::ResidentKernel<Config>;
#else
#include <wmma/gemm_gemm/streamed.hpp>
using Kernel = wmma::StreamedKernel<Config>;
#endif

static_assert(Kernel::kThreads == Config::kThreads, "the planner and the kernel agree");
static_assert(Kernel::kSharedBytes == Config::kSharedBytes, "the planner and the kernel agree");

WMMA_KERNEL(Config::kThreads, Config::kOccupancy) void gemm_gemm(WMMA_ARGUMENTS(Kernel::Arguments) arguments) {
  Kernel::run(arguments);
}
