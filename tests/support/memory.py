"""How much memory this process holds."""

import gc
import itertools
import os
import statistics
from collections.abc import Callable
from pathlib import Path


def _held() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def grown(work: Callable[[], object]) -> float:
    """KiB more after it than before, of three times the middle one: what is lost is lost each time.

    Of what is held, not of the most that ever was: what other tests once held would hide it.
    """
    held = [_held()]
    for _ in range(3):
        work()
        held.append(_held())
    return statistics.median(after - before for before, after in itertools.pairwise(held))
