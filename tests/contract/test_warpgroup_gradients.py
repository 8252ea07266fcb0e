"""Attention's gradients on sm_90a as ptxas makes them: products of warpgroups stay under way, registers hold all."""

import pytest
import torch
from planted import Planted, check_that_each_stands_once

from wmma_ops.analysis.figures import figures
from wmma_ops.analysis.figures_record import limits
from wmma_ops.hardware import arch
from wmma_ops.runtime import launching

SM_90A = arch.target("sm_90a")


def _mask(*sizes: int, dtype: torch.dtype = torch.bool) -> torch.Tensor:
    return torch.ones(sizes, dtype=dtype)


KINDS = {
    "none": {},
    "causal": {"is_causal": 1},
    "window": {"is_causal": 1, "window_left": 128},
    "padding": {"mask": _mask(2, 1, 1, 512)},
    "pairs": {"mask": _mask(2, 1, 512, 512)},
    "numbers": {"mask": _mask(512, 512, dtype=torch.bfloat16)},
    "float32": {"mask": _mask(512, 512, dtype=torch.float32)},
    "slopes": {"alibi_slopes": torch.ones(4)},
    "dropout": {"dropout_p": 0.1, "dropout_seed": torch.zeros(1, dtype=torch.int64)},
    "cap": {"softcap": 20.0},
}
# Words that are spilled outside of what multiplies, at most; none where a kind is not named.
SPILLED = {(128, "cap"): 12, (128, "dropout"): 12, (256, "padding"): 4, (256, "pairs"): 4, (256, "cap"): 8}


def _found(size: int, kind: str) -> list:
    q = torch.empty(2, 4, 512, size, dtype=torch.bfloat16)
    call = torch.ops.wmma._attention_backward
    rules = dict(KINDS[kind])
    mask = rules.pop("mask", None)
    (problem,) = launching.problems(lambda: call(q, q, q, q, q, torch.empty(2, 4, 512), mask, **rules), SM_90A)
    return [
        figures(launch.compile(SM_90A), SM_90A, launch.block, launch.shared, launch.kernel)
        for launch in launching.plan_for(problem, SM_90A).launches
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [64, 128, 256])
def test_products_stay_under_way_and_registers_hold_all(size, kind):
    for found in _found(size, kind):
        assert not found.serialized, found
        assert found.spills <= SPILLED.get((size, kind), 0), found


FEW = Planted(
    "registers_are_few", "loops/warpgroup_owners.hpp", "kGroups == 1 ? 216 : 232;", "kGroups == 1 ? 216 : 192;"
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma/attention", [FEW])


def test_products_that_are_waited_for_one_by_one_are_seen(sources):
    FEW.plant(sources / "wmma/attention")
    found = [one for one in _found(256, "none") if one.serialized]
    assert found
    assert "ptxas waits for each of a warpgroup's products before the next" in limits(found[0])
    assert "products one by one" in str(found[0])
