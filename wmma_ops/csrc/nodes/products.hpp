// The derivatives of products.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include "nodes/derivative.hpp"

namespace wmma_ops {

using GemmBackward = std::vector<Tensor>(const Tensor&, const Tensor&, const Tensor&, const OptTensor&, double, int64_t,
                                         bool, bool, bool, std::optional<ScalarType>);
using LinearBackward = std::vector<Tensor>(const Tensor&, const Tensor&, const Tensor&, const OptTensor&, int64_t, bool,
                                           bool, bool, std::optional<ScalarType>);

constexpr int kNone = -1;

// D = act(alpha·A·B + beta·C + bias): where an op has these among its arguments.
struct Places {
  int a, b, c, bias;
  bool is_linear;  // B is a weight's transpose
};

// Whether its values were kept or not.
inline Shape shape_of_argument(const Backward& x, int place) {
  const Tensor& kept = x.tensors[place];
  return kept.defined() ? Shape{kept.sizes().vec(), kept.options()} : x.shapes[place];
}
inline ScalarType type_of_argument(const Backward& x, int place) {
  const Tensor& kept = x.tensors[place];
  return kept.defined() ? kept.scalar_type() : x.shapes[place].options.dtype().toScalarType();
}

inline bool product_gradients(Backward& x, const Places& at, double alpha, double beta, int64_t activation) {
  Tensor g = x.grads[0];
  const auto needs = [&](int place) { return place != kNone && x.needs[place]; };
  const Tensor &a = x.tensors[at.a], &b = x.tensors[at.b];
  OptTensor s;
  if (activation == kRelu) {
    if (g.scalar_type() == a.scalar_type()) {
      s = x.outputs[0];
    } else {
      g = at::threshold_backward(g, x.outputs[0], 0);
    }
  } else if (activation != 0) {
    s = x.aux;
  }
  if (!s) activation = 0;
  const bool of_a = needs(at.a), of_b = needs(at.b), of_c = needs(at.c), of_s = of_c && s;
  std::optional<ScalarType> bias;
  if (needs(at.bias)) bias = type_of_argument(x, at.bias);
  at::AutoDispatchBelowAutograd guard;
  const auto found_of_c = [&](const Tensor& g_s) {
    const bool is_half = g_s.scalar_type() == at::kHalf || g_s.scalar_type() == at::kBFloat16;
    return shape_of_argument(x, at.c).sum_of(beta == 1 ? g_s : is_half ? g_s.to(at::kFloat) * beta : g_s * beta);
  };
  if (of_c && !of_s) x.found[at.c] = found_of_c(g);
  if (!of_a && !of_b && !bias && !of_s) return true;
  std::vector<Tensor> found;
  if (at.is_linear) {
    static const auto call = operation("wmma::_linear_backward").typed<LinearBackward>();
    found = call.call(g, a, b, s, activation, of_a, of_b, of_s, bias);
  } else {
    static const auto call = operation("wmma::_gemm_backward").typed<GemmBackward>();
    found = call.call(g, a, b, s, alpha, activation, of_a, of_b, of_s, bias);
  }
  auto next = found.begin();
  if (of_a) x.found[at.a] = *next++;
  if (of_b) x.found[at.b] = *next++;
  if (bias) x.found[at.bias] = *next++;
  if (of_s) x.found[at.c] = found_of_c(*next);
  return true;
}

inline bool are_matrices(const IValue& a, const IValue& b) {
  return a.toTensor().dim() >= 2 && b.toTensor().dim() >= 2 && is_differentiable(a.toTensor());
}
inline bool is_none_or_row(const IValue& bias) { return bias.isNone() || bias.toTensor().dim() == 1; }

inline const Rule kMatmul{
    "matmul",
    "WmmaMatmulBackward",
    [](Arguments t, Arguments) { return are_matrices(t[0], t[1]); },
    always,
    never,
    [](Backward& x) { return product_gradients(x, {0, 1, kNone, kNone, false}, 1, 1, 0); },
};

inline const Rule kAddmm{
    "addmm",
    "WmmaAddmmBackward",
    [](Arguments t, Arguments) { return are_matrices(t[1], t[2]); },
    [](int tensor, Arguments) { return tensor != 0; },
    never,
    [](Backward& x) {
      return product_gradients(x, {1, 2, 0, kNone, false}, x.scalars[1].toDouble(), x.scalars[0].toDouble(), 0);
    },
};

inline const Rule kLinear{
    "linear",
    "WmmaLinearBackward",
    [](Arguments t, Arguments s) {
      const Tensor& weight = t[1].toTensor();
      return t[0].toTensor().dim() >= 2 && weight.dim() == 2 && is_differentiable(t[0].toTensor()) &&
             is_none_or_row(t[2]) && may_be(s[0].toInt());
    },
    [](int tensor, Arguments s) { return tensor < 2 || is_smooth(s[0].toInt()); },
    [](Arguments s) { return s[0].toInt() == kRelu; },
    [](Backward& x) { return product_gradients(x, {0, 1, 3, 2, true}, 1, 1, x.scalars[0].toInt()); },
    [](Stack& stack) {
      static const OperatorHandle call = operation("wmma::_linear_aux");
      call.callBoxed(stack);
    },
    [](Arguments s) { return is_smooth(s[0].toInt()); },
};

// alpha, beta, a_activation, activation, out_dtype
inline const Rule kGemm{
    "gemm",
    "WmmaGemmBackward",
    [](Arguments t, Arguments s) {
      const bool is_bare = std::all_of(t.begin() + 4, t.end(), [](const IValue& one) { return one.isNone(); });
      const int64_t activation = s[3].toInt();
      const bool keeps_type = s[4].isNone() || s[4].toScalarType() == t[0].toTensor().scalar_type();
      return is_bare && are_matrices(t[0], t[1]) && is_none_or_row(t[3]) && s[2].toInt() == 0 && may_be(activation) &&
             (keeps_type || !is_smooth(activation));
    },
    [](int tensor, Arguments s) { return tensor < 2 || is_smooth(s[3].toInt()); },
    [](Arguments s) { return s[3].toInt() == kRelu; },
    [](Backward& x) {
      const auto& s = x.scalars;
      return product_gradients(x, {0, 1, 2, 3, false}, s[0].toDouble(), s[1].toDouble(), s[3].toInt());
    },
    [](Stack& stack) {
      static const OperatorHandle call = operation("wmma::_gemm_aux");
      static const size_t tensors = 10, scalars = 5, kept = 4;
      const auto given = stack.end() - (tensors + scalars), options = given + tensors;
      Stack own(given, given + kept);
      own.insert(own.end(), {options[0], options[1], options[3]});
      call.callBoxed(own);
      torch::jit::drop(stack, tensors + scalars);
      stack.insert(stack.end(), own.begin(), own.end());
    },
    [](Arguments s) { return is_smooth(s[3].toInt()); },
};

}  // namespace wmma_ops
