"""Executes AMD machine code, instruction by instruction, on NumPy arrays: a sanitizer and profiler without the hardware.

`wmma_ops.emulate` sends ops and kernels here (runtime/emulation.py). What it finds wrong is raised as one of these errors;
what executes is loaded when first asked for.
"""

import importlib

from wmma_ops.emulator.errors import (
    DivergentBarrier,
    EmulationError,
    EndlessLoop,
    Malformed,
    OutOfBounds,
    Race,
    TooLarge,
    Trap,
    Uninitialised,
    UnknownInstruction,
)

_WHERE = {"Statistics": "machine", "launch": "launching", "Region": "memory", "Traffic": "memory"}


def __getattr__(name: str):
    if name in _WHERE:
        return getattr(importlib.import_module(f"wmma_ops.emulator.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'wmma_ops.emulator' has no attribute {name!r}")


__all__ = [
    "DivergentBarrier",
    "EmulationError",
    "EndlessLoop",
    "Malformed",
    "OutOfBounds",
    "Race",
    "TooLarge",
    "Trap",
    "Uninitialised",
    "UnknownInstruction",
]
