"""Our attention against scaled_dot_product_attention on a GPU: medians in turn, cold L2, one line a shape.

python bench/bench_attention.py [--quick] [--json FILE]
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from gpu import Clock, check, parser, summary, write
from torch.nn.attention import SDPBackend, sdpa_kernel

import wmma_ops


@dataclass(frozen=True)
class Taken:
    """Microseconds of ours and of the peers, and why there are none of the others."""

    ours: float
    peers: dict[str, float]
    missing: dict[str, str]


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


def peers(shape: Shape, tensors: list[torch.Tensor]) -> tuple[dict[str, SDPBackend], dict[str, str]]:
    """Those that take the shape, and why the others do not."""
    found, missing = {}, {}
    for name, backend in PEERS.items():
        try:
            sdpa(backend, shape, *tensors)
            found[name] = backend
        except RuntimeError as error:
            missing[name] = str(error).strip().splitlines()[0].partition(". ")[0]
    return found, missing


def forward(shape: Shape, clock: Clock) -> Taken:
    tensors = operands(shape)
    found, missing = peers(shape, tensors)
    for backend in found.values():
        check(ours(shape, *tensors), sdpa(backend, shape, *tensors))
    calls = [lambda: ours(shape, *tensors)]
    calls += [lambda backend=backend: sdpa(backend, shape, *tensors) for backend in found.values()]
    mine, *others = clock.times(calls)
    return Taken(mine, dict(zip(found, others, strict=True)), missing)


def backward(shape: Shape, clock: Clock) -> Taken:
    tensors = operands(shape, gradients=True)
    found, missing = peers(shape, tensors)
    outs = [ours(shape, *tensors), *(sdpa(backend, shape, *tensors) for backend in found.values())]
    g_out = torch.randn_like(outs[0])
    got = [torch.autograd.grad(out, tensors, g_out, retain_graph=True) for out in outs]
    for other in got[1:]:
        for mine, theirs in zip(got[0], other, strict=True):
            check(mine, theirs)
    calls = [lambda out=out: torch.autograd.grad(out, tensors, g_out, retain_graph=True) for out in outs]
    mine, *others = clock.times(calls)
    return Taken(mine, dict(zip(found, others, strict=True)), missing)


def rows(clock: Clock) -> Iterator[tuple[str, Shape, float, Taken]]:
    """(group, shape, FLOP, what it took)."""
    for shape in LARGE:
        yield "forward", shape, shape.flops, forward(shape, clock)
    for shape in LARGE:
        yield "backward", shape, 2.5 * shape.flops, backward(shape, clock)
    for shape in DECODE:
        yield "decode", shape, shape.flops, forward(shape, clock)


def beside(taken: Taken) -> str:
    """What the peers took, and how much faster ours is."""
    texts = []
    for name in PEERS:
        if name in taken.peers:
            texts.append(f"{name} {taken.peers[name]:8.1f} µs {taken.peers[name] / taken.ours:5.2f}×")
        else:
            texts.append(f"{name} n/a ({taken.missing[name]})")
    return "  ".join(texts)


def main() -> None:
    options = parser(__doc__).parse_args()
    clock = Clock(options.quick)
    print(clock.header())
    kept: list[dict] = []
    for group, shape, flops, taken in rows(clock):
        times = {f"{name}_us": value for name, value in taken.peers.items()}
        kept.append({"group": group, "shape": str(shape), "ours_us": taken.ours, **times, "missing": taken.missing})
        rate = flops / taken.ours / 1e6
        print(f"{group:8} {shape!s:28} {taken.ours:8.1f} µs {rate:6.1f} TFLOP/s  {beside(taken)}")
    for group in dict.fromkeys(row["group"] for row in kept):
        for names, what in ((("flash",), "FlashAttention-2"), (tuple(PEERS), "the best of SDPA")):
            ratios = []
            for row in kept:
                theirs = [row[f"{name}_us"] for name in names if f"{name}_us" in row]
                if row["group"] == group and theirs:
                    ratios.append(min(theirs) / row["ours_us"])
            if ratios:
                print(f"{group}:", summary(ratios, f"the speed of {what}"))
    write(kept, options.json)


if __name__ == "__main__":
    main()
