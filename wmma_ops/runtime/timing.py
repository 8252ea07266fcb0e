"""How long a launch takes on a target that is not here: its blocks of one compute unit executed, and timed together."""

import math
from collections.abc import Callable

import torch

from wmma_ops.emulator import launching
from wmma_ops.emulator.errors import BUDGET
from wmma_ops.emulator.timing import Estimate, Timing, Trace, rules
from wmma_ops.hardware import arch
from wmma_ops.plan import model
from wmma_ops.runtime.emulated import EmulatedKernel, regions

INSTRUCTIONS = 4_000_000  # of all waves: a minute or two


# The boost clocks that AMD publishes, of the cards in plan/model.py.
_GIGAHERTZ = {
    "gfx90a": 1.7, "gfx942": 2.1, "gfx950": 2.4, "gfx1100": 2.5, "gfx1151": 2.9, "gfx1200": 3.13, "gfx1201": 2.97,
}  # fmt: skip


class TooLong(ValueError):
    """A launch executes more than was to be timed."""


def traced(
    kernel: EmulatedKernel,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    arguments: bytes,
    tensors: dict[str, torch.Tensor],
    *,
    instructions: int | None = None,
    part: bool = False,
    addresses: bool = False,
    tell: Callable[[int], None] = lambda executed: None,
) -> Trace:
    """What the blocks execute that one compute unit (on RDNA a WGP) gets first, together as many as fit. What they write to
    the tensors is written. `tell` is called now and then with how many instructions were executed."""
    for name, x in tensors.items():
        if x.device.type != "cpu":
            raise ValueError(
                f"timing: {name} is on {x.device}; takes a call on CPU tensors, which the emulator can touch"
            )
    most = instructions or INSTRUCTIONS
    target, count, units = kernel.target, math.prod(grid), model.wholes(kernel.target)
    resident = min(kernel.resident(block, shared), -(-count // units))
    indices = [(i % grid[0], i // grid[0] % grid[1], i // (grid[0] * grid[1])) for i in range(0, count, units)][
        :resident
    ]
    trace = Trace(target.name, rules(target.name), target.wave, resident, most=most, addresses=addresses)
    trace.tell = tell
    held = regions(tensors)
    # Tensors may all be one, so that a block soon reaches no new memory; what it executes is bounded as it is.
    launching.launch(
        kernel.program,
        grid,
        block,
        arguments,
        held,
        shared_bytes=shared,
        budget=max(BUDGET, most),
        trace=trace,
        only=indices,
    )
    if trace.is_cut and not part:
        waves = resident * -(-math.prod(block) // target.wave)
        raise TooLong(
            f"timing: the {waves} waves that one compute unit has of {kernel.name} on {target.name} execute more than "
            f"{most:,} instructions; instructions={4 * most} allows as many, and part=True times the first of them alone"
        )
    return trace


def estimate(
    trace: Trace, timing: Timing, grid: tuple[int, int, int], tensors: dict[str, torch.Tensor]
) -> Estimate | None:
    """What the whole launch takes; None where no clock is known, or not all was executed."""
    if trace.is_cut or timing.target not in _GIGAHERTZ:
        return None
    target, gigahertz = arch.target(timing.target), _GIGAHERTZ[timing.target]
    rounds = -(-math.prod(grid) // (model.wholes(target) * timing.blocks))
    units = rounds * timing.cycles
    # A call's launches are given all of its tensors; each touches some.
    touched = [x for x in tensors.values() if any(first <= x.data_ptr() < end for first, end in trace.reached)]
    memory = sum(x.numel() * x.element_size() for x in touched) / model.CARDS[target.name].memory
    return Estimate(max(units, memory) / gigahertz / 1000, rounds, gigahertz, memory > units)
