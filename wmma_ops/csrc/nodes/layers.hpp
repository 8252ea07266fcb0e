// Layers of several products, which autograd sees as one node.
#pragma once

#include "nodes/products.hpp"

namespace wmma_ops {

// What stands beside A and B of a gemm.
struct Beside {
  OptTensor bias, a2, b2, gate, gate_bias;
  double alpha = 1;
  int64_t activation = 0;
};

inline Tensor gemm(const Tensor& a, const Tensor& b, const Beside& beside = {}) {
  using Gemm = Tensor(const Tensor&, const Tensor&, const OptTensor&, const OptTensor&, const OptTensor&,
                      const OptTensor&, const OptTensor&, const OptTensor&, const OptTensor&, const OptTensor&,
                      const OptTensor&, const OptTensor&, double, double, int64_t, int64_t, std::optional<ScalarType>);
  static const auto call = operation("wmma::gemm").typed<Gemm>();
  return call.call(a, b, {}, beside.bias, {}, {}, {}, {}, beside.a2, beside.b2, beside.gate, beside.gate_bias,
                   beside.alpha, 1, 0, beside.activation, {});
}

// gᵀ·x, as a weight lies.
inline Tensor weight_gradient(const Tensor& g, const Tensor& x, const Tensor& weight) {
  return linear_backward(g, x, weight, OptTensor(), 0, false, true, false, std::nullopt)[0];
}

// Nobody casts what is below: neither autograd nor autocast looks on.
struct BelowAutograd {
  at::AutoDispatchBelowAutograd below;
  c10::impl::ExcludeDispatchKeyGuard uncast{c10::autocast_dispatch_keyset};
};

// x·weightᵀ + bias + low·upᵀ with low = factor·(x·downᵀ), an adapter's.
struct Adapted {
  enum { kX, kWeight, kBias, kDown, kUp };
};

inline const Rule kAdapted{
    "adapted",
    "WmmaAdaptedBackward",
    [](Arguments, Arguments) { return true; },
    [](int tensor, Arguments, Arguments) { return tensor != Adapted::kBias; },
    never,
    [](Backward& own) {
      const Tensor &g = own.grads[0], &x = own.tensors[Adapted::kX], &weight = own.tensors[Adapted::kWeight],
                   &down = own.tensors[Adapted::kDown], &up = own.tensors[Adapted::kUp];
      if (g.scalar_type() != x.scalar_type()) return false;
      const std::vector<bool>& needs = own.needs;
      const BelowAutograd guard;
      if (needs[Adapted::kWeight] || needs[Adapted::kBias]) {
        std::optional<ScalarType> bias;
        if (needs[Adapted::kBias]) bias = type_of_argument(own, Adapted::kBias);
        const bool of_weight = needs[Adapted::kWeight];
        const auto found = linear_backward(g, x, weight, OptTensor(), 0, false, of_weight, false, bias);
        if (of_weight) own.found[Adapted::kWeight] = found.front();
        if (bias) own.found[Adapted::kBias] = found.back();
      }
      Tensor g_low;
      if (needs[Adapted::kX] || needs[Adapted::kDown]) g_low = gemm(g, up, {.alpha = own.scalars[0].toDouble()});
      if (needs[Adapted::kX]) own.found[Adapted::kX] = gemm(g, weight, {.a2 = g_low, .b2 = down});
      if (needs[Adapted::kDown]) own.found[Adapted::kDown] = weight_gradient(g_low, x, down);
      if (needs[Adapted::kUp]) own.found[Adapted::kUp] = weight_gradient(g, own.aux[0], up);
      return true;
    },
};

// Whether a layer is recorded as one node: otherwise those who look on see its products.
inline bool is_recorded(const variable_list& tensors) {
  const auto requires_grad = [](const Tensor& one) { return one.defined() && one.requires_grad(); };
  return at::GradMode::is_enabled() && std::any_of(tensors.begin(), tensors.end(), requires_grad) &&
         !somebody_looks_on() && are_plain(tensors);
}

// The result of `compute(aux)`, which lays what is kept into aux, with its node behind it.
template <class Compute>
Tensor recorded(const Rule& rule, const variable_list& tensors, const std::vector<IValue>& scalars,
                const Compute& compute) {
  std::vector<IValue> given;
  for (const Tensor& one : tensors) given.push_back(one.defined() ? IValue(one) : IValue());
  const auto node = made<Derivative>(static_cast<const NodePointer*>(nullptr), rule, given, scalars);
  variable_list aux;
  Tensor out;
  {
    const BelowAutograd guard;
    out = compute(aux);
  }
  for (const Tensor& one : aux) node->remember_aux(one);
  torch::autograd::set_history(out, node);
  return out;
}

inline Tensor adapted(const Tensor& x, const Tensor& weight, const OptTensor& bias, const Tensor& down,
                      const Tensor& up, double factor) {
  const auto compute = [&](variable_list& aux) {
    aux = {gemm(x, down.mT(), {.alpha = factor})};
    return gemm(x, weight.mT(), {.bias = bias, .a2 = aux[0], .b2 = up.mT()});
  };
  const variable_list tensors{x, weight, bias.value_or(Tensor()), down, up};
  if (is_recorded(tensors)) return recorded(kAdapted, tensors, {factor}, compute);
  variable_list aux;
  return compute(aux);
}

// act(s)·u with s = x·gateᵀ + gate_bias and u = x·upᵀ + up_bias.
struct Gated {
  enum { kX, kGate, kGateBias, kUp, kUpBias };
};

inline const Rule kGated{
    "gated",
    "WmmaGatedBackward",
    [](Arguments, Arguments) { return true; },
    always,  // the formulas multiply again, and add what is added
    never,
    [](Backward& own) {
      const Tensor &g = own.grads[0], &x = own.tensors[Gated::kX], &gate = own.tensors[Gated::kGate],
                   &up = own.tensors[Gated::kUp], &s = own.aux[0], &u = own.aux[1];
      if (g.scalar_type() != x.scalar_type()) return false;
      const std::vector<bool>& needs = own.needs;
      const BelowAutograd guard;
      std::optional<ScalarType> bias;
      if (needs[Gated::kGateBias]) bias = type_of_argument(own, Gated::kGateBias);
      const int64_t activation = own.scalars[0].toInt();
      const auto found = gemm_backward(g, x, gate.mT(), s, u, 1, activation, false, false, true, true, bias);
      const Tensor &g_s = found[found.size() - 2], &g_u = found.back();
      if (bias) own.found[Gated::kGateBias] = found.front();
      if (needs[Gated::kX]) own.found[Gated::kX] = gemm(g_s, gate, {.a2 = g_u, .b2 = up});
      if (needs[Gated::kGate]) own.found[Gated::kGate] = weight_gradient(g_s, x, gate);
      if (needs[Gated::kUp]) own.found[Gated::kUp] = weight_gradient(g_u, x, up);
      if (needs[Gated::kUpBias]) {
        const ScalarType type = type_of_argument(own, Gated::kUpBias);
        own.found[Gated::kUpBias] = linear_backward(g_u, x, up, OptTensor(), 0, false, false, false, type)[0];
      }
      return true;
    },
};

inline Tensor gated(const Tensor& x, const Tensor& gate, const OptTensor& gate_bias, const Tensor& up,
                    const OptTensor& up_bias, int64_t activation) {
  using WithAux = std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const OptTensor&,
                                                     const OptTensor&, int64_t);
  static const auto with_aux = operation("wmma::_gated_aux").typed<WithAux>();
  const variable_list tensors{x, gate, gate_bias.value_or(Tensor()), up, up_bias.value_or(Tensor())};
  if (is_recorded(tensors)) {
    return recorded(kGated, tensors, {activation}, [&](variable_list& aux) {
      auto [out, s, u] = with_aux.call(x, gate.mT(), up.mT(), gate_bias, up_bias, activation);
      aux = {s, u};
      return out;
    });
  }
  return gemm(x, gate.mT(), {.bias = gate_bias, .gate = up.mT(), .gate_bias = up_bias, .activation = activation});
}

}  // namespace wmma_ops
