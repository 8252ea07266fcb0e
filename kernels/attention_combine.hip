// Behind attention whose keys are split: puts the parts of each row together.
#include <wmma/attention/passes/combine.hpp>

WMMA_KERNEL(Config::kThreads, 2) void attention_combine(Config::Rules::Arguments arguments) {
  wmma::attention_combine<Config>(arguments);
}
