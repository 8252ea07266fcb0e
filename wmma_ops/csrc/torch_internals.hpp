// What of torch's the library looks for as it runs, as its stable interface has no such thing: each name with what it
// is for, and what stands in its place where it is gone. All were found in torch 2.10 to 2.15. Python's are held by
// wmma_ops/torch_internals.py.
#pragma once

#include <dlfcn.h>

#include <exception>

#include "aten.hpp"

namespace wmma_ops::torch_internals {

// What a library of torch's exports, where it is loaded. RTLD_DEFAULT does not find all: Python loads them for itself.
template <class Function>
Function* find(const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  return handle ? reinterpret_cast<Function*>(dlsym(handle, name)) : nullptr;
}

// Whether torch is built for ROCm, by the library that only such builds have.
inline bool is_rocm() { return dlopen("libtorch_hip.so", RTLD_NOW | RTLD_NOLOAD) != nullptr; }

// at::globalContext().float32MatmulPrecision(), which is torch.get_float32_matmul_precision(): 0 highest, 1 high, 2
// medium. Without the two, Python is asked, which costs microseconds.
inline int64_t matmul_precision() {
  static const auto context = find<void*()>("libtorch_cpu.so", "_ZN2at13globalContextEv");
  static const auto get = find<int(const void*)>("libtorch_cpu.so", "_ZNK2at7Context22float32MatmulPrecisionEv");
  if (!context || !get) return aten::call<int64_t>("wmma::_precision", "");
  try {
    return get(context()) & 3;
  } catch (const std::exception&) {  // torch refuses to tell where its old and new settings were mixed
    return aten::call<int64_t>("wmma::_precision", "");
  }
}

// at::globalContext().deterministicAlgorithms(), which is torch.are_deterministic_algorithms_enabled(). Without the two
// it is taken for so.
inline bool is_deterministic() {
  static const auto context = find<void*()>("libtorch_cpu.so", "_ZN2at13globalContextEv");
  static const auto get = find<bool(const void*)>("libtorch_cpu.so", "_ZNK2at7Context23deterministicAlgorithmsEv");
  return !context || !get || get(context());
}

// The stream that torch launches on, of AOTInductor's C interface: in no library of builds without a GPU, hence not
// linked. Without it, Python is asked.
inline void* current_stream(int device) {
  using Get = AOTITorchError(int32_t, void**);
  static const auto get =
      find<Get>(is_rocm() ? "libtorch_hip.so" : "libtorch_cuda.so", "aoti_torch_get_current_cuda_stream");
  if (!get) return reinterpret_cast<void*>(aten::call<int64_t>("wmma::_stream", "", int64_t{device}));
  void* stream = nullptr;
  aten::ok(get(device, &stream), "get_current_cuda_stream");
  return stream;
}

// at::_ops::_assert_async::call, an op like any other: with a tensor whose Python class answers by raising, that
// exception itself passes through the library to Python, which the stable interface lets no call do. Without it, this
// returns, and a text has to do.
inline void raise_in_python(const Tensor& raising) {
  static const auto ask = find<void(const void*)>("libtorch_cpu.so", "_ZN2at4_ops13_assert_async4callERKNS_6TensorE");
  if (ask) ask(raising.get());
}

// oneDNN's fused linear, which AOTInductor's compiled models call. Its header is closed to stable extensions, and
// builds of torch without oneDNN lack it. Without it, products in bfloat16 are computed in float32.
using LinearPointwise = AOTITorchError(AtenTensorHandle x, AtenTensorHandle weight, AtenTensorHandle* bias,
                                       const char* attribute, const double** scalars, int64_t scalars_length,
                                       const char** algorithm, AtenTensorHandle* result);

// Null where it has no bfloat16 on this processor, or where torch does not tell.
inline LinearPointwise* bf16_linear_pointwise() {
  static const auto found = [] {
    auto function = find<LinearPointwise>("libtorch_cpu.so", "aoti_torch_cpu__linear_pointwise");
    try {
      return function && aten::call<bool>("mkldnn::_is_mkldnn_bf16_supported", "") ? function : nullptr;
    } catch (const std::exception&) {
      return static_cast<LinearPointwise*>(nullptr);
    }
  }();
  return found;
}

}  // namespace wmma_ops::torch_internals
