"""How long a compute unit takes: cycles of instructions that waves execute, by rules of each family of AMD's GPUs.

rules.py has every number with its source, operations.py says what an instruction asks of the hardware, shared_memory.py how
long the banks take for real addresses, and unit.py runs the waves of one compute unit against each other.
"""

from wmma_ops.emulator.timing.operations import Executed, operation
from wmma_ops.emulator.timing.rules import Rules, rules
from wmma_ops.emulator.timing.unit import Timing, run

__all__ = ["Executed", "Rules", "Timing", "operation", "rules", "run"]
