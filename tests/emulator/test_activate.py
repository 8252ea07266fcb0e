"""The device library's activations, run by the emulator: accuracy, special values, and what they compile to.

Errors are counted in units of roundoff u, 2^-24 or 2^-53. The emulator rounds v_exp_f32 and v_rcp_f32 correctly; the
hardware's own may be off by 1 ulp, for which the bound of 8 u leaves room.
"""

import contextlib
import functools
import math
import re

import mpmath
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import wmma_ops
from wmma_ops import jit
from wmma_ops.jit import kernels_dir

AMD = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1200", "gfx1201")
TYPES: dict[str, type[np.floating]] = {"float": np.float32, "double": np.float64}
UNIT = {"float": 2.0**-24, "double": 2.0**-53}

# In the order of their codes, from 1.
TORCH = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "leaky_relu": functools.partial(F.leaky_relu, negative_slope=0.01),
}
EXACT = {
    "relu": lambda x: max(x, mpmath.mpf(0)),
    "gelu": lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
    "gelu_tanh": lambda x: x / (1 + mpmath.exp(-mpmath.sqrt(8 / mpmath.pi) * (x + x**3 * 44715 / 1000000))),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "tanh": mpmath.tanh,
    "leaky_relu": lambda x: x if x > 0 else x / 100,
}
# Beyond the bound on the absolute error: the relative error, in u, where x is at least so much.
RELATIVE = {
    "float": {
        "silu": (5, -87.0),
        "sigmoid": (4, -87.0),
        "tanh": (4, -math.inf),
        "gelu": (8, -1.0),
        "gelu_tanh": (6, -1.0),
    },
    "double": {
        "silu": (4, -700.0),
        "sigmoid": (4, -700.0),
        "tanh": (4, -math.inf),
        "gelu": (8, -37.0),
        "gelu_tanh": (8, -1.0),
    },
}

INCLUDES = "#include <wmma/activate.hpp>\n"
KERNEL = """
using namespace wmma;
template <>
struct wmma::RegisteredActivation<300> {
  static WMMA_DEVICE float apply(float x) { return x + 1.0f; }
  static WMMA_DEVICE double apply(double x) { return x + 2.0; }
};
extern "C" __global__ void sweep(const TYPE* x, TYPE* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const TYPE value = x[i];
  y[i] = activate<300>(activate<kNone>(value));
  y[n + i] = activate<kRelu>(value);
  y[2 * n + i] = activate<kGelu>(value);
  y[3 * n + i] = activate<kGeluTanh>(value);
  y[4 * n + i] = activate<kSilu>(value);
  y[5 * n + i] = activate<kSigmoid>(value);
  y[6 * n + i] = activate<kTanh>(value);
  y[7 * n + i] = activate<kLeakyRelu>(value);
}
"""


def around(points: np.ndarray) -> np.ndarray:
    """The points and the three numbers to each side of each."""
    found = [points]
    for towards in (0, np.inf):
        step = points
        for _ in range(3):
            step = np.nextafter(step, points.dtype.type(towards))
            found.append(step)
    return np.concatenate(found)


@functools.cache
def sweep(type_: str, count: int) -> np.ndarray:
    """About `count` numbers: even and geometric grids, the neighbourhoods of the seams, and the special values."""
    kind = TYPES[type_]
    limits = np.finfo(kind)
    part = count // 10
    # Seams: a new exponent in exp's reduction, the pieces of tanh, the centres of the polynomials, the clamps, and
    # where exp overflows, leaves the normal numbers and vanishes.
    seams = [0.3, 0.6, 1, 3, 5, 13.2, 14, 25, 38.5, 40, 87.34, 88.03, 88.73, 103.98, 708.4, 709.79, 745.14, 800]
    seams = np.concatenate([seams, (np.arange(24) + 0.5) * math.log(2), (np.arange(24) + 0.5) * math.log(2) / 2])
    magnitudes = np.concatenate(
        [
            np.linspace(0, 1.5, part, dtype=kind),
            np.linspace(0, 9, part, dtype=kind),
            np.linspace(0, 800 if type_ == "double" else 110, part, dtype=kind),
            np.exp2(np.linspace(limits.minexp + 1, limits.maxexp - 1, part)).astype(kind),
            np.abs(np.random.default_rng(0).standard_normal(part) * 3).astype(kind),
            around(seams.astype(kind)),
            np.array([0, np.inf, limits.max, limits.tiny, limits.smallest_subnormal], dtype=kind),
            limits.smallest_subnormal * np.array([2, 3, 1000], dtype=kind),
        ]
    )
    return np.concatenate([magnitudes, -magnitudes, np.array([np.nan], dtype=kind)])


@functools.cache
def reference(type_: str, count: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each activation torch's float64 result and, for doubles, what it lacks of the exact value."""
    x = sweep(type_, count)
    found = {}
    for name, function in TORCH.items():
        result = function(torch.from_numpy(x.astype(np.float64))).numpy().copy()
        rest = np.zeros_like(result)
        if type_ == "double":
            with mpmath.workdps(40):
                for i in np.nonzero(np.isfinite(x) & (x != 0) & (np.abs(x) < 1e30))[0]:
                    exact = EXACT[name](mpmath.mpf(float(x[i])))
                    rest[i] = float(exact - mpmath.mpf(float(result[i])))
        found[name] = (result, rest)
    return found


def run(source: str, target: str | None, type_: str, count: int) -> np.ndarray:
    """Results by row; without a target on the GPU."""
    x = torch.from_numpy(sweep(type_, count)).to("cpu" if target else "cuda")
    y = torch.empty(8, len(x), dtype=x.dtype, device=x.device)
    kernel = wmma_ops.Kernel(source, "sweep", options=(f"-DTYPE={type_}",))
    with wmma_ops.emulate(target) if target else contextlib.nullcontext():
        kernel[(len(x) + 255) // 256, 256](x, y, len(x))
    return y.cpu().numpy()


def faults(name: str, type_: str, count: int, got: np.ndarray) -> list[str]:
    """What is wrong with an activation's results."""
    x = sweep(type_, count)
    want, rest = reference(type_, count)[name]
    unit, wide, finite = UNIT[type_], x.astype(np.float64), np.isfinite(x)
    got64 = got.astype(np.float64)
    found = []

    def note(what: str, wrong: np.ndarray, size: np.ndarray | None = None):
        if wrong.any():
            at = np.argmax(wrong if size is None else np.where(wrong, size, -1))
            found.append(f"{what}: {name}({x[at]!r}) = {got[at]!r}, not {want[at]!r}; {wrong.sum()} such")

    with np.errstate(all="ignore"):
        note("NaN", np.isnan(got) != np.isnan(want))
        note("infinity", ~finite & ~np.isnan(want) & (got64 != want))
        note("sign of zero", (x == 0) & (np.signbit(got) != np.signbit(want)))
        if name in ("gelu", "gelu_tanh", "silu"):
            note("sign below zero", finite & (x < 0) & ~np.signbit(got))
            note("vanishes", finite & (x < (-800 if type_ == "double" else -110)) & (got != 0))
        error = np.abs((got64 - want) - rest) / unit
        scaled = error / np.maximum(1, np.abs(wide))
        note("absolute error", finite & ~(scaled <= 8), scaled)
        if name in RELATIVE[type_]:
            bound, lowest = RELATIVE[type_][name]
            relative = error / np.abs(want + rest)
            normal = np.abs(want + rest) >= 4 * np.finfo(TYPES[type_]).tiny
            note("relative error", finite & normal & (x >= lowest) & ~(relative <= bound), relative)
    return found


@pytest.mark.parametrize("target", AMD)
@pytest.mark.parametrize("type_", TYPES)
def test_values(type_, target):
    count = 20000
    results = run(INCLUDES + KERNEL, target, type_, count)
    x = sweep(type_, count)
    assert len(x) >= count
    assert np.array_equal(results[0], x + TYPES[type_](1 if type_ == "float" else 2), equal_nan=True)
    found = [fault for i, name in enumerate(TORCH) for fault in faults(name, type_, count, results[i + 1])]
    assert not found, "\n".join(found)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("type_", TYPES)
def test_values_on_the_gpu(type_):
    """The hardware's exponential is off by up to 4 u: in float the relative errors are not held to the bounds."""
    results = run(INCLUDES + KERNEL, None, type_, 20000)
    found = [fault for i, name in enumerate(TORCH) for fault in faults(name, type_, 20000, results[i + 1])]
    assert not [fault for fault in found if type_ == "double" or "relative error" not in fault], "\n".join(found)


def inlined() -> str:
    """activate.hpp with exact_math.hpp in its place, to be changed."""
    folder = kernels_dir.PATH / "wmma"
    text = (folder / "exact_math.hpp").read_text() + (folder / "activate.hpp").read_text()
    return text.replace("#pragma once", "").replace("#include <wmma/exact_math.hpp>", "")


@pytest.mark.parametrize(
    ("type_", "names", "right", "wrong"),
    [
        ("float", {"tanh"}, "-0.0537867954286f", "-0.0538867954286f"),
        ("float", {"gelu"}, "0.2300193493936f", "0.2300293493936f"),
        ("float", {"sigmoid", "silu"}, "1.904654299957767e-9f", "0.0f"),
        (
            "double",
            {"gelu", "gelu_tanh", "silu", "sigmoid", "tanh"},
            "0.0083333333333122526713",
            "0.0083333333343122526713",
        ),
        (
            "double",
            {"gelu", "gelu_tanh", "silu", "sigmoid", "tanh"},
            "2.5116114181535038397e-8",
            "2.6116114181535038397e-8",
        ),
        ("double", {"gelu", "silu", "sigmoid"}, "-2.3190468138462995584e-17", "0.0"),
        ("double", {"gelu"}, "0.165020366170349232", "0.165020366170399232"),
        ("double", {"gelu"}, "1.98535328740889148e-9", "1.98635328740889148e-9"),
    ],
)
def test_wrong_coefficients_are_caught(type_, names, right, wrong):
    source, count = inlined(), 3000
    assert source.count(right) == 1
    results = run(source.replace(right, wrong) + KERNEL, "gfx942", type_, count)
    caught = {name for i, name in enumerate(TORCH) if faults(name, type_, count, results[i + 1])}
    assert caught == names


@pytest.mark.parametrize("target", [*AMD, "gfx1250", "sm_80", "sm_90a"])
@pytest.mark.parametrize("type_", TYPES)
def test_compiles_to_registers(type_, target):
    """Neither calls nor scratch memory, and float math in single instructions."""
    code = jit.compile(INCLUDES + KERNEL, target, options=(f"-DTYPE={type_}",), name="sweep.hip")
    assert "sweep" in code.kernels
    assert not code.log, code.log
    text = code.assembly
    if target.startswith("sm_"):
        assert not re.search(r"__local_depot|\bcall|\bdiv\.|\bbra\.uni", text)
    else:
        assert not re.search(r"s_swappc|v_div_", text)
        assert set(re.findall(r"(?:private_segment_fixed_size|[sv]gpr_spill_count):?\s+(\d+)", text)) == {"0"}


def test_refuses_other_types_and_codes():
    for call, message in (
        ("activate<kRelu>(1)", "float and double"),
        ("activate<9>(1.0f)", "not an activation's code"),
    ):
        source = (
            INCLUDES
            + f'extern "C" __global__ void refused(float* y) {{ y[0] = wmma::{call.replace("kRelu", "wmma::kRelu")}; }}'
        )
        with pytest.raises(jit.CompileError) as caught:
            jit.compile(source, "gfx942", name="refused.hip")
        assert message in caught.value.log
