"""Attention's gradients by one kernel, whose blocks add to those of the queries in whole numbers, which are the same in any
order (kernels/wmma/attention/gradients/fixed_point.hpp), also of fewer rows than the planner has it for; and such
kernels that are wrong on purpose."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from gradient_loops import are_right, check_no_number_reaches_what_it_sees_alone, planned, taking_any_rows
from orders import check_any_order
from planted import Planted, check_is_caught, check_that_each_stands_once
from test_attention_backward import Case, gradients, in_float64, operands
from test_unordered_sums import CASES, FOLDER, TARGETS

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.attention.loops import interleaved_gradients
from wmma_ops.testing.reference import unit

LSE = CASES[5]


@pytest.fixture
def any_rows(monkeypatch):
    yield from taking_any_rows(monkeypatch, interleaved_gradients, "storing_dq")


@pytest.mark.parametrize("half", range(2))
@pytest.mark.parametrize("target", TARGETS)
def test_half_of_the_values(target, half, any_rows):
    for case in CASES[half::2]:
        are_right(case, target)
    assert any_rows
    assert all(config.fixed for config in any_rows)


@pytest.mark.parametrize("target", TARGETS)
def test_the_same_bits_in_any_order_of_the_waves(target, any_rows):
    case = Case(70, 140, 64, 64, "bfloat16", heads=2, kv_heads=1, causal="bottom_right")
    given = operands(case)

    def compute(**how):
        with wmma_ops.emulate(target, **how):
            return gradients(case, *given)

    check_any_order(compute, seeds=(3, 4))
    assert all(any_rows)


@pytest.mark.parametrize("target", TARGETS)
def test_a_query_that_is_no_number_reaches_what_it_sees_alone(target, any_rows):
    check_no_number_reaches_what_it_sees_alone(target, 128)
    assert all(any_rows)


def rows_that_are_none(x: torch.Tensor) -> list[int]:
    return x.isnan().any(-1).flatten().nonzero().flatten().tolist()


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("target", TARGETS)
def test_a_key_that_is_no_number_reaches_what_sees_it_alone(target, any_rows):
    """Also an infinite one that leaves no weight, where a float's product with 0 is NaN. And a gradient of the result."""
    case = Case(70, 70, 64, 64, "bfloat16", heads=1, kv_heads=1, causal="top_left")
    for which, there, score in (("k", NAN, None), ("k", INF, -1.0), ("g", NAN, None)):
        (q, k, v), mask, g_out, g_lse = operands(case)
        with torch.no_grad():
            {"k": k, "g": g_out}[which][..., 40, 3] = there
            if score is not None:
                q[..., 3] = score
        g_q = gradients(case, (q, k, v), mask, g_out, g_lse, by=target)[0]
        assert rows_that_are_none(g_q) == ([40] if which == "g" else list(range(40, 70))), (which, there)
        if which != "g":
            before = [x[..., :40, :] for x in (q, k, v, g_out)]
            want = in_float64(case, before[:3], mask, before[3], g_lse)[0]
            torch.testing.assert_close(g_q[..., :40, :].double(), want, rtol=0.03, atol=0.03)
    assert all(any_rows)


def test_what_the_type_does_not_hold_is_no_number(any_rows):
    """g_S beyond float16, as where losses are multiplied by too much: no result looks as if it were one."""
    case = Case(70, 70, 64, 64, heads=1, kv_heads=1, scale=2.0**-6)
    (q, k, v), mask, g_out, g_lse = operands(case)
    with torch.no_grad():
        g_out[..., 7, :] *= 8192
        v *= 64
        k /= 2**13  # so that nothing that comes of products with them is beyond it
    g_q, g_k, _ = gradients(case, (q, k, v), mask, g_out, g_lse, by="gfx942")
    assert not g_k.isfinite().all()
    assert not g_q[..., 7, :].isfinite().any()
    assert all(any_rows)


def check_each_row(target: str, dtype: str, scale: Callable[[torch.Tensor], torch.Tensor], size: float = 1.0) -> None:
    """Each row's error, beside the largest of its own, by the two kernels and by one: g_out's rows times `scale` of their
    numbers, keys and values times `size`."""
    case = Case(70, 140, 64, 64, dtype, heads=2, kv_heads=1, causal="bottom_right")
    (q, k, v), mask, g_out, g_lse = operands(case)
    with torch.no_grad():
        g_out *= scale(torch.arange(case.sq)).to(g_out.dtype)[:, None]
        v *= size
        k *= size
        q /= size
    given = (q, k, v), mask, g_out, g_lse
    exact, own = (found(case, *given)[0].double() for found in (in_float64, gradients))
    got = gradients(case, *given, by=target)[0].double()
    largest = exact.abs().amax(-1)
    smallest = torch.finfo(g_out.dtype).smallest_normal
    error, theirs = ((x - exact).abs().amax(-1) for x in (got, own))
    assert (error <= 2 * theirs + 4 * unit(g_out.dtype) * largest + smallest).all(), (error / largest).max()
    assert (got[largest == 0] == 0).all()


@pytest.mark.parametrize("target", TARGETS)
def test_rows_of_any_size_are_as_exact_as_the_others(target, any_rows):
    """Of one tile, and rows of zeros among them."""
    check_each_row(target, "bfloat16", lambda i: torch.where(i % 7 == 3, 0.0, 2.0 ** (20 - 60 * (i % 5) / 4)))
    check_each_row(target, "float16", lambda i: torch.where(i % 7 == 3, 0.0, 2.0 ** (4 - (i % 5) * 3.0)))
    assert all(any_rows)


@pytest.mark.parametrize("size", [2.0**-30, 2.0**25])
def test_keys_and_values_of_any_size(size, any_rows):
    check_each_row("gfx942", "bfloat16", lambda i: 2.0 ** -(i % 5).float(), size)
    assert all(any_rows)
    assert all(any_rows)


@pytest.mark.parametrize("size", [2.0**-70, 2.0**70])
def test_sizes_whose_squares_are_no_floats(size, any_rows):
    check_each_row("gfx942", "bfloat16", lambda i: torch.full(i.shape, size))
    assert all(any_rows)


def test_a_key_and_a_value_that_are_larger_than_all_others(any_rows):
    """They are not among the first ones."""
    case = Case(70, 140, 64, 64, "bfloat16", heads=1, kv_heads=1)
    (q, k, v), *rest = operands(case)
    with torch.no_grad():
        q /= 64
        k[..., 90, :] *= 64
        v[..., 90, :] *= 2**14
    check_largest(case, (q, k, v), *rest)
    assert all(any_rows)


def test_gradients_of_lse_that_are_larger_than_all_else(any_rows):
    given = operands(LSE)
    check_largest(LSE, *given[:3], given[3] * 2.0**14)
    assert all(any_rows)


def check_largest(case: Case, *given) -> None:
    exact, own = (found(case, *given)[0].double() for found in (in_float64, gradients))
    got = gradients(case, *given, by="gfx942")[0].double()
    error, theirs = ((x - exact).abs().max() for x in (got, own))
    assert error <= 2 * theirs + 4 * unit(given[2].dtype) * exact.abs().max(), (error, theirs)


@pytest.mark.parametrize("target", arch.EMULATED)
def test_where_sums_are_fixed(target):
    for sizes, wanted in (
        ({}, True),
        ({"e": 64, "ev": 64, "dtype": torch.float16, "is_causal": 1}, True),
        ({"ev": 64}, True),
        ({"e": 64}, False),  # a wave has no whole tile of what keys give
        ({"e": 96, "ev": 96}, False),
        ({"rows": 64}, False),
        ({"dtype": torch.float32}, False),
        ({"rows": 2**14 + 64, "dtype": torch.float16}, False),  # too much would be rounded
    ):
        config = planned(target, **sizes).config
        fixed, stores = (getattr(config.kernels[-1], name, False) for name in ("fixed", "stores_dq"))
        assert fixed == stores == (wanted and target in TARGETS), sizes
        assert ("sums in fixed point" in str(config)) == fixed


@dataclass(frozen=True)
class Wrong(Planted):
    case: Case = CASES[1]


SEVERAL = CASES[3]
GIFTS, LOOP, FIXED, DELTA, TILES = (
    f"{name}.hpp"
    for name in (
        "gradients/dq_partials",
        "loops/interleaved_gradients",
        "gradients/fixed_point",
        "passes/delta",
        "gradients/tiles",
    )
)
WRONG = (
    Wrong("the_next_rows_size", TILES, "renewed(sizes_ + 4 * tile.row)", "renewed(sizes_ + 4 * tile.row + 4)"),
    Wrong("the_first_heads_sizes_again", TILES, "sizes_ += wraps ? 4 * p_.sq : 0", "sizes_ += 0", SEVERAL),
    Wrong("the_size_of_another_tile", GIFTS, "      factors_.put();\n", "", SEVERAL),
    Wrong("no_size_of_a_gradient_of_lse", DELTA, "detail::upper(size, fixed::size_of(g_lse))", "size"),
    Wrong("factors_of_other_sums", GIFTS, "Link::place(0, 4 * four)", "Link::place(0, 0)"),
    Wrong("no_inverse", GIFTS, "scale *= fixed::inverse_power(", "scale *= 1 + 0 * fixed::inverse_power("),
    Wrong(
        "the_first_shares_peaks",
        FIXED,
        "const int values = largest_of<arch::kWaveSize>(peaks[0]);",
        "const int values = uniform(peaks[0]);",
        SEVERAL,
    ),
    Wrong("no_mark_of_what_is_no_number", DELTA, "are_numbers ? 0u : fixed::kNaN", "0u"),
    Wrong("no_mark_of_keys", FIXED, "if (Sight::sees(p, row % p.sq, key)) marks", "if (false) marks"),
    Wrong(
        "keys_that_are_none", FIXED, "if (none != 0) arch::copy_bytes<16>(__b", "if (false) arch::copy_bytes<16>(__b"
    ),
    Wrong("no_mark_of_what_is_infinite", FIXED, "if (arch::ballot(!is_number(nothing)) != 0) *", "if (false) *"),
)


def check(case: Case, any_rows) -> None:
    are_right(case, "gfx942")
    test_a_key_that_is_no_number_reaches_what_sees_it_alone("gfx942", any_rows)
    test_what_the_type_does_not_hold_is_no_number(any_rows)
    test_a_key_and_a_value_that_are_larger_than_all_others(any_rows)
    test_gradients_of_lse_that_are_larger_than_all_else(any_rows)
    test_rows_of_any_size_are_as_exact_as_the_others("gfx942", any_rows)  # takes longest


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / FOLDER, WRONG)


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources, any_rows):
    check_is_caught(of, sources / FOLDER, lambda: check(of.case, any_rows))
