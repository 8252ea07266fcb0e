// The derivatives of products.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include "nodes/derivative.hpp"

namespace wmma_ops {

using GemmBackward = std::vector<Tensor>(const Tensor&, const Tensor&, const Tensor&, const OptTensor&,
                                         const OptTensor&, double, int64_t, bool, bool, bool, bool,
                                         std::optional<ScalarType>);
using LinearBackward = std::vector<Tensor>(const Tensor&, const Tensor&, const Tensor&, const OptTensor&, int64_t, bool,
                                           bool, bool, std::optional<ScalarType>);

template <class... Given>
std::vector<Tensor> gemm_backward(const Given&... given) {
  static const auto call = operation("wmma::_gemm_backward").typed<GemmBackward>();
  return call.call(given...);
}
template <class... Given>
std::vector<Tensor> linear_backward(const Given&... given) {
  static const auto call = operation("wmma::_linear_backward").typed<LinearBackward>();
  return call.call(given...);
}

constexpr int kNone = -1;

// D = act(alpha·A·B + beta·C + bias)·multiply: where an op has these among its arguments.
struct Places {
  int a, b, c, bias;
  bool is_linear;  // B is a weight's transpose
  int multiply = kNone;
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

inline std::optional<ScalarType> type_if_needed(const Backward& x, int place) {
  if (place == kNone || !x.needs[place]) return std::nullopt;
  return type_of_argument(x, place);
}

inline bool product_gradients(Backward& x, const Places& at, double alpha, double beta, int64_t activation) {
  Tensor g = x.grads[0];
  const auto needs = [&](int place) { return place != kNone && x.needs[place]; };
  const Tensor &a = x.tensors[at.a], &b = x.tensors[at.b];
  OptTensor s, multiply;
  if (at.multiply != kNone && x.tensors[at.multiply].defined()) multiply = x.tensors[at.multiply];
  if (multiply) {
    s = x.aux[0];
  } else if (activation == kRelu) {
    if (g.scalar_type() == a.scalar_type()) {
      s = x.outputs[0];
    } else {
      g = at::threshold_backward(g, x.outputs[0], 0);
    }
  } else if (activation != 0) {
    s = x.aux[0];
  }
  if (!s) activation = 0;
  const bool of_a = needs(at.a), of_b = needs(at.b), of_c = needs(at.c), of_s = of_c && s,
             of_multiply = needs(at.multiply);
  const std::optional<ScalarType> bias = type_if_needed(x, at.bias);
  at::AutoDispatchBelowAutograd guard;
  const auto found_of_c = [&](const Tensor& g_s) {
    const bool is_half = g_s.scalar_type() == at::kHalf || g_s.scalar_type() == at::kBFloat16;
    return shape_of_argument(x, at.c).sum_of(beta == 1 ? g_s : is_half ? g_s.to(at::kFloat) * beta : g_s * beta);
  };
  if (of_c && !of_s) x.found[at.c] = found_of_c(g);
  if (!of_a && !of_b && !bias && !of_s && !of_multiply) return true;
  const std::vector<Tensor> found =
      at.is_linear ? linear_backward(g, a, b, s, activation, of_a, of_b, of_s, bias)
                   : gemm_backward(g, a, b, s, multiply, alpha, activation, of_a, of_b, of_s, of_multiply, bias);
  auto next = found.begin();
  if (of_a) x.found[at.a] = *next++;
  if (of_b) x.found[at.b] = *next++;
  if (bias) x.found[at.bias] = *next++;
  if (of_s) x.found[at.c] = found_of_c(*next++);
  if (of_multiply) x.found[at.multiply] = *next;
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
    [](int tensor, Arguments, Arguments) { return tensor != 0; },
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
    [](int tensor, Arguments, Arguments s) { return tensor < 2 || is_smooth(s[0].toInt()); },
    [](Arguments, Arguments s) { return s[0].toInt() == kRelu; },
    [](Backward& x) { return product_gradients(x, {0, 1, 3, 2, true}, 1, 1, x.scalars[0].toInt()); },
    [](Stack& stack) {
      static const OperatorHandle call = operation("wmma::_linear_aux");
      call.callBoxed(stack);
    },
    [](Arguments, Arguments s) { return is_smooth(s[0].toInt()); },
};

constexpr int kMultiplyOfGemm = 7;

inline bool multiplies(Arguments tensors) { return !tensors[kMultiplyOfGemm].isNone(); }
// Of a product's shape, and of its operands' type.
inline bool is_like_product(const Tensor& x, const Tensor& a, const Tensor& b) {
  return x.scalar_type() == a.scalar_type() && x.dim() == a.dim() && x.size(-1) == b.size(-1) &&
         x.sizes().slice(0, x.dim() - 1) == a.sizes().slice(0, a.dim() - 1);
}

// alpha, beta, a_activation, activation, out_dtype
inline const Rule kGemm{
    "gemm",
    "WmmaGemmBackward",
    [](Arguments t, Arguments s) {
      for (size_t i = kMultiplyOfGemm - 3; i < t.size(); ++i) {
        if (i != kMultiplyOfGemm && !t[i].isNone()) return false;
      }
      const Tensor &a = t[0].toTensor(), &b = t[1].toTensor();
      const int64_t activation = s[3].toInt();
      const bool keeps_type = s[4].isNone() || s[4].toScalarType() == a.scalar_type();
      if (!are_matrices(t[0], t[1]) || !is_none_or_row(t[3]) || s[2].toInt() != 0 || !may_be(activation)) return false;
      if (!multiplies(t)) return keeps_type || !is_smooth(activation);
      return keeps_type && !recomputes && is_like_product(t[kMultiplyOfGemm].toTensor(), a, b);
    },
    [](int tensor, Arguments t, Arguments s) { return tensor < 2 || is_smooth(s[3].toInt()) || multiplies(t); },
    [](Arguments t, Arguments s) { return s[3].toInt() == kRelu && !multiplies(t); },
    [](Backward& x) {
      const auto& s = x.scalars;
      const Places at{0, 1, 2, 3, false, kMultiplyOfGemm};
      return product_gradients(x, at, s[0].toDouble(), s[1].toDouble(), s[3].toInt());
    },
    [](Stack& stack) {
      static const OperatorHandle call = operation("wmma::_gemm_aux");
      static const size_t tensors = 12, scalars = 5, added = 4;
      const auto given = stack.end() - (tensors + scalars), options = given + tensors;
      Stack own(given, given + added);
      own.insert(own.end(), {given[kMultiplyOfGemm], options[0], options[1], options[3]});
      call.callBoxed(own);
      torch::jit::drop(stack, tensors + scalars);
      stack.insert(stack.end(), own.begin(), own.end());
    },
    [](Arguments t, Arguments s) { return is_smooth(s[3].toInt()) || multiplies(t); },
};

}  // namespace wmma_ops
