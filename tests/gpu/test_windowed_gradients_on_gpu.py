"""Gradients of attention by a window, which sm_90a's warpgroups go through by tiles from one to another: beside float64, and
twice the same."""

import pytest
import torch
from masked_attention import BF16, F16, check_far_below, check_gradients
from on_gpu import matrix
from planted import Planted, check_is_caught, check_that_each_stands_once

import wmma_ops

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
# heads, those of keys, queries, keys, sizes of queries and values
SIZES = [
    (3, 3, 700, 700, 64, 64),
    (4, 2, 384, 1000, 64, 64),
    (2, 2, 1000, 300, 128, 128),
    (4, 1, 300, 555, 96, 64),
]
# left, right, is_causal
WINDOWS = [(100, 0, 0), (1, 0, 0), (63, 64, 0), (300, -1, 1), (200, 17, 0), (50, -1, 0), (2000, -1, 1), (-1, 40, 0)]


def _shown(queries, keys, left, right, is_causal):
    place = torch.arange(keys, device="cuda") - torch.arange(queries, device="cuda")[:, None] - (keys - queries)
    shown = torch.ones(queries, keys, dtype=torch.bool, device="cuda")
    if left >= 0:
        shown &= place >= -left
    if right >= 0:
        shown &= place <= right
    return shown & (place <= 0) if is_causal else shown


def _check(dtype, heads, kv_heads, queries, keys, size, value_size, windows=WINDOWS):
    q = matrix(2, heads, queries, size, dtype=dtype).requires_grad_()
    k, v = (matrix(2, kv_heads, keys, n, dtype=dtype).requires_grad_() for n in (size, value_size))
    g = matrix(2, heads, queries, value_size, dtype=dtype)
    padding = (torch.arange(keys, device="cuda") < torch.tensor([keys, keys - 70], device="cuda")[:, None])[
        :, None, None
    ]
    for left, right, is_causal in windows:
        for mask in (None,) if is_causal else (None, padding, padding & torch.ones(queries, 1, device="cuda").bool()):

            def gradients(left=left, right=right, is_causal=is_causal, mask=mask):
                options = {"window": (left, right), "is_causal": "bottom_right" if is_causal else False}
                out = wmma_ops.attention(q, k, v, mask=mask, enable_gqa=heads != kv_heads, **options)[0]
                return out, *torch.autograd.grad(out, [q, k, v], g)

            shown = _shown(queries, keys, left, right, is_causal)
            check_gradients(gradients, q, k, v, g, dtype, shown if mask is None else shown & mask)


@needs_gpu
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_gradients(sizes, dtype):
    _check(dtype, *sizes)


@needs_gpu
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_keys_that_are_not_there_count_for_nothing_beside_scores_far_below_zero(dtype):
    check_far_below(dtype, 64)


TEAMS, LOOP, TILES = (
    "balanced/gradient_teams.hpp",
    "loops/warpgroup_gradients.hpp",
    "tiles/warpgroup_gradient_tiles.hpp",
)
WRONG = (
    Planted("a_tile_too_few", TEAMS, "clamped(after + kQueries - 1,", "clamped(after - 1,"),
    Planted("every_query_behind", LOOP, "end[i] = after < end[i] ? after : end[i];", ""),
    Planted("one_query_more", LOOP, "static_cast<int>(x.p.rules.from) + 1;", "static_cast<int>(x.p.rules.from) + 2;"),
    Planted(
        "no_edge_in_the_tile",
        TILES,
        "ahead.last_key - kKeys + 1 < first_query",
        "false && ahead.last_key < first_query",
    ),
)


OF_KEYS = (
    Planted("keys_behind_the_last", LOOP, "row + before < x.p.skv ?", "true ?"),
    Planted("not_where_all_queries_are_there", TILES, "ahead.last_key >= p.skv ||", ""),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma/attention", WRONG + OF_KEYS)


@needs_gpu
@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    check_is_caught(of, sources / "wmma/attention", lambda: _check(BF16, *SIZES[0], windows=WINDOWS[:3]))


@needs_gpu
@pytest.mark.parametrize("of", OF_KEYS, ids=str)
def test_that_keys_are_not_there_is_caught(of, sources):
    check_is_caught(of, sources / "wmma/attention", lambda: check_far_below(BF16, 64))
