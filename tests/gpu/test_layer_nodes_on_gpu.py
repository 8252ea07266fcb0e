"""Layers of several products that are one node to autograd, on the GPU at hand: beside float64, and twice the same."""

import pytest
import torch
from layer_nodes import (
    adapted,
    adapted_by_torch,
    adapted_tensors,
    beside_float64,
    gate_tensors,
    gated,
    gated_by_torch,
)
from on_gpu import close

from wmma_ops.ops import nodes

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.skipif(not nodes.are_there, reason="no derivatives in C++ for this torch"),
]
BOUNDS = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 2e-5}
# Sequences, rows, and the sides of the weight: of tiles that are whole and not, of rows that the copy engine takes and not.
SIZES: list[tuple] = [((), 300, 256, 384), ((3,), 77, 128, 264), ((2,), 512, 1024, 2048), ((), 50, 36, 99)]


def _check(call, by_torch, tensors, dtype):
    found, right = beside_float64(call, by_torch, tensors, dtype)
    got, again = found(), found()
    assert all(torch.equal(*pair) for pair in zip(got, again, strict=True))
    for one, other in zip(got, right, strict=True):
        close(one, other, BOUNDS[dtype])


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_layer_with_an_adapter(size, dtype):
    for has_bias in (False, True):
        _check(
            adapted, adapted_by_torch, adapted_tensors(dtype, *size, rank=16, has_bias=has_bias, device="cuda"), dtype
        )


@pytest.mark.parametrize("activation", ["silu", "gelu", "relu", None])
@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_layer_with_a_gate(size, dtype, activation):
    for has_bias in (False, True):
        tensors = gate_tensors(dtype, *size, has_bias=has_bias, device="cuda")
        _check(gated(activation), gated_by_torch(activation), tensors, dtype)
