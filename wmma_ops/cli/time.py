"""`python -m wmma_ops time`: how long a call's kernel takes on an AMD target that is not here, and where the time goes."""

import dataclasses
import gzip
import json
import math
import re
import sys
from pathlib import Path

from wmma_ops import jit
from wmma_ops.cli.explain import planned
from wmma_ops.cli.terminal import bars
from wmma_ops.emulator.errors import EmulationError
from wmma_ops.emulator.timing import InstructionTiming, Timing, rules, timeline
from wmma_ops.plan import ConfigError
from wmma_ops.runtime.emulation import emulated
from wmma_ops.runtime.explain import LaunchRecord

_MOST = 40  # instructions of a kernel without a loop that are shown


def show(options) -> int:
    try:
        target, said = emulated(options.target)
        rules(target.name)  # refuses one that it has none of
        if said:
            print(f"time: {said}", file=sys.stderr)
        if options.draw:
            timeline.check(options.draw)
        if options.trace:
            _opened(options.trace).close()  # before what takes long
        found = planned(options, options.target)
        if not found.launches:
            raise ValueError("the call launches nothing, as its result is empty")
        traces = []
        with bars() as progress:
            for launch in found.launches:
                print(f"executing {launch.kernel} …", file=sys.stderr, flush=True)
                task = progress.add_task("instructions", total=None)
                asked = {"instructions": options.instructions, "part": options.part, "addresses": bool(options.trace)}
                traces.append(
                    launch.traced(**asked, tell=lambda done, task=task: progress.update(task, completed=done))
                )
                progress.remove_task(task)
        timings = [launch.timed(trace) for launch, trace in zip(found.launches, traces, strict=True)]
        longest = max(range(len(timings)), key=lambda i: timings[i].cycles)
        if options.trace:
            with _opened(options.trace) as file:
                traces[longest].write(file, found.launches[longest].kernel)
        if options.draw:
            timeline.draw(traces[longest], timings[longest], f"{found.op} on {found.target}", options.draw)
    except (ValueError, TypeError, OSError) as error:
        print(f"time: {re.sub('^(explain|timing|emulate): ', '', str(error))}", file=sys.stderr)
        return 1 if isinstance(error, ConfigError) else 2
    except (jit.CompileError, EmulationError, ImportError, RuntimeError) as error:
        print(f"time: {error}", file=sys.stderr)
        return 1
    each = list(zip(found.launches, timings, strict=True))
    if options.json:
        print(json.dumps([data(launch, timing) for launch, timing in each], indent=2, ensure_ascii=False))
        return 0
    print(f"wmma_ops.{found.op} on {found.target}")
    for i, (launch, timing) in enumerate(each):
        shown = {"is_cut": traces[i].is_cut, "is_longest": i == longest, "in_full": options.assembly}
        print("\n".join(text(launch.kernel, launch.grid, timing, **shown)))
    if not options.assembly:
        print("time: --assembly lists the instructions of its longest loop, with what held each", file=sys.stderr)
    if options.draw:
        print(f"wrote {options.draw}", file=sys.stderr)
    return 0


def _opened(path: str):
    return gzip.open(path, "wt") if Path(path).suffix == ".gz" else open(path, "w", encoding="utf-8")


def text(
    kernel: str,
    grid: tuple[int, int, int],
    timing: Timing,
    *,
    is_cut: bool = False,
    is_longest: bool = True,
    in_full: bool = False,
) -> list[str]:
    """What is told of a launch, line by line: of a call's others than that which takes longest, how long; in full, all
    loops, and the longest one's instructions."""
    unit = "WGP" if timing.target.startswith("gfx1") else "compute unit"
    blocks = f"{timing.blocks} block{'s' if timing.blocks > 1 else ''} of {math.prod(grid)}"
    lines = [
        f"  kernel    {kernel}: one {unit} has {blocks} at once, {timing.waves} waves",
        f"  time      {timing.cycles:,} cycles{' of a part of them' if is_cut else ''}; the matrix pipes are busy "
        f"{timing.share:.0%} of them",
    ]
    if not is_longest:
        return lines
    lines += [
        f"  bound by  {timing.bound}",
        f"  memory    {timing.bytes_asked:,} bytes asked for, {timing.bytes_fetched:,} from beyond the first cache",
    ]
    if (guess := timing.estimate) is not None:
        rounds = f"{guess.rounds} round{'s' if guess.rounds > 1 else ''} of the units"
        by = "memory, each tensor once" if guess.by_memory else rounds
        lines.append(
            f"  estimate  {guess.microseconds:,.1f} µs for the whole GPU, by {by}, at {guess.gigahertz} GHz; not measured"
        )
    if timing.not_validated:
        lines.append(f"  not validated on {timing.target}: {', '.join(timing.not_validated)}")
    for number, loop in enumerate(timing.loops if in_full else timing.loops[:1], 1):
        held = ", ".join(f"{cycles:.0f} {why}" for why, cycles in loop.stalls.items() if cycles >= 1)
        length = f"{loop.iterations:g} rounds of {loop.cycles:,.0f} cycles"
        lines += [
            f"  loop {number}    {length}, matrix pipes {loop.share:.0%}; bound by {loop.bound}",
            f"            a wave's cycles a round that it was held: {held or 'none'}",
        ]
    return lines + (_listing(timing) if in_full else [])


def _listing(timing: Timing) -> list[str]:
    """The longest loop with what held each instruction; where there is none, those of the kernel that were held most."""
    loop = timing.loops[0] if timing.loops else None
    rounds = (loop.iterations if loop else 1) * timing.waves
    numbers = loop.instructions if loop else range(len(timing.instructions))
    rows = [(i, timing.instructions[i]) for i in numbers if timing.instructions[i].executed]
    shown = {i for i, _ in rows}
    if loop is None and len(rows) > _MOST:
        shown = {i for i, _ in sorted(rows, key=lambda row: -_idle(row[1]))[:_MOST]}
    what = " a round; the longest loop's instructions" if loop else "; the kernel's instructions"
    lines = ["", f"    held  conflicts  a wave's cycles{what}"]
    left_out = 0
    for i, one in rows:
        if i not in shown:
            left_out += 1
            continue
        if left_out:
            lines.append(f"{'':>21}… {left_out} more")
            left_out = 0
        why = max(one.stalls, key=lambda reason: one.stalls[reason]) if one.stalls else ""
        held = f"{one.stalled / rounds:8.1f}" if one.stalled else " " * 8
        conflicts = f"{one.conflicts / rounds:11.1f}" if one.conflicts else " " * 11
        lines.append(
            f"{held}{conflicts}  {one.text:<64}{why and f'  {why}'}{one.source and f'  {one.source}'}".rstrip()
        )
    if left_out:
        lines.append(f"{'':>21}… {left_out} more")
    return lines


def _idle(one: InstructionTiming) -> int:
    """Where a wave waits for the matrix pipe, another one has it."""
    return one.stalled - one.stalls.get("matrix pipe", 0)


def data(launch: LaunchRecord, timing: Timing) -> dict:
    return {"kernel": launch.kernel, **of(timing)}


def of(timing: Timing) -> dict:
    return {
        "target": timing.target,
        "blocks": timing.blocks,
        "waves": timing.waves,
        "issued": timing.issued,
        "cycles": timing.cycles,
        "share": timing.share,
        "bound": timing.bound,
        "stalls": dict(timing.stalls),
        "bytes_asked": timing.bytes_asked,
        "bytes_fetched": timing.bytes_fetched,
        "estimate": timing.estimate and dataclasses.asdict(timing.estimate),
        "not_validated": list(timing.not_validated),
        "loops": [
            {
                "iterations": loop.iterations,
                "cycles": loop.cycles,
                "share": loop.share,
                "bound": loop.bound,
                "conflicts": loop.conflicts,
                "stalls": dict(loop.stalls),
                "instructions": list(loop.instructions),
            }
            for loop in timing.loops
        ],
        "instructions": [
            {"text": one.text, "executed": one.executed, "conflicts": one.conflicts, "stalls": dict(one.stalls)}
            for one in timing.instructions
        ],
    }
