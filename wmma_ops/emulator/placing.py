"""Where things of given sizes lie that follow each other as C has it: a struct's members, a kernel's arguments."""

from collections.abc import Iterable


def one_after_another(parts: Iterable[tuple[int, int]]) -> tuple[list[int], int, int]:
    """(where each starts, size, alignment) of what has parts of these sizes and alignments."""
    starts, end, largest = [], 0, 1
    for size, alignment in parts:
        starts.append(-(-end // alignment) * alignment)
        end, largest = starts[-1] + size, max(largest, alignment)
    return starts, -(-end // largest) * largest, largest
