// The CPU kernels: each takes a checked problem and composes aten calls. They are the reference and the CPU product at
// once.
#pragma once

#include "calls/activation_gradient.hpp"
#include "calls/kv_append.hpp"
#include "calls/problem.hpp"

namespace wmma_ops::cpu {

Tensor gemm(const Gemm& p,
            const OptTensor& into = std::nullopt);  // into: a matrix of p.out_sizes() and p.out, any strides
std::tuple<Tensor, Tensor> attention(const Attention& p);
// All rows together, of no packed sequences, as the two above have them but where rows are not to know each other.
Tensor gemm_together(const Gemm& p, const OptTensor& into);
std::tuple<Tensor, Tensor> attention_together(const Attention& p);
std::tuple<Tensor, Tensor> attention_of_sequences(const Attention& p);  // whose numbers it checks

void kv_append(const KvAppend& p);  // whose numbers it checks
// g_s in the accumulator's type, and g_u.
std::pair<Tensor, OptTensor> activation_gradient(const ActivationGradient& p);

// A sequence's own of a descale: [heads, 1] or [1, 1].
Tensor descale_of_heads(const Tensor& x, int64_t sequence);

// y = act(x) of float32 or float64, contiguous, in one pass: y may be x. A built-in activation.
void activate(Tensor& y, const Tensor& x, int64_t activation);
// x = act(x), of registered ones too.
void activate_(const char* op, Tensor& x, int64_t code);

// A float32 or float64 result in its output type, rounded once to nearest even; integers saturate and NaN becomes 0.
Tensor cast(Tensor x, ScalarType type);

}  // namespace wmma_ops::cpu
