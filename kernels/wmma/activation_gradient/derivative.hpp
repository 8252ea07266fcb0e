// The derivatives of the activations of activate.hpp, but for those that users register.
#pragma once

#include <wmma/activate.hpp>

namespace wmma {

namespace detail {

// x·density of the normal distribution.
template <class T>
WMMA_DEVICE T times_density(T x) {
  constexpr T kFactor = T(0.39894228040143267794);
  if constexpr (kSame<T, double>) {
    const double half = 0.5 * x * x;
    return x * kFactor * exact::decay(half < 800.0 ? half : 800.0);
  } else {
    return x * kFactor * exact::exp(-0.5f * x * x);
  }
}

// The derivative of x·sigmoid(y), of which `slope` is that of y, where neither is infinite.
template <class T>
WMMA_DEVICE T gated_derivative(T x, T y, T slope) {
  const T gate = exact::sigmoid(y);
  return arch::fma(x * slope, gate * (T(1) - gate), gate);
}

}  // namespace detail

// act′(x), T float or double. A NaN stays one. Far out, where a term is infinity times 0, it is the limit.
template <int kCode, class T>
WMMA_DEVICE T derivative(T x) {
  static_assert(kCode > kRelu && kCode < kBuiltinActivations, "wmma: not an activation with a derivative here");
  constexpr bool kIsGate = kCode == kGelu || kCode == kGeluTanh || kCode == kSilu;
  constexpr T kFar = T(1000);
  if constexpr (kIsGate) {
    if (arch::abs(x) > kFar) return x > T(0) ? T(1) : T(0);
  }
  if constexpr (kCode == kGelu) {
    const T tail = exact::upper_tail(arch::abs(x));
    return (x > T(0) ? T(1) - tail : tail) + detail::times_density(x);
  } else if constexpr (kCode == kGeluTanh) {
    const T square = x * x;
    return detail::gated_derivative(x, x * arch::fma(square, T(kGeluTanhCubic), T(kGeluTanhLinear)),
                                    arch::fma(square, T(3 * kGeluTanhCubic), T(kGeluTanhLinear)));
  } else if constexpr (kCode == kSilu) {
    return detail::gated_derivative(x, x, T(1));
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
