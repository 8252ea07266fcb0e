"""Plans for machines without a compiler: the cheapest whose kernels were compiled ahead of time."""

import dataclasses
import itertools
from collections.abc import Iterator

from wmma_ops import jit
from wmma_ops.hardware import arch
from wmma_ops.plan import activation_gradient, kv_append
from wmma_ops.plan.attention import planner as attention
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.plan.gemm_gemm import planner as gemm_gemm
from wmma_ops.plan.plan import KERNEL_FILE, Plan
from wmma_ops.plan.problem import AttentionProblem, GemmGemmProblem, GemmProblem, KvAppendProblem

_OF_RESULTS = ("d_vec", "out_vec")
_REASON = "the cheapest whose kernels were compiled ahead of time: no compiler is here"


def plan(problem, target: arch.Target, wanted: Plan) -> Plan:
    """`wanted`, where its kernels are there or no plan's are: then their compilation says what is missing."""
    plans = itertools.chain((wanted,), _others(problem, target))
    return next((one for one in plans if _is_there(one, target)), wanted)


def _is_there(found: Plan, target: arch.Target) -> bool:
    return all(jit.ready(launch.source, target.name, name=KERNEL_FILE) for launch in found.launches)


def _others(problem, target: arch.Target) -> Iterator[Plan]:
    """What computes the same, the cheapest first; then by kernels that take operands, and results, of any alignment."""
    every = {one.name: 1 for one in dataclasses.fields(problem) if one.name.endswith("vec")}
    operands = {name: 1 for name in every if name not in _OF_RESULTS}
    for asked in (problem, dataclasses.replace(problem, **operands), dataclasses.replace(problem, **every)):
        if isinstance(problem, GemmProblem):
            for config in gemm.ranked(asked, target):
                yield gemm.plan_of(asked, config, target, _REASON)
        elif isinstance(problem, GemmGemmProblem):
            for config in gemm_gemm.ranked(asked, target):
                yield gemm_gemm.plan_of(asked, config, target, _REASON)
        elif isinstance(problem, AttentionProblem):
            for one in attention.every(asked, target, _REASON):
                yield dataclasses.replace(one, reason=_REASON)
        elif isinstance(problem, KvAppendProblem):
            yield kv_append.plan(asked, target)
        else:
            yield activation_gradient.plan(asked, target)
    if isinstance(problem, GemmProblem) and problem.gate:
        yield gemm.two(f"{_REASON}: two products")
    if isinstance(problem, GemmGemmProblem):
        yield gemm_gemm.two(f"{_REASON}: two products")
