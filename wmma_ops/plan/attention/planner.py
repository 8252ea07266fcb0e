"""Plans attention, or its gradients."""

from wmma_ops.hardware import arch
from wmma_ops.plan.attention.loops import backward, forward
from wmma_ops.plan.plan import Plan
from wmma_ops.plan.problem import AttentionProblem


def plan(problem: AttentionProblem, target: arch.Target) -> Plan:
    return (backward if problem.backward else forward).plan(problem, target)
