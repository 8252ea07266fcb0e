#include "problem.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <shared_mutex>

#include "../../kernels/wmma/activation.hpp"

namespace wmma_ops {

static const int32_t kStrided = aoti_torch_layout_strided();
const int32_t Device::kCpu = aoti_torch_device_type_cpu();
const int32_t Device::kCuda = aoti_torch_device_type_cuda();

std::string shape(const Sizes& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

std::string shape(const Tensor& x) { return shape(sizes_of(x)); }

bool is_strided(const Tensor& x) {
  int32_t layout;
  aten::ok(aoti_torch_get_layout(x.get(), &layout), "layout");
  return layout == kStrided;
}

namespace {

[[noreturn]] void fail(const char* op, const char* name, const std::string& text, const char* kind) {
  throw std::runtime_error(std::string("wmma.") + op + ": " + name + " " + text + " [" + kind + "]");
}

bool contains(const std::vector<ScalarType>& types, ScalarType type) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

std::string describe(const Device& device) {
  if (device.is_cpu()) return "the cpu";
  if (device.type == Device::kCuda) return "cuda:" + std::to_string(device.index);
  if (device.type == aoti_torch_device_type_meta()) return "the meta device";
  return "a device of type " + std::to_string(device.type);
}

// Where a strided tensor is.
Device device_of(const char* op, const char* name, const Tensor& x) {
  if (!is_strided(x)) fail_type(op, name, "is a sparse tensor; takes strided tensors");
  Device device{0, 0};
  aten::ok(aoti_torch_get_device_type(x.get(), &device.type), "device_type");
  if (!device.is_cpu()) device.index = x.get_device_index();
  return device;
}

// The first operand's device, on which all others must be.
Device check_first(const char* op, const char* name, const Tensor& x) {
  Device device = device_of(op, name, x);
  if (!device.is_cpu() && device.type != Device::kCuda) {
    fail_type(op, name, "is on " + describe(device) + "; takes tensors on the cpu or on one GPU, all of them");
  }
  return device;
}

void check_storage(const char* op, const char* name, const Tensor& x, const Device& first) {
  Device device = device_of(op, name, x);
  if (device.type == first.type && device.index == first.index) return;
  bool scalar = device.is_cpu() && x.dim() == 0;
  fail_type(op, name,
            std::string(scalar ? "is a scalar on " : "is on ") + describe(device) + "; takes tensors on " +
                describe(first) + ", all of them" + (scalar ? " (move it there with .to)" : ""));
}

void check_beside(const char* op, const char* name, const Tensor& x, ScalarType operand, const Device& device) {
  check_storage(op, name, x, device);
  if (!contains(beside(operand), type_of(x))) {
    fail_type(op, name,
              std::string("is ") + name_of(type_of(x)) + "; takes " + list(beside(operand)) + " beside " +
                  name_of(operand) + " operands");
  }
}

void check_activation(const char* op, const char* name, int64_t code) {
  if (!is_activation(code)) {
    fail_value(op, name,
               "is code " + std::to_string(code) + "; takes 0 to " + std::to_string(wmma::kBuiltinActivations - 1) +
                   " or the code of a registered activation");
  }
}

// Broadcasts `extra` (aligned at the right) into `batch`.
void broadcast(const char* op, const char* name, Sizes& batch, const Tensor& x, int64_t core, const char* other) {
  auto sizes = x.sizes();
  size_t rank = sizes.size() - core;
  if (rank > batch.size()) batch.insert(batch.begin(), rank - batch.size(), 1);
  for (size_t i = 0; i < rank; ++i) {
    int64_t size = sizes[i];
    int64_t& target = batch[batch.size() - rank + i];
    if (size == target || size == 1) continue;
    if (target != 1) {
      fail_value(op, name,
                 "has shape " + shape(x) + "; takes batch dimensions that broadcast with those of " + other + ", " +
                     shape(batch));
    }
    target = size;
  }
}

// True where `sizes` broadcasts to `target` without enlarging it.
bool broadcasts_to(const int64_t* sizes, size_t rank, const Sizes& target) {
  if (rank > target.size()) return false;
  for (size_t i = 0; i < rank; ++i) {
    int64_t size = sizes[i];
    if (size != 1 && size != target[target.size() - rank + i]) return false;
  }
  return true;
}

void check_matrix(const char* op, const char* name, const Tensor& x, const Sizes& target) {
  auto sizes = x.sizes();
  if (!broadcasts_to(sizes.data(), sizes.size(), target)) {
    fail_value(op, name, "has shape " + shape(x) + "; takes a shape that broadcasts to " + shape(target));
  }
}

// A vector along one dimension of the product, with optional batch dimensions before it; a scale may be one element.
void check_vector(const char* op, const char* name, const Tensor& x, int64_t length, const Sizes& batch, bool or_one) {
  auto sizes = x.sizes();
  size_t rank = sizes.size();
  bool fits = rank == 0 ? or_one
                        : (sizes[rank - 1] == length || (or_one && sizes[rank - 1] == 1)) &&
                              broadcasts_to(sizes.data(), rank - 1, batch);
  if (!fits) {
    fail_value(op, name,
               "has shape " + shape(x) + "; takes [" + std::to_string(length) + "]" +
                   (or_one ? " or one element" : "") + ", after batch dimensions that broadcast to " + shape(batch));
  }
}

Device check_operands(const char* op, const Names& names, const Tensor& a, const Tensor& b, ScalarType in,
                      ScalarType in_b) {
  Device device = check_first(op, names.a, a);
  check_storage(op, names.b, b, device);
  if (outputs_of(in).empty()) {
    fail_type(
        op, names.a,
        std::string("is ") + name_of(in) +
            "; takes float16, bfloat16, float32, float64, int8 or a float8 type (e4m3fn, e5m2, e4m3fnuz, e5m2fnuz)");
  }
  if (!may_meet(in, in_b)) {
    fail_type(op, names.b,
              std::string("is ") + name_of(in_b) + "; takes " + name_of(in) +
                  (is_fp8(in) ? " or the other float8 type of its family" : "") + ", as " + names.a + " has");
  }
  return device;
}

[[noreturn]] void fail_rank(const char* op, const char* name, const Tensor& x) {
  fail_value(op, name, "has shape " + shape(x) + "; takes 2 dimensions or more");
}

[[noreturn]] void fail_inner(const char* op, const char* a_name, const Tensor& a, const char* b_name, const Tensor& b) {
  std::string k = std::to_string(a.sizes()[a.dim() - 1]);
  fail_value(op, b_name,
             "has shape " + shape(b) + "; takes [..., " + k + ", N], as the last dimension of " + a_name + ", " +
                 shape(a) + ", is " + k);
}

// An integer result of a NaN or an infinity has no meaning, so integer operands take finite factors alone.
void check_factor(const char* op, const char* name, double value, ScalarType operand) {
  if (is_integer(operand) && !std::isfinite(value)) {
    fail_value(op, name, "is " + std::to_string(value) + "; takes a finite number beside int8 operands");
  }
}

ScalarType check_out_dtype(const char* op, const std::optional<ScalarType>& asked, ScalarType operand) {
  if (!asked) return outputs_of(operand)[0];
  check_output(op, "out_dtype", *asked, operand);
  return *asked;
}

}  // namespace

void fail_type(const char* op, const char* name, const std::string& text) { fail(op, name, text, "TypeError"); }
void fail_value(const char* op, const char* name, const std::string& text) { fail(op, name, text, "ValueError"); }

void check_rank(const char* op, const char* name, const Tensor& x, int64_t rank) {
  if (x.dim() != rank) {
    fail_value(op, name, "has shape " + shape(x) + "; takes " + std::to_string(rank) + " dimensions");
  }
}

void check_output(const char* op, const char* name, ScalarType got, ScalarType operand) {
  if (!contains(outputs_of(operand), got)) {
    fail_type(op, name,
              std::string("is ") + name_of(got) + "; takes " + list(outputs_of(operand)) + " for " + name_of(operand) +
                  " operands");
  }
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
  out = check_out_dtype(op, out_dtype, in);
  out_sizes.reserve(batch.size() + 2);
  out_sizes = batch;
  out_sizes.push_back(m);
  out_sizes.push_back(n);

  if (c) {
    check_beside(op, names.c, *c, in, device);
    check_matrix(op, names.c, *c, out_sizes);
  }
  if (multiply) {
    check_beside(op, names.multiply, *multiply, in, device);
    check_matrix(op, names.multiply, *multiply, out_sizes);
  }
  auto vector = [&](const char* name, const OptTensor& x, int64_t length, bool or_one) {
    if (!x) return;
    check_beside(op, name, *x, in, device);
    check_vector(op, name, *x, length, batch, or_one);
  };
  vector(names.bias, bias, n, false);
  vector(names.row_scale, row_scale, m, true);
  vector(names.col_scale, col_scale, n, true);
  vector("a_scale", a_scale, k, true);
  if (a_activation != 0) check_activation(op, "a_activation", a_activation);
  if (activation != 0) check_activation(op, "activation", activation);
  check_factor(op, "alpha", alpha, in);
  check_factor(op, "beta", beta, in);
}

void GemmGemm::check() {
  ScalarType in = type_of(a);
  device = check_operands(op, {"a", "b0"}, a, b0, in, type_of(b0));
  check_operands(op, {"a", "b1"}, a, b1, in, type_of(b1));
  if (is_fp8(in)) {
    fail_type(op, "a",
              std::string("is ") + name_of(in) +
                  "; takes float16, bfloat16, float32, float64 or int8, the types that D0 can be rounded to");
  }
  if (a.dim() < 2) fail_rank(op, "a", a);
  if (b0.dim() < 2) fail_rank(op, "b0", b0);
  if (b1.dim() < 2) fail_rank(op, "b1", b1);
  if (b0.sizes()[b0.dim() - 2] != a.sizes()[a.dim() - 1]) fail_inner(op, "a", a, "b0", b0);
  if (b1.sizes()[b1.dim() - 2] != b0.sizes()[b0.dim() - 1]) fail_inner(op, "b0", b0, "b1", b1);
  out = check_out_dtype(op, out_dtype, in);
  if (activation != 0) check_activation(op, "activation", activation);
  if (gate) {
    check_operands(op, {"a", "gate"}, a, *gate, in, type_of(*gate));
    if (sizes_of(*gate) != sizes_of(b0)) {
      fail_value(op, "gate", "has shape " + shape(*gate) + "; takes the shape of b0, " + shape(b0));
    }
  }
  broadcast(op, "a", batch, a, 2, "b0");
  broadcast(op, "b0", batch, b0, 2, "a");
  Sizes inner = batch;
  broadcast(op, "b1", batch, b1, 2, "a and b0");
  m = a.sizes()[a.dim() - 2];
  k = a.sizes()[a.dim() - 1];
  h = b0.sizes()[b0.dim() - 1];
  n = b1.sizes()[b1.dim() - 1];
  out_sizes = batch;
  out_sizes.push_back(m);
  out_sizes.push_back(n);
  if (c) {
    check_beside(op, "c", *c, in, device);
    check_matrix(op, "c", *c, out_sizes);
  }
  if (bias0) {
    check_beside(op, "bias0", *bias0, in, device);
    check_vector(op, "bias0", *bias0, h, inner, false);
  }
  if (bias1) {
    check_beside(op, "bias1", *bias1, in, device);
    check_vector(op, "bias1", *bias1, n, batch, false);
  }
  check_factor(op, "alpha0", alpha0, in);
  check_factor(op, "alpha1", alpha1, in);
  check_factor(op, "beta1", beta1, in);
}

void Attention::check() {
  type = type_of(q);
  device = check_first(op, "q", q);
  for (auto [name, x] : {std::pair{"k", &k}, {"v", &v}}) check_storage(op, name, *x, device);
  if (type != ScalarType::Half && type != ScalarType::BFloat16 && type != ScalarType::Float &&
      type != ScalarType::Double) {
    fail_type(op, "q", std::string("is ") + name_of(type) + "; takes float16, bfloat16, float32 or float64");
  }
  for (auto [name, x] : {std::pair{"k", &k}, {"v", &v}}) {
    if (type_of(*x) != type) {
      fail_type(op, name, std::string("is ") + name_of(type_of(*x)) + "; takes " + name_of(type) + ", as q has");
    }
    if (x->dim() != q.dim()) {
      fail_value(op, name, "has shape " + shape(*x) + "; takes as many dimensions as q, " + shape(q));
    }
  }
  int64_t rank = q.dim();
  if (rank < 2) fail_value(op, "q", "has shape " + shape(q) + "; takes [..., heads, length, head size]");
  auto qs = q.sizes(), ks = k.sizes(), vs = v.sizes();
  sq = qs[rank - 2];
  e = qs[rank - 1];
  skv = ks[rank - 2];
  ev = vs[rank - 1];
  if (e == 0) fail_value(op, "q", "has shape " + shape(q) + "; takes a head size of 1 or more");
  if (ks[rank - 1] != e) {
    fail_value(op, "k", "has shape " + shape(k) + "; takes the head size of q, " + std::to_string(e));
  }
  if (vs[rank - 2] != skv) {
    fail_value(op, "v", "has shape " + shape(v) + "; takes the length of k, " + std::to_string(skv));
  }
  for (int64_t i = 0; i < rank - 2; ++i) {
    bool is_heads = i == rank - 3;
    if (vs[i] != ks[i]) {
      fail_value(op, "v", "has shape " + shape(v) + "; takes the batch and head dimensions of k, " + shape(k));
    }
    if (is_heads && enable_gqa) {
      if (ks[i] == 0 ? qs[i] != 0 : qs[i] % ks[i] != 0) {
        fail_value(
            op, "k",
            "has shape " + shape(k) + "; takes a number of heads that divides that of q, " + std::to_string(qs[i]));
      }
    } else if (ks[i] != qs[i]) {
      fail_value(op, "k",
                 "has shape " + shape(k) + "; takes the batch and head dimensions of q, " + shape(q) +
                     (is_heads ? " (or enable_gqa=True)" : ""));
    }
    if (is_heads) {
      heads = qs[i];
      kv_heads = ks[i];
    } else {
      batch *= qs[i];
    }
  }
  if (causal < kNotCausal || causal > kBottomRight) {
    fail_value(op, "is_causal", "is " + std::to_string(causal) + "; takes 0 (no), 1 (top-left) or 2 (bottom-right)");
  }
  if (mask) {
    check_storage(op, "mask", *mask, device);
    if (causal != kNotCausal) fail_value(op, "is_causal", "is set together with mask; takes one of the two");
    ScalarType mask_type = type_of(*mask);
    if (mask_type != ScalarType::Bool && mask_type != type && mask_type != ScalarType::Float) {
      fail_type(op, "mask",
                std::string("is ") + name_of(mask_type) + "; takes bool, float32 or " + name_of(type) + ", as q has");
    }
    Sizes target(qs.data(), qs.data() + rank - 1);
    target.push_back(skv);
    check_matrix(op, "mask", *mask, target);
  }
  if (scale_argument && !std::isfinite(*scale_argument)) {
    fail_value(op, "scale", "is " + std::to_string(*scale_argument) + "; takes a finite number");
  }
  scale = scale_argument ? *scale_argument : 1.0 / std::sqrt(static_cast<double>(e));
}

namespace {

// The elements that a tensor's strides reach, relative to its data pointer.
std::pair<int64_t, int64_t> extent(const Tensor& x) {
  auto sizes = x.sizes(), strides = x.strides();
  int64_t low = 0, high = 0;
  for (size_t i = 0; i < sizes.size(); ++i) (strides[i] < 0 ? low : high) += (sizes[i] - 1) * strides[i];
  return {low, high};
}

// Two matrices of one row stride whose columns never meet, as two column slices of one buffer.
bool columns_apart(const Tensor& x, const Tensor& y, int64_t distance) {
  auto xs = x.sizes(), ys = y.sizes(), xt = x.strides(), yt = y.strides();
  if (xs.size() != 2 || ys.size() != 2 || x.element_size() != y.element_size()) return false;
  for (int row : {0, 1}) {
    int col = 1 - row;
    int64_t pitch = xt[row];
    if (pitch <= 0 || yt[row] != pitch || xt[col] != 1 || yt[col] != 1) continue;
    int64_t begin = ((distance % pitch) + pitch) % pitch;  // y's first column, where x's is 0
    if (xs[col] <= begin && begin + ys[col] <= pitch) return true;
  }
  return false;
}

}  // namespace

void check_inplace(const char* op, const char* name, const Tensor& target, const char* other_name,
                   const Tensor& other) {
  if (target.numel() == 0) return;
  auto sizes = target.sizes(), strides = target.strides();
  std::vector<std::pair<int64_t, int64_t>> dims;  // (stride, size), smallest stride first
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1) dims.emplace_back(strides[i], sizes[i]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (auto [stride, size] : dims) {
    if (stride <= reach) {
      fail_value(op, name,
                 "has elements that share memory (an expanded tensor?); takes one that does not overlap itself");
    }
    reach += (size - 1) * stride;
  }
  if (other.numel() == 0) return;
  auto [low, high] = extent(target);
  auto [other_low, other_high] = extent(other);
  int64_t size = static_cast<int64_t>(target.element_size()), other_size = static_cast<int64_t>(other.element_size());
  auto* base = static_cast<const char*>(target.const_data_ptr());
  auto* other_base = static_cast<const char*>(other.const_data_ptr());
  bool apart = base + (high + 1) * size <= other_base + other_low * other_size ||
               other_base + (other_high + 1) * other_size <= base + low * size;
  bool aligned = (other_base - base) % size == 0;
  if (!apart && !(aligned && columns_apart(target, other, (other_base - base) / size))) {
    fail_value(op, name,
               std::string("shares memory with ") + other_name + "; takes memory of its own (clone one of the two)");
  }
}

namespace {
std::shared_mutex registered_mutex;
std::set<int64_t>& registered() {
  static std::set<int64_t> codes;
  return codes;
}
}  // namespace

void register_activation(int64_t code) {
  if (code < wmma::kFirstRegistered) {
    fail_value("register_activation", "code", "is " + std::to_string(code) + "; takes one of 256 or more");
  }
  std::unique_lock lock(registered_mutex);
  registered().insert(code);
}

bool is_activation(int64_t code) {
  if (code >= 0 && code < wmma::kBuiltinActivations) return true;
  std::shared_lock lock(registered_mutex);
  return registered().count(code) > 0;
}

}  // namespace wmma_ops
