"""What became of the products and attentions of the graphs that were compiled."""

import weakref
from collections import Counter, deque
from dataclasses import dataclass, field

from rich import box
from rich.console import Console
from rich.table import Table
from torch.fx import Node

from wmma_ops import torch_internals

_KEPT = 64  # reports


@dataclass(frozen=True)
class Entry:
    """One product or attention, or several that one op computes."""

    pattern: str  # what it is: "linear + gelu"
    nodes: tuple[str, ...]  # their names in the graph
    op: str | None  # that replaced them; None where they were left
    reason: str
    line: str = ""  # of the model, that wrote the first of them


@dataclass
class Report:
    """One compiled graph. Printed, it is a table, with a line for what is alike in several layers."""

    graph: str | None  # Dynamo's number for it; None outside of Dynamo
    entries: list[Entry] = field(default_factory=list)

    @property
    def rewritten(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.op is not None]

    @property
    def left(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.op is None]

    def __str__(self) -> str:
        title = f"graph {self.graph or '?'}: {len(self.rewritten)} rewritten, {len(self.left)} left"
        if not self.entries:
            return f"{title}; it has no product and no attention"
        table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="")
        for heading in ("what", "became", "because", "line"):
            table.add_column(heading, overflow="fold")
        alike = Counter((entry.pattern, entry.op, entry.reason, entry.line) for entry in self.entries)
        for (pattern, op, reason, line), times in alike.items():  # a model's layers have the same ones
            what = pattern if times == 1 else f"{pattern}  ×{times}"
            table.add_row(what, f"wmma.{op}" if op else "(left)", reason, line)
        console = Console(width=120, no_color=True, highlight=False, markup=False)
        with console.capture() as capture:
            console.print(table)
        return "\n".join(line.rstrip() for line in capture.get().strip().splitlines())


_reports: deque[Report] = deque(maxlen=_KEPT)
_compilation: weakref.ref | None = None  # that the latest report is of


def reports() -> list[Report]:
    """The reports of the last graphs, the latest last."""
    return list(_reports)


def last_report() -> Report:
    """What was rewritten in the graph that was compiled last, and what was left; each with its reason.

    A model with graph breaks is several graphs: see `reports`. A graph that Inductor found in its cache was rewritten when
    it was put there, and is in no report.
    """
    return _reports[-1] if _reports else Report(None)


def report_to_add_to() -> Report:
    """The report of the compilation under way: its subgraphs are seen one after the other."""
    global _compilation
    context = torch_internals.compilation()
    if context is None or not _reports or _compilation is None or _compilation() is not context:
        _reports.append(Report(None if context is None else str(context.compile_id)))
        _compilation = None if context is None else weakref.ref(context)
    return _reports[-1]


def line_of(node: Node) -> str:
    """The line of the model that made the node, as far as Dynamo tells."""
    for text in reversed((node.meta.get("stack_trace") or "").splitlines()):
        text = text.strip()
        if text.startswith('File "') and ", line " in text:
            path, _, rest = text.removeprefix('File "').partition('", line ')
            return f"{path.rpartition('/')[2]}:{rest.partition(',')[0]}"
    return ""
