// Attention: out = softmax(scale·Q·Kᵀ + mask)·V, the scores never in memory. Before this file the planner puts a
// `struct Config`, the header of a loop and, as `Kernel`, that loop (wmma_ops/plan/attention/loops: a file a loop).
static_assert(Kernel::kThreads == Config::kThreads, "the planner and the kernel agree");
static_assert(Kernel::kSharedBytes == Config::kSharedBytes, "the planner and the kernel agree");

WMMA_KERNEL(Config::kThreads, Config::kOccupancy, Config::kMostWaves)
void attention(WMMA_ARGUMENTS(Kernel::Arguments) arguments) { Kernel::run(arguments); }
