// Attention on whatever device its tensors are.
#pragma once

#include "calls/problem.hpp"

namespace wmma_ops {

std::tuple<Tensor, Tensor> attention(const Attention& p);

void fill_without_keys(Tensor& lse, const Attention& p);  // of rows that see no key

// What numbers of 8 bits stand for, where none are multiplied as they are: in a wider type, times their scales.
Attention widened(const Attention& p, ScalarType type);

// Whether a row's heads lie together, as where [batch, rows, heads, size] was transposed.
bool has_heads_together(const Tensor& x);
// Memory of a result, laid out so or contiguous.
Tensor made_by_heads(const Sizes& sizes, bool heads_together, ScalarType type, const Device& device);

// The gradients of q, k and v by kernels of our own, of a call with its results and g_lse, where there is one. All are
// as the op's users have them.
std::tuple<Tensor, Tensor, Tensor> attention_backward(const Attention& p, const Tensor& g_out);

}  // namespace wmma_ops
