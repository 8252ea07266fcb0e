"""Operands on a GPU, and how near a result is."""

import torch


def matrix(*shape, dtype=torch.bfloat16, device="cuda"):
    return torch.randn(shape, device=device).to(dtype)


def close(got, want, bound=1e-2):
    error = ((got.double() - want.double()).norm() / want.double().norm()).item()
    assert error < bound, f"relative error {error}"
