// The activation codes, shared by the host library and every kernel. Codes are part of saved graphs: append, never
// renumber. Codes from kFirstRegistered on belong to activations that users register; each is a hash of the name.
#pragma once

namespace wmma {

enum Activation : int {
  kNone = 0,
  kRelu = 1,
  kGelu = 2,      // 0.5·x·(1 + erf(x/√2))
  kGeluTanh = 3,  // 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))
  kSilu = 4,      // x / (1 + exp(−x))
  kSigmoid = 5,
  kTanh = 6,
  kLeakyRelu = 7,  // slope kLeakySlope below zero
  kBuiltinActivations = 8,
  kFirstRegistered = 256,
};

constexpr double kLeakySlope = 0.01;
// gelu_tanh is x·sigmoid(u) with u = x·(kGeluTanhLinear + kGeluTanhCubic·x²).
constexpr double kGeluTanhLinear = 2 * 0.79788456080286535588, kGeluTanhCubic = kGeluTanhLinear * 0.044715;

}  // namespace wmma
