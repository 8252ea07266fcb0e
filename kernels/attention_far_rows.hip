// Before attention's gradients beside a mask of numbers: what the weights of rows are multiplied by.
#include <wmma/attention/passes/far_rows.hpp>

WMMA_KERNEL(Config::kThreads, 2) void attention_far_rows(wmma::AttentionArguments arguments) {
  wmma::FarRows<Config>::run(arguments);
}
