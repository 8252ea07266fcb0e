"""What slices of the queries give the gradients of keys and values, added up (attention/passes/key_parts.hpp): the header
itself, run by the emulator."""

import pytest
import torch
from planted import Planted, check_is_caught

import wmma_ops

SOURCE = """
#include <wmma/tile/config.hpp>
#include <wmma/attention/passes/key_parts.hpp>

struct Config {
  using Element = wmma::bf16_t;
  static constexpr int kThreads = 128, kOutVec = VEC, kTileSums = 64;
};

WMMA_KERNEL(128, 2) void add(float* partial, wmma::bf16_t* g_k, wmma::bf16_t* g_v, int batch, int heads, int group,
                             int keys, int e, int ev, int slices, int apart) {
  wmma::MappedAttentionArguments p{};
  p.partial = partial;
  p.batch = batch;
  p.heads = heads;
  p.group = group;
  p.tiles = 3;
  p.skv = keys;
  p.e = e;
  p.ev = ev;
  p.query_slices = slices;
  p.g_k = {g_k, heads / group * keys * e * apart, keys * e * apart, e * apart, apart};
  p.g_v = {g_v, heads / group * keys * ev * apart, keys * ev * apart, ev * apart, apart};
  wmma::add_key_parts<Config>(p);
}
"""
# batch, heads, how many share keys, keys, sizes of both, slices
SIZES = [(2, 6, 3, 77, 64, 64, 5), (1, 4, 1, 130, 40, 72, 2), (3, 2, 2, 64, 128, 96, 16)]


def _check(vec, sizes):
    batch, heads, group, keys, e, ev, slices = sizes
    apart = 1 if vec > 1 else 3  # columns of a result
    before = -(-batch * heads * 3 // 32) * 32 + batch * heads * 3 * 64
    parts = torch.randn(batch * heads // group, slices, keys, e + ev)
    partial = torch.cat([torch.full((before,), torch.nan), parts.flatten()])
    g_k, g_v = (torch.zeros(batch, heads // group, keys, size, apart, dtype=torch.bfloat16) for size in (e, ev))
    kernel = wmma_ops.Kernel(SOURCE.replace("VEC", str(vec)), "add")
    columns = batch * heads // group * keys * (e + ev)
    with wmma_ops.emulate("gfx942"):
        kernel[-(-columns // 4 // 128), 128](partial, g_k, g_v, batch, heads, group, keys, e, ev, slices, apart)
    sums = parts.sum(1).unflatten(0, (batch, heads // group))
    for got, want in ((g_k, sums[..., :e]), (g_v, sums[..., e:])):
        torch.testing.assert_close(got[..., 0].float(), want, rtol=2**-7, atol=1e-4)
        assert not got[..., 1:].any()


@pytest.mark.parametrize("vec", [1, 2, 4, 8])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_all_slices_of_a_head_are_added_up(sizes, vec):
    _check(vec, sizes)


PARTS = "passes/key_parts.hpp"
WRONG = (
    Planted("a_slice_too_few", PARTS, "slice < p.query_slices; ++slice", "slice + 1 < p.query_slices; ++slice"),
    Planted("the_first_slice_always", PARTS, "from += of.head_stride", "from += 0"),
    Planted("keys_where_values_are", PARTS, "of_keys ? column : column - p.e", "column"),
)


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    assert (sources / "wmma/attention" / PARTS).read_text().count(of.old) == 1
    check_is_caught(of, sources / "wmma/attention", lambda: _check(8, SIZES[1]))
