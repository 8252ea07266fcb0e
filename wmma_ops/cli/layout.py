"""`python -m wmma_ops layout`: shows a lane layout as text, as JSON or as a picture."""

import json
import shutil
import sys

from wmma_ops.emulator.timing import timeline
from wmma_ops.hardware.layouts import Layout, layout

_SIDES = {"A": "M×K", "B": "K×N", "C": "M×N", "D": "M×N"}


def title(found: Layout) -> str:
    side = _SIDES[found.operand]
    shape = "×".join(map(str, found.shape)) + f" ({side[::-1] if found.transposed else side})"
    parts = [
        f"{found.target} {found.operand}{' transposed' if found.transposed else ''}, {shape}",
        found.instruction.name,
        f"{found.lanes} lanes × {found.elements} of {found.instruction.type(found.operand)}",
    ]
    if found.blocks > 1:
        parts[0] += f", {found.blocks} blocks"
    if found.replication > 1:
        parts.append(f"each held by {found.replication} lanes")
    return " · ".join(parts)


def cell(found: Layout, row: int, column: int, block: int = 0) -> str:
    """`lane:element`; more lanes that hold the same element stand beside the first: 3,19:7."""
    owners = found.owners(row, column, block)
    # Copies differ in the lane alone.
    return ",".join(str(lane) for lane, _ in owners) + f":{owners[0][1]}"


def text(found: Layout, width: int = 120) -> str:
    """The matrix with `lane:element` in every cell, in panels of at most `width` characters."""
    rows, columns = found.shape
    lines = [title(found), "cells: lane:element"]
    for block in range(found.blocks):
        cells = [[cell(found, row, column, block) for column in range(columns)] for row in range(rows)]
        wide = max(max(map(len, line)) for line in cells)
        label = len(str(rows - 1))
        panel = max((width - label) // (wide + 2), 1)
        for first in range(0, columns, panel):
            shown = range(first, min(first + panel, columns))
            lines += ["", f"block {block}"] if found.blocks > 1 and first == 0 else [""]
            lines.append(" " * label + "".join(f"  {column:>{wide}}" for column in shown))
            for row in range(rows):
                lines.append(f"{row:>{label}}" + "".join(f"  {cells[row][column]:>{wide}}" for column in shown))
    return "\n".join(lines)


def data(found: Layout) -> dict:
    return {
        "target": found.target,
        "operand": found.operand,
        "instruction": found.instruction.name,
        "builtin": found.instruction.builtin,
        "type": found.instruction.type(found.operand),
        "transposed": found.transposed,
        "shape": list(found.shape),
        "blocks": found.blocks,
        "lanes": found.lanes,
        "elements": found.elements,
        "replication": found.replication,
        # [register, lowest bit] of each element, then [block, row, column] of each lane's elements
        "registers": [list(found.register(e)) for e in range(found.elements)],
        "map": [[list(place) for place in lane] for lane in found.places],
    }


def draw(found: Layout, path: str) -> None:
    """Writes the matrix as a picture, a colour a lane."""
    timeline.check(path)
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    rows, columns = found.shape
    across = min(found.blocks, 4)
    down = -(-found.blocks // across)
    # A digit of 7-point type is 0.062 inches wide.
    places = [(row, column, block) for block in range(found.blocks) for row in range(rows) for column in range(columns)]
    wide = 0.062 * max(len(cell(found, *place)) for place in places) + 0.1
    size = (max(wide * columns * across, 4) + 1, 0.3 * rows * down + 1.2)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(down, across, squeeze=False)
    colours = colormaps["turbo"].resampled(found.lanes)
    for block, axis in enumerate(axes.flat):
        lanes = [[found.owners(row, column, block)[0][0] for column in range(columns)] for row in range(rows)]
        axis.imshow(lanes, cmap=colours, vmin=0, vmax=found.lanes - 1, alpha=0.55, aspect="auto")
        for row in range(rows):
            for column in range(columns):
                axis.text(column, row, cell(found, row, column, block), ha="center", va="center", fontsize=7)
        axis.set_xticks(range(columns))
        axis.set_yticks(range(rows))
        axis.tick_params(length=0, labelsize=7, labeltop=True, labelbottom=False)
        if found.blocks > 1:
            axis.set_title(f"block {block}", fontsize=8)
    figure.suptitle(title(found).replace(" · ", "\n", 1) + "\ncells: lane:element", fontsize=9)
    figure.savefig(path, dpi=110)


def show(options) -> int:
    try:
        found = layout(options.target, options.operand, options.instruction, options.transposed)
        if options.png:
            draw(found, options.png)
    except (ValueError, OSError) as error:
        print(f"layout: {error}", file=sys.stderr)
        return 2
    except ImportError as error:
        print(f"layout: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(data(found)))
    else:
        # A pipe has no width of its own, and 120 columns are what most viewers show.
        print(text(found, shutil.get_terminal_size().columns if sys.stdout.isatty() else 120))
    if options.png:
        print(f"wrote {options.png}", file=sys.stderr)
    return 0
