// Runs products as kernels of our own, on a GPU or under emulation.
#pragma once

#include "mode.hpp"

namespace wmma_ops::launch {

// As cpu::gemm, for tensors of any device.
Tensor gemm(const Gemm& p, const Way& way, const OptTensor& into = std::nullopt);

}  // namespace wmma_ops::launch
