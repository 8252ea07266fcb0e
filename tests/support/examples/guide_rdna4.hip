// As AMD's guide to fused products on RDNA4 writes one: vectors of _Float16, __half pointers, the compiler's builtin.
#define HIPBLAS_V2
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#include <hipblas/hipblas.h>
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>

#include <random>

constexpr int SIDE = 16, WIDE = 8;
constexpr int DOWN = 2, ACROSS = 3, DEEP = 2;

using half_run = _Float16 __attribute__((ext_vector_type(WIDE)));
using float_run = float __attribute__((ext_vector_type(WIDE)));

// One wave: D = (A·B0)·B1, of DOWN×ACROSS tiles; A by rows, B0 and B1 by columns. A and B change places in each
// product, so that the first result is the second's operand as it lies in the registers.
__global__ void two_products(const __half* a, const __half* b0, const __half* b1, float* d) {
  const int lane = threadIdx.x % SIDE;
  const int group = threadIdx.x / SIDE;
  half_run left[DOWN][DEEP];
  half_run right[ACROSS][DEEP];
  float_run first[DOWN][ACROSS] = {};
  for (int m = 0; m < DOWN; ++m) {
    for (int k = 0; k < DEEP; ++k) {
      const int at = (m * SIDE + lane) * DEEP * SIDE + k * SIDE + group * WIDE;
      left[m][k] = reinterpret_cast<const half_run&>(a[at]);
    }
  }
  for (int n = 0; n < ACROSS; ++n) {
    for (int k = 0; k < DEEP; ++k) {
      const int at = (n * SIDE + lane) * DEEP * SIDE + k * SIDE + group * WIDE;
      right[n][k] = reinterpret_cast<const half_run&>(b0[at]);
    }
  }
  for (int m = 0; m < DOWN; ++m) {
    for (int n = 0; n < ACROSS; ++n) {
      for (int k = 0; k < DEEP; ++k) {
        first[m][n] = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(right[n][k], left[m][k], first[m][n]);
      }
    }
  }
  static_assert(WIDE == 8, "a lane holds eight elements");
  half_run middle[DOWN][ACROSS];
  for (int m = 0; m < DOWN; ++m) {
    for (int k = 0; k < ACROSS; ++k) {
      for (int e = 0; e < WIDE; ++e) middle[m][k][e] = __float2half(first[m][k][e]);
    }
  }
  float_run second[DOWN][ACROSS] = {};
  for (int n = 0; n < ACROSS; ++n) {
    half_run next[ACROSS];
    for (int k = 0; k < ACROSS; ++k) {
      const int at = (n * SIDE + lane) * ACROSS * SIDE + k * SIDE + group * WIDE;
      next[k] = reinterpret_cast<const half_run&>(b1[at]);
    }
    for (int m = 0; m < DOWN; ++m) {
      for (int k = 0; k < ACROSS; ++k) {
        second[m][n] = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(next[k], middle[m][k], second[m][n]);
      }
      const int at = (m * SIDE + lane) * ACROSS * SIDE + n * SIDE + group * WIDE;
      reinterpret_cast<float_run&>(d[at]) = second[m][n];
    }
  }
}
