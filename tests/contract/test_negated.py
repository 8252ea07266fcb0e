"""Views that negate lazily, as z.conj().imag is: read, and changed in place, as torch's own ops do."""

import contextlib

import pytest
import torch

import wmma_ops

torch.manual_seed(0)
A, B = torch.randn(4, 6), torch.randn(6, 5)
WAYS = {
    "the function": wmma_ops.addmm_,
    "the op": lambda *x: torch.ops.wmma.addmm_(*x),
    "the raw op": lambda *x: torch.ops.wmma_raw.addmm_(*x),
    "compiled": torch.compile(lambda *x: wmma_ops.addmm_(*x), backend="aot_eager", fullgraph=True),
    "vmap": lambda x, a, b: torch.func.vmap(wmma_ops.addmm_, in_dims=(0, 0, None))(x[None], a[None], b),
}


def _negated(*shape, **options):
    view = torch.randn(*shape, dtype=torch.complex64, **options).mul(1).conj().imag
    assert view.is_neg()
    return view


@pytest.mark.parametrize("on", ["the CPU", "gfx942", "gfx1201"])
@pytest.mark.parametrize("way", WAYS)
def test_addmm_into_one(way, on):
    x, a = _negated(4, 5), _negated(4, 6)
    want = x + a @ B
    with contextlib.nullcontext() if on == "the CPU" else wmma_ops.emulate(on):
        WAYS[way](x, a, B)
    torch.testing.assert_close(x, want)


def test_addmm_into_one_has_torchs_gradients():
    def gradients(addmm_):
        z, a = torch.ones(4, 5, dtype=torch.complex64, requires_grad=True), A.clone().requires_grad_()
        addmm_(z.mul(1).conj().imag, a, B).square().sum().backward()
        return z.grad, a.grad

    torch.testing.assert_close(gradients(wmma_ops.addmm_), gradients(torch.Tensor.addmm_))


def test_products_of_them():
    a, b = _negated(4, 6), _negated(6, 5)
    torch.testing.assert_close(wmma_ops.matmul(a, b), a @ b)
    c = _negated(5)
    torch.testing.assert_close(wmma_ops.addmm(c, a, b), c + a @ b)


def test_conjugated_ones_are_refused_as_complex():
    with pytest.raises(TypeError, match=r"wmma.addmm_: input is complex64"):
        wmma_ops.addmm_(torch.zeros(4, 5, dtype=torch.complex64).conj(), A, B)


def test_one_whose_elements_share_memory_is_refused():
    with pytest.raises(RuntimeError, match="single memory location"):
        wmma_ops.addmm_(torch._neg_view(torch.zeros(5)).expand(4, 5), A, B)
