"""`python -m wmma_ops report --clock`: the planner's kernels by the emulator's clock, and what they may not fall below.

bfloat16; products of 4096 x 4096 x 1024, by rows and by columns; attention of 16 heads over 2,048 keys, and its gradients.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from wmma_ops.emulator.timing import Timing
from wmma_ops.runtime.explain import Explanation, explain, explained

MN, K = 4096, 1024
HEADS, QUERIES = 16, 2048


def _product(a_columns: bool, b_columns: bool, target: str) -> Explanation:
    def matrix(rows: int, columns: int, by_columns: bool) -> torch.Tensor:
        shape = (columns, rows) if by_columns else (rows, columns)
        made = torch.zeros(shape, dtype=torch.bfloat16)
        return made.mT if by_columns else made

    return explain("matmul", matrix(MN, K, a_columns), matrix(K, MN, b_columns), target=target)


def _attention(size: int, is_causal: bool, target: str) -> Explanation:
    q = torch.zeros(1, HEADS, QUERIES, size, dtype=torch.bfloat16)
    return explain("attention", q, q, q, is_causal=is_causal, target=target)


def _gradients(size: int, is_causal: bool, target: str) -> Explanation:
    q, lse = torch.zeros(1, HEADS, QUERIES, size, dtype=torch.bfloat16), torch.zeros(1, HEADS, QUERIES)

    def call():
        return torch.ops.wmma._attention_backward(q, q, q, q, q, lse, is_causal=int(is_causal))

    return explained("attention_backward", call, target)


CASES: dict[str, tuple[Callable[..., Explanation], bool | int, bool]] = {
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
}
# What they have, of the whole; in the cases' order.
SHARES = {
    "gfx90a": (0.86, 0.86, 0.78, 0.8, 0.87, 0.86, 0.71, 0.7, 0.84, 0.78, 0.92, 0.87),
    "gfx942": (0.8, 0.8, 0.8, 0.8, 0.54, 0.54, 0.75, 0.75, 0.59, 0.55, 0.73, 0.68),
    "gfx950": (0.69, 0.69, 0.68, 0.68, 0.42, 0.42, 0.6, 0.6, 0.45, 0.41, 0.55, 0.51),
    "gfx1100": (0.84, 0.85, 0.82, 0.84, 0.67, 0.68, 0.49, 0.49, 0.44, 0.46, 0.46, 0.46),
    "gfx1151": (0.84, 0.85, 0.82, 0.84, 0.67, 0.67, 0.49, 0.49, 0.45, 0.44, 0.44, 0.44),
    "gfx1201": (0.74, 0.75, 0.71, 0.72, 0.58, 0.58, 0.59, 0.61, 0.42, 0.43, 0.42, 0.38),
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
    for (label, (call, *arguments)), share in zip(CASES.items(), SHARES[target], strict=True):
        yield Row(label, target, call(*arguments, target).timing(), share - LESS)
