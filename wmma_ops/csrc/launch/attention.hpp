// Runs attention as kernels of our own, on a GPU or under emulation: as calls/attention.hpp has it.
#pragma once

#include "launch/launch.hpp"

namespace wmma_ops::launch {

std::tuple<Tensor, Tensor> attention(const Attention& p, const Way& way);
std::tuple<Tensor, Tensor, Tensor> attention_backward(const Attention& p, const Way& way, const Tensor& g_out);

}  // namespace wmma_ops::launch
