"""Attention and its gradients by a mask of bool, on a GPU: beside float64, and twice the same. Of masks that say the same to
all queries lanes vote, of others words are made first."""

import pytest
import torch
from masked_attention import BF16, F16, check, for_each_head
from planted import Planted, check_is_caught, check_that_each_stands_once

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
# heads, those of keys, queries, keys, sizes of queries and values
SIZES = [
    (3, 3, 300, 257, 64, 64),
    (4, 2, 128, 640, 64, 64),
    (2, 2, 65, 500, 128, 128),
    (4, 1, 700, 128, 96, 64),
    (2, 2, 191, 129, 40, 72),
]


def _masks(heads, kv_heads, queries, keys):
    yield from _of_keys(heads, kv_heads, keys)
    yield from _of_pairs(heads, queries, keys)


def _of_keys(heads, kv_heads, keys):
    lengths = torch.tensor([keys, keys // 2 + 3, 1], device="cuda")
    yield (torch.arange(keys, device="cuda") < lengths[:, None])[:, None, None]
    yield torch.rand(3, heads if heads == kv_heads else 1, 1, keys, device="cuda") < 0.5
    nothing_left = torch.rand(3, 1, 1, keys, device="cuda") < 0.5
    nothing_left[1] = False
    yield nothing_left.expand(3, heads, 1, keys)
    few = torch.zeros(3, 1, 1, keys, dtype=torch.bool, device="cuda")  # whole tiles are hidden before and behind
    for sequence, first in enumerate((0, keys // 2, keys - 3)):
        few[sequence, ..., first : first + 2] = True
    yield few
    yield torch.zeros(3, 1, 1, 2 * keys, dtype=torch.bool, device="cuda").bernoulli_(0.7)[..., ::2]


def _of_pairs(heads, queries, keys):
    def drawn(*shape):
        return torch.zeros(shape, dtype=torch.bool, device="cuda").bernoulli_(0.6)

    lengths = torch.tensor([keys, keys // 2 + 3, 1], device="cuda")
    places = torch.arange(keys, device="cuda")
    causal = places <= torch.arange(queries, device="cuda")[:, None] - 50
    yield causal & (places < lengths[:, None, None])[:, None]  # as a decoder's model with padding has it
    yield drawn(queries, keys)
    yield drawn(3, heads, queries, keys) & ((places < 100) | (places > 300))
    yield drawn(3, heads, 1, keys)  # heads that share keys may differ
    yield drawn(3, heads, queries, keys)
    yield drawn(1, heads, queries, keys)
    yield drawn(3, 1, queries, 1).expand(3, 1, queries, keys)
    yield drawn(3, 1, keys, queries).mT
    yield drawn(3, heads, queries, keys + 3)[..., 3:]
    some = drawn(3, 1, queries, 2 * keys)[..., ::2]
    some[:, :, queries // 2 :] = False
    yield some
    yield drawn(3, 1, queries, keys).to(torch.uint8).mul_(64).view(torch.bool)  # any byte but 0 is true


def _want(q, k, v, mask, g, g_lse):
    many_k, many_v = for_each_head(q, k, v)
    scores = (q @ many_k.mT * q.shape[-1] ** -0.5).masked_fill(mask.view(torch.uint8) == 0, -torch.inf)
    lse = torch.logsumexp(scores, -1)
    lse = torch.where(lse == -torch.inf, 0.0, lse)
    out = torch.exp(scores - lse[..., None]) @ many_v
    return out, torch.autograd.grad([out, lse], [q, k, v], [g, g_lse])


def _check(dtype, heads, kv_heads, queries, keys, *sizes):
    masks = _masks(heads, kv_heads, queries, keys)
    check(masks, _want, dtype, heads, kv_heads, queries, keys, *sizes)


@needs_gpu
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_gradients(sizes, dtype):
    _check(dtype, *sizes)


LOOP, TERM, WORDS = "loops/warpgroup_gradients.hpp", "terms/hidden.hpp", "passes/mask_words.hpp"
WRONG = (
    Planted("keys_of_another_head", LOOP, "p.mask, heads.batch, heads.first)", "p.mask, heads.batch, 0)"),
    Planted(
        "of_the_first_batch",
        LOOP,
        "matrix_of<const uint8_t>(x.p.mask, heads.batch",
        "matrix_of<const uint8_t>(x.p.mask, 0",
    ),
    Planted("a_key_further", LOOP, "mask[key * x.p.mask.column_stride]", "mask[(key ^ 1) * x.p.mask.column_stride]"),
    Planted("rows_of_another_wave", LOOP, "passed().of_wave[wave]", "passed().of_wave[wave ^ 1]"),
    Planted("every_key", LOOP, "inside && (shown >> Link::row(0, Link::row_of(f)) & 1) != 0", "inside"),
    Planted("words_of_another_head", LOOP, "+ tile.query_head * of.head_stride;", ";"),
    Planted("a_tile_further", LOOP, "bit_of(tile.first_query % LaneWords::kColumns)", "bit_of(0)"),
    Planted("of_one_lane", LOOP, "+ x.lane % LaneWords::kLanes", "+ 0"),
    Planted("every_query", LOOP, "inside && mask.shows(f)", "inside"),
    Planted("another_vote", TERM, "odd ? votes[3] : votes[1]", "odd ? votes[2] : votes[1]"),
    Planted("keys_of_another_place", TERM, "kAsked * lane * p.mask.column_stride", "kAsked * lane"),
    Planted("words_of_the_first_batch", TERM, "batch * p.words.batch_stride + head", "head"),
    Planted("words_of_the_first_tile", TERM, "static_cast<int64_t>(key / LaneWords::kColumns) * p", "0 * p"),
    Planted("bits_of_a_key_before", WORDS, "place_of(i + j)", "place_of(i)"),
    Planted("as_the_first_block_of_queries", WORDS, "row * blocks.row_stride)", "0)"),
    Planted("as_the_first_keys_of_a_block", WORDS, "LaneWords::kColumns + lane_id() * kKeys", "LaneWords::kColumns"),
    Planted("as_the_first_wave_of_a_block", WORDS, "is_there = is_there || any[wave];", "is_there = any[0];"),
    Planted("bits_of_a_query_before", WORDS, "place_of(first + i)", "place_of(first)"),
    Planted("a_byte_for_a_bool", WORDS, "four |= four >> 4;", ""),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma/attention", WRONG)


@needs_gpu
@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    check_is_caught(of, sources / "wmma/attention", lambda: [_check(BF16, *sizes) for sizes in (SIZES[0], SIZES[4])])
