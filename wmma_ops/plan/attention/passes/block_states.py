"""The kernel that finds out which blocks of scores a mask function leaves, before those that then look at no others."""

import dataclasses
from math import ceil

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import up
from wmma_ops.ops import score_functions
from wmma_ops.plan.attention.rules import rules_header, rules_type
from wmma_ops.plan.plan import KernelLaunch, Plan
from wmma_ops.plan.problem import AttentionNumbers, AttentionProblem
from wmma_ops.plan.source import aliases, constants, kernel_text

_THREADS = 256
_ALIGNED = 256  # bytes
# Queries and keys of a block: tiles of the loops divide it. Small blocks leave out more; gradients own keys as well, and
# sm_90a's warpgroups have as many.
_QUERIES, _KEYS, _MORE_KEYS = 128, 64, 128
_LEAST_BLOCKS = 2  # along both
# A function is as much work as a product of a score: it is evaluated where so many heads or batches share what it shows.
_LEAST_SHARED = 8


def found(problem: AttentionProblem, target: arch.Target) -> AttentionProblem | None:
    """The problem with a block mask, where one is worth to be found."""
    if not problem.mask_mod or problem.block_q or problem.sequences:
        return None
    queries, keys = _QUERIES, _MORE_KEYS if problem.backward or target.family == "sm90" else _KEYS
    if problem.sq < _LEAST_BLOCKS * queries or problem.skv < _LEAST_BLOCKS * keys:
        return None
    of_batches, of_heads = _depends_on(problem)
    shared = (1 if of_batches else problem.batch) * (1 if of_heads else problem.heads)
    return dataclasses.replace(problem, block_q=queries, block_k=keys) if shared >= _LEAST_SHARED else None


def with_kernel(plan: Plan, problem: AttentionProblem, target: arch.Target) -> Plan:
    """A plan for a block mask with the kernel that finds it, in its workspace."""
    of_batches, of_heads = _depends_on(problem)
    rows, columns = ceil(problem.sq / problem.block_q), ceil(problem.skv / problem.block_k)
    blocks = rows * columns * (problem.batch if of_batches else 1) * (problem.heads if of_heads else 1)
    members = [
        *aliases({"Rules": rules_type(problem)}),
        *constants("int", {"kThreads": _THREADS}),
        *constants("bool", {"kCausal": problem.causal, "kOfBatches": of_batches, "kOfHeads": of_heads}),
    ]
    source = kernel_text("attention_block_states.hip", members=members, before=rules_header(problem))
    grid = (ceil(blocks * target.wave / _THREADS), 1)
    launch = KernelLaunch("attention_block_states", source, grid, _THREADS, 0)
    at = up(plan.workspace, _ALIGNED)
    numbers = AttentionNumbers(*plan.numbers)._replace(
        block_q=problem.block_q,
        block_k=problem.block_k,
        blocks_at=at,
        blocks_of_batches=int(of_batches),
        blocks_of_heads=int(of_heads),
    )
    return dataclasses.replace(
        plan,
        reason=f"{plan.reason}; blocks of {problem.block_q} queries × {problem.block_k} keys that the mask function shows",
        launches=(launch, *plan.launches),
        workspace=at + blocks,
        numbers=numbers,
    )


def _depends_on(problem: AttentionProblem) -> tuple[bool, bool]:
    """Whether the function shows batches, or heads, different keys."""
    names = score_functions.by_code(True, problem.mask_mod).names
    return "batch" in names, "head" in names
