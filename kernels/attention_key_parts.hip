// Behind attention's gradients whose queries are split: adds up what the slices give keys and values.
#include <wmma/attention/passes/key_parts.hpp>

WMMA_KERNEL(Config::kThreads, 2) void attention_key_parts(wmma::MappedAttentionArguments arguments) {
  wmma::add_key_parts<Config>(arguments);
}
