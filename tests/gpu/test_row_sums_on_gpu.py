"""The gradient of a bias beside its weight's, in the product's own kernel (kernels/wmma/tile/row_sums.hpp): each tile adds
up its share of K, whichever way K and the tiles are dealt out."""

import pytest
import torch
from on_gpu import matrix
from planted import Planted, check_is_caught, check_that_each_stands_once
from warpgroup_cases import needs_gpu

from wmma_ops.hardware import arch
from wmma_ops.plan.gemm import planner
from wmma_ops.runtime import launching, tuned

OPS = torch.ops.wmma
TARGET = arch.target("sm_90a")
# Tokens, outputs and inputs: whole tiles and not; fewer steps of K than tiles; one column of tiles; many tokens.
SIZES = [
    (4096, 1024, 768),
    (1000, 3072, 776),
    (128, 4000, 4096),
    (12608, 768, 64),
    (333, 1048, 2000),
    (50000, 264, 392),
]


def _operands(size, dtype=torch.bfloat16):
    tokens, outputs, inputs = size
    g, x, weight = (matrix(*shape, dtype=dtype) for shape in ((tokens, outputs), (tokens, inputs), (outputs, inputs)))
    return g + 0.25, x, weight  # so that sums of parts differ from sums of all


def _call(g, x, weight, sums=torch.float32):
    return lambda: OPS._linear_backward(g, x, weight, None, activation=0, of_x=False, bias_dtype=sums)


def _problem(call):
    problem, *_ = launching.problems(call, TARGET)
    assert problem.row_sums is not None
    return problem


def _check(operands, call):
    g, x, _ = operands
    of_weight, of_bias = call()
    # Of float32 sums, in an order of their own.
    most = g.double().abs().sum(0).max().item()
    torch.testing.assert_close(of_bias.double(), g.double().sum(0), rtol=1e-5, atol=1e-6 * most)
    want = g.double().mT @ x.double()
    torch.testing.assert_close(of_weight.double(), want, rtol=0.01, atol=1e-5 * most)
    again = call()
    assert torch.equal(again[0], of_weight)
    assert torch.equal(again[1], of_bias)


def _kinds(problem):
    """A configuration of each kind of order, and of either way of warpgroups."""
    found = {}
    for config in planner.ranked(problem, TARGET):
        order = config.order
        kind = (
            config.ping_pong,
            order.persistent,
            order.neighbours > 1,
            order.cluster,
            order.splits > 1,
            order.last > 1,
        )
        if config.loop == "warpgroup":
            found.setdefault((*kind, config.block_m), config)
    return list(found.values())


def _check_kinds(size, dtype=torch.bfloat16, only=lambda config: True):
    operands = _operands(size, dtype)
    call = _call(*operands)
    problem = _problem(call)
    kinds = [config for config in _kinds(problem) if only(config)]
    assert kinds
    for config in kinds:
        with tuned.forced(problem, config):
            plan = launching.plan_for(problem, TARGET)
            assert plan.config.loop == "warpgroup"
            assert plan.numbers.sum_slabs > 0
            _check(operands, call)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_whichever_way_tiles_are_dealt_out(size, dtype):
    _check_kinds(size, dtype)


@needs_gpu
@pytest.mark.parametrize("sums", [torch.bfloat16, torch.float32], ids=str)
def test_of_either_type_and_of_a_batch(sums):
    g, x, weight = _operands((2048, 1024, 512))
    call = _call(g.view(4, 512, 1024), x.view(4, 512, 512), weight, sums)
    of_weight, of_bias = call()
    assert of_bias.dtype == sums
    want = _call(g, x, weight, sums)()
    assert torch.equal(of_weight, want[0])
    assert torch.equal(of_bias, want[1])


@needs_gpu
def test_a_gradient_that_is_not_finite_stays_in_its_row():
    g, x, weight = _operands((4096, 1024, 768))
    g[5, 17], g[7, 900] = float("nan"), float("inf")
    _, of_bias = _call(g, x, weight)()
    assert of_bias[17].isnan()
    assert of_bias[900].isinf()
    others = [i for i in range(1024) if i not in (17, 900)]
    assert of_bias[others].isfinite().all()


LOOP, SUMS = "gemm/warpgroup.hpp", "tile/row_sums.hpp"
TO_THE_END = "share_from(p, work, work.index.n + 1)"
WRONG = (
    Planted("a_step_short", LOOP, TO_THE_END, f"{TO_THE_END} & ~1u"),
    Planted("the_first_share_too", LOOP, "take(share_from(p, work, work.index.n), Never{});", ""),
    Planted("the_first_step_alone", SUMS, "template step<kAlong>(rows, step,", "template step<kAlong>(rows, 0,"),
    Planted("the_upper_rows_twice", SUMS, "sums[i][half * 2]", "sums[i][0]"),
    Planted("shares_of_parts", LOOP, "kOfAll = Tiles::kIsSplit && !Tiles::kEveryPartial", "kOfAll = false"),
    Planted("what_others_left_there", SUMS, "+ at] = 0.0f", "+ at] = sums[i][0]"),
)  # fmt: skip


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma", WRONG)


@needs_gpu
@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    check_is_caught(of, sources / "wmma", lambda: _check_kinds(SIZES[0], only=lambda config: config.order.last > 1))
