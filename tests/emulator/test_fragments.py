"""Fragments by their values: conversions, mixed types, results as operands, arithmetic. Elsewhere: that they compile."""

import pytest
from fragment_checks import CHECKS, NVIDIA_CHECKS
from fragment_machine import Machine

from wmma_ops.hardware import arch

# What takes a compiler longest, and all but one of the targets that are compiled for alone, are left out of the quick tier.
FULL = pytest.mark.full
LONG = ("large_results_as_operands",)
TARGETS = [*arch.EMULATED, "sm_90a", pytest.param("gfx1250", marks=FULL), pytest.param("sm_80", marks=FULL)]
VALUES = [pytest.param(one, marks=[FULL] if one.__name__ in LONG else (), id=one.__name__) for one in CHECKS]


@pytest.mark.parametrize("check", VALUES)
@pytest.mark.parametrize("target", TARGETS)
def test_values(target, check):
    check(Machine(target))


@pytest.mark.parametrize("target", ["sm_90a", pytest.param("sm_80", marks=FULL)])
@pytest.mark.parametrize("check", NVIDIA_CHECKS, ids=lambda check: check.__name__)
def test_nvidia_compiles(target, check):
    check(Machine(target))
