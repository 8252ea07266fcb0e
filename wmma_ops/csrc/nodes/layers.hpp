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

// What is asked for of x·weightᵀ + bias, of which these are the places, but for the gradient of x.
inline void layer_gradients(Backward& own, const Tensor& g, const Tensor& x, int weight, int bias) {
  const bool of_weight = own.needs[weight];
  if (!of_weight && !own.needs[bias]) return;
  const std::optional<ScalarType> type = type_if_needed(own, bias);
  const auto found = linear_backward(g, x, own.tensors[weight], OptTensor(), 0, false, of_weight, false, type);
  if (of_weight) own.found[weight] = found.front();
  if (type) own.found[bias] = found.back();
}

// Nobody casts what is below: neither autograd nor autocast looks on.
struct BelowAutograd {
  at::AutoDispatchBelowAutograd below;
  c10::impl::ExcludeDispatchKeyGuard uncast{c10::autocast_dispatch_keyset};
};

// The rule of a layer whose first tensor is what it is given. Of gradients of its type; others come by the formulas,
// for which all but `kAdded`, which is only added, are kept.
template <void (*gradients)(Backward&)>
bool of_one_type(Backward& own) {
  if (own.grads[0].scalar_type() != own.tensors[0].scalar_type()) return false;
  const BelowAutograd guard;
  gradients(own);
  return true;
}
template <void (*gradients)(Backward&), int kAdded>
Rule layer_rule(const char* op, const char* name) {
  const auto every = [](Arguments, Arguments) { return true; };
  const auto keeps = [](int tensor, Arguments, Arguments) { return tensor != kAdded; };
  return {op, name, every, keeps, never, of_one_type<gradients>};
}

// x·weightᵀ + bias + low·upᵀ with low = factor·(x·downᵀ), an adapter's.
struct Adapted {
  enum { kX, kWeight, kBias, kDown, kUp };
};

inline void adapted_gradients(Backward& own) {
  const Tensor &g = own.grads[0], &x = own.tensors[Adapted::kX], &weight = own.tensors[Adapted::kWeight],
               &down = own.tensors[Adapted::kDown], &up = own.tensors[Adapted::kUp];
  const std::vector<bool>& needs = own.needs;
  layer_gradients(own, g, x, Adapted::kWeight, Adapted::kBias);
  Tensor g_low;
  if (needs[Adapted::kX] || needs[Adapted::kDown]) g_low = gemm(g, up, {.alpha = own.scalars[0].toDouble()});
  if (needs[Adapted::kX]) own.found[Adapted::kX] = gemm(g, weight, {.a2 = g_low, .b2 = down});
  if (needs[Adapted::kDown]) own.found[Adapted::kDown] = weight_gradient(g_low, x, down);
  if (needs[Adapted::kUp]) own.found[Adapted::kUp] = weight_gradient(g, own.aux[0], up);
}
inline const Rule kAdapted = layer_rule<adapted_gradients, Adapted::kBias>("adapted", "WmmaAdaptedBackward");

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

// h·secondᵀ + second_bias with h = act(s) and s = x·firstᵀ + first_bias, or h = act(s)·u with u = x·upᵀ + up_bias. What
// is kept is h, s but for relu, and u.
struct Mlp {
  enum { kX, kFirst, kFirstBias, kUp, kUpBias, kSecond, kSecondBias };
};
static_assert(int{Gated::kUpBias} == Mlp::kUpBias, "both have what makes h in the same places");

// What is asked for of the layers that make h, by its gradient: g, or where h was multiplied on, g·second, whose own
// kernel multiplies by the derivative.
inline void gradients_of_h(Backward& own, const Tensor& g, const OptTensor& second, const Tensor& s,
                           const OptTensor& u) {
  const std::vector<bool>& needs = own.needs;
  if (std::none_of(needs.begin(), needs.begin() + Mlp::kSecond, [](bool one) { return one; })) return;
  const Tensor &x = own.tensors[Mlp::kX], &first = own.tensors[Mlp::kFirst], &up = own.tensors[Mlp::kUp];
  const int64_t activation = own.scalars[0].toInt();
  std::vector<Tensor> found;
  if (second) {
    using Slopes = std::vector<Tensor>(const Tensor&, const Tensor&, const Tensor&, const OptTensor&, int64_t);
    static const auto slopes = operation("wmma::_gemm_slopes").typed<Slopes>();
    found = slopes.call(g, *second, s, u, activation);
  } else {
    found = gemm_backward(g, x, first.mT(), OptTensor(s), u, 1.0, activation, false, false, true, u.has_value(),
                          std::nullopt);
  }
  const Tensor &g_s = found.front(), &g_u = found.back();
  layer_gradients(own, g_s, x, Mlp::kFirst, Mlp::kFirstBias);
  if (u) layer_gradients(own, g_u, x, Mlp::kUp, Mlp::kUpBias);
  if (needs[Mlp::kX]) own.found[Mlp::kX] = u ? gemm(g_s, first, {.a2 = g_u, .b2 = up}) : gemm(g_s, first);
}

inline void gate_gradients(Backward& own) { gradients_of_h(own, own.grads[0], {}, own.aux[0], own.aux[1]); }
// The formulas add both biases, and multiply by what they are a part of.
inline const Rule kGated = layer_rule<gate_gradients, kNone>("gated", "WmmaGatedBackward");

// The result, and both factors before the activation.
inline std::tuple<Tensor, Tensor, Tensor> gated_aux(const Tensor& x, const Tensor& gate, const OptTensor& gate_bias,
                                                    const Tensor& up, const OptTensor& up_bias, int64_t activation) {
  using WithAux = std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&, const OptTensor&,
                                                     const OptTensor&, int64_t);
  static const auto call = operation("wmma::_gated_aux").typed<WithAux>();
  return call.call(x, gate.mT(), up.mT(), gate_bias, up_bias, activation);
}

inline Tensor gated(const Tensor& x, const Tensor& gate, const OptTensor& gate_bias, const Tensor& up,
                    const OptTensor& up_bias, int64_t activation) {
  const variable_list tensors{x, gate, gate_bias.value_or(Tensor()), up, up_bias.value_or(Tensor())};
  if (is_recorded(tensors)) {
    return recorded(kGated, tensors, {activation}, [&](variable_list& aux) {
      auto [out, s, u] = gated_aux(x, gate, gate_bias, up, up_bias, activation);
      aux = {s, u};
      return out;
    });
  }
  return gemm(x, gate.mT(), {.bias = gate_bias, .gate = up.mT(), .gate_bias = up_bias, .activation = activation});
}

inline void mlp_gradients(Backward& own) {
  const Tensor &g = own.grads[0], &h = own.aux.front(), &s = own.aux.size() > 1 ? own.aux[1] : h;
  layer_gradients(own, g, h, Mlp::kSecond, Mlp::kSecondBias);
  OptTensor u;
  if (own.tensors[Mlp::kUp].defined()) u = own.aux[2];
  gradients_of_h(own, g, own.tensors[Mlp::kSecond], s, u);
}
inline const Rule kMlp = layer_rule<mlp_gradients, Mlp::kSecondBias>("mlp", "WmmaMlpBackward");

inline Tensor mlp(const Tensor& x, const Tensor& first, const OptTensor& first_bias, const OptTensor& up,
                  const OptTensor& up_bias, const Tensor& second, const OptTensor& second_bias, int64_t activation) {
  const auto of = [](const OptTensor& one) { return one.value_or(Tensor()); };
  const auto compute = [&](variable_list& aux) {
    if (up) {
      auto [h, s, u] = gated_aux(x, first, first_bias, *up, up_bias, activation);
      aux = {h, s, u};
    } else if (is_smooth(activation)) {
      using WithAux =
          std::tuple<Tensor, Tensor>(const Tensor&, const Tensor&, const OptTensor&, const OptTensor&, int64_t);
      static const auto with_aux = operation("wmma::_linear_aux").typed<WithAux>();
      auto [h, s] = with_aux.call(x, first, first_bias, {}, activation);
      aux = {h, s};
    } else {
      aux = {gemm(x, first.mT(), {.bias = first_bias, .activation = activation})};
    }
    return gemm(aux.front(), second.mT(), {.bias = second_bias});
  };
  const variable_list tensors{x, first, of(first_bias), of(up), of(up_bias), second, of(second_bias)};
  if (is_recorded(tensors)) return recorded(kMlp, tensors, {activation}, compute);
  const Tensor h =
      gemm(x, first.mT(),
           {.bias = first_bias, .gate = up ? OptTensor(up->mT()) : up, .gate_bias = up_bias, .activation = activation});
  return gemm(h, second.mT(), {.bias = second_bias});
}

}  // namespace wmma_ops
