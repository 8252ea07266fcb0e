"""Kernels whose static figures tests know: compiled ones, and assembly written by hand."""

from wmma_ops import jit
from wmma_ops.analysis.figures import figures
from wmma_ops.hardware import arch
from wmma_ops.jit.compiler import CodeObject

START = r"""
#include <wmma/fragment.hpp>
using namespace wmma;
using A = fragment<matrix_a, 16, 16, 16, half_t, row_major>;
using B = fragment<matrix_b, 16, 16, 16, half_t, col_major>;
using C = fragment<accumulator, 16, 16, 16, float>;
"""


def compiled(body: str, target: arch.Target, *options: str) -> CodeObject:
    return jit.compile(START + body, target.name, options=options, name="figures.hip")


# A product of 32x32 whose A and B lie in shared memory: 4 products of 4 loaded fragments an iteration.
GEMM = r"""
extern "C" __global__ void gemm(const half_t* a, float* d, int steps) {
  __shared__ __attribute__((aligned(16))) half_t shared[2 * 32 * 264];
  for (int i = threadIdx.x; i < 2 * 32 * 264; i += blockDim.x) shared[i] = a[i];
  sync_workgroup();
  C sum[2][2];
  for (int m = 0; m < 2; ++m) for (int n = 0; n < 2; ++n) fill_fragment(sum[m][n], 0.0f);
  const half_t* at = shared;
#pragma unroll 1
  for (int k = 0; k < steps; ++k, at += 16) {
    A x[2];
    B y[2];
    for (int m = 0; m < 2; ++m) load_matrix_sync(x[m], at + m * 16 * 264, 264);
    for (int n = 0; n < 2; ++n) load_matrix_sync(y[n], at + (2 + n) * 16 * 264, 264);
    for (int m = 0; m < 2; ++m) for (int n = 0; n < 2; ++n) mma_sync(sum[m][n], x[m], y[n], sum[m][n]);
  }
  for (int m = 0; m < 2; ++m)
    for (int n = 0; n < 2; ++n) store_matrix_sync(d + m * 16 * 32 + n * 16, sum[m][n], 32, mem_row_major);
}
"""

SPILLING = r"""
#if defined(__CUDACC__)
#define FEW
#else
#define FEW __attribute__((amdgpu_num_vgpr(24)))
#endif
extern "C" __global__ FEW void spilling(volatile float* d, int steps) {
  float x[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] = d[i * 64 + threadIdx.x];
#pragma unroll 1
  for (int k = 0; k < steps; ++k) {
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = x[i] * x[(i + 7) % 64] + d[k];
  }
#pragma unroll
  for (int i = 0; i < 64; ++i) d[i * 64 + threadIdx.x] = x[i];
}
"""

MMA = "\tv_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3]\n"
WMMA = "\tv_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]\n"


def text_of(target: str, body: str) -> CodeObject:
    start, end = f'\t.amdgcn_target "amdgcn-amd-amdhsa--{target}"\nk:\n', "\t.amdhsa_kernel k\n\t.end_amdhsa_kernel\n"
    text = f"{start}{body}\ts_endpgm\n{end}"
    return CodeObject(target=target, compiler="hand", code=b"", assembly=text, log="", kernels=("k",))


def by_hand(body: str, target: str = "gfx942", threads: int = 256):
    return figures(text_of(target, body), arch.target(target), threads)
