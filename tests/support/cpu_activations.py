"""Activations and their derivatives on the CPU beside float64's, in vectors as wide as ATEN_CPU_CAPABILITY says. Prints, as
JSON, what each is off by at most, in units of roundoff: a result's of max(1, |x|), a derivative's of 1."""

import json
from functools import partial

import torch

from wmma_ops.ops import activations

F32, F64 = torch.float32, torch.float64
UNITS = {F32: 2.0**-24, F64: 2.0**-53}
FAR = torch.logspace(-30, 30, 2000, dtype=F64)
VALUES = torch.cat([torch.linspace(-20, 20, 400001, dtype=F64), FAR, -FAR])


def activate(x: torch.Tensor, code: int) -> torch.Tensor:
    """As of a product of nothing, to which x is added."""
    nothing = torch.ones(1, 0, dtype=x.dtype), torch.ones(len(x), 0, dtype=x.dtype)
    return torch.ops.wmma.linear(*nothing, None, x[None], activation=code)[0]


def derivative(x: torch.Tensor, code: int) -> torch.Tensor:
    row, weight = torch.ones(1, 1, dtype=x.dtype), torch.ones(len(x), 1, dtype=x.dtype)
    call = partial(torch.ops.wmma._linear_backward, of_x=False, of_weight=False, of_s=True)
    return call(torch.ones_like(x)[None], row, weight, x[None], activation=code)[0][0]


def furthest(dtype: torch.dtype, one: activations.Activation) -> tuple[float, float]:
    x = VALUES.to(dtype)
    wide, code = x.double(), activations.code("test", "activation", one.name)
    off = (activate(x, code).double() - one.forward(wide)) / wide.abs().clamp(min=1)
    exact = one.backward(torch.ones_like(wide), wide)
    off_slope = derivative(x, code).double() - exact
    # Infinity times nothing in the exact formulas' own derivative, far out.
    off_slope = off_slope.where(exact.isfinite() | (wide.abs() < 100), 0)
    return tuple(float(worst.abs().max() / UNITS[dtype]) for worst in (off, off_slope))


if __name__ == "__main__":
    kinds = [one for one in activations.BUILTIN if one.name != "none"]
    print(json.dumps({f"{one.name} {dtype}": furthest(dtype, one) for one in kinds for dtype in UNITS}))
