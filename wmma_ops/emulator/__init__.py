"""Executes AMD machine code, instruction by instruction, on NumPy arrays: a sanitizer and profiler without the hardware.

with wmma_ops.emulate("gfx942"):
    kernel[grid, block](tensors and numbers)
"""

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import dataclass, field

from wmma_ops.emulator.errors import (
    DivergentBarrier,
    EmulationError,
    EndlessLoop,
    OutOfBounds,
    Race,
    Trap,
    Uninitialised,
    UnknownInstruction,
)
from wmma_ops.emulator.machine import BUDGET, Statistics, launch, orders
from wmma_ops.emulator.memory import Region, Traffic
from wmma_ops.hardware.arch import EMULATED, target
from wmma_ops.ops.library import special_mode

ORDERS = ("forward", "reverse", "random")


@dataclass
class Emulation:
    """The target that CPU tensors' kernels run on, and what they executed.

    With `execute` false, ops on tensors of any device plan their kernels for the target, which may then be NVIDIA's, and
    execute none; `recorded` gets the plans and the launches in their stead.
    """

    target: str
    order: str = "forward"
    seed: int = 0
    budget: int = BUDGET
    count_traffic: bool = False
    launches: list[Statistics] = field(default_factory=list)
    execute: bool = True
    recorded: list = field(default_factory=list)


_active: contextvars.ContextVar[Emulation | None] = contextvars.ContextVar("wmma_ops_emulation", default=None)


def active() -> Emulation | None:
    """The emulation that the current thread or task is in."""
    return _active.get()


@contextlib.contextmanager
def entered(emulation: Emulation) -> Iterator[Emulation]:
    """Makes an emulation the current thread's or task's."""
    with special_mode(_active, emulation):
        yield emulation


@contextlib.contextmanager
def emulate(
    name: str, *, order: str = "forward", seed: int = 0, budget: int = BUDGET, count_traffic: bool = False
) -> Iterator[Emulation]:
    """Within it, ops and kernels on CPU tensors run as compiled for the AMD target `name`.

    Args:
        name: one of gfx908, gfx90a, gfx942, gfx950, gfx1100, gfx1151, gfx1200, gfx1201, and the others of their families.
        order: how the waves of a block take turns between barriers: forward, reverse or random (by `seed`).
        budget: the steps that a block may take without reaching memory that it had not reached before: more are taken for
            an endless loop. An instruction is one step; one of memory or of the matrix unit is 10, an atomic 64.
        count_traffic: also count memory segments and bank conflicts of shared memory (in `launches[i].traffic`).

    Yields:
        an Emulation, whose `launches` hold what each launch executed.

    Examples:
        >>> import torch, wmma_ops
        >>> fill = wmma_ops.Kernel('''
        ... #include <wmma/grid.hpp>
        ... extern "C" __global__ void fill(int* x) { x[threadIdx.x] = 7; }''', "fill")
        >>> x = torch.zeros(64, dtype=torch.int32)
        >>> with wmma_ops.emulate("gfx1201") as emulation:
        ...     fill[1, 64](x)
        >>> int(x.sum()), emulation.launches[0].waves
        (448, 2)
    """
    found = target(name)
    if found.vendor != "amd" or name == "gfx1250":
        raise ValueError(f"emulate: {name} is not emulated; takes an AMD target such as {', '.join(EMULATED)}")
    orders(order)
    with entered(Emulation(name, order, seed, budget, count_traffic)) as emulation:
        yield emulation


__all__ = [
    "ORDERS",
    "DivergentBarrier",
    "Emulation",
    "EmulationError",
    "EndlessLoop",
    "OutOfBounds",
    "Race",
    "Region",
    "Statistics",
    "Traffic",
    "Trap",
    "Uninitialised",
    "UnknownInstruction",
    "active",
    "emulate",
    "entered",
    "launch",
]
