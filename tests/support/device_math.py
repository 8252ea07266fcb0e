"""The device library's math: kernels of many functions at once, arguments, references and the bounds they are held to.

References are the C library's in 80 bits, of which 11 are more than a double has, or mpmath's. Errors are counted in units
in the last place (ulp) of the exact result, from the smallest normal number down in units of that.
"""

import contextlib
import functools
import math
from fractions import Fraction

import mpmath
import numpy as np
import torch

import wmma_ops

Wide = np.longdouble
assert np.finfo(Wide).nmant >= 63, "the references need a long double of 64 digits"
TYPES: dict[str, type[np.floating]] = {"float": np.float32, "double": np.float64}
BOUND = 2.0
PI = Wide("3.14159265358979323846264338327950288419716939937510")


def _by_quadrant(x, ahead: int):
    """sin(π·x) or, one quadrant ahead, cos(π·x)."""
    rest = np.fmod(x, 2)
    quadrant = np.rint(2 * rest)
    angle = PI * (rest - quadrant / 2)
    turn = np.where(np.isfinite(quadrant), quadrant, 0).astype(int) + ahead & 3
    return np.choose(turn, [np.sin(angle), np.cos(angle), -np.sin(angle), -np.cos(angle)])


def _sinpi(x):
    y = _by_quadrant(x, 0)
    return np.where(y == 0, np.copysign(Wide(0), x), y)


def _cospi(x):
    y = _by_quadrant(x, 1)
    return np.where(y == 0, Wide(0), y)


def _by_mpmath(function, far: float):
    """What does not change any more beyond ±far."""

    def found(x):
        out = np.full(len(x), np.nan, Wide)
        with mpmath.workdps(30):
            for i in np.nonzero(~np.isnan(x))[0]:
                out[i] = Wide(mpmath.nstr(function(mpmath.mpf(float(np.clip(x[i], -far, far)))), 25))
        return np.where(out == 0, np.copysign(out, x), out)  # it has no −0

    return found


# By name: the reference of one argument, and of two.
ONE = {
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinpi": _sinpi, "cospi": _cospi,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: np.power(Wide(10), x), "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "cbrt": np.cbrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": _by_mpmath(mpmath.erf, 30), "erfc": _by_mpmath(mpmath.erfc, 100),
    "erfinv": lambda x: np.where(np.abs(x) <= 1, _by_mpmath(mpmath.erfinv, 1)(x), np.nan),
}  # fmt: skip
TWO = {"atan2": np.arctan2, "pow": np.power, "hypot": np.hypot}


def _rounded(x):
    away = np.trunc(np.abs(x)) + (np.abs(x) - np.trunc(np.abs(x)) >= 0.5)
    return np.copysign(away.astype(x.dtype), x)


def _remainder(x, y):
    def one(a, b):
        return math.remainder(a, b) if math.isfinite(a) and b != 0 and not math.isnan(b) else math.nan

    found = [one(float(a), float(b)) for a, b in zip(x, y, strict=True)]
    return np.array(found).astype(x.dtype)


def _dim(x, y):
    return np.where(x <= y, x.dtype.type(0), x - y)


def _logb(x):
    exponent = (np.frexp(x)[1] - 1).astype(x.dtype)
    return np.where(np.isfinite(x), np.where(x == 0, -np.inf, exponent), np.abs(x)).astype(x.dtype)


def _whole_logb(x):
    found = np.where(np.isinf(x), 2**31 - 1, np.frexp(x)[1] - 1)
    return np.where((x == 0) | np.isnan(x), -(2**31), found).astype(x.dtype)


def _fused(x, y):
    """x·y − round(x·y), rounded once; where that is not finite or loses digits at the bottom, as the kernel has it: 0."""
    product = x * y
    lost = np.finfo(x.dtype).tiny * 2.0**60
    plain = np.isfinite(product) & (np.abs(product) > lost)
    found = [
        float(Fraction(float(a)) * Fraction(float(b)) - Fraction(float(p))) if ok else 0.0
        for a, b, p, ok in zip(x, y, product, plain, strict=True)
    ]
    return np.array(found).astype(x.dtype)


FUSED = "isfinite(v * w) && abs(v * w) > T(kLost) ? wmma::fma(v, w, -(wmma::arch::multiply(v, w))) : T(0)"
# Bit by bit: the expression of v, w and r, which is room for a second result, and what NumPy says.
EXACT = {
    "sqrt": ("wmma::sqrt(v)", lambda x, y: np.sqrt(x)),
    "floor": ("wmma::floor(v)", lambda x, y: np.floor(x)),
    "ceil": ("wmma::ceil(v)", lambda x, y: np.ceil(x)),
    "trunc": ("wmma::trunc(v)", lambda x, y: np.trunc(x)),
    "rint": ("wmma::rint(v)", lambda x, y: np.rint(x)),
    "nearbyint": ("wmma::nearbyint(v)", lambda x, y: np.rint(x)),
    "round": ("wmma::round(v)", lambda x, y: _rounded(x)),
    "fabs": ("wmma::fabs(v)", lambda x, y: np.abs(x)),
    "abs": ("wmma::abs(v)", lambda x, y: np.abs(x)),
    "fmod": ("wmma::fmod(v, w)", lambda x, y: np.fmod(x, y)),
    "remainder": ("wmma::remainder(v, w)", _remainder),
    "fma": (FUSED, _fused),
    "fmin": ("wmma::fmin(v, w)", np.fmin),
    "fmax": ("wmma::fmax(v, w)", np.fmax),
    "fdim": ("wmma::fdim(v, w)", _dim),
    "copysign": ("wmma::copysign(v, w)", np.copysign),
    "nextafter": ("wmma::nextafter(v, w)", np.nextafter),
    "logb": ("wmma::logb(v)", lambda x, y: _logb(x)),
    "ilogb": ("T(wmma::ilogb(v))", lambda x, y: _whole_logb(x)),
    "ldexp": ("wmma::ldexp(v, i % 301 - 150)", lambda x, y: np.ldexp(x, np.arange(len(x)) % 301 - 150)),
    "frexp": ("wmma::frexp(v, &e)", lambda x, y: np.frexp(x)[0]),
    "frexp, exponent": (
        "(wmma::frexp(v, &e), T(e))",
        lambda x, y: np.where(np.isfinite(x), np.frexp(x)[1], 0).astype(x.dtype),
    ),
    "modf": ("wmma::modf(v, &r)", lambda x, y: np.where(np.isinf(x), np.copysign(0, x), np.modf(x)[0]).astype(x.dtype)),
    "modf, whole": ("(wmma::modf(v, &r), r)", lambda x, y: np.trunc(x)),
    "isnan": ("T(wmma::isnan(v))", lambda x, y: np.isnan(x).astype(x.dtype)),
    "isinf": ("T(wmma::isinf(v))", lambda x, y: np.isinf(x).astype(x.dtype)),
    "isfinite": ("T(wmma::isfinite(v))", lambda x, y: np.isfinite(x).astype(x.dtype)),
    "signbit": ("T(wmma::signbit(v))", lambda x, y: np.signbit(x).astype(x.dtype)),
}

HEAD = """
#include <wmma/math.hpp>
using namespace wmma;
using T = TYPE;
extern "C" __global__ void KERNEL(const T* x, const T* z, T* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const T v = x[i];
  const T w = z[i];
  int row = 0;
"""
ROUNDED = HEAD.replace("KERNEL", "rounded") + "".join(
    [
        *(f"  y[row++ * n + i] = wmma::{name}(v);\n" for name in ONE),
        *(f"  y[row++ * n + i] = wmma::{name}(v, w);\n" for name in TWO),
        "  T s, c;\n  wmma::sincos(v, &s, &c);\n  y[row++ * n + i] = s;\n  y[row++ * n + i] = c;\n}\n",
    ]
)
EXACTLY = HEAD.replace("KERNEL", "exactly") + "".join(
    [
        "  constexpr double kLost = sizeof(T) == 4 ? 0x1p-66 : 0x1p-962;\n  int e;\n  T r;\n",
        *(f"  y[row++ * n + i] = {text};\n" for text, _ in EXACT.values()),
        "}\n",
    ]
)

# What hardware allows its approximations, used up: the emulator rounds them correctly, here they are 1 ulp more off in
# float, and NVIDIA's 2^-20 in double. But for log2: its ulp counts up to 1.4 times in log(x), and AMD's bound of 1 includes
# the rounding.
ROUGH = (
    *(
        f"-D__builtin_amdgcn_{name}f(x)=[](float y){{return __builtin_fmaf(y,0x1p-24f,y);}}(__builtin_amdgcn_{name}f(x))"
        for name in ("rcp", "rsq", "exp2")
    ),
    *(f"-D__builtin_amdgcn_{name}(x)=(__builtin_amdgcn_{name}(x)*(1-0x1p-20))" for name in ("rcp", "rsq")),
)


def run(source: str, name: str, rows: int, type_: str, x, z, target: str | None) -> np.ndarray:
    """Results by row; without a target on the GPU."""
    given = [torch.from_numpy(values).to("cpu" if target else "cuda") for values in (x, z)]
    found = torch.full((rows, len(x)), math.nan, dtype=given[0].dtype, device=given[0].device)
    kernel = wmma_ops.Kernel(source, name, options=(f"-DTYPE={type_}", *(ROUGH if target else ())))
    with wmma_ops.emulate(target) if target else contextlib.nullcontext():
        kernel[(len(x) + 255) // 256, 256](*given, found, len(x))
    return found.cpu().numpy()


SPECIAL = [0, 0.5, 1, 1.5, 2, 2.5, 3, 4, 7, 2.0**23 + 1, 2.0**24, 2.0**31, np.inf]


def _special(kind) -> np.ndarray:
    limits = np.finfo(kind)
    more = [limits.max, limits.tiny, limits.smallest_subnormal, limits.tiny * 0.75, 1 + limits.eps, 1 - limits.epsneg]
    x = np.array([*SPECIAL, *more], kind)
    return np.concatenate([x, -x, np.array([np.nan], kind)])


@functools.cache
def arguments(type_: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """About `count` pairs over all magnitudes, where the functions have seams, and all pairs of special values."""
    kind = TYPES[type_]
    limits = np.finfo(kind)
    rng = np.random.default_rng(5)
    part = count // 16
    top = 110 if type_ == "float" else 760
    x = np.concatenate(
        [
            rng.uniform(0, 1, part), rng.uniform(0, 3, part), rng.uniform(0, 30, part), rng.uniform(0, top, part),
            2.0 ** rng.uniform(-16, 17, part), 1 + rng.standard_normal(part) * 0.2, rng.integers(0, 200, part) / 2,
            np.exp2(rng.uniform(limits.minexp - limits.nmant, limits.maxexp, part).astype(Wide)).astype(np.float64),
        ]
    ).astype(kind)  # fmt: skip
    x = np.concatenate([x, -x])
    z = np.where(rng.random(len(x)) < 0.5, rng.uniform(-20, 20, len(x)).astype(kind), rng.permutation(x))
    z = np.where(rng.random(len(x)) < 0.2, np.rint(z), z).astype(kind)
    # Powers over the whole range of results: there the logarithm needs its last digits.
    with np.errstate(all="ignore"):
        far = rng.uniform(-1, 1, len(x)) * limits.maxexp / np.log2(np.abs(x.astype(Wide)))
        z = np.where((rng.random(len(x)) < 0.4) & np.isfinite(far.astype(kind)), far, z).astype(kind)
    first, second = (values.ravel() for values in np.meshgrid(_special(kind), _special(kind)))
    return np.concatenate([x, first]), np.concatenate([z, second])


@functools.cache
def references(type_: str, count: int) -> dict[str, np.ndarray]:
    x, z = (values.astype(Wide) for values in arguments(type_, count))
    with np.errstate(all="ignore"):
        found = {name: function(x) for name, function in ONE.items()}
        found |= {name: function(x, z) for name, function in TWO.items()}
    return found | {"sincos, sine": found["sin"], "sincos, cosine": found["cos"]}


def errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """In ulp; infinite where one is NaN or infinite and the other is not, or the sign of a zero is wrong."""
    limits = np.finfo(got.dtype)
    size = np.abs(want)
    with np.errstate(all="ignore"):
        exponent = np.frexp(np.maximum(size, Wide(limits.tiny)))[1] - 1
        error = np.abs(got.astype(Wide) - want) / np.ldexp(Wide(1), exponent - limits.nmant)
        overflow = Wide(2) ** limits.maxexp
        same_sign = np.signbit(got) == np.signbit(want)
        # The last number below the overflow, from which rounding goes to infinity, counts as one ulp away from it.
        beyond = size >= overflow * (1 - Wide(2) ** -(limits.nmant + 2))
        error = np.where(beyond, np.where(np.isinf(got) & same_sign, 0, np.inf), error)
        error = np.where(np.isinf(want), np.where(got == want, 0, np.inf), error)
        error = np.where((want == 0) & ~same_sign, np.inf, error)
        error = np.where(np.isnan(want), np.where(np.isnan(got), 0, np.inf), error)
    return np.where(np.isnan(error), np.inf, error).astype(np.float64)


def rounded_faults(type_: str, count: int, target: str | None) -> list[str]:
    x, z = arguments(type_, count)
    want = references(type_, count)
    found = []
    for (name, exact), got in zip(want.items(), run(ROUNDED, "rounded", len(want), type_, x, z, target), strict=True):
        error = errors(got, exact)
        if (worst := error.max()) > BOUND:
            at = int(np.argmax(error))
            given = f"{x[at]!r}, {z[at]!r}" if name in TWO else f"{x[at]!r}"
            found.append(
                f"{name}({given}) = {got[at]!r}, not {exact[at]!r}: {worst:.2f} ulp; {(error > BOUND).sum()} such"
            )
    return found


def exact_faults(type_: str, count: int, target: str | None) -> list[str]:
    x, z = arguments(type_, count)
    results = run(EXACTLY, "exactly", len(EXACT), type_, x, z, target)
    found = []
    for (name, (_, function)), got in zip(EXACT.items(), results, strict=True):
        with np.errstate(all="ignore"):
            want = function(x, z)
        assert want.dtype == x.dtype, name
        same = (got == want) & ((np.signbit(got) == np.signbit(want)) | (name in ("fmin", "fmax")))
        wrong = ~(same | (np.isnan(got) & np.isnan(want)))
        if wrong.any():
            at = int(np.argmax(wrong))
            found.append(f"{name}({x[at]!r}, {z[at]!r}) = {got[at]!r}, not {want[at]!r}; {wrong.sum()} such")
    return found
