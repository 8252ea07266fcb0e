// Two products in one kernel: D1 = alpha1·D0·B1 + beta1·C + bias1 with D0 = act(alpha0·A·B0 + bias0) [· (A·gate)],
// rounded to A's type and never in memory. Each wave owns rows of A, D0 and D1. Before this file the planner puts a
// `struct Config` (wmma_ops/plan/gemm_gemm/planner.py says what it holds) and the header of its main loop, and names
// that loop's kernel, WMMA_GEMM_GEMM_KERNEL.
using Kernel = WMMA_GEMM_GEMM_KERNEL<Config>;

static_assert(Kernel::kThreads == Config::kThreads, "the planner and the kernel agree");
static_assert(Kernel::kSharedBytes == Config::kSharedBytes, "the planner and the kernel agree");

WMMA_KERNEL(Config::kThreads, Config::kOccupancy, Config::kMostWaves)
void gemm_gemm(WMMA_ARGUMENTS(Kernel::Arguments) arguments) { Kernel::run(arguments); }
