"""The second kernel of attention whose keys are split: it puts the parts together that the blocks left in memory. Of packed
sequences it also writes what none of them has."""

from math import ceil

import torch

from wmma_ops.hardware import arch
from wmma_ops.plan.attention import rest
from wmma_ops.plan.attention.rules import rules_header, rules_type
from wmma_ops.plan.plan import KernelLaunch
from wmma_ops.plan.problem import AttentionProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text

_THREADS = 256


def workspace(problem: AttentionProblem, splits: int) -> int:
    """Bytes: of each split and row its largest score, its sum of weights, and its results."""
    return last_workspace(problem, splits, _rows(problem))


def last_workspace(problem: AttentionProblem, splits: int, rows: int) -> int:
    """The same where so many rows have splits."""
    return splits * rows * (2 + problem.ev) * (8 if problem.dtype == torch.float64 else 4)


def launch(problem: AttentionProblem, target: arch.Target) -> KernelLaunch:
    return _launch(problem, target, _rows(problem), {}, {})


def last_launch(problem: AttentionProblem, target: arch.Target, tiles: int, tile_rows: int) -> KernelLaunch:
    """Where only the last tiles' keys are split."""
    return _launch(problem, target, tiles * tile_rows, {"kTileRows": tile_rows}, {"WMMA_ATTENTION_LAST": True})


def _launch(
    problem: AttentionProblem, target: arch.Target, rows: int, sizes: dict[str, int], defines: dict[str, bool]
) -> KernelLaunch:
    columns = _thread_columns(problem)
    types = {"Element": CPP[problem.dtype], "Mask": CPP[problem.mask], "Rules": rules_type(problem)}
    members = [
        *aliases(types),
        *constants("int", {"kThreads": _THREADS, "kThreadColumns": columns, **rest.CONSTANTS, **sizes}),
        *constants("bool", {"kBackward": False}),
    ]
    source = kernel_text(
        "attention.hip",
        members=members,
        before=rules_header(problem),
        defines={"WMMA_ATTENTION_COMBINE": True, **defines},
    )
    grid = (ceil(rows * (problem.ev // columns) / _THREADS) + rest.blocks(problem), 1)
    return KernelLaunch("attention_combine", source, grid, _THREADS, 0, early=target.family == "sm90")


def _thread_columns(problem: AttentionProblem) -> int:
    """Of a row, side by side, that a thread puts together."""
    fits = problem.ev % 4 == 0 and problem.out_vec >= 4 and problem.dtype.itemsize <= 4
    return 4 if fits else 1


def _rows(problem: AttentionProblem) -> int:
    return problem.batch * problem.heads * problem.sq
