"""Whether a change leaves the machine code of the report's kernels as it was.

    python tests/support/machine_code.py --keep before.json                 # what it is
    python tests/support/machine_code.py before.json --target gfx942        # what has become other, after a change

Names of kernels and labels do not count, nor do comments and directives.
"""

import argparse
import hashlib
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wmma_ops.analysis import report, report_cases
from wmma_ops.hardware import arch

_COMMENT = re.compile(r"\s*(;|//).*")
_NAME = re.compile(r"(?:\$|\.L|%)?\b[A-Za-z_.$][\w.$]*")
_LABEL = re.compile(r"^[\w.$]+:")


def instructions(assembly: str) -> list[str]:
    """Its lines that are instructions, with each symbol and label as the number of its first mention."""
    lines = [_COMMENT.sub("", line).strip() for line in assembly.splitlines()]
    labels = {line.split(":")[0] for line in lines if _LABEL.match(line)}
    labels |= set(re.findall(r"\.(?:globl|visible \.entry|type)\s+([\w.$]+)", assembly))
    labels |= set(
        re.findall(r"\.shared [^;]*?([\w$]+)(?:\[\d*\])?;", assembly)
    )  # PTX names shared arrays by their types
    numbers: dict[str, str] = {}

    def number(found: re.Match) -> str:
        name = found[0]
        return numbers.setdefault(name, f"<{len(numbers)}>") if name in labels else name

    return [_NAME.sub(number, line) for line in lines if line and not line.startswith(".")]


def codes(case, target: arch.Target) -> dict[str, list]:
    """By case and kernel: a hash and the number of instructions."""
    planner, _ = report._KINDS[type(case)]
    plan = planner.plan(case.problem(target), target)
    found = {}
    for i, launch in enumerate(plan.launches):
        lines = instructions(launch.compile(target).assembly.replace(launch.kernel, "kernel"))
        label = f"{target.name} {case.kernel} {case.label} {i}"
        assert label not in found
        found[label] = [hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16], len(lines)]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?", help="what --keep wrote")
    parser.add_argument("--keep", type=Path, default=None, help="the file to write")
    parser.add_argument("--target", action="append", choices=report_cases.TARGETS, default=None)
    parser.add_argument("--only", default="", help="cases whose kernel and label match")
    given = parser.parse_args()
    targets = [arch.target(name) for name in given.target or report_cases.TARGETS]
    cases = [
        (case, target)
        for target in targets
        for case in report_cases.cases(target)
        if re.search(given.only, f"{case.kernel} {case.label}")
    ]
    found = {}
    with ThreadPoolExecutor() as pool:
        for one in pool.map(lambda x: codes(*x), cases):
            found |= one
    if given.keep is not None:
        given.keep.write_text(json.dumps(found, indent=1))
        print(f"{len(found)} kernels")
        return 0
    before = json.loads(given.before.read_text())
    other = [x for x in found if before.get(x) != found[x]]
    for label in other:
        print(f"{label}: {before.get(label, ['', 'none'])[1]} instructions before, {found[label][1]} after")
    print(f"{len(found) - len(other)} kernels have the same machine code, {len(other)} another")
    return bool(other)


if __name__ == "__main__":
    sys.exit(main())
