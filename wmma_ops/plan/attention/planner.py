"""Plans attention, or its gradients."""

from collections.abc import Iterator

from wmma_ops.hardware import arch
from wmma_ops.ops.types import name as type_name
from wmma_ops.plan.attention import backward
from wmma_ops.plan.attention.loops import forward, warpgroup, warpgroup_gradients, warpgroup_owners
from wmma_ops.plan.attention.passes import block_states
from wmma_ops.plan.plan import Plan
from wmma_ops.plan.problem import AttentionNumbers, AttentionProblem


def plan(problem: AttentionProblem, target: arch.Target) -> Plan:
    if (with_blocks := block_states.found(problem, target)) is not None:
        return block_states.with_kernel(plan(with_blocks, target), with_blocks, target)
    if problem.backward:
        return (
            warpgroup_gradients.plan(problem, target)
            or warpgroup_owners.plan(problem, target)
            or backward.plan(problem, target)
        )
    if problem.is_scaled:
        return warpgroup.plan(problem, target) or widened(problem)
    return warpgroup.plan(problem, target) or forward.plan(problem, target)


def widened(problem: AttentionProblem) -> Plan:
    """Without launches, for the library to plan what it stands for: attention of wider numbers."""
    reason = f"no kernel here multiplies {type_name(problem.stored)}: as attention of {type_name(problem.dtype)}"
    return Plan("widened", reason, (), 0, AttentionNumbers())


def every(problem: AttentionProblem, target: arch.Target, reason: str) -> Iterator[Plan]:
    """All plans, the preferred first."""
    if (with_blocks := block_states.found(problem, target)) is not None:
        for one in every(with_blocks, target, reason):
            yield block_states.with_kernel(one, with_blocks, target)
        return
    if problem.backward:
        for config in warpgroup_gradients.candidates(problem, target):
            yield warpgroup_gradients.plan_of(problem, config, target, reason)
        if made := warpgroup_owners.plan(problem, target):
            yield made
        yield backward.plan(problem, target)
        return
    for config in warpgroup.candidates(problem, target):
        yield warpgroup.plan_of(problem, config, target, reason)
    if problem.is_scaled:
        return
    for config in forward.ranked(problem, target):
        for one in dict.fromkeys((forward.split(problem, config, target), config)):
            yield forward.plan_of(problem, one, target, reason)
