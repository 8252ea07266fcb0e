// Before attention with a mask function: finds the blocks of scores that it shows.
#include <wmma/attention/passes/block_states.hpp>

WMMA_KERNEL(Config::kThreads, 2) void attention_block_states(Config::Rules::Arguments arguments) {
  wmma::BlockStates<Config>::run(arguments);
}
