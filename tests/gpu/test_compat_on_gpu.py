"""Kernels in HIP's, CUDA's and rocWMMA's names on a GPU: those of the emulated tests, with their checks."""

import compat_kernels
import compat_rocwmma
import compat_standard
import compat_threads
import pytest
import torch
from machine import Machine

CHECKS = (
    compat_kernels.check_bits,
    compat_kernels.check_halves,
    compat_kernels.check_math,
    compat_standard.check_standard,
    compat_standard.check_small_floats,
    compat_threads.check_atomics,
    compat_threads.check_lanes,
    compat_rocwmma.check_rocwmma_names,
    compat_rocwmma.check_guide,
)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_compat(check):
    check(Machine("cuda"))
