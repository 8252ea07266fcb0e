"""What the scripts that time calls on a GPU have in common."""

import argparse
import json
import math
import statistics
from collections.abc import Sequence

import torch
from timing import commit

from wmma_ops.runtime import clock


def parser(doc: str) -> argparse.ArgumentParser:
    """The options that all have."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="fewer rounds")
    made.add_argument("--json", metavar="FILE", help="also write the rows to a file")
    return made


class Clock(clock.Clock):
    def __init__(self, quick: bool):
        super().__init__("cuda", 9 if quick else 31)

    def header(self, *more: str) -> str:
        """What was measured on: the GPU, torch and the commit."""
        name = torch.cuda.get_device_name()
        parts = [name, f"torch {torch.__version__}", commit(), "bf16", *more, f"medians of {self.rounds}", "cold L2"]
        return ", ".join(parts)


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
