"""The device library's clocks."""

import pytest
from device_clock import SOURCE, check_clocks
from machine import Machine, assert_compiles

from wmma_ops.hardware import arch


@pytest.mark.parametrize("target", arch.EMULATED)
def test_clocks(target):
    check_clocks(Machine(target))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx1250"])
def test_clocks_compile(target):
    assert_compiles(target, SOURCE)
