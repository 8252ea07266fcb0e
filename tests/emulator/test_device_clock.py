"""The device library's clocks."""

import pytest
from device_clock import check_clocks
from machine import Machine

from wmma_ops import jit
from wmma_ops.hardware import arch


@pytest.mark.parametrize("target", arch.EMULATED)
def test_clocks(target):
    check_clocks(Machine(target))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx1250"])
def test_clocks_compile(target):
    from device_clock import SOURCE

    assert "clocks" in jit.compile(SOURCE, target).kernels
