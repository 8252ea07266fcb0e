"""Plans a product: the cheapest of the kernels that it may take, its source text, and its launches."""

import dataclasses
import sys
from math import ceil, inf, prod
from operator import itemgetter
from typing import NamedTuple

from wmma_ops.hardware import arch
from wmma_ops.ops.errors import ConfigError
from wmma_ops.ops.types import bytes_of, elements_in
from wmma_ops.plan import add_parts, model
from wmma_ops.plan.gemm import invariant
from wmma_ops.plan.gemm.candidates import candidates, element_of, splits_of
from wmma_ops.plan.gemm.config import GemmConfig, number_of
from wmma_ops.plan.gemm.cost import bound, cost
from wmma_ops.plan.gemm.loop import Loop
from wmma_ops.plan.gemm.loops import loop_of
from wmma_ops.plan.plan import MOST_GRID_Y, KernelLaunch, Plan, check_blocks
from wmma_ops.plan.problem import GemmNumbers, GemmProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text, occupancy_constants, order_of, registered

_REDUCE, _ROW_SUMS = "gemm_reduce", "gemm_row_sums"
_REDUCE_THREADS = add_parts.THREADS
_SUM_BYTES = 4
_COPY = 14000  # cycles, of the launch of a copy and what the host takes for it
_COPIED = 0.5  # of what memory gives, by such a copy
_IN_PARTS = "float_parts_t"  # of kernels/wmma/tile/float_parts.hpp


def choose(problem: GemmProblem, target: arch.Target) -> tuple[GemmConfig, float]:
    """The cheapest configuration, and its cost."""
    return cheapest(problem, target, bounded(problem, target))


Bounded = list[tuple[float, int, GemmConfig]]


def bounded(problem: GemmProblem, target: arch.Target) -> Bounded:
    """Every configuration with what it takes at least and its place among them, the one that may take least first."""
    every = (split for config in candidates(problem, target) for split in splits_of(problem, config, target))
    found = [(bound(problem, config, target), order, config) for order, config in enumerate(every)]
    if not found:
        raise ConfigError(f"no configuration of {target.name} fits {problem}")
    return sorted(found, key=itemgetter(0, 1))


def cheapest(problem: GemmProblem, target: arch.Target, every: Bounded) -> tuple[GemmConfig, float]:
    # What would spill is taken only where nothing else is left; of equals, the first.
    best: tuple[int, float, int] = (sys.maxsize, inf, 0)
    chosen = every[0][2]
    for least, order, config in every:
        if best[0] == 0 and least > best[1]:
            break
        lacking = loop_of(config).lacking(problem, config, target)
        found = (lacking, cost(problem, config, target), order)
        if found < best:
            best, chosen = found, config
    return chosen, best[1]


def ranked(problem: GemmProblem, target: arch.Target) -> list[GemmConfig]:
    """Every configuration, the cheapest by the model first."""
    if problem.invariant:
        return invariant.ranked(problem, target)
    found = []
    for config in candidates(problem, target):
        for split in splits_of(problem, config, target):
            found.append((cost(problem, split, target), len(found), split))
    return [config for _, _, config in sorted(found)]


# ----------------------------------------------------------------------------------------------------------- the source


def result_vec(problem: GemmProblem, config: GemmConfig | None = None) -> int:
    """Columns that a lane finishes together."""
    most = loop_of(config).most_columns if config else Loop.most_columns
    return min(problem.d_vec, most, elements_in(problem.d, 16))


def source(problem: GemmProblem, config: GemmConfig, target: arch.Target, *, then: str = "") -> str:
    """The text of the kernel, or of one that comes after it: its configuration, its loop, and the file that all share."""
    loop = loop_of(config)
    operands = {
        "A": CPP[problem.a],
        "B": CPP[problem.b],
        "Element": f"wmma::{_IN_PARTS}" if config.parts > 1 else CPP[config.element],
        "Number": number_of(problem),
        "C": CPP[problem.c],
        "D": CPP[problem.d],
        "Bias": CPP[problem.bias],
        "RowScale": CPP[problem.row_scale],
        "ColScale": CPP[problem.col_scale],
        "AScale": CPP[problem.a_scale],
        "Multiply": CPP[problem.multiply],
        **({"GateBias": CPP[problem.gate_bias]} if problem.gate else {}),
        **({"RowSums": CPP[problem.row_sums]} if loop.sums_rows(problem) else {}),
    }
    numbers = {
        "kAVec": problem.a_vec,
        "kBVec": problem.b_vec,
        "kCVec": problem.c_vec,
        "kDVec": result_vec(problem, config),
        "kMultiplyVec": problem.multiply_vec,
        "kBatchDims": problem.batch_dims,
        "kSide": config.side,
        "kBlockM": config.block_m,
        "kBlockN": config.block_n,
        "kBlockK": config.block_k,
        "kWavesM": config.waves_m,
        "kWavesN": config.waves_n,
        "kWavesK": config.waves_k,
        "kStages": config.stages,
        "kShare": config.order.share,
        "kShareA": config.order.share_a,
        **occupancy_constants(target, config.occupancy, config.all_waves, loop.shared_bytes(problem, config, target)),
        "kAActivation": problem.a_activation,
        "kActivation": problem.activation,
        "kThreads": config.all_waves * target.wave,
        "kReduceThreads": _REDUCE_THREADS,
        "kPartsInFlight": model.parts_in_flight(target),
        "kSharedBytes": loop.shared_bytes(problem, config, target),
    }
    flags = {"kWide": problem.wide, "kLanes": config.lanes, "kMappedD": loop.maps_result(problem, config)}
    members = [
        *aliases({**operands, "Loop": f"wmma::{loop.tag}"}),
        *constants(
            "wmma::Order", {"kAOrder": order_of(problem.a_order == "k"), "kBOrder": order_of(problem.b_order == "k")}
        ),
        *_second_pair(problem),
        *constants("int", numbers),
        *aliases({"Tiles": config.order.device(problem.batch_dims, "kBlockN / 2" if config.gated else "kBlockN")}),
        *constants("int", {"kCluster": "Tiles::kCluster"}),
        *constants("bool", flags | loop.flags(config)),
        *constants(
            "bool", {name: True for name, there in (("kAux", problem.aux), ("kSlopes", problem.slopes)) if there}
        ),
    ]
    defines = {
        "WMMA_GEMM_REDUCE": then == _REDUCE,
        "WMMA_GEMM_ROW_SUMS": then == _ROW_SUMS,
        "WMMA_GEMM_CLUSTER": config.order.cluster_blocks > 1,
    }
    told = [loop.tag] + ([_IN_PARTS] if config.parts > 1 else [])
    before = "#include <wmma/tile/tile_order.hpp>\n"
    before += f"namespace wmma {{ {' '.join(f'struct {name};' for name in told)} }}\n"
    before += registered((problem.a_activation, problem.activation)) + loop.source_before(config)
    return kernel_text(f"wmma/gemm/{loop.name}.hpp", "gemm.hip", members=members, before=before, defines=defines)


def _second_pair(problem: GemmProblem) -> list[str]:
    if not problem.k2:
        return []
    return [
        *constants(
            "wmma::Order",
            {"kA2Order": order_of(problem.a2_order == "k"), "kB2Order": order_of(problem.b2_order == "k")},
        ),
        *constants("int", {"kA2Vec": problem.a2_vec, "kB2Vec": problem.b2_vec}),
    ]


# ------------------------------------------------------------------------------------------------------------- the plan


def plan(problem: GemmProblem, target: arch.Target) -> Plan:
    if problem.invariant:
        return _alone(problem, target)
    if problem.gate and (reason := _lacks_gate(problem, target)):
        return two(reason)
    config, price = choose(problem, target)
    if problem.gate and (reason := _costs_more(price, problem, target)):
        return two(reason)
    copied = with_copies(problem, target)
    mapped = (
        [] if copied is None else [one for one in bounded(copied.problem, target) if _is_mapped(copied.problem, one[2])]
    )
    if mapped:
        other, cheaper = cheapest(copied.problem, target, mapped)
        if cheaper + copied.price < price:
            reason = _reason(copied.problem, other, target, cheaper)
            reason += f"; of {copied.names}, whose rows are not aligned, a copy is made first"
            found = plan_of(copied.problem, other, target, reason)
            return dataclasses.replace(found, numbers=found.numbers._replace(aligned=copied.which))
    return plan_of(problem, config, target, _reason(problem, config, target, price))


def _alone(problem: GemmProblem, target: arch.Target) -> Plan:
    """Of rows that do not know how many they are."""
    config = invariant.ranked(problem, target)[0]
    price, usual = cost(problem, config, target), choose(dataclasses.replace(problem, invariant=False), target)[1]
    which = f"batch-invariant, the cheapest whose sums are in the order of this weight's ({problem.k} by {problem.n})"
    reason = _reason(problem, config, target, price, which)
    return plan_of(problem, config, target, f"{reason}; {price / max(usual, 1):.2f} of what it takes otherwise")


def two(reason: str) -> Plan:
    """Leaves a gated product to two."""
    return Plan(None, reason, (), 0, GemmNumbers(*[0] * 9))


def takes_gate(problem: GemmProblem, target: arch.Target) -> bool:
    """Whether there is a kernel of a gated product."""
    return any(True for _ in candidates(problem, target))


def _lacks_gate(problem: GemmProblem, target: arch.Target) -> str:
    """Why there is none, if so."""
    if problem.gate_order != problem.b_order:
        return "the gate lies otherwise than B: two products"
    if not takes_gate(problem, target):
        return f"no loop of {target.name} has both matrices at once, or is as fast: two products"
    return ""


def _costs_more(price: float, problem: GemmProblem, target: arch.Target) -> str:
    """Than two products, if so."""
    other = _price_of_two(problem, target)
    if price <= other:
        return ""
    return f"{price / 1000:.0f} thousand modelled cycles in one kernel, {other / 1000:.0f} in two"


def _price_of_two(problem: GemmProblem, target: arch.Target) -> float:
    return sum(choose(one, target)[1] for one in problem.products)


def price(problem: GemmProblem, target: arch.Target) -> float:
    """Modelled cycles, in as many kernels as are planned."""
    if not problem.gate:
        return choose(problem, target)[1]
    two = _price_of_two(problem, target)
    return min(two, choose(problem, target)[1]) if takes_gate(problem, target) else two


def _is_mapped(problem: GemmProblem, config: GemmConfig) -> bool:
    """Whether a copy engine brings its tiles, which is told where rows end."""
    return loop_of(config).mapped_lines(problem, config)[0] != 0


class Copied(NamedTuple):
    """A product of copies of operands whose rows start aligned, and end anywhere: for kernels that have them described."""

    problem: GemmProblem
    which: int  # as GemmNumbers has it
    names: str
    price: float  # of the copies, in cycles


def with_copies(problem: GemmProblem, target: arch.Target) -> Copied | None:
    """For kernels whose tiles a copy engine brings, which takes aligned rows alone."""
    if target.family != "sm90" or problem.batch_dims or problem.k2 or problem.gate:
        return None
    whole = elements_in(problem.a, 16)
    sides = (("A", "a_vec", problem.m), ("B", "b_vec", problem.n))
    apart = [i for i, (_, vec, _) in enumerate(sides) if getattr(problem, vec) < whole]
    if not apart:
        return None
    moved = sum(2 * bytes_of(problem.a, sides[i][2] * problem.k) for i in apart)
    price = len(apart) * _COPY + moved / (_COPIED * model.CARDS[target.name].memory)
    aligned = dataclasses.replace(problem, **{sides[i][1]: whole for i in apart})
    return Copied(aligned, sum(1 << i for i in apart), " and ".join(sides[i][0] for i in apart), price)


def plan_of(problem: GemmProblem, config: GemmConfig, target: arch.Target, reason: str) -> Plan:
    """The launches of one configuration."""
    loop = loop_of(config)
    tiles_m, tiles_n = config.tiles(problem)
    tiles = tiles_m * tiles_n
    order = config.order
    in_parts = config.in_parts(problem, target)
    blocks = order.blocks(tiles, in_parts)
    threads = config.all_waves * target.wave
    check_blocks(f"{problem.m}x{problem.n} takes", blocks, threads, target)
    if order.along_x:
        check_blocks(f"{problem.batch} times {problem.m}x{problem.n} takes", blocks * problem.batch, threads, target)
    grid = order.grid(blocks, problem.batch, model.CARDS[target.name].units)
    shared = loop.shared_bytes(problem, config, target)
    early = loop.starts_early(config, target, threads, shared)
    launches = [KernelLaunch("gemm", source(problem, config, target), grid, threads, shared, early)]
    k_split = max(problem.k, 1)
    workspace = 0
    if not order.has_whole_tiles:
        k_split = ceil(ceil(config.length(problem) / order.parts) / config.block_k) * config.block_k
    splits, split_stride = ceil(config.length(problem) / k_split) if in_parts else 1, 0
    if splits != order.splits * order.last:
        fewer = {"splits": splits} if order.splits > 1 else {"last": splits}
        return plan_of(problem, config.ordered(**fewer), target, reason)
    if in_parts:
        area = config.block_m * config.block_n
        split_stride = problem.batch * in_parts * area
        workspace = splits * split_stride * config.sum_bytes
        blocks = ceil(in_parts * area // result_vec(problem, config) / _REDUCE_THREADS)
        grid = (blocks, min(problem.batch, MOST_GRID_Y))
        reduce = source(problem, config, target, then=_REDUCE)
        launches.append(KernelLaunch(_REDUCE, reduce, grid, _REDUCE_THREADS, 0, early=target.family == "sm90"))
    lines = loop.mapped_lines(problem, config)
    numbers = GemmNumbers(splits, k_split, tiles_m, tiles_n, tiles - in_parts, split_stride, *lines)
    if loop.sums_rows(problem):
        numbers = numbers._replace(sum_slabs=splits * order.cluster * tiles_n, sums_at=workspace)
        workspace += numbers.sum_slabs * problem.m * _SUM_BYTES
        text = source(problem, config, target, then=_ROW_SUMS)
        launches.append(add_parts.launch(_ROW_SUMS, text, problem.m, _SUM_BYTES, early=True))
    return Plan(config, reason, tuple(launches), workspace, numbers)


def _reason(
    problem: GemmProblem,
    config: GemmConfig,
    target: arch.Target,
    price: float,
    which: str = "the cheapest of the modelled configurations",
) -> str:
    tiles = prod(config.tiles(problem)) * problem.batch
    units = model.CARDS[target.name].units
    _, _, other = element_of(problem, target)
    if config.parts > 1:
        other = "torch's float32 matmul precision is high: three products of bfloat16 parts, float32 sums"
    text = f"{which}, {price / 1000:.0f} thousand cycles: {tiles} tiles on {units} units"
    return f"{text}; {other}" if other else text
