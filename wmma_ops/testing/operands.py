"""The tensors that a case's op takes."""

import zlib

import torch

from wmma_ops.ops.types import FP8, accumulator
from wmma_ops.testing.cases.case import AttentionCase, GemmCase, GemmGemmCase, VarlenAttentionCase
from wmma_ops.testing.memory import filled, place, place_attention

Tensor = torch.Tensor


def operands(case) -> dict[str, Tensor | None]:
    """The case's tensors by the argument names of the op, of products those of `gemm`, on the CPU."""
    generator = torch.Generator().manual_seed(zlib.crc32(repr(case).encode()))
    make = {GemmCase: _gemm_operands, GemmGemmCase: _gemm_gemm_operands, AttentionCase: _attention_operands}
    make[VarlenAttentionCase] = _varlen_operands
    return make[type(case)](case, generator)


def batch_of(case: GemmCase) -> tuple[int, ...]:
    return torch.broadcast_shapes(case.batch_a, case.batch_b, case.batch_a2, case.batch_b2)


def type_of(text: str | None, default: torch.dtype | None) -> torch.dtype | None:
    return default if text is None else getattr(torch, text)


def _values(generator: torch.Generator, shape, dtype: torch.dtype) -> Tensor:
    if dtype == torch.int8:
        return torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8)
    if dtype == torch.int32:
        return torch.randint(-1000, 1000, shape, generator=generator, dtype=torch.int32)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def _addend(generator, kind: str | None, shape, dtype: torch.dtype, layout: str = "row") -> Tensor | None:
    if kind is None:
        return None
    *batch, m, n = shape
    shape = {"full": shape, "row": (n,), "column": (*batch, m, 1), "scalar": ()}[kind]
    x = _values(generator, shape, dtype)
    return place(x, layout) if kind == "full" else x


def _poison(x: Tensor | None, value: float) -> None:
    if x is not None and x.numel():
        x[(*(0,) * (x.dim() - 1), x.shape[-1] // 2)] = value


def _gemm_operands(case: GemmCase, generator) -> dict:
    dtype = getattr(torch, case.dtype)
    beside = type_of(case.beside, accumulator(dtype))
    m, n, k = case.m, case.n, case.k
    batch = batch_of(case)

    def values(shape, dtype):
        return _values(generator, shape, dtype)

    def vector(kind, length, batch=()):
        # Scales are positive and of moderate size, as scales are.
        shape = () if kind == "one" else (*(batch if kind in ("each", "matrices") else ()), length)
        return None if kind is None else values(shape, beside).abs() * 0.5 + 0.25

    t = {
        "a": place(values((*case.batch_a, m, k), dtype), case.a_layout),
        "b": place(values((*case.batch_b, k, n), type_of(case.dtype_b, dtype)), case.b_layout),
        "c": _addend(generator, case.c, (*batch, m, n), type_of(case.c_dtype, beside), case.c_layout),
        "bias": values((n,), beside) if case.bias else None,
        "row_scale": vector(case.row_scale, m, case.batch_a),
        "col_scale": vector(case.col_scale, n, case.batch_b),
        "a_scale": vector(case.a_scale, k),
        "multiply": _addend(generator, case.multiply, (*batch, m, n), beside),
    }
    if case.k2 is not None:
        t["a2"] = place(values((*case.batch_a2, m, case.k2), dtype), case.a2_layout)
        t["b2"] = place(values((*case.batch_b2, case.k2, n), t["b"].dtype), case.b2_layout)
    if case.gate:
        t["gate"] = place(values((*case.batch_b, k, n), t["b"].dtype), case.b_layout)
        t["gate_bias"] = values((n,), beside) if case.bias else None
    if case.op in ("addmm", "addmm_", "baddbmm") and case.c_dtype is None and dtype != torch.int8 and dtype not in FP8:
        t["c"] = None if t["c"] is None else _addend(generator, case.c, (*batch, m, n), dtype, case.c_layout)
    nan, inf = float("nan"), float("inf")
    match case.special:
        case "nan_a":
            _poison(t["a"], nan)
        case "nan_a2":
            _poison(t["a2"], nan)
        case "inf_a":
            _poison(t["a"], inf)
        case "inf_b":
            _poison(t["b"], -inf)
        case "nan_c" | "nan_c_unread":
            _poison(t["c"], nan)
        case "nan_ab_unread":
            for name in ("a", "a2"):
                if name in t:
                    t[name].fill_(nan)
            for name in ("b", "b2"):
                if name in t:
                    t[name].fill_(inf)
        case "zeros":
            t["a"].zero_()
    return t


def _gemm_gemm_operands(case: GemmGemmCase, generator) -> dict:
    dtype = getattr(torch, case.dtype)
    beside = accumulator(dtype)

    def matrix(rows, columns):
        return place(_values(generator, (*case.batch, rows, columns), dtype), case.layout)

    t = {
        "a": matrix(case.m, case.k),
        "b0": matrix(case.k, case.h),
        "b1": matrix(case.h, case.n),
        "c": _addend(generator, case.c, (*case.batch, case.m, case.n), beside),
        "bias0": _values(generator, (case.h,), beside) if case.bias0 else None,
        "bias1": _values(generator, (case.n,), beside) if case.bias1 else None,
        "gate": matrix(case.k, case.h) if case.gate else None,
    }
    if case.special == "nan_c_unread":
        _poison(t["c"], float("nan"))
    if case.special == "nan_a":
        _poison(t["a"], float("nan"))
    return t


def _attention_operands(case: AttentionCase, generator) -> dict:
    dtype = getattr(torch, case.dtype)
    kv_heads = case.heads if case.kv_heads is None else case.kv_heads
    ev = case.e if case.ev is None else case.ev

    def tensor(heads, length, size):
        return place_attention(_values(generator, (case.batch, heads, length, size), dtype), case.layout)

    t = {
        "q": tensor(case.heads, case.sq, case.e),
        "k": tensor(kv_heads, case.skv, case.e),
        "v": tensor(kv_heads, case.skv, ev),
        "mask": None,
    }
    shape = (case.sq, case.skv)
    if case.mask == "bool":
        t["mask"] = torch.rand((case.batch, 1, *shape), generator=generator) > 0.4
    elif case.mask == "float":
        t["mask"] = _values(generator, (case.batch, case.heads, *shape), dtype)
    elif case.mask == "row":
        t["mask"] = _values(generator, (case.skv,), dtype)
    elif case.mask == "blind":
        t["mask"] = torch.rand(shape, generator=generator) > 0.5
        t["mask"][:: max(case.sq // 2, 1)] = False
    elif case.mask == "padding":
        lengths = torch.arange(case.batch) * case.skv // 2 + 1
        t["mask"] = (torch.arange(case.skv) < lengths.unsqueeze(-1)).view(case.batch, 1, 1, case.skv)
    elif case.mask == "plane":
        t["mask"] = _values(generator, (1, 1, *shape), dtype)
    elif case.mask == "infinite":
        t["mask"] = _values(generator, shape, dtype)
        t["mask"][:, ::3] = -torch.inf
        t["mask"][: case.sq // 2, 1] = torch.inf
    elif case.mask in ("least", "far"):
        t["mask"] = _hiding(case, generator, dtype if case.mask == "least" else accumulator(dtype))
    elif case.mask == "all_blind":
        t["mask"] = torch.full(shape, -torch.inf, dtype=dtype)
    for name, argument in (("sinks", "sinks"), ("slopes", "alibi_slopes")):
        if kind := getattr(case, name):
            of = (case.batch, case.heads) if kind == "each" else (case.heads,)
            x = _values(generator, of, dtype if kind == "own" else accumulator(dtype))
            t[argument] = x.abs() / 4 if name == "slopes" else x
    for special, value in (("nan_sink", torch.nan), ("inf_sink", torch.inf), ("no_sink", -torch.inf)):
        if case.special == special:
            t["sinks"][0] = value
    if case.dropout:
        t["dropout_seed"] = _dropout_seed(generator)
    if case.scales is not None:
        for name, count in (("scale_q", case.heads), ("scale_k", kv_heads), ("scale_v", kv_heads)):
            shape = {"one": (), "heads": (count,), "each": (case.batch, count)}[case.scales]
            t[name] = torch.rand(shape, generator=generator) + 0.5
    if case.special == "nan_q":
        _poison(t["q"], float("nan"))
    if case.special == "inf_k":
        _poison(t["k"], float("inf"))
    return t


def _hiding(case: AttentionCase, generator, dtype: torch.dtype) -> Tensor:
    """As models hide padding before the tokens and what comes after each, by large numbers: the first rows of a batch see
    nothing. Of "far" odd rows have the least number where even ones have −1e9, but for a key, which has this."""
    batch, sq, skv = case.batch, case.sq, case.skv
    mask = _values(generator, (batch, 1, sq, skv), dtype)
    padding = (torch.arange(batch) + 1) * skv // (batch + 2) + 1
    keys = torch.arange(skv)
    seen = (keys >= padding.view(batch, 1, 1, 1)) & (keys <= torch.arange(sq).unsqueeze(-1) + skv - sq)
    seen[:, :, 0] = False
    least = torch.finfo(dtype).min
    if case.mask == "least":
        return mask.masked_fill(~seen, least)
    mask = mask.masked_fill(~seen, -1e9)
    mask[:, :, 1::2] = mask[:, :, 1::2].masked_fill(~seen[:, :, 1::2] & (keys != skv // 2), least)
    return mask


def _varlen_operands(case: VarlenAttentionCase, generator) -> dict:
    dtype = getattr(torch, case.dtype)
    kv_heads = case.heads if case.kv_heads is None else case.kv_heads
    ev = case.e if case.ev is None else case.ev

    used, table, count = case.used, None, 0
    if case.page_size is not None:
        used = case.keys if case.used is None else case.used
        table, count = _block_table(generator, [-(-keys // case.page_size) for keys in case.keys])

    def ends(lengths) -> Tensor:
        return torch.tensor([0, *lengths]).cumsum(0).to(getattr(torch, case.number))

    stored = dtype if case.stored is None else getattr(torch, case.stored)

    def pages(heads, size):
        x = filled((count, case.page_size, heads, size), stored)
        for i, keys in enumerate(used):
            for first in range(0, keys, case.page_size):
                there = min(case.page_size, keys - first)
                x[table[i, first // case.page_size], :there] = _values(generator, (there, heads, size), stored)
        return place_attention(x, case.layout)

    def tokens(lengths, used, heads, size):
        x = _values(generator, (sum(lengths) + case.beyond, heads, size), dtype)
        for start, length, there in zip(ends(lengths).tolist(), lengths, used or lengths, strict=False):
            x[start + there : start + length] = torch.nan
        x[sum(lengths) :] = torch.nan
        return place_attention(x, case.layout)

    t = {
        "query": tokens(case.queries, None, case.heads, case.e),
        "key": tokens(case.keys, case.used, kv_heads, case.e) if table is None else pages(kv_heads, case.e),
        "value": tokens(case.keys, case.used, kv_heads, ev) if table is None else pages(kv_heads, ev),
        "cu_seq_q": ends(case.queries),
        "cu_seq_k": ends(case.keys) if table is None else None,
        "seqused_k": None if used is None else torch.tensor(used).to(getattr(torch, case.number)),
        "block_table": table,
        "sinks": None,
        "alibi_slopes": None,
    }
    for name, argument in (("sinks", "sinks"), ("slopes", "alibi_slopes")):
        if kind := getattr(case, name):
            x = _values(generator, (case.heads,), dtype if kind == "own" else accumulator(dtype))
            t[argument] = x.abs() / 4 if name == "slopes" else x
    if case.dropout:
        t["dropout_seed"] = _dropout_seed(generator)
    if case.score_mod is not None:
        t["mod_a"] = _values(generator, (len(case.queries), max(case.keys, default=0)), accumulator(dtype))
        t["mod_b"] = _values(generator, (case.heads,), dtype).abs() / 16
    if case.descale is not None:
        shape = {"one": (1,), "heads": (kv_heads,), "each": (len(case.queries), kv_heads)}[case.descale]
        t |= {name: torch.rand(shape, generator=generator) * 2 + 0.1 for name in ("k_descale", "v_descale")}
    return t


def _block_table(generator, pages: list[int]) -> tuple[Tensor, int]:
    """Of sequences with so many pages, in any order, and behind the last of them numbers of none; and how many pages there
    are, of which two are nobody's."""
    order = torch.randperm(sum(pages) + 2, generator=generator).tolist()
    table = torch.full((len(pages), max(pages, default=0) + 1), 2**30, dtype=torch.int32)
    table[:, 1::2] = -1
    for row, count in zip(table, pages, strict=True):
        row[:count] = torch.tensor([order.pop() for _ in range(count)], dtype=torch.int32)
    return table, sum(pages) + 2


def _dropout_seed(generator) -> Tensor:
    return torch.randint(-(2**63), 2**63 - 1, (1,), generator=generator)
