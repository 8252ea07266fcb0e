#include "calls/gemm.hpp"

#include "cpu/cpu.hpp"
#include "launch/launch.hpp"

namespace wmma_ops {

Tensor gemm(const Gemm& p, const OptTensor& into) {
  if (is_plain_cpu(p.device)) return cpu::gemm(p, into);
  const Way way = way_of(p.device);
  return way.on_cpu ? cpu::gemm(p, into) : launch::gemm(p, way, into);
}

namespace {

// One product after the other, with D0 in memory.
Tensor one_by_one(const GemmGemm& p) {
  ScalarType in = type_of(p.a);
  Gemm first{p.op, p.a, p.b0};
  first.bias = p.bias0;
  first.alpha = p.alpha0;
  first.activation = p.activation;
  first.names.b = "b0";
  first.names.bias = "bias0";
  if (p.gate) {
    Gemm gate{p.op, p.a, *p.gate};
    gate.out_dtype = accumulator(in);
    gate.names.b = "gate";
    gate.check();
    first.multiply = gemm(gate);
    first.names.multiply = "a·gate";
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
  second.names.a = "d0";
  second.names.b = "b1";
  second.names.bias = "bias1";
  second.check();
  return gemm(second);
}

}  // namespace

Tensor gemm_gemm(const GemmGemm& p) {
  if (is_plain_cpu(p.device)) return one_by_one(p);
  const Way way = way_of(p.device);
  if (!way.on_cpu) {
    if (OptTensor out = launch::gemm_gemm(p, way)) return *out;
  }
  return one_by_one(p);
}

}  // namespace wmma_ops
