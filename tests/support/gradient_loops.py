"""What is asked of every main loop of attention's gradients that the planner has for many rows."""

from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from test_attention_backward import Case, gradients, in_float64, operands

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.attention import backward, owners
from wmma_ops.plan.attention.loops import interleaved_gradients
from wmma_ops.plan.plan import Plan
from wmma_ops.runtime import launching
from wmma_ops.testing.reference import unit


def taking_any_rows(monkeypatch: pytest.MonkeyPatch, loop: ModuleType, chooser: str = "chosen") -> Iterator[list]:
    """The loop is taken however few rows there are; which configurations were."""
    taken, chosen = [], getattr(loop, chooser)

    def noting(*given):
        found = chosen(*given)
        taken.append(found)
        return found

    monkeypatch.setattr(owners, "_LEAST_ROWS", 1)
    monkeypatch.setattr(loop, chooser, noting)
    torch.ops.wmma._forget_plans()
    yield taken
    torch.ops.wmma._forget_plans()


def by_two_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One for the queries and one for the keys, also where one kernel would compute all."""
    monkeypatch.setattr(interleaved_gradients, "storing_dq", lambda problem, target: None)
    torch.ops.wmma._forget_plans()
    yield
    torch.ops.wmma._forget_plans()


def planned(
    target: str,
    e: int = 128,
    ev: int = 128,
    rows: int = 256,
    dtype=torch.bfloat16,
    mask: bool = False,
    is_causal: int = 0,
) -> Plan:
    """Of two heads with as many queries as keys."""
    q, v = (torch.empty(1, 2, rows, size, dtype=dtype) for size in (e, ev))
    bias = torch.zeros(rows, rows, dtype=dtype) if mask else None
    (problem,) = launching.problems(
        lambda: torch.ops.wmma._attention_backward(v, q, q, v, v, torch.empty(1, 2, rows), bias, is_causal=is_causal),
        arch.target(target),
    )
    return backward.plan(problem, arch.target(target))


def are_right(case: Case, target: str) -> None:
    given = operands(case)
    want, own = in_float64(case, *given), gradients(case, *given)
    got = gradients(case, *given, by=target)
    for name, x, exact, other in zip("qkv", got, want, own, strict=True):
        error, theirs = (x.double() - exact).abs().max(), (other.double() - exact).abs().max()
        floor = 4 * unit(x.dtype) * exact.abs().max()
        assert error <= 2 * theirs + floor, f"g_{name} of {case}: {error:.3g}, in the same type on the CPU {theirs:.3g}"


def check_no_number_reaches_what_it_sees_alone(target: str, e: int) -> None:
    """A query that is none: the gradients of keys before it are none either, and of no other query."""
    case = Case(70, 70, e, e, "bfloat16", heads=1, kv_heads=1, causal="top_left")
    (q, *others), *rest = operands(case)
    with torch.no_grad():
        q[..., 40, 3] = float("nan")
    g_q, _, g_v = gradients(case, (q, *others), *rest, by=target)
    assert g_q.isnan().any(-1).flatten().nonzero().flatten().tolist() == [40]
    assert g_v.isnan().any(-1).flatten().nonzero().flatten().tolist() == list(range(41))


def check_out_may_lie_in_any_way(target: str, e: int) -> None:
    (q, k, v), _, g_out, _ = operands(Case(70, 90, e, e, heads=1, kv_heads=1))
    with torch.no_grad(), wmma_ops.emulate(target):
        out, lse = wmma_ops.attention(q, k, v)
        call = torch.ops.wmma._attention_backward
        want = call(g_out, q, k, v, out, lse)
        spread = out.new_full((*out.shape, 2), float("nan"))[..., 1]
        for other in (out.mT.contiguous().mT, spread.copy_(out)):
            got = call(g_out, q, k, v, other, lse)
            assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))
