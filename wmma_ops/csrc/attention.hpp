// Attention on whatever device its tensors are.
#pragma once

#include "problem.hpp"

namespace wmma_ops {

std::tuple<Tensor, Tensor> attention(const Attention& p);

}  // namespace wmma_ops
