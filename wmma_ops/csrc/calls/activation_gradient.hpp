// The gradient of what an activation was given, in the one form that CPU, emulated and GPU paths share.
#pragma once

#include "calls/checks.hpp"

namespace wmma_ops {

// g·act′(s), and the sums of its columns. Without an activation it is g, and `s` nothing; of relu the result serves as
// well. With what a gate's activation is multiplied by both factors' gradients: then `s` is what the activation was
// given, whichever it is. Activations are the built-in ones.
struct ActivationGradient {
  const char* op;
  Device device;
  Tensor g, s;  // of one type and of the same sizes, as is u
  int64_t activation = 0;
  std::optional<ScalarType> sums = {};  // of this type, if they are wanted
  bool aligns = false;                  // results are for products, which are quicker where their rows are aligned
  OptTensor u = {};

  struct Result {
    Tensor g_s;
    OptTensor sums;  // [columns]
    OptTensor g_u;
  };
};

}  // namespace wmma_ops
