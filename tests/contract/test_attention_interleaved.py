"""Attention's gradients by interleaved waves (kernels/wmma/attention/loops/interleaved_gradients.hpp) of two
kernels, also of fewer rows than the planner has them for; and such kernels that are wrong on purpose."""

from dataclasses import dataclass

import pytest
import torch
from gradient_loops import (
    are_right,
    by_two_kernels,
    check_no_number_reaches_what_it_sees_alone,
    check_out_may_lie_in_any_way,
    planned,
    taking_any_rows,
)
from orders import check_any_order
from planted import Planted, check_is_caught, check_that_each_stands_once
from test_attention_backward import Case, gradients, operands

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.attention.loops import interleaved_gradients

FOLDER = "wmma/attention"
TARGETS = ("gfx90a", "gfx942", "gfx950")
# One tile of the others, two, several; whole and ragged ones; more rows than a block; several heads of queries to one of
# keys; scales of each sign and none; keys that no query sees; head sizes that differ. Compiling takes longest: several of a
# half share a kernel.
CASES = (
    Case(32, 33, 128, 128, "bfloat16", heads=1, kv_heads=1),
    Case(64, 70, 64, 64),
    Case(140, 97, 128, 128, "bfloat16", heads=1, kv_heads=1, scale=0.5),
    Case(40, 150, 64, 64, kv_heads=1),
    Case(100, 70, 64, 128, heads=4, causal="bottom_right"),
    Case(150, 135, 128, 64, "bfloat16", kv_heads=1, causal="top_left", scale=-0.3, lse=True, layout="bshd"),
    Case(70, 140, 64, 64, "bfloat16", heads=4, kv_heads=2, batch=2, causal="top_left", lse=True),
    Case(33, 64, 64, 64, scale=0.0),
)


@pytest.fixture(autouse=True)
def two_kernels(monkeypatch):
    yield from by_two_kernels(monkeypatch)


@pytest.fixture
def any_rows(monkeypatch):
    yield from taking_any_rows(monkeypatch, interleaved_gradients)


@pytest.mark.parametrize("half", range(2))
@pytest.mark.parametrize("target", TARGETS)
def test_half_of_the_values(target, half, any_rows):
    for case in CASES[half::2]:
        are_right(case, target)
    assert len(any_rows) >= len(CASES)
    assert all(any_rows)


@pytest.mark.parametrize("target", TARGETS)
def test_a_query_that_is_no_number_reaches_what_it_sees_alone(target, any_rows):
    check_no_number_reaches_what_it_sees_alone(target, 64)
    assert all(any_rows)


@pytest.mark.parametrize("target", TARGETS)
def test_the_same_bits_in_any_order_of_the_waves(target, any_rows):
    case = Case(100, 140, 64, 64, "bfloat16", heads=2, kv_heads=1, causal="bottom_right")
    given = operands(case)

    def compute(**how):
        with wmma_ops.emulate(target, **how):
            return gradients(case, *given)

    check_any_order(compute, seeds=(3, 4))
    assert all(any_rows)


@pytest.mark.parametrize("target", arch.EMULATED)
def test_who_is_interleaved(target):
    """That nobody spills for it is a limit of `python -m wmma_ops report`."""
    for dtype, e, rows, mask, wanted in (
        (torch.bfloat16, 128, 256, False, True),
        (torch.float16, 64, 100, False, True),
        (torch.bfloat16, 96, 256, False, False),
        (torch.bfloat16, 256, 256, False, False),
        (torch.float32, 64, 256, False, False),
        (torch.bfloat16, 128, 64, False, False),
        (torch.bfloat16, 128, 256, True, False),
    ):
        config = planned(target, e, e, rows, dtype, mask).config
        taken = [owner.LOOP == "interleaved_gradients" for owner in config.kernels]
        assert set(taken) == {wanted and target in TARGETS}, (dtype, e, rows)


@pytest.mark.parametrize("target", TARGETS)
def test_out_may_lie_in_any_way(target):
    check_out_may_lie_in_any_way(target, 64)


@dataclass(frozen=True)
class Wrong(Planted):
    case: Case = CASES[3]
    target: str = "gfx942"


CAUSAL = CASES[4]
SEVERAL, GFX950 = CASES[2], "gfx950"
LOOP, GROUPS, PARTS, DIRECT = (
    f"{name}.hpp"
    for name in (
        "loops/interleaved_gradients",
        "gradients/interleaved_groups",
        "rows/registers",
        "gradients/interleaved_direct",
    )
)
TILES, SCORES, WEIGHTS = (
    f"{name}.hpp" for name in ("gradients/tiles", "gradients/scores", "gradients/interleaved_weights")
)
WRONG = (
    Wrong(
        "no_barrier_between_phases",
        "../tile/chain_link.hpp",
        "void end_phase() {",
        "void end_phase() {\n  return;",
    ),
    Wrong(
        "reads_the_next_phase_too_soon", LOOP, "i + Groups::kAhead < kEnd) {", "i + Groups::kAhead < Groups::kCount) {"
    ),
    Wrong("turned_rows_of_another_tile", LOOP, "      now = next;\n", "      now = fetched;\n"),
    Wrong(
        "weights_before_the_others_are_used",
        LOOP,
        "weigh<Groups::kBefore + i>();",
        "weigh_rest<Groups::kBefore + i>();",
    ),
    Wrong("rows_that_are_not_stored", GROUPS, "kAfter - kSettle - 2;", "2 * kAfter;"),
    Wrong("turned_rows_stored_behind_their_barrier", GROUPS, "kBefore - kSettle - 3;", "kBefore;"),
    Wrong("scores_start_too_soon", LOOP, "i == Groups::kNextStart", "i == 0"),
    Wrong("skips_nothing", TILES, "tile.skipped = at_ - tile.row;", "tile.skipped = 0;"),
    Wrong("the_first_heads_g_out_again", TILES, "(wraps ? p_.g_out.head_stride : 0)", "0"),
    Wrong("the_first_heads_lse_again", TILES, "(wraps ? p_.lse.head_stride : 0)", "0"),
    Wrong("sees_a_key_more", SCORES, "Sight::sees(p_, query, kOwns", "Sight::sees(p_, query + 1, kOwns", CAUSAL),
    Wrong("sums_in_another_order", WEIGHTS, "word = f % Link::kShare / 2;", "word = 3 - f % Link::kShare / 2;"),
    Wrong(
        "a_delta_that_is_not_told", PARTS, "[place.offset(p.delta, row)] = sum;", "[place.offset(p.delta, row)] = 0;"
    ),
    Wrong("no_gradient_of_lse", PARTS, "p.g_lse.data != nullptr", "false", CASES[5]),
    Wrong("relative_to_no_delta", WEIGHTS, "-fetched_[1];", "0;"),  # Of tiles that go straight to shared memory.
    Wrong("copies_that_nobody_waits_for", LOOP, "      places_.template wait<kLeft>();\n", "", SEVERAL, GFX950),
    Wrong("one_copy_less_is_waited_for", LOOP, "? Link::kElements : 0;", "? Link::kElements : 1;", SEVERAL, GFX950),
    Wrong(
        "copies_over_what_is_read",
        DIRECT,
        "places.next() * Tile::kBytes",
        "places.before() * Tile::kBytes",
        SEVERAL,
        GFX950,
    ),
    Wrong("a_place_that_does_not_turn", DIRECT, "    before_ = now_;\n", "", SEVERAL, GFX950),
    Wrong("a_place_too_few", DIRECT, "    next_ = free;\n", "    next_ = before_;\n", SEVERAL, GFX950),
    Wrong(
        "the_same_four_lines_again",
        "../tile/transposed_columns.hpp",
        "Tile::offset(line + 4, chunk)",
        "Tile::offset(line, chunk)",
        target=GFX950,
    ),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / FOLDER, WRONG)


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources, any_rows):
    check_is_caught(of, sources / FOLDER, lambda: are_right(of.case, of.target))
