"""Calls whose rows are to have the same bits alone and among others: each takes which rows, of how many there are. And what
holds them against each other, wherever they run."""

import random

import scored
import torch

import wmma_ops
from wmma_ops.plan.attention import invariant

COUNT = 53
PARTS = tuple(slice(at, at + rows) for rows, at in ((1, 0), (1, COUNT - 1), (2, 31), (17, 20), (40, 3)))


def _random(*shape: int, dtype=torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


def _fp8(*shape: int) -> torch.Tensor:
    return torch.randn(shape).to(torch.float8_e4m3fn)


def layer(k: int, n: int, dtype: torch.dtype, **options):
    x, weight, bias = (_random(*shape, dtype=dtype) for shape in ((COUNT, k), (n, k), (n,)))
    return lambda rows: wmma_ops.gemm(x[rows], weight.mT, bias=bias, **options)


def beside_rows(dtype=torch.bfloat16):
    """What goes along a product's rows, and another pair."""
    x, b, c, multiply = (_random(*shape, dtype=dtype) for shape in ((COUNT, 96), (96, 72), (COUNT, 72), (COUNT, 72)))
    a2, b2, scale, a_scale = _random(COUNT, 16), _random(16, 72), torch.rand(COUNT), torch.rand(96)

    def call(rows):
        return wmma_ops.gemm(
            x[rows], b, c=c[rows], beta=0.5, multiply=multiply[rows], row_scale=scale[rows], a_scale=a_scale,
            a2=a2[rows], b2=b2, a_activation="silu", activation="gelu", out_dtype=torch.float32,
        )  # fmt: skip

    return call


def strided():
    """Rows of a wider tensor, that start where they may."""
    x, weight = _random(COUNT, 2, 75), _random(40, 70)
    return lambda rows: wmma_ops.linear(x[rows, 1, 3:73], weight)


def of_batches():
    """A batch of matrices, each with a B of its own, from the first to as many."""
    a, b = _random(COUNT, 9, 48), _random(COUNT, 48, 40)
    return lambda rows: wmma_ops.baddbmm(a[rows, :, :40], a[rows], b[rows], beta=0.5)


def gated():
    x, gate, up, bias = _random(COUNT, 64), _random(64, 96), _random(64, 96), _random(96)
    return lambda rows: wmma_ops.gemm(x[rows], up, gate=gate, gate_bias=bias, activation="silu")


def two_products():
    x, b0, b1, gate = _random(COUNT, 64), _random(64, 128), _random(128, 48), _random(64, 128)
    return lambda rows: wmma_ops.gemm_gemm(x[rows], b0, b1, gate=gate, activation="silu")


def scaled(k: int = 128):
    a, b, scales, of_columns = _fp8(COUNT, k), _fp8(80, k).mT, torch.rand(COUNT, 1), torch.rand(1, 80)
    return lambda rows: wmma_ops.scaled_mm(a[rows], b, scales[rows], of_columns, out_dtype=torch.bfloat16)


def integers():
    a, b = (torch.randint(-9, 9, shape, dtype=torch.int8) for shape in ((COUNT, 96), (96, 64)))
    return lambda rows: wmma_ops.gemm(a[rows], b)


PRODUCTS = {
    "bfloat16": lambda: layer(200, 96, torch.bfloat16, activation="gelu", out_dtype=torch.float32),
    "a long K": lambda: layer(1024, 48, torch.float16, out_dtype=torch.float32),
    "odd sizes": lambda: layer(77, 131, torch.bfloat16),
    "float32": lambda: layer(96, 80, torch.float32, activation="silu"),
    "float64": lambda: layer(56, 40, torch.float64, activation="tanh"),
    "beside rows": beside_rows,
    "strided": strided,
    "batches": of_batches,
    "gated": gated,
    "two products": two_products,
    "scaled": scaled,
    "integers": integers,
}

# ------------------------------------------------------------------------------------------------------------ attention

KEYS = 150
# Queries of a prefill: parts of it, whole, single ones, each beside the keys that there are then; and of which batches.
CHUNKS = ((0, 64, slice(None)), (64, KEYS, slice(0, 1)), (KEYS - 1, KEYS, slice(None)), (70, 71, slice(1, 2)),
          (5, 22, slice(None)))  # fmt: skip


def prefill(heads: int = 4, kv_heads: int = 2, size: int = 64, dtype=torch.bfloat16, keys: int = KEYS, **options):
    """Attention of queries `first` to `end` of some of two batches, which stand behind the keys that there are then."""
    q, k, v = (_random(2, count, keys, size, dtype=dtype) for count in (heads, kv_heads, kv_heads))

    def call(first: int, end: int, batch=slice(None)):
        t = q[batch, :, first:end], k[batch, :, :end], v[batch, :, :end]
        given = {name: option(first, end, batch) if callable(option) else option for name, option in options.items()}
        return wmma_ops.attention(*t, **{"is_causal": "bottom_right"} | given, enable_gqa=heads != kv_heads)

    return call


def _bool_mask():
    """Of keys, of which the later ones of each batch are nothing."""
    shown = torch.rand(2, 1, KEYS, KEYS) < 0.7
    return lambda first, end, batch: (shown & torch.ones(KEYS, KEYS).tril().bool())[batch, :, first:end, :end]


def _padding():
    """Each batch has its first keys, but a query sees none behind its own place."""
    shown = torch.arange(KEYS) < torch.tensor([[97], [KEYS - 30]])
    return lambda first, end, batch: shown[batch, None, None, :end]


def _bias():
    bias = _random(2, 4, KEYS, KEYS) + torch.full((KEYS, KEYS), -torch.inf).triu(1).bfloat16()
    return lambda first, end, batch: bias[batch, :, first:end, :end]


ATTENTIONS = {
    "bfloat16": prefill,
    "128": lambda: prefill(2, 2, 128),
    "40": lambda: prefill(3, 1, 40, torch.float16),
    "float32": lambda: prefill(2, 1, 32, torch.float32),
    "window": lambda: prefill(is_causal=False, window=(37, 0)),
    "a long window": lambda: prefill(is_causal=False, window=(100, 0)),
    "softcap": lambda: prefill(softcap=5.0),
    "sinks": lambda: prefill(sinks=torch.randn(4)),
    "slopes": lambda: prefill(alibi_slopes=torch.rand(4)),
    "bool": lambda: prefill(is_causal=False, mask=_bool_mask()),
    "padding": lambda: prefill(is_causal=False, window=(-1, 0), mask=_padding()),
    "wide padding": lambda: prefill(2, 2, 128, is_causal=False, window=(200, 0), mask=_padding()),
    "bias": lambda: prefill(is_causal=False, mask=_bias()),
    "function": lambda: prefill(score_mod=scored.CAP),
}


LENGTHS = (90, 1, KEYS, 33, 64)


def sequences(pages: int = 0, dtype=torch.bfloat16, window: int = -1, narrow: bool = False):
    """Attention of packed sequences, in pages if asked for: of the last `queries` of those that are named, in their order,
    with all their keys but the last `fewer`."""
    lengths, heads, kv_heads, size = LENGTHS, 4, 2, 64
    q = [_random(length, heads, size, dtype=dtype) for length in lengths]
    k, v = ([_random(length, kv_heads, size, dtype=dtype) for length in lengths] for _ in "kv")

    def call(names: tuple[int, ...], queries: int, fewer: int = 0, seed: int = 0):
        ends = [lengths[i] - fewer for i in names]
        counts = [min(queries, end) for end in ends]
        starts = torch.tensor([0, *counts]).cumsum(0).int()
        rows = torch.cat([q[i][end - count : end] for i, end, count in zip(names, ends, counts, strict=True)])
        keys, values = ([x[i][:end] for i, end in zip(names, ends, strict=True)] for x in (k, v))
        options = {"window_size": (window, 0), "enable_gqa": True}
        if not pages:
            of_keys = torch.tensor([0, *ends]).cumsum(0).int()
            t = rows, torch.cat(keys), torch.cat(values), starts, of_keys, max(counts), max(ends)
            return wmma_ops.varlen_attention(*t, **options)
        places = random.Random(seed).sample(range(64), 64)
        table, taken = torch.full((len(names), -(-max(ends) // pages)), -1, dtype=torch.int32), 0
        kept = torch.float8_e4m3fn if narrow else dtype
        in_pages = [torch.zeros(64, pages, kv_heads, size).to(kept) for _ in "kv"]
        for row, (of_k, of_v) in enumerate(zip(keys, values, strict=True)):
            for j in range(-(-len(of_k) // pages)):
                place, part = places[taken], slice(j * pages, (j + 1) * pages)
                table[row, j], taken = place, taken + 1
                for to, x in zip(in_pages, (of_k, of_v), strict=True):
                    to[place, : len(x[part])] = x[part].to(kept)
        used = torch.tensor(ends, dtype=torch.int32)
        return wmma_ops.varlen_attention(
            rows, *in_pages, starts, None, max(counts), None, seqused_k=used, block_table=table, **options
        )

    return call


SEQUENCES = {
    "packed": sequences,
    "packed, a window": lambda: sequences(window=40),
    "pages of 16": lambda: sequences(16),
    "pages of 64": lambda: sequences(64, torch.float16),
    "narrow pages": lambda: sequences(32, narrow=True),
}

# ---------------------------------------------------------------------------------------------------------- held together


def check_product(name: str) -> None:
    call = PRODUCTS[name]()
    whole = call(slice(None))
    for part in PARTS:
        assert torch.equal(call(part), whole[part]), part


def in_parts(monkeypatch, keys: int):
    """As a fixture: keys have parts of so many, of which short prefills have some too. One block has them all, but of
    single tokens."""
    monkeypatch.setattr(invariant, "PART", keys)
    monkeypatch.setattr(invariant, "leave_idle", lambda blocks, units: blocks <= 4)
    torch.ops.wmma._forget_plans()
    yield
    torch.ops.wmma._forget_plans()


def check_attention(name: str) -> None:
    check_chunks(ATTENTIONS[name](), KEYS, CHUNKS)


def check_chunks(call, keys: int, chunks) -> None:
    """As a prefill, by chunks, and a token at a time beside the keys that there are."""
    whole = call(0, keys)
    for first, end, batch in chunks:
        for got, of_all in zip(call(first, end, batch), whole, strict=True):
            assert torch.equal(got, of_all[batch, :, first:end]), (first, end)


def check_sequences(name: str) -> None:
    """Alone, beside others, a token at a time, and in other pages."""
    call = SEQUENCES[name]()
    whole, whole_lse = call(tuple(range(len(LENGTHS))), 1000)
    starts = [sum(LENGTHS[:i]) for i in range(len(LENGTHS))]
    for names, queries, fewer in (((2,), 1000, 0), ((3, 2), 40, 0), ((4, 0, 2), 1, 0), ((2,), 1, 0), ((0, 2), 5, 30)):
        out, lse = call(names, queries, fewer, seed=queries)
        at = 0
        for i in names:
            count = min(queries, LENGTHS[i] - fewer)
            end = starts[i] + LENGTHS[i] - fewer
            for got, of_all in ((out, whole), (lse.mT, whole_lse.mT)):
                assert torch.equal(got[at : at + count], of_all[end - count : end]), (names, i)
            at += count
