"""kernels/wmma/attention/warpgroup_gradients.hpp: sm_90a's warpgroups, each with 64 rows, for attention's gradients."""

from dataclasses import dataclass
from math import ceil

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import BARRIER_BYTES, up
from wmma_ops.ops.types import name as type_name
from wmma_ops.plan.attention.loops import backward
from wmma_ops.plan.plan import KernelLaunch, Plan, check_blocks
from wmma_ops.plan.problem import AttentionNumbers, AttentionProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text, waves_told

_LINES = 64  # of a warpgroup's rows, and of a box
_GROUPS = 2
THREADS = (_GROUPS + 1) * 128  # one asks for tiles
_WIDEST = 128  # columns whose sums registers hold
_MOST_STAGES = 3


@dataclass(frozen=True)
class WarpgroupGradientsConfig:
    """Both kernels, for the queries and for the keys and values. Sizes are in elements."""

    element: torch.dtype
    depth: int  # of Q and K, whole boxes
    value_depth: int  # of V and g_out
    keys: int  # of a tile that queries meet
    queries: int  # of a tile that keys meet
    stages: int

    def __str__(self) -> str:
        return (
            f"{type_name(self.element)}, {_GROUPS} warpgroups of {_LINES} rows; of queries that meet {self.keys} keys, of "
            f"keys that meet {self.queries} queries, {self.stages} stages"
        )

    def others(self, owns_keys: bool) -> int:
        return self.queries if owns_keys else self.keys


def shared_bytes(config: WarpgroupGradientsConfig, owns_keys: bool) -> int:
    line = (config.depth + config.value_depth) * config.element.itemsize
    others = config.others(owns_keys)
    statistics = _GROUPS * 2 * 2 * others * 4 if owns_keys else 0
    barriers = (2 * config.stages + 1) * BARRIER_BYTES
    return (_GROUPS * _LINES + config.stages * others) * line + statistics + barriers


def takes(problem: AttentionProblem, target: arch.Target) -> bool:
    """Whether the copy engine can fill the tiles, and a warpgroup's registers hold its sums."""
    orders = {problem.q_order, problem.k_order, problem.v_order, problem.g_order}
    vecs = {problem.q_vec, problem.k_vec, problem.v_vec, problem.g_vec}
    fits = max(problem.e, problem.ev) <= _WIDEST and min(problem.sq, problem.skv) >= _LINES
    plain = problem.dtype.itemsize == 2 and problem.mask is None
    return target.name == "sm_90a" and plain and fits and orders == {"e"} and vecs == {8}


def candidates(problem: AttentionProblem, target: arch.Target) -> list[WarpgroupGradientsConfig]:
    """The preferred first: registers have room for the weights of 128 keys beside one sum, and of 64 queries beside two."""
    if not takes(problem, target):
        return []
    depth, value_depth = up(problem.e, _LINES), up(problem.ev, _LINES)
    found = []
    for keys in (2 * _LINES, _LINES):
        for stages in range(_MOST_STAGES, 1, -1):
            config = WarpgroupGradientsConfig(problem.dtype, depth, value_depth, keys, _LINES, stages)
            if max(shared_bytes(config, owns_keys) for owns_keys in (False, True)) <= target.lds_bytes:
                found.append(config)
                break
    return found


def source(problem: AttentionProblem, config: WarpgroupGradientsConfig, target: arch.Target, owns_keys: bool) -> str:
    shared = shared_bytes(config, owns_keys)
    numbers = {
        "kOthers": config.others(owns_keys),
        "kColumns": problem.e,
        "kValueColumns": problem.ev,
        "kDepth": config.depth,
        "kValueDepth": config.value_depth,
        "kSlice": max(config.depth, config.value_depth),
        "kStages": config.stages,
        "kOutVec": problem.out_vec,
        **waves_told(target, 1, THREADS // target.wave, shared),
        "kThreads": THREADS,
        "kSharedBytes": shared,
    }
    members = [
        *aliases({"Element": CPP[problem.dtype]}),
        *constants("int", numbers),
        *constants("bool", {"kOwnsKeys": owns_keys, "kCausal": problem.causal}),
    ]
    return kernel_text("attention_backward.hip", members=members, defines={"WMMA_ATTENTION_WARPGROUPS": True})


def plan(problem: AttentionProblem, target: arch.Target) -> Plan | None:
    """None where waves by themselves are to do it."""
    found = candidates(problem, target)
    return plan_of(problem, found[0], target, "the first that fits") if found else None


def plan_of(problem: AttentionProblem, config: WarpgroupGradientsConfig, target: arch.Target, reason: str) -> Plan:
    """The launches of one configuration."""
    launches = [backward.delta_launch(problem, target)]
    for owns_keys in (False, True):
        length, heads = (problem.skv, problem.heads // problem.group) if owns_keys else (problem.sq, problem.heads)
        blocks = ceil(length / (_GROUPS * _LINES)) * heads * problem.batch
        check_blocks("attention takes", blocks, THREADS, target)
        kernel = source(problem, config, target, owns_keys)
        launches.append(
            KernelLaunch("attention_backward", kernel, (blocks, 1), THREADS, shared_bytes(config, owns_keys))
        )
    numbers = AttentionNumbers(1, 0, 0, 1, queries=_LINES, packed=1, lines_k=_LINES)
    return Plan(config, reason, tuple(launches), 0, numbers)
