"""Gated products, act(A·B + bias)·(A·gate + gate_bias): both in one kernel, or one after the other."""

from functools import partial

import places
import pytest
import torch
from graph_ops import compiled
from near import BOUNDS, check_near
from planted import Planted, check_is_caught, check_that_each_stands_once

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.ops import activations
from wmma_ops.plan.gemm import planner
from wmma_ops.runtime import launching

F32, F16, BF16, F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
SILU = activations.code("test", "activation", "silu")
KEPT = torch.ops.wmma._gated_aux
# Batch, rows, columns and K: of whole tiles and not, of chunks and not, of one row.
SIZES = [((), 70, 100, 96), ((), 130, 72, 40), ((), 1, 256, 64), ((3,), 33, 50, 17), ((2,), 64, 64, 128)]


def _gated(a, b, gate, bias=None, gate_bias=None, *, activation=0):
    return torch.ops.wmma_raw.gemm(a, b, bias=bias, gate=gate, gate_bias=gate_bias, activation=activation)


@pytest.fixture
def in_one_kernel(monkeypatch):
    """Wherever there is one, however small the product."""
    monkeypatch.setattr(planner, "_costs_more", lambda *_: "")
    torch.ops.wmma._forget_plans()
    yield
    torch.ops.wmma._forget_plans()


def _matrix(k, n, order, dtype):
    """With its memory along K, across it, or neither."""
    shape = {"k": (n, k), "n": (k, n), "apart": (k, 2 * n)}[order]
    made = torch.randn(shape, dtype=F64).to(dtype)
    return made.mT if order == "k" else made if order == "n" else made[:, ::2]


def _operands(dtype, batch=(), m=33, n=50, k=40, orders=("k", "k"), biases=(True, True)):
    a = (torch.randn(*batch, m, k, dtype=F64) / k**0.5).to(dtype)
    b, gate = (_matrix(k, n, order, dtype) for order in orders)
    bias, gate_bias = (torch.randn(n, dtype=F64).to(dtype) if there else None for there in biases)
    return a, b, gate, bias, gate_bias


def _want(activation, a, b, gate, bias, gate_bias):
    a, b, gate, bias, gate_bias = (x if x is None else x.double() for x in (a, b, gate, bias, gate_bias))
    s, u = (a @ x if beside is None else a @ x + beside for x, beside in ((b, bias), (gate, gate_bias)))
    return activations.by_code(activation).forward(s) * u, s, u


def _check(operands, place, dtype, *, launches=1, activation=SILU):
    """Of all that is given: the result alone, and with what was multiplied; twice the same."""
    alone, kept = partial(_gated, *operands, activation=activation), partial(KEPT, *operands, activation=activation)
    with places.on(place) as emulation:
        out, again, three = alone(), alone(), kept()
    if emulation is not None:
        assert len(emulation.launches) == 3 * launches
    assert torch.equal(out, again)
    want = _want(activation, *operands)
    for one, other in zip((out, *three), (want[0], *want), strict=True):
        check_near(one, other, dtype)


def _has_kernel(dtype, place):
    """Plain FMA of float64 has no room for both."""
    return place == "cpu" or dtype != F64 or (arch.target(place).family == "cdna" and place != "gfx908")


@pytest.mark.usefixtures("in_one_kernel")
@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("place", ["cpu", *arch.EMULATED])
def test_every_target(place, dtype):
    for orders, biases in ((("k", "k"), (True, True)), (("n", "n"), (False, True))):
        operands = _operands(dtype, orders=orders, biases=biases)
        _check(operands, place, dtype, launches=1 if _has_kernel(dtype, place) else 2)


@pytest.mark.usefixtures("in_one_kernel")
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("place", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_every_size(place, size):
    for orders in (("k", "k"), ("n", "n"), ("apart", "apart")):
        _check(_operands(BF16, *size, orders=orders, biases=(True, False)), place, BF16)


@pytest.mark.usefixtures("in_one_kernel")
@pytest.mark.parametrize("activation", activations.BUILTIN, ids=lambda one: one.name)
def test_every_activation(activation):
    for place in ("cpu", "gfx1201"):
        code = activations.code("test", "activation", activation.name)
        _check(_operands(F16), place, F16, activation=code)


@pytest.mark.usefixtures("in_one_kernel")
def test_matrices_that_lie_otherwise_are_two_products():
    for orders in (("k", "n"), ("n", "k"), ("apart", "k")):
        _check(_operands(F16, orders=orders), "gfx942", F16, launches=2)


def test_the_cheaper_way_is_taken():
    """By the clock's model: few rows of many columns stream through gfx942 one after the other."""
    for m, n, k, launches in ((16, 2048, 512, 2), (512, 512, 32, 1)):
        with wmma_ops.emulate("gfx942") as emulation:
            _gated(*_operands(F16, (), m, n, k), activation=SILU)
        assert len(emulation.launches) == launches


def test_what_the_planner_counts_is_what_nvidia_kernels_take():
    """Also where lines across K are padded, of which halves of a tile have others than a whole one: it says so itself."""
    problem, *_ = launching.problems(
        partial(_gated, *_operands(F16, (), 1024, 1536, 256, ("n", "n"))), arch.target("sm_80")
    )
    for name in ("sm_80", "sm_90a"):
        target = arch.target(name)
        widths = {}
        for config in planner.ranked(problem, target):
            widths.setdefault((config.loop, config.block_n), config)
        assert {("async_copy", 96), ("async_copy", 192)} <= widths.keys()
        for config in widths.values():
            for launch in planner.plan_of(problem, config, target, "").launches:
                launch.compile(target)


def test_waves_that_ping_pong_have_room_for_both_sums():
    target = arch.target("gfx950")
    problem, *_ = launching.problems(partial(_gated, *_operands(BF16, (), 8192, 5632, 64)), target)
    found = [x for x in planner.ranked(problem, target) if x.waves == 8 and x.waves_k == 1]
    assert len(found) > 4
    for config in found:
        for launch in planner.plan_of(problem, config, target, "").launches:
            launch.compile(target)


def test_few_rows_stream_one_matrix_after_the_other():
    x, weight = torch.empty(8, 512).half(), torch.empty(256, 512).half()
    target = arch.target("sm_90a")
    for rows, kernels in ((8, 0), (16, 1)):
        call = partial(torch.ops.wmma_raw.gemm, x.expand(2, 8, 512).reshape(16, 512)[:rows], weight.mT, gate=weight.mT)
        problem, *_ = launching.problems(call, target)
        assert len(launching.plan_for(problem, target).launches) == kernels


def test_nothing_to_sum_up_leaves_the_biases():
    for place in ("cpu", "gfx942"):
        operands = _operands(F32, (), 5, 7, 0)
        with places.on(place):
            out = _gated(*operands, activation=SILU)
        check_near(out, _want(SILU, *operands)[0], F32)
        with places.on(place):
            assert _gated(*_operands(F32, (), 0, 7, 3)).shape == (0, 7)


@pytest.mark.usefixtures("in_one_kernel")
def test_two_products_of_which_the_first_is_gated_are_two_launches():
    """gemm_gemm, where D0 does not stay in registers."""
    a, b0, gate, bias0, _ = _operands(BF16, (), 64, 512, 64)
    b1 = _matrix(512, 1024, "k", BF16)
    with wmma_ops.emulate("gfx942") as emulation:
        out = wmma_ops.gemm_gemm(a, b0, b1, bias0=bias0, gate=gate, activation="silu")
    assert len(emulation.launches) == 2
    check_near(out, _want(SILU, a, b0, gate, bias0, None)[0].bfloat16().double() @ b1.double(), BF16)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_does_not_fit_is_refused(device):
    a, b, gate, bias, gate_bias = (None if x is None else x.to(device) for x in _operands(F32))
    for op in (_gated, KEPT):
        with pytest.raises(RuntimeError, match=r"gate has shape \[40, 49\]; takes the shape of b, \[40, 50\]"):
            op(a, b, gate[:, 1:])
        with pytest.raises(RuntimeError, match="gate is float64; takes float32, as b has"):
            op(a, b, gate.double())
        with pytest.raises(RuntimeError, match=r"gate_bias has shape \[49\]"):
            op(a, b, gate, bias, gate_bias[1:])
    with pytest.raises(RuntimeError, match="a is int8"):
        KEPT(a.to(torch.int8), b.to(torch.int8), gate.to(torch.int8))


def test_fakes_say_the_same():
    operands = _operands(BF16, (2, 3))
    options, checks = {"activation": SILU}, {"test_utils": ("test_schema", "test_faketensor")}
    torch.library.opcheck(KEPT, operands, options, **checks)
    a, b, gate, bias, gate_bias = operands
    given = {"bias": bias, "gate": gate, "gate_bias": gate_bias} | options
    torch.library.opcheck(torch.ops.wmma_raw.gemm, (a, b), given, **checks)


def test_what_is_in_the_place_of_a_factor_is_the_only_one():
    a, b, gate, bias, gate_bias = _operands(F32)
    for beside, message in (
        ({"multiply": bias}, "multiply is a tensor; takes None beside gate"),
        ({"a_scale": a[0]}, "a_scale is there; takes none beside gate"),
        ({"a_activation": "relu"}, "a_activation is there; takes none beside gate"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            wmma_ops.gemm(a, b, gate=gate, **beside)
    with pytest.raises(TypeError, match="gate is None; takes a tensor beside gate_bias"):
        wmma_ops.gemm(a, b, gate_bias=gate_bias)


def test_with_more_beside_it_is_two_products():
    a, b, gate, bias, gate_bias = _operands(F32)
    for place, launches in (("cpu", 0), ("gfx1201", 2)):
        for beside, s in (
            ({"alpha": 0.5}, 0.5 * a @ b),
            ({"c": bias, "beta": 3.0}, a @ b + 3 * bias),
            ({"col_scale": bias}, a @ b * bias),
            ({"a2": a, "b2": gate}, a @ (b + gate)),
        ):
            with places.on(place) as emulation:
                out = wmma_ops.gemm(a, b, gate=gate, gate_bias=gate_bias, activation="silu", **beside)
            want = activations.by_code(SILU).forward(s.double()) * (a.double() @ gate.double() + gate_bias.double())
            torch.testing.assert_close(out.double(), want, rtol=1e-4, atol=1e-4)
            assert launches == (0 if emulation is None else len(emulation.launches))


@pytest.mark.usefixtures("in_one_kernel")
@pytest.mark.parametrize("place", ["cpu", "gfx1201"])
def test_an_empty_pair_beside_a_gate_leaves_the_other(place):
    """Whose K is no gate's."""
    for k, k2 in ((0, 64), (64, 0)):
        a, b, gate, bias, gate_bias = _operands(F32, (), 20, 24, k)
        a2, b2 = torch.randn(20, k2), torch.randn(k2, 24)
        with places.on(place):
            out = wmma_ops.gemm(a, b, a2=a2, b2=b2, bias=bias, gate=gate, gate_bias=gate_bias, activation="silu")
        s, u = a @ b + a2 @ b2 + bias, a @ gate + gate_bias
        torch.testing.assert_close(out, torch.nn.functional.silu(s) * u, rtol=1e-4, atol=1e-4)


def test_a_second_pairs_batch_is_none_of_the_gates():
    for device in ("cpu", "meta"):
        a, b, gate, _, gate_bias = (x.to(device) for x in _operands(F32, (), 2, 3, 5))
        a2, b2 = torch.randn(7, 2, 4, device=device), torch.randn(4, 3, device=device)
        with pytest.raises(ValueError, match=r"gate_bias has shape \[7, 3\]"):
            wmma_ops.gemm(a, b, a2=a2, b2=b2, gate=gate, gate_bias=gate_bias.expand(7, 3))
    a, b, gate, _, _ = _operands(F32, (), 2, 3, 5)
    a2, b2, biases = torch.randn(7, 2, 4), torch.randn(4, 3), torch.randn(7, 3)

    def call(a2, gate_bias):
        return wmma_ops.gemm(a, b, a2=a2, b2=b2, gate=gate, gate_bias=gate_bias)

    torch.testing.assert_close(torch.vmap(call)(a2, biases), torch.stack(list(map(call, a2, biases))))


@pytest.mark.parametrize("name", ["silu", "relu", "none"])
def test_gradients(name):
    a, b, gate, bias, gate_bias = (x.requires_grad_() for x in _operands(F64, (2,), 3, 4, 5))

    def call(a, b, gate, bias, gate_bias):
        return wmma_ops.gemm(a, b, bias=bias, gate=gate, gate_bias=gate_bias, activation=name, alpha=0.5)

    assert torch.autograd.gradcheck(call, (a, b, gate, bias, gate_bias))
    assert torch.autograd.gradgradcheck(call, (a, b, gate, bias, gate_bias))


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_a_compiled_graph_keeps_both_factors(dtype):
    tensors = tuple(x.detach().requires_grad_() for x in _operands(dtype, (2,)))
    in_wide = tuple(x.detach().double().requires_grad_() for x in tensors)

    def call(a, b, gate, bias, gate_bias):
        return wmma_ops.gemm(a, b, bias=bias, gate=gate, gate_bias=gate_bias, activation="silu")

    out, found, graphs = compiled(call, *tensors)
    a, b, gate, bias, gate_bias = in_wide
    want = torch.nn.functional.silu(a @ b + bias) * (a @ gate + gate_bias)
    check_near(out, want.detach(), dtype)
    for one, other in zip(found, torch.autograd.grad(want, in_wide, torch.cos(out.double())), strict=True):
        check_near(one, other, dtype)
    backward = ["_gemm_backward", "gemm", "_gemm_backward", "_gemm_backward"]
    assert graphs == [["wmma._gated_aux.default"], [f"wmma.{op}.default" for op in backward]]


PAIR, STORE, OPERANDS = "tile/loader_pair.hpp", "tile/gated_store.hpp", "gemm/operands.hpp"
WRONG = (
    Planted(
        "the_halves_exchanged",
        PAIR,
        "tile + n % 2 * kHalfBytes, step, n / 2",
        "tile + (n + 1) % 2 * kHalfBytes, step, n / 2",
    ),
    Planted("b_twice", OPERANDS, "columns_of<Half>(p, p.gate, batch", "columns_of<Half>(p, x, batch"),
    Planted("columns_of_another_wave", PAIR, "of_half_(lane, first / 2,", "of_half_(lane, first,"),
    Planted(
        "biases_exchanged",
        STORE,
        "load<GateBias>(of_u, p_.gate_bias",
        "load<GateBias>(of_u, p_.bias",
    ),
    Planted("a_bias_a_column_off", STORE, "Half::C::col(lane_, e);", "Half::C::col(lane_, e) + 1;"),
    Planted("no_activation", STORE, "activate<Config::kActivation, Sum>(s.sums[i][j][e])", "s.sums[i][j][e]"),
    Planted("kept_where_the_other_is", STORE, "return p.gate_aux;", "return p.aux;"),
    Planted(
        "half_the_last_part_of_k",
        PAIR,
        "of_gate.template fetch<kMasked>(limit);",
        "of_gate.template fetch<kMasked>(limit / 2);",
    ),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma", WRONG)


@pytest.mark.usefixtures("in_one_kernel")
@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    check_is_caught(of, sources / "wmma", lambda: _check(_operands(F16, (), 70, 200, 50), "gfx942", F16))
