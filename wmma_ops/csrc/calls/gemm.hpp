// Products on whatever device their tensors are.
#pragma once

#include "calls/problem.hpp"

namespace wmma_ops {

Tensor gemm(const Gemm& p,
            const OptTensor& into = std::nullopt);  // into: a matrix of p.out_sizes() and p.out, any strides
Tensor gemm_gemm(const GemmGemm& p);

}  // namespace wmma_ops
