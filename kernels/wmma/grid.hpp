// Where a thread is, and how threads meet: indices, barriers, fences, shuffles, votes, atomics, clock, assertions,
// dynamic shared memory. threadIdx, blockIdx, blockDim, gridDim and __shared__ work as people write them.
#pragma once

#include <wmma/assert.hpp>
#include <wmma/atomics.hpp>
#include <wmma/clock.hpp>
#include <wmma/types.hpp>

namespace wmma {

constexpr int kWaveSize = arch::kWaveSize;

// The lane within its wave (AMD) or warp (NVIDIA).
WMMA_DEVICE uint32_t lane_id() { return arch::lane_id(); }

WMMA_DEVICE uint32_t thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
WMMA_DEVICE uint32_t block_rank() { return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); }
WMMA_DEVICE uint32_t block_threads() { return blockDim.x * blockDim.y * blockDim.z; }

// A value that is the same in all lanes, moved to a scalar register where the target has them.
WMMA_DEVICE uint32_t uniform(uint32_t value) { return arch::uniform(value); }

// The wave within its block.
WMMA_DEVICE uint32_t wave_id() { return uniform(thread_rank() / kWaveSize); }
WMMA_DEVICE uint32_t wave_count() { return (block_threads() + kWaveSize - 1) / kWaveSize; }

WMMA_DEVICE void sync_workgroup() { arch::block_barrier(); }
WMMA_DEVICE void synchronize_workgroup() { arch::block_barrier(); }
WMMA_DEVICE void sync_wave() { arch::wave_barrier(); }
WMMA_DEVICE void fence_block() { arch::fence_block(); }
WMMA_DEVICE void fence_device() { arch::fence_device(); }
WMMA_DEVICE void fence_system() { arch::fence_system(); }

namespace detail {

template <class T>
WMMA_DEVICE T shuffle_from(T value, uint32_t source_lane) {
  if constexpr (sizeof(T) == 8) {
    const uint64_t bits = arch::bit_cast<uint64_t>(value);
    const uint64_t low = arch::shuffle_word(static_cast<uint32_t>(bits), source_lane);
    const uint64_t high = arch::shuffle_word(static_cast<uint32_t>(bits >> 32), source_lane);
    return arch::bit_cast<T>(low | high << 32);
  } else if constexpr (sizeof(T) == 4) {
    return arch::bit_cast<T>(arch::shuffle_word(arch::bit_cast<uint32_t>(value), source_lane));
  } else if constexpr (sizeof(T) == 2) {
    const uint32_t word = arch::shuffle_word(arch::bit_cast<uint16_t>(value), source_lane);
    return arch::bit_cast<T>(static_cast<uint16_t>(word));
  } else {
    static_assert(sizeof(T) == 1, "wmma: shuffles move 1, 2, 4 or 8 bytes");
    const uint32_t word = arch::shuffle_word(arch::bit_cast<uint8_t>(value), source_lane);
    return arch::bit_cast<T>(static_cast<uint8_t>(word));
  }
}

}  // namespace detail

// Shuffles within groups of `width` lanes, a power of two. All lanes of the wave take part. Where the source lies
// outside the group, a lane keeps its own value.
template <class T>
WMMA_DEVICE T shuffle(T value, int source, int width = kWaveSize) {
  const int lane = static_cast<int>(lane_id());
  return detail::shuffle_from(value, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <class T>
WMMA_DEVICE T shuffle_up(T value, int delta, int width = kWaveSize) {
  const int lane = static_cast<int>(lane_id());
  return detail::shuffle_from(value, (lane & (width - 1)) < delta ? lane : lane - delta);
}
template <class T>
WMMA_DEVICE T shuffle_down(T value, int delta, int width = kWaveSize) {
  const int lane = static_cast<int>(lane_id());
  return detail::shuffle_from(value, (lane & (width - 1)) + delta >= width ? lane : lane + delta);
}
template <class T>
WMMA_DEVICE T shuffle_xor(T value, int mask, int width = kWaveSize) {
  const int lane = static_cast<int>(lane_id());
  const int source = lane ^ mask;
  return detail::shuffle_from(value, (lane & ~(width - 1)) == (source & ~(width - 1)) ? source : lane);
}

// Votes of the lanes that reach the call, all of the wave on NVIDIA. In the ballot bit l is lane l's vote.
WMMA_DEVICE uint64_t vote_ballot(bool vote) { return arch::ballot(vote); }
WMMA_DEVICE bool vote_any(bool vote) { return arch::ballot(vote) != 0; }
WMMA_DEVICE bool vote_all(bool vote) { return arch::ballot(!vote) == 0; }
WMMA_DEVICE int count_bits(uint64_t bits) { return arch::count_bits(bits); }

// The kernel's dynamic shared memory, as many bytes as the launch asks for.
template <class T>
WMMA_DEVICE T* dynamic_shared(uint32_t byte_offset = 0) {
  extern __shared__ __attribute__((aligned(arch::kSharedAlignment))) unsigned char wmma_dynamic_shared_bytes[];
  return reinterpret_cast<T*>(wmma_dynamic_shared_bytes + byte_offset);
}

}  // namespace wmma
