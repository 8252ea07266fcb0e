"""The CPU's products go through torch's and oneDNN's, which misread operands that lie in unusual ways."""

import itertools

import pytest
import torch

import wmma_ops


def _layouts(x):
    """x by rows, by columns, with lines apart, and its only row or column with any stride between lines."""
    rows, columns = x.shape
    for strides in {(columns, 1), (1, rows), (1, 1), (columns + 3, 1), (1, rows + 3)}:
        places = {i * strides[0] + j * strides[1] for i in range(rows) for j in range(columns)}
        if len(places) == x.numel():
            yield torch.full((max(places) + 1,), 77, dtype=x.dtype).as_strided(x.shape, strides).copy_(x)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("m", "n", "k"), list(itertools.product((1, 2, 5), repeat=3)))
def test_products_of_any_layout(m, n, k, dtype):
    a, b = (torch.randint(-9, 9, shape).to(dtype) for shape in ((m, k), (k, n)))
    want = a.double() @ b.double()
    for x, y in itertools.product(_layouts(a), _layouts(b)):
        assert torch.equal(wmma_ops.matmul(x, y, out_dtype=torch.float32).double(), want)
    by_columns = torch.empty_strided((2, m, k), (m * k, 1, m), dtype=dtype).copy_(torch.stack([a, -a]))
    batched = wmma_ops.matmul(by_columns, torch.stack([b, b]), out_dtype=torch.float32)
    assert torch.equal(batched.double(), torch.stack([want, -want]))


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "leaky_relu"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_a_bias_of_any_stride(activation, dtype):
    x, w = torch.randn(4, 16).to(dtype), torch.randn(8, 16).to(dtype)
    every = torch.randn(17).to(dtype)
    for bias in (every[::2][:8], every[9:], every[:1].expand(8), torch.stack([every, every], 1)[:8, 1]):
        got = wmma_ops.linear(x, w, bias, activation=activation)
        assert torch.equal(
            got, wmma_ops.linear(x, w, bias.clone(memory_format=torch.contiguous_format), activation=activation)
        )
