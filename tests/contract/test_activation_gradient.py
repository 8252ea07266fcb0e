"""What smooth activations are given, kept by the product's own kernel, and g·act′(S) with the sums of its columns."""

import contextlib
from functools import partial

import places
import pytest
import torch
import torch.nn.functional as F
from graph_ops import compiled
from near import BOUNDS, check_near
from planted import Planted, check_is_caught, check_that_each_stands_once

import wmma_ops
from wmma_ops.nn import Linear
from wmma_ops.ops import activations, nodes

F32, F16, BF16, F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
SMOOTH = [one.name for one in activations.BUILTIN if one.name not in ("none", "relu")]
PLACES = ("cpu", "gfx90a", "gfx942", "gfx1100", "gfx1201")
# Rows and columns: of slabs of rows, of chunks that are none, of a row's rest, of a block that few columns leave idle.
SIZES = [(1, 1), (5, 3), (130, 40), (600, 24), (70, 520), (1, 256), (1100, 7)]


def _random(*shape, dtype=F64):
    return torch.randn(shape, dtype=F64).to(dtype)


def _check_gradients(activation, dtype, place, rows, columns, k=16, sums=None):
    """Of a layer, by what it was given; sums of many rows in float32 have an error of their own."""
    code = activations.code("test", "activation", activation)
    g, x, weight, s = (
        _random(*shape, dtype=dtype) for shape in ((rows, columns), (rows, k), (columns, k), (rows, columns))
    )
    with places.on(place):
        call = partial(
            torch.ops.wmma._linear_backward, g, x, weight, s, activation=code, of_s=True, bias_dtype=sums or dtype
        )
        got, again = call(), call()
    assert all(torch.equal(*pair) for pair in zip(got, again, strict=True))
    g_s = activations.by_code(code).backward(g.double(), s.double())
    rounded = g_s.to(dtype).double()
    want = rounded @ weight.double(), rounded.mT @ x.double(), g_s.sum(0), g_s
    for one, other, kind in zip(got, want, (dtype, dtype, sums or dtype, dtype), strict=True):
        check_near(one, other, kind)


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("activation", ["relu", *SMOOTH])
def test_every_activation(activation, place, dtype):
    _check_gradients(activation, dtype, place, 37, 48)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_size(size, place):
    for dtype, sums in ((BF16, F32), (F32, F32), (F16, F16)):
        _check_gradients("silu", dtype, place, *size, sums=sums)


def _check_gate(activation, dtype, place, rows, columns, k=16, sums=None):
    """Both factors' gradients, by what the activation was given and the other factor."""
    code = activations.code("test", "activation", activation)
    shapes = (rows, columns), (rows, k), (k, columns), (rows, columns), (rows, columns)
    g, a, b, s, u = (_random(*shape, dtype=dtype) for shape in shapes)
    with places.on(place):
        options = {"activation": code, "of_s": True, "of_multiply": True, "bias_dtype": sums or dtype}
        call = partial(torch.ops.wmma._gemm_backward, g, a, b, s, u, alpha=0.5, **options)
        got, again = call(), call()
        fakes = torch.ops.wmma._gemm_backward(*(x.to("meta") for x in (g, a, b, s, u)), **options)
    assert all(torch.equal(*pair) for pair in zip(got, again, strict=True))
    assert [(x.shape, x.dtype) for x in fakes] == [(x.shape, x.dtype) for x in got]
    act, wide = activations.by_code(code), (g.double(), s.double(), u.double())
    g_s = act.backward(wide[0] * wide[2], wide[1])
    rounded = g_s.to(dtype).double()
    want = rounded @ b.mT.double() / 2, a.mT.double() @ rounded / 2, g_s.sum(0), g_s, wide[0] * act.forward(wide[1])
    for one, other, kind in zip(got, want, (dtype, dtype, sums or dtype, dtype, dtype), strict=True):
        check_near(one, other, kind)


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("activation", ["none", "relu", *SMOOTH])
def test_a_gate_of_every_activation(activation, place, dtype):
    _check_gate(activation, dtype, place, 37, 48)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_gate_of_every_size(size, place):
    for dtype, sums in ((BF16, F32), (F32, F32), (F16, F16)):
        _check_gate("silu", dtype, place, *size, sums=sums)


@pytest.mark.parametrize("place", PLACES)
def test_sums_alone(place):
    """Those of a bias, where there is no activation."""
    for rows, columns in SIZES:
        g, x, weight = _random(rows, columns, dtype=F32), _random(rows, 8, dtype=F32), _random(columns, 8, dtype=F32)
        for given in (g, _random(rows, 2 * columns, dtype=F32)[:, ::2], g[:1].expand(rows, columns)):
            with places.on(place):
                (got,) = torch.ops.wmma._linear_backward(given, x, weight, of_x=False, of_weight=False, bias_dtype=F32)
            torch.testing.assert_close(got.double(), given.double().sum(0), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("place", PLACES)
def test_far_out_is_the_limit(place):
    """Where torch has infinity times nothing."""
    s = torch.tensor([[-3e38, -1e4, -104.0, -20.0, 0.0, 20.0, 104.0, 1e4, 3e38, torch.nan]])
    x, weight = torch.ones(1, 1), torch.ones(s.shape[1], 1)
    for activation in SMOOTH:
        code = activations.code("test", "activation", activation)
        with places.on(place):
            (got,) = torch.ops.wmma._linear_backward(
                torch.ones_like(s), x, weight, s, activation=code, of_x=False, of_weight=False, of_s=True
            )
        want = activations.by_code(code).backward(torch.ones_like(s).double(), s.double())
        torch.testing.assert_close(got.double(), want, rtol=2e-5, atol=1e-6, equal_nan=True)
        infinite = torch.tensor([[-torch.inf, torch.inf]])
        with places.on(place):
            (ends,) = torch.ops.wmma._linear_backward(
                torch.ones(1, 2), x, weight[:2], infinite, activation=code, of_x=False, of_weight=False, of_s=True
            )
        limits = {"sigmoid": (0, 0), "tanh": (0, 0), "leaky_relu": (activations.LEAKY_SLOPE, 1)}
        assert ends.tolist() == [pytest.approx(limits.get(activation, (0, 1)))]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_what_is_given_is_kept_beside_the_result(dtype, place):
    for batch, m, n, k in (((), 37, 48, 40), ((3,), 17, 9, 33), ((), 300, 72, 5), ((2,), 4, 8, 700)):
        x, weight = _random(*batch, m, k, dtype=dtype), _random(n, k, dtype=dtype) / k
        bias, residual = _random(n, dtype=dtype), _random(*batch, m, n, dtype=dtype)
        given = F.linear(x.double(), weight.double(), bias.double())
        with places.on(place):
            out, kept = torch.ops.wmma._linear_aux(x, weight, bias, residual, activation=2)
            plain = wmma_ops.linear(x, weight, bias, residual=residual, activation="gelu")
            check_near(out, plain.double(), dtype)
            check_near(kept, given + residual.double(), dtype)
            out, kept = torch.ops.wmma._gemm_aux(x, weight.mT, residual, bias, alpha=0.5, beta=2.0, activation=4)
            plain = wmma_ops.gemm(x, weight.mT, c=residual, bias=bias, alpha=0.5, beta=2.0, activation="silu")
            check_near(out, plain.double(), dtype)
            check_near(kept, 0.5 * given + 0.5 * bias.double() + 2 * residual.double(), dtype)
            for activation in ("none", "relu", "silu"):
                code, factor = activations.code("test", "activation", activation), _random(*batch, m, n, dtype=dtype)
                out, kept = torch.ops.wmma._gemm_aux(x, weight.mT, None, bias, factor, activation=code)
                plain = wmma_ops.gemm(x, weight.mT, bias=bias, multiply=factor, activation=activation)
                check_near(out, plain.double(), dtype)
                check_near(kept, given, dtype)
        fakes = torch.ops.wmma._gemm_aux(*(one.to("meta") for one in (x, weight.mT, residual, bias)), activation=4)
        assert [(one.shape, one.dtype, one.stride()) for one in fakes] == [(kept.shape, dtype, kept.stride())] * 2


needs_nodes = pytest.mark.skipif(not nodes.are_there, reason="no derivatives in C++ for this torch")


@contextlib.contextmanager
def _kept():
    """The shapes of what is kept for the backward pass."""
    found = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: found.append(tuple(x.shape)) or x, lambda x: x):
        yield found


@needs_nodes
def test_a_layer_keeps_what_its_activation_is_given_unless_it_computes_again():
    for recompute in (False, True):
        layer = Linear(24, 40, activation="gelu", recompute=recompute)
        x = torch.randn(7, 24, requires_grad=True)
        with _kept() as kept:
            y = layer(x)
        assert ((7, 40) in kept) is not recompute
        want = F.gelu(F.linear(x, layer.weight, layer.bias))
        leaves = [x, *layer.parameters()]
        got, right = (torch.autograd.grad(out.sum(), leaves) for out in (y, want))
        for one, other in zip(got, right, strict=True):
            torch.testing.assert_close(one, other)


@needs_nodes
@pytest.mark.parametrize("activation", SMOOTH)
def test_gradients_of_gradients_go_through_the_formulas(activation):
    tensors = [_random(*shape).requires_grad_() for shape in ((5, 7), (3, 7), (3,), (5, 3))]
    call = partial(torch.ops.wmma.linear, activation=activations.code("test", "activation", activation))
    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors)


@needs_nodes
def test_types_that_differ_go_by_formulas():
    """A result of another type than its operands has nothing kept in theirs."""
    a, b = (_random(*shape, dtype=BF16).requires_grad_() for shape in ((9, 16), (16, 8)))
    for dtype in (F32, BF16):
        with _kept() as kept:
            out = wmma_ops.gemm(a, b, activation="silu", out_dtype=dtype)
        assert ((9, 8) in kept) is (dtype == BF16)
        got = torch.autograd.grad(out.sum(), [a, b])
        wide = [x.detach().double().requires_grad_() for x in (a, b)]
        for one, other in zip(got, torch.autograd.grad(F.silu(wide[0] @ wide[1]).sum(), wide), strict=True):
            check_near(one, other, BF16)


BAD = {
    "s is None": ({"activation": 2}, TypeError, "s is None; takes a tensor beside an activation"),
    "s alone": ({"s": torch.randn(5, 3)}, TypeError, "s is there; takes None without an activation"),
    "its shape": ({"s": torch.randn(5, 4), "activation": 2}, ValueError, r"s has shape \[5, 4\]; takes \[5, 3\]"),
    "its type": ({"s": torch.randn(5, 3).half(), "activation": 2}, TypeError, "s is float16; takes float32"),
    "the activation": ({"s": torch.randn(5, 3), "activation": 300}, ValueError, "activation is code 300; takes 0 to 7"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_gradient_is_refused(name):
    change, kind, text = BAD[name]
    given = {"g": torch.randn(5, 3), "x": torch.randn(5, 7), "weight": torch.randn(3, 7)} | change
    for device in ("cpu", "meta"):
        with pytest.raises(RuntimeError, match=rf"wmma\._linear_backward: {text}.*\[{kind.__name__}\]"):
            torch.ops.wmma._linear_backward(
                **{name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in given.items()}
            )


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_is_no_gate_is_refused(device):
    g, a, b, s = (torch.randn(shape, device=device) for shape in ((5, 3), (5, 7), (7, 3), (5, 3)))
    call = partial(torch.ops.wmma._gemm_backward, g, a, b)
    with pytest.raises(RuntimeError, match="multiply is None; takes the tensor that of_multiply is about"):
        call(s, activation=4, of_multiply=True)
    with pytest.raises(RuntimeError, match=r"multiply has shape \[5, 1\]; takes \[5, 3\], the shape of the product"):
        call(s, s[:, :1])
    with pytest.raises(RuntimeError, match="s is None; takes a tensor beside an activation"):
        call(None, s)


KERNEL, SLOPE, PARTS = "activation_gradient/kernel.hpp", "tile/derivative.hpp", "tile/add_parts.hpp"
WRONG_GATES = (
    Planted("both_of_the_slope", KERNEL, "x * activate<Config::kActivation, Number>(before)", "x * factor"),
    Planted("a_slope_without_the_factor", KERNEL, "x *= factor;", ""),
    Planted(
        "the_results_exchanged",
        KERNEL,
        "arch::copy<kVec>(static_cast<T*>(p.g_u) + to, u[r])",
        "arch::copy<kVec>(static_cast<T*>(p.g_u) + to, g[r])",
    ),
)
WRONG = (
    Planted("a_row_short", KERNEL, "for (; row < end; row += kDown)", "for (; row + 1 < end; row += kDown)"),
    Planted("sums_without_the_last_part", KERNEL, "down < kDown; ++down", "down < kDown - 1; ++down"),
    Planted("a_slab_short", PARTS, "part < parts; part += kDeep", "part < parts - 1; part += kDeep"),
    Planted("sums_of_what_came", KERNEL, "        sums[i] += x;", "        sums[i] += convert<Number>(s[r][i]);"),
    Planted("derivative_of_the_gradient", KERNEL, "convert<Number>(s[r][i]))", "convert<Number>(g[r][i]))"),
    Planted("no_slope", SLOPE, "fma(x * slope, gate * (T(1) - gate), gate)", "fma(x * slope, T(0), gate)"),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma", (*WRONG, *WRONG_GATES))


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    check_is_caught(of, sources / "wmma", lambda: _check_gradients("silu", F32, "gfx942", 601, 40))


@pytest.mark.parametrize("of", WRONG_GATES, ids=str)
def test_a_wrong_gate_is_caught(of, sources):
    check_is_caught(of, sources / "wmma", lambda: _check_gate("silu", F32, "gfx942", 61, 40))


GRAPHS = {
    "linear": (lambda x, w, b, r: wmma_ops.linear(x, w, b, activation="gelu"), "_linear"),
    "linear, residual": (lambda x, w, b, r: wmma_ops.linear(x, w, b, activation="silu", residual=r), "_linear"),
    "gemm": (
        lambda x, w, b, r: wmma_ops.gemm(x, w.mT, c=r, bias=b, alpha=0.5, beta=2.0, activation="tanh"),
        "_gemm",
    ),
    "gemm, multiplied": (
        lambda x, w, b, r: wmma_ops.gemm(x, w.mT, bias=b, activation="silu", multiply=x[..., :1] * w[:, 0] * r),
        "_gemm",
    ),
}


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize("kind", GRAPHS)
def test_a_compiled_graph_multiplies_no_more_often(kind, dtype):
    """One op a pass, of which the second is given what the first kept; values are those of eager."""
    call, op = GRAPHS[kind]
    shapes = (3, 7, 24), (40, 24), (40,), (7, 1)
    tensors = [_random(*shape, dtype=dtype).requires_grad_() for shape in shapes]
    out, found, graphs = compiled(call, *tensors)
    assert graphs == [[f"wmma.{op}_aux.default"], [f"wmma.{op}_backward.default"]]
    eager = call(*tensors)
    torch.testing.assert_close(out, eager.detach(), rtol=0, atol=0)
    for got, want in zip(found, torch.autograd.grad(eager, tensors, torch.cos(out), allow_unused=True), strict=True):
        assert (got is None) == (want is None)
        if want is not None:
            torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("activation", [None, "relu"])
def test_nor_without_a_smooth_activation(activation):
    tensors = [_random(*shape, dtype=F32).requires_grad_() for shape in ((5, 24), (40, 24), (40,))]
    *_, graphs = compiled(lambda *t: wmma_ops.linear(*t, activation=activation), *tensors)
    assert graphs == [["wmma.linear.default"], ["wmma._gemm_backward.default"]]


def test_recompute_keeps_nothing_in_a_compiled_graph():
    for recompute in (False, True):
        layer = Linear(24, 40, activation="gelu", recompute=recompute)
        x = torch.randn(7, 24, requires_grad=True)
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, to=kept: to.append(tuple(t.shape)) or t, lambda t: t):
            out, found, graphs = compiled(layer, x)
        assert ((7, 40) in kept) is not recompute
        want = torch.autograd.grad(layer(x), x, torch.cos(out))[0]
        torch.testing.assert_close(found[0], want, rtol=1e-5, atol=1e-5)
    assert graphs == [["wmma._linear_aux.default"], ["wmma._linear_aux.default", "wmma._linear_backward.default"]]


def test_what_is_differentiated_again_is_not_given_what_was_kept():
    """torch.func's transforms in a compiled graph go by formulas, which differentiate."""
    x, w = torch.randn(4, 8, dtype=F64), torch.randn(6, 8, dtype=F64)

    def loss(x):
        return wmma_ops.linear(x, w, activation="gelu").square().sum()

    def twice(x):
        return torch.func.grad(lambda x: torch.func.grad(loss)(x).square().sum())(x)

    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(twice, backend="aot_eager")(x), twice(x))


def test_the_gradients_of_two_products_multiply_the_first_once():
    a, b0, b1 = (torch.randn(8, 8, requires_grad=True) for _ in range(3))
    out = wmma_ops.gemm_gemm(a, b0, b1, activation="gelu")
    with torch.profiler.profile() as profile:
        found = torch.autograd.grad(out, (a, b0, b1), torch.ones_like(out))
    asked = [e.name.partition("::")[2] for e in profile.events() if e.name.startswith(("wmma::", "wmma_raw::"))]
    assert sorted(asked) == ["_gemm_aux", "_gemm_backward", "_gemm_backward"]
    want = torch.autograd.grad((F.gelu(a @ b0) @ b1).sum(), (a, b0, b1))
    for got, one in zip(found, want, strict=True):
        torch.testing.assert_close(got, one, rtol=1e-5, atol=1e-5)


def test_gradients_within_a_compiled_graph_are_differentiated_again():
    if not hasattr(torch._dynamo.config, "trace_autograd_ops"):
        pytest.skip(f"torch {torch.__version__} compiles no torch.autograd.grad: NOTHING IS DIFFERENTIATED IN A GRAPH")
    tensors = [torch.randn(shape, dtype=F64, requires_grad=True) for shape in ((4, 8), (6, 8), (6,))]

    def loss(x, weight, bias):
        y = wmma_ops.linear(x, weight, bias, activation="gelu").square().sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return g.square().sum() + y

    torch._dynamo.reset()
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        found = torch.autograd.grad(torch.compile(loss, backend="aot_eager")(*tensors), tensors)
    for got, want in zip(found, torch.autograd.grad(loss(*tensors), tensors), strict=True):
        torch.testing.assert_close(got, want)
