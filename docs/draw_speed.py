"""Draws the figure of speed, for screens and for phones, from what was measured: python docs/draw_speed.py"""

import json
from pathlib import Path

from wmma_ops.cli.benching import Run
from wmma_ops.cli.figure import draw

ROOT = Path(__file__).parents[1]

if __name__ == "__main__":
    run = Run.of(json.loads((ROOT / "bench/results/h200.json").read_text()))
    for name, narrow in (("speed", False), ("speed-narrow", True)):
        draw(run, str(ROOT / f"docs/assets/{name}.svg"), narrow)
