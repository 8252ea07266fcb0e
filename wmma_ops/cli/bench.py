"""`python -m wmma_ops bench`: ours beside torch's on the device at hand."""

import dataclasses
import json
import statistics
import sys
from pathlib import Path

import torch
from rich import box
from rich.table import Table

from wmma_ops import jit
from wmma_ops.cli import benching
from wmma_ops.cli.benching import Row
from wmma_ops.cli.terminal import bars, output
from wmma_ops.runtime.clock import Clock


def show(options) -> int:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    where = torch.cuda.get_device_name() if device == "cuda" else "the CPU"
    shapes = options.shapes or benching.SHAPES
    clock = Clock(device, options.rounds)
    rows: list[Row] = []
    try:
        with bars() as progress:
            task = progress.add_task("timing", total=len(shapes) + 1)
            bandwidth = clock.copy_bandwidth()
            progress.advance(task)
            for row in benching.measure(options.op, shapes, options, clock):
                rows.append(row)
                progress.advance(task)
    except (ValueError, TypeError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except (jit.CompileError, RuntimeError, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    mean = statistics.geometric_mean([row.ratio for row in rows])
    title = f"{options.op} {options.dtype} on {where}, torch {torch.__version__}: medians of {options.rounds}"
    if options.png:
        try:
            draw(rows, bandwidth, title, options.png)
        except (ImportError, ValueError, OSError) as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    if options.json:
        found = [dataclasses.asdict(row) | {"ratio": row.ratio} for row in rows]
        about = {"device": where, "torch": torch.__version__, "copy_gb_per_second": bandwidth / 1e3}
        print(json.dumps({**about, "geometric_mean": mean, "rows": found}, indent=2))
        return 0
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("M × N × K", "µs", "TFLOP/s", "GB/s", "torch µs", "× torch", "error"):
        table.add_column(heading, justify="right")
    for row in rows:
        times = (f"{row.ours:.1f}", f"{row.flops / row.ours / 1e6:.1f}", f"{row.bytes / row.ours / 1e3:.0f}")
        theirs = (f"{row.torchs:.1f}", f"{row.ratio:.2f}", f"{row.error:.1e}")
        table.add_row(f"{row.m} × {row.n} × {row.k}", *times, *theirs)
    console = output()
    console.print(table)
    summary = f"geometric mean {mean:.2f} × torch; a copy within the device moves {bandwidth / 1e3:.0f} GB/s"
    console.print(summary, highlight=False, soft_wrap=True)
    return 0


def draw(rows: list[Row], bandwidth: float, title: str, path: str) -> None:
    """Bars of the throughputs, and the roofline: what a copy's bandwidth allows, and the best that was measured."""
    if Path(path).suffix not in (".png", ".svg"):
        raise ValueError(f"--png is {path!r}; takes a file that ends in .png or .svg")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("drawing needs matplotlib: pip install matplotlib") from error

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    bars, roof = figure.subplots(1, 2)
    places = range(len(rows))
    speeds = {name: [row.flops / getattr(row, name) / 1e6 for row in rows] for name in ("ours", "torchs")}
    for shift, name, label in ((-0.2, "ours", "wmma_ops"), (0.2, "torchs", "torch")):
        bars.bar([at + shift for at in places], speeds[name], 0.4, label=label)
        intensity = [row.flops / row.bytes for row in rows]
        roof.scatter(intensity, speeds[name], label=label, zorder=3)
    bars.set_xticks(places, [f"{row.m}×{row.n}×{row.k}" for row in rows], rotation=20, ha="right", fontsize=8)
    bars.set_ylabel("TFLOP/s")
    best = max(max(found) for found in speeds.values())
    intensity = [row.flops / row.bytes for row in rows]
    knee = best * 1e6 / bandwidth
    ends = min(*intensity, knee) / 2, max(*intensity, knee) * 2
    roof.plot([ends[0], knee, ends[1]], [ends[0] * bandwidth / 1e6, best, best], color="gray", linewidth=1)
    roof.set(xscale="log", yscale="log", xlabel="FLOP per byte", ylabel="TFLOP/s")
    roof.set_title("roof: a copy's bandwidth, and the best measured here", fontsize=8)
    for axis in (bars, roof):
        axis.legend(fontsize=8)
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=110)
