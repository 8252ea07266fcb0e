// The derivative of attention.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include "nodes/derivative.hpp"

namespace wmma_ops {

// q, k and v, then what also has a gradient, by way of all scores; behind them what has none.
constexpr int kOperands = 3, kDifferentiable = 6;
constexpr int64_t kWidest = 128;  // of head sizes, whose gradients have kernels of 16 bits on every GPU

inline const Rule kAttention{
    "attention",
    "WmmaAttentionBackward",
    [](Arguments t, Arguments) {
      for (size_t i = kDifferentiable; i < t.size(); ++i) {
        if (!t[i].isNone() && t[i].toTensor().requires_grad()) return false;  // refused
      }
      return is_differentiable(t[0].toTensor());
    },
    always,
    [](Arguments, Arguments) { return true; },
    [](Backward& x) {
      const Tensor &q = x.tensors[0], &v = x.tensors[2];
      const int64_t widest = std::max(q.size(-1), v.size(-1));
      if (!q.is_cuda() || q.element_size() != 2 || widest > kWidest || v.size(-1) == 0) return false;
      if (std::any_of(x.needs.begin() + kOperands, x.needs.end(), [](bool one) { return one; })) return false;
      static const OperatorHandle call = operation("wmma::_attention_backward");
      const Tensor &out = x.outputs[0], &g_out = x.grads[0], &g_lse = x.grads[1];
      const auto optional = [](const Tensor& one) { return one.defined() ? IValue(one) : IValue(); };
      Stack stack{g_out.defined() ? g_out : at::zeros_like(out), q, x.tensors[1], v, out, x.outputs[1]};
      stack.push_back(optional(x.tensors[kOperands]));
      stack.push_back(optional(g_lse));
      for (size_t i = kOperands + 1; i < x.tensors.size(); ++i) stack.push_back(optional(x.tensors[i]));
      stack.insert(stack.end(), x.scalars.begin(), x.scalars.end());
      at::AutoDispatchBelowAutograd guard;
      call.callBoxed(stack);
      for (int i = 0; i < kOperands; ++i) x.found[i] = x.needs[i] ? stack[i].toTensor() : Tensor();
      return true;
    },
};

}  // namespace wmma_ops
