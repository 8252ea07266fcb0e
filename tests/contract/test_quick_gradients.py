"""Gradients that one op answers with (csrc/nodes/nodes.cpp): those of the formulas, laid out alike, and no longer way."""

import contextlib
import os
import subprocess
import sys
from functools import partial

import pytest
import torch
from near import BOUNDS, check_near
from torch.utils._python_dispatch import TorchDispatchMode

import wmma_ops
from wmma_ops.ops import autograd, nodes

F32, F16, BF16, F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
PRODUCTS = [
    ((5, 7), (7, 3)),
    ((4, 5, 7), (7, 3)),
    ((4, 5, 7), (4, 7, 3)),
    ((5, 7), (4, 7, 3)),
    ((4, 1, 5, 7), (3, 7, 2)),
    ((1, 7), (7, 1)),
    ((0, 7), (7, 3)),
    ((2, 5, 0), (0, 3)),
    ((2, 0, 5, 7), (7, 3)),
]
PLACES = {
    "cpu": contextlib.nullcontext,
    "gfx942": lambda: wmma_ops.emulate("gfx942"),
    "gfx1201": lambda: wmma_ops.emulate("gfx1201"),
}


class _Onlooker(TorchDispatchMode):
    """Sees what is dispatched, so that derivatives go the general way."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _leaf(shape, dtype, by_columns=False):
    x = torch.randn(shape, dtype=F64).to(dtype)
    return (x.mT.contiguous().mT if by_columns else x).requires_grad_()


def _answered(call):
    """What a call gives, and the ops that answered for gradients."""
    with torch.profiler.profile() as profile:
        found = call()
    return found, [
        e.name[7:-9] for e in profile.events() if e.name in ("wmma::_gemm_backward", "wmma::_linear_backward")
    ]


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
def test_the_op_answers_as_float64_and_in_the_layout_of_its_operands(shapes, dtype):
    for columns in ((False, False), (True, False), (False, True), (True, True)):
        a, b = (_leaf(shape, dtype, by) for shape, by in zip(shapes, columns, strict=True))
        wide = [x.detach().double().requires_grad_() for x in (a, b)]
        out = 0.5 * torch.matmul(*wide)
        g = torch.randn_like(out).to(dtype)
        want = [*torch.autograd.grad(out, wide, g.double()), g.double().sum(tuple(range(g.dim() - 1)))]
        with torch.no_grad():
            got = torch.ops.wmma._gemm_backward(g, a, b, alpha=0.5, bias_dtype=dtype)
            fakes = torch.ops.wmma._gemm_backward(*(x.to("meta") for x in (g, a, b)), bias_dtype=dtype)
        for x, one, fake, like in zip(got, want, fakes, (a, b, None), strict=True):
            check_near(x, one, dtype)
            assert (fake.shape, fake.dtype, fake.stride()) == (x.shape, x.dtype, x.stride())
            if like is not None and like.dim() == 2 and like.numel() and 1 not in like.shape:
                assert x.stride() == like.stride()


def test_only_what_is_asked_for_comes():
    g, x, weight = torch.randn(5, 3), torch.randn(5, 7), torch.randn(3, 7)
    whole = torch.ops.wmma._linear_backward(g, x, weight, bias_dtype=F32)
    assert [tuple(one.shape) for one in whole] == [(5, 7), (3, 7), (3,)]
    for asked in range(8):
        of_x, of_weight, of_bias = (bool(asked >> i & 1) for i in range(3))
        bias_dtype = F32 if of_bias else None
        found = torch.ops.wmma._linear_backward(g, x, weight, of_x=of_x, of_weight=of_weight, bias_dtype=bias_dtype)
        wanted = [one for one, is_wanted in zip(whole, (of_x, of_weight, of_bias), strict=True) if is_wanted]
        assert len(found) == len(wanted)
        assert all(torch.equal(got, want) for got, want in zip(found, wanted, strict=True))


LINEAR = "linear" if nodes.are_there else "gemm"  # the formulas have one op for all products
CALLS = {
    "matmul": (lambda x, w, b: wmma_ops.matmul(x, w.mT), "gemm"),
    "matmul to float32": (lambda x, w, b: wmma_ops.matmul(x, w.mT, out_dtype=F32), "gemm"),
    "gemm + bias": (lambda x, w, b: wmma_ops.gemm(x, w.mT, bias=b, alpha=0.5), "gemm"),
    "gemm + relu": (lambda x, w, b: wmma_ops.gemm(x, w.mT, bias=b, activation="relu"), "gemm"),
    "gemm + gelu": (lambda x, w, b: wmma_ops.gemm(x, w.mT, bias=b, activation="gelu"), "gemm"),
    "gemm + silu, multiplied": (
        lambda x, w, b: wmma_ops.gemm(x, w.mT, bias=b, activation="silu", multiply=x[..., :3] * b),
        "gemm",
    ),
    "gemm + relu, multiplied": (
        lambda x, w, b: wmma_ops.gemm(x, w.mT, c=x[..., 3:6], activation="relu", multiply=x[..., :3] * b),
        "gemm",
    ),
    "gemm, multiplied": (lambda x, w, b: wmma_ops.gemm(x, w.mT, multiply=x[..., :3] * b), "gemm"),
    "gemm + bias [1, N]": (lambda x, w, b: wmma_ops.gemm(x, w.mT, bias=b.expand(2, -1)), "gemm"),
    "linear": (lambda x, w, b: wmma_ops.linear(x, w, b), LINEAR),
    "linear without bias": (lambda x, w, b: wmma_ops.linear(x, w), LINEAR),
    "linear + relu": (lambda x, w, b: wmma_ops.linear(x, w, b, activation="relu"), LINEAR),
    "linear + silu": (lambda x, w, b: wmma_ops.linear(x, w, b, activation="silu"), LINEAR),
    "linear + residual": (
        lambda x, w, b: wmma_ops.linear(x, w, b, residual=x.sum(-1, keepdim=True).expand(2, 5, 3)),
        LINEAR,
    ),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", CALLS)
def test_at_once_and_by_formulas_are_one(name, place):
    """Which way is gone follows from who looks on; what comes does not."""
    call, op = CALLS[name]
    dtypes = (F32, BF16) if place == "cpu" else (F16,)
    for dtype in dtypes:
        leaves = [_leaf(shape, dtype) for shape in ((2, 5, 8), (3, 8), (3,))]
        found = {}
        for way, onlooker in (("once", contextlib.nullcontext()), ("formulas", _Onlooker())):
            with PLACES[place]() as emulation, onlooker:
                out = call(*leaves)
                out = out if out.dtype == dtype else out.to(dtype)
                g = torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(dtype)
                found[way], answered = _answered(partial(torch.autograd.grad, out, leaves, g, allow_unused=True))
            assert answered == ([op] if way == "once" else []), way
            assert place == "cpu" or len(emulation.launches) >= 3
        for got, want in zip(found["once"], found["formulas"], strict=True):
            assert (got is None) == (want is None)
            if got is not None:
                check_near(got, want, dtype)


def test_gradients_that_are_differentiated_again_go_by_formulas():
    x, w, b = (_leaf(shape, F64) for shape in ((5, 8), (3, 8), (3,)))
    for activation in (None, "relu"):
        out = wmma_ops.linear(x, w, b, activation=activation)
        (g,), answered = _answered(partial(torch.autograd.grad, out.square().sum(), x, create_graph=True))
        assert not answered
        again = torch.autograd.grad(g.square().sum(), (x, w))
        wide = torch.nn.functional.linear(x, w, b)
        wide = wide.relu() if activation else wide
        (g,) = torch.autograd.grad(wide.square().sum(), x, create_graph=True)
        for got, want in zip(again, torch.autograd.grad(g.square().sum(), (x, w)), strict=True):
            torch.testing.assert_close(got, want)


@pytest.mark.skipif(not nodes.are_there, reason="no derivatives in C++ for this torch")
def test_nobody_is_passed_by(monkeypatch):
    """A call that somebody sees goes the general way: under modes, in transforms, with other tensors."""
    x, w = torch.randn(4, 8, requires_grad=True), torch.randn(3, 8, requires_grad=True)
    ask, asked = autograd.any_requires_grad, []

    class Mine(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[override]
            with torch._C._DisableTorchDispatch():
                return func(*args, **(kwargs or {}))

    def watched(*tensors):
        asked.append(tensors)
        return ask(*tensors)

    def is_quick(x, w=w):
        asked.clear()
        torch.ops.wmma.linear(x, w)
        return not asked

    monkeypatch.setattr(autograd, "any_requires_grad", watched)
    assert is_quick(x)
    assert is_quick(x.detach(), w.detach())
    assert not is_quick(x.as_subclass(Mine))
    with torch.no_grad():
        assert is_quick(x)
    with _Onlooker():
        assert not is_quick(x)
    asked.clear()
    torch.func.grad(lambda x: torch.ops.wmma.linear(x, w.detach()).sum())(x.detach())
    assert asked
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x.detach(), torch.ones_like(x))
        with pytest.raises(ValueError, match="forward-mode"):
            wmma_ops.linear(dual, w)


@pytest.mark.full
@pytest.mark.skipif(not nodes.are_there, reason="no derivatives in C++ for this torch")
def test_without_the_nodes_all_is_the_same():
    """As beside a torch that the library was not built with, or where no compiler was there to build it."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", __file__]
    chosen = [*command, "-k", "at_once_and_by and cpu or differentiated_again or is_one_to_a_profiler"]
    run = subprocess.run(chosen, env=os.environ | {"WMMA_OPS_NODES": "0"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
    assert "passed" in run.stdout


def test_a_call_is_one_to_a_profiler():
    x, w = torch.randn(4, 8, requires_grad=True), torch.randn(3, 8, requires_grad=True)
    with torch.profiler.profile() as profile:
        wmma_ops.matmul(wmma_ops.linear(x, w), w)
    names = [event.name for event in profile.events() if "wmma" in event.name and "::" in event.name]
    assert sorted(names) == ["wmma::linear", "wmma::matmul"]


BAD = {
    "g": (torch.randn(5, 4), ValueError, r"g has shape \[5, 4\]; takes \[5, 3\], the shape of the product"),
    "a": (torch.ones(5, 7, dtype=torch.int8), TypeError, "b is float32; takes int8, as a has"),
    "b": (torch.randn(6, 3), ValueError, r"b has shape \[6, 3\]; takes "),
}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("name", BAD)
def test_what_is_no_gradient_of_a_product_is_refused(name, device):
    wrong, kind, text = BAD[name]
    given = {"g": torch.randn(5, 3), "a": torch.randn(5, 7), "b": torch.randn(7, 3)} | {name: wrong}
    with pytest.raises(RuntimeError, match=rf"wmma\._gemm_backward: {text}.*\[{kind.__name__}\]"):
        torch.ops.wmma._gemm_backward(**{x: of.to(device) for x, of in given.items()})


def test_numbers_without_gradients_are_refused():
    x = torch.ones(4, 4, dtype=torch.int8)
    for device in ("cpu", "meta"):
        with pytest.raises(RuntimeError, match="a is int8; takes float16, bfloat16, float32 or float64"):
            torch.ops.wmma._gemm_backward(x.to(device).float(), *(x.to(device),) * 2)
