"""The command line, a file a command; and whether a process was started for its help alone."""

import itertools
import sys
from pathlib import Path


def is_for_help() -> bool:
    """Whether it is `python -m wmma_ops … --help`, or `wmma_ops … --help`, which is to come at once: torch alone takes a
    second and more, and is not needed for it."""
    words = getattr(sys, "orig_argv", [])
    as_module = ("-m", "wmma_ops") in itertools.pairwise(words)
    as_command = Path(*getattr(sys, "argv", [])[:1]).name == "wmma_ops"
    return (as_module or as_command) and not {"-h", "--help"}.isdisjoint(words)
