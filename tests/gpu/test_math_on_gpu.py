"""The device library's math on a GPU, by the kernels and bounds of the emulated tests."""

import annex_f
import device_math
import fast_math
import narrow_math
import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_fast_functions_keep_their_bounds():
    x = fast_math.arguments()
    found = fast_math.faults(x, fast_math.results(x, None))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("type_", device_math.TYPES)
def test_rounded_functions_stay_within_two_ulp(type_):
    found = device_math.rounded_faults(type_, 20_000, None)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("type_", device_math.TYPES)
def test_exact_functions_are_exact(type_):
    found = device_math.exact_faults(type_, 5_000, None)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("type_", device_math.TYPES)
def test_special_values_of_annex_f(type_):
    found = annex_f.special_faults(type_, None)
    assert not found, "\n".join(found)


def test_16_bit_types_go_through_float():
    found = narrow_math.narrow_faults(None)
    assert not found, "\n".join(found)
