"""The ratios that ours had to torch's speed, and the times that work without a peer may take: CI holds a run against them.

The fastest samples are compared, of one thread: what else the machine does only adds to a time. A ratio holds for most
machines, a time does not: what is kept of a time is generous.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from wmma_ops.cli.benching import Row
from wmma_ops.runtime.clock import took

PATH = Path(__file__).parent / "baseline.json"
MARGIN = 2.0  # a ratio may be so many times worse than the one that is kept
GENEROUS = 6.0  # a time may be so many times the one that was measured


def fastest(row: Row) -> tuple[float, float | None]:
    """Of ours, in microseconds, and how many times as fast as the best peer's that is."""
    ours, *peers = (min(found) for found in row.samples.values())
    return ours, min(peers) / ours if peers else None


def misses(rows: Iterable[Row], path: Path = PATH) -> list[str]:
    """A line for each row that is slower than it may be, or that nothing is known of."""
    kept = json.loads(path.read_text())
    found = []
    for row in rows:
        ours, ratio = fastest(row)
        if ratio is not None:
            was = kept["ratios"].get(str(row))
            if was is None:
                found.append(f"{row}: no ratio is kept; make bench-check ARGS=--baseline=write")
            elif ratio < was / MARGIN:
                found.append(f"{row}: {ratio:.2f} × torch's speed, was {was:.2f}; takes {was / MARGIN:.2f}")
        else:
            most = kept["most_us"].get(str(row))
            if most is None:
                found.append(f"{row}: no time is kept; make bench-check ARGS=--baseline=write")
            elif ours > most:
                found.append(f"{row}: {took(ours)}; takes {took(most)}")
    return found


def write(rows: Iterable[Row], path: Path = PATH) -> None:
    """Keeps these rows, beside what is kept of others."""
    kept = json.loads(path.read_text()) if path.exists() else {"ratios": {}, "most_us": {}}
    for row in rows:
        ours, ratio = fastest(row)
        if ratio is not None:
            kept["ratios"][str(row)] = float(f"{ratio:.2g}")
        else:
            kept["most_us"][str(row)] = float(f"{GENEROUS * ours:.2g}")
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
