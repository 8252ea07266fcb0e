"""Counts which ops run, as the dispatcher sees them: not what a pass or a mode says of itself."""

import contextlib
from collections import Counter

from torch.autograd import profiler_legacy

TORCHS_ATTENTION = "aten::_scaled_dot_product"


@contextlib.contextmanager
def ran(*others: str):
    """Counts our ops as they run, eager or compiled; the counter is full once the block is over.

    `others` are beginnings of names: what begins so is counted under it.
    """
    counts = Counter()
    # The bare records: the newer profiler drops what lies outside its window by a clock that may step (all of it,
    # then), and the older one's own reading refuses what begins on one thread and ends on another (collectives).
    profiler_legacy._enable_profiler_legacy(profiler_legacy.profile().config())
    try:
        yield counts
    finally:
        threads = profiler_legacy._disable_profiler_legacy()
    for event in (event for events in threads for event in events if event.kind() == "push"):
        namespace, _, name = event.name().partition("::")
        if namespace in ("wmma", "wmma_raw") and not name.startswith("_"):
            counts[name] += 1
        counts.update(other for other in others if event.name().startswith(other))
