"""`python -m wmma_ops tune`: times a product's configurations on this machine's GPU and keeps the fastest."""

import json
import math
import sys

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from wmma_ops import jit
from wmma_ops.cli import arguments, calls
from wmma_ops.cli.terminal import bars, output
from wmma_ops.runtime import driver, tuned, tuning

_SHOWN = 10


def show(options) -> int:
    try:
        shape = arguments.shape_of("tune", options)
    except ValueError as error:
        print(f"tune: {error}", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print(
            f"tune: needs a GPU, and torch {torch.__version__} finds none here; without one, "
            "`python -m wmma_ops explain` shows what the cost model picks",
            file=sys.stderr,
        )
        return 1
    try:
        given, keywords = calls.call(options.op, dict(zip("mnk", shape, strict=True)), options, "cuda")
        with bars() as progress:
            task = progress.add_task("compiling, then timing", total=None)
            found = tuning.tune(
                options.op,
                *given,
                limit=options.limit,
                progress=lambda done, of: progress.update(task, completed=done, total=of),
                **keywords,
            )
    except (ValueError, TypeError) as error:
        print(f"tune: {str(error).removeprefix('tune: ')}", file=sys.stderr)
        return 2
    except (jit.CompileError, RuntimeError) as error:
        print(f"tune: {str(error).strip().splitlines()[0]}", file=sys.stderr)
        return 1
    name = torch.cuda.get_device_name()
    kept = tuned.path_of(name)
    if options.json:
        print(json.dumps({"gpu": name, "kept_in": str(kept), "timings": [data(one) for one in found]}, indent=2))
    else:
        target = driver.target_of(torch.cuda.current_device())
        _print(output(), options, shape, f"{name} ({target})", found, kept)
    return 0 if found and found[0].microseconds is not None else 1


def data(timing: tuning.Timing) -> dict:
    return {
        "config": calls.plain(timing.config),
        "microseconds": timing.microseconds,
        "modelled_cycles": timing.modelled_cycles,
        "failure": timing.failure,
    }


def _print(
    console: Console, options, shape: tuple[int, int, int], where: str, found: list[tuning.Timing], kept
) -> None:
    timed = [one for one in found if one.microseconds is not None]
    places = {one.config: place for place, one in enumerate(sorted(found, key=lambda one: one.modelled_cycles), 1)}
    table = Table(
        title=f"{options.op} {' × '.join(map(str, shape))} {options.dtype} on {where}: {len(timed)} of {len(found)} timed",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for heading in ("µs", "TFLOP/s", "model's kilocycles", "its place"):
        table.add_column(heading, justify="right")
    table.add_column("configuration")
    work = 2 * math.prod(shape) * (options.batch or 1)
    for one in timed[:_SHOWN]:
        speed = work / one.microseconds / 1e6
        modelled = f"{one.modelled_cycles / 1e3:.0f}"
        table.add_row(f"{one.microseconds:.1f}", f"{speed:.1f}", modelled, str(places[one.config]), str(one.config))
    console.print(table)
    for one in found:
        if one.failure:
            why = next((line for line in one.failure.splitlines() if "error" in line), one.failure.splitlines()[0])
            console.print(f"failed: {one.config}: {why.strip()}", highlight=False, markup=False, soft_wrap=True)
    if timed:
        console.print(f"The fastest is kept in {kept}", highlight=False, soft_wrap=True)
