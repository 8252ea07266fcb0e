#include "calls/gradients.hpp"

#include <algorithm>

namespace wmma_ops {

namespace {

// x summed over what broadcasting to its sizes from `sizes` had repeated.
Tensor sum_to(const Tensor& x, const Sizes& sizes, ScalarType type) {
  const Sizes from = sizes_of(x);
  const size_t more = from.size() - sizes.size();
  std::vector<int64_t> repeated;
  for (size_t i = 0; i < from.size(); ++i) {
    if (i < more || (sizes[i - more] == 1 && from[i] != 1)) repeated.push_back(static_cast<int64_t>(i));
  }
  if (repeated.empty()) return aten::to(x, type);
  // From 16 bits to the same 16 bits in one kernel, which adds in float32.
  const ScalarType own = type_of(x);
  Tensor sum = aten::sum(x, repeated, own == type ? std::nullopt : std::optional(accumulator(own)));
  return aten::to(aten::reshape(sum, sizes), type);
}

// alpha·X·Y in the sizes of `like`, over whose batch dimensions it is summed.
Tensor product_like(const Tensor& x, const Tensor& y, double alpha, const Tensor& like) {
  const Sizes sizes = sizes_of(like);
  Gemm p{"gemm", x, y};
  p.alpha = alpha;
  p.check();
  if (p.out_sizes == sizes) return gemm(p);
  p.out = accumulator(p.in);
  return sum_to(gemm(p), sizes, p.in);
}

bool has_batch_of(const Tensor& x, const Tensor& y) {
  const auto a = x.sizes(), b = y.sizes();
  return a.size() == b.size() && std::equal(a.begin(), a.end() - 2, b.begin());
}

// The same, by columns where `like` lies by columns, as a transposed weight does. A batch that `like` has not joins K,
// so that one product adds up over it.
Tensor matrix_gradient(Tensor x, Tensor y, double alpha, const Tensor& like) {
  if (like.dim() == 2 && x.dim() > 2 && has_batch_of(x, y)) {
    const int64_t rank = x.dim(), rows = x.sizes()[rank - 2], columns = y.sizes()[rank - 1];
    Sizes joined = sizes_of(y);
    joined.pop_back();
    const int64_t k = product_of(joined);
    x = aten::transposed(aten::reshape(aten::transposed(x), {k, rows}));
    y = aten::reshape(y, {k, columns});
  }
  const int64_t rank = like.dim();
  if (like.strides()[rank - 2] == 1 && like.sizes()[rank - 1] > 1) {
    return aten::transposed(product_like(aten::transposed(y), aten::transposed(x), alpha, aten::transposed(like)));
  }
  return product_like(x, y, alpha, like);
}

// Checked, and all that is asked for started.
std::vector<Tensor> gradients(Gemm& p, const Tensor& g, bool of_a, bool of_b,
                              const std::optional<ScalarType>& bias_dtype) {
  NoGrad guard;
  p.check();
  using S = ScalarType;
  check_type(p.op, p.names.a, p.in, {S::Half, S::BFloat16, S::Float, S::Double});
  check_beside(p.op, "g", g, p.in, p.device);
  if (sizes_of(g) != p.out_sizes) fail_shape(p.op, "g", g, p.out_sizes, ", the shape of the product");
  if (bias_dtype) check_type_beside(p.op, "bias_dtype", *bias_dtype, p.in);
  std::vector<Tensor> found;
  if (of_a || of_b) {
    const Tensor rounded = aten::to(g, p.in);
    if (of_a) found.push_back(matrix_gradient(rounded, aten::transposed(p.b), p.alpha, p.a));
    if (of_b) found.push_back(matrix_gradient(aten::transposed(p.a), rounded, p.alpha, p.b));
  }
  if (bias_dtype) found.push_back(sum_to(g, {p.n}, *bias_dtype));
  return found;
}

}  // namespace

std::vector<Tensor> gemm_backward(const Tensor& g, const Tensor& a, const Tensor& b, double alpha, bool of_a, bool of_b,
                                  const std::optional<ScalarType>& bias_dtype) {
  require("_gemm_backward", "g", g, "a", a, "b", b);
  Gemm p{"_gemm_backward", a, b};
  p.alpha = alpha;
  return gradients(p, g, of_a, of_b, bias_dtype);
}

std::vector<Tensor> linear_backward(const Tensor& g, const Tensor& x, const Tensor& weight, bool of_x, bool of_weight,
                                    const std::optional<ScalarType>& bias_dtype) {
  require("_linear_backward", "g", g, "x", x, "weight", weight);
  check_rank("_linear_backward", "weight", weight, 2);
  check_first("_linear_backward", "weight", weight);
  Gemm p{"_linear_backward", x, aten::transposed(weight)};
  p.names.a = "x";
  p.names.b = "weight";
  std::vector<Tensor> found = gradients(p, g, of_x, of_weight, bias_dtype);
  if (of_weight) found[of_x ? 1 : 0] = aten::transposed(found[of_x ? 1 : 0]);
  return found;
}

}  // namespace wmma_ops
