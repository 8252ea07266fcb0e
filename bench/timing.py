"""Timing two ways of doing the same work, in turn, so that whatever else the machine does falls on both."""

import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wmma_ops.runtime import clock


@dataclass(frozen=True)
class Pair:
    """Seconds a call: medians, and the spread (interquartile range ÷ median) of ours."""

    ours: float
    theirs: float
    spread: float


def in_turn(ours: Callable[[], object], theirs: Callable[[], object], *, rounds: int = 21, calls: int = 1) -> Pair:
    """Medians over `rounds` of `calls` calls each."""
    for _ in range(max(2, calls // 10)):
        ours()
        theirs()

    def timed(call: Callable[[], object]) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls

    times = clock.in_turn((ours, theirs), rounds, timed)
    quarters = statistics.quantiles(times[0], n=4)
    median = statistics.median(times[0])
    return Pair(median, statistics.median(times[1]), (quarters[2] - quarters[0]) / median)


def commit() -> str:
    root = Path(__file__).parents[1]
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=root, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
