// Attention on whatever device its tensors are.
#pragma once

#include "calls/problem.hpp"

namespace wmma_ops {

std::tuple<Tensor, Tensor> attention(const Attention& p);

void fill_without_keys(Tensor& lse, const Attention& p);  // of rows that see no key

// What numbers of 8 bits stand for, where none are multiplied as they are: in a wider type, times their scales.
Attention widened(const Attention& p, ScalarType type);

// The gradients of q, k and v by kernels of our own, of a call with its results and g_lse, where there is one. All are
// as the op's users have them.
std::tuple<Tensor, Tensor, Tensor> attention_backward(const Attention& p, const Tensor& g_out);

}  // namespace wmma_ops
