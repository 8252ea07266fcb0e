"""Plans a product: the cheapest of the kernels that it may take, its source text, and its launches."""

import dataclasses
from math import ceil, inf, prod

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import mapped_lines
from wmma_ops.plan import model
from wmma_ops.plan.errors import ConfigError
from wmma_ops.plan.gemm.config import (
    GemmConfig,
    candidates,
    element_of,
    last_round,
    maps_result,
    number_of,
    shared_bytes,
    splits_of,
)
from wmma_ops.plan.gemm.cost import cost, lacking
from wmma_ops.plan.plan import MOST_GRID_Y, KernelLaunch, Plan, check_blocks
from wmma_ops.plan.problem import GemmProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text, order_of, registered

_REDUCE_THREADS = 256


def choose(problem: GemmProblem, target: arch.Target) -> tuple[GemmConfig, float]:
    """The cheapest configuration, and its cost."""
    best, least = None, (inf, inf)
    for config in candidates(problem, target):
        for split in splits_of(problem, config, target):
            cycles = cost(problem, split, target, inf if least[0] else least[1])
            # What would spill is taken only where nothing else is left.
            if cycles < inf and (price := (lacking(problem, split, target), cycles)) < least:
                best, least = split, price
    if best is None:
        raise ConfigError(f"no configuration of {target.name} fits {problem}")
    return best, least[1]


# ----------------------------------------------------------------------------------------------------------- the source


def result_vec(problem: GemmProblem, config: GemmConfig | None = None) -> int:
    """Columns that a lane finishes together."""
    # Few rows: so that a line is finished by all lanes of a wave.
    return min(problem.d_vec, 2 if config and config.direct else 8, 16 // problem.d.itemsize)


def source(problem: GemmProblem, config: GemmConfig, target: arch.Target, *, reduces: bool = False) -> str:
    """The text of the kernel: its configuration, and the file that all share."""

    operands = {
        "A": CPP[problem.a],
        "B": CPP[problem.b],
        "Element": CPP[config.element],
        "Number": number_of(problem),
        "C": CPP[problem.c],
        "D": CPP[problem.d],
        "Bias": CPP[problem.bias],
        "RowScale": CPP[problem.row_scale],
        "ColScale": CPP[problem.col_scale],
        "AScale": CPP[problem.a_scale],
        "Multiply": CPP[problem.multiply],
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
        "kCluster": config.cluster,
        "kShare": config.share,
        "kShareA": config.share_a,
        "kGroup": config.group,
        "kDies": config.dies,
        "kOccupancy": config.occupancy,
        "kAActivation": problem.a_activation,
        "kActivation": problem.activation,
        "kThreads": config.all_waves * target.wave,
        "kReduceThreads": _REDUCE_THREADS,
        "kSharedBytes": shared_bytes(problem, config, target),
    }
    loop = "kDirect" if config.direct else "kWgmma" if config.wgmma else "kAsync" if config.stages else "kStaged"
    split = "kAll" if config.splits > 1 else "kLast" if config.last > 1 else "kNone"
    members = [
        *aliases(operands),
        *constants(
            "wmma::Order", {"kAOrder": order_of(problem.a_order == "k"), "kBOrder": order_of(problem.b_order == "k")}
        ),
        *_second_pair(problem),
        *constants("wmma::Loop", {"kLoop": f"wmma::Loop::{loop}"}),
        *constants("wmma::Split", {"kSplit": f"wmma::Split::{split}"}),
        *constants("int", numbers),
        *constants(
            "bool",
            {
                "kWide": problem.wide,
                "kLanes": config.lanes,
                "kMappedD": maps_result(problem, config),
                "kWalks": config.walks,
            },
        ),
    ]
    defines = {"WMMA_GEMM_REDUCE": reduces, "WMMA_GEMM_CLUSTER": config.cluster * config.share * config.share_a > 1}
    before = registered((problem.a_activation, problem.activation)) + _own_width(config)
    return kernel_text("gemm.hip", members, before=before, defines=defines)


def _own_width(config: GemmConfig) -> str:
    """The instructions of a width that few kernels have (arch/wgmma.hpp): all of them would be slow to read for each."""
    if not config.has_own_width:
        return ""
    sums = config.block_n // 2
    names = ", ".join(f"%{i}" for i in range(sums))
    operands = ", ".join(f"c(d[(i) + {i}])" for i in range(sums))
    numbers = ", ".join(str(sums + i) for i in range(7))
    return (
        f'#define WMMA_NAMES{sums} "{names}"\n'
        f"#define WMMA_D{sums}(c, d, i) {operands}\n"
        f"#define WMMA_OTHER_WGMMAS WMMA_WGMMAS({config.block_n}, {numbers})\n"
    )


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


# What wmma_ops.tune tries at the moment, by tuning.key_of.
FORCED: dict[str, GemmConfig] = {}


def plan(problem: GemmProblem, target: arch.Target) -> Plan:
    from wmma_ops.runtime import tuning

    if config := FORCED.get(tuning.key_of(problem)):
        return plan_of(problem, config, target, "being tuned")
    if config := tuning.found(problem):
        return plan_of(problem, config, target, "the fastest of those that wmma_ops.tune timed on this GPU")
    config, price = choose(problem, target)
    return plan_of(problem, config, target, _reason(problem, config, target, price))


def plan_of(problem: GemmProblem, config: GemmConfig, target: arch.Target, reason: str) -> Plan:
    """The launches of one configuration."""
    tiles_m, tiles_n = config.tiles(problem)
    tiles = tiles_m * tiles_n
    parts = config.splits * config.cluster * config.last
    in_parts = tiles if config.splits > 1 else last_round(problem, config, target) if config.last > 1 else 0
    blocks = tiles * config.cluster + in_parts * (config.splits * config.last - 1)
    threads = config.all_waves * target.wave
    check_blocks(f"{problem.m}x{problem.n} takes", blocks, threads, target)
    across = min(problem.batch, MOST_GRID_Y)
    grid = (blocks, across)
    if config.wgmma:  # the batch's matrices one after the other
        check_blocks(f"{problem.batch} times {problem.m}x{problem.n} takes", blocks * problem.batch, threads, target)
        together = config.share * config.share_a
        at_once = model.CARDS[target.name].units // together * together
        grid = (min(blocks * problem.batch, at_once) if config.walks else blocks * problem.batch, 1)
    shared = shared_bytes(problem, config, target)
    # Where several blocks fit a unit, those that come early crowd on the units that happen to have room.
    early = target.family == "sm90" and (threads >= 512 or shared > target.lds_bytes // 2)
    launches = [KernelLaunch("gemm", source(problem, config, target), grid, threads, shared, early)]
    k_split = max(problem.k, 1)
    workspace = 0
    if parts > 1:
        k_split = ceil(ceil(config.length(problem) / parts) / config.block_k) * config.block_k
    splits, split_stride = ceil(config.length(problem) / k_split) if in_parts else 1, 0
    if splits != config.splits * config.last:
        fewer = {"splits": splits} if config.splits > 1 else {"last": splits}
        return plan_of(problem, dataclasses.replace(config, **fewer), target, reason)
    if in_parts:
        area = config.block_m * config.block_n
        split_stride = problem.batch * in_parts * area
        workspace = splits * split_stride * config.sum_bytes
        grid = (ceil(in_parts * area // result_vec(problem, config) / _REDUCE_THREADS), across)
        reduce = source(problem, config, target, reduces=True)
        launches.append(KernelLaunch("gemm_reduce", reduce, grid, _REDUCE_THREADS, 0, early=target.family == "sm90"))
    numbers = (splits, k_split, tiles_m, tiles_n, tiles - in_parts, split_stride, *_mapped_lines(problem, config))
    return Plan(config, reason, tuple(launches), workspace, numbers)


def _mapped_lines(problem: GemmProblem, config: GemmConfig) -> tuple[int, int, int]:
    """Of A and of B, which blocks may share, and how many of D a wave has taken away; 0 where no copy engine does it."""
    if not config.wgmma:
        return 0, 0, 0
    a = mapped_lines(config.block_m, config.block_k, problem.a_order == "k") // config.share_a
    b = mapped_lines(config.block_n, config.block_k, problem.b_order == "k") // config.share
    return a, b, 16 if maps_result(problem, config) else 0


def _reason(problem: GemmProblem, config: GemmConfig, target: arch.Target, price: float) -> str:
    tiles = prod(config.tiles(problem)) * problem.batch
    units = model.CARDS[target.name].units
    _, _, other = element_of(problem, target)
    text = f"the cheapest of the modelled configurations, {price / 1000:.0f} thousand cycles: {tiles} tiles on {units} units"
    return f"{text}; {other}" if other else text
