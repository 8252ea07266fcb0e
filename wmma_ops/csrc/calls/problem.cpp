#include "calls/problem.hpp"

#include <cmath>
#include <cstdio>
#include <limits>
#include <tuple>

namespace wmma_ops {

// Without a stream: where torch brings a C++ library of its own, one crashes as it formats a number.
std::string text_of(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

namespace {

Device check_operands(const char* op, const Names& names, const Tensor& a, const Tensor& b, ScalarType in,
                      ScalarType in_b) {
  Device device = check_first(op, names.a, a);
  check_storage(op, names.b, b, device);
  if (outputs_of(in).empty()) {
    fail_dtype(op, names.a, in,
               "float16, bfloat16, float32, float64, int8 or a float8 type (e4m3fn, e5m2, e4m3fnuz, e5m2fnuz)");
  }
  if (!may_meet(in, in_b)) {
    fail_dtype(op, names.b, in_b, name_of(in), (is_fp8(in) ? " or the other float8 type of its family" : ""), ", as ",
               names.a, " has");
  }
  return device;
}

[[noreturn]] void fail_rank(const char* op, const char* name, const Tensor& x) {
  fail_shape(op, name, x, "2 dimensions or more");
}

[[noreturn]] void fail_inner(const char* op, const char* a_name, const Tensor& a, const char* b_name, const Tensor& b) {
  std::string k = std::to_string(a.sizes()[a.dim() - 1]);
  fail_shape(op, b_name, b, "[..., ", k, ", N], as the last dimension of ", a_name, ", ", a, ", is ", k);
}

ScalarType check_out_dtype(const char* op, const std::optional<ScalarType>& asked, ScalarType operand) {
  if (!asked) return outputs_of(operand)[0];
  check_output(op, "out_dtype", *asked, operand);
  return *asked;
}

void check_addend(const char* op, const char* name, const OptTensor& x, ScalarType in, const Device& device,
                  const Sizes& target) {
  if (!x) return;
  check_beside(op, name, *x, in, device);
  check_matrix(op, name, *x, target);
}

void check_along(const char* op, const char* name, const OptTensor& x, ScalarType in, const Device& device,
                 int64_t length, const Sizes& batch, bool or_one) {
  if (!x) return;
  check_beside(op, name, *x, in, device);
  check_vector(op, name, *x, length, batch, or_one);
}

}  // namespace

void check_factor(const char* op, const char* name, double value, ScalarType operand) {
  const bool is_finite = std::isfinite(value);
  const bool fits =
      is_integer(operand) || operand == ScalarType::Double || std::abs(value) <= std::numeric_limits<float>::max();
  if (is_finite ? fits : !is_integer(operand)) return;
  fail_value(op, name, "is ", text_of(value), "; takes a ", (is_finite ? "number in float32's range" : "finite number"),
             " beside ", operand, " operands");
}

void check_factor_of_c(const char* op, const char* name, double value, const OptTensor& c, ScalarType operand) {
  check_factor(op, name, value, operand);
  if (!c && value != 1) fail_value(op, name, "is ", text_of(value), "; takes 1, its default, without c");
}

void Gemm::check() {
  in = type_of(a);
  in_b = type_of(b);
  device = check_operands(op, names, a, b, in, in_b);
  auto a_sizes = a.sizes(), b_sizes = b.sizes();
  size_t a_dim = a_sizes.size(), b_dim = b_sizes.size();
  if (a_dim < 2) fail_rank(op, names.a, a);
  if (b_dim < 2) fail_rank(op, names.b, b);
  m = a_sizes[a_dim - 2];
  k = a_sizes[a_dim - 1];
  n = b_sizes[b_dim - 1];
  if (b_sizes[b_dim - 2] != k) fail_inner(op, names.a, a, names.b, b);
  if (a_dim > 2) broadcast(op, names.a, batch, a, 2, names.b);
  if (b_dim > 2) broadcast(op, names.b, batch, b, 2, names.a);
  if (gate_bias) check_along(op, names.gate_bias, gate_bias, in, device, n, batch, false);  // not of a second pair's
  if (a2 || b2) check_pair();
  if (gate || gate_bias) check_gate();
  out = check_out_dtype(op, out_dtype, in);
  out_sizes = matrices(batch, m, n);
  check_result(op, out_sizes);

  check_addend(op, names.c, c, in, device, out_sizes);
  check_addend(op, names.multiply, multiply, in, device, out_sizes);
  auto vector = [&](const char* name, const OptTensor& x, int64_t length, bool or_one) {
    check_along(op, name, x, in, device, length, batch, or_one);
  };
  vector(names.bias, bias, n, false);
  vector(names.row_scale, row_scale, m, true);
  vector(names.col_scale, col_scale, n, true);
  vector("a_scale", a_scale, k, true);
  if (a_activation != 0) check_activation(op, "a_activation", a_activation);
  if (activation != 0) check_activation(op, "activation", activation);
  check_factor(op, "alpha", alpha, in);
  check_factor_of_c(op, "beta", beta, c, in);
  if (a2 && !gate) drop_empty_pair();  // else when the gate is a product by itself
}

void Gemm::check_pair() {
  if (!a2 || !b2) {
    fail_type(op, a2 ? "b2" : "a2", "is None; takes a tensor beside ", (a2 ? "a2" : "b2"), ", or neither of the two");
  }
  for (auto [name, x, type, like] : {std::tuple{"a2", &*a2, in, names.a}, {"b2", &*b2, in_b, names.b}}) {
    check_tensor(op, name, *x, device, {type}, like);
    if (x->dim() < 2) fail_rank(op, name, *x);
  }
  auto a_sizes = a2->sizes(), b_sizes = b2->sizes();
  k2 = a_sizes[a2->dim() - 1];
  if (a_sizes[a2->dim() - 2] != m) {
    fail_shape(op, "a2", *a2, "[..., ", m, ", K2], with as many rows as ", names.a, ", ", a, ", has");
  }
  if (b_sizes[b2->dim() - 2] != k2) fail_inner(op, "a2", *a2, "b2", *b2);
  if (b_sizes[b2->dim() - 1] != n) {
    fail_shape(op, "b2", *b2, "[..., ", k2, ", ", n, "], with as many columns as ", names.b, ", ", b, ", has");
  }
  broadcast(op, "a2", batch, *a2, 2, "a and b");
  broadcast(op, "b2", batch, *b2, 2, "a, b and a2");
}

void Gemm::check_gate() const {
  if (!gate) fail_type(op, names.gate, "is None; takes a tensor beside ", names.gate_bias);
  if (multiply) fail_type(op, names.multiply, "is a tensor; takes None beside ", names.gate, ", which is in its place");
  if (has_prologue()) {
    const char* what = a_scale ? "a_scale" : "a_activation";
    fail_value(op, what, "is there; takes none beside ", names.gate);
  }
  check_tensor(op, names.gate, *gate, device, {in_b}, names.b);
  if (sizes_of(*gate) != sizes_of(b)) fail_shape(op, names.gate, *gate, "the shape of ", names.b, ", ", b);
}

void Gemm::drop_empty_pair() {
  if (k2 != 0 && k == 0) {
    a = *a2;
    b = *b2;
    k = k2;
    a_scale = std::nullopt;
    a_activation = 0;
    names.a = "a2";
    names.b = "b2";
    k2 = 0;
  }
  if (k2 == 0) a2 = b2 = std::nullopt;
}

void GemmGemm::check() {
  ScalarType in = type_of(a);
  device = check_operands(op, {"a", "b0"}, a, b0, in, type_of(b0));
  check_operands(op, {"a", "b1"}, a, b1, in, type_of(b1));
  if (is_fp8(in)) {
    fail_dtype(op, "a", in, "float16, bfloat16, float32, float64 or int8, the types that D0 can be rounded to");
  }
  for (auto [name, x] : {std::pair{"a", &a}, {"b0", &b0}, {"b1", &b1}}) {
    if (x->dim() < 2) fail_rank(op, name, *x);
  }
  if (b0.sizes()[b0.dim() - 2] != a.sizes()[a.dim() - 1]) fail_inner(op, "a", a, "b0", b0);
  if (b1.sizes()[b1.dim() - 2] != b0.sizes()[b0.dim() - 1]) fail_inner(op, "b0", b0, "b1", b1);
  out = check_out_dtype(op, out_dtype, in);
  if (activation != 0) check_activation(op, "activation", activation);
  if (gate) {
    check_operands(op, {"a", "gate"}, a, *gate, in, type_of(*gate));
    if (sizes_of(*gate) != sizes_of(b0)) fail_shape(op, "gate", *gate, "the shape of b0, ", b0);
  }
  broadcast(op, "a", batch, a, 2, "b0");
  broadcast(op, "b0", batch, b0, 2, "a");
  Sizes inner = batch;
  broadcast(op, "b1", batch, b1, 2, "a and b0");
  m = a.sizes()[a.dim() - 2];
  k = a.sizes()[a.dim() - 1];
  h = b0.sizes()[b0.dim() - 1];
  n = b1.sizes()[b1.dim() - 1];
  out_sizes = matrices(batch, m, n);
  check_result(op, out_sizes);
  check_addend(op, "c", c, in, device, out_sizes);
  check_along(op, "bias0", bias0, in, device, h, inner, false);
  check_along(op, "bias1", bias1, in, device, n, batch, false);
  check_factor(op, "alpha0", alpha0, in);
  check_factor(op, "alpha1", alpha1, in);
  check_factor_of_c(op, "beta1", beta1, c, in);
}

}  // namespace wmma_ops
