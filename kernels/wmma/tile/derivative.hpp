// The derivatives of the activations of activate.hpp, but for those that users register.
#pragma once

#include <wmma/activate.hpp>

namespace wmma {

namespace detail {

// An argument from where on a derivative is what it is at infinity, so that no term is infinity times 0. Not for what a
// NaN is to come through.
template <class T>
WMMA_DEVICE T within_reach(T x) {
  constexpr T kFar = T(1000);
  return arch::max(arch::min(x, kFar), -kFar);
}

// The derivative of x·sigmoid(y), of which `slope` is that of y.
template <class T>
WMMA_DEVICE T gated_derivative(T x, T y, T slope) {
  const T gate = exact::sigmoid(y);
  return arch::fma(x * slope, gate * (T(1) - gate), gate);
}

// Of x·Φ(x), Φ(x) + x·φ(x): both have exp(−x²/2).
WMMA_DEVICE float gelu_derivative(float x) {
  constexpr float kFactor = 0.39894228040143267794f;
  float power;
  const float tail = exact::upper_tail(arch::abs(x), power);
  return arch::fma(within_reach(x) * kFactor, power, x > 0.0f ? 1.0f - tail : tail);
}
WMMA_DEVICE double gelu_derivative(double x) {
  constexpr double kFactor = 0.39894228040143267794;
  const double tail = exact::upper_tail(arch::abs(x)), half = 0.5 * x * x;
  return within_reach(x) * kFactor * exact::decay(half < 800.0 ? half : 800.0) + (x > 0.0 ? 1.0 - tail : tail);
}

}  // namespace detail

// act′(x), T float or double. A NaN stays one. Far out, where a term is infinity times 0, it is the limit.
template <int kCode, class T>
WMMA_DEVICE T derivative(T x) {
  static_assert(kCode > kRelu && kCode < kBuiltinActivations, "wmma: not an activation with a derivative here");
  if constexpr (kCode == kGelu) {
    return detail::gelu_derivative(x);
  } else if constexpr (kCode == kGeluTanh) {
    const T near = detail::within_reach(x), square = near * near;
    return detail::gated_derivative(near, x * arch::fma(square, T(kGeluTanhCubic), T(kGeluTanhLinear)),
                                    arch::fma(square, T(3 * kGeluTanhCubic), T(kGeluTanhLinear)));
  } else if constexpr (kCode == kSilu) {
    return detail::gated_derivative(detail::within_reach(x), x, T(1));
  } else if constexpr (kCode == kSigmoid) {
    const T y = exact::sigmoid(x);
    return y * (T(1) - y);
  } else if constexpr (kCode == kTanh) {
    const T y = exact::tanh(x);
    return arch::fma(-y, y, T(1));
  } else {
    return x > T(0) ? T(1) : T(kLeakySlope);
  }
}

// g·act′(x). Of relu nothing is left of a g that is infinite or NaN where it gave 0.
template <int kCode, class T>
WMMA_DEVICE T times_derivative(T g, T x) {
  if constexpr (kCode == kRelu) {
    return x <= T(0) ? T(0) : g;
  } else {
    return g * derivative<kCode>(x);
  }
}

}  // namespace wmma
