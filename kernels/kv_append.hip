// New keys and values into pages. Before this file the planner puts a `struct Config` (wmma_ops/plan/kv_append.py says
// what it holds).
#include <wmma/attention/append.hpp>

WMMA_KERNEL(Config::kThreads, 2) void kv_append(wmma::AppendArguments arguments) {
  wmma::KvAppend<Config>::run(arguments);
}
