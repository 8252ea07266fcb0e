"""`python -m wmma_ops report`."""

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from wmma_ops import arch, jit
from wmma_ops.plan import report


def show(options, console: Console) -> int:
    start = time.perf_counter()
    try:
        targets = [arch.target(name) for name in dict.fromkeys(options.target or report.TARGETS)]
    except ValueError as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    for target in [one for one in targets if not _compiles(one)]:
        if options.target:
            return _missing(target)
        print(f"report: {target.name} is left out: no compiler for it is here", file=sys.stderr)
        targets.remove(target)
    if not targets:
        return _missing(arch.target(report.TARGETS[0]))
    terminal = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=terminal, disable=not sys.stderr.isatty()) as progress:
        tasks = {one.name: progress.add_task(one.name, total=len(report.cases(one))) for one in targets}
        found = list(report.measure_all(targets, lambda target: progress.advance(tasks[target.name])))
    broken = report.report(found, console=console, as_json=options.json)
    if not options.json:
        count = sum(len(row.broken) for row in found)
        seconds = time.perf_counter() - start
        console.print(
            f"{len(found)} kernels in {seconds:.0f} s; limits broken: {count}",
            highlight=False,
        )
    return int(broken)


def _compiles(target: arch.Target) -> bool:
    fitting = ("nvrtc",) if target.vendor == "nvidia" else ("clang", "hiprtc")
    return any(jit.COMPILERS[name].available(target.name) for name in fitting)


def _missing(target: arch.Target) -> int:
    try:
        jit.compile("", target.name)
    except jit.CompileError as error:
        print(f"report: {error}", file=sys.stderr)
    return 1
