"""Attention and its gradients beside a mask of numbers, on a GPU: beside float64, and twice the same. Masks of 16 bits come
by pairs before their scores; of gradients' weights those of rows whose lse is far from 0 are summed up."""

import pytest
import torch
from masked_attention import BF16, F16, check, for_each_head
from planted import Planted, check_is_caught, check_that_each_stands_once

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
# heads, those of keys, queries, keys, sizes of queries and values
SIZES = [
    (3, 3, 300, 264, 64, 64),
    (4, 2, 128, 640, 64, 64),
    (2, 2, 65, 500, 128, 128),  # by four bytes
    (4, 1, 700, 128, 96, 64),
    (2, 2, 191, 130, 40, 72),
    (2, 2, 96, 129, 64, 64),  # one by one
    (2, 2, 1, 512, 64, 64),
]


def _masks(heads, queries, keys, dtype):
    def drawn(*shape):
        return torch.randn(shape, device="cuda", dtype=dtype)

    yield drawn(1, heads, queries, keys)  # as relative positions have it
    yield drawn(3, 1, queries, keys)
    yield drawn(3, heads, queries, keys)
    yield drawn(queries, keys)
    yield drawn(3, heads, 1, keys)
    yield drawn(3, heads, queries, 1)
    yield drawn(3, heads, queries, keys + 2)[..., 2:]
    yield drawn(3, heads, queries, keys + 3)[..., 3:]
    yield drawn(1, heads, keys, queries).mT
    least = torch.finfo(dtype).min
    hidden = drawn(3, 1, queries, keys).masked_fill(torch.rand(3, 1, queries, keys, device="cuda") < 0.3, least)
    hidden[1, :, queries // 3 :] = least  # such a row's weights are all the same
    yield hidden
    none = drawn(3, 1, queries, keys).masked_fill(torch.rand(3, 1, queries, keys, device="cuda") < 0.3, -torch.inf)
    none[1, :, : queries // 3] = -torch.inf
    yield none
    yield 3000 + drawn(1, heads, queries, 1).expand(1, heads, queries, keys)  # lse is far from 0


def _want(q, k, v, mask, g, g_lse):
    many_k, many_v = for_each_head(q, k, v)
    scores = q @ many_k.mT * q.shape[-1] ** -0.5 + mask.double()
    blind = (scores == -torch.inf).all(-1, keepdim=True)
    scores = torch.where(blind, 0.0, scores)
    weights = torch.where(blind, 0.0, torch.softmax(scores, -1))
    out = weights @ many_v
    # lse's gradient is the weights: torch has them of a difference of which nothing is left beside the least number.
    lse = (weights.detach() * scores.clamp(min=-1e300)).sum(-1)
    return out, torch.autograd.grad([out, lse], [q, k, v], [g, g_lse])


def _check(dtype, heads, kv_heads, queries, keys, *sizes):
    check(_masks(heads, queries, keys, dtype), _want, dtype, heads, kv_heads, queries, keys, *sizes)


@needs_gpu
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values_and_gradients(sizes, dtype):
    _check(dtype, *sizes)


LOOP, TILES, TERM = "loops/warpgroup_gradients.hpp", "tiles/warpgroup_tiles.hpp", "terms/mask.hpp"
FAR = "passes/far_rows.hpp"
WRONG = (
    Planted("half_of_the_keys_twice", LOOP, "lane / 16 * 8 + lane % 8, lane / 8 % 2)", "lane / 16 * 8 + lane % 8, 0)"),
    Planted(
        "keys_of_the_first_copy",
        LOOP,
        "from + query * of.row_stride + key, is_there",
        "from + query * of.row_stride, is_there",
    ),
    Planted("of_the_first_queries", LOOP, "+ tile.first_query * of.row_stride;", "+ 0;"),
    Planted("as_if_all_rows_were_near", LOOP, " * statistics[2 * kQueries];", ";"),
    Planted("no_row_is_far", FAR, "size >= kFar", "false"),
    Planted("without_products", FAR, "static_cast<float>(p.scale)", "0.0f"),
    Planted("another_head_is_read", TILES, "at.head % p.batch * heads_of(p) + at.head / p.batch", "at.head / 2"),
    Planted(
        "the_first_of_two_twice",
        TERM,
        "number_of_pair<Mask>(asked_[f / 2], f % 2)",
        "number_of_pair<Mask>(asked_[f / 2], 0)",
    ),
    Planted(
        "keys_of_the_first_eight",
        TERM,
        "rows_[Link::row_of(f)] + first_key + place",
        "rows_[Link::row_of(f)] + first_key",
    ),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma/attention", WRONG)


@needs_gpu
@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    check_is_caught(of, sources / "wmma/attention", lambda: _check(BF16, *SIZES[0]))
