"""Attention's gradients by waves in lockstep (kernels/wmma/attention/loops/lockstep_gradients.hpp), also of fewer rows than
the planner has them for; and such kernels that are wrong on purpose."""

from dataclasses import dataclass

import pytest
import torch
from gradient_loops import (
    are_right,
    check_no_number_reaches_what_it_sees_alone,
    check_out_may_lie_in_any_way,
    planned,
    taking_any_rows,
)
from orders import check_any_order
from planted import Planted, check_that_each_stands_once
from test_attention_backward import Case, gradients, operands

from wmma_ops.hardware import arch
from wmma_ops.plan.attention.loops import lockstep_gradients

FOLDER = "wmma/attention"
TARGETS = ("gfx1100", "gfx1151", "gfx1200", "gfx1201")
# One tile of the others, two, several; whole and ragged ones; more rows than a block; several heads of queries to one of
# keys; scales of each sign and none; keys that no query sees. Compiling takes longest: several share a kernel.
CASES = (
    Case(32, 33, 128, 128, "bfloat16", heads=1, kv_heads=1),
    Case(64, 70, 64, 64),
    Case(40, 150, 64, 64, kv_heads=1),
    Case(140, 97, 128, 128, "bfloat16", heads=1, kv_heads=1, scale=0.5),
    Case(100, 70, 64, 64, heads=4, causal="bottom_right", kv_heads=2),
    Case(150, 135, 128, 128, kv_heads=1, causal="top_left", scale=-0.3, lse=True, layout="bshd"),
    Case(33, 64, 64, 64, scale=0.0),
)


@pytest.fixture
def any_rows(monkeypatch):
    yield from taking_any_rows(monkeypatch, lockstep_gradients)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_every_case_marches(target, case, any_rows):
    are_right(case, target)
    assert len(any_rows) >= 2
    assert all(any_rows)


@pytest.mark.parametrize("e", [64, 128])
@pytest.mark.parametrize("target", TARGETS)
def test_a_query_that_is_no_number_reaches_what_it_sees_alone(target, e, any_rows):
    check_no_number_reaches_what_it_sees_alone(target, e)
    assert all(any_rows)


@pytest.mark.parametrize("target", TARGETS)
def test_the_same_bits_in_any_order_of_the_waves(target, any_rows):
    case = Case(70, 100, 64, 64, "bfloat16", heads=1, kv_heads=1, causal="bottom_right")
    given = operands(case)
    check_any_order(lambda **how: gradients(case, *given, by=target, **how), seeds=(3, 4))
    assert all(any_rows)


@pytest.mark.parametrize("e", [64, 128])
@pytest.mark.parametrize("target", TARGETS)
def test_out_may_lie_in_any_way(target, e, any_rows):
    check_out_may_lie_in_any_way(target, e)
    assert all(any_rows)


@pytest.mark.parametrize("target", arch.EMULATED)
def test_who_marches(target):
    """That nobody spills for it is a limit of `python -m wmma_ops report`."""
    for dtype, e, ev, rows, mask, wanted in (
        (torch.bfloat16, 128, 128, 256, False, True),
        (torch.float16, 64, 64, 100, False, True),
        (torch.bfloat16, 64, 128, 256, False, False),
        (torch.bfloat16, 96, 96, 256, False, False),
        (torch.float32, 64, 64, 256, False, False),
        (torch.bfloat16, 128, 128, 64, False, False),
        (torch.bfloat16, 128, 128, 256, True, False),
    ):
        config = planned(target, e, ev, rows, dtype, mask).config
        owners = config.kernels  # Instinct's keys give alone
        assert {owner.LOOP == "lockstep_gradients" for owner in owners} == {wanted and target in TARGETS}, (
            dtype,
            e,
            rows,
        )
        assert len(owners) == 2 or target not in TARGETS


@dataclass(frozen=True)
class Wrong(Planted):
    case: Case = CASES[2]
    target: str = "gfx1201"


LOOP, ROWS, WEIGHTS = (
    f"{name}.hpp" for name in ("loops/lockstep_gradients", "gradients/lockstep_rows", "gradients/lockstep_weights")
)
SCORES, PARTS, LOADER = "gradients/scores.hpp", "rows/registers.hpp", "../tile/staged_loader.hpp"
FOLDS = "if constexpr (kShare < Link::kDepth)"
NEXT_TILE, ASKS = "      end_phase();\n      begin_tile();", "      weights_.fetch(next);\n"
WRONG = (
    Wrong("no_barrier_in_a_tile", LOOP, "if constexpr (i == Groups::kBefore - Groups::kAhead) end_phase();", ""),
    Wrong("no_barrier_between_tiles", LOOP, NEXT_TILE, "      begin_tile();"),
    Wrong("reads_the_next_tile_too_soon", LOOP, NEXT_TILE, "      begin_tile();\n      end_phase();"),
    Wrong("rows_that_were_not_asked_for", LOOP, "      others_.fetch(next);\n", ""),
    Wrong("the_other_operands_rows", ROWS, "tiles_ + (kSecond ? AlongTile", "tiles_ + (!kSecond ? AlongTile"),
    Wrong("turned_rows_of_the_other_operand", ROWS, "Start + (kSecond ? Transposed", "Start + (!kSecond ? Transposed"),
    Wrong("a_row_off", LOADER, "Across::offset(place.k + j,", "Across::offset((place.k + j) ^ 1,"),
    Wrong("statistics_of_the_tile_before", LOOP, ASKS, "      weights_.fetch(now);\n"),
    Wrong("statistics_stored_too_soon", LOOP, ASKS, f"{ASKS}      weights_.put();\n"),
    Wrong("relative_to_no_delta", WEIGHTS, "is_delta_ ? -fetched_", "is_delta_ ? Number(0)"),
    Wrong("queries_relative_to_no_delta", SCORES, "arch::unshared(-delta)", "arch::unshared(Number(0))"),
    Wrong(
        "a_delta_that_is_not_told", PARTS, "[place.offset(p.delta, row)] = sum;", "[place.offset(p.delta, row)] = 0;"
    ),
    Wrong("delta_of_half_a_row", PARTS, FOLDS, "if constexpr (false)"),
    Wrong("delta_of_a_row_twice", PARTS, FOLDS, "if constexpr (true)", target="gfx1100"),
    Wrong("no_gradient_of_lse", PARTS, "p.g_lse.data != nullptr", "false", CASES[5]),
    Wrong("slopes_of_no_weights", WEIGHTS, "g[f] *= p[f];", "g[f] *= Number(1);"),
    Wrong("all_of_a_ragged_tile_counts", SCORES, "bool inside = other >= tile.skipped;", "bool inside = true;"),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / FOLDER, WRONG)


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources, any_rows):
    of.plant(sources / FOLDER)
    with pytest.raises((RuntimeError, AssertionError)) as caught:
        are_right(of.case, of.target)
    assert "does not compile" not in str(caught.value)
