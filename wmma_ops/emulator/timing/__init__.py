"""How long a compute unit takes: cycles of instructions that waves execute, by rules of each family of AMD's GPUs.

rules.py has every number with its source, operations.py says what an instruction asks of the hardware, shared_memory.py how
long the banks take for real addresses, trace.py keeps what waves executed, and unit.py runs them against each other.
"""

from wmma_ops.emulator.timing.operations import Executed, operation
from wmma_ops.emulator.timing.rules import Rules, rules
from wmma_ops.emulator.timing.trace import Trace
from wmma_ops.emulator.timing.unit import Timing, run

__all__ = ["Executed", "Rules", "Timing", "Trace", "operation", "rules", "run"]
