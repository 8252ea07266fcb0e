"""Which tests run when: all, a quick part of them that changes with the commit, the rest of them, or what a compiler is
held to that is not the pinned one.

The quick part has one CDNA and one RDNA target of those that are emulated, every third of the kernels that are wrong on
purpose, nothing that is marked `full`, and no models. The turn is the commit's number, so that many commits together run
everything.
"""

import os
import subprocess
from pathlib import Path

from wmma_ops.hardware import arch

TIERS = ("full", "quick", "rest", "compilers")
WRONG = ("test_wrong.py", "test_wrong_kernels.py", "test_wrong_two_products.py")
THIRDS = 3
NATURAL = ("test_natural_kernels.py", "test_padding.py")
CDNA = [name for name in arch.EMULATED if arch.target(name).family == "cdna"]
RDNA = [name for name in arch.EMULATED if arch.target(name).family != "cdna"]


def turn() -> int:
    """Of this commit, or as WMMA_OPS_TURN says; 0 outside a repository."""
    if given := os.environ.get("WMMA_OPS_TURN"):
        return int(given)
    asked = ["git", "rev-list", "--count", "HEAD"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, cwd=Path(__file__).parent)
    except FileNotFoundError:
        return 0
    return int(done.stdout) if done.returncode == 0 else 0


def targets(turn: int) -> tuple[str, str]:
    """The pair whose turn it is: each with each other within sixteen."""
    return CDNA[turn % len(CDNA)], RDNA[(turn + turn // len(CDNA)) % len(RDNA)]


def target_of(value: object) -> str | None:
    """The emulated target that a test's parameter names."""
    name = value.name if isinstance(value, arch.Target) else str(value).removeprefix("emulated:")
    return name if name in arch.EMULATED else None


def runs(item, tier: str, turn: int) -> bool:
    """Whether a test is of the tier; `item` is pytest's."""
    if tier == "full":
        return True
    return is_of_compilers(item, turn) if tier == "compilers" else is_quick(item, turn) == (tier == "quick")


def is_of_compilers(item, turn: int) -> bool:
    """Kernels as people write them, and half of each emulated target's values, by turns."""
    if item.path.name in NATURAL:
        return True
    if getattr(item, "originalname", "") != "test_kernels_keep_the_contract":
        return False
    parameters = item.callspec.params
    return (parameters["part"] + arch.EMULATED.index(target_of(parameters["emulated"])) + turn) % 2 == 0


def is_quick(item, turn: int) -> bool:
    """Whether a test is of the quick part; `item` is pytest's."""
    if item.get_closest_marker("full") or item.path.parent.name == "models":
        return False
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    named = {name for value in parameters if (name := target_of(value))}
    if not named <= set(targets(turn)):
        return False
    if item.path.name in WRONG and hasattr(item, "callspec"):
        return sum(item.callspec.id.encode()) % THIRDS == turn % THIRDS
    return True
