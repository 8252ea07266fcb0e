"""The kernel that adds up what slices of the queries give the gradients of keys and values
(kernels/wmma/attention/passes/key_parts.hpp)."""

from math import ceil

from wmma_ops.plan.plan import KernelLaunch
from wmma_ops.plan.problem import AttentionProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text

_THREADS = 128
_COLUMNS = 4  # of a thread


def workspace(problem: AttentionProblem, slices: int) -> int:
    """Bytes."""
    return slices * _columns(problem) * 4


def launch(problem: AttentionProblem, tile_sums: int) -> KernelLaunch:
    """Behind so many sums for each tile of queries."""
    numbers = {"kThreads": _THREADS, "kOutVec": problem.out_vec, "kTileSums": tile_sums}
    members = [*aliases({"Element": CPP[problem.dtype]}), *constants("int", numbers)]
    source = kernel_text("attention_key_parts.hip", members=members)
    blocks = ceil(_columns(problem) / _COLUMNS / _THREADS)
    return KernelLaunch("attention_key_parts", source, (blocks, 1), _THREADS, 0, early=True)


def _columns(problem: AttentionProblem) -> int:
    """Of all keys' rows."""
    return problem.batch * problem.heads // problem.group * problem.skv * (problem.e + problem.ev)
