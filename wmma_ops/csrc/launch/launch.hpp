// Runs products as kernels of our own, on a GPU or under emulation.
#pragma once

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

// The memory that a plan asks for beside its operands: from torch's allocator, which gives it to nobody else before the
// launches are done. None where it asks for none.
OptTensor workspace_of(const Plan& plan, const Device& device);

// Launches all of a plan's kernels with one struct of arguments.
void execute(const char* op, const Way& way, const Plan& plan, const void* arguments, size_t size,
             const Touched& touched);

// As cpu::gemm, for tensors of any device.
Tensor gemm(const Gemm& p, const Way& way, const OptTensor& into = std::nullopt);

}  // namespace wmma_ops::launch
