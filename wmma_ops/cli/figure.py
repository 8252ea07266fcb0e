"""The figure of a run: how fast ours is beside each peer, and where the copy's bandwidth is known, the roofline."""

import textwrap
from pathlib import Path

from wmma_ops.cli.benching import Row, Run
from wmma_ops.emulator.timing import timeline
from wmma_ops.runtime.clock import took

_THEMES = {"light": ("#1f2328", "#d0d7de"), "dark": ("#e6edf3", "#3d444d")}  # text, lines
_PEERS = ("#3b82f6", "#f59e0b", "#10b981", "#ec4899", "#a855f7")  # seen on white and on black
_TICKS = (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16)
_ROW, _NARROW = 0.2, 4.4  # inches


def draw(run: Run, path: str, narrow: bool = False) -> list[Path]:
    """Draws it for a light page and for a dark one: of speed.svg the files speed-light.svg and speed-dark.svg. A narrow one
    has one column, as wide as a phone."""
    timeline.check(path)
    import matplotlib

    asked = Path(path)
    groups = [(group, [row for row in rows if row.ratios]) for group, rows in run.groups()]
    groups = [(group, rows) for group, rows in groups if rows]
    if not groups:
        raise ValueError("--plot: no row has a peer to be drawn beside")

    found = []
    for theme, (ink, line) in _THEMES.items():
        style: dict[str, object] = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), ink)
        style |= {"axes.edgecolor": line, "grid.color": line, "svg.hashsalt": "wmma_ops", "font.size": 8}
        style["svg.fonttype"] = "none"  # text stays text
        with matplotlib.rc_context(style):
            found.append(asked.with_stem(f"{asked.stem}-{theme}"))
            # Without a date, the same run gives the same bytes.
            metadata = {"Date": None} if asked.suffix == ".svg" else None
            _figure(run, groups, ink, narrow).savefig(found[-1], dpi=110, transparent=True, metadata=metadata)
    return found


def _figure(run: Run, groups: list[tuple[str, list[Row]]], ink: str, narrow: bool):
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    peers = list(dict.fromkeys(name for _, rows in groups for row in rows for name in row.ratios))
    colors = {name: _PEERS[index % len(_PEERS)] for index, name in enumerate(peers)}
    columns = [groups] if narrow else _columns(groups)
    bandwidth = run.about.get("copy_gb_per_second")
    roof = not narrow and bandwidth is not None and all(row.flops and row.bytes for row in run.rows)
    lines = max(sum(len(rows) + 1 for _, rows in column) for column in columns)
    count = len(columns) + roof
    width, height = _NARROW if narrow else 5.5 * count, max(_ROW * lines, 2.5 if roof else 0) + 1.2
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(1, count, squeeze=False)[0]
    ratios = [ratio for _, rows in groups for row in rows for ratio in row.ratios.values()]
    limits = min(0.9, 0.95 * min(ratios)), max(1.1, 1.05 * max(ratios))
    for panel, column in zip(panels, columns, strict=False):
        _speeds(panel, column, colors, limits, ink)
    if roof:
        _roofline(panels[-1], run.rows, colors, bandwidth * 1e3, ink)
    handles = [Line2D([], [], marker="o", linestyle="", color=colors[name], label=name) for name in peers]
    close = {"columnspacing": 1.0, "handletextpad": 0.1} if narrow else {}
    figure.legend(handles=handles, loc="outside lower center", ncols=len(peers), frameon=False, **close)
    figure.suptitle(textwrap.fill(run.heading, 60) if narrow else run.heading, fontsize=8 if narrow else 9)
    return figure


def _columns(groups: list[tuple[str, list[Row]]]) -> list[list[tuple[str, list[Row]]]]:
    """One column of groups, or two of about the same height."""
    lines = [len(rows) + 1 for _, rows in groups]
    if sum(lines) <= 16 or len(groups) == 1:
        return [groups]
    cut = min(range(1, len(groups)), key=lambda at: max(sum(lines[:at]), sum(lines[at:])))
    return [groups[:cut], groups[cut:]]


def _speeds(panel, groups, colors: dict[str, str], limits: tuple[float, float], ink: str) -> None:
    """A line for each case, a dot for each peer; right of 1 ours is the faster."""
    place, labels = 0, {}
    for group, rows in groups:
        labels[place] = group
        for row in rows:
            place += 1
            labels[place] = row.name
            for name, ratio in row.ratios.items():
                panel.plot(ratio, place, "o", color=colors[name], markersize=4.5, zorder=3)
            panel.text(1.01, place, took(row.ours), transform=panel.get_yaxis_transform(), va="center", fontsize=7)
        place += 1
    headings = {group for group, _ in groups}
    panel.set_yticks([*labels], [*labels.values()])
    for label in panel.get_yticklabels():
        if label.get_text() in headings:
            label.set_fontweight("bold")
    ticks = [tick for tick in _TICKS if limits[0] <= tick <= limits[1]]
    panel.set(
        xscale="log", xlim=limits, ylim=(place - 0.4, -0.6), xlabel="speed of ours ÷ the other's;\nright: our time"
    )
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.minorticks_off()
    panel.tick_params(length=0)
    panel.grid(axis="x", linewidth=0.5)
    panel.axvline(1, color=ink, linewidth=1)
    panel.spines[:].set_visible(False)


def _roofline(panel, rows: list[Row], colors: dict[str, str], bandwidth: float, ink: str) -> None:
    """What a copy's bandwidth allows, and the best that was measured."""
    intensity = [row.flops / row.bytes for row in rows]
    ours = [row.flops / row.ours / 1e6 for row in rows]
    panel.scatter(intensity, ours, color=ink, label="ours", s=16, zorder=3)
    best = max(ours)
    for name, color in colors.items():
        found = [
            (at, row.flops / row.times[name] / 1e6)
            for at, row in zip(intensity, rows, strict=True)
            if name in row.times
        ]
        panel.scatter(*zip(*found, strict=True), color=color, s=16, zorder=3)
        best = max(best, *(speed for _, speed in found))
    knee = best * 1e6 / bandwidth
    ends = min(*intensity, knee) / 2, max(*intensity, knee) * 2
    panel.plot([ends[0], knee, ends[1]], [ends[0] * bandwidth / 1e6, best, best], linewidth=1, color=ink)
    panel.legend(fontsize=7, frameon=False, loc="lower right")
    panel.set(xscale="log", yscale="log", xlabel="FLOP per byte", ylabel="TFLOP/s")
    panel.set_title("roof: a copy's bandwidth, and the best measured here", fontsize=8)
