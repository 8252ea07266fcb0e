// Before attention's gradients: delta[row] = Σ g_out·out − g_lse.
#include <wmma/attention/loops/gradients.hpp>
#include <wmma/attention/passes/delta.hpp>

WMMA_KERNEL(Config::kThreads, 2) void attention_delta(Config::Rules::Arguments arguments) {
  wmma::attention_delta<Config>(arguments);
}
