"""A product whose own kernel multiplies by an activation's derivative: the gradient of what an MLP's first product gave."""

from functools import partial

import places
import pytest
import torch
from near import BOUNDS, check_near
from planted import Planted, check_is_caught, check_that_each_stands_once

from wmma_ops.analysis.figures import figures as figures_of
from wmma_ops.hardware import arch
from wmma_ops.ops import activations
from wmma_ops.plan.gemm import planner
from wmma_ops.runtime import launching

F32, F16, BF16, F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
RELU, GELU, SILU = (activations.code("test", "activation", name) for name in ("relu", "gelu", "silu"))
SLOPES = torch.ops.wmma._gemm_slopes
# Batch, rows, columns and K: of whole tiles and not, of chunks and not, of one row, and with K split.
SIZES = [((), 70, 100, 96), ((), 130, 72, 40), ((), 1, 256, 64), ((3,), 33, 50, 17), ((), 64, 64, 2048)]


def _operands(dtype, batch=(), m=33, n=50, k=40, *, is_gated=True, down=False):
    g = (torch.randn(*batch, m, k, dtype=F64) / k**0.5).to(dtype)
    b = torch.randn(n, k, dtype=F64).to(dtype).mT if down else torch.randn(k, n, dtype=F64).to(dtype)
    s, u = (torch.randn(*batch, m, n, dtype=F64).to(dtype) for _ in "su")
    return g, b, s, u if is_gated else None


def _want(activation, g, b, s, u):
    leaves = [x.double().requires_grad_() for x in (s, u) if x is not None]
    h = activations.by_code(activation).forward(leaves[0])
    return torch.autograd.grad(h if u is None else h * leaves[1], leaves, g.double() @ b.double())


def _check(operands, place, dtype, activation=SILU):
    with places.on(place) as emulation:
        got, again = (SLOPES(*operands, activation=activation) for _ in "12")
    want = _want(activation, *operands)
    assert len(got) == len(want)
    for one, same, other in zip(got, again, want, strict=True):
        assert torch.equal(one, same)
        check_near(one, other, dtype)
    if emulation is not None:
        assert len(emulation.launches) in (2, 4)  # what adds up parts of K, where it is split


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("place", ["cpu", *arch.EMULATED])
def test_every_target(place, dtype):
    _check(_operands(dtype), place, dtype)
    _check(_operands(dtype, is_gated=False, down=True), place, dtype, GELU)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("place", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_every_size(place, size):
    for is_gated, down in ((True, False), (False, True), (True, True)):
        _check(_operands(BF16, *size, is_gated=is_gated, down=down), place, BF16)


@pytest.mark.parametrize("activation", range(len(activations.BUILTIN)), ids=lambda i: activations.BUILTIN[i].name)
def test_every_activation(activation):
    for place in ("cpu", "gfx1201"):
        for is_gated in (True, False)[: 1 if activation == 0 else 2]:
            _check(_operands(F16, is_gated=is_gated), place, F16, activation)


def test_of_relu_the_result_serves_as_well():
    g, b, s, _ = _operands(BF16)
    for place in ("cpu", "gfx1100"):
        with places.on(place):
            assert torch.equal(SLOPES(g, b, s, activation=RELU)[0], SLOPES(g, b, s.relu(), activation=RELU)[0])


@pytest.mark.parametrize("place", ["cpu", "gfx942", "gfx1201"])
def test_numbers_that_are_none(place):
    """Far out derivatives are what they tend to; a NaN stays one."""
    far = torch.tensor([torch.inf, -torch.inf, 1e30, -1e30, 1e4, -1e4, torch.nan, 0.5])
    g, b = torch.ones(2, 1), torch.ones(1, 8)
    for activation in range(1, len(activations.BUILTIN)):
        with places.on(place):
            (got,) = SLOPES(g, b, far.expand(2, 8).contiguous(), activation=activation)
        name = activations.BUILTIN[activation].name
        low = 0.01 if name == "leaky_relu" else 0.0
        up = 0.0 if name in ("sigmoid", "tanh") else 1.0
        torch.testing.assert_close(got[0, :6], torch.tensor([up, low, up, low, up, low]), msg=name)
        assert got[0, 6].isnan() or name in ("relu", "leaky_relu")


def test_what_does_not_fit_is_refused():
    for device in ("cpu", "meta"):
        g, b, s, u = (x.to(device) for x in _operands(F32))
        with pytest.raises(RuntimeError, match=r"s has shape \[33, 49\]; takes \[33, 50\], the shape of the product"):
            SLOPES(g, b, s[:, 1:], u, activation=SILU)
        with pytest.raises(RuntimeError, match="multiply is float64; takes float32, as g has"):
            SLOPES(g, b, s, u.double(), activation=SILU)
        with pytest.raises(RuntimeError, match="activation is code 8; takes 0 to 7"):
            SLOPES(g, b, s, u, activation=8)
        with pytest.raises(RuntimeError, match="multiply is None; takes a tensor without an activation"):
            SLOPES(g, b, s, activation=0)
        with pytest.raises(RuntimeError, match="g is int8"):
            SLOPES(*(x.to(torch.int8) for x in (g, b, s)), activation=SILU)


def test_fakes_say_the_same():
    for is_gated in (True, False):
        operands = _operands(BF16, (2, 3), is_gated=is_gated)
        torch.library.opcheck(SLOPES, operands, {"activation": SILU}, test_utils=("test_schema", "test_faketensor"))


def test_no_kernel_spills():
    """Of the largest tiles: a derivative takes registers beside sums."""
    g, b, s = (torch.empty(*size, dtype=BF16) for size in ((4096, 4096), (4096, 11008), (4096, 11008)))
    for name in ("gfx942", "gfx950", "gfx1100", "gfx1201", "sm_90a"):
        target = arch.target(name)
        for u in (None, s):
            problem, *_ = launching.problems(partial(SLOPES, g, b, s, u, activation=GELU), target)
            assert problem.slopes
            for launch in launching.plan_for(problem, target).launches:
                figures = figures_of(launch.compile(target), target, launch.block, launch.shared, launch.kernel)
                assert figures.spills <= (2 if target.vendor == "nvidia" else 0), (name, u is not None)


def test_what_finishes_a_tile_may_hide_behind_the_next():
    """Where K is short, the model prefers warpgroups that go by ping-pong."""
    target = arch.target("sm_90a")
    for k, takes_turns in ((768, True), (8192, False)):
        g, b, s = (torch.empty(*size, dtype=BF16) for size in ((8192, k), (k, 4096), (8192, 4096)))
        problem, *_ = launching.problems(partial(torch.ops.wmma_raw.gemm, g, b, s), target)
        assert planner.choose(problem, target)[0].ping_pong == takes_turns


EPILOGUE, DERIVATIVE = "tile/epilogue.hpp", "tile/derivative.hpp"
WRONG = (
    Planted("the_slope_of_the_sum", EPILOGUE, "times_derivative<Config::kActivation>(x, beside.c)",
            "times_derivative<Config::kActivation>(x, x)"),
    Planted("kept_times_the_factor", EPILOGUE, "kept = x * activate<Config::kActivation, E>(beside.c);",
            "kept = x * activate<Config::kActivation, E>(beside.c) * beside.multiply;"),
    Planted("without_the_factor", EPILOGUE, "        x *= beside.multiply;\n      }\n      if constexpr (",
            "      }\n      if constexpr ("),
    Planted("kept_as_s_is", EPILOGUE, "x * activate<Config::kActivation, E>(beside.c)", "x * beside.c"),
    Planted("a_gate_that_does_not_bend", DERIVATIVE, "arch::fma(x * slope, gate * (T(1) - gate), gate)", "gate"),
)  # fmt: skip


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma", WRONG)


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    check_is_caught(of, sources / "wmma", lambda: _check(_operands(F16, (), 70, 200, 50), "gfx942", F16))
