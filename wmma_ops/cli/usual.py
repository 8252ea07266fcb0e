"""The calls that kernels are compiled ahead of time for where no list of calls is given: what transformer models ask for,
in inference and in training. Those of float16 are fewer: masks, windows, sequences and layers' gradients are left out."""

import itertools
from argparse import Namespace
from collections.abc import Iterator

import torch

from wmma_ops.cli import calls
from wmma_ops.cli.arguments import TAKES
from wmma_ops.ops import activations
from wmma_ops.runtime.building import Call

_TYPES = _HALF, _SHORT = "float16", "bfloat16"
_ROWS = (1, 16, 128, 2048)
_TRAINED_ROWS = (512, 8192)
_WEIGHTS = ((4096, 4096), (14336, 4096))  # N, K
_EPILOGUES = (
    {},
    {"bias": True},
    {"residual": True},
    {"bias": True, "residual": True},
    *({"bias": bias, "activation": name} for bias in (False, True) for name in ("relu", "gelu", "gelu_tanh", "silu")),
)
_UNEVEN = (1000, 1001, 1003)  # rows, N, K: of which nothing is aligned
_COLUMNS = [*itertools.product((False, True), repeat=2)]  # whether A and B lie along columns
_HEADS = ((32, 32), (32, 8))  # and how many keys have
_SIZES = (64, 128)  # of heads
_RULES = ({}, {"causal": True}, {"mask": "padding"}, {"mask": "bool"}, {"window": (511, 0)})
_NOTHING = dict.fromkeys(TAKES) | {"causal": False, "unordered": False}
_LENGTHS = (1024, 8192)
_PAGES = (16, 64)


def usual() -> list[Call]:
    return [*_layers(), *_products(), *_gated(), *_training(), *_attention(), *_sequences()]


def _call(op: str, sizes: dict[str, int], dtype: str, **options) -> Call:
    """As the command line has it; `backward`: its gradients. Made only when it is asked for: all calls' tensors at once
    would be terabytes, though none is touched."""
    asked = Namespace(**_NOTHING | {"op": op, "dtype": dtype} | options)

    def make():
        arguments, keywords = calls.call(op, sizes, asked)
        return calls.function(asked)(*arguments, **keywords)

    return make


def _product(op: str, m: int, n: int, k: int, dtype: str = _SHORT, **options) -> Call:
    return _call(op, {"m": m, "n": n, "k": k}, dtype, **options)


def _layers() -> Iterator[Call]:
    for dtype, options in itertools.product(_TYPES, _EPILOGUES):
        for m, (n, k) in itertools.product(_ROWS, _WEIGHTS):
            yield _product("linear", m, n, k, dtype, **options)
        yield _product("linear", *_UNEVEN, dtype, **options)


def _products() -> Iterator[Call]:
    for dtype, (of_a, of_b) in itertools.product(_TYPES, _COLUMNS):
        for m, (n, k) in itertools.product(_ROWS, _WEIGHTS):
            yield _product("matmul", m, n, k, dtype, a_columns=of_a, b_columns=of_b)
        yield _product("matmul", *_UNEVEN, dtype, a_columns=of_a, b_columns=of_b)


def _gated() -> Iterator[Call]:
    """What reads a weight's columns reads them along K."""
    for m, (n, k) in itertools.product(_ROWS, _WEIGHTS):
        for options in ({"gate": True}, {"multiply": True}):
            yield _product("gemm", m, n, k, activation="silu", b_columns=True, **options)


def _training() -> Iterator[Call]:
    """Gradients of layers and of products; what a forward pass keeps for them is written by the same kernels."""
    for m, (n, k) in itertools.product(_TRAINED_ROWS, _WEIGHTS):
        for bias, activation in itertools.product((False, True), (None, "relu", "gelu", "gelu_tanh", "silu")):
            yield _product("linear", m, n, k, bias=bias, activation=activation, backward=True)
            if activation and activation != "relu":
                yield _kept(m, n, k, bias, activation)


def _kept(m: int, n: int, k: int, bias: bool, activation: str) -> Call:
    def make():
        x, weight = torch.empty(m, k, dtype=torch.bfloat16), torch.empty(n, k, dtype=torch.bfloat16)
        code = activations.code("linear", "activation", activation)
        return torch.ops.wmma._linear_aux(x, weight, x.new_empty(n) if bias else None, activation=code)

    return make


def _attends(batch: int, heads: tuple[int, int], queries: int, keys: int, e: int, dtype=_SHORT, **options) -> Call:
    sizes = {"heads": heads[0], "kv_heads": heads[1], "queries": queries, "keys": keys, "head_size": e}
    return _call("attention", sizes, dtype, batch=batch, **options)


def _attention() -> Iterator[Call]:
    for dtype, heads, e in itertools.product(_TYPES, _HEADS, _SIZES):
        rules = _RULES if dtype == _SHORT else _RULES[:2]
        for options, backward in itertools.product(rules, (False, True)):
            yield _attends(4, heads, _LENGTHS[0], _LENGTHS[0], e, dtype, backward=backward, **options)
        for keys in _LENGTHS:
            yield _attends(4, heads, keys, keys, e, dtype, causal=True)
            for causal in (False, "bottom_right"):
                yield _attends(4, heads, 1, keys, e, dtype, causal=causal)


def _sequences() -> Iterator[Call]:
    for heads, e in itertools.product(_HEADS, _SIZES):
        for backward in (False, True):
            yield _attends(8, heads, _LENGTHS[0], _LENGTHS[0], e, packed=True, causal=True, backward=backward)
        for pages, batch in itertools.product(_PAGES, (4, 64)):
            yield _attends(batch, heads, 1, _LENGTHS[0], e, pages=pages, causal=True)
        for pages in _PAGES:
            yield _attends(4, heads, 512, _LENGTHS[0], e, pages=pages, causal=True)
