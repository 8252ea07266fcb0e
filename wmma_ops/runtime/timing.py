"""How long a launch takes on a target that is not here: its blocks of one compute unit executed, and timed together."""

import math

import torch

from wmma_ops.emulator import machine
from wmma_ops.emulator.errors import BUDGET
from wmma_ops.emulator.timing import Trace, rules
from wmma_ops.plan import model
from wmma_ops.runtime.emulated import EmulatedKernel, regions

INSTRUCTIONS = 4_000_000  # of all waves: a minute or two


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
) -> Trace:
    """What the blocks execute that one compute unit (on RDNA a WGP) gets first, together as many as fit. What they write to
    the tensors is written."""
    for name, x in tensors.items():
        if x.device.type != "cpu":
            raise ValueError(
                f"timing: {name} is on {x.device}; takes a call on CPU tensors, which the emulator can touch"
            )
    most = instructions or INSTRUCTIONS
    target = kernel.target
    units = model.CARDS[target.name].units // (1 if target.family == "cdna" else 2)
    count = math.prod(grid)
    together = min(kernel.resident(block, shared), -(-count // units))
    indices = [(i % grid[0], i // grid[0] % grid[1], i // (grid[0] * grid[1])) for i in range(0, count, units)][
        :together
    ]
    trace = Trace(target.name, rules(target.name), target.wave, together, most=most, addresses=addresses)
    held = regions(tensors)
    machine.launch(
        kernel.program, grid, block, arguments, held, shared_bytes=shared, budget=BUDGET, trace=trace, only=indices
    )
    if trace.is_cut and not part:
        waves = together * -(-math.prod(block) // target.wave)
        raise TooLong(
            f"timing: the {waves} waves that one compute unit has of {kernel.name} on {target.name} execute more than "
            f"{most:,} instructions; instructions={4 * most} allows as many, and part=True times the first of them alone"
        )
    return trace
