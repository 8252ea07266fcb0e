// What a product's gradients are made of: two products and a sum, in one call.
#pragma once

#include "calls/gemm.hpp"

namespace wmma_ops {

// Of D = alpha·A·B + bias, by the gradient of D: those of A, of B and of a bias [N], of the type that is named, as many
// as are asked for, each laid out as what it belongs to.
std::vector<Tensor> gemm_backward(const Tensor& g, const Tensor& a, const Tensor& b, double alpha, bool of_a, bool of_b,
                                  const std::optional<ScalarType>& bias_dtype);
// The same of D = X·Wᵀ + bias.
std::vector<Tensor> linear_backward(const Tensor& g, const Tensor& x, const Tensor& weight, bool of_x, bool of_weight,
                                    const std::optional<ScalarType>& bias_dtype);

}  // namespace wmma_ops
