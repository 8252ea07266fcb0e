"""Our attention against scaled_dot_product_attention on a GPU: medians in turn, cold L2, one line a shape.

python bench/bench_attention.py [--quick] [--json FILE]
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import attention_peers
import running
import torch
import torch.nn.functional as F
from running import check

import wmma_ops
from wmma_ops.cli.benching import OURS, Calls, Case


@dataclass(frozen=True)
class Shape:
    batch: int
    heads: int
    sq: int
    skv: int
    e: int
    causal: bool = False
    kv_heads: int | None = None
    window: int | None = None  # keys before its own that a query sees, and none behind
    softcap: float = 0.0

    def __str__(self) -> str:
        heads = f"h{self.heads}" + (f"/{self.kv_heads}" if self.kv_heads else "")
        length = f"s{self.skv}" if self.sq == self.skv else f"{self.sq} of s{self.skv}"
        return f"b{self.batch} {heads} {length} d{self.e}" + self.rules

    @property
    def rules(self) -> str:
        window = "" if self.window is None else f" window {self.window}"
        return (" causal" if self.causal else "") + window + (f" softcap {self.softcap:g}" if self.softcap else "")

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
# Diffusion and vision transformers, long prompts whose heads share keys, wide heads.
OTHERS = (
    Shape(1, 24, 4608, 4608, 128),
    Shape(2, 20, 1024, 1024, 64),
    Shape(16, 16, 577, 577, 64),
    Shape(1, 32, 8192, 8192, 128, causal=True, kv_heads=8),
    Shape(4, 8, 4096, 4096, 256),
    Shape(2, 16, 2048, 2048, 96),
)
DECODE = (
    Shape(8, 32, 1, 8192, 128, kv_heads=8),
    Shape(1, 32, 1, 8192, 128, kv_heads=8),
    Shape(64, 32, 1, 2048, 128, kv_heads=8),
    Shape(8, 32, 5, 8192, 128, kv_heads=8),
    Shape(1, 32, 64, 8192, 128, kv_heads=8),
)
PAGE = 64  # keys
# What scaled_dot_product_attention has no name for.
RULED = (
    Shape(1, 32, 16384, 16384, 128, window=1024),
    Shape(4, 16, 4096, 4096, 64, window=512),
    Shape(2, 24, 4608, 4608, 128, softcap=20.0),
)


@dataclass(frozen=True)
class Packed:
    """Sequences one after the other, from the longest to the shortest in equal steps, in no order."""

    tokens: int
    sequences: int
    longest: int
    heads: int
    e: int
    causal: bool = False
    kv_heads: int | None = None

    def __str__(self) -> str:
        causal = " causal" if self.causal else ""
        return f"{self.tokens} in {self.sequences} up to {self.longest} h{self.heads} d{self.e}{causal}"

    @property
    def lengths(self) -> list[int]:
        fall = 2 * (self.longest - self.tokens / self.sequences) / (self.sequences - 1)
        found = [round(self.longest - i * fall) for i in range(self.sequences)]
        found[-1] += self.tokens - sum(found)
        random.Random(0).shuffle(found)
        return found

    @property
    def flops(self) -> float:
        return sum(4 * self.heads * x * x * self.e for x in self.lengths) / (2 if self.causal else 1)


PACKED = tuple(
    Packed(*sizes, causal)
    for sizes in ((16384, 13, 1979, 32, 128), (32768, 60, 973, 16, 64))
    for causal in (True, False)
)


def operands(shape: Shape, gradients: bool = False) -> list[torch.Tensor]:
    kv_heads = shape.kv_heads or shape.heads
    sizes = (shape.heads, shape.sq), (kv_heads, shape.skv), (kv_heads, shape.skv)
    return [
        torch.randn(
            shape.batch, heads, length, shape.e, dtype=torch.bfloat16, device=running.DEVICE, requires_grad=gradients
        )
        for heads, length in sizes
    ]


def ours(shape: Shape, q, k, v) -> torch.Tensor:
    return wmma_ops.attention(q, k, v, is_causal=shape.causal, enable_gqa=shape.kv_heads is not None)[0]


def forward(shape: Shape) -> Calls:
    tensors = operands(shape)
    found, missing = attention_peers.peers(*tensors, is_causal=shape.causal)
    errors = [check(ours(shape, *tensors), call()) for call in found.values()]
    return Calls({OURS: partial(ours, shape, *tensors), **found}, missing, shape.flops, error=max(errors, default=None))


def backward_of(
    outs: dict[str, torch.Tensor], tensors: Sequence[torch.Tensor], g_out: torch.Tensor
) -> dict[str, Callable]:
    """The backward passes of results, alone."""
    return {
        name: lambda out=out: torch.autograd.grad(out, tensors, g_out, retain_graph=True) for name, out in outs.items()
    }


def backward(shape: Shape) -> Calls:
    tensors = operands(shape, gradients=True)
    found, missing = attention_peers.peers(*tensors, is_causal=shape.causal, gradients=True)
    outs = {OURS: ours(shape, *tensors)} | {name: call() for name, call in found.items()}
    g_out = torch.randn_like(outs[OURS])
    calls = backward_of(outs, tensors, g_out)
    got = calls[OURS]()
    errors = [check(*pair) for name in found for pair in zip(got, calls[name](), strict=True)]
    return Calls(calls, missing, 2.5 * shape.flops, error=max(errors, default=None))


def flex(shape: Shape, q, k, v) -> Callable[[], torch.Tensor]:
    """FlexAttention with the same rules, compiled; blocks of keys that no query sees are left out."""
    from torch.nn.attention.flex_attention import create_block_mask  # its import takes seconds

    mask, grouped = None, q.shape[1] != k.shape[1]
    if shape.window is not None:
        width = shape.window

        def seen(batch, head, query, key):
            return (key <= query) & (query - key <= width)

        mask = create_block_mask(seen, None, None, shape.sq, shape.skv, device=running.DEVICE)
    cap = shape.softcap

    def capped(score, batch, head, query, key):
        return cap * torch.tanh(score / cap)

    return partial(_compiled_flex(), q, k, v, score_mod=capped if cap else None, block_mask=mask, enable_gqa=grouped)


@cache
def _compiled_flex() -> Callable:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


def ruled(shape: Shape) -> Calls:
    tensors = operands(shape)
    window = (-1, -1) if shape.window is None else (shape.window, 0)

    def call() -> torch.Tensor:
        return wmma_ops.attention(*tensors, window=window, softcap=shape.softcap)[0]

    peer = flex(shape, *tensors)
    return Calls({OURS: call, "flex": peer}, flops=None, error=check(call(), peer()))


def packed(shape: Packed, gradients: bool = False) -> Calls:
    """The forward pass, or the backward pass alone."""
    options = {"dtype": torch.bfloat16, "device": running.DEVICE, "requires_grad": gradients}
    kv_heads, grouped = shape.kv_heads or shape.heads, shape.kv_heads is not None
    q, k, v = (torch.randn(shape.tokens, heads, shape.e, **options) for heads in (shape.heads, kv_heads, kv_heads))
    ends = torch.tensor([0, *shape.lengths], device=running.DEVICE).cumsum(0).int()
    given = q, k, v, ends, ends, shape.longest, shape.longest
    window = (-1, 0) if shape.causal else (-1, -1)

    def call() -> torch.Tensor:
        return wmma_ops.varlen_attention(*given, window_size=window, enable_gqa=grouped)[0]

    one_by_one = zip(*(x.transpose(0, 1).split(shape.lengths, dim=1) for x in (q, k, v)), strict=True)
    rules = {"is_causal": shape.causal, "enable_gqa": grouped}
    parts = [F.scaled_dot_product_attention(*of, **rules).transpose(0, 1) for of in one_by_one]
    want, calls, missing = torch.cat(parts), {OURS: call}, {}
    try:
        from torch.nn.attention.varlen import varlen_attn

        peer = partial(varlen_attn, *given, window_size=window, **({"enable_gqa": True} if grouped else {}))
        peer()
        calls["varlen_attn"] = peer
    except (ImportError, RuntimeError, NotImplementedError, TypeError) as error:
        missing["varlen_attn"] = str(error).strip().splitlines()[0].partition(". ")[0]
    if not gradients:
        return Calls(calls, missing, shape.flops, error=check(call(), want))
    g_out = torch.randn_like(want)
    calls = backward_of({name: forward() for name, forward in calls.items()}, (q, k, v), g_out)
    right = torch.autograd.grad(want, (q, k, v), g_out)
    errors = [check(*both) for both in zip(calls[OURS](), right, strict=True)]
    return Calls(calls, missing, 2.5 * shape.flops, error=max(errors))


def paged(shape: Shape, narrow: bool = False, page: int = PAGE) -> Calls:
    """Keys and values in pages in no order, beside the same ones in one piece; or (narrow) of float8_e4m3fn, beside the same
    ones in pages of the queries' type."""
    q, k, v = operands(shape)
    if narrow:
        k, v = (x.to(torch.float8_e4m3fn).to(x.dtype) for x in (k, v))
    behind = -shape.skv % page  # the last one's part that is not used
    count = shape.batch * (shape.skv + behind) // page
    table = torch.randperm(count, device=running.DEVICE).view(shape.batch, -1)

    def pages(x: torch.Tensor) -> torch.Tensor:
        by_page = F.pad(x, (0, 0, 0, behind)).transpose(1, 2).reshape(count, page, *x.shape[1::2])
        return torch.empty_like(by_page).index_copy_(0, table.flatten(), by_page)

    ends = torch.arange(shape.batch + 1, device=running.DEVICE, dtype=torch.int32) * shape.sq
    used = torch.full((shape.batch,), shape.skv, device=running.DEVICE, dtype=torch.int32)
    query, both = q.transpose(1, 2).flatten(0, 1), (pages(k), pages(v))
    options = {"window_size": (-1, 0), "enable_gqa": True, "seqused_k": used, "block_table": table.int()}

    def call(*both: torch.Tensor) -> torch.Tensor:
        return wmma_ops.varlen_attention(query, *both, ends, None, shape.sq, None, **options)[0]

    def dense() -> torch.Tensor:
        return wmma_ops.attention(q, k, v, is_causal="bottom_right", enable_gqa=True)[0]

    want = dense().transpose(1, 2).flatten(0, 1)
    ours, peers = partial(call, *both), {"in one piece": dense}
    if narrow:
        ours, peers = partial(call, *(x.to(torch.float8_e4m3fn) for x in both)), {"16 bits": ours}
    return Calls({OURS: ours, **peers}, flops=None, error=check(ours(), want))


def cases() -> Iterator[Case]:
    for shape in DECODE:
        yield Case("attention, pages", str(shape), partial(paged, shape), ("in one piece",), running.DEVICE)
    for shape in DECODE:
        yield Case("attention, pages of fp8", str(shape), partial(paged, shape, True), ("16 bits",), running.DEVICE)
    for shape in PACKED:
        yield Case("attention, packed", str(shape), partial(packed, shape), ("varlen_attn",), running.DEVICE)
    for shape in PACKED:
        make = partial(packed, shape, gradients=True)
        yield Case("attention, packed backward", str(shape), make, ("varlen_attn",), running.DEVICE)
    for shape in RULED:
        yield Case("attention, rules", str(shape), partial(ruled, shape), ("flex",), running.DEVICE)
    for group, make, shapes in (
        ("forward", forward, LARGE + OTHERS),
        ("backward", backward, LARGE),
        ("decode", forward, DECODE),
    ):
        for shape in shapes:
            yield Case(
                f"attention, {group}",
                str(shape),
                partial(make, shape),
                attention_peers.names(group == "backward"),
                running.DEVICE,
            )


if __name__ == "__main__":
    running.main(cases(), running.parser(__doc__).parse_args())
