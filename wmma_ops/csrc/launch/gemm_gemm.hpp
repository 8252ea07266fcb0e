// A checked GemmGemm in the form that its kernel takes, and whether one kernel does it.
#pragma once

#include <wmma/gemm_gemm/arguments.hpp>

#include "launch/operands.hpp"

namespace wmma_ops {

// `p` is the call and `out` its result's memory; both must outlive this. Nothing is empty.
class TwoProducts : public Operands<TwoProducts, wmma::GemmGemmArguments, wmma::GemmOperand, 8> {
 public:
  TwoProducts(const GemmGemm& p, const Tensor& out, int64_t device);

  ProblemKey problem;

  enum Operand { kA, kB0, kGate, kBias0, kB1, kC, kD, kBias1, kOperands };
  static std::array<wmma::GemmOperand*, kOperands> pointers(wmma::GemmGemmArguments& x) {
    return {&x.a, &x.b0, &x.gate, &x.bias0, &x.last.b, &x.last.c, &x.last.d, &x.last.bias};
  }
};

}  // namespace wmma_ops
