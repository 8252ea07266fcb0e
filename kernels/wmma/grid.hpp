// Where a thread is, and how threads meet: indices, barriers, fences, shuffles, votes, atomics, clock, assertions,
// printing, dynamic shared memory. threadIdx, blockIdx, blockDim, gridDim and __shared__ work as people write them.
#pragma once

#include <wmma/assert.hpp>
#include <wmma/atomics.hpp>
#include <wmma/clock.hpp>
#include <wmma/lanes.hpp>
#include <wmma/print.hpp>
#include <wmma/types.hpp>

namespace wmma {

// The thread's number within its block, the block's within the grid, and the threads of a block: x counts first.
WMMA_DEVICE uint32_t thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
WMMA_DEVICE uint32_t block_rank() { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }
WMMA_DEVICE uint32_t block_threads() { return blockDim.x * blockDim.y * blockDim.z; }

// The wave within its block.
WMMA_DEVICE uint32_t wave_id() { return uniform(thread_rank() / kWaveSize); }
WMMA_DEVICE uint32_t wave_count() { return (block_threads() + kWaveSize - 1) / kWaveSize; }

// Waits for all threads of the block; what they wrote before is seen after.
WMMA_DEVICE void sync_workgroup() { arch::block_barrier(); }
WMMA_DEVICE void synchronize_workgroup() { arch::block_barrier(); }
// What the thread wrote before is seen before what it writes after: by its block, the device, and the host as well.
WMMA_DEVICE void fence_block() { arch::fence_block(); }
WMMA_DEVICE void fence_device() { arch::fence_device(); }
WMMA_DEVICE void fence_system() { arch::fence_system(); }

// The kernel's dynamic shared memory, as many bytes as the launch asks for.
template <class T>
WMMA_DEVICE T* dynamic_shared(uint32_t byte_offset = 0) {
  extern __shared__ __attribute__((aligned(arch::kSharedAlignment))) unsigned char wmma_dynamic_shared_bytes[];
  return reinterpret_cast<T*>(wmma_dynamic_shared_bytes + byte_offset);
}

}  // namespace wmma
