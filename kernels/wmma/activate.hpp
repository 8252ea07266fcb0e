// The activations of activation.hpp on the device. Within 8 units of roundoff of max(1, |x|) of the exact function;
// NaN, infinities and the sign of zero as torch gives them.
#pragma once

#include <wmma/activation.hpp>
#include <wmma/exact_math.hpp>
#include <wmma/types.hpp>

namespace wmma {

// Specialised by the source that uses a registered activation, with static `float apply(float)` and
// `double apply(double)`.
template <int kCode>
struct RegisteredActivation;

namespace detail {

template <class T>
WMMA_DEVICE T gelu(T x) {
  const T tail = exact::upper_tail(arch::abs(x));
  return x * (x > T(0) ? T(1) - tail : tail);
}

// x·sigmoid(2u) is 0.5·x·(1 + tanh(u)) without its cancellation.
WMMA_DEVICE float gelu_tanh(float x) {
  constexpr float kLinear = static_cast<float>(-2 * 0.79788456080286535588 * 1.4426950408889634074);
  constexpr float kCubic = static_cast<float>(-2 * 0.79788456080286535588 * 1.4426950408889634074 * 0.044715);
  const float power = x * arch::fma(x * x, kCubic, kLinear);
  return x * arch::approximate_rcp(1.0f + arch::approximate_exp2(power));
}

WMMA_DEVICE double gelu_tanh(double x) {
  return x * exact::sigmoid(x * arch::fma(x * x, kGeluTanhCubic, kGeluTanhLinear));
}

}  // namespace detail

// T is float or double.
template <int kCode, class T>
WMMA_DEVICE T activate(T x) {
  static_assert(kSame<T, float> || kSame<T, double>, "wmma: activations take float and double");
  static_assert((kCode >= kNone && kCode < kBuiltinActivations) || kCode >= kFirstRegistered,
                "wmma: not an activation's code");
  if constexpr (kCode >= kFirstRegistered) {
    return RegisteredActivation<kCode>::apply(x);
  } else if constexpr (kCode == kRelu) {
    return x < T(0) ? T(0) : x;
  } else if constexpr (kCode == kGelu) {
    return detail::gelu(x);
  } else if constexpr (kCode == kGeluTanh) {
    return detail::gelu_tanh(x);
  } else if constexpr (kCode == kSilu) {
    return x * exact::sigmoid(x);
  } else if constexpr (kCode == kSigmoid) {
    return exact::sigmoid(x);
  } else if constexpr (kCode == kTanh) {
    return exact::tanh(x);
  } else if constexpr (kCode == kLeakyRelu) {
    return x > T(0) ? x : x * T(kLeakySlope);
  } else {
    return x;
  }
}

}  // namespace wmma
