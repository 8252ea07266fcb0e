"""The device library's fast functions: one kernel of all, and the bounds that kernels/wmma/math/fast.hpp states."""

import contextlib

import numpy as np
import torch

import wmma_ops

KERNEL = """
#include <wmma/math.hpp>
using namespace wmma;
extern "C" __global__ void fast(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float v = x[i];
  const float w = x[n - 1 - i];
  int row = 0;
#define ROW(value) y[row++ * n + i] = value;
  ROW(fast_exp2(v))
  ROW(fast_log2(v))
  ROW(fast_exp(v))
  ROW(fast_log(v))
  ROW(fast_rcp(v))
  ROW(fast_rsqrt(v))
  ROW(fast_sqrt(v))
  ROW(fast_sin(v))
  ROW(fast_cos(v))
  ROW(fast_sigmoid(v))
  ROW(fast_tanh(v))
  ROW(fast_fma(v, w, 3.0f))
  ROW(fast_min(v, w))
  ROW(fast_max(v, w))
  ROW(fast_abs(v))
  ROW(round_even(v))
}
"""
TINY = 2.0**-126


def _relative(bound: float, slope: float = 0.0):
    return lambda x, y: np.abs(y) * (bound + (slope * np.abs(x) if slope else 0))


def _logarithm(x, y):
    return 2.0**-21 * np.maximum(1, np.abs(y))


def _turns(x, y):
    return 2.0**-20 + 2.0**-23 * np.abs(x)


def _positive(x):
    return (x >= TINY) & np.isfinite(x)


# By name: the exact function, the bound on the error by argument and value, and where it holds.
APPROXIMATE = {
    "exp2": (np.exp2, _relative(2.0**-22), lambda x: (x >= -126) & (x < 128)),
    "log2": (np.log2, _logarithm, _positive),
    "exp": (np.exp, _relative(2.0**-22, 2.0**-23), lambda x: (x >= -87.3) & (x <= 88.7)),
    "log": (np.log, _logarithm, _positive),
    "rcp": (lambda x: 1 / x, _relative(2.0**-22), lambda x: (np.abs(x) >= TINY) & (np.abs(x) <= 2.0**126)),
    "rsqrt": (lambda x: 1 / np.sqrt(x), _relative(2.0**-22), _positive),
    "sqrt": (np.sqrt, _relative(2.0**-22), lambda x: _positive(x) | (x == 0)),
    "sin": (np.sin, _turns, lambda x: np.abs(x) <= 314),
    "cos": (np.cos, _turns, lambda x: np.abs(x) <= 314),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), _relative(2.0**-21, 2.0**-23), lambda x: x >= -87.3),
    "tanh": (np.tanh, _relative(2.0**-20), lambda x: ~np.isnan(x)),
}
EXACT = ("fma", "min", "max", "abs", "round_even")


def arguments() -> np.ndarray:
    """Even and geometric grids of both signs, and special values, in an order that pairs each with a far one."""
    rng = np.random.default_rng(4)
    even = np.concatenate([np.linspace(0, top, 400) for top in (1.0, 8.0, 90.0, 130.0, 314.0, 1000.0)])
    x = np.concatenate([even, 2.0 ** rng.uniform(-125, 126, 1500), [0.0, 0.39999998, 0.4, np.inf, 2.0**-126]])
    x = np.concatenate([x, -x, [np.nan, 1e-5, 1.5, 2.5, -0.5]]).astype(np.float32)
    return rng.permutation(x)


def results(x: np.ndarray, target: str | None) -> dict[str, np.ndarray]:
    """By name; without a target on the GPU."""
    names = (*APPROXIMATE, *EXACT)
    given = torch.from_numpy(x).to("cpu" if target else "cuda")
    found = torch.full((len(names), len(x)), torch.nan, device=given.device)
    with wmma_ops.emulate(target) if target else contextlib.nullcontext():
        wmma_ops.Kernel(KERNEL, "fast")[(len(x) + 255) // 256, 256](given, found, len(x))
    return dict(zip(names, found.cpu().numpy(), strict=True))


def faults(x: np.ndarray, got: dict[str, np.ndarray]) -> list[str]:
    found = []
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        for name, (function, bound, holds) in APPROXIMATE.items():
            want = function(wide)
            error = np.abs(got[name] - want)
            wrong = holds(wide) & np.isfinite(want) & ~(error <= bound(wide, want))
            if wrong.any():
                at = np.argmax(np.where(wrong, error / bound(wide, want), -1))
                found.append(f"fast_{name}({x[at]!r}) = {got[name][at]!r}, not {want[at]!r}; {wrong.sum()} such")
        other = x[::-1]
        rounded_once = wide * other.astype(np.float64) + 3.0  # but where this sum was rounded itself
        exact = {
            "fma": rounded_once.astype(np.float32),
            "min": np.fmin(x, other),
            "max": np.fmax(x, other),
            "abs": np.abs(x),
            "round_even": np.rint(x),
        }
        for name, want in exact.items():
            if not np.array_equal(got[name], want, equal_nan=True):
                at = np.argmax((got[name] != want) & ~np.isnan(want))
                what = "fast_fma" if name == "fma" else name
                found.append(f"{what}({x[at]!r}, {other[at]!r}) = {got[name][at]!r}, not {want[at]!r}")
        found += [f"fast_{name}(NaN) is a number" for name in APPROXIMATE if not np.isnan(got[name][np.isnan(x)]).all()]
    return found
