// A checked Gemm in the one form that kernels take: every operand as a matrix with strides, in as few batch dimensions
// as its memory allows.
#pragma once

#include "launch/operands.hpp"

namespace wmma_ops {

// `p` is the call and `out` its result's memory; both must outlive this. Nothing is empty but K.
class Product : public Operands<Product, wmma::GemmArguments, wmma::GemmOperand, 15> {
 public:
  Product(const Gemm& p, const Tensor& out, int64_t device);

  ProblemKey problem;
  bool is_flipped = false;                  // Dᵀ = Bᵀ·Aᵀ: the kernel's A is the call's B
  bool a_across = false, b_across = false;  // whether the memory of the kernel's operands runs across K

  // In the order of GemmArguments.
  enum Operand {
    kA,
    kB,
    kC,
    kD,
    kBias,
    kRowScale,
    kColScale,
    kAScale,
    kMultiply,
    kA2,
    kB2,
    kAux,
    kGate,
    kGateBias,
    kGateAux,
    kOperands
  };
  static std::array<wmma::GemmOperand*, kOperands> pointers(wmma::GemmArguments& x) {
    return {&x.a,        &x.b,  &x.c,  &x.d,   &x.bias, &x.row_scale, &x.col_scale, &x.a_scale,
            &x.multiply, &x.a2, &x.b2, &x.aux, &x.gate, &x.gate_bias, &x.gate_aux};
  }
};

}  // namespace wmma_ops
