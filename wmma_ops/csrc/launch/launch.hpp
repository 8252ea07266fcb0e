// Runs calls as kernels of our own, on a GPU or under emulation.
#pragma once

#include "calls/activation_gradient.hpp"
#include "calls/kv_append.hpp"
#include "drivers/driver.hpp"
#include "launch/mode.hpp"
#include "launch/plans.hpp"

namespace wmma_ops::launch {

// The tensors that a launch's kernels may touch, with the names that the op's users know.
struct Touched {
  static constexpr int kMost = 24;
  const Tensor* tensors[kMost];
  const char* names[kMost];
  int count = 0;
  void add(const char* name, const Tensor& x) {
    tensors[count] = &x;
    names[count++] = name;
  }
};

// A result's memory.
Tensor made(const Sizes& sizes, ScalarType type, const Device& device);

// The memory that a plan asks for beside its operands: from torch's allocator, which gives it to nobody else before the
// launches are done. None where it asks for none.
OptTensor workspace_of(const Plan& plan, const Device& device);

// Launches all of a plan's kernels with one struct of arguments.
void execute(const char* op, const Way& way, const Plan& plan, const void* arguments, size_t size,
             const Touched& touched);

// As cpu::gemm, for tensors of any device.
Tensor gemm(const Gemm& p, const Way& way, const OptTensor& into = std::nullopt);

// The product, and of the given type the sums of A's rows: in its kernel, or in a pass over A.
std::pair<Tensor, Tensor> gemm_and_row_sums(const Gemm& p, ScalarType type, const Way& way);

// In one kernel; nothing where the planner prefers a product after the other.
OptTensor gated(const Gemm& p, const Way& way);
OptTensor gemm_gemm(const GemmGemm& p, const Way& way);

// As calls/attention.hpp and calls/kv_append.hpp have them.
std::tuple<Tensor, Tensor> attention(const Attention& p, const Way& way);
std::tuple<Tensor, Tensor, Tensor> attention_backward(const Attention& p, const Way& way, const Tensor& g_out);
void kv_append(const KvAppend& p, const Way& way);

// Whether rows as long as x's may start aligned one after the other.
bool has_aligned_width(const Tensor& x);

// Both of its results in one pass.
ActivationGradient::Result activation_gradient(const ActivationGradient& p, const Way& way);

}  // namespace wmma_ops::launch
