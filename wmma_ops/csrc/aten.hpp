// The few aten calls that the CPU kernels are composed of, typed. Everything goes through PyTorch's stable C interface.
// A failing inner call loses its reason on the way, so every caller checks its arguments first.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace wmma_ops {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using OptTensor = std::optional<Tensor>;
using Sizes = std::vector<int64_t>;

namespace aten {

inline void ok(AOTITorchError error, const char* what) {
  if (error != AOTI_TORCH_SUCCESS) throw std::runtime_error(std::string("wmma: the inner call ") + what + " failed");
}

inline int32_t shim_dtype(ScalarType type) {
  return torch::stable::detail::to<int32_t>(torch::stable::detail::from(type));
}

// Calls an operator by name; `arguments` must list every argument of its schema, in order. None may be a string: torch
// before 2.14 leaks each.
template <class Result = Tensor, class... Arguments>
Result call(const char* name, const char* overload, const Arguments&... arguments) {
  std::array<StableIValue, (sizeof...(arguments) > 0 ? sizeof...(arguments) : 1)> stack{
      torch::stable::detail::from(arguments)...};
  ok(torch_call_dispatcher(name, overload, stack.data(), TORCH_ABI_VERSION), name);
  if constexpr (!std::is_void_v<Result>) return torch::stable::detail::to<Result>(stack[0]);
}

Tensor empty(const Sizes& sizes, ScalarType type);  // contiguous, on the CPU
Tensor empty(const int64_t* sizes, int64_t rank, ScalarType type, int32_t device_type, int32_t device_index);
Tensor empty(const int64_t* sizes, const int64_t* strides, int64_t rank, ScalarType type, int32_t device_type,
             int32_t device_index);
Tensor zeros(const Sizes& sizes, ScalarType type);
Tensor scalar(double value);                  // 0-dim float64: takes part in no type promotion among floats
Tensor to(const Tensor& x, ScalarType type);  // x itself where it has that type
inline Tensor expand(const Tensor& x, const Sizes& sizes) { return call("aten::expand", "", x, sizes, false); }
inline Tensor reshape(const Tensor& x, const Sizes& sizes) { return call("aten::reshape", "", x, sizes); }
// A contiguous result in another shape, and no view to autograd, which refuses to change a view of an op's in place.
Tensor reshaped_result(const Tensor& x, const Sizes& sizes);
inline Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) { return torch::stable::transpose(x, dim0, dim1); }
Tensor matrix_view(const Tensor& x, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride);
Tensor transposed(const Tensor& x);  // a strided matrix, or a batch of them
inline Tensor unsqueeze(const Tensor& x, int64_t dim) { return torch::stable::unsqueeze(x, dim); }
inline Tensor cat(const std::vector<Tensor>& tensors, int64_t dim) { return call("aten::cat", "", tensors, dim); }
inline Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  return call("aten::narrow", "", x, dim, start, length);
}
inline Tensor select(const Tensor& x, int64_t dim, int64_t index) { return torch::stable::select(x, dim, index); }

inline Tensor mul(const Tensor& x, const Tensor& y) { return call("aten::mul", "Tensor", x, y); }
// x + factor·y for floating types. There is no in-place form: aten's takes a Scalar, which the stable interface lacks.
inline Tensor add(const Tensor& x, const Tensor& y, double factor = 1) {
  if (std::abs(factor) <= std::numeric_limits<float>::max()) return torch::stable::subtract(x, y, -factor);
  return torch::stable::subtract(x, mul(y, scalar(factor)), -1);  // aten refuses a factor that float32 does not hold
}
inline Tensor div(const Tensor& x, const Tensor& y) { return call("aten::div", "Tensor", x, y); }
inline Tensor amax(const Tensor& x, int64_t dim) { return torch::stable::amax(x, dim, true); }  // keeps the dimension
// Without these dimensions.
inline Tensor sum(const Tensor& x, const Sizes& dims, std::optional<ScalarType> type) {
  return call("aten::sum", "dim_IntList", x, std::optional<Sizes>(dims), false, type);
}
inline void mul_(Tensor& x, const Tensor& y) { call("aten::mul_", "Tensor", x, y); }
inline void clamp_(Tensor& x, double low, double high) {
  call("aten::clamp_", "Tensor", x, OptTensor(scalar(low)), OptTensor(scalar(high)));
}
inline Tensor clone(const Tensor& x) { return call("aten::clone", "", x, std::nullopt); }
inline Tensor contiguous(const Tensor& x) {
  return call("aten::contiguous", "", x, torch::headeronly::MemoryFormat::Contiguous);
}
inline void copy_(Tensor& x, const Tensor& from) { torch::stable::copy_(x, from); }
inline void fill_(Tensor& x, double value) { torch::stable::fill_(x, value); }
inline void masked_fill_(Tensor& x, const Tensor& mask, double value) {
  call("aten::masked_fill_", "Tensor", x, mask, scalar(value));
}
// "aten::relu_" and its like: (Tensor(a!) self) -> Tensor(a!)
inline void unary_(const char* name, Tensor& x) { call(name, "", x); }
inline Tensor equal(const Tensor& x, double value) { return call("aten::eq", "Tensor", x, scalar(value)); }
inline Tensor logical_not(const Tensor& x) { return call("aten::logical_not", "", x); }

// out = beta·addend + alpha·a·b in one call; beta 0 does not read the addend, and `out` itself may be given as one.
void addmm_out(Tensor& out, const Tensor& addend, const Tensor& a, const Tensor& b, double beta, double alpha);
void baddbmm_out(Tensor& out, const Tensor& addend, const Tensor& a, const Tensor& b, double beta, double alpha);
void mm_out(Tensor& out, const Tensor& a, const Tensor& b);
void bmm_out(Tensor& out, const Tensor& a, const Tensor& b);
void int_mm_out(Tensor& out, const Tensor& a, const Tensor& b);

}  // namespace aten

// Inner calls record no gradient: an op's derivative is the registered formula or nothing.
class NoGrad {
 public:
  NoGrad() : before_(aoti_torch_grad_mode_is_enabled()) {
    if (before_) aoti_torch_grad_mode_set_enabled(false);
  }
  ~NoGrad() {
    if (before_) aoti_torch_grad_mode_set_enabled(true);
  }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

inline Sizes sizes_of(const Tensor& x) {
  auto sizes = x.sizes();
  return Sizes(sizes.data(), sizes.data() + sizes.size());
}

// [batch…, rows, columns]
inline Sizes matrices(const Sizes& batch, int64_t rows, int64_t columns) {
  Sizes sizes;
  sizes.reserve(batch.size() + 2);
  sizes = batch;
  sizes.push_back(rows);
  sizes.push_back(columns);
  return sizes;
}

inline int64_t product_of(const Sizes& sizes) {
  int64_t n = 1;
  for (int64_t size : sizes) {
    if (size == 0) return 0;  // of sizes that together may be beyond any number
  }
  for (int64_t size : sizes) n *= size;
  return n;
}

}  // namespace wmma_ops
