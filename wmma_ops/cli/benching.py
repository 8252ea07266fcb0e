"""What a call of an op takes on the device at hand, beside torch's own: medians, taken in turn."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

import wmma_ops
from wmma_ops.cli import calls
from wmma_ops.ops import activations
from wmma_ops.runtime.clock import Clock

OPS = ("matmul", "linear", "addmm")
SHAPES = ((1, 4096, 4096), (16, 4096, 4096), (128, 4096, 14336), (512, 1024, 4096), (4096, 4096, 4096))  # M, N, K


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


def measure(op: str, shapes: Sequence[tuple[int, int, int]], options, clock: Clock) -> Iterator[Row]:
    """A row for each shape; `options` are those of `calls.add_options`."""
    for m, n, k in shapes:
        arguments, keywords = calls.call(op, {"m": m, "n": n, "k": k}, options, clock.device)
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
