"""Sources for tests of compilers and of their cache."""

from wmma_ops.jit import cache, elf

AMD = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1200", "gfx1201", "gfx1250")
NVIDIA = ("sm_80", "sm_90a")

# One source for all. hipcc and hiprtc predefine HIP's names as macros, NVRTC has CUDA's as keywords, plain clang neither.
MATRIX = r"""
#include <wmma/activation.hpp>
#if !defined(__CUDACC__) && !defined(__global__)
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#endif

#if defined(__CUDACC__)
__device__ void multiply(const unsigned* a, const unsigned* b, float* d) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#elif defined(__GFX9__)
typedef float Quad __attribute__((ext_vector_type(4)));
__device__ inline void multiply(const unsigned* a, const unsigned* b, float* d) {
  *(Quad*)d = __builtin_amdgcn_mfma_f32_16x16x4f32(*(const float*)a, *(const float*)b, *(Quad*)d, 0, 0, 0);
}
#elif defined(__gfx1250__)
__device__ inline void multiply(const unsigned* a, const unsigned* b, float* d) { *d += float(*a) * float(*b); }
#else
typedef float Eight __attribute__((ext_vector_type(8)));
#if defined(__GFX12__)
typedef _Float16 Halves __attribute__((ext_vector_type(8)));
#define WMMA __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12
#else
typedef _Float16 Halves __attribute__((ext_vector_type(16)));
#define WMMA __builtin_amdgcn_wmma_f32_16x16x16_f16_w32
#endif
__device__ inline void multiply(const unsigned* a, const unsigned* b, float* d) {
  *(Eight*)d = WMMA(*(const Halves*)a, *(const Halves*)b, *(Eight*)d);
}
#endif

extern "C" __global__ void gemm(const unsigned* a, const unsigned* b, float* d, int k) {
  __shared__ float sum[64];
  for (int i = 0; i < k; ++i) multiply(a + 64 * i, b + 64 * i, d);
  sum[k] = d[k];
  if (sum[0] > wmma::kLeakySlope) d[0] = sum[1];
}

template <class T>
__device__ void fill(T* d, T value) {
  *d = value;
}
extern "C" __global__ void zero(float* d) { fill(d, 0.0f); }
"""

EMPTY = 'extern "C" __attribute__((global)) void empty() {}\n'
STORES = 'extern "C" __attribute__((global)) void store(float* d) { *d = VALUE; }\n'


def text_of(code: bytes) -> bytes:
    return next(section.contents for section in elf.sections(code) if section.name == ".text")


def forget():
    """As a new process would, which has the disk alone."""
    cache._memory.clear()
    cache._facts.clear()
