"""Kernels in the names that people know from HIP, CUDA and rocWMMA, on every emulated target."""

from pathlib import Path

import compat_kernels
import compat_rocwmma
import compat_standard
import compat_threads
import numpy as np
import pytest
import torch
from machine import Machine

import wmma_ops
from wmma_ops import jit
from wmma_ops.emulator import Trap
from wmma_ops.hardware import arch

EXAMPLES = Path(__file__).parents[1] / "support/examples"
KERNELS = compat_kernels.KERNELS | compat_standard.KERNELS | compat_threads.KERNELS | compat_rocwmma.KERNELS
TARGETS = pytest.mark.parametrize("target", arch.EMULATED)


@TARGETS
def test_bits_and_vectors(target):
    compat_kernels.check_bits(Machine(target))


@TARGETS
def test_halves(target):
    compat_kernels.check_halves(Machine(target))


@TARGETS
def test_math(target):
    compat_kernels.check_math(Machine(target))


@TARGETS
def test_standard_names(target):
    compat_standard.check_standard(Machine(target))


@TARGETS
def test_small_floats(target):
    compat_standard.check_small_floats(Machine(target))


def test_concepts_and_hips_vectors():
    """Of C++20; the arguments are a struct, as HIP's programs pass them, of a kernel outside any namespace."""
    got, kernel = torch.zeros(3, dtype=torch.int32), compat_standard.CONCEPTS_KERNEL
    Machine("gfx950").run(kernel, 1, 1, (got, np.float32(1.5), np.uint64(0)))
    assert got.tolist() == [54321, 11, 41]


@TARGETS
def test_lanes(target):
    compat_threads.check_lanes(Machine(target))


@TARGETS
def test_rocwmma_names(target):
    compat_rocwmma.check_rocwmma_names(Machine(target))


@TARGETS
def test_types_of_the_compiler(target):
    compat_rocwmma.check_compilers_types(Machine(target))


@TARGETS
def test_rocwmma_guide(target):
    compat_rocwmma.check_guide(Machine(target))


@TARGETS
def test_atomics(target):
    compat_threads.check_atomics(Machine(target))


PRINTS = (
    compat_kernels.HEAD
    + """
#include <cassert>
__global__ void prints(int* x) {
  printf("%d of %s: %.1f\\n", (int)threadIdx.x, "two", x[0] / 2.0f);
  assert(x[0] < 4);
}"""
)


@TARGETS
def test_printf_and_assert(target, capsys):
    kernel, on = wmma_ops.Kernel(PRINTS, "prints"), Machine(target)
    on.run(kernel, 1, 2, torch.tensor([3], dtype=torch.int32))
    assert capsys.readouterr().out == "0 of two: 1.5\n1 of two: 1.5\n"
    with pytest.raises(Trap, match=r"x\[0\] < 4"):
        on.run(kernel, 1, 2, torch.tensor([4], dtype=torch.int32))
    on.run(wmma_ops.Kernel(PRINTS, "prints", options=("-DNDEBUG",)), 1, 2, torch.tensor([4], dtype=torch.int32))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx90a"])
def test_printf_and_assert_of_others(target):
    """NVRTC has its own; hiprtc's printf is HIP's."""
    compiler = "hiprtc" if target == "gfx90a" else "nvrtc"
    if not jit.available(target, compiler):
        pytest.skip(f"no {compiler} here for {target}")
    assert jit.compile(PRINTS, target, compiler=compiler).entry("prints")


def test_a_wrong_format_is_refused():
    with pytest.raises(jit.CompileError, match="takes fewer values than there are"):
        wmma_ops.Kernel(PRINTS.replace(": %.1f", ""), "prints").compile("gfx942")


@pytest.mark.parametrize("target", ["gfx1200", "gfx1201"])
def test_rdna4_guide(target):
    a, b0, b1 = torch.randn(32, 32).half(), torch.randn(48, 32).half(), torch.randn(48, 48).half()
    d = torch.full((32, 48), torch.nan)
    kernel = wmma_ops.Kernel((EXAMPLES / "guide_rdna4.hip").read_text(), "two_products")
    Machine(target).run(kernel, 1, 32, a, b0, b1, d)
    middle = (a.double() @ b0.double().T).float().half()
    torch.testing.assert_close(d.double(), middle.double() @ b1.double().T, atol=0.05, rtol=0)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", KERNELS)
def test_nvidia_compiles(name, target):
    if not jit.available(target):
        pytest.skip(f"no NVRTC here for {target}")
    kernel = KERNELS[name]
    assert kernel.compile(target).entry(kernel.name)


@pytest.mark.parametrize("name", ["bits", "guide"])
def test_hiprtc_compiles(name):
    """Beside HIP's own names, which stay."""
    try:
        code = jit.compile(KERNELS[name].source, "gfx90a", compiler="hiprtc")
    except jit.CompileError as error:
        if error.log:
            raise
        pytest.skip(f"hiprtc is not there: {error}")
    assert len(code.kernels) == 1
