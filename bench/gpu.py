"""Timing calls on a GPU, in turn and with a cold L2, and what the scripts that do so print alike."""

import argparse
import json
import math
import statistics
from collections.abc import Callable, Sequence

import torch
from timing import commit

_FLUSH_BYTES = 256 << 20  # more than any L2 holds


def parser(doc: str) -> argparse.ArgumentParser:
    """The options that all have."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="fewer rounds")
    made.add_argument("--json", metavar="FILE", help="also write the rows to a file")
    return made


class Clock:
    """Medians of so many rounds."""

    def __init__(self, quick: bool):
        self.rounds = 9 if quick else 31
        self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda")

    def header(self, *more: str) -> str:
        """What was measured on: the GPU, torch and the commit."""
        name = torch.cuda.get_device_name()
        parts = [name, f"torch {torch.__version__}", commit(), "bf16", *more, f"medians of {self.rounds}", "cold L2"]
        return ", ".join(parts)

    def times(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        """The median of each call's time in microseconds, taken in turn."""
        for call in calls:
            for _ in range(3):
                call()
        found = [[] for _ in calls]
        for turn in range(self.rounds):
            for index in [*range(len(calls))][:: 1 if turn % 2 else -1]:
                start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                self._flush.zero_()
                start.record()
                calls[index]()
                stop.record()
                stop.synchronize()
                found[index].append(start.elapsed_time(stop) * 1e3)
        return [statistics.median(x) for x in found]


def check(got: torch.Tensor, want: torch.Tensor) -> None:
    error = ((got.double() - want.double()).norm() / want.double().norm()).item()
    assert error < 1e-2, f"relative error {error}"


def matrix(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.bfloat16, device="cuda")


def summary(ratios: Sequence[float], of: str) -> str:
    """Of how many times as fast as a peer each case is."""
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    return f"geometric mean {mean:.2f}× {of}, least {min(ratios):.2f}×"


def write(rows: Sequence[dict], path: str | None) -> None:
    if path:
        with open(path, "w") as file:
            json.dump(rows, file, indent=1)
