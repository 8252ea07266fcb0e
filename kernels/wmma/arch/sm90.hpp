// Clusters of sm_90, blocks that run side by side and read each other's shared memory, and kernels that are launched
// before the one before them is done. Elsewhere there are none.
#pragma once

#include <wmma/target.hpp>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define WMMA_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
#else
#define WMMA_CLUSTER(blocks)
#endif

namespace wmma::arch {

// All threads of all blocks of the cluster; what they wrote before, each of them sees after.
WMMA_DEVICE void cluster_barrier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// The same, ordering only barriers that a fence has published, nothing else written before.
WMMA_DEVICE void cluster_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// kCount elements of another block's shared memory, 4, 8 or 16 bytes, from the place where `from` is in one's own.
// Keeps its place among the barriers (it is volatile), but lets loads overlap (it clobbers no memory).
template <int kCount, class T>
WMMA_DEVICE void load_shared_of(uint32_t block, const T* from, T* to) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int kBytes = kCount * sizeof(T);
  uint32_t at;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(from)), "r"(block));
  uint32_t words[kBytes / 4];
  if constexpr (kBytes == 16) {
    asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(at));
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) {
      asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(words[i]) : "r"(at + i * 4));
    }
  }
  copy_bytes<kBytes>(to, words);
#endif
}

// The stream's next kernel, where it was launched to start early, may: once every block of this one has said so or is
// done.
WMMA_DEVICE void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
// Until the stream's kernel before this one is done, and what it wrote can be read.
WMMA_DEVICE void await_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// What blocks hand on to each other through memory, while they run, past the L1 cache.
WMMA_DEVICE uint32_t load_acquired(const uint32_t* from) {
  uint32_t word = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
#endif
  return word;
}
WMMA_DEVICE void store_released(uint32_t* to, uint32_t word) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
#endif
}
// Four neighbours, aligned to 16 bytes.
WMMA_DEVICE void load_four_relaxed(float* x, const float* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
               : "l"(from)
               : "memory");
#endif
}

}  // namespace wmma::arch
