"""Thread traces of real GPUs beside the emulator's clock: in which cycle each instruction issued, and in which the rules
would have let it, had all before it issued as they did.

python bench/stamps.py FILE [--target gfx1201 …] [--group handwritten …] [--least 8]

FILE is of JSON, a line a record, or packed with gzip (.gz). Of a record are read:

  target, group    "gfx1201"; what kind of program it is
  code             [[offset, text], …], as llvm-objdump writes them
  waves            [{"se", "cu", "simd", "stamps": [[index in code, cycle of issue, kind, token, …], …]}, …]

A shader engine has its own zero of cycles. What waits for memory takes what memory took, and is not judged.

Prints, of each kind of gap, how many there are, in how many the rules are within a cycle, and the medians of the gap, of the
rules' and of their difference.
"""

import argparse
import collections
import gzip
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wmma_ops.emulator.assembly import parse_instruction
from wmma_ops.emulator.timing import Executed, operation, rules
from wmma_ops.emulator.timing.operations import Operation
from wmma_ops.emulator.timing.unit import Stamped, predicted
from wmma_ops.hardware import arch

# What takes as long as memory does, or other units' waves.
_NOT_JUDGED = ("wait", "barrier", "scalar_memory", "end")
_HELD_BY_MEMORY = ("memory's queue", "shared memory's queue")
_NAMES = {"vector": "VALU", "transcendental": "transcendental", "matrix": "matrix", "scalar": "SALU", "shared": "LDS",
          "memory": "memory", "branch": "branch", "clause": "clause", "packed": "packed", "nop": "nop", "priority": "SALU",
          "sleep": "sleep", "scalar_memory": "scalar memory", "wait": "wait", "wait_alu": "wait for ALU", "delay": "delay",
          "barrier": "barrier", "end": "end"}  # fmt: skip


class Gap(NamedTuple):
    """From one instruction of a wave to the next."""

    kind: str
    measured: int
    by_rules: int
    is_judged: bool

    @property
    def is_near(self) -> bool:
        return abs(self.measured - self.by_rules) <= 1


def records(path: Path) -> Iterator[dict]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        yield from map(json.loads, file)


def gaps(record: dict) -> Iterator[Gap]:
    target = record["target"]
    ops = [operation(parse_instruction(text), target) for _, text in record["code"]]
    engines = collections.defaultdict(list)
    for wave in record["waves"]:
        engines[wave["se"], wave["cu"]].append(wave)
    for waves in engines.values():
        stamped = [(wave["simd"], _stamped(wave["stamps"], ops)) for wave in waves]
        for (_, of_wave), found in zip(
            stamped, predicted(stamped, rules(target), arch.target(target).wave), strict=True
        ):
            yield from _of_wave(of_wave, found)


def _stamped(stamps: list, ops: list[Operation]) -> list[Stamped]:
    """With what leaves no stamp, where it alone lies between two that do."""
    found, last = [], None
    for index, at, *_ in stamps:
        if last is not None and last < index and all(_leaves_none(op) for op in ops[last + 1 : index]):
            found += [Stamped(Executed(op), None) for op in ops[last + 1 : index]]
        found.append(Stamped(Executed(ops[index], number=index), at))
        last = index
    return found


def _leaves_none(op: Operation) -> bool:
    return op.text.startswith(("s_delay_alu", "s_wait_alu", "s_barrier_wait", "s_endpgm", "s_clause"))


def _of_wave(stamped: list[Stamped], found: list[tuple[int, str] | None]) -> Iterator[Gap]:
    before, beside = None, ""
    for one, prediction in zip(stamped, found, strict=True):
        op = one.executed.operation
        if one.at is None:
            beside += f", {op.text.split()[0]} between"
            continue
        if before is not None and prediction is not None:
            last = before.executed.operation
            depends = any(a.start < b.stop and b.start < a.stop for a in last.writes for b in (*op.reads, *op.adds_to))
            kind = f"{_named(before, one)} → {_NAMES[op.unit]}{', dependent' if depends else ''}{beside}"
            judged = op.unit not in _NOT_JUDGED and last.unit != "barrier" and prediction[1] not in _HELD_BY_MEMORY
            yield Gap(kind, one.at - before.at, prediction[0] - before.at, judged)
        before, beside = one, ""


def _named(before: Stamped, after: Stamped) -> str:
    op = before.executed.operation
    if op.unit == "branch":
        taken = after.executed.number != before.executed.number + 1
        return "branch taken" if taken else "branch not taken"
    return _NAMES[op.unit]


def table(found: list[Gap], least: int) -> Iterator[str]:
    by_kind = collections.defaultdict(list)
    for gap in found:
        by_kind[gap.kind].append(gap)
    yield f"{'gap':64} {'n':>6} {'near':>6} {'measured':>9} {'rules':>6} {'off':>5}"
    for kind, of in sorted(by_kind.items(), key=lambda item: -len(item[1])):
        if len(of) < least:
            continue
        measured, by_rules, off = (
            statistics.median_low(values)
            for values in zip(*((x.measured, x.by_rules, x.by_rules - x.measured) for x in of), strict=True)
        )
        near = f"{sum(x.is_near for x in of) / len(of):6.0%}" if any(x.is_judged for x in of) else f"{'–':>6}"
        yield f"{kind[:64]:64} {len(of):6} {near} {measured:9} {by_rules:6} {off:+5}"
    judged = [gap for gap in found if gap.is_judged]
    if judged:
        near = sum(gap.is_near for gap in judged)
        yield f"{'all that are judged':64} {len(judged):6} {near / len(judged):6.0%}"


def main(arguments: list[str] | None = None) -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("file", type=Path)
    asked.add_argument("--target", nargs="+", help="of these alone")
    asked.add_argument("--group", nargs="+", help="likewise")
    asked.add_argument("--least", type=int, default=8, help="gaps of a kind that is printed")
    options = asked.parse_args(arguments)
    by_target = collections.defaultdict(list)
    for record in records(options.file):
        if options.target and record["target"] not in options.target:
            continue
        if options.group and record.get("group") not in options.group:
            continue
        by_target[record["target"]].extend(gaps(record))
    for target, found in by_target.items():
        print(target)
        print(*table(found, options.least), sep="\n")
        print()


if __name__ == "__main__":
    main()
