#include "cpu.hpp"

namespace wmma_ops::cpu {

Tensor gemm_gemm(const GemmGemm& p) {
  ScalarType in = type_of(p.a);
  Gemm first{p.op, p.a, p.b0};
  first.bias = p.bias0;
  first.alpha = p.alpha0;
  first.activation = p.activation;
  if (p.gate) {
    Gemm gate{p.op, p.a, *p.gate};
    gate.out_dtype = in == ScalarType::Double ? in : ScalarType::Float;
    gate.check();
    first.multiply = gemm(gate);
  }
  first.out_dtype = in;
  first.check();
  Tensor d0 = gemm(first);

  Gemm second{p.op, d0, p.b1};
  second.c = p.c;
  second.bias = p.bias1;
  second.alpha = p.alpha1;
  second.beta = p.beta1;
  second.out_dtype = p.out_dtype;
  second.check();
  return gemm(second);
}

}  // namespace wmma_ops::cpu
