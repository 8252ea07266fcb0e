"""The script that asks what PyTorch asks of FlexAttention: a few cases of each grid, what it finds, what it covers."""

import contextlib
from unittest import mock

import flex_attention_grids as grids
import pytest
import torch

import wmma_ops


@pytest.mark.full
@pytest.mark.parametrize("grid", grids.GRIDS)
def test_a_grids_first_case_is_right(grid):
    found = grids.ask(grids.cases(grid, grids.EMULATED, in_all=False)[0])
    assert {one.what for one in found} == {"out", "lse", "dq", "dk", "dv"}
    assert all(one.right for one in found), found


def test_every_function_and_every_type_is_asked():
    asked = [case for grid in grids.GRIDS for case in grids.cases(grid, grids.CPU, in_all=False)]
    assert {case.score for case in asked} == set(grids.SCORES)
    assert {case.mask for case in asked} == {"all", *grids.MASKS}
    assert {(case.score, case.dtype) for case in asked if case.score in grids.BUILT_IN} >= {
        (name, dtype) for name in grids.BUILT_IN for dtype in grids.TYPES
    }
    in_all = [case for grid in grids.GRIDS for case in grids.cases(grid, grids.CPU, in_all=True)]
    assert set(asked) < set(in_all)
    assert len(in_all) == 3 * len(asked)


CAUSAL = grids.Case("masks", torch.float32, 2, 2, 40, 40, 16, 16, mask="causal")


@pytest.mark.parametrize(
    "change", [{"scale": 0.26}, {"score_mod": "grids_rel_bias"}, {"mask_mod": "grids_sliding_window"}, {"mask_mod": None}],
    ids=str,
)  # fmt: skip
def test_another_call_is_found(change):
    before = wmma_ops.attention

    def wrong(*args, **given):
        return before(*args, **{**given, **change})

    with contextlib.ExitStack() as wrongly:
        assert all(one.right for one in grids.ask(CAUSAL))  # right as it is
        wrongly.enter_context(mock.patch.object(wmma_ops, "attention", wrong))
        assert not all(one.right for one in grids.ask(CAUSAL))


@pytest.mark.full
def test_the_script_runs_and_says_what_it_did(capsys):
    assert grids.main(["--grid", "strides", "--count", "2", "--part", "1/2"]) == 0
    said = capsys.readouterr().out
    assert "not asked: max_scores" in said
    assert "2 cases, 10 comparisons, 0 failed" in said
