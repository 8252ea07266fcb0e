"""Rows of four-bit elements, two to a byte, on their way to shared memory as wider ones."""

import pytest
import torch

import wmma_ops
from wmma_ops.hardware import arch

LINES, DEPTH, THREADS = 32, 64, 128
SOURCE = """
#include <wmma/tile/staged_loader.hpp>
using namespace wmma;
using Loader = StagedLoader<
    @STORAGE@, half_t, Order::kAlongK, @LINES@, @DEPTH@, @THREADS@, @VEC@, false, PlainStage<@STORAGE@, half_t>>;

// The two tiles of K, the second of which it does not fill.
extern "C" __global__ void load(const unsigned char* from, half_t* to, int rows, int k) {
  __shared__ alignas(16) unsigned char tile[Loader::Tile::kBytes];
  Loader loader(from, k, 1, rows, threadIdx.x, {});
  for (int first = 0; first < k; first += @DEPTH@) {
    const int limit = k - first < @DEPTH@ ? k - first : @DEPTH@;
    loader.fetch<true>(limit);
    loader.store<true>(tile, limit);
    loader.advance(@DEPTH@);
    sync_workgroup();
    for (int i = threadIdx.x; i < @LINES@ * @DEPTH@; i += @THREADS@) {
      const int line = i / @DEPTH@, byte = i % @DEPTH@ * 2;
      to[line * 2 * @DEPTH@ + first + i % @DEPTH@] =
          *reinterpret_cast<const half_t*>(tile + Loader::Tile::offset(line, byte / 16) + byte % 16);
    }
    sync_workgroup();
  }
}
"""


@pytest.mark.parametrize("vec", [8, 32])
@pytest.mark.parametrize(("storage", "least"), [("int4_t", -8), ("uint4_t", 0)])
@pytest.mark.parametrize("target", arch.EMULATED)
def test_rows_of_four_bits(target, storage, least, vec):
    rows, k = 21, 96
    values = torch.randint(least, least + 16, (rows, k), generator=torch.Generator().manual_seed(vec))
    packed = ((values[:, 0::2] & 15) | (values[:, 1::2] & 15) << 4).to(torch.uint8)
    source = SOURCE
    for name, value in {"STORAGE": storage, "LINES": LINES, "DEPTH": DEPTH, "THREADS": THREADS, "VEC": vec}.items():
        source = source.replace(f"@{name}@", str(value))
    out = torch.full((LINES, 2 * DEPTH), float("nan"), dtype=torch.float16)
    kernel = wmma_ops.Kernel(source, "load")
    with wmma_ops.emulate(target):
        kernel[1, THREADS](packed, out, rows, k)
    assert torch.equal(out[:rows, :k].long(), values)
    assert not out[:rows, k:].any()  # beyond K there is nothing
    assert torch.equal(out[rows:, :k].long(), values[-1:].expand(LINES - rows, k))  # and beyond the rows the last one
