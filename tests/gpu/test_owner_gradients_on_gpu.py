"""Gradients of attention by sm_90a's warpgroups that own rows: of heads wider than 128, by any rules, of packed sequences
and of block masks, beside a formula in float64, and twice the same."""

import re
from pathlib import Path

import packed_scored
import pytest
import scored
import torch
from masked_attention import check_far_below
from packed_scored import PackedCase
from planted import Planted, check_is_caught, check_that_each_stands_once
from scored import BOTH, CAP, DOCUMENTS, EVEN, LEAST, NEAR, TABLE, Case
from warpgroup_cases import needs_gpu

import wmma_ops
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
BLOCKS = (
    Case(F16, sq=500, skv=457, e=64, ev=64, blocks=(128, 128)),
    Case(BF16, None, NEAR, heads=4, kv_heads=2, sq=300, skv=333, e=128, ev=128, blocks=(128, 128), causal="top_left"),
    Case(BF16, None, DOCUMENTS, sq=400, skv=700, e=64, ev=64, blocks=(256, 128), dropout_p=0.3, blocks_alike=True),
    Case(F16, CAP, EVEN, batch=(2, 2), apart=True, sq=260, skv=260, e=192, ev=128, blocks=(128, 384), sinks=True),
    Case(BF16, heads=1, sq=70, skv=9000, e=64, ev=64, blocks=(128, 128)),  # more than are looked at at once
    Case(BF16, None, DOCUMENTS, heads=8, batch=(1,), sq=600, skv=600, e=64, ev=64),  # kernels find them
)
MANY, LENGTHS = (130, 64, 1, 0, 300, 77), (200, 64, 7, 9, 0, 500)  # neither starts where a tile does
PACKED = (
    PackedCase(BF16, queries=MANY, keys=MANY, e=64, ev=64, window=(-1, 0)),
    PackedCase(F16, queries=MANY, keys=LENGTHS, e=128, ev=128, beyond=70),
    PackedCase(BF16, queries=MANY, keys=LENGTHS, heads=4, kv_heads=2, e=128, ev=128, window=(-1, 0)),
    PackedCase(BF16, queries=MANY, keys=LENGTHS, heads=4, kv_heads=1, e=64, ev=64, window=(70, 20)),
    PackedCase(F16, queries=MANY, keys=MANY, used=(100, 64, 1, 0, 257, 13), e=96, ev=96),
    PackedCase(F16, queries=LENGTHS, keys=MANY, e=192, ev=128, window=(-1, 0)),
    PackedCase(BF16, queries=MANY, keys=LENGTHS, e=256, ev=256, softcap=4.0, sinks=True),
    PackedCase(BF16, queries=MANY, keys=MANY, e=64, ev=64, dropout_p=0.3, slopes=True, window=(90, 0)),
    PackedCase(F16, TABLE, EVEN, queries=MANY, keys=LENGTHS, e=64, ev=64),
    PackedCase(BF16, CAP, NEAR, queries=(400, 190), keys=(500, 390), e=64, ev=64, blocks=(128, 128)),
)


def _check(case):
    of = packed_scored if isinstance(case, PackedCase) else scored
    got, again = (of.results(case, of.ours, device="cuda") for _ in "12")
    of.check(case, got)
    assert all(torch.equal(got[name], again[name]) for name in got)


@needs_gpu
@pytest.mark.parametrize("case", WIDE + RULED + BLOCKS + PACKED, ids=str)
def test_gradients(case):
    _check(case)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_rows_that_are_not_there_count_for_nothing_beside_scores_far_below_zero(dtype):
    check_far_below(dtype, 256)


def _of_packed(lengths, strangers=(), e=64):
    """Gradients; what of these sequences is asked about is no number."""
    generator = torch.Generator("cuda").manual_seed(0)
    ends = torch.tensor([0, *lengths], dtype=torch.int32, device="cuda").cumsum(0, dtype=torch.int32)
    drawn = [torch.randn(sum(lengths), 2, e, device="cuda", generator=generator, dtype=torch.bfloat16) for _ in "qkvg"]
    for i in strangers:
        for x in drawn:
            x[ends[i] : ends[i + 1]] = torch.nan
    given = [x.requires_grad_() for x in drawn[:3]]
    out, _ = wmma_ops.varlen_attention(*given, ends, ends, max(lengths), max(lengths), window_size=(-1, 0))
    return [x.split(lengths) for x in torch.autograd.grad(out, given, drawn[3])]


def _check_strangers():
    lengths = (130, 70, 200, 40)
    for e in (64, 128, 256):
        for alone, beside in zip(_of_packed(lengths, e=e), _of_packed(lengths, (1, 3), e), strict=True):
            for i in (0, 2):
                assert torch.equal(alone[i], beside[i])


@needs_gpu
def test_sequences_know_nothing_of_each_other():
    _check_strangers()


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


def test_the_library_has_room_for_a_plans_launches():
    """Most of them: delta, each gradient by itself, what no sequence has."""
    x, lse, starts = (
        torch.empty(900, 2, 256, dtype=torch.bfloat16),
        torch.empty(2, 900),
        torch.zeros(5, dtype=torch.int32),
    )
    call, longest = torch.ops.wmma._varlen_attention_backward, {"max_q": 300, "max_k": 300}
    target = arch.target("sm_90a")
    (found,) = launching.problems(lambda: call(x, x, x, x, x.clone(), lse, starts, starts, **longest), target)
    plans = (Path(__file__).parents[2] / "wmma_ops/csrc/launch/plans.hpp").read_text()
    (most,) = re.findall(r"kMostLaunches = (\d+);", plans)
    assert 4 < len(launching.plan_for(found, target).launches) <= int(most)


LOOP, ELEMENTS, QUERIES = "loops/warpgroup_owners.hpp", "gradients/elements.hpp", "gradients/lane_queries.hpp"
# None that may hang: what the queues count stays whole.
WRONG = (
    Planted("another_tiles_values", LOOP, "own_second, SecondTile::operand(queues.second.place(second))",
            "own_second, SecondTile::operand(queues.second.place(typename Second::Item(number + 1)))"),
    Planted("weights_for_slopes", LOOP, "pack_weights<T, kSums>(words, slopes)", "pack_weights<T, kSums>(words, weights)"),
    Planted("the_first_of_two_queries", QUERIES, "numbers_[f / 4 * 2 + f % 2]", "numbers_[f / 4 * 2]"),
    Planted("the_first_head_alone", LOOP, "p.k_map, work.place.batch, visit.other_head",
            "p.k_map, work.place.batch, work.begin().other_head"),
    Planted("passed_with_the_first_tile", LOOP, "work.own, work.place.batch, visit.other_head, visit.at,",
            "work.own, work.place.batch, visit.other_head, work.span.begin,"),
    Planted("the_other_warpgroups_rows", LOOP, "static_cast<int>(group) * kLines;", "static_cast<int>(1 - group) * kLines;"),
    Planted("a_slope_without_delta", ELEMENTS, "weight * (change - delta);", "weight * change;"),
    Planted("what_is_not_seen_counts", ELEMENTS, "if (kSelects && !inside) score = -Math::infinity();", ""),
    Planted("values_times_all_weights", ELEMENTS, "if constexpr (Rules::kDrops) drop(weight, keeps_it(f, rows));", ""),
    Planted("rows_of_another_sequence", LOOP, "work.own_row(work.first_row + group * kLines)",
            "work.first_row + group * kLines"),
    Planted("others_of_another_sequence", LOOP, "= work.other_row(visit.at)", "= visit.at"),
    Planted("a_masked_block_is_whole", LOOP, "whole = visit.is_whole()", "whole = true"),
)  # fmt: skip
NOT_CLEARED = Planted(
    "strangers_come_along", LOOP, "if (visit.rows() < kOthers) clear_others", "if (false) clear_others"
)
NOT_THERE = Planted("every_row_is_there", LOOP, "visit.rows() < kOthers ||", "")
CAUGHT_BY = {
    "the_first_head_alone": WIDE[4],
    "values_times_all_weights": WIDE[11],
    "rows_of_another_sequence": PACKED[0],
    "others_of_another_sequence": PACKED[0],
    "a_masked_block_is_whole": BLOCKS[1],
}


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma/attention", [*WRONG, NOT_THERE, NOT_CLEARED])


@needs_gpu
@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    check_is_caught(of, sources / "wmma/attention", lambda: _check(CAUGHT_BY.get(of.name, WIDE[3])))


@needs_gpu
def test_that_rows_are_not_there_is_caught(sources):
    check_is_caught(NOT_THERE, sources / "wmma/attention", lambda: check_far_below(torch.bfloat16, 256))


@needs_gpu
def test_that_strangers_come_along_is_caught(sources):
    check_is_caught(NOT_CLEARED, sources / "wmma/attention", _check_strangers)
