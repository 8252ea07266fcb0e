"""Our attention against scaled_dot_product_attention on a GPU: medians in turn, cold L2, one line a shape.

python bench/bench_attention.py [--quick] [--json FILE]
"""

import argparse
import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from bench_gemm import FLUSH_BYTES, check, times
from timing import commit
from torch.nn.attention import SDPBackend, sdpa_kernel

import wmma_ops


@dataclass(frozen=True)
class Shape:
    batch: int
    heads: int
    sq: int
    skv: int
    e: int
    causal: bool = False
    kv_heads: int | None = None

    def __str__(self) -> str:
        heads = f"h{self.heads}" + (f"/{self.kv_heads}" if self.kv_heads else "")
        length = f"s{self.skv}" if self.sq == self.skv else f"{self.sq} of s{self.skv}"
        return f"b{self.batch} {heads} {length} d{self.e}" + (" causal" if self.causal else "")

    @property
    def flops(self) -> float:
        """Of the forward pass; a causal mask leaves half."""
        return 4 * self.batch * self.heads * self.sq * self.skv * self.e / (2 if self.causal else 1)


LARGE = (
    Shape(4, 16, 4096, 4096, 64),
    Shape(4, 16, 4096, 4096, 128),
    Shape(4, 16, 4096, 4096, 128, causal=True),
    Shape(2, 32, 8192, 8192, 128, causal=True),
)
DECODE = (Shape(8, 32, 1, 8192, 128, kv_heads=8),)
PEERS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def operands(shape: Shape, gradients: bool = False) -> list[torch.Tensor]:
    kv_heads = shape.kv_heads or shape.heads
    sizes = (shape.heads, shape.sq), (kv_heads, shape.skv), (kv_heads, shape.skv)
    return [
        torch.randn(shape.batch, heads, length, shape.e, dtype=torch.bfloat16, device="cuda", requires_grad=gradients)
        for heads, length in sizes
    ]


def sdpa(backend: SDPBackend, shape: Shape, q, k, v) -> torch.Tensor:
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(q, k, v, is_causal=shape.causal, enable_gqa=shape.kv_heads is not None)


def ours(shape: Shape, q, k, v) -> torch.Tensor:
    return wmma_ops.attention(q, k, v, is_causal=shape.causal, enable_gqa=shape.kv_heads is not None)[0]


def peers(shape: Shape, tensors: list[torch.Tensor]) -> dict[str, SDPBackend]:
    """Those that take the shape."""
    found = {}
    for name, backend in PEERS.items():
        try:
            sdpa(backend, shape, *tensors)
            found[name] = backend
        except RuntimeError:
            pass
    return found


def forward(shape: Shape, rounds: int, flush: torch.Tensor) -> dict[str, float]:
    tensors = operands(shape)
    found = peers(shape, tensors)
    for backend in found.values():
        check(ours(shape, *tensors), sdpa(backend, shape, *tensors))
    calls = [lambda: ours(shape, *tensors)]
    calls += [lambda backend=backend: sdpa(backend, shape, *tensors) for backend in found.values()]
    return dict(zip(("ours", *found), times(calls, rounds, flush), strict=True))


def backward(shape: Shape, rounds: int, flush: torch.Tensor) -> dict[str, float]:
    tensors = operands(shape, gradients=True)
    found = peers(shape, tensors)
    outs = [ours(shape, *tensors), *(sdpa(backend, shape, *tensors) for backend in found.values())]
    g_out = torch.randn_like(outs[0])
    got = [torch.autograd.grad(out, tensors, g_out, retain_graph=True) for out in outs]
    for other in got[1:]:
        for mine, theirs in zip(got[0], other, strict=True):
            check(mine, theirs)
    calls = [lambda out=out: torch.autograd.grad(out, tensors, g_out, retain_graph=True) for out in outs]
    return dict(zip(("ours", *found), times(calls, rounds, flush), strict=True))


def rows(rounds: int, flush: torch.Tensor) -> Iterator[tuple[str, Shape, float, dict[str, float]]]:
    """(group, shape, FLOP, microseconds by who took them)."""
    for shape in LARGE:
        yield "forward", shape, shape.flops, forward(shape, rounds, flush)
    for shape in LARGE:
        yield "backward", shape, 2.5 * shape.flops, backward(shape, rounds, flush)
    for shape in DECODE:
        yield "decode", shape, shape.flops, forward(shape, rounds, flush)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", help="also write the rows to a file")
    options = parser.parse_args()
    rounds = 9 if options.quick else 31
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {commit()}, bf16, medians of {rounds}, cold L2")
    kept: list[dict] = []
    for group, shape, flops, taken in rows(rounds, flush):
        mine = taken.pop("ours")
        kept.append({"group": group, "shape": str(shape), "ours_us": mine, **{f"{k}_us": x for k, x in taken.items()}})
        others = "  ".join(
            f"{name} {taken[name]:8.1f} µs {taken[name] / mine:5.2f}×" if name in taken else f"{name}      n/a"
            for name in PEERS
        )
        print(f"{group:8} {shape!s:28} {mine:8.1f} µs {flops / mine / 1e6:6.1f} TFLOP/s  {others}")
    for group in dict.fromkeys(row["group"] for row in kept):
        for names, what in ((("flash",), "FlashAttention-2"), (tuple(PEERS), "the best of SDPA")):
            ratios = []
            for row in kept:
                theirs = [row[f"{name}_us"] for name in names if f"{name}_us" in row]
                if row["group"] == group and theirs:
                    ratios.append(min(theirs) / row["ours_us"])
            if ratios:
                mean = math.exp(statistics.fmean(map(math.log, ratios)))
                print(f"{group}: geometric mean {mean:.2f}× the speed of {what}, least {min(ratios):.2f}×")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(kept, file, indent=1)


if __name__ == "__main__":
    main()
