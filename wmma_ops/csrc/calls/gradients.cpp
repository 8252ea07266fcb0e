#include "calls/gradients.hpp"

#include <algorithm>
#include <wmma/activation.hpp>

#include "cpu/cpu.hpp"
#include "launch/launch.hpp"

namespace wmma_ops {

namespace {

// Which gradients.
struct Asked {
  bool of_a, of_b, of_s;
  std::optional<ScalarType> bias_dtype;
  bool of_multiply = false;
};

constexpr int64_t kWorthAPass = 128;

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

bool lies_by_columns(const Tensor& x) {
  const int64_t rank = x.dim();
  return x.strides()[rank - 2] == 1 && x.sizes()[rank - 1] > 1;
}

// What a product's own kernel may give beside a gradient: the sums of y's columns, in this type.
struct Beside {
  ScalarType type;
  OptTensor sums = {};
};

// The same, by columns where `like` lies by columns, as a transposed weight does. A batch that `like` has not joins K,
// so that one product adds up over it.
Tensor matrix_gradient(Tensor x, Tensor y, double alpha, const Tensor& like, Beside* beside = nullptr) {
  if (like.dim() == 2 && x.dim() > 2 && has_batch_of(x, y)) {
    const int64_t rank = x.dim(), rows = x.sizes()[rank - 2], columns = y.sizes()[rank - 1];
    Sizes joined = sizes_of(y);
    joined.pop_back();
    const int64_t k = product_of(joined);
    x = aten::transposed(aten::reshape(aten::transposed(x), {k, rows}));
    y = aten::reshape(y, {k, columns});
  }
  if (!lies_by_columns(like)) return product_like(x, y, alpha, like);
  x = aten::transposed(x);
  y = aten::transposed(y);
  if (!beside) return aten::transposed(product_like(y, x, alpha, aten::transposed(like)));
  Gemm p{"gemm", y, x};
  p.alpha = alpha;
  p.check();
  const auto [found, sums] = launch::gemm_and_row_sums(p, beside->type, way_of(p.device));
  beside->sums = sums;
  return aten::transposed(found);
}

// Whether the kernel that multiplies B's gradient is asked for the sums of g's columns. A pass that g goes through
// anyhow has them for nothing.
bool sums_beside_product(const Gemm& p, const Tensor& g) {
  if (is_plain_cpu(p.device) || way_of(p.device).on_cpu || type_of(g) != p.in || p.b.dim() != 2) return false;
  return launch::has_aligned_width(g) && lies_by_columns(p.b) && (p.a.dim() == 2 || has_batch_of(p.a, g)) &&
         product_of(sizes_of(p.b)) > 0;
}

// Of g·act′(s), what is asked for, started; checked before.
ActivationGradient::Result activated(const ActivationGradient& p) {
  if (!is_plain_cpu(p.device)) {
    const Way way = way_of(p.device);
    if (!way.on_cpu) return launch::activation_gradient(p, way);
  }
  const auto [wide, g_u] = cpu::activation_gradient(p);
  ActivationGradient::Result found{aten::to(wide, type_of(p.g)), std::nullopt, g_u};
  if (p.sums) found.sums = sum_to(wide, {p.g.sizes().back()}, *p.sums);
  return found;
}

void check_activation(const char* op, int64_t activation) {
  if (activation < 0 || activation >= wmma::kBuiltinActivations) {
    fail_value(op, "activation", "is code ", activation, "; takes 0 to ", wmma::kBuiltinActivations - 1);
  }
}
void check_like_product(const Gemm& p, const char* name, const Tensor& x) {
  check_tensor(p.op, name, x, p.device, {p.in}, p.names.a);
  if (sizes_of(x) != p.out_sizes) fail_shape(p.op, name, x, p.out_sizes, ", the shape of the product");
}

// Checked, and all that is asked for started.
std::vector<Tensor> gradients(Gemm& p, const Tensor& g, const OptTensor& s, const OptTensor& multiply,
                              int64_t activation, const Asked& asked) {
  NoGrad guard;
  p.check();
  check_floating(p.op, p.names.a, p.in);
  check_beside(p.op, "g", g, p.in, p.device);
  if (sizes_of(g) != p.out_sizes) fail_shape(p.op, "g", g, p.out_sizes, ", the shape of the product");
  if (asked.bias_dtype) check_type_beside(p.op, "bias_dtype", *asked.bias_dtype, p.in);
  check_activation(p.op, activation);
  if (s.has_value() != (activation != 0 || multiply)) {
    fail_type(p.op, "s",
              s ? "is there; takes None without an activation" : "is None; takes a tensor beside an activation");
  }
  if (asked.of_multiply && !multiply)
    fail_type(p.op, "multiply", "is None; takes the tensor that of_multiply is about");
  if (s) check_like_product(p, "s", *s);
  if (multiply) check_like_product(p, "multiply", *multiply);
  if (s) check_like_product(p, "g", g);
  std::vector<Tensor> found;
  ActivationGradient::Result of_s{g, std::nullopt, std::nullopt};
  const bool multiplies = asked.of_a || asked.of_b;
  // Both products read it. Where they sum up little, or it is a result too, they make do with what is there.
  const bool aligns = multiplies && !asked.of_s && type_of(g) == p.in && p.k >= kWorthAPass;
  std::optional<Beside> beside;
  if (asked.bias_dtype && asked.of_b && !s && sums_beside_product(p, g)) beside = {*asked.bias_dtype};
  const std::optional<ScalarType> sums = beside ? std::nullopt : asked.bias_dtype;
  if (activation != 0 || multiply || sums || aligns)
    of_s = activated({p.op, p.device, g, s ? *s : g, activation, sums, aligns, multiply});
  if (multiplies) {
    const Tensor rounded = aten::to(of_s.g_s, p.in);
    if (asked.of_a) found.push_back(matrix_gradient(rounded, aten::transposed(p.b), p.alpha, p.a));
    Beside* of_b = beside ? &*beside : nullptr;
    if (asked.of_b) found.push_back(matrix_gradient(aten::transposed(p.a), rounded, p.alpha, p.b, of_b));
  }
  if (beside) found.push_back(*beside->sums);
  if (of_s.sums) found.push_back(*of_s.sums);
  if (asked.of_s) found.push_back(of_s.g_s);
  if (asked.of_multiply) found.push_back(*of_s.g_u);
  return found;
}

}  // namespace

std::vector<Tensor> gemm_backward(const Tensor& g, const Tensor& a, const Tensor& b, const OptTensor& s,
                                  const OptTensor& multiply, double alpha, int64_t activation, bool of_a, bool of_b,
                                  bool of_s, bool of_multiply, const std::optional<ScalarType>& bias_dtype) {
  require("_gemm_backward", "g", g, "a", a, "b", b);
  Gemm p{"_gemm_backward", a, b};
  p.alpha = alpha;
  return gradients(p, g, s, multiply, activation, {of_a, of_b, of_s, bias_dtype, of_multiply});
}

std::vector<Tensor> gemm_slopes(const Tensor& g, const Tensor& b, const Tensor& s, const OptTensor& multiply,
                                int64_t activation) {
  NoGrad guard;
  require("_gemm_slopes", "g", g, "b", b, "s", s);
  Gemm p{"_gemm_slopes", g, b};
  p.names.a = "g";
  p.check();
  check_floating(p.op, p.names.a, p.in);
  check_activation(p.op, activation);
  if (activation == 0 && !multiply) fail_type(p.op, "multiply", "is None; takes a tensor without an activation");
  check_like_product(p, "s", s);
  if (multiply) check_like_product(p, "multiply", *multiply);
  ActivationGradient::Result found;
  if (is_plain_cpu(p.device) || way_of(p.device).on_cpu) {
    found = activated({p.op, p.device, gemm(p), s, activation, std::nullopt, false, multiply});
  } else {
    p.c = s;
    p.multiply = multiply;
    p.activation = activation;
    p.slopes = true;
    if (multiply) p.aux = launch::made(p.out_sizes, p.out, p.device);
    found = {gemm(p), std::nullopt, p.aux};
  }
  if (!multiply) return {found.g_s};
  return {found.g_s, *found.g_u};
}

std::vector<Tensor> linear_backward(const Tensor& g, const Tensor& x, const Tensor& weight, const OptTensor& s,
                                    int64_t activation, bool of_x, bool of_weight, bool of_s,
                                    const std::optional<ScalarType>& bias_dtype) {
  require("_linear_backward", "g", g, "x", x, "weight", weight);
  check_rank("_linear_backward", "weight", weight, 2);
  check_first("_linear_backward", "weight", weight);
  Gemm p{"_linear_backward", x, aten::transposed(weight)};
  p.names.a = "x";
  p.names.b = "weight";
  std::vector<Tensor> found = gradients(p, g, s, {}, activation, {of_x, of_weight, of_s, bias_dtype});
  if (of_weight) found[of_x ? 1 : 0] = aten::transposed(found[of_x ? 1 : 0]);
  return found;
}

}  // namespace wmma_ops
