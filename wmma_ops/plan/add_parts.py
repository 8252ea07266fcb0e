"""The launch of a kernel that adds up what parts of sums have (kernels/wmma/tile/add_parts.hpp)."""

from math import ceil

from wmma_ops.plan.plan import KernelLaunch

THREADS = 256
_OF_BLOCK = 32  # sums


def launch(kernel: str, source: str, count: int, sum_bytes: int, early: bool) -> KernelLaunch:
    """Of so many sums."""
    return KernelLaunch(kernel, source, (ceil(count / _OF_BLOCK), 1), THREADS, THREADS * sum_bytes, early)
