"""The kernel before attention's gradients: delta of each row, and what sums in fixed point need
(kernels/wmma/attention/passes/delta.hpp)."""

from math import ceil

from wmma_ops.hardware import arch
from wmma_ops.plan.attention.rules import rules_header, rules_type
from wmma_ops.plan.plan import KernelLaunch
from wmma_ops.plan.problem import AttentionProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text

_THREADS = 256


def launch(problem: AttentionProblem, target: arch.Target, cleared: int = 0, fixed: bool = False) -> KernelLaunch:
    """`cleared`: so many words of the workspace it sets to 0 for each tile of queries. `fixed`: it finds what sums in
    fixed point need, too."""
    vec = problem.g_vec if problem.g_order == "e" and problem.ev % problem.g_vec == 0 else 1
    lanes = min(1 << (ceil(problem.ev / vec) - 1).bit_length(), target.wave)  # of a row
    numbers = {
        "kThreads": _THREADS,
        "kVec": vec,
        "kLanes": lanes,
        "kCleared": cleared,
        "kDepth": problem.e,
        "kValueDepth": problem.ev,
    }
    members = [
        *aliases({"Element": CPP[problem.dtype], "Rules": rules_type(problem)}),
        *constants("int", numbers),
        *constants("bool", {"kFixed": fixed}),
    ]
    source = kernel_text("attention_delta.hip", members=members, before=rules_header(problem))
    blocks = ceil(problem.batch * problem.heads * problem.sq * lanes / _THREADS)
    if fixed:
        blocks += peaks(problem, target) * target.wave // _THREADS
    return KernelLaunch("attention_delta", source, (blocks, 1), _THREADS, 0, early=target.family == "sm90")


def peaks(problem: AttentionProblem, target: arch.Target) -> int:
    """Of keys and of values of each head, each found by a wave in its share: there are as many as a wave has lanes."""
    return problem.batch * problem.heads // problem.group * target.wave * 2
