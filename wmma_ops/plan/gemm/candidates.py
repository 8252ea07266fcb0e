"""The configurations that a product may take on a target, by whichever loop."""

from collections.abc import Iterator
from math import ceil, prod

import torch

from wmma_ops.hardware import arch
from wmma_ops.ops.types import FP8
from wmma_ops.ops.types import name as type_name
from wmma_ops.plan import model
from wmma_ops.plan.gemm.config import GemmConfig
from wmma_ops.plan.gemm.loops import LOOPS, loop_of
from wmma_ops.plan.problem import GemmProblem

_HIGH, _MEDIUM = 1, 2  # of GemmProblem.precision
_FEW_ROWS = 8
_SPLITS = (2, 3, 4, 6, 8, 12, 16, 24, 32)


def element_of(problem: GemmProblem, target: arch.Target) -> tuple[torch.dtype, bool, str]:
    """The type that is multiplied, whether by plain FMA, and why it is not the operands' own."""
    a, b = problem.a, problem.b
    name = type_name(a)
    native = any((row.a, row.b, row.blocks) == (name, name, 1) for row in target.instructions)
    if a in FP8:
        if native and (a == b or LOOPS["warpgroup"].takes(problem, target, a, False)):
            return a, False, ""
        return torch.float16, False, f"{target.name} has no {name} product of this pair: f16 holds every value exactly"
    if a == torch.float32 and problem.precision == _MEDIUM:
        return torch.bfloat16, False, "torch's float32 matmul precision is medium: bfloat16 products, float32 sums"
    if native:
        return a, False, ""
    return a, True, f"{target.name} has no {name} matrix instruction"


def takes_parts(problem: GemmProblem, target: arch.Target) -> bool:
    """Whether three products of bfloat16 are enough, and do not stand beside a matrix instruction of float32."""
    _, lanes, _ = element_of(problem, target)
    return lanes and problem.a == torch.float32 and problem.precision == _HIGH


def candidates(problem: GemmProblem, target: arch.Target) -> Iterator[GemmConfig]:
    """Every configuration that fits, but for the split of K."""
    element, lanes, _ = element_of(problem, target)
    yield from _of(problem, target, element, lanes)
    if takes_parts(problem, target):
        for one in _of(problem, target, torch.bfloat16, False):
            config = one.but(parts=2)
            if loop_of(config).shared_bytes(problem, config, target) <= target.lds_bytes:
                yield config


def _of(problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool) -> Iterator[GemmConfig]:
    taking = [loop for loop in LOOPS.values() if loop.takes(problem, target, element, lanes)]
    if problem.gate:
        # Sums of integers are of another type than what the epilogue computes in. Two matrices that stream to registers, one
        # after the other, take 46 µs of an H200 in a graph, both by way of shared memory 60 (1 row, 14336x4096).
        streams = problem.m <= _FEW_ROWS and any(loop.name == "straight" for loop in taking)
        if streams or not problem.a.is_floating_point:
            return
        taking = [loop for loop in taking if loop.pairs and problem.gate_order == problem.b_order]
    beside = frozenset(loop.name for loop in taking)
    for loop in taking:
        yield from loop.candidates(problem, target, element, lanes, beside)


def splits_of(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> Iterator[GemmConfig]:
    """The configuration with K whole, and split where there are few tiles and enough of K; and otherwise assigned."""
    loop = loop_of(config)
    yield config
    if problem.gate:
        yield from loop.variants(problem, config, target)
        return
    k_tiles = ceil(config.length(problem) / config.block_k)
    tiles = prod(config.tiles(problem)) * problem.batch
    units = model.CARDS[target.name].units
    may_split = loop.splits(config)
    at_once = model.wholes(target)
    if may_split and problem.batch == 1 and tiles > at_once and (rest := config.last_round(problem, target)):
        last = min(units // rest, k_tiles // 4, 8)
        if last > 1:
            yield config.ordered(last=last)
    yield from loop.variants(problem, config, target)
    if not may_split:
        return
    if target.family == "sm90":
        for cluster in (2, 4, 8):
            if cluster * 2 <= k_tiles and tiles * cluster <= 2 * units:
                yield config.ordered(cluster=cluster)
    for splits in _SPLITS:
        if splits * 4 > k_tiles or tiles * splits > 2 * units:
            return
        yield config.ordered(splits=splits)
