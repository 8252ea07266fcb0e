// A checked GemmGemm in the form that its kernel takes, and whether one kernel does it.
#pragma once

#include <array>
#include <wmma/tile/gemm_gemm_arguments.hpp>

#include "launch.hpp"
#include "operands.hpp"

namespace wmma_ops {

struct TwoProducts {
  // `p` is the call and `out` its result's memory; both must outlive this. Nothing is empty.
  TwoProducts(const GemmGemm& p, const Tensor& out, int64_t place);

  wmma::GemmGemmArguments arguments{};
  ProblemKey problem;
  Batch batch;
  void start(int64_t index, wmma::GemmGemmArguments& moved) const;  // moves the operands to one of the outer batch

  launch::Touched touched;  // the tensors that stand behind it

 private:
  enum Operand { kA, kB0, kGate, kBias0, kB1, kC, kD, kBias1, kOperands };
  using Pointers = std::array<wmma::GemmOperand*, kOperands>;
  static Pointers pointers(wmma::GemmGemmArguments& x);
  View v[kOperands];
};

namespace launch {

// In one kernel; nothing where the planner prefers a product after the other.
OptTensor gemm_gemm(const GemmGemm& p, const Way& way);

}  // namespace launch
}  // namespace wmma_ops
