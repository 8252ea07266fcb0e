"""What a configuration costs, in clock cycles: the busiest of a compute unit's pipes, and what nothing hides.

The figures beside arch.py's: how many compute units a usual card of the target has, what its memory gives each clock, and
the rates of plain FMA. They only rank configurations; `wmma_ops.tune` measures.
"""

from dataclasses import dataclass
from math import ceil

import torch

from wmma_ops import arch


@dataclass(frozen=True)
class Card:
    units: int  # compute units or SMs
    memory: float  # bytes per clock, all units together
    dies: int = 1  # that blocks are dealt to in turn


CARDS = {
    "gfx908": Card(120, 820),
    "gfx90a": Card(104, 960),
    "gfx942": Card(304, 2500, 8),
    "gfx950": Card(256, 3300, 8),
    "gfx1100": Card(96, 400),
    "gfx1101": Card(60, 260),
    "gfx1102": Card(32, 115),
    "gfx1103": Card(12, 45),
    "gfx1150": Card(16, 45),
    "gfx1151": Card(40, 90),
    "gfx1200": Card(32, 118),
    "gfx1201": Card(64, 237),
    "gfx1250": Card(256, 3300),
    "sm_80": Card(108, 1300),
    "sm_86": Card(82, 550),
    "sm_89": Card(128, 400),
    "sm_90": Card(132, 2600),
    "sm_90a": Card(132, 2600),
}

# Of mma.sync, which reaches some five eighths of what wgmma does on sm_90.
_NVIDIA_RATES = {"float16": 2048, "bfloat16": 2048, "int8": 4096, "float64": 128}
_SM90_RATES = {"float16": 2560, "bfloat16": 2560, "int8": 5120, "float64": 256}
_FMA_RATES = {torch.float32: 256, torch.float64: 16}  # FLOP per clock and unit


def rate(target: arch.Target, element: torch.dtype, lanes: bool) -> float:
    """FLOP per clock and unit."""
    if lanes:
        return 128 if element == torch.float64 and target.family == "cdna" else _FMA_RATES[element]
    name = str(element).removeprefix("torch.")
    rates = target.rates or (_SM90_RATES if target.family == "sm90" else _NVIDIA_RATES)
    return rates.get(name) or rates["int8"]  # fp8 on NVIDIA: as int8


LAUNCH = 3000  # cycles from a kernel's start to its first product, and from its last to the end
ROUND_TRIP = 1600  # until a load that misses the caches returns


def resident(target: arch.Target, waves: int, registers: int, shared: int) -> int:
    """Blocks of `waves` waves, each lane with so many registers, that share a unit."""
    if target.vendor == "nvidia":
        by_registers = 65536 // (waves * 32 * min(registers, 255))
    else:
        file = 1536 if target.wave == 32 else 512  # registers of a SIMD that one lane's waves share
        by_registers = file // min(registers, file) * target.simds // waves
    return max(1, min(by_registers, target.lds_bytes // max(shared, 1), 8))


def cycles(
    target: arch.Target,
    *,
    tiles: int,
    k_tiles: int,
    matrix: float,
    shared: float,
    memory: float,
    epilogue: float,
    resident: int,
    waves: int,
    in_flight: int,
) -> float:
    """A launch of `tiles` blocks of `k_tiles` steps.

    `matrix`, `shared` and `memory` are what a step keeps each pipe of a unit busy; on RDNA the matrix pipe waits for the
    vector unit. `resident` blocks of `waves` waves share a unit, each with `in_flight` steps of loads under way.
    """
    load = ceil(tiles / CARDS[target.name].units)  # blocks of the busiest unit
    together = min(load, resident)
    step = max(matrix, shared, memory)
    if target.vendor == "amd" and target.wave == 32:
        step = max(matrix * 1.05, shared, memory)
    # The pipes are not quite independent, and few waves do not hide each other's latencies.
    step = (step + 0.15 * (shared + memory)) * (1 + 0.6 / (together * waves))
    waiting = ROUND_TRIP / in_flight / together
    return load * k_tiles * max(step, waiting) + ceil(load / resident) * (LAUNCH / 2 + epilogue) + LAUNCH / 2
