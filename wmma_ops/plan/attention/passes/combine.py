"""The second kernel of attention whose keys are split: it puts the parts together that the blocks left in memory. Of packed
sequences it also writes what none of them has."""

from math import ceil

import torch

from wmma_ops.hardware import arch
from wmma_ops.plan.attention.passes import fill
from wmma_ops.plan.attention.rules import rules_header, rules_type
from wmma_ops.plan.plan import KernelLaunch
from wmma_ops.plan.problem import AttentionProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text

_THREADS = 256
_PART_HEAD = 8  # numbers before a part of a row: kPartHead of kernels/wmma/attention/rows/dense.hpp


def workspace(problem: AttentionProblem, splits: int, rows: int | None = None) -> int:
    """Bytes: of each split and row, all or so many, its largest score, its sum of weights, and its results."""
    rows = _rows(problem) if rows is None else rows
    return splits * rows * (_PART_HEAD + problem.ev) * (8 if problem.dtype == torch.float64 else 4)


def launch(problem: AttentionProblem, target: arch.Target, tiles: int = 0, tile_rows: int = 0) -> KernelLaunch:
    """`tiles`: where only the keys of the last ones are split, how many these are, of so many rows."""
    rows = tiles * tile_rows if tiles else _rows(problem)
    columns = _thread_columns(problem)
    sizes = {"kThreadColumns": columns, "kPartHead": _PART_HEAD} | ({"kTileRows": tile_rows} if tiles else {})
    types = {"Element": CPP[problem.dtype], "Mask": CPP[problem.mask], "Rules": rules_type(problem)}
    members = [
        *aliases(types),
        *constants("int", {"kThreads": _THREADS, **sizes}),
        *constants("bool", {"kBackward": False} | ({"kStandsAlone": True} if problem.invariant else {})),
    ]
    entry = "attention_combine_last.hip" if tiles else "attention_combine.hip"
    source = kernel_text(entry, members=members, before=rules_header(problem))
    grid = (ceil(rows * (problem.ev // columns) / _THREADS) + fill.blocks(problem), 1)
    return KernelLaunch("attention_combine", source, grid, _THREADS, 0, early=target.family == "sm90")


def _thread_columns(problem: AttentionProblem) -> int:
    """Of a row, side by side, that a thread puts together."""
    fits = problem.ev % 4 == 0 and problem.out_vec >= 4 and problem.dtype.itemsize <= 4
    return 4 if fits else 1


def _rows(problem: AttentionProblem) -> int:
    return problem.batch * problem.heads * problem.sq
