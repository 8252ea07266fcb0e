"""Which tests run when: all, a quick part of them that changes with the commit, or the rest of them.

The quick part has one CDNA and one RDNA target of those that are emulated, every third of the kernels that are wrong on
purpose, nothing that is marked `full`, and no models. The turn is the commit's number, so that many commits together run
everything.
"""

import os
import subprocess
from pathlib import Path

from wmma_ops.hardware import arch

TIERS = ("full", "quick", "rest")
WRONG = ("test_wrong.py", "test_wrong_kernels.py", "test_wrong_two_products.py")
THIRDS = 3
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
