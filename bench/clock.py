"""Our kernels' shares of the matrix pipes on AMD's targets, by the emulator's clock: the table of docs/pages/timing.md.

python bench/clock.py [gfx942 …]
"""

import sys

import torch

import wmma_ops
from wmma_ops.emulator.timing import Timing
from wmma_ops.runtime.explain import explained

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201")
MN, K = 4096, 1024
QUERIES = 2048


def product(a_columns: bool, b_columns: bool, target: str) -> Timing:
    def matrix(rows: int, columns: int, by_columns: bool) -> torch.Tensor:
        return (
            torch.zeros((columns, rows) if by_columns else (rows, columns), dtype=torch.bfloat16).mT
            if by_columns
            else (torch.zeros(rows, columns, dtype=torch.bfloat16))
        )

    return wmma_ops.explain("matmul", matrix(MN, K, a_columns), matrix(K, MN, b_columns), target=target).timing()


def attention(size: int, is_causal: bool, backward: bool, target: str) -> Timing:
    q = torch.zeros(1, 16, QUERIES, size, dtype=torch.bfloat16)
    if not backward:
        return wmma_ops.explain("attention", q, q, q, is_causal=is_causal, target=target).timing()
    lse = torch.zeros(1, 16, QUERIES)

    def call():
        return torch.ops.wmma._attention_backward(q, q, q, q, q, lse, is_causal=int(is_causal))

    return explained("attention_backward", call, target).timing()


CASES = {
    **{
        f"product {'NT'[a]}{'NT'[b]}": (product, a, b) for a in (False, True) for b in (False, True)
    },
    **{
        f"attention{' backward' if backward else ''}, size {size}{', causal' if causal else ''}": (
            attention, size, causal, backward,
        )
        for backward in (False, True)
        for size in (64, 128)
        for causal in (False, True)
    },
}  # fmt: skip


def main(targets: list[str]) -> None:
    print(f"| share of the matrix pipes | {' | '.join(targets)} |")
    print("|---" * (len(targets) + 1) + "|")
    for name, (call, *arguments) in CASES.items():
        shown = []
        for target in targets:
            timing = call(*arguments, target)
            loop = next((loop for loop in timing.loops if loop.share > 0), None)
            shown.append(f"{timing.share:.2f}{f' ({loop.share:.2f})' if loop else ''}")
        print(f"| {name} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(TARGETS))
