// A barrier of all threads of a launch. A kernel with one is launched by wmma_ops.Kernel so that all of its blocks are
// on the device at once, and refused where they do not fit.
#pragma once

#include <wmma/grid.hpp>

namespace wmma {
namespace detail {

// Of the barrier that is being reached: in bit 31 which of two in turn, below it how many blocks were there. A
// template, so that only kernels with such a barrier have one; weak, so that drivers find it by its name.
template <int>
__device__ __attribute__((weak)) uint32_t grid_arrivals;

}  // namespace detail

// Waits for all threads of the launch; what any of them wrote before is seen by all after it. Every thread reaches it.
WMMA_DEVICE void sync_grid() {
  fence_device();
  sync_workgroup();
  if (thread_rank() == 0) {
    constexpr uint32_t kTurn = 0x80000000u;
    const uint32_t blocks = gridDim.x * gridDim.y * gridDim.z;
    fence_device();
    // The first block's arrival makes up for the number of the others: the last one, whichever it is, turns bit 31.
    const uint32_t before = atomic_add(&detail::grid_arrivals<0>, block_rank() == 0 ? kTurn - (blocks - 1) : 1u);
    while (((atomic_load(&detail::grid_arrivals<0>) ^ before) & kTurn) == 0) arch::doze(100);
    fence_device();
  }
  sync_workgroup();
  fence_device();
}

}  // namespace wmma
