// The gradients of attention: delta, then g_Q, then g_K and g_V, each result written once and summed up in one order,
// or in whole numbers (gradients/fixed_point.hpp), which any order leaves the same. The planner puts a `struct Config`
// before this file (wmma_ops/plan/attention/loops/backward.py says what it holds) and defines WMMA_ATTENTION_DELTA for
// the first kernel, WMMA_ATTENTION_INTERLEAVED, WMMA_ATTENTION_MARCHING or WMMA_ATTENTION_WARPGROUPS where
// loops/interleaved_gradients.hpp, loops/lockstep_gradients.hpp or loops/warpgroup_gradients.hpp has the others,
// WMMA_ATTENTION_GIFTS for the kernel that makes g_Q of what blocks of keys have given to it
// (gradients/dq_partials.hpp), WMMA_ATTENTION_SEQUENCES where sequences are packed.
#include <wmma/attention/loops/gradients.hpp>
#include <wmma/attention/passes/delta.hpp>
#ifdef WMMA_ATTENTION_WARPGROUPS
#include <wmma/attention/loops/warpgroup_gradients.hpp>
#endif
#ifdef WMMA_ATTENTION_GIFTS
#include <wmma/attention/gradients/dq_partials.hpp>
#endif
#ifdef WMMA_ATTENTION_INTERLEAVED
#include <wmma/attention/loops/interleaved_gradients.hpp>
#endif
#ifdef WMMA_ATTENTION_MARCHING
#include <wmma/attention/loops/lockstep_gradients.hpp>
#endif

#ifdef WMMA_ATTENTION_DELTA
WMMA_KERNEL(Config::kThreads, 2) void attention_delta(Config::Rules::Arguments arguments) {
  wmma::attention_delta<Config>(arguments);
}
#elif defined(WMMA_ATTENTION_GIFTS)
WMMA_KERNEL(Config::kThreads, 1) void attention_gifts(Config::Rules::Arguments arguments) {
  wmma::gifts_to_rows<Config>(arguments);
}
#else
#ifdef WMMA_ATTENTION_WARPGROUPS
using Kernel = wmma::WarpgroupGradients<Config>;
using Arguments = wmma::MappedAttentionArguments;
#elif defined(WMMA_ATTENTION_SEQUENCES)
using Kernel = wmma::OfSequences<wmma::AttentionBackward<Config> >;
using Arguments = Kernel::Arguments;
#else
using Arguments = Config::Rules::Arguments;
#if defined(WMMA_ATTENTION_INTERLEAVED)
using Kernel = wmma::InterleavedGradients<Config>;
#elif defined(WMMA_ATTENTION_MARCHING)
using Kernel = wmma::MarchingGradients<Config>;
#else
using Kernel = wmma::AttentionBackward<Config>;
#endif
#endif
static_assert(Kernel::kThreads == Config::kThreads, "the planner and the kernel agree");
static_assert(Kernel::kSharedBytes == Config::kSharedBytes, "the planner and the kernel agree");

WMMA_KERNEL(Config::kThreads, Config::kOccupancy, Config::kMostWaves)
void attention_backward(WMMA_ARGUMENTS(Arguments) arguments) { Kernel::run(arguments); }
#endif
