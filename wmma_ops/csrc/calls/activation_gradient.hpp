// The gradient of what an activation was given, in the one form that CPU, emulated and GPU paths share.
#pragma once

#include "calls/checks.hpp"

namespace wmma_ops {

// g·act′(s), and the sums of its columns. Without an activation it is g, and `s` nothing; of relu the result serves as
// well. Activations are the built-in ones.
struct ActivationGradient {
  const char* op;
  Device device;
  Tensor g, s;  // of one type and of the same sizes
  int64_t activation = 0;
  std::optional<ScalarType> sums = {};  // of this type, if they are wanted
  bool aligns = false;                  // g_s is for products, which are quicker where its rows are aligned

  struct Result {
    Tensor g_s;
    OptTensor sums;  // [columns]
  };
};

}  // namespace wmma_ops
