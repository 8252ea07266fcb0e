// Layers of several products, which autograd sees as one node.
#pragma once

#include "nodes/products.hpp"

namespace wmma_ops {

// What stands beside A and B of a gemm.
struct Beside {
  OptTensor bias, a2, b2;
  double alpha = 1;
};

inline Tensor gemm(const Tensor& a, const Tensor& b, const Beside& beside = {}) {
  using Gemm = Tensor(const Tensor&, const Tensor&, const OptTensor&, const OptTensor&, const OptTensor&,
                      const OptTensor&, const OptTensor&, const OptTensor&, const OptTensor&, const OptTensor&, double,
                      double, int64_t, int64_t, std::optional<ScalarType>);
  static const auto call = operation("wmma::gemm").typed<Gemm>();
  return call.call(a, b, {}, beside.bias, {}, {}, {}, {}, beside.a2, beside.b2, beside.alpha, 1, 0, 0, {});
}

// gᵀ·x, as a weight lies.
inline Tensor weight_gradient(const Tensor& g, const Tensor& x, const Tensor& weight) {
  static const auto call = operation("wmma::_linear_backward").typed<LinearBackward>();
  return call.call(g, x, weight, {}, 0, false, true, false, {})[0];
}

// Nobody casts what is below: neither autograd nor autocast looks on.
struct BelowAutograd {
  at::AutoDispatchBelowAutograd below;
  c10::impl::ExcludeDispatchKeyGuard uncast{c10::autocast_dispatch_keyset};
};

// x·weightᵀ + bias + low·upᵀ with low = factor·(x·downᵀ), an adapter's.
enum Adapted { kX, kWeight, kBias, kDown, kUp };

inline const Rule kAdapted{
    "adapted",
    "WmmaAdaptedBackward",
    [](Arguments, Arguments) { return true; },
    [](int tensor, Arguments) { return tensor != kBias; },
    never,
    [](Backward& own) {
      const Tensor &g = own.grads[0], &x = own.tensors[kX], &weight = own.tensors[kWeight], &down = own.tensors[kDown],
                   &up = own.tensors[kUp];
      if (g.scalar_type() != x.scalar_type()) return false;
      const std::vector<bool>& needs = own.needs;
      const BelowAutograd guard;
      if (needs[kWeight] || needs[kBias]) {
        static const auto call = operation("wmma::_linear_backward").typed<LinearBackward>();
        std::optional<ScalarType> bias;
        if (needs[kBias]) bias = type_of_argument(own, kBias);
        const std::vector<Tensor> found = call.call(g, x, weight, {}, 0, false, needs[kWeight], false, bias);
        if (needs[kWeight]) own.found[kWeight] = found.front();
        if (bias) own.found[kBias] = found.back();
      }
      Tensor g_low;
      if (needs[kX] || needs[kDown]) g_low = gemm(g, up, {.alpha = own.scalars[0].toDouble()});
      if (needs[kX]) own.found[kX] = gemm(g, weight, {.a2 = g_low, .b2 = down});
      if (needs[kDown]) own.found[kDown] = weight_gradient(g_low, x, down);
      if (needs[kUp]) own.found[kUp] = weight_gradient(g, own.aux, up);
      return true;
    },
    nullptr,
    [](Arguments) { return true; },
};

inline Tensor adapted(const Tensor& x, const Tensor& weight, const OptTensor& bias, const Tensor& down,
                      const Tensor& up, double factor) {
  const variable_list tensors{x, weight, bias.value_or(Tensor()), down, up};
  const bool records = at::GradMode::is_enabled() && std::any_of(tensors.begin(), tensors.end(), [](const Tensor& one) {
                         return one.defined() && one.requires_grad();
                       });
  const auto computed = [&](Tensor& low) {
    low = gemm(x, down.mT(), {.alpha = factor});
    return gemm(x, weight.mT(), {.bias = bias, .a2 = low, .b2 = up.mT()});
  };
  Tensor low;
  if (!records || somebody_looks_on() || !are_plain(tensors)) return computed(low);
  const std::vector<IValue> given{x, weight, bias ? IValue(*bias) : IValue(), down, up}, scalars{factor};
  const auto node = made<Derivative>(static_cast<const NodePointer*>(nullptr), kAdapted, given, scalars);
  Tensor out;
  {
    const BelowAutograd guard;
    out = computed(low);
  }
  node->remember_aux(low);
  torch::autograd::set_history(out, node);
  return out;
}

}  // namespace wmma_ops
