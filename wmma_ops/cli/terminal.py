"""What the commands print with: tables on standard output, progress on standard error."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def output() -> Console:
    # A pipe is no terminal with 80 columns: give rows the width they need.
    return Console(width=None if sys.stdout.isatty() else 140)


def bars() -> Progress:
    """A context; its tasks are a row each: what is done, of how much, for how long. Shown on a terminal alone."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty())
