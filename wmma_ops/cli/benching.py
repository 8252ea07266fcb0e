"""What calls take beside their peers: cases, timed in turn, their JSON and their table.

The JSON is pytest-benchmark's, whose own commands read it too: a benchmark for each call, those of a case in a group.
"""

import contextlib
import datetime
import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from rich import box
from rich.console import Console
from rich.table import Table

import wmma_ops
from wmma_ops.runtime.clock import Call, Clock, took

OURS = "ours"


@dataclass(frozen=True)
class Calls:
    """What is timed of a case, correct and ready to be called, and what is known of the work."""

    calls: dict[str, Call]  # "ours" first, then those that compute the same
    missing: dict[str, str] = field(default_factory=dict)  # peers that cannot, and why
    flops: float | None = None
    bytes: float | None = None  # that must be read and written once
    counted: tuple[int, str] | None = None  # of something else, and of what
    error: float | None = None  # of ours, relative, against a peer's result
    note: str = ""
    inside: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext  # what they are timed in


@dataclass(frozen=True)
class Case:
    """Calls of one piece of work; `make` prepares them when their turn comes."""

    group: str
    name: str
    make: Callable[[], Calls]
    peers: tuple[str, ...] = ("torch",)
    device: str = "cpu"  # whose clock takes the time
    quick: bool = True  # whether a quick run has it

    def __str__(self) -> str:
        return f"{self.group}: {self.name}"


@dataclass(frozen=True)
class Row:
    """One case's times: each call's samples, in microseconds."""

    group: str
    name: str
    samples: dict[str, list[float]]
    missing: dict[str, str] = field(default_factory=dict)
    flops: float | None = None
    bytes: float | None = None
    counted: tuple[int, str] | None = None
    error: float | None = None
    note: str = ""

    def __str__(self) -> str:
        return f"{self.group}: {self.name}"

    @property
    def times(self) -> dict[str, float]:
        return {name: statistics.median(found) for name, found in self.samples.items()}

    @property
    def ours(self) -> float:
        return self.times[OURS]

    @property
    def ratios(self) -> dict[str, float]:
        """How many times as fast as each peer ours is."""
        return {name: time / self.ours for name, time in self.times.items() if name != OURS}

    @property
    def ratio(self) -> float | None:
        """How many times as fast as the best peer."""
        return min(self.ratios.values(), default=None)

    @property
    def spread(self) -> float:
        """The interquartile range of ours, of its median."""
        low, high = _quarters(self.samples[OURS])
        return (high - low) / self.ours


def measure(case: Case, clock: Clock) -> Row:
    made = case.make()
    with made.inside():
        samples = clock.samples([*made.calls.values()])
    known = {name: getattr(made, name) for name in ("missing", "flops", "bytes", "counted", "error", "note")}
    return Row(case.group, case.name, dict(zip(made.calls, samples, strict=True)), **known)


@dataclass
class Run:
    """Rows, and what they were measured on: device, torch, clock, perhaps `copy_gb_per_second`."""

    about: dict[str, object]
    rows: list[Row] = field(default_factory=list)

    @property
    def heading(self) -> str:
        said = (f"torch {x}" if name == "torch" else str(x) for name, x in self.about.items() if isinstance(x, str))
        return ", ".join(said)

    def groups(self) -> Iterator[tuple[str, list[Row]]]:
        for group in dict.fromkeys(row.group for row in self.rows):
            yield group, [row for row in self.rows if row.group == group]

    def data(self) -> dict:
        now = datetime.datetime.now(datetime.timezone.utc).isoformat()
        calls = [_call_data(row, name) for row in self.rows for name in row.samples]
        return {"machine_info": {"wmma_ops": self.about}, "datetime": now, "version": "5", "benchmarks": calls}

    @classmethod
    def of(cls, data: dict) -> "Run":
        """What `data` gave, or a run of pytest-benchmark over bench/."""
        rows: dict[tuple[str, str], Row] = {}
        for one in data["benchmarks"]:
            said = dict(one["extra_info"])
            call = said.pop("call")
            said["counted"] = tuple(said["counted"]) if said.get("counted") else None
            row = rows.setdefault((said["group"], said["name"]), Row(**said, samples={}))
            row.samples[call] = [1e6 * seconds for seconds in one["stats"].get("data") or [one["stats"]["median"]]]
        return cls(data["machine_info"]["wmma_ops"], [row for row in rows.values() if OURS in row.samples])

    def show(self, console: Console) -> None:
        """A table with a line for each case, and the geometric means of a group below its lines."""
        bandwidth = self.about.get("copy_gb_per_second")
        headings = ("", "ours", "spread", "rate", "GB/s", "× best")
        table = Table(title=self.heading, title_justify="left", box=box.SIMPLE_HEAD)
        for heading in headings:
            table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
        table.add_column("beside it")
        for group, rows in self.groups():
            table.add_row(f"[bold]{group}[/bold]")
            for row in rows:
                moved = "" if row.bytes is None else f"{row.bytes / row.ours / 1e3:.0f}"
                ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
                spread = f"{row.spread:.0%}" if len(row.samples[OURS]) > 1 else ""
                cells = (took(row.ours), spread, rate(row), moved, ratio, beside(row))
                table.add_row(f"  {row.name}", *cells)
            if sum(1 for row in rows if row.ratios) > 1:
                table.add_row("", "", "", "", "", *(f"[dim]{text}[/dim]" for text in means(rows)))
        console.print(table, highlight=False)
        if bandwidth is not None:
            console.print(f"A copy within the device moves {bandwidth:.0f} GB/s.", highlight=False)


def beside(row: Row) -> str:
    """What the peers took, why others could not, and what else there is to say."""
    times = row.times
    said = [f"{name} {took(times[name])}" for name in row.ratios]
    said += [f"{name} n/a ({why})" for name, why in row.missing.items()]
    return " · ".join(said + ([row.note] if row.note else []))


def means(rows: Iterable[Row]) -> tuple[str, str]:
    """How many times as fast as the best peer ours is over all rows, and more of it."""
    against: dict[str, list[float]] = {}
    for row in rows:
        for name, ratio in row.ratios.items():
            against.setdefault(name, []).append(ratio)
    best = [row.ratio for row in rows if row.ratios]
    said = [f"geometric mean, least {min(best):.2f}"]
    if len(against) > 1:
        said += [f"of {name} {geometric_mean(found):.2f}, least {min(found):.2f}" for name, found in against.items()]
    return f"{geometric_mean(best):.2f}", " · ".join(said)


def geometric_mean(ratios: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def rate(row: Row) -> str:
    if row.counted is not None:
        number, what = row.counted
        return f"{number / row.ours * 1e3:,.0f}k {what}/s"
    if row.flops is None:
        return ""
    speed = row.flops / row.ours / 1e6
    return f"{speed:.1f} TFLOP/s" if speed >= 1 else f"{speed * 1e3:.1f} GFLOP/s"


def about(device: str, clock: Clock) -> dict[str, object]:
    where = torch.cuda.get_device_name() if device == "cuda" else f"the CPU, {torch.get_num_threads()} threads"
    return {
        "device": where,
        "torch": torch.__version__,
        "wmma_ops": f"wmma_ops {wmma_ops.__version__}",
        "clock": str(clock),
    }


def info(row: Row, call: str) -> dict:
    """What a benchmark of pytest-benchmark keeps of a row beside its times."""
    said = {
        name: getattr(row, name) for name in ("group", "name", "missing", "flops", "bytes", "counted", "error", "note")
    }
    return said | {"call": call}


def _call_data(row: Row, call: str) -> dict:
    seconds = [1e-6 * time for time in row.samples[call]]
    return {
        "group": str(row),
        "name": call,
        "fullname": f"{row}: {call}",
        "params": None,
        "param": None,
        "extra_info": info(row, call),
        "options": {},
        "stats": _stats(seconds),
    }


def _stats(data: list[float]) -> dict:
    """All that pytest-benchmark's table reads."""
    low, high = _quarters(data)
    mean, deviation = statistics.fmean(data), statistics.stdev(data) if len(data) > 1 else 0.0
    far = sum(abs(x - mean) > deviation for x in data)
    outer = sum(not low - 1.5 * (high - low) <= x <= high + 1.5 * (high - low) for x in data)
    return {
        "min": min(data),
        "max": max(data),
        "mean": mean,
        "stddev": deviation,
        "median": statistics.median(data),
        "q1": low,
        "q3": high,
        "iqr": high - low,
        "outliers": f"{far};{outer}",
        "ops": 1 / mean,
        "total": sum(data),
        "rounds": len(data),
        "iterations": 1,
        "data": data,
    }


def _quarters(data: list[float]) -> tuple[float, float]:
    if len(data) == 1:
        return data[0], data[0]
    low, _, high = statistics.quantiles(data, n=4, method="inclusive")
    return low, high
