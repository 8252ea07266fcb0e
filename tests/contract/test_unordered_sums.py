"""Sums in any order where users allow it: attention's gradients by one kernel, whose blocks add to those of the queries
(kernels/wmma/attention/gradients/dq_partials.hpp), also of fewer rows than the planner has it for; and such kernels
that are wrong on purpose."""

from dataclasses import dataclass

import pytest
import torch
from gradient_loops import are_right, check_no_number_reaches_what_it_sees_alone, planned, taking_any_rows
from planted import Planted, check_is_caught, check_that_each_stands_once
from test_attention_backward import Case, gradients, operands

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.attention.loops import interleaved_gradients

FOLDER = "wmma/attention"
TARGETS = ("gfx90a", "gfx942", "gfx950")
# One tile of queries, two, several; whole and ragged ones; keys that end within a block; several blocks of them; several
# heads of queries to one of keys; a batch; scales of each sign and none; keys that no query sees.
CASES = (
    Case(32, 33, 128, 128, "bfloat16", heads=1, kv_heads=1),
    Case(64, 70, 64, 64),
    Case(140, 290, 128, 128, "bfloat16", heads=1, kv_heads=1, scale=0.5),
    Case(70, 150, 64, 64, kv_heads=1),
    Case(150, 135, 128, 64, "bfloat16", kv_heads=1, causal="top_left", scale=-0.3, lse=True, layout="bshd"),
    Case(70, 140, 64, 64, "bfloat16", heads=4, kv_heads=2, batch=2, causal="top_left", lse=True),
    Case(33, 64, 128, 128, scale=0.0, causal="bottom_right"),
)


@pytest.fixture
def unordered():
    wmma_ops.allow_unordered_sums()
    yield
    wmma_ops.allow_unordered_sums(False)


@pytest.fixture
def any_rows(monkeypatch, unordered):
    yield from taking_any_rows(monkeypatch, interleaved_gradients, "storing_dq")


@pytest.mark.parametrize("half", range(2))
@pytest.mark.parametrize("target", TARGETS)
def test_half_of_the_values(target, half, any_rows):
    for case in CASES[half::2]:
        are_right(case, target)
    assert any_rows
    assert all(any_rows)


@pytest.mark.parametrize("target", TARGETS)
def test_right_in_any_order_of_the_waves(target, any_rows):
    case = Case(100, 140, 64, 64, "bfloat16", heads=2, kv_heads=1, causal="bottom_right")
    given = operands(case)
    with wmma_ops.emulate(target):
        first = gradients(case, *given)
    with wmma_ops.emulate(target, order="random", seed=3):
        again = gradients(case, *given)
    assert all(torch.equal(x, y) for x, y in zip(first[1:], again[1:], strict=True))  # of keys and values
    torch.testing.assert_close(again[0], first[0])
    assert all(any_rows)


@pytest.mark.parametrize("target", TARGETS)
def test_a_query_that_is_no_number_reaches_what_it_sees_alone(target, any_rows):
    check_no_number_reaches_what_it_sees_alone(target, 128)
    assert all(any_rows)


@pytest.mark.parametrize("target", arch.EMULATED)
def test_where_keys_give(target, unordered):
    for sizes, wanted in (
        ({}, True),
        ({"e": 64, "ev": 64, "dtype": torch.float16, "is_causal": 1}, True),
        ({"ev": 64}, True),
        ({"e": 64}, False),  # a wave has no whole tile of what they give
        ({"e": 96, "ev": 96}, False),
        ({"rows": 64}, False),
        ({"dtype": torch.float32}, False),
    ):
        plan = planned(target, **sizes)
        stores, fixed = (getattr(plan.config.kernels[-1], name, False) for name in ("stores_dq", "fixed"))
        assert stores == (len(plan.config.kernels) == 1) == (wanted and target in TARGETS), sizes
        assert ("partial sums for their queries" in str(plan.config)) == stores
        assert not fixed


def test_only_where_it_is_allowed():
    def is_fixed():
        return planned("gfx942").config.kernels[-1].fixed

    assert is_fixed()
    wmma_ops.allow_unordered_sums()
    try:
        assert not is_fixed()
        torch.use_deterministic_algorithms(True)
        try:
            assert is_fixed()
        finally:
            torch.use_deterministic_algorithms(False)
        assert not is_fixed()
    finally:
        wmma_ops.allow_unordered_sums(False)
    assert is_fixed()


@dataclass(frozen=True)
class Wrong(Planted):
    case: Case = CASES[1]


SEVERAL = CASES[3]  # tiles of queries
GIFTS, LOOP, GROUPS, TILES, DELTA = (
    f"{name}.hpp"
    for name in (
        "gradients/dq_partials",
        "loops/interleaved_gradients",
        "gradients/interleaved_groups",
        "gradients/tiles",
        "passes/delta",
    )
)
WRONG = (
    Wrong(
        "keys_beyond_the_last",
        GIFTS,
        "const int there = static_cast<int>(place.rows) - first_row;",
        "const int there = kKeys;",
    ),
    Wrong("another_keys_slope", GIFTS, "key % 8 * static_cast", "(key ^ 1) % 8 * static_cast"),
    Wrong("sums_that_do_not_start", GIFTS, "if (step == 0) {", "if (false) {", SEVERAL),
    Wrong("the_tile_before", GIFTS, "      to_ = next_;\n", "", SEVERAL),
    Wrong("another_waves_columns", GIFTS, "wave_ % Places::kColumnTiles * Link::kRows);", "0);"),
    Wrong("rows_that_the_tile_before_has", GIFTS, "if (query < at) return;", "", SEVERAL),
    Wrong("no_scale", GIFTS, "Number scale = static_cast<Number>(p.scale);", "Number scale(1);"),
    Wrong(
        "given_while_the_next_are_multiplied",
        GROUPS,
        "kDqProductsEnd = kBefore + kValues;",
        "kDqProductsEnd = Groups::kCount;",
        SEVERAL,
    ),
    Wrong("the_last_is_not_given", LOOP, "    if constexpr (Config::kStoresDq) dq_.store_all();\n", ""),
    Wrong("the_first_heads_gifts_again", TILES, "dq_ += wraps ? head_dq() : 0", "dq_ += 0", SEVERAL),
    Wrong("nothing_is_cleared", DELTA, "at < words; at += step", "at < 0; at += step"),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / FOLDER, WRONG)


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources, any_rows):
    check_is_caught(of, sources / FOLDER, lambda: are_right(of.case, "gfx942"))
