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
    return splits * _rows(problem) * (2 + problem.ev) * (8 if problem.dtype == torch.float64 else 4)


def launch(problem: AttentionProblem, target: arch.Target) -> KernelLaunch:
    types = {"Element": CPP[problem.dtype], "Mask": CPP[problem.mask], "Rules": rules_type(problem)}
    members = [
        *aliases(types),
        *constants("int", {"kThreads": _THREADS, **rest.CONSTANTS}),
        *constants("bool", {"kBackward": False}),
    ]
    source = kernel_text(
        "attention.hip", members=members, before=rules_header(problem), defines={"WMMA_ATTENTION_COMBINE": True}
    )
    grid = (ceil(_rows(problem) * problem.ev / _THREADS) + rest.blocks(problem), 1)
    return KernelLaunch("attention_combine", source, grid, _THREADS, 0, early=target.family == "sm90")


def _rows(problem: AttentionProblem) -> int:
    return problem.batch * problem.heads * problem.sq
