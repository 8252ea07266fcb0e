"""Plans two products in one kernel: whether, with which tiles, and the source text of that kernel.

The cheapest configuration is held against kernels of gemm.py, one after the other, with D0 written to memory and read
back. Where those are cheaper, or where no configuration fits, the plan has no launches.
"""

from collections.abc import Iterator

import torch

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import up
from wmma_ops.ops.types import name as type_name
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.plan.gemm.config import number_of
from wmma_ops.plan.gemm_gemm.config import GemmGemmConfig
from wmma_ops.plan.gemm_gemm.loops import LOOPS, loop_of
from wmma_ops.plan.plan import KernelLaunch, Plan, check_blocks
from wmma_ops.plan.problem import GemmGemmNumbers, GemmGemmProblem, GemmProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text, nested, occupancy_constants, order_of, registered

_TYPES = (torch.float16, torch.bfloat16, torch.int8)


def candidates(problem: GemmGemmProblem, target: arch.Target) -> Iterator[GemmGemmConfig]:
    """Every configuration that fits."""
    for loop in LOOPS.values():
        for config in loop.candidates(problem, target):
            held = loop.registers(problem, config, target)
            idle = config.tiles_m > 1 and config.waves_m * 16 >= problem.m
            fits = held <= loop.free_registers(config, target)
            if fits and not idle and loop.shared_bytes(problem, config, target) <= target.lds_bytes:
                yield config


def cost(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> float:
    """Modelled cycles."""
    return loop_of(config).cost(problem, config, target)


def cost_of_products(problem: GemmGemmProblem, target: arch.Target, enough: float) -> float:
    """One after the other; where what they take at least is `enough`, that."""
    ways = [problem.products()]
    if problem.gate and gemm.takes_gate(problem.gated_products()[0], target):
        ways.append(problem.gated_products())
    return min(_cost_of(way, target, enough) for way in ways)


def _cost_of(products: tuple[GemmProblem, ...], target: arch.Target, enough: float) -> float:
    found = [(one, gemm.bounded(one, target)) for one in products]
    least = sum(every[0][0] for _, every in found)
    return least if least >= enough else sum(gemm.cheapest(one, target, every)[1] for one, every in found)


def choose(problem: GemmGemmProblem, target: arch.Target) -> tuple[GemmGemmConfig | None, float]:
    """The cheapest configuration, and its cost."""
    return next(((config, price) for price, config in _priced(problem, target)), (None, float("inf")))


def ranked(problem: GemmGemmProblem, target: arch.Target) -> list[GemmGemmConfig]:
    """Every configuration, the cheapest by the model first."""
    return [config for _, config in _priced(problem, target)]


def _priced(problem: GemmGemmProblem, target: arch.Target) -> list[tuple[float, GemmGemmConfig]]:
    found = ((cost(problem, config, target), config) for config in candidates(problem, target))
    return sorted(found, key=lambda one: one[0])


# ----------------------------------------------------------------------------------------------------------- the source


def source(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target) -> str:
    """The text of the kernel: its configuration, its loop, and the file that all share."""
    loop = loop_of(config)
    first, last = problem.products()[-2:]
    last_types = {
        "Number": number_of(last),
        "C": CPP[problem.c],
        "D": CPP[problem.d],
        "Bias": CPP[problem.bias1],
        "RowScale": CPP[None],
        "ColScale": CPP[None],
        "Multiply": CPP[None],
    }
    last_numbers = {
        "kCVec": problem.c_vec,
        "kDVec": gemm.result_vec(last),
        "kMultiplyVec": 1,
        "kBatchDims": problem.batch_dims,
        "kActivation": 0,
        "kWavesK": 1,
        "kCluster": 1,
    }
    numbers = {
        "kAVec": problem.a_vec,
        "kB0Vec": problem.b0_vec,
        "kGateVec": problem.gate_vec,
        "kB1Vec": problem.b1_vec,
        "kBatchDims": problem.batch_dims,
        "kActivation": problem.activation,
        "kWavesM": config.waves_m,
        "kWavesN": config.waves_n,
        "kTilesM": config.tiles_m,
        "kBlockM": config.block_m,
        "kBlockH": config.block_h,
        "kBlockN": config.block_n,
        "kBlockK": config.block_k,
        "kPadN": up(problem.n, config.block_n),
        "kStages": config.stages,
        **occupancy_constants(target, config.occupancy, config.all_waves, loop.shared_bytes(problem, config, target)),
        "kThreads": config.all_waves * target.wave,
        "kSharedBytes": loop.shared_bytes(problem, config, target),
        **loop.numbers(config),
    }
    flags = {
        "kWide": problem.wide,
        "kGate": problem.gate,
        "kRaggedK": problem.k % config.block_k != 0,
        "kRaggedN": problem.n % config.block_n != 0,
        "kRaggedH": problem.h % config.block_h != 0,
        "kChunked": problem.h > config.block_h,
        "kResident": config.resident,
        "kMappedD": loop.maps_result(problem, config),
    }
    orders = {
        "kAOrder": order_of(problem.a_order == "k"),
        "kB0Order": order_of(problem.b0_order == "k"),
        "kGateOrder": order_of(problem.gate_order == "k"),
        "kB1Order": order_of(problem.b1_order == "h"),
    }
    members = [
        *aliases({"Element": CPP[problem.a], "Number": number_of(first), "Bias0": CPP[problem.bias0]}),
        *nested("Last", [*aliases(last_types), *constants("int", last_numbers)]),
        *constants("wmma::Order", orders),
        *constants("int", numbers),
        *constants("bool", flags),
    ]
    files = (f"wmma/gemm_gemm/{loop.name}.hpp", "gemm_gemm.hip")
    before = f"#define WMMA_GEMM_GEMM_KERNEL wmma::{loop.kernel}\n" + registered([problem.activation])
    return kernel_text(*files, members=members, before=before)


# ------------------------------------------------------------------------------------------------------------- the plan


def plan(problem: GemmGemmProblem, target: arch.Target) -> Plan:
    config, _, reason = decided(problem, target)
    return two(reason) if config is None else plan_of(problem, config, target, reason)


def decided(problem: GemmGemmProblem, target: arch.Target) -> tuple[GemmGemmConfig | None, float, str]:
    """The configuration of the one kernel, None where two products are taken; its cost; why."""
    if problem.a not in _TYPES:
        return None, float("inf"), f"D0 of {type_name(problem.a)} is not kept in registers: two products"
    config, price = choose(problem, target)
    if config is None:
        why = f"H of {problem.h} with N of {problem.n} does not fit a wave's registers: two products"
        return None, price, why
    other = cost_of_products(problem, target, price)
    costs = f"{price / 1000:.0f} thousand modelled cycles in one kernel, {other / 1000:.0f} at least in two"
    return (None, price, f"{costs}: two products") if other < price else (config, price, costs)


def two(reason: str) -> Plan:
    """Leaves the work to two products."""
    return Plan(None, reason, (), 0, ())


def plan_of(problem: GemmGemmProblem, config: GemmGemmConfig, target: arch.Target, reason: str) -> Plan:
    """The launch of one configuration."""
    loop, threads = loop_of(config), config.all_waves * target.wave
    blocks = loop.blocks_of(problem, config, target)
    check_blocks(f"{problem.m} rows take", blocks, threads, target)
    grid, shared = loop.grid(problem, config, target, blocks), loop.shared_bytes(problem, config, target)
    launch = KernelLaunch("gemm_gemm", source(problem, config, target), grid, threads, shared)
    return Plan(config, reason, (launch,), 0, GemmGemmNumbers(blocks, *loop.mapped_lines(problem, config)))
