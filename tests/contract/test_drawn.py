"""Kernels drawn at random of all that the planner may take, for products, two products, attention and its gradients: their
values, with NaN around every operand, whatever the order of the waves.

A handful for each target; as many as are asked for by

    make test-full ARGS="tests/contract/test_drawn.py --configurations 500 -k gfx942"
"""

import drawn
import pytest
import torch
from test_attention_backward import Case, gradients, in_float64, operands

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.testing import run
from wmma_ops.testing.memory import fenced
from wmma_ops.testing.reference import unit


def _check(target: str, kind: str, number: int) -> str:
    """Runs one draw; tells it."""
    draw = drawn.draw_of(target, kind, number)
    order = draw.choice(("forward", "reverse", "random", "random"))
    make = {"product": drawn.product, "two products": drawn.two_products, "attention": drawn.attention_case}
    case = Case(**drawn.gradients_case(draw)) if kind == "gradients" else make[kind](draw)
    with drawn.configurations(draw) as planned:
        try:
            if kind == "gradients":
                _are_right(case, target, order, number)
            else:
                run(case, f"emulated:{target}", against_torch=False, order=order, seed=number)
        except Exception as failure:
            raise AssertionError(
                f"{kind} {number} on {target}, {order}: {case!r}\n  {planned}\n  {type(failure).__name__}: {failure}"
            ) from failure
    assert planned, f"{kind} {number} on {target}: {case!r} planned nothing"
    return f"{order} {case!r} {planned}"


def _are_right(case: Case, target: str, order: str, seed: int) -> None:
    given, mask, *slopes = operands(case)
    tensors = tuple(fenced(x.detach(), "cpu").requires_grad_() for x in given)
    others = [None if x is None else fenced(x, "cpu") for x in (mask, *slopes)]
    want, own = in_float64(case, given, mask, *slopes), gradients(case, given, mask, *slopes)
    with wmma_ops.emulate(target, order=order, seed=seed) as emulation:
        got = gradients(case, tensors, *others)
    assert len(emulation.launches) >= 3  # forward, of the queries, of the keys
    twice = _computed_twice(case, *given)
    for name, x, exact, other in zip("qkv", got, want, own, strict=True):
        error, theirs = (x.double() - exact).abs().max(), (other.double() - exact).abs().max()
        largest = max(
            float(one.abs().max()) for one in want
        )  # what adds up to nearly nothing is as rounded as the others
        floor = (4 * unit(x.dtype) + twice) * largest + torch.finfo(x.dtype).smallest_normal
        assert error <= 2 * theirs + floor, f"g_{name}: {error:.3g}, in the same type on the CPU {theirs:.3g}"


def _computed_twice(case: Case, q, k, _) -> float:
    """How far off a weight may be, relative, whose score is not the one of which lse has the exponential: scores are
    summed up again, in another order, and lse is rounded; where the CPU has one softmax, both are the same. In half
    precision this is nothing beside the weights' rounding."""
    scale = q.shape[-1] ** -0.5 if case.scale is None else abs(case.scale)
    wide = k.detach().double().repeat_interleave(case.heads // case.kv_heads, 1)
    most = float((q.detach().double().abs() @ wide.mT.abs()).max()) * scale
    return 2 * unit(torch.float64 if case.dtype == "float64" else torch.float32) * most


@pytest.mark.full
@pytest.mark.parametrize("kind", drawn.KINDS)
@pytest.mark.parametrize("target", arch.EMULATED)
def test_values(target, kind, request):
    count = drawn.counts(request.config.getoption("--configurations"))[kind]
    failures, told = [], set()
    for number in range(count):
        try:
            told.add(_check(target, kind, number))
        except AssertionError as failure:
            failures.append(str(failure))
    assert not failures, f"{len(failures)} of {count}:\n" + "\n".join(failures)
    assert len(told) == count  # each is another


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "file", "old", "new"),
    [
        ("product", "wmma/gemm/staged.hpp", "a.template fetch<true>(first);", "a.template fetch<false>(first);"),
        ("product", "wmma/gemm/staged.hpp", "    arch::tile_barrier();\n    // 2.", "    // 2."),
        ("attention", "wmma/attention/terms/row_mask.hpp", "+ p.shift + 1;", "+ p.shift + 2;"),
        (
            "gradients",
            "wmma/attention/loops/gradients.hpp",
            "weights[f] * (slopes[f] - delta)",
            "weights[f] * (slopes[f] + delta)",
        ),
    ],
    ids=["a tail of K that is not masked", "no barrier", "a key too many", "delta added"],
)
def test_a_wrong_kernel_is_found(kind, file, old, new, sources):
    header = sources / file
    text = header.read_text()
    assert text.count(old) == 1
    header.write_text(text.replace(old, new))
    found = ""
    for number in range(8):
        try:
            _check("gfx1201", kind, number)
        except AssertionError as failure:
            found = str(failure)
            break
    assert found
    assert "does not compile" not in found
