"""vmap, torch.func and autocast."""

import pytest
import torch

import wmma_ops
from wmma_ops.ops import library
from wmma_ops.testing.samples import SAMPLES


def _cases():
    """Each sample with all its tensors mapped, and with each one mapped alone."""
    for sample in SAMPLES:
        names = list(sample.shapes)
        masked = [name for name in names if sample.op == "addmm_" and name != "input"]
        yield sample, tuple(names)
        for name in names:
            if len(names) > 1 and name not in masked:
                yield sample, (name,)


@pytest.mark.parametrize(("sample", "mapped"), list(_cases()), ids=lambda x: str(x))
@pytest.mark.parametrize("raw", [False, True], ids=["wmma", "raw"])
def test_vmap_is_a_loop(sample, mapped, raw):
    copies = [sample.tensors(torch.float64, seed=seed) for seed in range(3)]
    # The mapped dimension comes first for some, last for others.
    dims = {name: None if name not in mapped else (-1 if index % 2 else 0) for index, name in enumerate(sample.shapes)}
    stacked = {
        name: copies[0][name] if dim is None else torch.stack([c[name] for c in copies], dim)
        for name, dim in dims.items()
    }
    op = library.overload(sample.op, raw=raw)

    def function(*values):
        tensors = dict(zip(sample.shapes, values, strict=True))
        if sample.op == "addmm_":
            tensors["input"] = tensors["input"].clone()
            op(*sample.arguments(tensors), **sample.scalars)
            return (tensors["input"],)
        out = op(*sample.arguments(tensors), **sample.scalars)
        return out if isinstance(out, tuple) else (out,)

    got = torch.vmap(function, in_dims=tuple(dims.values()))(*stacked.values())
    each = [
        function(*(stacked[name] if dim is None else copies[i][name] for name, dim in dims.items())) for i in range(3)
    ]
    for index, x in enumerate(got):
        torch.testing.assert_close(x, torch.stack([e[index] for e in each]))


RANKS = {
    "attention": (lambda x: wmma_ops.attention(x, x, x)[0], (3, 4), r"q has shape \[4\] under vmap; .* at least 2"),
    "varlen_attention": (
        lambda x: wmma_ops.varlen_attention(x, x, x, *[torch.tensor([0, 2])] * 2, 2, 2)[0],
        (3, 2, 4),
        r"query has shape \[2, 4\] under vmap; .* rank of 3",
    ),
    "gemm": (lambda x: wmma_ops.gemm(x, torch.ones(4, 4)), (3, 4), r"a has shape \[4\] under vmap; .* at least 2"),
    "gemm of two pairs": (
        lambda x: wmma_ops.gemm(torch.ones(4, 4), torch.ones(4, 4), a2=x, b2=torch.ones(4, 4)),
        (3, 4),
        r"a2 has shape \[4\] under vmap; .* at least 2",
    ),
    "matmul": (lambda x: wmma_ops.matmul(x, torch.ones(1, 4)), (3,), r"a has shape \[\] under vmap; .* at least 1"),
    "addmm": (lambda x: wmma_ops.addmm(x, x, x), (3, 2, 4, 4), r"a has shape \[2, 4, 4\] under vmap; .* rank of 2"),
    "linear": (
        lambda x: wmma_ops.linear(x[0], x),
        (3, 2, 4, 4),
        r"weight has shape \[2, 4, 4\] under vmap; .* rank of 2",
    ),
}


@pytest.mark.parametrize("op", RANKS)
def test_the_mapped_dimension_stands_for_no_other(op):
    function, shape, text = RANKS[op]
    for dim in (0, -1):
        with pytest.raises(ValueError, match=rf"^wmma\.{op.split()[0]}: {text}"):
            torch.vmap(function, in_dims=dim)(torch.ones(shape).movedim(0, dim))


def test_in_place_on_what_a_transform_does_not_see_is_refused():
    a, total = torch.ones(2, 2), torch.zeros(2, 2)
    for op in (wmma_ops.addmm_, torch.Tensor.addmm_):  # torch's own words differ
        with pytest.raises((RuntimeError, ValueError), match=r"captured|comes from outside the function"):
            torch.func.grad(lambda x, op=op: op(total, x, a).sum())(a)
    assert torch.equal(total, torch.zeros(2, 2))
    inside = torch.func.grad(lambda x: wmma_ops.addmm_(torch.zeros(2, 2), x, a).sum())(a)
    assert torch.equal(inside, torch.full((2, 2), 2.0))


def test_in_place_under_vmap_needs_a_mapped_input():
    with pytest.raises((RuntimeError, ValueError), match="input is not mapped"):
        torch.vmap(lambda a: wmma_ops.addmm_(torch.zeros(2, 2), a, a))(torch.ones(3, 2, 2))


def test_per_sample_gradients():
    w = torch.randn(4, 3, dtype=torch.float64)
    x = torch.randn(5, 2, 3, dtype=torch.float64)

    def loss(w, x):
        return wmma_ops.linear(x, w, activation="gelu").square().sum()

    got = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, x)
    want = torch.stack([torch.func.grad(loss)(w, one) for one in x])
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("activation", wmma_ops.ops.activations.names())
def test_per_sample_gradients_of_what_broadcasts(activation):
    """A has fewer dimensions than the gradient that meets it, and is not mapped."""
    a, b = torch.randn(2, 4, dtype=torch.float64), torch.randn(3, 4, 5, dtype=torch.float64)
    scales = torch.randn(2, 3, 5, dtype=torch.float64)

    def loss(a, b, scale):
        return wmma_ops.gemm(a, b, col_scale=scale, a_activation=activation).sum()

    found = torch.vmap(torch.func.grad(loss, argnums=(0, 1, 2)), in_dims=(None, None, 0))(a, b, scales)
    each = [torch.func.grad(loss, argnums=(0, 1, 2))(a, b, scale) for scale in scales]
    for got, want in zip(found, zip(*each, strict=True), strict=True):
        torch.testing.assert_close(got, torch.stack(want))


def test_nested_transforms_see_every_level():
    x = torch.randn(2, 2, dtype=torch.float64)

    def inner(y):
        return (wmma_ops.matmul(x_outer(y), y)).sum()

    def x_outer(y):
        return y.detach()

    # A tensor that needs no gradient at the inner level but does at the outer one.
    def outer(z):
        return torch.func.grad(lambda y: wmma_ops.matmul(z, z).sum() * y.sum())(
            torch.ones(2, dtype=torch.float64)
        ).sum()

    torch.testing.assert_close(torch.func.grad(outer)(x), torch.func.grad(lambda z: 2 * (z @ z).sum())(x))
    torch.testing.assert_close(torch.func.grad(inner)(x), torch.func.grad(lambda y: (y.detach() @ y).sum())(x))


def _compositions(matmul):
    from torch.func import grad, jacrev, vjp, vmap

    torch.manual_seed(0)
    m, x, v = torch.randn(3, 3).double(), torch.randn(3).double(), torch.randn(3).double()

    def f(y):
        return torch.tanh(matmul(m, y))

    return {
        "grad of grad": grad(lambda x: (grad(lambda y: f(y).sum())(x) * v).sum())(x),
        "vjp of vjp": vjp(lambda x: vjp(f, x)[1](v)[0], x)[1](v)[0],
        "vmap of grad": vmap(grad(lambda y: f(y).sum()))(torch.stack([x, v])),
        "jacobian": jacrev(f)(x),
        "jacobian of grad": jacrev(grad(lambda y: f(y).sum()))(x),
        "grad of jacobian": grad(lambda x: jacrev(f)(x).sin().sum())(x),
        "hessian": jacrev(jacrev(lambda y: f(y).sum()))(x),
        "third": grad(lambda x: jacrev(jacrev(lambda y: f(y).sum()))(x).sin().sum())(x),
    }


def test_compositions_of_transforms():
    got, want = _compositions(wmma_ops.matmul), _compositions(torch.matmul)
    for name in want:
        torch.testing.assert_close(got[name], want[name], msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_casts_operands_to_the_regions_type(dtype):
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5)
    with torch.autocast("cpu", dtype=dtype):
        assert wmma_ops.matmul(a, b).dtype == dtype
        assert wmma_ops.addmm(torch.randn(5), a, b).dtype == dtype
        assert wmma_ops.linear(a, b.T, torch.randn(5), activation="gelu").dtype == dtype
        assert wmma_ops.gemm(a, b, row_scale=torch.rand(3)).dtype == dtype
        assert wmma_ops.gemm(a, b.to(dtype), a2=a, b2=b).dtype == dtype
        assert wmma_ops.gemm_gemm(a, b, b.T).dtype == dtype
        assert wmma_ops.baddbmm(torch.zeros(1), a[None], b[None]).dtype == dtype
        assert wmma_ops.matmul(a, b, out_dtype=torch.float32).dtype == torch.float32
        out, lse = wmma_ops.attention(a[None, None], a[None, None], a[None, None])
        assert (out.dtype, lse.dtype) == (dtype, torch.float32)
        wmma_ops.matmul(a, b).sum().backward()
    assert a.grad.dtype == torch.float32


def test_autocast_leaves_other_types_alone():
    d, i = torch.randn(3, 3, dtype=torch.float64), torch.ones(3, 3, dtype=torch.int8)
    f8 = torch.ones(3, 3).to(torch.float8_e4m3fn)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert wmma_ops.matmul(d, d).dtype == torch.float64
        assert wmma_ops.matmul(i, i).dtype == torch.int32
        assert wmma_ops.matmul(f8, f8, out_dtype=torch.float32).dtype == torch.float32
        assert wmma_ops.scaled_mm(i, i, torch.tensor(1.0), torch.tensor(1.0)).dtype == torch.bfloat16
        narrow = f8.expand(1, *f8.shape)
        assert wmma_ops.scaled_attention(narrow, narrow, narrow)[0].dtype == torch.bfloat16
        total = torch.zeros(3, 3)
        wmma_ops.addmm_(total, torch.eye(3), torch.eye(3))
        assert torch.equal(total, torch.eye(3))


def test_autocast_keeps_the_kernels_own_products_wide():
    """Inside an op nothing is cast again: a float16 product still adds up in float32."""
    a = torch.full((1, 4096), 4.0)
    with torch.autocast("cpu", dtype=torch.float16):
        got = wmma_ops.matmul(a, a.T, out_dtype=torch.float32)
    assert got.item() == 65536.0
