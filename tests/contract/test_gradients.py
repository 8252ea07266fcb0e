"""First and second derivatives, numerically in float64 and against float64 in the half types."""

import contextlib

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch.autograd import functional, gradcheck, gradgradcheck

import wmma_ops
from wmma_ops.ops import library
from wmma_ops.testing.samples import SAMPLES

DIFFERENTIABLE = [sample for sample in SAMPLES if sample.differentiable]


def _caller(sample, op=None):
    """The sample as a function of its floating tensors."""
    op = op or library.overload(sample.op)
    names = list(sample.shapes)

    def function(*values):
        tensors = dict(zip(names, values, strict=True))
        if sample.op == "addmm_":
            tensors["input"] = tensors["input"] * 1  # not a leaf
            op(*sample.arguments(tensors), **sample.scalars)
            return tensors["input"]
        return op(*sample.arguments(tensors), **sample.scalars)

    return function


@pytest.mark.parametrize("sample", DIFFERENTIABLE, ids=str)
def test_gradcheck(sample):
    values = tuple(sample.tensors(torch.float64, requires_grad=True).values())
    assert gradcheck(_caller(sample), values, check_batched_grad=True)


@pytest.mark.parametrize("sample", DIFFERENTIABLE, ids=str)
def test_gradgradcheck(sample):
    values = tuple(sample.tensors(torch.float64, requires_grad=True).values())
    assert gradgradcheck(_caller(sample), values, atol=1e-6, check_batched_grad=True)


@pytest.mark.parametrize("sample", [x for x in DIFFERENTIABLE if x.note != "bool mask"], ids=str)
def test_jacobians_and_hessians_at_once(sample):
    """Many gradients in one backward pass, under the older of torch's two vmaps, are those of a pass each."""
    tensors, call = sample.tensors(torch.float64), _caller(sample)
    names = [name for name, x in tensors.items() if x.is_floating_point()]
    values = tuple(tensors[name] for name in names)

    def function(*values):
        return call(*(tensors | dict(zip(names, values, strict=True))).values())

    def loss(*values):
        out = function(*values)
        return sum(x.sin().sum() for x in (out if isinstance(out, tuple) else (out,)))

    for derivative, of in ((functional.jacobian, function), (functional.hessian, loss)):
        torch.testing.assert_close(derivative(of, values, vectorize=True), derivative(of, values))


def test_gradients_of_nothing_join_the_batch_too():
    weight = torch.randn(5, 4, requires_grad=True)
    for sizes in ((2, 0, 4), (0, 3, 4), (0, 0, 4)):
        x = torch.randn(sizes, requires_grad=True)
        out = wmma_ops.linear(x, weight)
        found = torch.autograd.grad(out, (x, weight), out.new_ones(3, *out.shape), is_grads_batched=True)
        assert [tuple(g.shape) for g in found] == [(3, *sizes), (3, 5, 4)]
        assert found[1].abs().max() == 0


@pytest.mark.parametrize("target", [None, "gfx942"], ids=str)
def test_many_gradients_of_attention_at_once(target):
    q, k, v = (torch.randn(1, heads, n, 16).half().requires_grad_() for heads, n in ((4, 5), (2, 7), (2, 7)))
    with wmma_ops.emulate(target) if target else contextlib.nullcontext() as emulation:
        outs = wmma_ops.attention(q, k, v, is_causal="bottom_right", enable_gqa=True)
        many = [torch.randn(3, *x.shape).to(x.dtype) for x in outs]
        found = torch.autograd.grad(outs, (q, k, v), many, is_grads_batched=True, retain_graph=True)
        each = [torch.autograd.grad(outs, (q, k, v), [g[i] for g in many], retain_graph=True) for i in range(3)]
    for got, want in zip(found, zip(*each, strict=True), strict=True):
        torch.testing.assert_close(got, torch.stack(want))
    assert target is None or len(emulation.launches) > 6


@pytest.mark.parametrize("sample", DIFFERENTIABLE, ids=str)
def test_the_cpu_kernel_records_no_gradient_of_its_own(sample):
    """Its aten calls would otherwise differentiate by themselves and hide a missing or wrong formula."""
    values = sample.tensors(torch.float64, requires_grad=True)
    op = library.overload(sample.op, raw=True)
    if sample.op == "addmm_":
        values["input"] = values["input"].detach()
    result = op(*sample.arguments(values), **sample.scalars)
    results = [values["input"]] if sample.op == "addmm_" else result if isinstance(result, tuple) else [result]
    for x in results:
        assert x.grad_fn is None or "NotImplemented" in x.grad_fn.name()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("sample", DIFFERENTIABLE, ids=str)
def test_gradients_in_narrow_types(sample, dtype):
    """Within a few roundings of the float64 gradients of the same numbers, in the types of what they belong to."""
    narrow = sample.tensors(dtype, requires_grad=True)
    _compare_with_float64(sample, narrow, _gradients(sample, narrow))


def _gradients(sample, tensors):
    out = _caller(sample)(*tensors.values())
    out = sum(x.double().sin().sum() for x in (out if isinstance(out, tuple) else (out,)))
    return torch.autograd.grad(out, [x for x in tensors.values() if x.requires_grad])


def _compare_with_float64(sample, narrow, found):
    wide = {
        k: v.detach().double().requires_grad_(v.requires_grad) if v.is_floating_point() else v
        for k, v in narrow.items()
    }
    leaves = [x for x in narrow.values() if x.requires_grad]
    unit = torch.finfo(leaves[0].dtype).eps / 2
    for got, want, x in zip(found, _gradients(sample, wide), leaves, strict=True):
        assert got.dtype == x.dtype
        assert got.shape == x.shape
        assert (got.double() - want).abs().max() <= 64 * unit * want.abs().max().clamp(min=1)


# The one with the most parts of each op. Kernels of their own for every shape and layout of a derivative take their time,
# those in float64 on RDNA most, which has no matrix instruction for it.
FULLEST = {
    op: max((x for x in DIFFERENTIABLE if x.op == op), key=lambda x: (len(x.shapes), sum(map(len, x.shapes.values()))))
    for op in ("matmul", "addmm", "addmm_", "baddbmm", "gemm", "linear", "gemm_gemm")
}


@pytest.mark.parametrize(
    ("op", "target"), [*((op, "gfx942") for op in FULLEST), ("addmm", "gfx1201"), ("linear", "gfx1201")]
)
def test_first_and_second_derivatives_through_kernels(op, target):
    sample = FULLEST[op]
    values = tuple(sample.tensors(torch.float64, requires_grad=True).values())
    with wmma_ops.emulate(target) as emulation:
        assert gradcheck(_caller(sample), values, fast_mode=True)
        first = len(emulation.launches)
        assert gradgradcheck(_caller(sample), values, atol=1e-6, fast_mode=True)
    assert len(emulation.launches) > first > len(values)


@pytest.mark.parametrize(
    ("op", "target"),
    [*((op, "gfx90a") for op in FULLEST), *((op, "gfx1100") for op in ("gemm", "linear", "gemm_gemm"))],
)
def test_bfloat16_gradients_through_kernels(op, target):
    sample = FULLEST[op]
    narrow = sample.tensors(torch.bfloat16, requires_grad=True)
    with wmma_ops.emulate(target) as emulation:
        found = _gradients(sample, narrow)
    assert len(emulation.launches) >= 3  # the product and both gradients
    _compare_with_float64(sample, narrow, found)


@pytest.mark.parametrize("activation", wmma_ops.ops.activations.names())
@pytest.mark.parametrize("shape", [(3, 4), (1, 3, 4)], ids=str)
def test_one_activated_a_for_many_b(activation, shape):
    tensors = {
        "a": torch.randn(shape, requires_grad=True),
        "b": torch.randn(2, 4, 5, requires_grad=True),
        "a_scale": torch.randn(4, requires_grad=True),
    }

    def gradients(tensors):
        out = wmma_ops.gemm(**tensors, a_activation=activation)
        return torch.autograd.grad(out.sin().sum(), list(tensors.values()))

    wide = {name: x.detach().double().requires_grad_() for name, x in tensors.items()}
    for got, want in zip(gradients(tensors), gradients(wide), strict=True):
        torch.testing.assert_close(got, want.float())


def test_gradients_come_in_the_layout_of_the_parameter():
    weight = torch.randn(5, 4, requires_grad=True)
    wmma_ops.linear(torch.randn(2, 3, 4), weight).sum().backward()
    assert weight.grad.is_contiguous()


def test_only_asked_gradients_are_computed():
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5)
    (grad,) = torch.autograd.grad(wmma_ops.gemm(a, b, bias=torch.randn(5), activation="gelu").sum(), a)
    assert grad.shape == a.shape
    assert b.grad is None


def test_attention_differentiates_through_either_result():
    q, k, v = (torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    assert gradcheck(lambda *x: wmma_ops.attention(*x)[0], (q, k, v))
    assert gradcheck(lambda *x: wmma_ops.attention(*x)[1], (q, k, v))


def test_rows_that_see_no_key_have_zero_gradients():
    q, k, v = (torch.randn(1, 1, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mask = torch.tensor([[True, True, False], [False] * 3, [True] * 3])
    assert gradcheck(lambda *x: wmma_ops.attention(*x, mask=mask)[0], (q, k, v))
    grads = torch.autograd.grad(wmma_ops.attention(q, k, v, mask=mask)[0].sum(), (q, k, v))
    assert all(g.isfinite().all() for g in grads)
    assert grads[0][0, 0, 1].abs().max() == 0


VECTOR, MATRIX, BATCH = torch.randn(4), torch.randn(4, 4), torch.randn(2, 3, 4)
RESULTS = {
    "vector and matrix": lambda w: wmma_ops.matmul(VECTOR, w),
    "matrix and vector": lambda w: wmma_ops.matmul(w, VECTOR),
    "vectors": lambda w: wmma_ops.matmul(w[0], VECTOR),
    "linear of a vector": lambda w: wmma_ops.linear(VECTOR, w),
    "batch": lambda w: wmma_ops.matmul(BATCH, w),
    "gelu": lambda w: wmma_ops.linear(BATCH, w, activation="gelu"),
    "half": lambda w: wmma_ops.linear(BATCH.half(), w.half(), activation="gelu"),
    "two products": lambda w: wmma_ops.gemm_gemm(BATCH, w, w, activation="gelu"),
}


@pytest.mark.parametrize("target", [None, "gfx942"], ids=str)
@pytest.mark.parametrize("name", RESULTS)
def test_results_may_be_changed_in_place(name, target):
    """As `h = linear(x, w, activation="gelu"); h += x` does, or dropout in place."""
    w = MATRIX.clone().requires_grad_()
    with wmma_ops.emulate(target) if target else contextlib.nullcontext():
        (want,) = torch.autograd.grad((RESULTS[name](w) * 2).sum(), w)
        y = RESULTS[name](w)
        y *= 2
        (got,) = torch.autograd.grad(y.sum(), w)
    assert torch.equal(got, want)


def test_results_are_no_views():
    q = torch.randn(1, 2, 3, 4)
    assert not any(
        x._is_view() for x in (*wmma_ops.attention(q, q, q), *(result(MATRIX) for result in RESULTS.values()))
    )


def test_graphs_name_their_ops():
    w = MATRIX.clone().requires_grad_()
    results = (wmma_ops.matmul(w, w), wmma_ops.gemm_gemm(w, w, w), *wmma_ops.attention(w, w, w))
    names = [x.grad_fn.name() for x in results]
    assert names == ["WmmaMatmulBackward", "WmmaGemmGemmBackward", *["WmmaAttentionBackward"] * 2]


def test_a_constant_may_be_an_activation():
    if "test_ones" not in wmma_ops.ops.activations.names():
        wmma_ops.register_activation(
            "test_ones", device="x * 0.f + 1.f", forward=torch.ones_like, derivative=torch.zeros_like
        )
    w = MATRIX.clone().requires_grad_()
    wmma_ops.linear(BATCH, w, activation="test_ones").sum().backward()
    assert torch.equal(w.grad, torch.zeros_like(w))


def test_in_place_is_seen_by_autograd():
    x = torch.randn(3, 3)
    w = torch.randn(3, 3, requires_grad=True)
    y = w * x  # keeps x
    wmma_ops.addmm_(x, torch.randn(3, 3), torch.randn(3, 3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="leaf"):
        wmma_ops.addmm_(w, torch.randn(3, 3), torch.randn(3, 3))


def test_forward_mode_is_refused_rather_than_wrong():
    a, t = torch.randn(3, 3), torch.randn(3, 3)
    with pytest.raises(ValueError, match="a carries a forward-mode derivative; takes reverse mode"):
        torch.func.jvp(lambda x: wmma_ops.matmul(x, x), (a,), (t,))
    with forward_ad.dual_level(), pytest.raises(ValueError, match="weight carries a forward-mode"):
        wmma_ops.linear(a, forward_ad.make_dual(a, t))
    with forward_ad.dual_level():
        assert torch.equal(wmma_ops.matmul(a, a), a @ a)


@pytest.mark.parametrize("compiled", [False, True], ids=["", "compiled"])
def test_results_of_vectors_may_be_changed_in_place(compiled):
    """Those of vectors, too, which the kernels view as matrices."""
    w, x = torch.randn(4, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    pairs = {
        "linear": (lambda: wmma_ops.linear(x, w), lambda: torch.nn.functional.linear(x, w)),
        "by a vector": (lambda: wmma_ops.matmul(w, x), lambda: w @ x),
        "of a vector": (lambda: wmma_ops.matmul(x, w.mT), lambda: x @ w.mT),
        "two vectors": (lambda: wmma_ops.matmul(x, w[0]), lambda: x @ w[0]),
    }
    for name, (ours, theirs) in pairs.items():
        found = []
        for product in (ours, theirs):

            def function(product=product):
                return product().mul_(2).relu_().sum()

            called = torch.compile(function, backend="aot_eager", fullgraph=True) if compiled else function
            found.append(torch.autograd.grad(called(), (w, x)))
        torch.testing.assert_close(*found, msg=name)


@pytest.mark.parametrize("sample", DIFFERENTIABLE, ids=str)
def test_forward_mode_is_refused_under_reverse_mode_too(sample):
    """The derivative of a gradient, as torch.func.hessian takes it: each level sees what it is to refuse."""
    tensors = sample.tensors(torch.float64)
    function = _caller(sample)

    def loss(first):
        out = function(first, *list(tensors.values())[1:])
        return sum(x.sin().sum() for x in (out if isinstance(out, tuple) else (out,)))

    first = next(iter(tensors.values()))
    with pytest.raises((RuntimeError, ValueError), match="carries a forward-mode derivative"):
        torch.func.jvp(torch.func.grad(loss), (first,), (torch.ones_like(first),))
