"""How long calls take: one, or several in turn."""

import math
import statistics
import time
from collections.abc import Callable, Sequence

import torch

_FLUSH_BYTES = 256 << 20  # more than any L2 holds
_FLUSHES = 4  # in a row: the GPU is busy until a slow host, too, has asked for the call
_SAMPLE = 200.0  # microseconds that a sample takes on the CPU at least: shorter calls are made several times
_FEWEST = 3  # rounds, however long they take

Call = Callable[[], object]


def in_turn(
    calls: Sequence[Call], rounds: int, timed: Callable[[Call], float], seconds: float = math.inf
) -> list[list[float]]:
    """The times of each call as `timed` takes them, round by round: whatever else the machine does falls on all.

    No round but the first few begins after so many seconds.
    """
    found: list[list[float]] = [[] for _ in calls]
    start = time.perf_counter()
    for turn in range(rounds):
        if turn >= _FEWEST and time.perf_counter() - start > seconds:
            break
        # The order alternates too: the second finds the caches as the first left them.
        for index in [*range(len(calls))][:: 1 if turn % 2 else -1]:
            found[index].append(timed(calls[index]))
    return found


class Clock:
    """Times in microseconds: so many rounds, and fewer where they would take longer than so many seconds. On a GPU the L2
    cache is emptied before each call; on the CPU a short call is made several times, and a time is the mean of these."""

    def __init__(self, device: str | torch.device, rounds: int, seconds: float = math.inf):
        self.device, self.rounds, self.seconds = device, rounds, seconds
        on_gpu = torch.device(device).type == "cuda"
        self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=device) if on_gpu else None

    def __str__(self) -> str:
        return f"medians of {self.rounds} in turn{'' if self._flush is None else ', cold L2'}"

    def once(self, call: Call, repeats: int = 1) -> float:
        if self._flush is None:
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            return (time.perf_counter() - start) * 1e6 / repeats
        with torch.cuda.device(self.device):  # whose stream the events are recorded on
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            for _ in range(_FLUSHES):
                self._flush.zero_()
            start.record()
            call()
            stop.record()
            stop.synchronize()
        return start.elapsed_time(stop) * 1e3

    def samples(self, calls: Sequence[Call], *, warm: int = 3) -> list[list[float]]:
        """All times of each call, taken in turn, after `warm` calls of each that are not timed."""
        start = time.perf_counter()
        for _ in range(warm):
            for call in calls:
                call()
            if time.perf_counter() - start > self.seconds / 4:
                break
        repeats = dict.fromkeys(calls, 1)
        if self._flush is None and warm:
            repeats = {call: max(1, math.ceil(_SAMPLE / self.once(call))) for call in calls}
        return in_turn(calls, self.rounds, lambda call: self.once(call, repeats[call]), self.seconds)

    def times(self, calls: Sequence[Call], *, warm: int = 3) -> list[float]:
        """The median of each call's samples."""
        return [statistics.median(found) for found in self.samples(calls, warm=warm)]

    def copy_bandwidth(self) -> float:
        """Bytes a microsecond that a copy within the device's memory reads and writes."""
        source = torch.ones(1 << 27 if self._flush is None else 1 << 29, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        (found,) = self.times([lambda: target.copy_(source)])
        return 2 * source.numel() / found


def took(microseconds: float) -> str:
    for unit, size in (("µs", 1), ("ms", 1e3)):
        if microseconds / size < 999.5:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds / 1e6:.3g} s"
