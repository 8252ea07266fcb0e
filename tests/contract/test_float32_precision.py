"""torch.set_float32_matmul_precision is followed: "medium" multiplies in bfloat16, the others in float32."""

import pytest
import torch

import wmma_ops


@pytest.fixture(params=["highest", "high", "medium"])
def precision(request):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield request.param
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_products_of_float32(precision, target):
    generator = torch.Generator().manual_seed(0)
    a, b, c = (torch.randn(shape, generator=generator) for shape in ((40, 100), (100, 24), (24,)))
    want = 0.5 * a.double() @ b.double() + c.double()
    with wmma_ops.emulate(target):
        out = wmma_ops.addmm(c, a, b, alpha=0.5)
    error = ((out.double() - want).norm() / want.norm()).item()
    assert error < (5e-3 if precision == "medium" else 1e-6)
    plan = wmma_ops.explain("addmm", c, a, b, alpha=0.5, target=target)
    assert plan.config.element == (torch.bfloat16 if precision == "medium" else torch.float32)
    if precision == "medium":
        assert error > 1e-5
        assert "precision" in plan.reason
