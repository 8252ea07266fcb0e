// attention.hip, for blocks of a cluster, which split the keys of a tile of rows.
static_assert(Kernel::kThreads == Config::kThreads, "the planner and the kernel agree");
static_assert(Kernel::kSharedBytes == Config::kSharedBytes, "the planner and the kernel agree");

WMMA_KERNEL(Config::kThreads, Config::kOccupancy, Config::kMostWaves)
WMMA_CLUSTER(Config::kCluster) void attention(WMMA_ARGUMENTS(Kernel::Arguments) arguments) { Kernel::run(arguments); }
