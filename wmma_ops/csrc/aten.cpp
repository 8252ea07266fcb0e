#include "aten.hpp"

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

#include "calls/types.hpp"

namespace wmma_ops::aten {

namespace {

struct Contiguous {
  int64_t strides[64];  // torch's own limit on dimensions

  Contiguous(const int64_t* sizes, int64_t rank) {
    int64_t stride = 1;
    for (int64_t i = rank; i-- > 0;) {
      strides[i] = stride;
      __builtin_mul_overflow(stride, sizes[i] > 0 ? sizes[i] : 1, &stride);  // torch refuses what is too large
    }
  }
};

}  // namespace

Tensor empty(const int64_t* sizes, int64_t rank, ScalarType type, int32_t device_type, int32_t device_index) {
  return empty(sizes, Contiguous(sizes, rank).strides, rank, type, device_type, device_index);
}

Tensor empty(const int64_t* sizes, const int64_t* strides, int64_t rank, ScalarType type, int32_t device_type,
             int32_t device_index) {
  AtenTensorHandle handle;
  if (aoti_torch_empty_strided(rank, sizes, strides, shim_dtype(type), device_type, device_index, &handle) !=
      AOTI_TORCH_SUCCESS) {
    std::string text;
    for (int64_t i = 0; i < rank; ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
    throw std::runtime_error("wmma: memory of [" + text + "] in " + name_of(type) + " was not to be had [MemoryError]");
  }
  return Tensor(handle);
}

Tensor empty(const Sizes& sizes, ScalarType type) {
  return empty(sizes.data(), static_cast<int64_t>(sizes.size()), type, aoti_torch_device_type_cpu(), 0);
}

Tensor zeros(const Sizes& sizes, ScalarType type) {
  Tensor x = empty(sizes, type);
  torch::stable::zero_(x);
  return x;
}

Tensor scalar(double value) {
  AtenTensorHandle handle;
  ok(aoti_torch_scalar_to_tensor_float64(value, &handle), "scalar");
  return Tensor(handle);
}

Tensor to(const Tensor& x, ScalarType type) {
  if (type_of(x) == type) return x;
  return call("aten::to", "dtype", x, type, false, false, std::nullopt);
}

Tensor reshaped_result(const Tensor& x, const Sizes& sizes) {
  const int64_t rank = static_cast<int64_t>(sizes.size());
  AtenTensorHandle handle;
  ok(aoti_torch__reinterpret_tensor(x.get(), rank, sizes.data(), Contiguous(sizes.data(), rank).strides, 0, &handle),
     "reinterpret_tensor");
  return Tensor(handle);
}

// The dispatcher would cost as much as half a small product.
Tensor matrix_view(const Tensor& x, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  const int64_t sizes[] = {rows, columns}, strides[] = {row_stride, column_stride};
  AtenTensorHandle handle;
  ok(aoti_torch__reinterpret_tensor(x.get(), 2, sizes, strides, 0, &handle), "reinterpret_tensor");
  return Tensor(handle);
}

Tensor transposed(const Tensor& x) {
  if (x.dim() > 2) return aten::transpose(x, -2, -1);
  const auto sizes = x.sizes(), strides = x.strides();
  return matrix_view(x, sizes[1], sizes[0], strides[1], strides[0]);
}

void addmm_out(Tensor& out, const Tensor& addend, const Tensor& a, const Tensor& b, double beta, double alpha) {
  ok(aoti_torch_cpu_addmm_out(out.get(), addend.get(), a.get(), b.get(), beta, alpha), "addmm");
}
void baddbmm_out(Tensor& out, const Tensor& addend, const Tensor& a, const Tensor& b, double beta, double alpha) {
  ok(aoti_torch_cpu_baddbmm_out(out.get(), addend.get(), a.get(), b.get(), beta, alpha), "baddbmm");
}
void mm_out(Tensor& out, const Tensor& a, const Tensor& b) {
  ok(aoti_torch_cpu_mm_out(out.get(), a.get(), b.get()), "mm");
}
void bmm_out(Tensor& out, const Tensor& a, const Tensor& b) {
  ok(aoti_torch_cpu_bmm_out(out.get(), a.get(), b.get()), "bmm");
}
void int_mm_out(Tensor& out, const Tensor& a, const Tensor& b) {
  ok(aoti_torch_cpu__int_mm_out(out.get(), a.get(), b.get()), "_int_mm");
}

}  // namespace wmma_ops::aten
