"""The calls that kernels are compiled ahead of time for where no list of calls is given."""

import itertools
from argparse import Namespace
from collections.abc import Iterator

import torch

import wmma_ops
from wmma_ops.cli import calls
from wmma_ops.ops.functions import CAUSAL
from wmma_ops.runtime.building import Call

_ROWS = (1, 16, 128, 2048)
_WEIGHTS = ((4096, 4096), (14336, 4096))  # N, K
_EPILOGUES = (
    {},
    {"bias": True},
    {"residual": True},
    {"bias": True, "residual": True},
    *({"bias": bias, "activation": name} for bias in (False, True) for name in ("relu", "gelu", "gelu_tanh", "silu")),
)


def usual() -> list[Call]:
    """What transformer models ask for: layers with their epilogues, their gradients' products, attention. In float16 and
    bfloat16, aligned and not."""
    return [*_layers(), *_products(), *_attention()]


def _call(op: str, m: int, n: int, k: int, **options) -> Call:
    given = dict.fromkeys(
        ("batch", "out_dtype", "activation", "bias", "residual", "multiply", "a_columns", "b_columns")
    )

    def make():  # only here: hundreds of calls' tensors at once would be terabytes, though none is touched
        arguments, keywords = calls.call(op, {"m": m, "n": n, "k": k}, Namespace(**given | options))
        return getattr(wmma_ops, op)(*arguments, **keywords)

    return make


def _layers() -> Iterator[Call]:
    for dtype, m, (n, k), options in itertools.product(("float16", "bfloat16"), _ROWS, _WEIGHTS, _EPILOGUES):
        yield _call("linear", m, n, k, dtype=dtype, **options)
    for dtype, options in itertools.product(("float16", "bfloat16"), _EPILOGUES):
        yield _call("linear", 1000, 1001, 1003, dtype=dtype, **options)


def _products() -> Iterator[Call]:
    columns = list(itertools.product((False, True), repeat=2))
    for dtype, m, (n, k), (of_a, of_b) in itertools.product(("float16", "bfloat16"), _ROWS, _WEIGHTS, columns):
        yield _call("matmul", m, n, k, dtype=dtype, a_columns=of_a, b_columns=of_b)
    for dtype, (of_a, of_b) in itertools.product(("float16", "bfloat16"), columns):
        yield _call("matmul", 1000, 1001, 1003, dtype=dtype, a_columns=of_a, b_columns=of_b)


def _attention() -> Iterator[Call]:
    for dtype, e, causal in itertools.product((torch.float16, torch.bfloat16), (64, 128), (False, "bottom_right")):
        for queries, keys, heads in itertools.product((1, 1024), (1000, 1024), (32, 8)):
            yield _attended(dtype, e, causal, queries, keys, heads)


def _attended(dtype: torch.dtype, e: int, causal: bool | str, queries: int, keys: int, heads: int) -> Call:
    def make():
        q = torch.empty(4, queries, 32, e, dtype=dtype).transpose(1, 2)
        k = torch.empty(4, keys, heads, e, dtype=dtype).transpose(1, 2)
        grouped = heads != 32
        out, lse = wmma_ops.attention(q, k, k, is_causal=causal, enable_gqa=grouped)
        if queries > 1:
            given = out, q, k, k, out, lse
            torch.ops.wmma._attention_backward(*given, is_causal=CAUSAL[causal], enable_gqa=grouped)

    return make
