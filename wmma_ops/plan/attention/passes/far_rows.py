"""The kernel that finds what the weights of rows are multiplied by, beside a mask of numbers, before gradients by warpgroups
(kernels/wmma/attention/passes/far_rows.hpp)."""

from math import ceil

from wmma_ops.plan.plan import KernelLaunch
from wmma_ops.plan.problem import AttentionProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text

_THREADS = 128


def launch(problem: AttentionProblem) -> KernelLaunch:
    members = [
        *aliases({"Element": CPP[problem.dtype], "Mask": CPP[problem.mask]}),
        *constants("int", {"kThreads": _THREADS}),
    ]
    source = kernel_text("attention_far_rows.hip", members=members)
    rows = problem.batch * problem.heads * problem.sq
    return KernelLaunch("attention_far_rows", source, (ceil(rows / _THREADS), 1), _THREADS, 0)
