"""Attention by sm_90a's warpgroups (kernels/wmma/attention/loops/warpgroup.hpp), each configuration forced; plans."""

import dataclasses

import packed_scored
import pytest
import scored
import torch
from warpgroup_cases import (
    CASES,
    DROPPED,
    GRADIENTS,
    MODIFIED,
    NARROW_PAGES,
    OF_SEQUENCES,
    PAGES,
    RULED,
    SEQUENCES,
    check_gradients,
    needs_gpu,
)

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.attention import planner
from wmma_ops.plan.attention.loops import warpgroup, warpgroup_gradients
from wmma_ops.runtime import launching
from wmma_ops.testing import run


@pytest.fixture
def forced(monkeypatch):
    """Has the candidate of a number planned, or the last that there is; returns those planned."""
    planned, number = [], 0

    def plan(problem, target):
        found = list(warpgroup.candidates(problem, target))
        found += [dataclasses.replace(x, query_stages=1) for x in found if x.query_stages > 1]
        alike = not (problem.causal or problem.windowed or problem.sequences or problem.block_q)
        for x in found[:1] if problem.skv > 2 * found[0].keys else ():
            if alike and x.packed == 1:
                found.append(dataclasses.replace(x, splits=1, last_splits=3))
            found.append(dataclasses.replace(x, splits=3, last_splits=1, balanced=False))
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
@pytest.mark.parametrize("number", range(7))
def test_values(number, forced):
    planned = forced(number)
    for case in CASES + RULED + DROPPED + SEQUENCES + PAGES:
        run(case, "cuda")
    assert len(planned) == len(CASES + RULED + DROPPED + SEQUENCES + PAGES)


@needs_gpu
@pytest.mark.parametrize("number", range(5))
def test_narrow_pages(number, forced):
    planned = forced(number)
    for case in NARROW_PAGES:
        run(case, "cuda")
    assert len(planned) == len(NARROW_PAGES)
    assert all(config.narrow_stages > 0 for config in planned)


@needs_gpu
@pytest.mark.parametrize("number", range(7))
def test_values_with_functions_and_blocks(number, forced):
    planned = forced(number)
    for case in MODIFIED:
        scored.check(case, scored.results(case, scored.ours, device="cuda"))
    for case in OF_SEQUENCES:
        packed_scored.check(case, packed_scored.results(case, packed_scored.ours, device="cuda"))
    assert len(planned) == len(MODIFIED) + len(OF_SEQUENCES)


@needs_gpu
@pytest.mark.parametrize("clears", [True, False])
def test_a_neighbour_that_is_no_number_beside_blocks(clears, sources):
    """Of a sequence's last tile of keys some are another's."""
    if not clears:
        call = "clear_values(x, start, work.own.skv - key);\n          give_back();\n          for"
        text = (path := sources / "wmma/attention/loops/warpgroup.hpp").read_text()
        assert text.count(call) == 1
        path.write_text(text.replace(call, "give_back();\n          for"))
        torch.ops.wmma._forget_plans()
    q, k, v = (torch.randn(400, 4, 64, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    states = torch.tensor([[2, 0], [1, 2]], dtype=torch.int8, device="cuda")
    ends = _numbers([0, 200, 400])

    def first():
        blocks = wmma_ops.Blocks(states, 128, 128)
        return wmma_ops.varlen_attention(q, k, v, ends, ends, 200, 200, block_mask=blocks)[0][:200].clone()

    want = first()
    v[200:] = torch.nan
    assert torch.equal(first(), want) == clears


def _numbers(x: list[int]) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.int32, device="cuda")


@needs_gpu
def test_sequences_in_a_graph():
    """Where they start may change from one replay to the next."""
    q, k, v = (torch.randn(900, 8, 128, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    ends = _numbers([0, 300, 700, 900])
    call = lambda ends: wmma_ops.varlen_attention(q, k, v, ends, ends, 500, 500, window_size=(-1, 0))  # noqa: E731
    call(ends)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = call(ends)
    for others in ([0, 300, 700, 900], [0, 10, 500, 870], [0, 0, 450, 900]):
        ends.copy_(_numbers(others))
        for x in again:
            x.fill_(torch.nan)
        graph.replay()
        assert all(map(torch.equal, again, call(_numbers(others))))


@needs_gpu
def test_wrong_numbers_reach_nothing_outside():
    """Beside the tensors all is NaN, and what is not the results' stays as it is."""
    memory = torch.full((3, 1000, 4, 64), torch.nan, dtype=torch.bfloat16, device="cuda")
    q, k, v = memory[:, 300:700].copy_(torch.randn(3, 400, 4, 64))
    for ends_q, ends_k in (
        ([0, 300, 70, 290], [0, 350, 20, 41]),
        ([-90, 50, 2**31 - 1, 12], [7, -(2**31), 500, 9]),
        ([0, 400, 800, 1200], [300, 600, 900, 400]),
    ):
        for window in ((-1, -1), (-1, 0), (60, 9)):
            out, lse = wmma_ops.varlen_attention(
                q, k, v, _numbers(ends_q), _numbers(ends_k), 350, 390, window_size=window
            )
            assert out.isfinite().all()
            assert not lse.isnan().any()


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


@needs_gpu
@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("case", GRADIENTS, ids=str)
def test_gradients(case, number, monkeypatch):
    planned = []

    def plan(problem, target):
        found = warpgroup_gradients.candidates(problem, target)
        planned.append(found[min(number, len(found) - 1)])
        return warpgroup_gradients.plan_of(problem, planned[-1], target, "forced")

    monkeypatch.setattr(planner.warpgroup_gradients, "plan", plan)
    torch.ops.wmma._forget_plans()
    check_gradients(case)
    torch.ops.wmma._forget_plans()
    assert len(planned) == 1


@needs_gpu
@pytest.mark.parametrize("causal", [False, True])
def test_a_graph_of_gradients(causal):
    q, k, v, g_out = (torch.randn(2, 12, 900, 128, dtype=torch.bfloat16, device="cuda") for _ in range(4))
    out, lse = wmma_ops.attention(q, k, v, is_causal=causal)

    def call():
        return torch.ops.wmma._attention_backward(g_out, q, k, v, out, lse, is_causal=int(causal))

    want = call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call()
    for _ in range(10):
        for x in found:
            x.fill_(torch.nan)
        graph.replay()
        assert all(map(torch.equal, found, want))


def test_whose_gradients_are_planned():
    target = arch.target("sm_90a")
    for dtype, e, sq, takes in (
        (torch.bfloat16, 128, 4096, True),
        (torch.float16, 80, 300, True),
        (torch.bfloat16, 160, 4096, False),
        (torch.bfloat16, 128, 40, False),
        (torch.float32, 64, 4096, False),
    ):
        q = torch.empty(2, 8, sq, e, dtype=dtype).requires_grad_()

        def call(q=q):
            out, _ = wmma_ops.attention(q, q, q)
            return torch.autograd.grad(out, q, torch.empty_like(out))

        (problem,) = (x for x in launching.problems(call, target) if x.backward)
        config = planner.plan(problem, target).config
        assert isinstance(config, warpgroup_gradients.WarpgroupGradientsConfig) == takes


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
        (problem,) = launching.problems(lambda q=q: wmma_ops.attention(q, q, q), target)
        config = planner.plan(problem, target).config
        assert isinstance(config, warpgroup.WarpgroupConfig) == takes, config


@pytest.mark.parametrize(
    ("causal", "heads", "cap", "whole"),
    [(False, 48, 20.0, 13 * 132), (False, 24, 20.0, 864), (True, 48, 20.0, 48 * 36), (False, 48, 0.0, 48 * 36)],
)
def test_whose_last_tiles_are_split(causal, heads, cap, whole):
    """36 tiles a head: where they go round 132 units 13 times and 12 are left, and not where over half are, nor where
    units do little but multiply."""
    target = arch.target("sm_90a")
    q = torch.empty(1, heads, 4608, 128, dtype=torch.bfloat16)
    (problem,) = launching.problems(lambda: wmma_ops.attention(q, q, q, is_causal=causal, softcap=cap), target)
    plan = planner.plan(problem, target)
    assert plan.numbers.whole == whole
    assert [x.kernel for x in plan.launches] == ["attention", "attention_combine"][: 1 + (plan.config.last_splits > 1)]
