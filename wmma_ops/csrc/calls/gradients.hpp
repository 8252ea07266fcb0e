// What a product's gradients are made of: an activation's, two products and a sum, in one call.
#pragma once

#include "calls/gemm.hpp"

namespace wmma_ops {

// Of D = act(S)·multiply, S = alpha·A·B + bias, by the gradient of D: those of A, of B, of a bias [N] of the type that
// is named, of S and of multiply, as many as are asked for, each laid out as what it belongs to. With an activation or
// multiply `s` is S, or of relu alone D.
std::vector<Tensor> gemm_backward(const Tensor& g, const Tensor& a, const Tensor& b, const OptTensor& s,
                                  const OptTensor& multiply, double alpha, int64_t activation, bool of_a, bool of_b,
                                  bool of_s, bool of_multiply, const std::optional<ScalarType>& bias_dtype);
// Where D was multiplied in turn, D·Bᵀ, by the gradient of that: the one of S, and where there is multiply, of it, in
// the product's own kernel. `b` is Bᵀ's transpose.
std::vector<Tensor> gemm_slopes(const Tensor& g, const Tensor& b, const Tensor& s, const OptTensor& multiply,
                                int64_t activation);
// The same of S = X·Wᵀ + bias.
std::vector<Tensor> linear_backward(const Tensor& g, const Tensor& x, const Tensor& weight, const OptTensor& s,
                                    int64_t activation, bool of_x, bool of_weight, bool of_s,
                                    const std::optional<ScalarType>& bias_dtype);

}  // namespace wmma_ops
