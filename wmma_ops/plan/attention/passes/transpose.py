"""The kernel that transposes values of 8 bits before they are multiplied (kernels/wmma/attention/passes/transpose.hpp)."""

from wmma_ops.hardware.geometry import up
from wmma_ops.plan.attention.rules import rules_header, rules_type
from wmma_ops.plan.plan import KernelLaunch
from wmma_ops.plan.problem import AttentionProblem
from wmma_ops.plan.source import aliases, constants, kernel_text

_THREADS = 128
_KEYS = 128  # of a block


def keys(problem: AttentionProblem) -> int:
    """Of a line, with zeros behind the last ones."""
    return up(problem.skv, _KEYS)


def workspace(problem: AttentionProblem) -> int:
    """Bytes: a line for each column of each key head."""
    return problem.batch * problem.heads // problem.group * problem.ev * keys(problem)


def launch(problem: AttentionProblem) -> KernelLaunch:
    members = [*aliases({"Rules": rules_type(problem)}), *constants("int", {"kThreads": _THREADS})]
    source = kernel_text("attention_transpose.hip", members=members, before=rules_header(problem))
    shared = _KEYS * problem.ev
    return KernelLaunch("attention_transpose", source, (workspace(problem) // shared, 1), _THREADS, shared)
