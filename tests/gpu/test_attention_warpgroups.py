"""Attention by sm_90a's warpgroups (kernels/wmma/attention/warpgroup.hpp), each of its configurations forced, and wrong
ones."""

import dataclasses
from dataclasses import dataclass

import pytest
import torch

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.attention import planner
from wmma_ops.plan.attention.loops import warpgroup
from wmma_ops.runtime import driver
from wmma_ops.testing import AttentionCase, Mismatch, run

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or driver.target_of(0) != "sm_90a", reason="needs a GPU of sm_90a"
)

# One tile of keys, two, several; ragged ones; fewer rows than a warpgroup's; blind rows; scores that grow from tile to
# tile; scales that queries are multiplied by; heads that share keys; results that no copy engine takes.
CASES = [
    AttentionCase(heads=1, sq=40, skv=5, e=64, dtype="bfloat16"),
    AttentionCase(heads=1, sq=256, skv=128, e=128, dtype="float16"),
    AttentionCase(heads=2, sq=130, skv=129, e=128, dtype="bfloat16", scale=2.0),
    AttentionCase(batch=3, heads=5, sq=300, skv=633, e=64, dtype="float16", scale=2.0),
    AttentionCase(batch=2, heads=4, kv_heads=2, sq=150, skv=400, e=72, ev=96, dtype="bfloat16", causal="bottom_right"),
    AttentionCase(batch=4, heads=16, sq=640, skv=640, e=128, dtype="bfloat16", causal="top_left", scale=0.5),
    AttentionCase(heads=1, sq=400, skv=70, e=40, dtype="bfloat16", causal="bottom_right", layout="bshd"),
    AttentionCase(heads=1, sq=140, skv=350, e=64, dtype="float16", mask="blind"),
    AttentionCase(heads=1, sq=140, skv=350, e=128, dtype="bfloat16", mask="float"),
    AttentionCase(heads=2, sq=200, skv=140, e=64, dtype="float16", mask="plane", scale=-0.3),
    AttentionCase(heads=2, sq=200, skv=340, e=256, ev=200, dtype="bfloat16", scale=0.0),
    AttentionCase(heads=2, sq=200, skv=340, e=192, ev=128, dtype="bfloat16", causal="bottom_right"),
    AttentionCase(heads=2, sq=200, skv=340, e=64, ev=136, dtype="float16"),
    AttentionCase(heads=1, sq=100, skv=3000, e=128, dtype="bfloat16", causal="bottom_right"),
    AttentionCase(batch=2, heads=8, kv_heads=2, sq=1, skv=1000, e=128, dtype="bfloat16"),
    AttentionCase(batch=2, heads=14, kv_heads=2, sq=25, skv=700, e=64, dtype="float16", causal="bottom_right"),
    AttentionCase(batch=1, heads=6, kv_heads=2, sq=50, skv=200, e=80, dtype="bfloat16", mask="plane", layout="bshd"),
]
CAUSAL = AttentionCase(batch=2, heads=40, sq=300, skv=350, e=64, dtype="float16", causal="bottom_right", scale=1.0)


@pytest.fixture
def forced(monkeypatch):
    """Has the candidate of a number planned, or the last that there is; returns those planned."""
    planned, number = [], 0

    def plan(problem, target):
        found = list(warpgroup.candidates(problem, target))
        found += [dataclasses.replace(x, query_stages=1) for x in found if x.query_stages > 1]
        found += [dataclasses.replace(x, splits=3) for x in found[:1] if problem.skv > 2 * x.keys]
        if not found:
            return None
        planned.append(found[min(number, len(found) - 1)])
        return warpgroup.plan_of(problem, planned[-1], target, "forced")

    def force(chosen: int) -> list:
        nonlocal number
        number = chosen
        return planned

    monkeypatch.setattr(planner.warpgroup, "plan", plan)
    torch.ops.wmma._forget_plans()
    yield force
    torch.ops.wmma._forget_plans()


@needs_gpu
@pytest.mark.parametrize("number", range(6))
def test_values(number, forced):
    planned = forced(number)
    for case in CASES:
        run(case, "cuda")
    assert len(planned) == len(CASES)


@needs_gpu
@pytest.mark.parametrize("causal", [False, True])
def test_the_same_bits_and_a_graph(causal):
    q, k, v = (torch.randn(2, 24, 900, 128, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    out, lse = wmma_ops.attention(q, k, v, is_causal=causal)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = wmma_ops.attention(q, k, v, is_causal=causal)
    for _ in range(10):
        for x in again:
            x.fill_(torch.nan)
        graph.replay()
        assert torch.equal(again[0], out)
        assert torch.equal(again[1], lse)


def test_who_is_planned():
    target = arch.target("sm_90a")
    for dtype, e, sq, takes in (
        (torch.bfloat16, 128, 4096, True),
        (torch.float16, 80, 300, True),
        (torch.float32, 64, 4096, False),
        (torch.bfloat16, 320, 4096, False),
        (torch.bfloat16, 36, 4096, False),
    ):
        q = torch.empty(2, 8, sq, e, dtype=dtype)
        found = wmma_ops.explain("attention", q, q, q, target=target.name)
        assert isinstance(found.config, warpgroup.WarpgroupConfig) == takes, found.config


KERNEL, TILES = "wmma/attention/warpgroup.hpp", "wmma/attention/warpgroup_tiles.hpp"


@dataclass(frozen=True)
class Wrong:
    name: str
    old: str
    new: str
    file: str = KERNEL

    def __str__(self) -> str:
        return self.name


# None that may hang: what the queues count stays whole.
WRONG = [
    Wrong("results_do_not_follow", "x.rows.rescale(factors);", "x.rows.rescale({1.0f, 1.0f});"),
    Wrong("the_first_head_for_all", "x.head_stride == 0 ? 0 : static_cast<int32_t>(head)", "0", TILES),
    Wrong(
        "values_of_the_tile_before",
        "work.place.key_head, at);\n        value",
        "work.place.key_head, at - kKeys);\n        value",
        TILES,
    ),
    Wrong("values_in_the_wrong_order", "step<false>(values, step, kStep)", "step<false>(values, step ^ 1, kStep)"),
    Wrong(
        "bounded_too_late",
        "seen = clamped(place.query(first_row) +",
        "seen = clamped(place.query(first_row) + kKeys +",
        TILES,
    ),
]


def test_what_is_replaced_stands_there_once(sources):
    found = {of.name: (sources / of.file).read_text().count(of.old) for of in WRONG}
    assert set(found.values()) == {1}, f"the headers have changed; write these anew: {found}"


def _several_times(case):
    for _ in range(5):
        run(case, "cuda")


@needs_gpu
@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    path, case = sources / of.file, CAUSAL
    torch.ops.wmma._forget_plans()
    run(case, "cuda")  # right as it is
    path.write_text(path.read_text().replace(of.old, of.new))
    torch.ops.wmma._forget_plans()
    with pytest.raises(Mismatch):
        _several_times(case)
    torch.ops.wmma._forget_plans()
