"""Functions of scores and masks, and block masks, on a GPU: values and gradients against a formula in float64."""

import packed_scored
import pytest
import torch
from scored import FOUND, WITH_BLOCKS, WITH_FUNCTIONS, check, ours, results

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("case", [*WITH_FUNCTIONS, *WITH_BLOCKS, *FOUND], ids=str)
def test_values_and_gradients(case):
    check(case, results(case, ours, device="cuda"))


@pytest.mark.parametrize("case", packed_scored.ALL, ids=str)
def test_values_and_gradients_of_packed_sequences(case):
    packed_scored.check(case, packed_scored.results(case, packed_scored.ours, device="cuda"))
