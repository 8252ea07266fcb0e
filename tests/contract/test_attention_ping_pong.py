"""Attention by two groups of waves in turns (kernels/wmma/attention/loops/ping_pong.hpp), also of fewer rows than
the planner has them for."""

import pytest
import torch
from cut_weights import check_that_nothing_is_taken
from planted import Planted, check_that_each_stands_once

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.attention.loops import forward, ping_pong
from wmma_ops.runtime import launching
from wmma_ops.testing import AttentionCase, run

TARGETS = ("gfx90a", "gfx942", "gfx950")
# One tile of keys, two, several; ragged ones; more rows than a block; scores that grow by much from tile to tile.
# Compiling takes longest: several of a half share a kernel.
CASES = [
    AttentionCase(heads=1, sq=40, skv=5, e=64, dtype="float16"),
    AttentionCase(heads=1, sq=256, skv=64, e=128, dtype="bfloat16"),
    AttentionCase(heads=1, sq=300, skv=333, e=64, dtype="float16", scale=2.0),
    AttentionCase(heads=2, sq=130, skv=129, e=128, dtype="bfloat16", scale=2.0),
    AttentionCase(heads=4, kv_heads=2, sq=150, skv=200, e=72, ev=96, dtype="bfloat16", causal="bottom_right"),
    AttentionCase(heads=1, sq=270, skv=270, e=128, dtype="float16", causal="top_left", scale=1.0),
    AttentionCase(heads=1, sq=200, skv=70, e=32, dtype="bfloat16", causal="top_left", layout="bshd"),
    AttentionCase(heads=1, sq=140, skv=150, e=64, dtype="float16", mask="blind"),
    AttentionCase(heads=1, sq=140, skv=150, e=128, dtype="bfloat16", mask="float"),
    AttentionCase(heads=8, kv_heads=1, sq=30, skv=140, e=64, dtype="float16", mask="bool"),
]


@pytest.fixture
def any_rows(monkeypatch):
    """Turns are taken however few rows there are; which configurations took them."""
    taken, plan_of, takes = set(), forward.plan_of, ping_pong.supports

    def noting(problem, config, *others):
        taken.add(config)
        return plan_of(problem, config, *others)

    monkeypatch.setattr(ping_pong, "supports", lambda problem, target, rows: takes(problem, target, 1000))
    monkeypatch.setattr(forward, "plan_of", noting)
    torch.ops.wmma._forget_plans()
    yield taken
    torch.ops.wmma._forget_plans()


@pytest.mark.parametrize("half", range(2))
@pytest.mark.parametrize("target", TARGETS)
def test_half_of_the_values(target, half, any_rows):
    for case in CASES[half::2]:
        run(case, f"emulated:{target}")
    assert any_rows
    assert all(config.ping_pong for config in any_rows)


@pytest.mark.parametrize("target", arch.EMULATED)
def test_who_takes_turns(target):
    """Nobody spills for it, and the waves change their priority."""
    row = arch.target(target)
    for sq, dtype, shape, turns in (
        (256, torch.float16, (64,), True),
        (4096, torch.bfloat16, (128,), True),
        (4096, torch.bfloat16, (256,), False),
        (128, torch.bfloat16, (128,), False),
        (256, torch.float32, (64,), False),
    ):
        x = torch.empty(1, 64, sq, *shape, dtype=dtype)
        for is_causal in (False, True):
            (problem,) = launching.problems(lambda: wmma_ops.attention(x, x, x, is_causal=is_causal), row)  # noqa: B023
            taken = forward.plan(problem, row).config.ping_pong
            assert taken == (turns and target in TARGETS), (sq, dtype)
            if taken:
                launch = wmma_ops.explain("attention", x, x, x, is_causal=is_causal, target=target).launches[0]
                assert "s_setprio 1" in launch.assembly
                assert launch.figures.spills == 0


@pytest.mark.parametrize("order", ["reverse", "random"])
def test_waves_in_any_order(order):
    q, k, v = (torch.randn(1, 1, 256, 64).half() for _ in range(3))
    results = []
    for how in ("forward", order):
        with wmma_ops.emulate("gfx942", order=how, seed=5):
            results.append(wmma_ops.attention(q, k, v)[0])
    assert torch.equal(*results)


def test_a_row_follows_its_own_scores_only():
    """Whatever the largest scores of a wave's other rows are, a row's results are the same bits."""
    q, k, v = (torch.randn(1, 1, n, 64).half() for n in (160, 400, 400))
    with wmma_ops.emulate("gfx950"):
        calm = wmma_ops.attention(q, k, v)[0]
        q[:, :, 1::2] *= 30
        wild = wmma_ops.attention(q, k, v)[0]
    assert torch.equal(calm[:, :, ::2], wild[:, :, ::2])


def test_cutting_weights_off_takes_nothing_from_them():
    """At head size 64 on gfx942, where they take longer than products."""
    check_that_nothing_is_taken("gfx942")


WRONG = (
    Planted("weights_are_rounded", "loops/ping_pong.hpp", "Link::kShare, Wave::kCuts>", "Link::kShare>"),
    Planted("nothing_is_added", "softmax/rows.hpp", "kCuts ? least + kLogExcess * Math::kTwo", "kCuts ? least"),
    Planted(
        "what_is_kept_does_not_follow",
        "softmax/following.hpp",
        "keep_least(m);\n#pragma unroll\n      for (int f",
        "for (int f",
    ),
    Planted("what_was_added_stays_in_sums", "softmax/rows.hpp", "if (kCuts) sum *= Number(1) / kExcess;", ""),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma/attention", WRONG)


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_what_is_taken_or_given_is_caught(of, sources):
    of.plant(sources / "wmma/attention")
    with pytest.raises(AssertionError):
        check_that_nothing_is_taken("gfx942")
