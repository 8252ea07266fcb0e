"""Masks that say of each key that it is there, as padding does: which gradients go by sm_90a's warpgroups for them."""

import pytest
import torch

from wmma_ops.analysis.figures import figures
from wmma_ops.hardware import arch
from wmma_ops.plan.attention.loops.warpgroup_gradients import WarpgroupGradientsConfig
from wmma_ops.runtime import launching

SM_90A = "sm_90a"


def _problem(mask, heads=4, kv_heads=4, size=64, queries=192, dtype=torch.bfloat16):
    q, k = (torch.empty(2, n, length, size, dtype=dtype) for n, length in ((heads, queries), (kv_heads, 256)))
    lse = torch.empty(2, heads, queries)
    call = torch.ops.wmma._attention_backward
    (found,) = launching.problems(
        lambda: call(q, q, k, k, q.clone(), lse, mask, enable_gqa=heads != kv_heads), arch.target(SM_90A)
    )
    return found


def _mask(*shape, dtype=torch.bool):
    return torch.ones(shape, dtype=dtype)


@pytest.mark.parametrize(
    ("mask", "heads", "is_of_keys"),
    [
        (_mask(2, 1, 1, 256), (4, 4), True),
        (_mask(256), (4, 4), True),
        (_mask(2, 4, 1, 256), (4, 4), True),
        (_mask(2, 1, 1, 256).expand(2, 4, 192, 256), (4, 2), True),
        (_mask(2, 1, 1, 512)[..., ::2], (4, 4), True),
        (_mask(2, 4, 1, 256), (4, 2), False),  # query heads that share keys may differ
        (_mask(2, 1, 192, 256), (4, 4), False),
        (_mask(2, 1, 1, 256, dtype=torch.bfloat16), (4, 4), False),
    ],
)
def test_the_plan_knows_them(mask, heads, is_of_keys):
    problem = _problem(mask, *heads)
    assert problem.key_mask is is_of_keys
    plan = launching.plan_for(problem, arch.target(SM_90A))
    assert isinstance(plan.config, WarpgroupGradientsConfig) is is_of_keys


@pytest.mark.parametrize("size", [64, 80, 128])
def test_nothing_spills(size):
    target = arch.target(SM_90A)
    for launch in launching.plan_for(_problem(_mask(2, 1, 1, 256), size=size), target).launches:
        found = figures(launch.compile(target), target, launch.block, launch.shared, launch.kernel)
        assert (found.spills, found.scratch_bytes) == (0, 0)
