"""The device library's fast functions keep the bounds that their comments state."""

import fast_math
import pytest

import wmma_ops
from wmma_ops.hardware import arch


@pytest.mark.parametrize("target", arch.EMULATED)
def test_fast_functions_keep_their_bounds(target):
    x = fast_math.arguments()
    found = fast_math.faults(x, fast_math.results(x, target))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_fast_functions_compile_for_nvidia(target):
    code = wmma_ops.jit.compile(fast_math.KERNEL, target, name="fast.hip")
    assert code.kernels == ("fast",)
