"""Products with few rows on AMD's targets: how near they come, by the clock, to what memory and the matrix units allow.

    python bench/few_rows.py [--target gfx942 ...] [--order NT|NN]

A line a product: what all its launches take together by the emulator's estimates of the whole GPU; the part of that time in
which memory alone could move each tensor once, or the matrix units multiply, whichever takes longer; and the kernel. These
are the figures of the table in docs/decisions/amd-loops.md. Nothing is measured. A minute on one core.
"""

import argparse
from dataclasses import dataclass

import torch

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan import model

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
SHAPES = (
    (1, 4096, 4096), (16, 4096, 4096), (16, 4096, 14336), (16, 14336, 4096), (16, 1024, 8192), (32, 4096, 4096),
    (64, 4096, 4096), (128, 4096, 4096), (256, 4096, 4096), (512, 1024, 8192),
)  # fmt: skip
_INSTRUCTIONS = 16_000_000


@dataclass(frozen=True)
class Found:
    microseconds: float
    bound: float  # microseconds of memory, or of the matrix units
    by_memory: bool  # of the two
    config: str

    @property
    def share(self) -> float:
        return self.bound / self.microseconds


def found(m: int, n: int, k: int, order: str, target: str) -> Found:
    """M x K by K x N in bfloat16, B by rows or, as a linear layer's weight, by columns (T)."""
    a = torch.zeros(m, k, dtype=torch.bfloat16)
    b = torch.zeros(n, k, dtype=a.dtype).mT if order == "NT" else torch.zeros(k, n, dtype=a.dtype)
    plan = wmma_ops.explain("matmul", a, b, target=target)
    estimates = [launch.timing(instructions=_INSTRUCTIONS).estimate for launch in plan.launches]
    per_microsecond = estimates[0].gigahertz * 1000
    card, row = model.CARDS[target], arch.target(target)
    memory = 2 * (m * k + k * n + m * n) / card.memory / per_microsecond
    matrix = 2 * m * n * k / model.rate(row, a.dtype, lanes=False) / card.units / per_microsecond
    total = sum(estimate.microseconds for estimate in estimates)
    return Found(total, max(memory, matrix), memory >= matrix, str(plan.config))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", nargs="+", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--order", default="NT", choices=("NT", "NN"))
    options = parser.parse_args()
    print(f"{'':<24} µs of estimate, share of the bound, which it is, kernel ({options.order})")
    for target in options.target:
        for shape in SHAPES:
            one = found(*shape, options.order, target)
            what = "memory" if one.by_memory else "matrix"
            name = f"{target} {'x'.join(map(str, shape))}"
            print(f"{name:<24} {one.microseconds:8.1f} {one.share:5.2f} {what} {one.config}", flush=True)


if __name__ == "__main__":
    main()
