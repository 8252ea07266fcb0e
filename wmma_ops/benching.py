"""What a call of an op takes on the device at hand, beside torch's own: medians, taken in turn."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

import wmma_ops
from wmma_ops import activations, calls

OPS = ("matmul", "linear", "addmm")
SHAPES = ((1, 4096, 4096), (16, 4096, 4096), (128, 4096, 14336), (512, 1024, 4096), (4096, 4096, 4096))  # M, N, K
_FLUSH_BYTES = 256 << 20  # more than any L2 holds


@dataclass(frozen=True)
class Row:
    """One shape's times in microseconds."""

    m: int
    n: int
    k: int
    ours: float
    torchs: float
    error: float  # of ours, relative, against torch's result
    flops: float
    bytes: float  # that must be read and written once

    @property
    def ratio(self) -> float:
        return self.torchs / self.ours


class Clock:
    """Medians of so many rounds. On a GPU the L2 cache is emptied before each call."""

    def __init__(self, device: str, rounds: int):
        self.device, self.rounds = device, rounds
        self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=device) if device == "cuda" else None

    def times(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        """The median of each call's time in microseconds, taken in turn."""
        for call in calls:
            for _ in range(3):
                call()
        found = [[] for _ in calls]
        for turn in range(self.rounds):
            # Whatever else the machine does falls on all.
            for index in [*range(len(calls))][:: 1 if turn % 2 else -1]:
                found[index].append(self._time(calls[index]))
        return [statistics.median(x) for x in found]

    def copy_bandwidth(self) -> float:
        """Bytes a microsecond that a copy within the device's memory reads and writes."""
        source = torch.ones(1 << 29 if self.device == "cuda" else 1 << 27, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        (found,) = self.times([lambda: target.copy_(source)])
        return 2 * source.numel() / found

    def _time(self, call: Callable[[], object]) -> float:
        if self._flush is None:
            start = time.perf_counter()
            call()
            return (time.perf_counter() - start) * 1e6
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self._flush.zero_()
        start.record()
        call()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) * 1e3


def measure(op: str, shapes: Sequence[tuple[int, int, int]], options, clock: Clock) -> Iterator[Row]:
    """A row for each shape; `options` are those of `calls.add_options`."""
    for m, n, k in shapes:
        arguments, keywords = calls.call(op, m, n, k, options, clock.device)
        ours, torchs = _calls(op, arguments, keywords)
        got, want = ours(), torchs()
        error = ((got.double() - want.double()).norm() / want.double().norm()).item()
        mine, theirs = clock.times([ours, torchs])
        tensors = [x for x in (*arguments, *keywords.values(), got) if isinstance(x, torch.Tensor)]
        moved = sum(x.numel() * x.element_size() for x in tensors)
        yield Row(m, n, k, mine, theirs, error, 2.0 * m * n * k * (options.batch or 1), moved)


def _calls(op: str, arguments: tuple, keywords: dict) -> tuple[Callable[[], torch.Tensor], Callable[[], torch.Tensor]]:
    """Ours, and what one writes in torch for the same."""
    function = getattr(wmma_ops, op)
    if op == "linear":
        x, weight, bias = arguments
        residual = keywords["residual"]
        act = activations.by_code(activations.code(op, "activation", keywords.get("activation"))).forward

        def torchs():
            y = F.linear(x, weight, bias)
            return act(y if residual is None else y + residual)
    else:

        def torchs():
            return getattr(torch, op)(*arguments)

    return lambda: function(*arguments, **keywords), torchs
