"""Two products in a row within a wave: every element type that a target's matrix unit takes, and plain FMA."""

from pathlib import Path

import pytest
import torch

import wmma_ops
from wmma_ops.hardware import arch

SOURCE = (Path(__file__).parents[1] / "support/examples/chain.hip").read_text()
CPP = {
    torch.float16: "wmma::half_t",
    torch.bfloat16: "wmma::bf16_t",
    torch.float32: "float",
    torch.float64: "double",
}


def _ways(target: str):
    """(dtype, side of the matrix instruction; 0 for plain FMA)."""
    native = {row.a for row in arch.target(target).instructions}
    for dtype in CPP:
        name = str(dtype).removeprefix("torch.")
        yield from ((dtype, side) for side in (16, 32) if name in native and (side == 16 or _has_32(target, dtype)))
    yield from ((dtype, 0) for dtype in (torch.float32, torch.float64))


def _has_32(target: str, dtype: torch.dtype) -> bool:
    return arch.target(target).family == "cdna" and dtype != torch.float64


WAYS = [(target, dtype, side) for target in arch.EMULATED for dtype, side in _ways(target)]


@pytest.mark.parametrize(("target", "dtype", "side"), WAYS, ids=str)
def test_the_second_product_takes_the_first(target, dtype, side):
    size = 32 if dtype == torch.float64 else 64
    options = (f"-DELEMENT={CPP[dtype]}", f"-DSIZE={size}", f"-DSIDE={side}" if side else "-DLANES")
    kernel = wmma_ops.Kernel(SOURCE, "chain", options=options)
    generator = torch.Generator().manual_seed(5)
    a, b0, b1 = (torch.randn(rows, size, generator=generator).to(dtype) for rows in (32, size, size))
    out, rows = torch.full((32, size), float("nan")), torch.zeros(1, dtype=torch.int32)
    wave = arch.target(target).wave
    with wmma_ops.emulate(target):
        kernel[1, wave](a, b0, b1, out, rows)
    d0 = (a.double() @ b0.double().mT).to(dtype).double()
    want = d0 @ b1.double().mT
    error = (out[: rows.item()].double() - want[: rows.item()]).abs().max() / want.abs().max()
    assert error < {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(dtype, 1e-5)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("dtype", CPP, ids=str)
def test_nvidia_compiles_it(target, dtype):
    lanes = dtype == torch.float32
    options = (f"-DELEMENT={CPP[dtype]}", "-DSIZE=32", "-DLANES" if lanes else "-DSIDE=16")
    code = wmma_ops.Kernel(SOURCE, "chain", options=options).compile(target)
    assert "chain" in code.kernels
    assert ("mma.sync" in code.assembly) is not lanes
