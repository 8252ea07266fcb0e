"""`wmma_ops.emulate`: which target the ops and kernels on CPU tensors run as compiled for, and what they executed."""

import contextlib
import importlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wmma_ops.emulator.errors import BUDGET, EmulationError
from wmma_ops.hardware import arch
from wmma_ops.ops.errors import may_name
from wmma_ops.ops.library import special_mode
from wmma_ops.ops.neighbours import answering
from wmma_ops.ops.target import EMULATION

if TYPE_CHECKING:
    from wmma_ops.emulator.machine import Statistics

may_name(EmulationError, *EmulationError.__subclasses__())

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
    timing: bool = False
    launches: "list[Statistics]" = field(default_factory=list)
    execute: bool = True
    recorded: list = field(default_factory=list)


def active() -> Emulation | None:
    """The emulation that the current thread or task is in."""
    return EMULATION.get()


@contextlib.contextmanager
def entered(emulation: Emulation) -> Iterator[Emulation]:
    """Makes an emulation the current thread's or task's."""
    with special_mode(EMULATION, emulation):
        yield emulation


def emulated(name: str) -> tuple[arch.Target, str]:
    """The target of a name, which the emulator knows; and, where no test runs on it, which one stands for it."""
    found = arch.target(name)
    stand_in = arch.emulated_as(found)
    if stand_in is None:
        why = "" if found.vendor == "amd" else ": its instructions are NVIDIA's"
        raise ValueError(
            f"emulate: {name} is not emulated{why}; takes an AMD target such as {', '.join(arch.EMULATED)}"
        )
    if stand_in == found.name:
        return found, ""
    return found, f"no test runs on {found.name}; {stand_in} stands for it, with the same instructions and lane layouts"


@answering
@contextlib.contextmanager
def emulate(
    name: str,
    *,
    order: str = "forward",
    seed: int = 0,
    budget: int = BUDGET,
    count_traffic: bool = False,
    timing: bool = False,
) -> Iterator[Emulation]:
    """Within it, ops and kernels on CPU tensors run as compiled for the AMD target `name`.

    Args:
        name: one of gfx908, gfx90a, gfx942, gfx950, gfx1100, gfx1151, gfx1200, gfx1201, or a card that has one of them, such
            as "RX 9070 XT". Others of their families run too, and a warning says which of these stands for them.
        order: how the waves of a block take turns between barriers: forward, reverse or random (by `seed`).
        budget: the steps that a block may take without reaching memory that it had not reached before: more are taken for
            an endless loop. An instruction is one step; one of memory or of the matrix unit is 10, an atomic 64.
        count_traffic: also count memory segments and bank conflicts of shared memory (in `launches[i].traffic`).
        timing: also keep what the blocks execute that a compute unit holds at once, so that `launches[i].timing()` tells how
            many cycles they take by published rules, the share of them in which the matrix pipes were busy, and what waves
            waited for. Not for gfx908.

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
    found, said = emulated(name)
    if said:
        warnings.warn(f"emulate: {said}", stacklevel=3)
    if order not in ORDERS:
        raise ValueError(f"order is {order!r}; takes {', '.join(ORDERS[:-1])} or {ORDERS[-1]}")
    if timing:
        importlib.import_module("wmma_ops.emulator.timing").rules(
            found.name
        )  # refuses a family that it has no rules of
    with entered(Emulation(arch.full_name(name), order, seed, budget, count_traffic, timing)) as emulation:
        yield emulation
