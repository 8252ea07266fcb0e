// Which family this compilation is for, and the keywords that hipcc, hiprtc, nvcc and NVRTC predefine but plain clang
// does not. Nothing here or below includes a header from outside kernels/, which is on the include path: NVRTC may be
// told not to look beside the including file. With hipcc, include hip_runtime.h first.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define WMMA_NVIDIA 1
#ifdef __CUDA_ARCH__
#define WMMA_TARGET __CUDA_ARCH__
#else
#define WMMA_TARGET 800  // as which the host pass parses the kernels
#endif
#if WMMA_TARGET < 800
#error "wmma: NVIDIA targets start at sm_80"
#endif
#elif defined(__HIP__)
#define WMMA_AMD 1
#if defined(__gfx908__)
#define WMMA_TARGET 0x908
#elif defined(__gfx942__)
#define WMMA_TARGET 0x942
#elif defined(__gfx950__)
#define WMMA_TARGET 0x950
#elif defined(__GFX11__)
#define WMMA_TARGET 0x1100
#elif defined(__gfx1200__) || defined(__gfx1201__)
#define WMMA_TARGET 0x1200
#elif defined(__gfx1250__)
#define WMMA_TARGET 0x1250
#else
#define WMMA_TARGET 0x90a  // as which the host pass, too, parses the kernels: it generates nothing from them
#if defined(__HIP_DEVICE_COMPILE__) && !defined(__gfx90a__)
#error "wmma: unsupported AMD target; known: gfx908 gfx90a gfx942 gfx950 gfx11xx gfx1200 gfx1201 gfx1250"
#endif
#endif
#if WMMA_TARGET < 0x1100
#define WMMA_CDNA 1
#elif WMMA_TARGET < 0x1200
#define WMMA_RDNA3 1
#else
#define WMMA_RDNA4 1
#endif
// WMMA_HOST is the host library's, whose CPU kernels have the formulas of activations from here.
#elif !defined(WMMA_HOST)
#error "wmma: compile as HIP (clang -x hip, hipcc, hiprtc) or as CUDA (nvcc, NVRTC)"
#endif

#ifdef WMMA_AMD
#ifndef __global__
#define __global__ __attribute__((global))
#endif
#ifndef __device__
#define __device__ __attribute__((device))
#endif
#ifndef __host__
#define __host__ __attribute__((host))
#endif
#ifndef __shared__
#define __shared__ __attribute__((shared))
#endif
#ifndef __constant__
#define __constant__ __attribute__((constant))
#endif
// As HIP's own headers have it: clang's launch_bounds is for NVIDIA, and AMD's code generator does not read it.
#ifndef __launch_bounds__
#define WMMA_BOUNDS_1(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define WMMA_BOUNDS_2(threads, waves) \
  __attribute__((amdgpu_flat_work_group_size(1, threads), amdgpu_waves_per_eu(waves)))
#define WMMA_BOUNDS(_1, _2, chosen, ...) chosen
#define __launch_bounds__(...) WMMA_BOUNDS(__VA_ARGS__, WMMA_BOUNDS_2, WMMA_BOUNDS_1, )(__VA_ARGS__)
#endif
// clang's own __bf16 has arithmetic.
#if __clang_major__ >= 17
#define WMMA_BF16_OF_CLANG 1
#endif
#ifndef __forceinline__
#define __forceinline__ inline __attribute__((always_inline))
#endif
#endif

// Where HIP's own compiler or headers bring HIP's names.
#if defined(__HIPCC_RTC__) || defined(HIP_INCLUDE_HIP_HIP_RUNTIME_H)
#define WMMA_HIP_NAMES 1
#endif

// A kernel of exactly `threads` threads a block, compiled for `least` waves at once on each SIMD of an AMD target:
// fewer waves leave more registers to each. `most` is for how many there is room beside shared memory, where it bounds
// them: clang saves no registers for more, but takes registers that it does not use to keep them out.
#ifdef WMMA_AMD
#define WMMA_KERNEL(threads, ... /* least, most */) \
  extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(threads, threads), amdgpu_waves_per_eu(__VA_ARGS__)))
#else
#define WMMA_KERNEL(threads, least, ...) extern "C" __global__ __launch_bounds__(threads, least)
#endif

// A kernel's struct of arguments, read where the launch put it: sm_90's copy engine takes its maps from there.
#ifdef WMMA_AMD
#define WMMA_ARGUMENTS(type) type
#else
#define WMMA_ARGUMENTS(type) const __grid_constant__ type
#endif

// Every library function is inlined: fragments then live in registers and the memory space of each pointer is known.
#ifdef WMMA_HOST
#define WMMA_DEVICE inline __attribute__((always_inline))
#define WMMA_CONSTEXPR constexpr
#else
#define WMMA_DEVICE __device__ __forceinline__
#define WMMA_CONSTEXPR __host__ __device__ constexpr
#endif

namespace wmma {

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
#if defined(__INT64_TYPE__) && !defined(__HIPCC_RTC__)  // hiprtc defines int64_t as long long
using int64_t = __INT64_TYPE__;
using uint64_t = __UINT64_TYPE__;
#else
using int64_t = long long;
using uint64_t = unsigned long long;
#endif
using size_t = decltype(sizeof(0));
using ptrdiff_t = decltype(static_cast<char*>(nullptr) - static_cast<char*>(nullptr));

}  // namespace wmma

#if defined(WMMA_AMD)
#include <wmma/arch/amd.hpp>
#elif defined(WMMA_NVIDIA)
#include <wmma/arch/nvidia.hpp>
#else
#include <wmma/arch/host.hpp>
#endif
