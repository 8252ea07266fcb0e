// The attention kernel: out = softmax(scale·Q·Kᵀ + mask)·V, the scores never in memory. The planner puts a
// `struct Config` before this file (wmma_ops/plan/attention/loops/forward.py says what it holds) and defines
// WMMA_ATTENTION_COMBINE where the kernel is the second one of split keys, WMMA_ATTENTION_CLUSTER where those that
// split them are a cluster.
#include <wmma/attention/combine.hpp>
#include <wmma/attention/forward.hpp>

#ifdef WMMA_ATTENTION_COMBINE
WMMA_KERNEL(Config::kCombineThreads, 2) void attention_combine(wmma::AttentionArguments arguments) {
  wmma::attention_combine<Config>(arguments);
}
#else
static_assert(wmma::AttentionKernel<Config>::kThreads == Config::kThreads, "the planner and the kernel agree");
static_assert(wmma::AttentionKernel<Config>::kSharedBytes == Config::kSharedBytes, "the planner and the kernel agree");

#define WMMA_ATTENTION(...)                                             \
  WMMA_KERNEL(Config::kThreads, Config::kOccupancy, Config::kMostWaves) \
  __VA_ARGS__ void attention(wmma::AttentionArguments arguments) { wmma::AttentionKernel<Config>::run(arguments); }
#ifdef WMMA_ATTENTION_CLUSTER
WMMA_ATTENTION(WMMA_CLUSTER(Config::kCluster))
#else
WMMA_ATTENTION()
#endif
#endif
