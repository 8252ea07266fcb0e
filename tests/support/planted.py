"""Faults planted in a copy of the device sources: what stands there once is replaced, and a test has to notice."""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch


@dataclass(frozen=True)
class Planted:
    name: str
    file: str
    old: str
    new: str

    def __str__(self) -> str:
        return self.name

    def plant(self, folder: Path) -> None:
        path = folder / self.file
        path.write_text(path.read_text().replace(self.old, self.new))
        torch.ops.wmma._forget_plans()


def some_in_quick(faults: Iterable[Planted], quick: Container[str]) -> list:
    """As a test's parameters: those that are not named are for the full tests."""
    return [pytest.param(of, marks=() if of.name in quick else pytest.mark.full, id=str(of)) for of in faults]


def check_that_each_stands_once(folder: Path, faults: Iterable[Planted]) -> None:
    found = {of.name: (folder / of.file).read_text().count(of.old) for of in faults}
    assert set(found.values()) == {1}, f"the headers have changed; write these anew: {found}"


def check_is_caught(fault: Planted, folder: Path, ask: Callable[[], object]) -> None:
    """By what is asked, and not because it does not compile."""
    fault.plant(folder)
    with pytest.raises((RuntimeError, AssertionError)) as caught:
        ask()
    assert "does not compile" not in str(caught.value)
