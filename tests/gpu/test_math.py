"""The device library's math on a GPU, by the kernels and bounds of the emulated tests."""

import fast_math
import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_fast_functions_keep_their_bounds():
    x = fast_math.arguments()
    found = fast_math.faults(x, fast_math.results(x, None))
    assert not found, "\n".join(found)
