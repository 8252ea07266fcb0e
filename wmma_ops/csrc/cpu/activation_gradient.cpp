#include <cmath>
#include <wmma/activation.hpp>

#include "cpu/cpu.hpp"

namespace wmma_ops::cpu {

namespace {

Tensor times(const Tensor& x, double factor) { return aten::mul(x, aten::scalar(factor)); }

// Φ(x) + x·φ(x), of the normal distribution. aten::gelu_backward takes a string, as aten::gelu does.
Tensor gelu_derivative(const Tensor& x) {
  Tensor tail = times(x, std::sqrt(0.5));
  aten::unary_("aten::erf_", tail);
  Tensor density = times(aten::mul(x, x), -0.5);
  aten::unary_("aten::exp_", density);
  aten::mul_(density, times(x, 0.39894228040143267794));
  return aten::add(aten::add(times(tail, 0.5), aten::scalar(0.5)), density);
}

// Of x·σ(2u), 2u = x·(l + c·x²): σ + x·σ·(1 − σ)·(l + 3·c·x²).
Tensor gelu_tanh_derivative(const Tensor& x) {
  const Tensor square = aten::mul(x, x);
  Tensor gate = aten::mul(x, aten::add(times(square, wmma::kGeluTanhCubic), aten::scalar(wmma::kGeluTanhLinear)));
  aten::unary_("aten::sigmoid_", gate);
  const Tensor slope =
      aten::mul(x, aten::add(times(square, 3 * wmma::kGeluTanhCubic), aten::scalar(wmma::kGeluTanhLinear)));
  return aten::add(gate, aten::call("aten::sigmoid_backward", "", slope, gate));
}

// Further out derivatives are their limits, where infinity times nothing would be NaN.
Tensor near(const Tensor& x) {
  constexpr double kFar = 1e4;
  Tensor found = aten::clone(x);
  aten::clamp_(found, -kFar, kFar);
  return found;
}

// g·act′(x), of one floating type.
Tensor gradient(const Tensor& g, Tensor x, const char* op, int64_t activation) {
  switch (activation) {
    case wmma::kRelu: {
      Tensor found = aten::clone(g);
      aten::masked_fill_(found, aten::call("aten::le", "Tensor", x, aten::scalar(0)), 0);
      return found;
    }
    case wmma::kGelu:
      return aten::mul(g, gelu_derivative(near(x)));
    case wmma::kGeluTanh:
      return aten::mul(g, gelu_tanh_derivative(near(x)));
    case wmma::kSilu:
      return aten::call("aten::silu_backward", "", g, near(x));
    case wmma::kLeakyRelu:
      return aten::call("aten::where", "self", aten::call("aten::gt", "Tensor", x, aten::scalar(0)), g,
                        times(g, wmma::kLeakySlope));
    default:
      x = aten::clone(x);
      activate_(op, x, activation);
      return aten::call(activation == wmma::kTanh ? "aten::tanh_backward" : "aten::sigmoid_backward", "", g, x);
  }
}

}  // namespace

Tensor activation_gradient(const ActivationGradient& p) {
  const ScalarType wide = accumulator(type_of(p.g));
  return gradient(aten::to(p.g, wide), aten::to(p.s, wide), p.op, p.activation);
}

}  // namespace wmma_ops::cpu
