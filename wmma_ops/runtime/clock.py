"""How long calls take: one, or several in turn."""

import statistics
import time
from collections.abc import Callable, Sequence

import torch

_FLUSH_BYTES = 256 << 20  # more than any L2 holds

Call = Callable[[], object]


def in_turn(calls: Sequence[Call], rounds: int, timed: Callable[[Call], float]) -> list[list[float]]:
    """The times of each call as `timed` takes them, round by round: whatever else the machine does falls on all."""
    found = [[] for _ in calls]
    for turn in range(rounds):
        # The order alternates too: the second finds the caches as the first left them.
        for index in [*range(len(calls))][:: 1 if turn % 2 else -1]:
            found[index].append(timed(calls[index]))
    return found


class Clock:
    """Times in microseconds, and medians of so many rounds. On a GPU the L2 cache is emptied before each call."""

    def __init__(self, device: str | torch.device, rounds: int):
        self.device, self.rounds = device, rounds
        on_gpu = torch.device(device).type == "cuda"
        self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=device) if on_gpu else None

    def once(self, call: Call) -> float:
        if self._flush is None:
            start = time.perf_counter()
            call()
            return (time.perf_counter() - start) * 1e6
        with torch.cuda.device(self.device):  # whose stream the events are recorded on
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            self._flush.zero_()
            start.record()
            call()
            stop.record()
            stop.synchronize()
        return start.elapsed_time(stop) * 1e3

    def times(self, calls: Sequence[Call], *, warm: int = 3) -> list[float]:
        """The median of each call, taken in turn, after `warm` calls of each that are not timed."""
        for call in calls:
            for _ in range(warm):
                call()
        return [statistics.median(found) for found in in_turn(calls, self.rounds, self.once)]

    def copy_bandwidth(self) -> float:
        """Bytes a microsecond that a copy within the device's memory reads and writes."""
        source = torch.ones(1 << 27 if self._flush is None else 1 << 29, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        (found,) = self.times([lambda: target.copy_(source)])
        return 2 * source.numel() / found
