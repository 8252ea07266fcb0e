"""What the scripts here have in common, and share with `pytest bench/`: operands, clocks, a run from cases to table."""

import argparse
import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from wmma_ops.cli import benching
from wmma_ops.cli.benching import Case, Run
from wmma_ops.cli.terminal import output, steps
from wmma_ops.ops import nodes
from wmma_ops.runtime.clock import Clock
from wmma_ops.testing.results import relative

DEVICE = "cuda"  # of what is timed on a GPU
ROUNDS, QUICK_ROUNDS = 31, 9
SECONDS, QUICK_SECONDS = 3.0, 1.5  # for a case on a CPU
MOST_ERROR = 2e-2  # of a result that is right, relative


def parser(doc: str) -> argparse.ArgumentParser:
    """The options that all have."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="fewer rounds, and fewer cases where a script has many")
    made.add_argument("--json", metavar="FILE", help="also write the run to a file: bench --from FILE shows it again")
    return made


@functools.cache
def clock(device: str, quick: bool) -> Clock:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    return Clock(device, rounds, (QUICK_SECONDS if quick else SECONDS) if device == "cpu" else float("inf"))


def empty_run(device: str, quick: bool) -> Run:
    """A run without rows: the device, torch and the commit; on a GPU what a copy moves."""
    run = Run(benching.about(device, clock(device, quick)) | {"commit": f"commit {commit()}"})
    if not nodes.are_there:  # whoever times calls that are differentiated times Python then
        print(f"derivatives are recorded {nodes.state()}", file=sys.stderr)
    if device != "cpu":
        run.about["copy_gb_per_second"] = clock(device, quick).copy_bandwidth() / 1e3
    return run


def main(cases: Iterable[Case], options, device: str | None = None) -> Run:
    """Times the cases, prints the table and writes the JSON that the options ask for."""
    asked = [case for case in cases if case.quick or not options.quick]
    run = empty_run(device or DEVICE, options.quick)
    with steps(len(asked)) as done:
        for case in asked:
            row = benching.measure(case, clock(case.device, options.quick))
            run.rows.append(row)
            done(f"{row}: {benching.took(row.ours)}, {benching.beside(row)}")
    run.show(output())
    if options.json:
        Path(options.json).write_text(json.dumps(run.data(), indent=1, ensure_ascii=False))
    return run


def check(got: torch.Tensor, want: torch.Tensor) -> float:
    """The relative error of a result that is right."""
    error = relative(got, want)
    assert error < MOST_ERROR, f"relative error {error}"
    return error


def matrix(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device=DEVICE)


@functools.cache
def compiled(function: Callable) -> Callable:
    return torch.compile(function)


def commit() -> str:
    root = Path(__file__).parents[1]
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
