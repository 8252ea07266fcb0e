"""`python -m wmma_ops report`: the static figures of the kernels that the planner picks, and the limits that they break.

Nothing runs: each kernel is planned, compiled, and its machine code read (figures_amd.py says by what model).
"""

import dataclasses
import functools
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from wmma_ops import activations, arch, jit
from wmma_ops.plan import attention, gemm, gemm_gemm
from wmma_ops.plan.errors import ConfigError
from wmma_ops.plan.figures import figures
from wmma_ops.plan.figures_record import Figures, limits
from wmma_ops.plan.gemm_config import GemmConfig
from wmma_ops.plan.plan import Plan
from wmma_ops.plan.problem import GemmGemmProblem, GemmProblem
from wmma_ops.types import OUTPUTS

TARGETS = (*arch.EMULATED, "sm_90a")
_LARGE = (4096, 4096, 4096)


@dataclass(frozen=True)
class Case:
    """A product as its operands' types and layouts make it; A is row-major."""

    label: str
    dtype: str
    shape: tuple[int, int, int] = _LARGE  # M, N, K
    weight: bool = False  # B column-major, as linear takes it
    aligned: bool = True
    activation: str = "none"
    bias: bool = False

    @property
    def held(self) -> bool:
        """Whether the hot loop must be free of masks and wide addresses."""
        return self.aligned and self.shape == _LARGE


FLOAT16 = "float16 4096³"
_FP8 = ("float8_e4m3fn", "float8_e4m3fnuz")
CASES = (
    *(Case(f"{name} 4096³", name) for name in ("float16", "bfloat16", "int8", *_FP8, "float32", "float64")),
    Case("linear float16", "float16", weight=True),
    Case("linear+bias+gelu float16", "float16", weight=True, activation="gelu", bias=True),
    Case("linear 16x4096x4096 float16", "float16", (16, 4096, 4096), weight=True),
    Case("unaligned 1000x1001x1003 float16", "float16", (1000, 1001, 1003), aligned=False),
)


@dataclass(frozen=True)
class TwoProducts:
    """65536 rows through two square products in one kernel."""

    size: int  # K, H and N

    @property
    def label(self) -> str:
        return f"gemm_gemm bfloat16 {self.size}"

    def problem(self, target: arch.Target) -> GemmGemmProblem:
        """What the library would ask for a call on contiguous tensors."""
        return GemmGemmProblem(
            place=-1 - list(arch.TARGETS).index(target.name),
            a=torch.bfloat16, c=None, d=torch.bfloat16, bias0=None, bias1=None,
            gate=False, a_order="k", b0_order="h", gate_order="h", b1_order="n",
            a_vec=8, b0_vec=8, gate_vec=1, b1_vec=8, c_vec=1, d_vec=8,
            wide=False, activation=activations.code("report", "activation", "relu"),
            batch_dims=0, batch=1, m=65536, n=self.size, k=self.size, h=self.size,
        )  # fmt: skip

    def share(self, target: arch.Target) -> float:
        """The matrix units' least part: at 64, rounding and storing take as long as the products."""
        return 0.0 if self.size < 128 else 0.75 if target.family == "cdna" else 0.6


TWO_PRODUCTS = (TwoProducts(64), TwoProducts(128))


@dataclass(frozen=True)
class AttentionCase:
    """Attention on contiguous tensors of 4 batches, 16 heads and 4096 queries and keys."""

    label: str
    dtype: str
    e: int
    backward: bool = False


ATTENTION = tuple(
    AttentionCase(f"attention {'backward ' if backward else ''}{name} d={e}", name, e, backward)
    for backward in (False, True)
    for e in (64, 128)
    for name in (("bfloat16",) if backward else ("float16", "bfloat16"))
)
# The least share of the matrix units in the forward kernel's hot loop, the softmax counted.
ATTENTION_SHARE = {"cdna": 0.75, "rdna3": 0.6, "rdna4": 0.6}
# Registers that are stored before the loop and loaded after it, by target and head size.
SAVED_AROUND_THE_LOOP = {("sm_90a", 128): 4}


class Limits(NamedTuple):
    """Of the hot loop."""

    share: float  # at least
    valu: float  # at most, as the next
    lds: float


# Of FLOAT16.
LIMITS = {
    "gfx90a": Limits(1.0, 0.08, 0.25),
    "gfx942": Limits(1.0, 0.12, 0.50),
    "gfx950": Limits(1.0, 0.15, 0.50),
    "gfx1100": Limits(0.95, 0.05, 0.32),
    "gfx1201": Limits(0.94, 0.06, 0.40),
}


class Row(NamedTuple):
    label: str
    target: "arch.Target | str"
    figures: Figures
    broken: Sequence[str]  # limits
    config: str = ""


# ------------------------------------------------------------------------------------------------------ one kernel each


def cases(target: arch.Target) -> list[Case | TwoProducts | AttentionCase]:
    """Those that say something about a target: fp8 where it has such a product, NVIDIA's single ones in float16."""
    native = {row.a for row in target.instructions}
    found = (case for case in CASES if case.dtype not in _FP8 or case.dtype in native)
    products = (case for case in found if target.vendor == "amd" or case.dtype == "float16")
    return [*products, *TWO_PRODUCTS, *ATTENTION]


def problem(case: Case, target: arch.Target) -> GemmProblem:
    """What the library would ask for a call on contiguous tensors."""
    a = getattr(torch, case.dtype)
    d = OUTPUTS[a][0]
    vec, d_vec = (16 // a.itemsize, 16 // d.itemsize) if case.aligned else (1, 1)
    m, n, k = case.shape
    return GemmProblem(
        place=-1 - list(arch.TARGETS).index(target.name),
        a=a, b=a, c=None, d=d,
        bias=d if case.bias else None,
        row_scale=None, col_scale=None, a_scale=None, multiply=None,
        a_order="k", b_order="k" if case.weight else "n",
        a_vec=vec, b_vec=vec, c_vec=1, d_vec=d_vec, multiply_vec=1,
        wide=False,
        a_activation=0, activation=activations.code("report", "activation", case.activation),
        batch_dims=0, batch=1, m=m, n=n, k=k,
        precision=0,
    )  # fmt: skip


def attention_problem(case: AttentionCase, target: arch.Target) -> attention.AttentionProblem:
    """What the library would ask for."""
    return attention.AttentionProblem(
        place=-1 - list(arch.TARGETS).index(target.name),
        backward=case.backward,
        dtype=getattr(torch, case.dtype), mask=None, causal=False,
        e=case.e, ev=case.e,
        q_order="e", q_vec=8, k_order="e", k_vec=8, v_order="e", v_vec=8, out_vec=8,
        g_order="e", g_vec=8 if case.backward else 1,
        wide=False,
        batch=4, heads=16, group=1, sq=4096, skv=4096,
    )  # fmt: skip


def _measure_attention(case: AttentionCase, target: arch.Target) -> list[Row]:
    try:
        plan = attention.plan(attention_problem(case, target), target)
        codes = [jit.compile(launch.source, target.name, name="planned.hip") for launch in plan.launches]
    except (ConfigError, jit.CompileError) as error:
        unknown = Figures("attention", target.name, 0, *[None] * 8)
        return [Row(case.label, target, unknown, [f"is not compiled: {str(error).strip().splitlines()[0]}"])]
    rows = []
    for code, launch in zip(codes, plan.launches, strict=True):
        found = figures(code, target, launch.block, launch.shared)
        multiplies = launch.kernel != "attention_delta"
        share = ATTENTION_SHARE.get(target.family) if multiplies and not case.backward else 0.0 if multiplies else None
        # A row that saw no key is told apart in the loop, and the last tiles are masked there.
        judged = dataclasses.replace(found, masked=None, wide_address=None)
        if saved := SAVED_AROUND_THE_LOOP.get((target.name, case.e)):
            spills, scratch = max((found.spills or 0) - saved, 0), max((found.scratch_bytes or 0) - 4 * saved, 0)
            judged = dataclasses.replace(judged, spills=spills, scratch_bytes=scratch)
        label = case.label if launch is plan.launches[0] else f"… then {launch.kernel.removeprefix('attention_')}"
        rows.append(Row(label, target, found, limits(judged, share=share)))
    return rows


def measure(case: Case | TwoProducts | AttentionCase, target: arch.Target) -> list[Row]:
    """A row for each kernel of the product, of the two, or of attention."""
    if isinstance(case, AttentionCase):
        return _measure_attention(case, target)
    two = isinstance(case, TwoProducts)
    try:
        plan = gemm_gemm.plan(case.problem(target), target) if two else gemm.plan(problem(case, target), target)
        codes = [jit.compile(launch.source, target.name, name="planned.hip") for launch in plan.launches]
    except (ConfigError, jit.CompileError) as error:
        unknown = Figures("gemm", target.name, 0, *[None] * 8)
        return [Row(case.label, target, unknown, [f"is not compiled: {str(error).strip().splitlines()[0]}"])]
    if two:
        return [_judged_two(case, target, plan, codes)]
    return [
        _judged(
            case, target, figures(code, target, launch.block, launch.shared), plan.config, launch is plan.launches[0]
        )
        for code, launch in zip(codes, plan.launches, strict=True)
    ]


def _judged(case: Case, target: arch.Target, found: Figures, config: GemmConfig, product: bool) -> Row:
    bounds = {}
    if product and not config.lanes:
        bounds = {"share": 0.0}  # there must be a loop with matrix instructions
        if case.label == FLOAT16 and target.name in LIMITS:
            bounds = LIMITS[target.name]._asdict()
    judged = found if case.held else dataclasses.replace(found, masked=None, wide_address=None)
    return Row(
        label=case.label if product else f"… then the sum of {config.splits * config.last} parts",
        target=target,
        figures=found,
        broken=limits(judged, **bounds),
        config=_tiles(config) if product else "",
    )


def _judged_two(case: TwoProducts, target: arch.Target, plan: Plan, codes: Sequence[jit.CodeObject]) -> Row:
    if not codes:
        unknown = Figures("gemm_gemm", target.name, 0, *[None] * 8)
        return Row(case.label, target, unknown, [f"is not one kernel: {plan.reason}"])
    (launch,), (code,), config = plan.launches, codes, plan.config
    found = figures(code, target, launch.block, launch.shared, launch.kernel)
    # Each tile of D1 ends at the result's edges, so the hot loop holds masks.
    judged = dataclasses.replace(found, masked=None, wide_address=None)
    broken = limits(judged, **({} if target.vendor == "nvidia" else {"share": case.share(target)}))
    tiles = f"{config.block_m}x{config.block_h}x{config.block_n}"
    return Row(label=case.label, target=target, figures=found, broken=broken, config=tiles)


def _tiles(config: GemmConfig) -> str:
    parts = config.splits * config.cluster
    split = f" /{parts}" if parts > 1 else f" +/{config.last}" if config.last > 1 else ""
    return f"{config.block_m}x{config.block_n}x{config.block_k}{split}"


def measure_all(targets: Sequence[arch.Target], done: Callable[[arch.Target], None] | None = None) -> Iterator[Row]:
    """Every target's rows, in order; `done` is called after each case, from any thread."""

    def one(pair: tuple[Case, arch.Target]) -> list[Row]:
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


# ------------------------------------------------------------------------------------------------------------- the table


def rows(kernels: Iterable[Sequence]) -> list[dict]:
    """What --json prints."""
    return [
        {
            "label": one.label,
            "target": one.target if isinstance(one.target, str) else one.target.name,
            "config": one.config,
            "figures": one.figures.as_dict(),
            "broken": list(one.broken),
        }
        for one in itertools.starmap(Row, kernels)
    ]


_WIDTH = 134
_COUNTS = ("VGPRs", "AGPRs", "spills", "LDS", "waves", "matrix", "VALU", "LDS", "mem")
_RATIOS = ("share", "VALU÷m", "LDS÷m")


def table(found: Sequence[dict]) -> Table:
    shown = Table(
        title="Static figures of the planner's kernels",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        pad_edge=False,
    )
    shown.add_column("target", no_wrap=True)
    shown.add_column("product", no_wrap=True)
    shown.add_column("tile", no_wrap=True)
    for name in (*_COUNTS, *_RATIOS):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("")
    before = None
    for row in found:
        if before not in (None, row["target"]):
            shown.add_section()
        mark, style = ("BROKEN", "red") if row["broken"] else ("", None)
        target = row["target"] if row["target"] != before else ""
        shown.add_row(target, row["label"], row["config"], *_cells(row["figures"]), mark, style=style)
        before = row["target"]
    return shown


_LEGEND = (
    "LDS in bytes a block; waves: occupancy, a SIMD; matrix to mem: instructions of the hot loop; share: the matrix "
    "units' part of the busiest unit's time; ÷m: cycles over those of the matrix units; /4: K split in 4; +/4: in the last "
    "round. – is not known."
)


def _cells(figures: dict) -> list[str]:
    loop = figures["loop"] or {}
    resources = [figures[name] for name in ("vgprs", "agprs", "spills", "lds_bytes", "occupancy")]
    counts = [loop.get(name) for name in ("matrix", "valu", "lds", "vmem")]
    share = "–" if figures["share"] is None else f"{figures['share']:.0%}"
    ratios = ["–" if figures[name] is None else f"{figures[name]:.2f}" for name in ("valu_ratio", "lds_ratio")]
    return ["–" if value is None else f"{value:g}" for value in resources + counts] + [share, *ratios]


def report(kernels: Iterable[Sequence], *, console: Console | None = None, as_json: bool = False) -> bool:
    """Prints every kernel's row; whether one of them breaks a limit."""
    found = rows(kernels)
    broken = any(row["broken"] for row in found)
    if as_json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return broken
    console = console or Console()
    before, console.width = (
        console.width,
        max(console.width, _WIDTH),
    )  # a narrow terminal wraps lines; cells keep their digits
    console.print(table(found))
    console.width = before
    say = functools.partial(console.print, highlight=False, markup=False)
    say(_LEGEND)
    for row in found:
        for text in row["broken"]:
            say(f"broken: {row['target']} {row['label']}: {text}", style="red")
    return broken
