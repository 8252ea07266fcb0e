// The gradients of attention, those of queries or those of keys and values: each result is written once and summed up
// in one order, or in whole numbers (gradients/fixed_point.hpp), which any order leaves the same. As attention.hip,
// behind attention_delta.hip.
static_assert(Kernel::kThreads == Config::kThreads, "the planner and the kernel agree");
static_assert(Kernel::kSharedBytes == Config::kSharedBytes, "the planner and the kernel agree");

WMMA_KERNEL(Config::kThreads, Config::kOccupancy, Config::kMostWaves)
void attention_backward(WMMA_ARGUMENTS(Kernel::Arguments) arguments) { Kernel::run(arguments); }
