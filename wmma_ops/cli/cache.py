"""`python -m wmma_ops cache`: what the folder of compiled kernels holds."""

import json
import sys
import time

from rich import box
from rich.table import Table

from wmma_ops.cli.terminal import output
from wmma_ops.jit import cache, files


def show(options) -> int:
    folder = cache.directory()
    if folder is None:
        print("cache: there is no cache folder; WMMA_OPS_CACHE_DIR names one", file=sys.stderr)
        return 1
    console = output()
    try:
        files.check(folder)
        removed = cache.clear() if options.action == "clear" else 0
    except files.Refused as error:
        print(f"cache: {folder} is not used: {error}", file=sys.stderr)
        return 1
    if options.action == "clear":
        left = cache.strangers()
        if options.json:
            print(json.dumps({"folder": str(folder), "removed": removed, "left": list(map(str, left))}, indent=2))
            return 0
        lines = [f"{removed} code objects removed from {folder}"]
        if left:
            shown = ", ".join(repr(str(path.relative_to(folder))) for path in left[:5])
            lines.append(f"left there, as it is not of wmma_ops: {shown}{', …' if len(left) > 5 else ''} ({len(left)})")
        console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
        return 0
    entries = cache.ls()
    total = sum(entry.bytes for entry in entries)
    if options.json:
        rows = [{**vars(entry), "kernels": list(entry.kernels), "path": str(entry.path)} for entry in entries]
        print(json.dumps({"folder": str(folder), "bytes": total, "entries": rows}, indent=2))
        return 0
    table = Table(box=box.SIMPLE_HEAD)
    for heading, justify in (
        ("target", "left"),
        ("kernels", "left"),
        ("KB", "right"),
        ("written", "left"),
        ("", "left"),
    ):
        table.add_column(heading, justify=justify)
    for entry in entries:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.written))
        note = "" if entry.usable else "of another version"
        table.add_row(entry.target, ", ".join(entry.kernels), f"{entry.bytes / 1e3:.0f}", when, note)
    if entries:
        console.print(table)
    console.print(f"{len(entries)} code objects, {total / 1e6:.1f} MB, in {folder}", highlight=False, soft_wrap=True)
    return 0
