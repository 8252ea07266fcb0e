"""Fragments by their values on a GPU: the checks of the emulated targets, and shapes that NVIDIA alone has."""

import pytest
import torch
from fragment_checks import CHECKS, NVIDIA_CHECKS
from fragment_machine import Machine

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("check", [*CHECKS, *NVIDIA_CHECKS], ids=lambda check: check.__name__)
def test_values(check):
    check(Machine("cuda"))
