"""Gradients of attention by sm_90a's warpgroups that own rows: of heads wider than 128, and by any rules, beside a formula
in float64, and twice the same."""

import pytest
import torch
from masked_attention import check_far_below
from planted import Planted, check_is_caught, check_that_each_stands_once
from scored import BOTH, CAP, DOCUMENTS, EVEN, LEAST, NEAR, TABLE, Case, check, ours, results
from warpgroup_cases import needs_gpu

from wmma_ops.hardware import arch
from wmma_ops.plan.attention.loops.warpgroup_owners import WarpgroupOwnersConfig
from wmma_ops.runtime import launching

F16, BF16 = "float16", "bfloat16"
# More columns than both gradients of keys and values have registers for, whole boxes of them and not; tiles that end
# with the rows and not; as many tiles as places for them, fewer, more; heads that share keys; rows that see nothing.
WIDE = (
    Case(BF16, sq=64, skv=64, e=256, ev=256),
    Case(F16, sq=192, skv=128, e=256, ev=256),
    Case(BF16, heads=3, sq=300, skv=457, e=256, ev=256),
    Case(F16, heads=4, kv_heads=2, sq=257, skv=190, e=192, ev=128, causal="bottom_right"),
    Case(BF16, heads=4, kv_heads=1, sq=130, skv=700, e=256, ev=256, causal="top_left"),
    Case(BF16, sq=400, skv=100, e=160, ev=232, causal="bottom_right", scale=-0.3),
    Case(F16, sq=200, skv=333, e=256, ev=64, window=(70, 20)),
    Case(BF16, sq=333, skv=333, e=72, ev=200, window=(100, -1), causal="top_left"),
    Case(F16, sq=140, skv=350, e=256, ev=256, mask="bool"),
    Case(BF16, sq=140, skv=350, e=192, ev=192, mask="float", window=(90, 30)),
    Case(F16, heads=3, sq=140, skv=350, e=256, ev=256, softcap=5.0),
    Case(BF16, sq=140, skv=140, e=256, ev=256, softcap=5.0, window=(50, 0), dropout_p=0.2, slopes=True),
    Case(F16, sq=170, skv=350, e=256, ev=256, sinks=True, causal="bottom_right"),
    Case(BF16, TABLE, NEAR, sq=70, skv=75, e=256, ev=256),
)
# Of others what the kernel that adds to the gradients of queries has no rules for.
RULED = (
    Case(BF16, heads=3, sq=300, skv=457, e=64, ev=64, dropout_p=0.3),
    Case(F16, heads=4, kv_heads=2, sq=257, skv=190, e=128, ev=128, dropout_p=0.5, causal="bottom_right"),
    Case(BF16, sq=300, skv=200, e=128, ev=128, softcap=5.0, causal="top_left"),
    Case(F16, heads=4, kv_heads=2, sq=130, skv=350, e=64, ev=64, softcap=3.0, scale=-0.5, slopes=True),
    Case(BF16, sq=200, skv=340, e=96, ev=96, slopes=True, causal="bottom_right"),
    Case(F16, sq=200, skv=340, e=64, ev=128, mask="float", sinks=True, window=(90, 90)),
    Case(BF16, sq=140, skv=350, e=128, ev=128, mask="float"),
    Case(F16, CAP, NEAR, sq=133, skv=133, e=64, ev=64, softcap=4.0, sinks=True),
    Case(BF16, BOTH, EVEN, batch=(2, 3), apart=True, sq=100, skv=120, e=64, ev=64, mask="bool", dropout_p=0.3),
    Case(BF16, LEAST, sq=70, skv=90, e=64, ev=64, scale=0.4),
    Case(F16, None, DOCUMENTS, sq=133, skv=133, e=128, ev=128, causal="top_left", slopes=True, softcap=3.0),
)


def _check(case):
    got, again = (results(case, ours, device="cuda") for _ in "12")
    check(case, got)
    assert all(torch.equal(got[name], again[name]) for name in got)


@needs_gpu
@pytest.mark.parametrize("case", WIDE + RULED, ids=str)
def test_gradients(case):
    _check(case)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_rows_that_are_not_there_count_for_nothing_beside_scores_far_below_zero(dtype):
    check_far_below(dtype, 256)


def _kernels(case):
    q, k = (torch.empty(1, case.heads, n, case.e, dtype=torch.bfloat16) for n in (case.sq, case.skv))
    v, g = (torch.empty(1, case.heads, n, case.ev, dtype=torch.bfloat16) for n in (case.skv, case.sq))
    lse = torch.empty(1, case.heads, case.sq)
    call = torch.ops.wmma._attention_backward
    target = arch.target("sm_90a")
    (found,) = launching.problems(lambda: call(g, q, k, v, g.clone(), lse, softcap=case.softcap), target)
    plan = launching.plan_for(found, target)
    assert all(isinstance(config, WarpgroupOwnersConfig) for config in plan.config.kernels)
    return [(config.gives_first, config.gives_second) for config in plan.config.kernels]


def test_registers_decide_how_many_kernels_there_are():
    apart, together = [(True, False), (True, False), (False, True)], [(True, False), (True, True)]
    assert _kernels(WIDE[2]) == apart
    assert _kernels(Case(BF16, sq=200, skv=340, e=192, ev=128)) == apart
    assert _kernels(RULED[2]) == together


LOOP, ELEMENTS, QUERIES = "loops/warpgroup_owners.hpp", "gradients/elements.hpp", "gradients/lane_queries.hpp"
# None that may hang: what the queues count stays whole.
WRONG = (
    Planted("another_tiles_values", LOOP, "own_second, SecondTile::operand(queues.second.place(second))",
            "own_second, SecondTile::operand(queues.second.place(typename Second::Item(number + 1)))"),
    Planted("weights_for_slopes", LOOP, "pack_weights<T, kSums>(words, slopes)", "pack_weights<T, kSums>(words, weights)"),
    Planted("the_first_of_two_queries", QUERIES, "numbers_[f / 4 * 2 + f % 2]", "numbers_[f / 4 * 2]"),
    Planted("the_first_head_alone", LOOP, "p.k_map, work.place.batch, visit.other_head",
            "p.k_map, work.place.batch, work.begin(p).other_head"),
    Planted("passed_with_the_first_tile", LOOP, "(passed_at(passed), p, work.place.batch, visit.other_head, visit.at,",
            "(passed_at(passed), p, work.place.batch, visit.other_head, work.span.begin,"),
    Planted("the_other_warpgroups_rows", LOOP, "static_cast<int>(group) * kLines;", "static_cast<int>(1 - group) * kLines;"),
    Planted("a_slope_without_delta", ELEMENTS, "weight * (change - delta);", "weight * change;"),
    Planted("what_is_not_seen_counts", ELEMENTS, "if (kSelects && !inside) score = -Math::infinity();", ""),
    Planted("values_times_all_weights", ELEMENTS, "if constexpr (Rules::kDrops) drop(weight, keeps_it(f, rows));", ""),
)  # fmt: skip
NOT_THERE = Planted("every_row_is_there", LOOP, "visit.rows() < kOthers ||", "")
CAUGHT_BY = {
    "the_first_head_alone": WIDE[4],
    "values_times_all_weights": WIDE[11],
}


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma/attention", [*WRONG, NOT_THERE])


@needs_gpu
@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    check_is_caught(of, sources / "wmma/attention", lambda: _check(CAUGHT_BY.get(of.name, WIDE[3])))


@needs_gpu
def test_that_rows_are_not_there_is_caught(sources):
    check_is_caught(NOT_THERE, sources / "wmma/attention", lambda: check_far_below(torch.bfloat16, 256))
