"""`python -m wmma_ops report --clock`: the planner's kernels by the emulator's clock, and what they may not fall below.

bfloat16; products of 4096 x 4096 x 1024, by rows and by columns; attention of 16 heads over 2,048 keys, and its gradients.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F

import wmma_ops
from wmma_ops.emulator.timing import Timing
from wmma_ops.hardware import arch
from wmma_ops.runtime.explain import Explanation, explained

Tensor = torch.Tensor


@dataclass(frozen=True)
class Sizes:
    mn: int = 4096
    k: int = 1024
    heads: int = 16
    queries: int = 2048


@dataclass(frozen=True)
class Work:
    """A call that is timed: by the clock, or on a card beside torch's."""

    op: str
    ours: Callable[[], object]
    torchs: Callable[[], object]
    flops: float

    def explained(self, target: str) -> Explanation:
        return explained(self.op, self.ours, target)


def _made(device: str, *shape: int) -> Tensor:
    """Zeros where they are emulated: what is timed of it does not depend on them."""
    if device == "cpu":
        return torch.zeros(shape, dtype=torch.bfloat16)
    return torch.randn(shape, dtype=torch.bfloat16, device=device)


def _heads(sizes: Sizes, device: str, size: int, count: int) -> list[Tensor]:
    """Where they are emulated all are one tensor, which the first cache has sooner than it would have several."""
    shape = (1, sizes.heads, sizes.queries, size)
    return [_made(device, *shape)] * count if device == "cpu" else [_made(device, *shape) for _ in range(count)]


def _product(sizes: Sizes, device: str, a_columns: bool, b_columns: bool) -> Work:
    def matrix(rows: int, columns: int, by_columns: bool) -> Tensor:
        return _made(device, columns, rows).mT if by_columns else _made(device, rows, columns)

    a, b = matrix(sizes.mn, sizes.k, a_columns), matrix(sizes.k, sizes.mn, b_columns)
    flops = 2.0 * sizes.mn * sizes.mn * sizes.k
    return Work("matmul", lambda: wmma_ops.matmul(a, b), lambda: torch.matmul(a, b), flops)


def _attention(sizes: Sizes, device: str, size: int, is_causal: bool) -> Work:
    q, k, v = _heads(sizes, device, size, 3)
    return Work(
        "attention",
        lambda: wmma_ops.attention(q, k, v, is_causal=is_causal),
        lambda: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal),
        _flops(sizes, size, is_causal),
    )


def _flops(sizes: Sizes, size: int, is_causal: bool) -> float:
    """Of attention; a causal mask leaves half."""
    return 4.0 * sizes.heads * sizes.queries**2 * size / (2 if is_causal else 1)


def _gradients(sizes: Sizes, device: str, size: int, is_causal: bool, unordered: bool = False) -> Work:
    g_out, q, k, v = _heads(sizes, device, size, 4)

    @functools.cache
    def forward() -> tuple[Tensor, Tensor]:
        if device == "cpu":
            return torch.zeros_like(q), torch.zeros(q.shape[:-1])
        return wmma_ops.attention(q, k, v, is_causal=is_causal)

    @functools.cache
    def forward_of_torch() -> tuple[Tensor, list[Tensor]]:
        given = [x.detach().requires_grad_() for x in (q, k, v)]
        return F.scaled_dot_product_attention(*given, is_causal=is_causal), given

    def torchs() -> object:
        out, given = forward_of_torch()
        return torch.autograd.grad(out, given, g_out, retain_graph=True)

    def ours() -> object:
        with _order(unordered):
            return torch.ops.wmma._attention_backward(g_out, q, k, v, *forward(), is_causal=int(is_causal))

    return Work("attention_backward", ours, torchs, 2.5 * _flops(sizes, size, is_causal))


@contextlib.contextmanager
def _order(unordered: bool) -> Iterator[None]:
    if unordered:
        wmma_ops.allow_unordered_sums()
    try:
        yield
    finally:
        if unordered:
            wmma_ops.allow_unordered_sums(False)


CASES: dict[str, tuple] = {  # who makes it, and of what
    "product NN": (_product, False, False),
    "product NT": (_product, False, True),
    "product TN": (_product, True, False),
    "product TT": (_product, True, True),
    "attention 64": (_attention, 64, False),
    "attention 64, causal": (_attention, 64, True),
    "attention 128": (_attention, 128, False),
    "attention 128, causal": (_attention, 128, True),
    "gradients 64": (_gradients, 64, False),
    "gradients 64, causal": (_gradients, 64, True),
    "gradients 128": (_gradients, 128, False),
    "gradients 128, causal": (_gradients, 128, True),
    "gradients 64, any order": (_gradients, 64, False, True),
    "gradients 128, any order": (_gradients, 128, False, True),
    "gradients 128, any order, causal": (_gradients, 128, True, True),
}


def labels(target: str) -> list[str]:
    """Of the cases: sums in any order are of kernels of their own on CDNA alone."""
    has_order = arch.target(target).family == "cdna"
    return [label for label in CASES if has_order or "any order" not in label]


def work(label: str, sizes: Sizes = Sizes(), device: str = "cpu") -> Work:
    make, *given = CASES[label]
    return make(sizes, device, *given)


# What they have, of the whole; in the labels' order.
SHARES = {
    "gfx90a": (0.86, 0.86, 0.86, 0.86, 0.87, 0.86, 0.92, 0.91, 0.84, 0.8, 0.89, 0.85, 0.85, 0.92, 0.87),
    "gfx942": (0.8, 0.78, 0.8, 0.8, 0.6, 0.59, 0.77, 0.76, 0.59, 0.54, 0.71, 0.67, 0.61, 0.75, 0.71),
    "gfx950": (0.71, 0.71, 0.71, 0.7, 0.42, 0.42, 0.62, 0.62, 0.49, 0.44, 0.59, 0.54, 0.53, 0.66, 0.61),
    "gfx1100": (0.88, 0.9, 0.84, 0.89, 0.77, 0.77, 0.82, 0.81, 0.83, 0.81, 0.71, 0.68),
    "gfx1151": (0.88, 0.9, 0.84, 0.89, 0.77, 0.77, 0.82, 0.82, 0.83, 0.81, 0.71, 0.7),
    "gfx1201": (0.82, 0.85, 0.8, 0.83, 0.66, 0.65, 0.71, 0.7, 0.76, 0.72, 0.73, 0.69),
}
LESS = 0.03  # is let pass


class Row(NamedTuple):
    label: str
    target: str
    timing: Timing
    limit: float

    @property
    def broken(self) -> bool:
        return self.timing.share < self.limit

    @property
    def loop(self) -> float | None:
        """The share of the longest loop that has products."""
        return next((loop.share for loop in self.timing.loops if loop.share > 0), None)


def measure(target: str) -> Iterator[Row]:
    for label, share in zip(labels(target), SHARES[target], strict=True):
        yield Row(label, target, work(label).explained(target).timing(), share - LESS)
