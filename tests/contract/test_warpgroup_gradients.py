"""Attention's gradients on sm_90a as ptxas makes them: products of warpgroups stay under way, registers hold all."""

import pytest
import torch
from planted import Planted, check_that_each_stands_once

from wmma_ops.analysis.figures import figures
from wmma_ops.analysis.figures_record import limits
from wmma_ops.hardware import arch
from wmma_ops.runtime import launching

SM_90A = arch.target("sm_90a")
_HEADS, _FEW_HEADS = 20, 4  # with keys for all units, and without


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
    "slopes": {"alibi_slopes": torch.ones(_HEADS)},
    "dropout": {"dropout_p": 0.1, "dropout_seed": torch.zeros(1, dtype=torch.int64)},
    "cap": {"softcap": 20.0},
}
# Words that are spilled outside of what multiplies, at most; none where a kind is not named.
SPILLED = {(128, "cap"): 12, (128, "dropout"): 12, (256, "padding"): 4, (256, "pairs"): 4, (256, "cap"): 8}


def _plan(size: int, rules: dict, heads: int = _HEADS, queries: int = 512):
    q, k = (torch.empty(2, heads, rows, size, dtype=torch.bfloat16) for rows in (queries, 512))
    call, lse = torch.ops.wmma._attention_backward, torch.empty(2, heads, queries)
    (problem,) = launching.problems(lambda: call(q, q, k, k, q, lse, **rules), SM_90A)
    return launching.plan_for(problem, SM_90A)


def _found(plan) -> list:
    return [
        figures(launch.compile(SM_90A), SM_90A, launch.block, launch.shared, launch.kernel) for launch in plan.launches
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [64, 128, 256])
def test_products_stay_under_way_and_registers_hold_all(size, kind):
    for found in _found(_plan(size, KINDS[kind])):
        assert not found.serialized, found
        assert found.spills <= SPILLED.get((size, kind), 0), found


MASKS = {
    "none": None,
    "padding": KINDS["padding"]["mask"],
    "pairs": _mask(2, 1, 4096, 512),
    "numbers": _mask(4096, 512, dtype=torch.bfloat16),
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("size", [64, 128])
def test_where_keys_are_too_few_for_all_units_blocks_have_slices_of_the_queries(size, kind):
    rules = {"mask": MASKS[kind]}
    plan = _plan(size, rules, _FEW_HEADS, 4096)
    assert plan.numbers.query_slices > 1
    assert plan.launches[-1].kernel == "attention_key_parts"
    for found in _found(plan):
        assert not found.serialized, found
        assert found.spills == 0, found
    assert _plan(size, rules, _HEADS, 4096).numbers.query_slices == 1


@pytest.mark.parametrize("kind", ["causal", "window"])
def test_queries_that_see_some_keys_stay_together(kind):
    assert _plan(128, KINDS[kind], _FEW_HEADS, 4096).numbers.query_slices == 1


@pytest.mark.parametrize(("kind", "does"), [("none", True), ("padding", True), ("float32", False), ("cap", True)])
def test_gradients_of_keys_wait_for_those_of_queries_where_they_read_what_these_find(kind, does):
    delta, *owners = _plan(256, KINDS[kind]).launches
    assert delta.kernel == "attention_delta"
    assert len(owners) == 3
    assert [launch.early for launch in owners] == [True] * 3
    assert ["kFollows = true" in launch.source for launch in owners] == [False, does, does]
    for launch in owners:
        assert "griddepcontrol.wait" in launch.compile(SM_90A).assembly


FEW = Planted(
    "registers_are_few", "loops/warpgroup_owners.hpp", "kGroups == 1 ? 216 : 232;", "kGroups == 1 ? 216 : 192;"
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma/attention", [FEW])


def test_products_that_are_waited_for_one_by_one_are_seen(sources):
    FEW.plant(sources / "wmma/attention")
    found = [one for one in _found(_plan(256, {})) if one.serialized]
    assert found
    assert "ptxas waits for each of a warpgroup's products before the next" in limits(found[0])
    assert "products one by one" in str(found[0])
