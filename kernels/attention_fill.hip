// Beside attention of packed sequences: fills the rows that are of none, and lists the tiles of balanced blocks.
#include <wmma/attention/passes/fill.hpp>

WMMA_KERNEL(Config::kThreads, 2) void attention_fill(Config::Rules::Arguments arguments) {
  wmma::Fill<Config>::run(arguments);
}
