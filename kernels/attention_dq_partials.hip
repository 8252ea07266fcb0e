// Behind gradients whose blocks of keys store partial sums of g_Q: makes rows of them.
#include <wmma/attention/gradients/dq_partials.hpp>
#include <wmma/attention/loops/gradients.hpp>
#include <wmma/attention/passes/delta.hpp>

WMMA_KERNEL(Config::kThreads, 1) void attention_dq_partials(Config::Rules::Arguments arguments) {
  wmma::reduce_dq<Config>(arguments);
}
