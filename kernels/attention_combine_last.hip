// attention_combine.hip, where the keys of the last round's tiles alone are split.
#include <wmma/attention/passes/combine.hpp>

WMMA_KERNEL(Config::kThreads, 2)
void attention_combine(WMMA_ARGUMENTS(wmma::MappedArgumentsBy<Config::Rules>) arguments) {
  wmma::attention_combine_last<Config>(arguments);
}
