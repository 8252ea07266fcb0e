"""Static figures of many kernels side by side, with the limits that they break."""

import json
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from wmma_ops import arch
from wmma_ops.plan.figures import Figures

Entry = tuple[str, "arch.Target | str", Figures, Sequence[str]]  # label, target, figures, broken limits

_COLUMNS = ("VGPRs", "AGPRs", "spills", "LDS bytes", "occupancy", "loop: matrix", "VALU", "LDS", "memory", "share")
_RATIOS = ("VALU/matrix", "LDS/matrix")


def rows(kernels: Iterable[Entry]) -> list[dict]:
    """What --json prints."""
    return [
        {
            "label": label,
            "target": target if isinstance(target, str) else target.name,
            "figures": figures.as_dict(),
            "broken": list(broken),
        }
        for label, target, figures, broken in kernels
    ]


def table(found: Iterable[dict]) -> Table:
    shown = Table(title="Static figures of the hot loops", title_justify="left")
    for name in ("kernel", "target"):
        shown.add_column(name, overflow="fold")
    for name in (*_COLUMNS, *_RATIOS):
        shown.add_column(name, justify="right")
    shown.add_column("broken limits", overflow="fold")
    for row in found:
        style = "red" if row["broken"] else None
        shown.add_row(row["label"], row["target"], *_cells(row["figures"]), "\n".join(row["broken"]), style=style)
    return shown


def _cells(figures: dict) -> list[str]:
    loop = figures["loop"] or {}
    resources = [figures[name] for name in ("vgprs", "agprs", "spills", "lds_bytes", "occupancy")]
    counts = [loop.get(name) for name in ("matrix", "valu", "lds", "vmem")]
    share = "-" if figures["share"] is None else f"{figures['share']:.0%}"
    ratios = ["-" if figures[name] is None else f"{figures[name]:.2f}" for name in ("valu_ratio", "lds_ratio")]
    return ["-" if value is None else f"{value:g}" for value in resources + counts] + [share, *ratios]


def report(kernels: Iterable[Entry], *, console: Console | None = None, as_json: bool = False) -> bool:
    """Prints every kernel's row; whether one of them breaks a limit."""
    found = rows(kernels)
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        (console or Console()).print(table(found))
    return any(row["broken"] for row in found)
