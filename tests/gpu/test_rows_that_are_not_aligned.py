"""Products whose operands' rows are not aligned, and of which copies are made for the copy engine: beside float64."""

import pytest
import torch
from on_gpu import close

import wmma_ops

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
F16, BF16 = torch.float16, torch.bfloat16
SIZES = [(2048, 1001, 2048), (1537, 3001, 769), (4096, 515, 1023), (2048, 2050, 1023)]


def _operand(rows, columns, dtype, layout):
    x = torch.randn(rows, columns + 3, dtype=torch.float64).to("cuda", dtype)
    by_rows = x[:, 3:] if layout == "offset" else x[:, :columns].contiguous()
    return by_rows.mT.contiguous().mT if layout == "by columns" else by_rows


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("layouts", [("by rows",) * 2, ("by columns", "by rows"), ("offset", "by columns")], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products(sizes, layouts, dtype):
    m, k, n = sizes
    a, b = (_operand(*shape, dtype, layout) for shape, layout in zip(((m, k), (k, n)), layouts, strict=True))
    bias = torch.randn(n, device="cuda", dtype=dtype)
    want = a.double() @ b.double() + bias.double()
    close(wmma_ops.gemm(a, b, bias=bias), want)
    close(wmma_ops.gemm(a, b, bias=bias, out_dtype=torch.float32), want)


@pytest.mark.parametrize("vocabulary", [30522, 50257, 1001])
def test_gradients_of_a_layer_as_wide_as_a_vocabulary(vocabulary):
    x, weight = (
        torch.randn(*shape, device="cuda", dtype=BF16).requires_grad_() for shape in ((2, 600, 768), (vocabulary, 768))
    )
    bias = torch.randn(vocabulary, device="cuda", dtype=BF16).requires_grad_()
    g = torch.randn(2, 600, vocabulary, device="cuda", dtype=BF16)
    got = torch.autograd.grad(wmma_ops.linear(x, weight, bias), [x, weight, bias], g)
    again = torch.autograd.grad(wmma_ops.linear(x, weight, bias), [x, weight, bias], g)
    assert all(torch.equal(*pair) for pair in zip(got, again, strict=True))
    wide = g.double()
    rows = wide.flatten(0, 1)
    want = wide @ weight.double(), rows.mT @ x.double().flatten(0, 1), rows.sum(0)
    for one, other in zip(got, want, strict=True):
        close(one, other)


def test_into_memory_that_is_there():
    a, b, c = (torch.randn(*shape, device="cuda", dtype=BF16) for shape in ((2048, 1001), (1001, 2048), (2048, 2048)))
    for into in (c.clone(), c.mT.contiguous().mT):
        want = 0.5 * into.double() + 2 * (a.double() @ b.double())
        wmma_ops.addmm_(into, a, b, beta=0.5, alpha=2.0)
        close(into, want)
