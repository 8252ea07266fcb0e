"""What the emulator refuses or catches, each named."""

import contextlib
from collections.abc import Iterator


class EmulationError(RuntimeError):
    """Something a kernel did that real hardware would do silently or not at all.

    The text names the kernel, the source line or instruction, the block, the wave and, where one is to blame, the lane.
    """

    place = ""  # "k.hip:5 (in lanes.hpp:68)", where the source's lines are known


class UnknownInstruction(EmulationError):
    """An instruction that the emulator does not know: never guessed."""


class Malformed(EmulationError):
    """Code, or what stands beside it, as no assembler writes it."""


class TooLarge(EmulationError):
    """More memory than the emulator gives a kernel (limits.py)."""


class OutOfBounds(EmulationError):
    """An access outside the tensors, or outside the block's shared memory."""


class Uninitialised(EmulationError):
    """A read of a register or of shared memory that was never written."""


class Race(EmulationError):
    """Two waves at one place in memory with nothing between that orders them, one of them writing; or an access that meets a
    load straight to shared memory for which its wave has not waited."""


class DivergentBarrier(EmulationError):
    """A barrier that never completes: a wave waits for it without having signalled, or signals twice for one wait."""


BUDGET = 500_000  # steps (program.cost_of) without new memory: some two seconds


class EndlessLoop(EmulationError):
    """More steps than the budget without reaching new memory."""


class Trap(EmulationError):
    """s_trap: a failed assertion in the kernel."""


_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError, RecursionError)


@contextlib.contextmanager
def malformed(what: str) -> Iterator[None]:
    """Within it, whatever a text leads to that no assembler writes is told as that."""
    try:
        yield
    except _DAMAGE as error:
        raise Malformed(f"{what}: {type(error).__name__}: {error}") from error
