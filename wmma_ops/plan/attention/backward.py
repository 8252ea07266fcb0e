"""Plans the gradients of attention whose blocks own rows: kernels for delta, unless the next one sums it up, for the
queries, and for the keys and values. On CDNA the last one stores the queries' partial sums as well, where it can, in whole
numbers or, if sums may be in any order, floats, and a small one makes rows of them."""

import dataclasses
from dataclasses import dataclass
from math import ceil

import torch

from wmma_ops.hardware import arch
from wmma_ops.ops.types import name as type_name
from wmma_ops.plan.attention import owners
from wmma_ops.plan.attention.loops import gradients, interleaved_gradients, lockstep_gradients
from wmma_ops.plan.attention.loops.forward import is_lanes
from wmma_ops.plan.attention.owners import OwnerConfig
from wmma_ops.plan.attention.passes import delta, dq_partials, fill
from wmma_ops.plan.plan import Plan
from wmma_ops.plan.problem import AttentionNumbers, AttentionProblem


@dataclass(frozen=True)
class BackwardConfig:
    element: torch.dtype
    lanes: bool
    kernels: tuple[OwnerConfig, ...]

    def __str__(self) -> str:
        return "; ".join(("FMA" if self.lanes else type_name(self.element), *map(str, self.kernels)))


def choose(problem: AttentionProblem, target: arch.Target, owns_keys: bool) -> OwnerConfig:
    """By the loops that take least time, where one supports the problem."""
    for loop in (interleaved_gradients, lockstep_gradients):
        if config := loop.chosen(problem, target, owns_keys):
            return config
    return gradients.chosen(problem, target, owns_keys)


def plan(problem: AttentionProblem, target: arch.Target) -> Plan:
    lanes = is_lanes(target, problem.dtype)
    if (keys := interleaved_gradients.storing_dq(problem, target)) is not None:
        tiles = ceil(problem.sq / keys.others)
        words = keys.others * keys.depth
        launches = (
            delta.launch(problem, target, cleared=words, fixed=keys.fixed),
            owners.launch(problem, keys, target),
            dq_partials.launch(problem, keys, tiles, target),
        )
        workspace = problem.batch * problem.heads * tiles * words * 4
        if keys.fixed:  # sizes and marks of queries, and of heads of keys the largest ones and a flag
            heads = problem.batch * problem.heads
            workspace += (2 * heads * problem.sq + delta.peaks(problem, target) + heads // problem.group) * 4
        config = BackwardConfig(problem.dtype, lanes, (keys,))
        reason = "sums in fixed point are the same in any order" if keys.fixed else "sums may be in any order"
        return Plan(config, reason, launches, workspace, AttentionNumbers(1, 0, tiles, 1))
    both = [choose(problem, target, owns_keys) for owns_keys in (False, True)]
    # On gfx11 wide heads take all registers: by clang 19 the sum spills.
    has_room = target.family != "rdna3" or max(problem.e, problem.ev) <= 64
    if has_room and not any(isinstance(config, gradients.GradientsConfig) for config in both):
        both[0] = dataclasses.replace(both[0], sums_delta=True)
    launches = [] if both[0].sums_delta else [delta.launch(problem, target)]
    launches += (owners.launch(problem, config, target) for config in both)
    launches += fill.launches(problem)
    config = BackwardConfig(problem.dtype, lanes, tuple(both))
    return Plan(config, "the first that fits", tuple(launches), 0, ())
