"""Draws the front page's picture of a fault that the emulator finds: python docs/draw_fault.py

A kernel in which one barrier is missing, and what the emulator says of it.
"""

import io
import re
from pathlib import Path

import torch
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

import wmma_ops
from wmma_ops.emulator import Race

PICTURE = Path(__file__).parent / "assets" / "fault.svg"
TARGET = "gfx1201"
COLUMNS = 56
SOURCE = """\
#include <wmma/grid.hpp>

// Turns rows of 64 around, in shared memory.
extern "C" __global__
void turn(const float* from, float* to, int n) {
  __shared__ float row[64];
  int i = threadIdx.x;
  for (; n > 0; --n, from += 64, to += 64) {
    row[i] = from[i];
    wmma::sync_workgroup();
    to[i] = row[63 - i];
  }
}
"""


def fault() -> Race:
    """What the emulator says of the kernel."""
    turn = wmma_ops.Kernel(SOURCE, "turn")
    rows, turned = torch.randn(4, 64), torch.empty(4, 64)
    try:
        with wmma_ops.emulate(TARGET):
            turn[1, 64](rows, turned, 4)
    except Race as found:
        return found
    raise AssertionError("the emulator found no race")


def picture(found: Race) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    line = int(re.search(r"\.hip:(\d+)", str(found)).group(1))
    console.print(Syntax(SOURCE.rstrip(), "cpp", line_numbers=True, highlight_lines={line}, theme="monokai"))
    console.print(Text.assemble((type(found).__name__, "bold red"), ": ", str(found)))
    svg = console.export_svg(title=f'with wmma_ops.emulate("{TARGET}"):', unique_id="fault")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)  # nothing is fetched from elsewhere


if __name__ == "__main__":
    PICTURE.write_text(picture(fault()))
