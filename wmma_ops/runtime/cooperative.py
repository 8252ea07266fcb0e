"""Kernels whose blocks meet: all of a launch's are on the device at once (kernels/wmma/grid_sync.hpp)."""

import math

from wmma_ops import jit
from wmma_ops.hardware import arch

SYMBOL = "_ZN4wmma6detail13grid_arrivalsILi0EEE"  # wmma::detail::grid_arrivals<0>
CLEAR = bytes(4)  # what it holds before a launch


def emulated_room(code: jit.CodeObject, name: str, target: arch.Target, threads: int, shared: int) -> tuple[int, int]:
    """(blocks that a usual card of the target has at once, its units), by the registers and shared memory that they take."""
    from wmma_ops.analysis.figures import figures
    from wmma_ops.plan.model import CARDS

    units = CARDS[target.name].units
    waves = math.ceil(threads / target.wave)
    occupancy = figures(code, target, threads, shared, code.entry(name)).occupancy or 0
    return int(occupancy * target.simds * units / waves), units


def check(
    kernel: str, target: arch.Target, grid: tuple[int, int, int], block: tuple[int, int, int], room: int, units: int
):
    """Refuses a grid of which not all blocks fit."""
    if math.prod(grid) > room:
        raise ValueError(
            f"{kernel}: grid {grid} has {math.prod(grid)} blocks, which meet at a barrier (sync_grid) and so are all there "
            f"at once; {target.name} of {units} units takes up to {room} of block {block}"
        )
