// A checked Gemm in the one form that kernels take: every operand as a matrix with strides, in as few batch dimensions
// as its memory allows.
#pragma once

#include <array>

#include "launch.hpp"
#include "operands.hpp"

namespace wmma_ops {

// The operands in the order of GemmArguments.
enum Operand { kA, kB, kC, kD, kBias, kRowScale, kColScale, kAScale, kMultiply, kOperands };

struct Product {
  // `p` is the call and `out` its result's memory; both must outlive this. Nothing is empty but K.
  Product(const Gemm& p, const Tensor& out, int64_t place);

  wmma::GemmArguments arguments{};  // but for what the plan decides
  ProblemKey problem;

  Batch batch;
  void start(int64_t index, wmma::GemmArguments& moved) const;  // moves the operands to one of the outer batch

  launch::Touched touched;  // the tensors that stand behind it

 private:
  using Pointers = std::array<wmma::GemmOperand*, kOperands>;
  static Pointers pointers(wmma::GemmArguments& x);
  View v[kOperands];
};

}  // namespace wmma_ops
