// Before attention of values of 8 bits: transposes them.
#include <wmma/attention/passes/transpose.hpp>

WMMA_KERNEL(Config::kThreads, 2)
void attention_transpose(WMMA_ARGUMENTS(wmma::MappedArgumentsBy<Config::Rules>) arguments) {
  wmma::TransposedValues<Config>::run(arguments);
}
