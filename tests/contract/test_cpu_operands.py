"""The CPU's products go through torch's and oneDNN's, which misread operands that lie in unusual ways."""

import itertools
import os
import platform
import subprocess
import sys

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


WITHOUT_UNITS = """
import sys, time, torch, wmma_ops
torch.set_num_threads(1)
a, b = torch.randn(256, 256).bfloat16(), torch.randn(256, 256).bfloat16()
def best(call):
    times = []
    for _ in range(20):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
calls = [lambda: wmma_ops.matmul(a, b), lambda: wmma_ops.linear(a, b, a[0], activation="gelu"), lambda: a @ b]
torch.testing.assert_close(calls[0]().double(), a.double() @ b.double(), rtol=2**-8, atol=1e-4)
print(*map(best, calls))
"""


@pytest.mark.skipif("WMMA_OPS_LIBRARY" in os.environ, reason="a sanitized library: NO TIMES ARE COMPARED")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors' oneDNN has no setting to do without")
def test_bfloat16_without_units_of_its_own_is_multiplied_as_float32():
    """By oneDNN's emulation 256³ takes some 11 ms here, as float32 0.4."""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_UNITS], capture_output=True, text=True, check=True, env=environment
    )
    plain, fused, torchs = map(float, run.stdout.split())
    assert max(plain, fused) < torchs / 3
