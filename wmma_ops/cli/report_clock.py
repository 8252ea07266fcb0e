"""`python -m wmma_ops report --clock`: its table, or the same as JSON."""

import json
import sys
from collections.abc import Sequence

from wmma_ops import jit
from wmma_ops.cli.terminal import steps
from wmma_ops.hardware import arch
from wmma_ops.testing import clock


def show(targets: Sequence[str] | None, as_json: bool) -> int:
    try:
        chosen = list(dict.fromkeys(map(_timed, targets or clock.SHARES)))
    except ValueError as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    rows: list[clock.Row] = []
    try:
        with steps(sum(len(clock.labels(target)) for target in chosen)) as done:
            for target in chosen:
                for row in clock.measure(target):
                    rows.append(row)
                    done(f"{target} {row.label}")
    except jit.CompileError as error:
        print(f"report: {error}", file=sys.stderr)
        return 1
    if as_json:
        print(json.dumps([data(row) for row in rows], indent=1))
        return int(any(row.broken for row in rows))
    print("Share of the matrix pipes by the clock, of the whole and (of the longest loop with products)")
    print(f"{'':<32}" + "".join(f"{target:>14}" for target in chosen))
    found = {(row.label, row.target): _cell(row) for row in rows}
    for label in clock.CASES:
        cells = [found.get((label, target), "") for target in chosen]
        if any(cells):
            print(f"{label:<32}" + "".join(f"{cell:>14}" for cell in cells))
    broken = [row for row in rows if row.broken]
    for row in broken:
        print(f"broken: {row.target} {row.label}: {row.timing.share:.3f}, at least {row.limit:.3f}; {row.timing.bound}")
    print(f"limits broken: {len(broken)}")
    return int(bool(broken))


def _timed(name: str) -> str:
    found = arch.target(name)
    if found.name in clock.SHARES:
        return found.name
    stand_in = arch.emulated_as(found)
    stands = f"{stand_in} stands for it; " if stand_in in clock.SHARES else ""
    raise ValueError(f"{name} is not timed; {stands}takes {', '.join(clock.SHARES)}")


def _cell(row: clock.Row) -> str:
    return f"{row.timing.share:.2f}" + ("" if row.loop is None else f" ({row.loop:.2f})")


def data(row: clock.Row) -> dict:
    timing = row.timing
    return {
        "label": row.label,
        "target": row.target,
        "cycles": timing.cycles,
        "share": timing.share,
        "loop_share": row.loop,
        "bound": timing.bound,
        "limit": row.limit,
        "broken": row.broken,
    }
