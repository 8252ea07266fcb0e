"""Attention's loops on AMD's targets by the clock: windows, packed sequences and pages beside plain ones, and decoding.

    python bench/attention_loops.py [--target gfx942 ...] [--case NAME ...]

bfloat16, heads of 64 and 128. A line a kind of call: the matrix pipes' share in the longest loop that has products, and of
the whole; of unequal sequences it is the longest one's. Then one query for each of 32 sequences, 8 heads of queries a head
of keys, from tensors and from pages of 64: the part of the estimated time in which memory alone could bring keys and values.
These are the figures of the table in docs/decisions/amd-loops.md. Nothing is measured. Some minutes on one core.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch

import wmma_ops
from wmma_ops.plan import model
from wmma_ops.runtime.explain import explained

Tensor = torch.Tensor
TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201")
SIZES = (64, 128)
HEADS, TOKENS = 32, 2048
PAGE = 64
WINDOW = 1024
ROWS = 256  # of a block; what its rows see within a window is WINDOW + ROWS keys long
SEQUENCES, KEYS, KV_HEADS, GROUP = 32, 4096, 8, 8  # of decoding
_INSTRUCTIONS = 16_000_000


def _ends(*lengths: int) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).int()


def _made(*shape: int) -> Tensor:
    """Zeros: what is timed does not depend on them."""
    return torch.zeros(shape, dtype=torch.bfloat16)


def dense(size: int, causal: bool = True, window: int = -1, tokens: int = TOKENS) -> Callable[[], object]:
    x = _made(1, HEADS, tokens, size)
    return lambda: wmma_ops.attention(x, x, x, window=(window, 0 if causal else -1))


def packed(size: int, *lengths: int) -> Callable[[], object]:
    x, ends = _made(sum(lengths), HEADS, size), _ends(*lengths)
    return lambda: wmma_ops.varlen_attention(x, x, x, ends, ends, max(lengths), max(lengths), window_size=(-1, 0))


def in_pages(tokens: int, sequences: int, heads: int, size: int) -> tuple[Tensor, Tensor]:
    """Keys or values, and a table that names the pages in no order."""
    pages = _made(sequences * tokens // PAGE, PAGE, heads, size)
    order = torch.randperm(pages.shape[0], generator=torch.Generator().manual_seed(0))
    return pages, order.view(sequences, -1).int()


def paged(size: int) -> Callable[[], object]:
    query, ends, used = _made(TOKENS, HEADS, size), _ends(TOKENS), torch.tensor([TOKENS]).int()
    pages, table = in_pages(TOKENS, 1, HEADS, size)
    return lambda: wmma_ops.varlen_attention(
        query, pages, pages, ends, None, TOKENS, None, seqused_k=used, block_table=table, window_size=(-1, 0)
    )


def decode(size: int) -> Callable[[], object]:
    query, x = _made(SEQUENCES, KV_HEADS * GROUP, 1, size), _made(SEQUENCES, KV_HEADS, KEYS, size)
    value = _made(SEQUENCES, KV_HEADS, KEYS, size)
    return lambda: wmma_ops.attention(query, x, value, enable_gqa=True)


def decode_paged(size: int) -> Callable[[], object]:
    query, ends = _made(SEQUENCES, KV_HEADS * GROUP, size), _ends(*[1] * SEQUENCES)
    used = torch.full((SEQUENCES,), KEYS).int()
    key, table = in_pages(KEYS, SEQUENCES, KV_HEADS, size)
    value = torch.zeros_like(key)
    return lambda: wmma_ops.varlen_attention(
        query, key, value, ends, None, 1, None, seqused_k=used, block_table=table, enable_gqa=True
    )


LOOPS: dict[str, Callable[[int], Callable[[], object]]] = {
    "every key": lambda size: dense(size, causal=False),
    "causal": dense,
    "causal, as many keys": lambda size: dense(size, tokens=WINDOW + ROWS),
    "causal, window": lambda size: dense(size, window=WINDOW),
    "causal, packed": lambda size: packed(size, TOKENS, TOKENS),
    "causal, packed, unequal": lambda size: packed(size, TOKENS, 20, 39, 137),
    "causal, pages": paged,
}
DECODE = {"decode": decode, "decode, pages": decode_paged}


@dataclass(frozen=True)
class Found:
    loop: float
    whole: float
    config: str


def loop(call: Callable[[], object], target: str) -> Found:
    plan = explained(_op(call), call, target)
    timing = max((launch.timing(instructions=_INSTRUCTIONS) for launch in plan.launches), key=lambda one: one.cycles)
    one = next(loop for loop in timing.loops if loop.share > 0)
    return Found(one.share, timing.share, str(plan.config))


def of_memory(call: Callable[[], object], size: int, target: str) -> tuple[float, float, str]:
    """Of one query for each sequence: the estimate in microseconds, the part in which memory brings keys and values."""
    plan = explained(_op(call), call, target)
    estimates = [launch.timing(instructions=_INSTRUCTIONS).estimate for launch in plan.launches]
    microseconds = sum(one.microseconds for one in estimates)
    moved = 2 * 2 * SEQUENCES * KEYS * KV_HEADS * size
    return (
        microseconds,
        moved / model.CARDS[target].memory / estimates[0].gigahertz / 1000 / microseconds,
        str(plan.config),
    )


def _op(call: Callable[[], object]) -> str:
    return "varlen_attention" if "varlen_attention" in call.__code__.co_names else "attention"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", nargs="+", default=list(TARGETS), choices=TARGETS)
    parser.add_argument("--case", nargs="+", default=[*LOOPS, *DECODE], choices=[*LOOPS, *DECODE])
    options = parser.parse_args()
    print(f"{'':<34} loop's share, the whole's, kernel; of decoding, memory's")
    for target in options.target:
        for size in SIZES:
            for name in options.case:
                label = f"{target} {size} {name}"
                if name in LOOPS:
                    found = loop(LOOPS[name](size), target)
                    print(f"{label:<34} {found.loop:5.3f} {found.whole:5.3f}  {found.config}", flush=True)
                else:
                    took, share, config = of_memory(DECODE[name](size), size, target)
                    print(f"{label:<34} {share:5.2f} of memory's bandwidth, {took:8.1f} µs  {config}", flush=True)


if __name__ == "__main__":
    main()
