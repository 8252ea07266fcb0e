"""Masks of bool: which gradients go by sm_90a's warpgroups beside them, and how these look at them."""

import dataclasses

import pytest
import torch

from wmma_ops.analysis.figures import figures
from wmma_ops.hardware import arch
from wmma_ops.plan.attention.loops import warpgroup
from wmma_ops.plan.attention.loops.warpgroup_gradients import WarpgroupGradientsConfig
from wmma_ops.plan.attention.passes.mask_words import Hidden
from wmma_ops.plan.problem import AttentionNumbers
from wmma_ops.runtime import launching

SM_90A = "sm_90a"


def _problem(mask, heads=4, kv_heads=4, size=64, queries=192, dtype=torch.bfloat16, **rules):
    q, k = (torch.empty(2, n, length, size, dtype=dtype) for n, length in ((heads, queries), (kv_heads, 256)))
    lse = torch.empty(2, heads, queries)
    call = torch.ops.wmma._attention_backward
    (found,) = launching.problems(
        lambda: call(q, q, k, k, q.clone(), lse, mask, enable_gqa=heads != kv_heads, **rules), arch.target(SM_90A)
    )
    return found


def _mask(*shape, dtype=torch.bool):
    return torch.ones(shape, dtype=dtype)


@pytest.mark.parametrize(
    ("mask", "heads", "hides"),
    [
        (_mask(2, 1, 1, 256), (4, 4), Hidden.KEYS),
        (_mask(256), (4, 4), Hidden.KEYS),
        (_mask(2, 4, 1, 256), (4, 4), Hidden.KEYS),
        (_mask(2, 1, 1, 256).expand(2, 4, 192, 256), (4, 2), Hidden.KEYS),
        (_mask(2, 1, 1, 512)[..., ::2], (4, 4), Hidden.KEYS),
        (_mask(2, 4, 1, 256), (4, 2), Hidden.PAIRS),  # query heads that share keys may differ
        (_mask(2, 1, 192, 256), (4, 4), Hidden.PAIRS),
        (_mask(2, 1, 1, 256, dtype=torch.float32), (4, 4), None),
    ],
)
def test_the_plan_knows_them(mask, heads, hides):
    problem = _problem(mask, *heads)
    assert (problem.key_mask, problem.mask_queries) == (hides is Hidden.KEYS, hides is Hidden.PAIRS)
    plan = launching.plan_for(problem, arch.target(SM_90A))
    assert isinstance(plan.config, WarpgroupGradientsConfig) is (hides is not None)
    assert [launch.kernel for launch in plan.launches].count("attention_mask_words") == (hides is Hidden.PAIRS)


@pytest.mark.parametrize(
    ("rules", "goes"),
    [
        ({}, True),
        ({"window_left": 64}, False),  # of a row that is far from 0 all keys are summed up
        ({"window_right": 0}, False),
        ({"sinks": torch.zeros(4)}, False),
    ],
    ids=str,
)
def test_numbers_that_are_added_to_scores_of_all_keys(rules, goes):
    problem = _problem(_mask(192, 256, dtype=torch.bfloat16), **rules)
    plan = launching.plan_for(problem, arch.target(SM_90A))
    assert isinstance(plan.config, WarpgroupGradientsConfig) is goes
    assert ("attention_far_rows" in [launch.kernel for launch in plan.launches]) is goes


@pytest.mark.parametrize(
    ("mask", "copies"),
    [
        (_mask(192, 256), 1),
        (_mask(2, 1, 192, 256), 2),
        (_mask(4, 192, 256), 4),
        (_mask(2, 4, 192, 256), 8),
        (_mask(2, 1, 192, 256).expand(2, 4, 192, 256), 2),
    ],
)
def test_words_are_made_once_of_what_repeats(mask, copies):
    problem = _problem(mask)
    with_words, without = (
        launching.plan_for(one, arch.target(SM_90A)).workspace
        for one in (problem, dataclasses.replace(problem, mask=None, mask_queries=False))
    )
    tiles, keys = 2, 256 + 128
    assert with_words - without == copies * tiles * keys * 16


@pytest.mark.parametrize("queries", [pytest.param(1, marks=pytest.mark.full), 192])
@pytest.mark.parametrize("size", [64, pytest.param(80, marks=pytest.mark.full), 128])
def test_nothing_spills(size, queries):
    target = arch.target(SM_90A)
    for launch in launching.plan_for(_problem(_mask(2, 1, queries, 256), size=size), target).launches:
        found = figures(launch.compile(target), target, launch.block, launch.shared, launch.kernel)
        assert (found.spills, found.scratch_bytes) == (0, 0)


FORWARD = pytest.mark.parametrize(
    ("mask", "queries", "keys", "hides", "block_q"),
    [
        (_mask(2, 1, 1, 1024), 1024, 1024, Hidden.KEYS, 1536),  # a block of all queries, of few sizes
        (_mask(2, 1, 1, 1024), 2000, 1024, Hidden.KEYS, 3072),
        (_mask(2, 1, 1, 256), 1024, 256, Hidden.KEYS, 0),  # two tiles of keys
        (_mask(2, 1, 1024, 1024), 1024, 1024, Hidden.PAIRS, 192),
        (_mask(1024, 1024, dtype=torch.bfloat16), 1024, 1024, Hidden.NONE, 0),
    ],
)


def _forward(mask, queries, keys):
    target = arch.target(SM_90A)
    q, k = (torch.empty(2, 32, length, 64, dtype=torch.bfloat16) for length in (queries, keys))
    (problem,) = launching.problems(lambda: torch.ops.wmma.attention(q, k, k, mask), target)
    return problem, launching.plan_for(problem, target)


@FORWARD
def test_forward_leaves_out_tiles_that_are_hidden(mask, queries, keys, hides, block_q):
    problem, plan = _forward(mask, queries, keys)
    assert warpgroup.hidden(problem, plan.config) is hides
    assert plan.numbers[AttentionNumbers._fields.index("block_q")] == block_q
    assert (plan.launches[0].kernel == "attention_mask_words") is (hides is Hidden.PAIRS or block_q > 0)


@pytest.mark.full
@FORWARD
def test_nothing_spills_forward(mask, queries, keys, hides, block_q):
    target = arch.target(SM_90A)
    for launch in _forward(mask, queries, keys)[1].launches:
        found = figures(launch.compile(target), target, launch.block, launch.shared, launch.kernel)
        assert (found.spills, found.scratch_bytes) == (0, 0)


@pytest.mark.parametrize("mask", [_mask(2, 1, 1, 8192), _mask(2, 1, 64, 8192), _mask(64, 8192, dtype=torch.bfloat16)])
@pytest.mark.parametrize("heads", [(4, 4), (8, 2)])
def test_few_rows_read_a_mask_as_it_is(mask, heads):
    target = arch.target(SM_90A)
    q, k = (torch.empty(2, n, length, 64, dtype=torch.bfloat16) for n, length in zip(heads, (64, 8192), strict=True))
    call = torch.ops.wmma.attention
    (problem,) = launching.problems(lambda: call(q, k, k, mask, enable_gqa=heads[0] != heads[1]), target)
    config = launching.plan_for(problem, target).config
    assert config.splits > 1 or config.packed > 1
    assert warpgroup.hidden(problem, config) is Hidden.NONE
    assert not warpgroup.reads_pairs(problem, config)
