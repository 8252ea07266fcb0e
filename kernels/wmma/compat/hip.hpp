// The names of CUDA and HIP's device language, global as there: a kernel written for them compiles as it is. Where the
// compiler brings a name itself (NVRTC and nvcc CUDA's, hiprtc and hipcc HIP's), it keeps it.
#pragma once

#include <wmma/compat/atomics.hpp>
#include <wmma/compat/bits.hpp>
#include <wmma/compat/half_math.hpp>
#include <wmma/compat/integers.hpp>
#include <wmma/compat/lanes.hpp>
#include <wmma/compat/math.hpp>
#include <wmma/compat/print.hpp>
#include <wmma/compat/vector_types.hpp>
#include <wmma/grid.hpp>
#include <wmma/sleep.hpp>

// NVRTC takes no function of the host's alone: such a one is then the device's, which nothing calls.
#ifdef __CUDACC_RTC__
#undef __host__
#define __host__ __device__
#endif

#ifndef WMMA_NVIDIA
// What clock() counts in. (hiprtc has none, hipcc the host's, which is this.)
using clock_t = long;
#endif

#if !defined(WMMA_NVIDIA) && !defined(WMMA_HIP_NAMES)

// The host's stream, which a struct of arguments may name.
using hipStream_t = struct ihipStream_t*;

// Synchronisation.
WMMA_DEVICE void __syncthreads() { wmma::sync_workgroup(); }
WMMA_DEVICE void __threadfence_block() { wmma::fence_block(); }
WMMA_DEVICE void __threadfence() { wmma::fence_device(); }
WMMA_DEVICE void __threadfence_system() { wmma::fence_system(); }

// Lanes of a wave: 64 or 32.
constexpr int warpSize = wmma::kWaveSize;

// A read of what nobody writes meanwhile.
template <class T>
WMMA_DEVICE T __ldg(const T* at) {
  return *at;
}

// Waits for at least so many nanoseconds.
WMMA_DEVICE void __nanosleep(unsigned nanoseconds) { wmma::nanosleep(nanoseconds); }

// Clocks.
WMMA_DEVICE long long clock64() { return static_cast<long long>(wmma::clock_cycles()); }
WMMA_DEVICE clock_t clock() { return static_cast<clock_t>(wmma::clock_cycles()); }

#endif
