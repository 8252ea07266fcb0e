"""Counts which ops run, as the dispatcher sees them: not what a pass or a mode says of itself."""

import contextlib
from collections import Counter

import torch

TORCHS_ATTENTION = "aten::_scaled_dot_product"


@contextlib.contextmanager
def ran(*others: str):
    """Counts our ops as they run, eager or compiled; the counter is full once the block is over.

    `others` are beginnings of names: what begins so is counted under it.
    """
    counts = Counter()
    with torch.autograd.profiler.profile(use_kineto=False) as profile:
        yield counts
    for event in profile.function_events:
        namespace, _, name = event.name.partition("::")
        if namespace in ("wmma", "wmma_raw") and not name.startswith("_"):
            counts[name] += 1
        counts.update(other for other in others if event.name.startswith(other))
