"""Layers of several products that are one node to autograd (csrc/nodes/layers.hpp)."""

import contextlib
import functools
import itertools

import pytest
import torch
import torch.nn.functional as F
from layer_nodes import (
    adapted,
    adapted_by_torch,
    adapted_tensors,
    beside_float64,
    gate_tensors,
    gated,
    gated_by_torch,
    leaf,
    mlp,
    mlp_by_torch,
    mlp_tensors,
    wide,
)
from near import BOUNDS, check_near
from torch.utils._python_dispatch import TorchDispatchMode

import wmma_ops
from wmma_ops.nn import FusedMLP, LoRALinear
from wmma_ops.ops import nodes

F32, F16, BF16, F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
PLACES = {
    "cpu": contextlib.nullcontext,
    "gfx942": lambda: wmma_ops.emulate("gfx942"),
    "gfx1201": lambda: wmma_ops.emulate("gfx1201"),
}
pytestmark = pytest.mark.skipif(not nodes.are_there, reason="no derivatives in C++ for this torch")


class _Onlooker(TorchDispatchMode):
    """Sees what is dispatched, so that derivatives go the general way."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _names(call):
    """What a call gives, and how often each op of ours ran."""
    with torch.profiler.profile() as profile:
        found = call()
    names = [e.name.partition("::")[2] for e in profile.events() if e.name.startswith(("wmma::", "wmma_raw::"))]
    return found, {name: names.count(name) for name in set(names)}


def _check(got, want, dtype):
    for one, other in zip(got, want, strict=True):
        check_near(one, other, dtype)


def _each_asked(layer, by_torch, make, names, counts):
    """So many of a layer's tensors with gradients, which are right; and how often each op ran for them."""
    for asked in itertools.chain.from_iterable(itertools.combinations(names, count) for count in counts):
        tensors = make(F32)
        for name, x in zip(names, tensors, strict=True):
            x.requires_grad_(name in asked)
        leaves = [x for x in tensors if x.requires_grad]
        out, want = layer(*tensors), by_torch(*tensors)
        found, ops = _names(functools.partial(torch.autograd.grad, out, leaves, torch.ones_like(out)))
        right = torch.autograd.grad(want, leaves, torch.ones_like(want))
        _check(found, [x.double() for x in right], F32)
        yield asked, ops


@pytest.fixture
def new_memory_is_nan():
    """So that nothing is taken for a value that nobody wrote: formulas see places of tensors whose values were not kept."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)


# ----------------------------------------------------------------------------------------------------- with an adapter


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_a_layer_with_an_adapter(dtype, place):
    for batch, has_bias in (((), True), ((2,), False), ((3, 2), True)):
        tensors = adapted_tensors(dtype, batch, has_bias=has_bias)
        found, right = beside_float64(adapted, adapted_by_torch, tensors, dtype)
        with PLACES[place]():
            got = found()
        _check(got, right, dtype)


def test_only_what_is_asked_for_is_computed():
    """Of a frozen layer no gradient of the weight is, and of an input that is none nothing but the adapter's."""
    names = "x", "weight", "bias", "down", "up"
    for asked, ops in _each_asked(adapted, adapted_by_torch, adapted_tensors, names, range(1, 6)):
        gemms = 2 if "x" in asked else int("down" in asked)
        layers = int("weight" in asked or "bias" in asked) + ("down" in asked) + ("up" in asked)
        assert ops == {k: v for k, v in {"gemm": gemms, "_linear_backward": layers}.items() if v}, asked


def test_who_looks_on_sees_the_products():
    tensors = adapted_tensors(F32)
    g = torch.randn(2, 5, 40)
    found = {}
    for way, onlooker in (("once", contextlib.nullcontext()), ("forward", _Onlooker()), ("backward", None)):
        with onlooker or contextlib.nullcontext():
            out = adapted(*tensors)
        with _Onlooker() if way == "backward" else contextlib.nullcontext():
            found[way] = torch.autograd.grad(out, tensors, g)
    for got in found.values():
        _check(got, [x.double() for x in found["once"]], F32)
    jacobian = torch.func.jacrev(lambda x: adapted(x, *(one.detach() for one in tensors[1:])))(tensors[0].detach())
    torch.testing.assert_close(torch.einsum("bmn,bmnBMK->BMK", g, jacobian), found["once"][0], rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("new_memory_is_nan")
def test_gradients_of_gradients():
    tensors = adapted_tensors(F64, (), 3, 4, 5, 2)
    assert torch.autograd.gradcheck(adapted, tensors)
    assert torch.autograd.gradgradcheck(adapted, tensors)


def test_what_is_kept_may_not_change():
    tensors = adapted_tensors(F32)
    out = adapted(*tensors)
    with torch.no_grad():
        tensors[4].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_a_module_with_an_adapter_is_one_node(dtype):
    layer = LoRALinear(24, 40, rank=4, alpha=2.0).to(dtype)
    layer.lora_b.weight.data.normal_()
    x = leaf(7, 24, dtype=dtype)
    out = layer(x)
    assert out.grad_fn.name() == "WmmaAdaptedBackward"
    out.sum().backward()
    assert layer.weight.grad is None
    low = F.linear(F.linear(x.double(), layer.lora_a.weight.double()), layer.lora_b.weight.double())
    check_near(
        out.detach(), (F.linear(x.double(), layer.weight.double(), layer.bias.double()) + low / 2).detach(), dtype
    )
    with torch.no_grad():
        assert layer(x).grad_fn is None

    class Other(torch.Tensor):
        pass

    assert layer(x.as_subclass(Other)).grad_fn.name() != "WmmaAdaptedBackward"
    layer.dropout.p = 0.5  # between x and the adapter
    assert layer(x).grad_fn.name() != "WmmaAdaptedBackward"


def test_under_autocast_all_take_its_type():
    layer = LoRALinear(24, 40, rank=4)
    layer.lora_b.weight.data.normal_()
    x = leaf(7, 24, dtype=BF16)
    with torch.autocast("cpu", dtype=BF16):
        out = layer(x)
        assert (out.dtype, out.grad_fn.name()) == (BF16, "WmmaAdaptedBackward")
        found = torch.autograd.grad(out, [x, layer.lora_a.weight, layer.lora_b.weight], torch.ones_like(out))
    assert [one.dtype for one in found] == [BF16, F32, F32]
    a, b = (one.weight.detach().bfloat16().double().requires_grad_() for one in (layer.lora_a, layer.lora_b))
    in_wide = x.detach().double().requires_grad_()
    want = F.linear(in_wide, layer.weight.bfloat16().double(), layer.bias.double()) + 4 * F.linear(
        F.linear(in_wide, a), b
    )
    check_near(out.detach(), want.detach(), BF16)
    for got, one in zip(found, torch.autograd.grad(want, [in_wide, a, b], torch.ones_like(want)), strict=True):
        check_near(got.to(BF16), one, BF16)


# --------------------------------------------------------------------------------------------------------- with a gate


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_a_layer_with_a_gate(dtype, place):
    for batch, has_bias, activation in (
        ((), True, "silu"),
        ((2,), False, "gelu"),
        ((3, 2), True, None),
        ((), False, "relu"),
    ):
        tensors = gate_tensors(dtype, batch, has_bias=has_bias)
        found, right = beside_float64(gated(activation), gated_by_torch(activation), tensors, dtype)
        with PLACES[place]():
            got = found()
        _check(got, right, dtype)


def test_of_a_gate_too_only_what_is_asked_for_is_computed():
    names = "x", "gate", "gate_bias", "up", "up_bias"
    for asked, ops in _each_asked(gated("silu"), gated_by_torch("silu"), gate_tensors, names, range(1, 6)):
        layers = sum(not one.isdisjoint(asked) for one in ({"gate", "gate_bias"}, {"up", "up_bias"}))
        expected = {"_gemm_backward": 1, "gemm": int("x" in asked), "_linear_backward": layers}
        assert ops == {k: v for k, v in expected.items() if v}, asked


@pytest.mark.usefixtures("new_memory_is_nan")
@pytest.mark.parametrize("activation", ["silu", "gelu", None])
def test_gradients_of_gradients_of_a_gate(activation):
    tensors = gate_tensors(F64, (), 3, 4, 5)
    assert torch.autograd.gradcheck(gated(activation), tensors)
    assert torch.autograd.gradgradcheck(gated(activation), tensors)


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
@pytest.mark.parametrize(
    ("activation", "is_gated", "first"),
    [
        ("silu", True, "_gated_aux"),
        ("gelu", False, "_linear_aux"),
        ("relu", False, "gemm"),
        ("none", True, "_gated_aux"),
    ],
)
@pytest.mark.parametrize("has_bias", [False, True], ids=["", "bias"])
def test_an_mlp_is_one_node(has_bias, activation, is_gated, first, dtype):
    module = FusedMLP(24, 40, activation=activation, gated=is_gated, dtype=dtype, bias=has_bias)
    x = leaf(2, 7, 24, dtype=dtype)
    out, forward = _names(lambda: module(x))
    assert forward == ({"gemm": 2} if first == "gemm" else {first: 1, "gemm": 1})
    leaves = [x, *module.parameters()]
    in_wide = wide(leaves)
    own = iter(in_wide[1:])
    layers = [(next(own), next(own) if has_bias else None) for _ in range(3 if is_gated else 2)]
    if not is_gated:
        layers.insert(1, (None, None))
    want = mlp_by_torch(activation)(in_wide[0], *itertools.chain(*layers))
    check_near(out.detach(), want.detach(), dtype)
    found, backward = _names(lambda: torch.autograd.grad(out, leaves, torch.ones_like(out)))
    _check(found, torch.autograd.grad(want, in_wide, torch.ones_like(want)), dtype)
    assert backward == {"_gemm_slopes": 1, "gemm": 1, "_linear_backward": 3 if is_gated else 2}
    with _Onlooker():
        again = module(x)
    assert again.grad_fn.name() != "WmmaMlpBackward"
    _check([again.detach()], [want.detach()], dtype)


# --------------------------------------------------------------------------------------------------------- whole MLPs


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_an_mlp(dtype, place):
    for batch, has_bias, is_gated, activation in (
        ((), True, True, "silu"),
        ((2,), False, False, "gelu"),
        ((3, 2), True, False, "relu"),
        ((), False, True, "relu"),
    ):
        tensors = mlp_tensors(dtype, batch, has_bias=has_bias, is_gated=is_gated)
        found, right = beside_float64(mlp(activation), mlp_by_torch(activation), tensors, dtype)
        with PLACES[place]() as emulation:
            got = found()
        _check(got, right, dtype)
        if emulation is not None:  # the gate's two in one or not; what sums up biases is two or not
            assert len(emulation.launches) <= (11 if is_gated else 8)


def test_of_an_mlp_too_only_what_is_asked_for_is_computed():
    names = "x", "first", "first_bias", "up", "up_bias", "second", "second_bias"
    layers = [{"first", "first_bias"}, {"up", "up_bias"}, {"second", "second_bias"}]
    for asked, ops in _each_asked(mlp("silu"), mlp_by_torch("silu"), mlp_tensors, names, (1, 2, 6)):
        expected = {
            "_linear_backward": sum(not one.isdisjoint(asked) for one in layers),
            "_gemm_slopes": int(not {"x", *layers[0], *layers[1]}.isdisjoint(asked)),
            "gemm": int("x" in asked),
        }
        assert ops == {k: v for k, v in expected.items() if v}, asked


@pytest.mark.usefixtures("new_memory_is_nan")
@pytest.mark.parametrize(("activation", "is_gated"), [("silu", True), ("gelu", False), ("relu", False), (None, True)])
def test_gradients_of_gradients_of_an_mlp(activation, is_gated):
    tensors = mlp_tensors(F64, (), 3, 4, 5, is_gated=is_gated)
    assert torch.autograd.gradcheck(mlp(activation), tensors)
    assert torch.autograd.gradgradcheck(mlp(activation), tensors)


def test_an_mlp_under_autocast_takes_its_type():
    module = FusedMLP(24, 40, activation="gelu")
    x = leaf(7, 24, dtype=F32)
    with torch.autocast("cpu", dtype=BF16):
        out = module(x)
    assert (out.dtype, out.grad_fn.name()) == (BF16, "WmmaMlpBackward")
    found = torch.autograd.grad(out, [x, *module.parameters()], torch.ones_like(out))
    assert {one.dtype for one in found} == {F32}
    rounded = [one.detach().bfloat16().double().requires_grad_() for one in (x, *module.parameters())]
    want = mlp_by_torch("gelu")(*rounded[:3], None, None, *rounded[3:])
    check_near(out.detach(), want.detach(), BF16)
    for got, one in zip(found, torch.autograd.grad(want, rounded, torch.ones_like(want)), strict=True):
        check_near(got.to(BF16), one, BF16)


def test_where_the_last_layer_alone_learns_its_input_alone_is_kept():
    module = FusedMLP(24, 40, activation="silu", gated=True)
    for parameter in list(module.parameters())[:4]:
        parameter.requires_grad_(False)
    assert module(torch.randn(7, 24)).grad_fn.name() == "WmmaLinearBackward"


def test_a_bias_that_is_only_added_may_change():
    tensors = mlp_tensors(F32)
    out = mlp("silu")(*tensors)
    with torch.no_grad():
        tensors[-1].mul_(2)
    out.sum().backward()
    _, *rest = mlp_tensors(F32)
    out = mlp("silu")(tensors[0], *rest)
    with torch.no_grad():
        rest[0].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
