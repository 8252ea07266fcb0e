// A checked Gemm in the one form that kernels take: every operand as a matrix with strides, in as few batch dimensions
// as its memory allows.
#pragma once

#include "../../kernels/wmma/tile/gemm_arguments.hpp"
#include "launch.hpp"

namespace wmma_ops {

int64_t element_code(ScalarType type);  // as the planner knows it
int64_t element_size(int64_t code);     // bytes

// The operands in the order of GemmArguments.
enum Operand { kA, kB, kC, kD, kBias, kRowScale, kColScale, kAScale, kMultiply, kOperands };

struct Product {
  // `p` is the call and `out` its result's memory; both must outlive this. Nothing is empty but K.
  Product(const Gemm& p, const Tensor& out, int64_t place);

  wmma::GemmArguments arguments{};  // but for what the plan decides
  ProblemKey problem;

  // What there is beside kBatchDims dimensions of the batch, outermost: the host goes through it, one launch an index.
  int outer_dims = 0;
  int64_t outer_sizes[64];
  int64_t outer_strides[kOperands][64];  // in bytes
  int64_t outer_count = 1;
  void start(int64_t index, wmma::GemmArguments& moved) const;  // moves the operands to one of them

  launch::Touched touched;  // the tensors that stand behind it
};

}  // namespace wmma_ops
