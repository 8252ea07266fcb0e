"""What a part of the bring-up is made of: items, each with its name and what runs it."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# The parts, in their order, and how much of the time each may take; what is left passes on to the next.
PARTS = {"machine": 0.1, "values": 0.35, "bits": 0.25, "microkernels": 0.15, "times": 0.15}
PASSED, FAILED, TOLD, LEFT_OUT = "passed", "failed", "told", "left out"  # told: there is no right and wrong to it


@dataclass(frozen=True)
class Item:
    """`run` gives what is kept of it, with a verdict among it; what it raises is a failure. `prepare` compiles what it
    launches, and may be called before, beside others."""

    part: str
    name: str
    run: Callable[[], dict]
    prepare: Callable[[], object] | None = None


def plain(x):
    """As JSON has it, which knows no NaN and no infinity."""
    if isinstance(x, float) and not math.isfinite(x):
        return str(x)
    if isinstance(x, dict):
        return {str(key): plain(value) for key, value in x.items()}
    if isinstance(x, Iterable) and not isinstance(x, str):
        return [plain(value) for value in x]
    return x if isinstance(x, (str, int, float, bool, type(None))) else str(x)
