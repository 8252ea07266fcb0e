"""The machine that is brought up: a card, or the emulator in its stead."""

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass

import torch

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.model import CARDS
from wmma_ops.runtime import driver


@dataclass(frozen=True)
class Machine:
    target: str
    is_card: bool
    small: bool  # sizes for trying it out

    @property
    def device(self) -> str:
        return "cuda" if self.is_card else "cpu"

    @property
    def backend(self) -> str:
        """As the value suite names it."""
        return "cuda" if self.is_card else f"emulated:{self.target}"

    @property
    def row(self) -> arch.Target:
        return arch.target(self.target)

    @property
    def no_emulator(self) -> str:
        """Why the emulator does not run this target's kernels; "" where it does."""
        if self.row.vendor != "amd":
            return f"{self.target} is not AMD's: the emulator does not know its instructions"
        return "" if self.target in arch.EMULATED else f"{self.target} is not among the emulated targets"

    @functools.cached_property
    def units(self) -> int:
        if not self.is_card:
            return CARDS[self.target].units
        return torch.cuda.get_device_properties(0).multi_processor_count

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Within it, a call on tensors of `device` runs on the machine."""
        with contextlib.nullcontext() if self.is_card else wmma_ops.emulate(self.target):
            yield
        if self.is_card:
            torch.cuda.synchronize()


def here(target: str | None, small: bool) -> Machine:
    """The present card, or the emulated `target`."""
    if target is not None:
        name = arch.target(target).name
        if name not in arch.EMULATED:
            stand_in = arch.emulated_as(arch.target(target))
            stands = f"{stand_in} stands for it; " if stand_in else ""
            raise ValueError(f"--target is {target}; {stands}takes one that is emulated: {', '.join(arch.EMULATED)}")
        return Machine(name, False, small)
    if not torch.cuda.is_available():
        raise ValueError("torch finds no GPU here; --target gfx1201, or another one, tries it on the emulator")
    return Machine(driver.target_of(0), True, small)
