"""What the library and Python exchange has the same names, in the same order, on both sides."""

import pytest
import torch

from wmma_ops.ops.types import ELEMENTS
from wmma_ops.runtime import border

TEXT = bytes(torch.ops.wmma._border()).decode()
OURS = border._ours()


def test_both_sides_say_the_same():
    assert len(OURS) == 11 + len(ELEMENTS)
    assert sum(map(len, OURS.values())) > 100
    assert not border.differences(TEXT, OURS)


@pytest.mark.parametrize("name", OURS)
def test_each_difference_is_named(name):
    fields = OURS[name]
    turned = [*fields[1:], fields[0]] if len(fields) > 1 else []
    for wrong in (fields[:-1], [*fields, "more"], turned, ["other", *fields[1:]]):
        (found,) = border.differences(TEXT, {**OURS, name: wrong})
        assert found.startswith(f"{name}: ")
        assert str(fields) in found
        assert str(wrong) in found
