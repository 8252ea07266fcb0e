"""What the commands print with: tables on standard output, progress on standard error."""

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def output() -> Console:
    # A pipe is no terminal with 80 columns: give rows the width they need.
    return Console(width=None if sys.stdout.isatty() else 140)


def bars() -> Progress:
    """A context; its tasks are a row each: what is done, of how much, for how long. Shown on a terminal alone."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty())


@contextlib.contextmanager
def steps(total: int) -> Iterator[Callable[[str], None]]:
    """Within it, the function that it gives says what was done, step by step: a bar, or lines where no terminal is."""
    if sys.stderr.isatty():
        with bars() as progress:
            task = progress.add_task("", total=total)
            yield lambda what: progress.update(task, advance=1, description=what)
    else:
        count = itertools.count(1)
        yield lambda what: print(f"{next(count)} of {total}: {what}", file=sys.stderr, flush=True)
