"""`python -m wmma_ops build`: compiles kernels ahead of time, into a folder or a wheel."""

import json
import sys
from pathlib import Path

from rich import box
from rich.table import Table

from wmma_ops import jit
from wmma_ops.cli.terminal import bars, output
from wmma_ops.cli.usual import usual
from wmma_ops.hardware import arch
from wmma_ops.jit import files
from wmma_ops.runtime import building
from wmma_ops.runtime.recording import load

COMMON = (*arch.EMULATED, "sm_80", "sm_90a")


def show(options) -> int:
    if not (options.out or options.wheel):
        print("build: pass --out FOLDER, --wheel FOLDER, or both", file=sys.stderr)
        return 2
    names = [name for text in options.target for name in text.split(",") if name]
    names += COMMON if options.common else ()
    if not names:
        given = f"--target is {', '.join(map(repr, options.target))}; takes names of targets"
        print(f"build: {given if options.target else 'pass --target TARGET …, or --common'}", file=sys.stderr)
        return 2
    try:
        names = list(dict.fromkeys(arch.target(name).name for name in names))
        calls = load(options.calls) if options.calls else usual()
    except (ValueError, OSError) as error:
        print(f"build: {error}", file=sys.stderr)
        return 2
    with files.temporary() as scratch:
        folder = Path(options.out or scratch)
        try:
            with bars() as progress:
                tasks = {name: progress.add_task(name, total=len(calls)) for name in names}
                found = building.build(calls, names, folder, lambda name: progress.advance(tasks[name]))
            wheel = building.wheel(folder, Path(options.wheel)) if options.wheel else None
        except (jit.CompileError, OSError, ValueError) as error:
            print(f"build: {error}", file=sys.stderr)
            return 1
    written = {"folder": options.out, "wheel": wheel and str(wheel)}
    if options.json:
        rows = [{**vars(one), "left_out": list(one.left_out)} for one in found]
        print(json.dumps({"calls": len(calls), **written, "targets": rows}, indent=2, ensure_ascii=False))
    else:
        _print(len(calls), found, written)
    # A call of one's own that is missing is a failure; that a target lacks one of the usual ones is told.
    return int(any(one.objects == 0 or (options.calls and one.left_out) for one in found))


def _print(calls: int, found: list[building.Built], written: dict) -> None:
    table = Table(title=f"The kernels of {calls} calls", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("target", "code objects", "MB", "calls left out"):
        table.add_column(heading, justify="left" if heading == "target" else "right")
    for one in found:
        table.add_row(one.target, str(one.objects), f"{one.bytes / 1e6:.1f}", str(len(one.left_out)))
    console = output()
    console.print(table)

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    for one in found:
        for why in one.left_out:
            say(f"left out on {one.target}: {why}")
    if written["folder"]:
        say(f"In {written['folder']}: WMMA_OPS_OBJECTS={written['folder']} makes every process find them")
    if written["wheel"]:
        megabytes = Path(written["wheel"]).stat().st_size / 1e6
        say(f"In {written['wheel']}, {megabytes:.1f} MB: found wherever it is installed")
