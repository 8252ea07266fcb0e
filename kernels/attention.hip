// The attention kernel: out = softmax(scale·Q·Kᵀ + mask)·V, the scores never in memory. Before this file the planner
// puts a `struct Config` (the file of its loop in wmma_ops/plan/attention/loops says what it holds) and the header of
// its main loop, and names that loop's kernel, WMMA_ATTENTION_KERNEL. It defines WMMA_ATTENTION_COMBINE where the
// kernel is the second one of split keys, and with it WMMA_ATTENTION_LAST where only the last tiles' are,
// WMMA_ATTENTION_CLUSTER where those that split them are a cluster; of packed sequences WMMA_ATTENTION_SEQUENCES, or
// WMMA_ATTENTION_REST where the kernel has what none of them has, and with it WMMA_ATTENTION_DEALS where that kernel
// also lists the tiles that another's blocks are dealt. It defines WMMA_ATTENTION_BLOCKS where the kernel finds the
// blocks of scores that a mask function shows, WMMA_ATTENTION_TURN where it turns values of 8 bits.
#ifdef WMMA_ATTENTION_COMBINE
#include <wmma/attention/passes/combine.hpp>

#ifdef WMMA_ATTENTION_LAST
WMMA_KERNEL(Config::kThreads, 2)
void attention_combine(WMMA_ARGUMENTS(wmma::MappedArgumentsBy<Config::Rules>) arguments) {
  wmma::attention_combine_last<Config>(arguments);
}
#else
WMMA_KERNEL(Config::kThreads, 2) void attention_combine(Config::Rules::Arguments arguments) {
  wmma::attention_combine<Config>(arguments);
}
#endif
#elif defined(WMMA_ATTENTION_REST)
#include <wmma/arch/sm90.hpp>
#include <wmma/attention/balanced/tile_list.hpp>

WMMA_KERNEL(Config::kThreads, 2) void attention_rest(Config::Rules::Arguments arguments) {
  wmma::arch::let_next_start();
#ifdef WMMA_ATTENTION_DEALS
  if (blockIdx.x == 0) wmma::Dealing<Config>::run(arguments);
#endif
  wmma::SequencesRest<Config>(static_cast<int>(blockIdx.x)).run(arguments);
}
#elif defined(WMMA_ATTENTION_TURN)
#include <wmma/attention/passes/transpose.hpp>

WMMA_KERNEL(Config::kThreads, 2)
void attention_turn(WMMA_ARGUMENTS(wmma::MappedArgumentsBy<Config::Rules>) arguments) {
  wmma::TurnedValues<Config>::run(arguments);
}
#elif defined(WMMA_ATTENTION_BLOCKS)
#include <wmma/attention/passes/block_states.hpp>

WMMA_KERNEL(Config::kThreads, 2) void attention_blocks(Config::Rules::Arguments arguments) {
  wmma::BlockStates<Config>::run(arguments);
}
#else
#ifdef WMMA_ATTENTION_SEQUENCES
using Kernel = wmma::OfSequences<WMMA_ATTENTION_KERNEL<Config> >;
#else
using Kernel = WMMA_ATTENTION_KERNEL<Config>;
#endif

static_assert(Kernel::kThreads == Config::kThreads, "the planner and the kernel agree");
static_assert(Kernel::kSharedBytes == Config::kSharedBytes, "the planner and the kernel agree");

#define WMMA_ATTENTION(...)                                             \
  WMMA_KERNEL(Config::kThreads, Config::kOccupancy, Config::kMostWaves) \
  __VA_ARGS__ void attention(WMMA_ARGUMENTS(Kernel::Arguments) arguments) { Kernel::run(arguments); }
#ifdef WMMA_ATTENTION_CLUSTER
WMMA_ATTENTION(WMMA_CLUSTER(Config::kCluster))
#else
WMMA_ATTENTION()
#endif
#endif
