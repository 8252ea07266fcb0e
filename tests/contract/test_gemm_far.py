"""Operands whose rows lie gigabytes apart: offsets past 2³¹ elements and 2³² bytes, on the emulator."""

import pytest
import torch

import wmma_ops

FAR = (1 << 30) + 8  # elements between rows


def _far(rows: int, columns: int, dtype: torch.dtype, stride: int = FAR) -> torch.Tensor:
    """Memory is reserved for all of it, and only what is written is used."""
    store = torch.empty((rows - 1) * stride + columns, dtype=dtype)
    return store.as_strided((rows, columns), (stride, 1)).copy_(torch.randn(rows, columns))


@pytest.mark.parametrize("target", ["gfx90a", "gfx1201"])
@pytest.mark.parametrize("by_columns", [False, True], ids=["rows", "columns"])
def test_leading_dimensions_past_two_to_the_31(target, by_columns):
    a, d = _far(3, 40, torch.float16), _far(3, 24, torch.float16)
    b = _far(24, 40, torch.float16, FAR // 16).t() if by_columns else _far(40, 24, torch.float16, FAR // 16)
    want = 0.5 * a.double() @ b.double() + 2 * d.double()
    assert wmma_ops.explain("addmm", d, a, b, target=target).problem.wide
    with wmma_ops.emulate(target):
        out = wmma_ops.addmm(d, a, b, alpha=0.5, beta=2.0)
        wmma_ops.addmm_(d, a, b, alpha=0.5, beta=2.0)
    assert (out.double() - want).abs().max() < 2e-2
    assert torch.equal(out, d)
