#include "calls/gemm.hpp"

#include "cpu/cpu.hpp"
#include "launch/launch.hpp"

namespace wmma_ops {

namespace {

// A gated product; nothing where the planner prefers two, or there is no kernel.
OptTensor in_one_kernel(const Gemm& p) {
  if (is_plain_cpu(p.device)) return std::nullopt;
  const Way way = way_of(p.device);
  return way.on_cpu ? std::nullopt : launch::gated(p, way);
}

// What the gate multiplies is a product, and the gate another that is multiplied by it.
Tensor by_two_products(const Gemm& p) {
  Gemm other{p.op, p.a, p.b};
  other.bias = p.bias;
  other.out_dtype = p.out;
  other.names = p.names;
  other.check();
  Gemm first = other;
  first.multiply = gemm(other, p.other_aux);
  first.b = *p.gate;
  first.bias = p.gate_bias;
  first.activation = p.activation;
  first.aux = p.aux;
  first.names.b = p.names.gate;
  first.names.bias = p.names.gate_bias;
  return gemm(first);
}

}  // namespace

Tensor gated(const Gemm& p) {
  const OptTensor out = in_one_kernel(p);
  return out ? *out : by_two_products(p);
}

Tensor gemm(const Gemm& p, const OptTensor& into) {
  if (is_plain_cpu(p.device)) return cpu::gemm(p, into);
  const Way way = way_of(p.device);
  return way.on_cpu ? cpu::gemm(p, into) : launch::gemm(p, way, into);
}

namespace {

// D0 of a gate that is no more than multiplied by the other product.
OptTensor gated_at_once(const GemmGemm& p) {
  if (!p.gate || p.alpha0 != 1) return std::nullopt;
  Gemm both{p.op, p.a, *p.gate};
  both.gate = p.b0;
  both.gate_bias = p.bias0;
  both.activation = p.activation;
  both.out_dtype = type_of(p.a);
  both.check();
  return in_one_kernel(both);
}

// D0, by as many products as it takes.
Tensor first_of(const GemmGemm& p) {
  if (const OptTensor found = gated_at_once(p)) return *found;
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
  if (!way.on_cpu) {
    if (OptTensor out = launch::gemm_gemm(p, way)) return *out;
  }
  return one_by_one(p);
}

}  // namespace wmma_ops
