"""How near a result in a type is to that of float64."""

import torch

BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def check_near(got, want, dtype):
    """Of that type, and within its own rounding of the largest."""
    assert got.dtype == dtype
    assert got.shape == want.shape
    bound = BOUNDS[dtype] * max(1.0, want.abs().max().item() if want.numel() else 0.0)
    torch.testing.assert_close(got.double(), want.double(), rtol=BOUNDS[dtype], atol=bound)
