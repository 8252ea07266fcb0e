"""What no packed sequence has of attention's results, or of its gradients: blocks of the kernel that puts split keys'
parts together (combine.py), or a kernel of its own. That one also writes the list of tiles that another kernel's blocks are
dealt (kernels/wmma/attention/balanced/tile_list.hpp)."""

from collections.abc import Mapping

from wmma_ops.plan.attention.rules import rules_header, rules_type
from wmma_ops.plan.plan import KernelLaunch
from wmma_ops.plan.problem import AttentionProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text

_THREADS = 256
LISTED_BYTES = 32  # of a tile in the list, and of what stands before them
_OF_PADDING = 64  # blocks that share what lies behind the last sequence; what lies between two of them one has


def blocks(problem: AttentionProblem) -> int:
    return problem.batch + _OF_PADDING if problem.sequences else 0


def listed_bytes(tiles: int) -> int:
    """Of a list of so many."""
    return (1 + tiles) * LISTED_BYTES


def launches(problem: AttentionProblem, dealing: Mapping[str, int] | None = None) -> tuple[KernelLaunch, ...]:
    """None where there are no sequences. `dealing`: what a tile is, where it writes the list of them."""
    if not problem.sequences:
        return ()
    members = [
        *aliases({"Element": CPP[problem.dtype], "Rules": rules_type(problem)}),
        *constants("int", {"kThreads": _THREADS, **(dealing or {})}),
        *constants("bool", {"kBackward": problem.backward, "kLists": dealing is not None}),
    ]
    source = kernel_text("attention_fill.hip", members=members, before=rules_header(problem))
    return (KernelLaunch("attention_fill", source, (blocks(problem), 1), _THREADS, 0),)
