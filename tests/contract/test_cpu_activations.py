"""Activations on the CPU, which are those of the kernels in vector instructions: how exact, whichever the processor has."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import wmma_ops
from wmma_ops.ops import activations

PROGRAM = Path(__file__).parents[1] / "support" / "cpu_activations.py"
SMOOTH = [one.name for one in activations.BUILTIN if one.name not in ("none", "relu")]
OF_RESULTS, OF_DERIVATIVES = 8, 128  # units of roundoff, as kernels/wmma has them


@pytest.mark.parametrize("capability", ["avx512", "avx2", "default"])
def test_as_exact_as_the_kernels(capability):
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
    done = subprocess.run([sys.executable, PROGRAM], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 2 * (len(SMOOTH) + 1)
    for name, (result, derivative) in found.items():
        assert result <= OF_RESULTS, name
        assert derivative <= OF_DERIVATIVES, name


@pytest.mark.parametrize("activation", SMOOTH)
def test_every_length_and_number_of_threads(activation):
    """Vectors, what is left of them, and parts for several threads have the same bits."""
    x = 3 * torch.randn(70_001)
    nothing = torch.ones(1, 0)
    whole = wmma_ops.linear(nothing, torch.ones(len(x), 0), activation=activation, residual=x[None])[0]
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for start, length in ((0, 1), (3, 63), (1, 64), (0, 65), (5, 127), (2, 16_385), (0, 70_001)):
                part = x[start : start + length]
                got = wmma_ops.linear(nothing, torch.ones(length, 0), activation=activation, residual=part[None])[0]
                assert torch.equal(got, whole[start : start + length]), (threads, start, length)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_relu_leaves_nothing_of_gradients_where_it_gave_0(dtype):
    g = torch.tensor([[torch.inf, torch.nan, torch.inf, torch.nan, 2.0]], dtype=dtype)
    s = torch.tensor([[0.0, 0.0, 1.0, 1.0, torch.nan]], dtype=dtype)
    for place in ("cpu", "gfx942", "gfx1201"):
        with wmma_ops.emulate(place) if place != "cpu" else torch.no_grad():
            (got,) = torch.ops.wmma._linear_backward(
                g, s[:, :1], s.mT, s, activation=1, of_x=False, of_weight=False, of_s=True
            )
        want = torch.ops.aten.threshold_backward(g, s, 0)
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
