"""Draws main loops by the emulator's clock, in the middle of their kernels: python docs/draw_loops.py [FOLDER]

`make docs` draws them where a kernel, the planner or the emulator has changed, half a minute on two cores.
"""

import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from wmma_ops.emulator.timing import timeline
from wmma_ops.testing import clock

FOLDER = Path(__file__).parents[1] / "build/loops"


@dataclass(frozen=True)
class Picture:
    label: str  # of a case of the clock's
    target: str
    cycles: int  # that are drawn
    sizes: clock.Sizes

    @property
    def file(self) -> str:
        return f"loop-{self.label.replace(',', '').replace(' ', '-')}-{self.target}.svg"

    @property
    def name(self) -> str:
        return f"{self.label} on {self.target}"


PRODUCT, ATTENTION = clock.Sizes(k=512), clock.Sizes(queries=1024)
PICTURES = (
    Picture("product NT", "gfx942", 4300, PRODUCT),
    Picture("product NT", "gfx950", 4300, PRODUCT),
    Picture("attention 128", "gfx942", 4600, ATTENTION),
    Picture("attention 128", "gfx950", 2300, ATTENTION),
    Picture("attention 128", "gfx1100", 2400, clock.Sizes(queries=512)),
    Picture("gradients 128", "gfx90a", 4300, clock.Sizes(queries=512)),
    Picture("gradients 128, any order", "gfx950", 3600, clock.Sizes(queries=512)),
)


def draw(picture: Picture, folder: Path) -> Path:
    """Of a call's launches the one that takes longest."""
    launches = clock.work(picture.label, picture.sizes).explained(picture.target).launches
    traces = [launch.traced(part=True) for launch in launches]
    timings = [launch.timed(trace) for launch, trace in zip(launches, traces, strict=True)]
    longest = max(range(len(timings)), key=lambda i: timings[i].cycles)
    path = folder / picture.file
    timeline.draw(traces[longest], timings[longest], picture.name, str(path), picture.cycles)
    # A tenth of a point is as fine as any screen.
    path.write_text(re.sub(r"\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", path.read_text()))
    return path


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(min(len(PICTURES), len(os.sched_getaffinity(0)))) as pool:
        for path in pool.map(draw, PICTURES, [folder] * len(PICTURES)):
            print(f"wrote {path}, {path.stat().st_size // 1000} KB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
