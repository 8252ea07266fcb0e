// An activation's gradient, and the sums of its columns. Before this file the planner puts a `struct Config`
// (wmma_ops/plan/activation_gradient.py says what it holds), and defines WMMA_ADDS_UP where the kernel is the second
// one, which adds up what slabs of rows have.
#include <wmma/activation_gradient/kernel.hpp>

#ifdef WMMA_ADDS_UP
WMMA_KERNEL(Config::kThreads, 2) void activation_gradient_sums(wmma::ActivationGradientArguments arguments) {
  wmma::ActivationGradient<Config>::add_up(arguments);
}
#else
WMMA_KERNEL(Config::kThreads, 2) void activation_gradient(wmma::ActivationGradientArguments arguments) {
  wmma::ActivationGradient<Config>::run(arguments);
}
#endif
