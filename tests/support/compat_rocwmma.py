"""Kernels in rocWMMA's names, and with the compiler's own 16-bit types."""

from pathlib import Path

import torch
from machine import Machine

import wmma_ops

EXAMPLES = Path(__file__).parent / "examples"

# Every name that the guide gives to namespace rocwmma, beside what the sample's kernel uses: one wave, 16x16 blocks.
ROCWMMA_KERNEL = wmma_ops.Kernel(
    """
#include <hip/hip_runtime.h>
#include <rocwmma/rocwmma.hpp>
using namespace rocwmma;
static_assert(layout_t::mem_row_major != layout_t::mem_col_major);
static_assert(ceilDiv(17, 16) == 2 && ceilDiv(16u, 16u) == 1);
static_assert(sizeof(float16_t) == 2 && sizeof(hfloat16_t) == 2 && sizeof(bfloat16_t) == 2 && sizeof(float64_t) == 8);
using ShapeA = IOShape<matrix_a, 32, 16, 8, float32_t, row_major>;
static_assert(ShapeA::BlockHeight == 32 && ShapeA::BlockWidth == 8 && ShapeA::BlockDim == 32 && ShapeA::KDim == 8);
using ShapeB = IOShape<matrix_b, 32, 16, 8, float32_t, row_major>;
static_assert(ShapeB::BlockHeight == 8 && ShapeB::BlockWidth == 16 && ShapeB::BlockDim == 16 && ShapeB::KDim == 8);
using Config = IOConfig<matrix_a, 16, 16, 16, bfloat16_t, row_major>;
using ConfigD = IOConfig<accumulator, 16, 16, 16, float32_t, row_major>;
static_assert(Config::BlockDim == 16 && Config::KDim == 16 && Config::CoopIndex == 0 && Config::MaxVectorWidth == 8);
static_assert(Config::VectorWidth >= 2 && Config::VectorWidth <= 8);
static_assert(IOConfig<matrix_b, 16, 16, 16, int8_t, col_major>::CoopIndex == 1);

__global__ void names(bfloat16_t const* a, bfloat16_t const* b, float32_t* d, bfloat16_t* copy, int32_t* counts) {
  Config::Fragment left, moved;
  fragment<matrix_b, 16, 16, 16, bfloat16_t, col_major> right;
  ConfigD::Fragment sum;
  Config::Loader::exec(left, a, 16);
  IOConfig<matrix_b, 16, 16, 16, bfloat16_t, col_major>::Loader::exec(right, b, 16);
  ConfigD::Broadcaster::exec(sum, 1.0f);
  mma_sync(sum, left, right, sum);
  ConfigD::Storer::exec(d, sum, 16);
  Config::Broadcaster::exec(moved, 0.0f);
  Config::CoopLoader::exec(moved, a, 16, 0, 1, 4);
  Config::CoopStorer::exec(copy, moved, 16, 0, 1, 4);
  store_matrix_coop_sync(copy + 256, left, 16, 0, 1);
  load_matrix_coop_sync(moved, a, 16, 0, 1);
  load_matrix_coop_sync(moved, a, 16);
  store_matrix_coop_sync(copy + 512, moved, 16);
  synchronize_workgroup();
  VecT<float32_t, 4> v, w;
  for (uint32_t i = 0; i < v.size(); ++i) v[i] = i, w[i] = 2;
  const VectorStorage<float32_t, 4> sums = *(v * w + v - w / w);
  if (threadIdx.x == AMDGCN_WAVE_SIZE - 1) {
    counts[0] = sum.num_elements * AMDGCN_WAVE_SIZE;
    counts[1] = ConfigD::MatrixLayout::row(0) == sum.row(0) && ConfigD::MatrixLayout::col(0) == sum.col(0);
    counts[2] = sums.data[3];
  }
}""",
    "names",
)


def check_rocwmma_names(on: Machine):
    a, b = (torch.randn(16, 16).bfloat16() for _ in range(2))
    d, copy = torch.full((16, 16), torch.nan), torch.full((3, 16, 16), torch.nan, dtype=torch.bfloat16)
    counts = torch.zeros(3, dtype=torch.int32)
    on.run(ROCWMMA_KERNEL, 1, on.wave, a, b, d, copy, counts)
    torch.testing.assert_close(d, 1 + a.float() @ b.float().T, atol=1e-4, rtol=1e-4)
    assert all(torch.equal(part, a) for part in copy)
    assert counts.tolist() == [256, 1, 8]


GUIDE_KERNEL = wmma_ops.Kernel((EXAMPLES / "guide_rocwmma.hip").read_text(), "product")


def check_guide(on: Machine):
    """The kernel as the guide writes one, four waves by three blocks of D, with lines longer than they need be."""
    a, b, c = torch.randn(64, 40).half(), torch.randn(48, 40).half(), torch.randn(64, 56)
    d = torch.full((64, 50), torch.nan)
    on.run(GUIDE_KERNEL, 1, (4 * on.wave, 3), 64, 48, 32, a, b, c, d, 40, 40, 56, 50, 2.0, 0.5)
    wanted = 2 * a[:, :32].double() @ b[:, :32].double().T + 0.5 * c[:, :48].double()
    torch.testing.assert_close(d[:, :48].double(), wanted, atol=1e-4, rtol=1e-5)
    assert d[:, 48:].isnan().all()


# _Float16 and __bf16 in fragments and behind pointers, and each type's fragments with the other name's pointers.
COMPILERS_TYPES_KERNEL = wmma_ops.Kernel(
    """
#include <wmma/fragment.hpp>
using namespace wmma;
template <class T, class Ours, int M, int K>
WMMA_DEVICE void product(const T* a, const T* b, T* d) {
  fragment<matrix_a, M, M, K, T, row_major> x;
  fragment<matrix_b, M, M, K, T, col_major> y;
  fragment<accumulator, M, M, K, T> z;
  fill_fragment(z, 1.0f);
  load_matrix_sync(x, a, 24);
  load_matrix_sync(y, b, 24);
  for (int i = 0; i < x.num_elements; ++i) x.x[i] = x.x[i] + x.x[i];
  mma_sync(z, x, y, z);
  store_matrix_sync(d, z, M, mem_row_major);

  fragment<matrix_a, M, M, K, Ours, row_major> p;
  fragment<matrix_b, M, M, K, Ours, col_major> q;
  fragment<accumulator_swapped, M, M, K, float> r, s;
  load_matrix_sync(p, a, 24);
  load_matrix_sync(q, b, 24);
  fill_fragment(r, 0.0f);
  mma_sync(r, p, q, r);
  const auto next = to_matrix_a<T, M>(r);
  fragment<matrix_b, M, M, M, T, row_major> unit;
  for (int i = 0; i < unit.num_elements; ++i) unit.x[i] = unit.row(i) == unit.col(i) ? 1.0f : 0.0f;
  fragment<accumulator, M, M, M, Ours> t;
  fill_fragment(t, 0.0f);
  mma_sync(t, next, unit, t);
  store_matrix_sync(d + M * M, t, M, mem_row_major);
}
extern "C" __global__ void products(const _Float16* a, const _Float16* b, _Float16* d, const __bf16* e, const __bf16* f,
                                    __bf16* g) {
  product<_Float16, half_t, 16, 16>(a, b, d);
  product<__bf16, bf16_t, 16, 24>(e, f, g);
  product<_Float16, half_t, 32, 24>(a, b, d + 512);
}""",
    "products",
)


def check_compilers_types(on: Machine):
    a, b = (torch.randn(32, 24).half() for _ in range(2))
    d, g = torch.full((2560,), torch.nan).half(), torch.full((512,), torch.nan).bfloat16()
    on.run(COMPILERS_TYPES_KERNEL, 1, on.wave, a, b, d, a.bfloat16(), b.bfloat16(), g)
    for got, m, k, source in ((d, 16, 16, torch.half), (g, 16, 24, torch.bfloat16), (d[512:], 32, 24, torch.half)):
        wanted = a.to(source)[:m, :k].double() @ b.to(source)[:m, :k].double().T
        unit = torch.finfo(source).eps
        for found, exact in zip(got[: 2 * m * m].view(2, m, m), (2 * wanted + 1, wanted), strict=True):
            torch.testing.assert_close(found.double(), exact, atol=4 * unit, rtol=2 * unit)


KERNELS = {"names": ROCWMMA_KERNEL, "guide": GUIDE_KERNEL}
