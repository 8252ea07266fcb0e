#include "calls/gemm.hpp"

#include "cpu/cpu.hpp"
#include "launch/launch.hpp"

namespace wmma_ops {

namespace {

// A gated product; nothing where the planner prefers two, or there is no kernel.
OptTensor in_one_kernel(const Gemm& p) {
  if (!p.is_gated_alone() || is_plain_cpu(p.device)) return std::nullopt;
  const Way way = way_of(p.device);
  return way.on_cpu ? std::nullopt : launch::gated(p, way);
}

// The gate's product, and the other, which is multiplied by it. Where it is kept it is of the result's type, and else
// as exact as a sum.
Tensor by_two_products(const Gemm& p, const OptTensor& into) {
  Gemm gate{p.op, p.a, *p.gate};
  gate.bias = p.gate_bias;
  gate.out_dtype = p.gate_aux ? p.out : accumulator(p.in);
  gate.names = p.names;
  gate.names.b = p.names.gate;
  gate.names.bias = p.names.gate_bias;
  gate.check();
  Gemm other = p;
  other.gate = other.gate_bias = other.gate_aux = std::nullopt;
  other.multiply = gemm(gate, p.gate_aux);
  if (other.a2) other.check();  // which drops an empty pair
  return gemm(other, into);
}

}  // namespace

Tensor gemm(const Gemm& p, const OptTensor& into) {
  if (p.gate) {
    if (const OptTensor out = in_one_kernel(p)) return *out;
    return by_two_products(p, into);
  }
  if (is_plain_cpu(p.device)) return cpu::gemm(p, into);
  const Way way = way_of(p.device);
  return way.on_cpu ? cpu::gemm(p, into) : launch::gemm(p, way, into);
}

namespace {

// D0, in as many kernels as it takes.
Tensor first_of(const GemmGemm& p) {
  Gemm first{p.op, p.a, p.b0};
  first.bias = p.bias0;
  first.gate = p.gate;
  first.alpha = p.alpha0;
  first.activation = p.activation;
  first.names.b = "b0";
  first.names.bias = "bias0";
  first.out_dtype = type_of(p.a);
  first.check();
  return gemm(first);
}

// One product after the other, with D0 in memory.
Tensor one_by_one(const GemmGemm& p) {
  Gemm second{p.op, first_of(p), p.b1};
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
  if (!way.on_cpu && !is_batch_invariant()) {
    if (OptTensor out = launch::gemm_gemm(p, way)) return *out;
  }
  return one_by_one(p);
}

}  // namespace wmma_ops
