"""Threads, memory, forks: what a service does to an op."""

import contextlib
import gc
import resource
import subprocess
import sys

import pytest
import torch
from at_once import at_once

import wmma_ops


def test_eight_threads_at_once():
    a, b = torch.randn(64, 48), torch.randn(48, 80)
    q = torch.randn(2, 4, 32, 16)
    want = (a @ b, wmma_ops.attention(q, q, q)[0])

    def work():
        for _ in range(50):
            got = (wmma_ops.matmul(a, b), wmma_ops.attention(q, q, q)[0])
            assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))
            x = a.clone().requires_grad_()
            wmma_ops.linear(x, b.T, activation="gelu").sum().backward()

    at_once(work, [()] * 8)


@pytest.mark.full
def test_no_growth_over_100_000_calls():
    a, c = torch.randn(8, 8), torch.zeros(8, 8)
    scale = torch.ones(1)
    i = torch.ones(8, 8, dtype=torch.int8)

    def calls(count):
        for _ in range(count):
            wmma_ops.matmul(a, a)
            wmma_ops.addmm_(c, a, a, beta=0)
            wmma_ops.gemm(a, a, bias=a[0], row_scale=a[1], activation="gelu", multiply=a)
            wmma_ops.scaled_mm(i, i, scale, scale)
            with contextlib.suppress(ValueError):
                wmma_ops.matmul(a, a[:3])

    calls(2_000)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    calls(20_000)  # of five each
    gc.collect()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 4 * 1024, f"{grown} KiB more after 100,000 calls"


def test_gradients_leave_no_cycles():
    a = torch.randn(64, 64, requires_grad=True)
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(x, torch.Tensor) for x in gc.get_objects())
        for _ in range(20):
            wmma_ops.gemm(a, a, activation="relu").sum().backward()
            a.grad = None
        after = sum(isinstance(x, torch.Tensor) for x in gc.get_objects())
    finally:
        gc.enable()
    assert after <= before + 2


def test_import_is_light():
    """Neither the command line's nor the tests' packages, nor a compiler, are loaded with the ops."""
    code = """if True:
        import sys, torch
        before = set(sys.modules)
        import wmma_ops
        print(*{name.split(".")[0] for name in set(sys.modules) - before})
    """
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(out) - set(sys.stdlib_module_names) <= {"wmma_ops", "torch"}
