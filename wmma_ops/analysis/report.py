"""`python -m wmma_ops report`: the static figures of the kernels that the planner picks, and the limits that they break.

Nothing runs: each kernel is planned, compiled, and its machine code read (figures_amd.py says by what model).
"""

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from wmma_ops import jit
from wmma_ops.analysis.figures import figures
from wmma_ops.analysis.figures_record import Figures, limits
from wmma_ops.analysis.report_cases import (
    ATTENTION_SHARE,
    FLOAT16,
    LIMITS,
    OTHER_LIMITS,
    SPILLS,
    AnyCase,
    AttentionCase,
    Case,
    TwoProducts,
    cases,
)
from wmma_ops.hardware import arch
from wmma_ops.ops.errors import ConfigError
from wmma_ops.plan.attention import planner as attention
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.plan.gemm.config import GemmConfig
from wmma_ops.plan.gemm_gemm import planner as gemm_gemm
from wmma_ops.plan.plan import Plan


class Row(NamedTuple):
    label: str
    target: "arch.Target | str"
    figures: Figures
    broken: Sequence[str]  # limits
    config: str = ""


def measure(case: AnyCase, target: arch.Target) -> list[Row]:
    """A row for each kernel of the product, of the two, or of attention."""
    planner, judged = _KINDS[type(case)]
    try:
        plan = planner.plan(case.problem(target), target)
        codes = [launch.compile(target) for launch in plan.launches]
    except (ConfigError, jit.CompileError) as error:
        return [_unknown(case, target, f"is not compiled: {str(error).strip().splitlines()[0]}")]
    return judged(case, target, plan, codes)


def _unknown(case: AnyCase, target: arch.Target, why: str) -> Row:
    return Row(case.label, target, Figures(case.kernel, target.name, 0, *[None] * 8), [why])


def _products(case: Case, target: arch.Target, plan: Plan, codes: Sequence[jit.CodeObject]) -> list[Row]:
    return [
        _judged(
            case,
            target,
            figures(code, target, launch.block, launch.shared),
            plan.config,
            launch is plan.launches[0],
            _compiler(code),
        )
        for code, launch in zip(codes, plan.launches, strict=True)
    ]


def _compiler(code: jit.CodeObject) -> str:
    """Which clang, as the tables of those that are not the pinned one name it."""
    found = re.match(r"clang (\w+)", code.compiler)
    return found[1] if found else ""


def _but_for(found: Figures, compiler: str, target: arch.Target, kernel: str) -> Figures:
    """Without the registers that this compiler is known to spill, which lie behind four bytes of the scratch memory."""
    spills = SPILLS.get(compiler, {}).get((target.name, kernel), 0)
    if not spills:
        return found
    scratch = max((found.scratch_bytes or 0) - 4 - 4 * spills, 0)
    return dataclasses.replace(found, spills=max((found.spills or 0) - spills, 0), scratch_bytes=scratch)


def _judged(
    case: Case, target: arch.Target, found: Figures, config: GemmConfig, product: bool, compiler: str = ""
) -> Row:
    bounds = {}
    if product and not config.lanes:
        bounds = {"share": 0.0}  # there must be a loop with matrix instructions
        if case.label == FLOAT16 and target.name in LIMITS:
            bounds = OTHER_LIMITS.get((compiler, target.name), LIMITS[target.name])._asdict()
    judged = found if case.held else dataclasses.replace(found, masked=None, wide_address=None)
    return Row(
        label=case.label if product else f"… then the sum of {config.order.splits * config.order.last} parts",
        target=target,
        figures=found,
        broken=limits(_but_for(judged, compiler, target, case.kernel), **bounds),
        config=_tiles(config) if product else "",
    )


def _tiles(config: GemmConfig) -> str:
    order = config.order
    parts = order.splits * order.cluster
    split = f" /{parts}" if parts > 1 else f" +/{order.last}" if order.last > 1 else ""
    return f"{config.block_m}x{config.block_n}x{config.block_k}{split}"


def _two_products(case: TwoProducts, target: arch.Target, plan: Plan, codes: Sequence[jit.CodeObject]) -> list[Row]:
    if not codes:
        return [_unknown(case, target, f"is not one kernel: {plan.reason}")]
    (launch,), (code,), config = plan.launches, codes, plan.config
    found = figures(code, target, launch.block, launch.shared, launch.kernel)
    # Each tile of D1 ends at the result's edges, so the hot loop holds masks.
    judged = dataclasses.replace(found, masked=None, wide_address=None)
    broken = limits(judged, **({} if target.vendor == "nvidia" else {"share": case.share(target)}))
    tiles = f"{config.block_m}x{config.block_h}x{config.block_n}"
    return [Row(label=case.label, target=target, figures=found, broken=broken, config=tiles)]


# Of attention's kernels those before and behind the one that multiplies.
_AROUND = (
    "attention_delta",
    "attention_dq_partials",
    "attention_far_rows",
    "attention_mask_words",
    "attention_transpose",
)


def _attention(case: AttentionCase, target: arch.Target, plan: Plan, codes: Sequence[jit.CodeObject]) -> list[Row]:
    rows = []
    for code, launch in zip(codes, plan.launches, strict=True):
        found = figures(code, target, launch.block, launch.shared)
        multiplies = launch.kernel not in _AROUND
        share = ATTENTION_SHARE.get(target.family) if multiplies and not case.backward else 0.0 if multiplies else None
        # By ping-pong one group's vector instructions run beside the other's products: the clock says how well they do.
        if getattr(plan.config, "ping_pong", False):
            share = 0.0
        # A row that saw no key is told apart in the loop, and the last tiles are masked there.
        judged = dataclasses.replace(found, masked=None, wide_address=None)
        judged = _but_for(judged, _compiler(code), target, case.kernel)
        label = case.label if launch is plan.launches[0] else f"… then {launch.kernel.removeprefix('attention_')}"
        rows.append(Row(label, target, found, limits(judged, share=share)))
    return rows


_KINDS = {Case: (gemm, _products), TwoProducts: (gemm_gemm, _two_products), AttentionCase: (attention, _attention)}


def measure_all(targets: Sequence[arch.Target], done: Callable[[arch.Target], None] | None = None) -> Iterator[Row]:
    """Every target's rows, in order; `done` is called after each case, from any thread."""

    def one(pair: tuple[AnyCase, arch.Target]) -> list[Row]:
        rows = measure(*pair)
        if done is not None:
            done(pair[1])
        return rows

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            for found in pool.map(one, [(case, target) for target in targets for case in cases(target)]):
                yield from found
        finally:
            pool.shutdown(cancel_futures=True)
