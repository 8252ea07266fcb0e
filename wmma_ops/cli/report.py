"""`python -m wmma_ops report`: the table, or the same as JSON."""

import functools
import itertools
import json
import sys
import time
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from wmma_ops import jit
from wmma_ops.analysis import report
from wmma_ops.analysis.report_cases import TARGETS, cases
from wmma_ops.cli.terminal import bars, output
from wmma_ops.hardware import arch

_WIDTH = 134
_COUNTS = ("VGPRs", "AGPRs", "spills", "LDS", "waves", "matrix", "VALU", "LDS", "mem")
_RATIOS = ("share", "VALU÷m", "LDS÷m")
_LEGEND = (
    "LDS in bytes a block; waves: occupancy, a SIMD; matrix to mem: instructions of the hot loop; share: the matrix "
    "units' part of the busiest unit's time; ÷m: cycles over those of the matrix units; /4: K split in 4; +/4: in the last "
    "round. – is not known."
)


def show(options) -> int:
    if options.clock:
        from wmma_ops.cli import report_clock

        return report_clock.show(options.target, options.json)
    console, start = output(), time.perf_counter()
    try:
        targets = list(dict.fromkeys(map(arch.target, options.target or TARGETS)))
    except ValueError as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    for target in [one for one in targets if not jit.available(one.name)]:
        if options.target:
            return _missing(target)
        print(f"report: {target.name} is left out: no compiler for it is here", file=sys.stderr)
        targets.remove(target)
    if not targets:
        return _missing(arch.target(TARGETS[0]))
    with bars() as progress:
        tasks = {one.name: progress.add_task(one.name, total=len(cases(one))) for one in targets}
        found = list(report.measure_all(targets, lambda target: progress.advance(tasks[target.name])))
    broken = show_rows(found, console=console, as_json=options.json)
    if not options.json:
        count = sum(len(row.broken) for row in found)
        seconds = time.perf_counter() - start
        console.print(f"{len(found)} kernels in {seconds:.0f} s; limits broken: {count}", highlight=False)
    return int(broken)


def _missing(target: arch.Target) -> int:
    try:
        jit.compile("", target.name)
    except jit.CompileError as error:
        print(f"report: {error}", file=sys.stderr)
    return 1


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
        for one in itertools.starmap(report.Row, kernels)
    ]


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


def _cells(figures: dict) -> list[str]:
    loop = figures["loop"] or {}
    resources = [figures[name] for name in ("vgprs", "agprs", "spills", "lds_bytes", "occupancy")]
    counts = [loop.get(name) for name in ("matrix", "valu", "lds", "vmem")]
    share = "–" if figures["share"] is None else f"{figures['share']:.0%}"
    ratios = ["–" if figures[name] is None else f"{figures[name]:.2f}" for name in ("valu_ratio", "lds_ratio")]
    return ["–" if value is None else f"{value:g}" for value in resources + counts] + [share, *ratios]


def show_rows(kernels: Iterable[Sequence], *, console: Console | None = None, as_json: bool = False) -> bool:
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
