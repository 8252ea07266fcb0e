"""The drawing of a timing: a lane a wave, what it issues in the colour of its port, and what it waits for."""

from pathlib import Path

from wmma_ops.emulator.timing.record import Timing
from wmma_ops.emulator.timing.trace import Trace
from wmma_ops.emulator.timing.unit import BARRIER, Span

FORMATS = (".png", ".svg")
_LONG = 20_000  # cycles: more is drawn in part
_DOTS = 1_000  # across: what is nearer than one is drawn as one
_UNITS = {
    "matrix": ("matrix", "#2563eb"),
    "vector": ("vector", "#16a34a"), "packed": ("vector", "#16a34a"), "transcendental": ("vector", "#16a34a"),
    "shared": ("shared memory", "#d97706"),
    "memory": ("memory", "#dc2626"),
}  # fmt: skip
_SCALAR = ("scalar and others", "#6b7280")
_WAITS = {
    "matrix pipe": ("waits for the matrix pipe", "#bfdbfe"),
    "matrix result": ("waits for the matrix pipe", "#bfdbfe"),
    "packed behind matrix": ("waits for the matrix pipe", "#bfdbfe"),
    "wait for memory": ("waits for memory", "#fca5a5"),
    "memory's queue": ("waits for memory", "#fca5a5"),
    "wait for stores": ("waits for memory", "#fca5a5"),
    "wait for shared memory": ("waits for shared memory", "#fcd34d"),
    "wait for shared memory or scalars": ("waits for shared memory", "#fcd34d"),
    "shared memory's queue": ("waits for shared memory", "#fcd34d"),
    BARRIER: ("waits for other waves", "#d8b4fe"),
}
_OTHERS = ("waits for a result or a port", "#e5e7eb")


def check(path: str) -> None:
    """Whether a picture can be drawn there, before what takes long."""
    if Path(path).suffix.lower() not in FORMATS:
        raise ValueError(f"{path}: pictures end in {' or '.join(FORMATS)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("drawing needs matplotlib: pip install matplotlib") from error


def draw(trace: Trace, timing: Timing, title: str, path: str, cycles: int | None = None) -> None:
    """Writes the picture: so many cycles in the middle; all of it by default, or, where that is long, two rounds of the
    longest loop."""
    check(path)
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, PathPatch
    from matplotlib.path import Path as Shape

    first, last = 0, timing.cycles
    if cycles or last > _LONG:
        first = last // 2
        last = min(first + (cycles or int(2 * timing.loops[0].cycles if timing.loops else _LONG)), timing.cycles)
    bars: dict[tuple[int, str, str], list[tuple[int, int]]] = {}  # (wave, label, colour): (start, length)

    def keep(span: Span) -> None:
        if span.stop > first and span.start < last:
            label, colour = _WAITS.get(span.what, _OTHERS) if span.waits else _UNITS.get(span.what, _SCALAR)
            bars.setdefault((span.wave, label, colour), []).append((span.start, max(span.stop - span.start, 1)))

    trace.timing(keep)
    bars = {lane: _joined(spans, (last - first) // _DOTS) for lane, spans in bars.items()}
    with matplotlib.rc_context({"svg.hashsalt": "wmma_ops", "svg.fonttype": "none", "font.size": 8}):
        figure = Figure(figsize=(12, 0.32 * timing.waves + 2), layout="constrained")
        axis = figure.subplots()
        for (wave, label, colour), spans in bars.items():
            # What is issued lies over what is waited for.
            waits = label.startswith("waits")
            corners = []
            for start, length in spans:
                begin, end = max(start, first), min(start + length, last)
                low, high = wave - 0.4, wave + 0.4
                corners += [(begin, low), (begin, high), (end, high), (end, low), (begin, low)]
            codes = [Shape.MOVETO, Shape.LINETO, Shape.LINETO, Shape.LINETO, Shape.CLOSEPOLY] * len(spans)
            # One shape: a picture in SVG is then a third as large.
            axis.add_patch(PathPatch(Shape(corners, codes), facecolor=colour, zorder=1 if waits else 2, linewidth=0))
        axis.set(xlim=(first, last), ylim=(timing.waves - 0.4, -0.6), xlabel="cycles")
        axis.set_yticks(range(timing.waves), [f"wave {i}" for i in range(timing.waves)])
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
        shown = dict.fromkeys((label, colour) for _, label, colour in bars)
        order = dict.fromkeys([*_UNITS.values(), _SCALAR, *_WAITS.values(), _OTHERS])
        handles = [Patch(color=colour, label=label) for label, colour in order if (label, colour) in shown]
        figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
        part = f", of which {first:,} to {last:,} are drawn" if (first, last) != (0, timing.cycles) else ""
        busy = f"the matrix pipes are busy {timing.share:.0%} of them"
        figure.suptitle(
            f"{title or timing.target}: {timing.cycles:,} cycles{part}; {busy}\nbound by {timing.bound}", fontsize=10
        )
        metadata = {"Date": None} if Path(path).suffix.lower() == ".svg" else None
        figure.savefig(path, dpi=110, metadata=metadata)


def _joined(spans: list[tuple[int, int]], least: int) -> list[tuple[int, int]]:
    """Those between which there is no more than `least` as one."""
    found: list[tuple[int, int]] = []
    for start, length in sorted(spans):
        if found and start <= sum(found[-1]) + least:
            begin = found[-1][0]
            found[-1] = begin, max(sum(found[-1]), start + length) - begin
        else:
            found.append((start, length))
    return found
