"""How long a compute unit takes: cycles of instructions that waves execute, by rules of each family of AMD's GPUs.

rules.py has every number with its source, operations.py says what an instruction asks of the hardware, shared_memory.py how
long the banks take for real addresses, memory.py what of memory the cache holds, trace.py keeps what waves executed, unit.py
runs them against each other, and record.py tells of it.
"""

from wmma_ops.emulator.timing.operations import Executed, operation
from wmma_ops.emulator.timing.record import Estimate, InstructionTiming, LoopTiming, Timing
from wmma_ops.emulator.timing.rules import Rules, rules
from wmma_ops.emulator.timing.trace import Enough, Trace
from wmma_ops.emulator.timing.unit import Run, run

__all__ = [
    "Enough",
    "Estimate",
    "Executed",
    "InstructionTiming",
    "LoopTiming",
    "Rules",
    "Run",
    "Timing",
    "Trace",
    "operation",
    "rules",
    "run",
]
