"""The script that asks FlashAttention's grids: a few cases of each, what it finds, what it covers."""

import argparse
import importlib.util
import itertools
from pathlib import Path

import grid_runs
import pytest
import torch
from planted import Planted, check_that_each_stands_once

import wmma_ops

SPEC = importlib.util.spec_from_file_location(
    "flash_attention_grids", Path(__file__).parents[1] / "flash_attention_grids.py"
)
grids = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(grids)
Case = grids.Case

HALF = torch.float16
PLAIN = Case("output", HALF, 32, (20, 40), 2, 4, 2, causal=False, local=False)
CACHE = Case("cache", HALF, 32, (3, 70), 2, 4, 2, causal=True, local=False, appended=("all", 1.0, False))


@pytest.mark.parametrize("grid", grids.GRIDS)
def test_a_grids_first_case_is_right(grid):
    for case in grids.cases(grid, small=True)[:1]:
        found = grids.ask(case)
        assert {"out"} <= {one.what for one in found}
        assert all(one.right for one in found), f"{found} of {case}"


def _changed(op, **new):
    """The op with arguments as functions of what they are."""
    before = getattr(wmma_ops, op)
    return op, lambda *args, **given: before(
        *args, **{name: new.get(name, lambda x: x)(x) for name, x in given.items()}
    )


def _scaled(x):
    """Its gradient is half as much again."""
    return x * 1.5 - (x * 0.5).detach()


def _wrong_gradient():
    before = wmma_ops.attention
    return "attention", lambda q, k, v, **given: before(q, _scaled(k), v, **given)


FAULTS = {
    "a window one key wider": (
        Case("causal", HALF, 32, (30, 40), 2, 4, 4, causal=True, local=False, ragged=True),
        lambda: _changed("varlen_attention", window_size=lambda x: (x[0], x[1] + 1)),
    ),
    "causal from the top left": (
        Case("causal", HALF, 32, (30, 40), 2, 4, 4, causal=True, local=False),
        lambda: _changed("attention", is_causal=lambda x: True),
    ),
    "another seed": (
        Case("output", HALF, 32, (30, 40), 2, 4, 4, causal=False, local=False, dropout=0.17),
        lambda: _changed("attention", dropout_seed=lambda x: x + 1),
    ),
    "no slopes": (
        Case("output", HALF, 32, (30, 40), 2, 4, 4, causal=False, local=False, alibi=True),
        lambda: _changed("attention", alibi_slopes=lambda x: None),
    ),
    "no cap": (
        Case("softcap", HALF, 32, (30, 40), 2, 4, 4, causal=False, local=False, softcap=50.0, large=(50.0, 1.0)),
        lambda: _changed("attention", softcap=lambda x: 0.0),
    ),
    "a gradient too large": (PLAIN, _wrong_gradient),
    "pages of a neighbour": (
        Case("cache", HALF, 32, (3, 70), 2, 4, 2, causal=False, local=False, page_size=16),
        lambda: _changed("varlen_attention", block_table=lambda x: x.roll(1, 0)),
    ),
    "a key too few": (CACHE, lambda: _changed("varlen_attention", seqused_k=lambda x: x - 1)),
    "other elements turned": (CACHE, lambda: _changed("kv_append", interleaved=lambda x: not x)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault, monkeypatch):
    case, change = FAULTS[fault]
    assert all(one.right for one in grids.ask(case))
    monkeypatch.setattr(wmma_ops, *change())
    assert not all(one.right for one in grids.ask(case))


@pytest.mark.full
def test_a_wrong_kernel_is_found(sources):
    """Emulated, and a window has a key more."""
    folder = sources / "wmma/attention"
    fault = Planted("window", "terms/row_mask.hpp", "return key >= begin_[i];", "return key + 1 >= begin_[i];")
    check_that_each_stands_once(folder, [fault])
    case = Case("causal", HALF, 32, (20, 40), 1, 2, 1, causal=True, local=True)
    assert all(one.right for one in grids.ask(case, "gfx942"))
    fault.plant(folder)
    assert not all(one.right for one in grids.ask(case, "gfx942"))


def test_it_says_so_and_fails(monkeypatch, capsys):
    monkeypatch.setattr(grids, "cases", lambda *_, **__: [PLAIN])
    assert grids.main(["--grid", "output"]) == 0
    monkeypatch.setattr(wmma_ops, *_wrong_gradient())
    assert grids.main(["--grid", "output"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[1] == "1 cases, 4 comparisons, 0 failed"
    assert told[2].startswith("WRONG dk: ")
    assert told[2].endswith(repr(PLAIN))
    assert told[-1] == "1 cases, 4 comparisons, 1 failed"


def test_what_is_not_a_number_is_not_right():
    assert not grids.Found("out", float("nan"), 1.0).right
    assert not grids.Found("out", 1.0, float("nan")).right


def test_values_occur_and_pairs_meet():
    axes = (0, 1), tuple("abcde"), (0, 1, 2), (None,)
    rows = list(grids.covering(axes, "values"))
    assert len(rows) == 5
    assert all(set(column) == set(axis) for column, axis in zip(zip(*rows, strict=True), axes, strict=True))
    rows = list(grids.covering(axes, "pairs"))
    assert len(rows) < 30
    for i, j in itertools.combinations(range(len(axes)), 2):
        assert {(row[i], row[j]) for row in rows} == set(itertools.product(axes[i], axes[j]))


def test_parts_are_the_whole():
    every = list(range(23))
    parts = [every[grid_runs.part(f"{number}/10")] for number in range(1, 11)]
    assert sorted(x for part in parts for x in part) == every
    for wrong in ("0/10", "11/10", "3", "a/b", "-1/2", "1/0"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no part"):
            grid_runs.part(wrong)
