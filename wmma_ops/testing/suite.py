"""Runs a case on a backend and holds the result against the float64 reference and against torch's own."""

import contextlib
import zlib
from collections.abc import Callable, Iterator

import torch

import wmma_ops
from wmma_ops.hardware.arch import EMULATED
from wmma_ops.ops import activations
from wmma_ops.ops.score_functions import ARGUMENTS
from wmma_ops.ops.types import FP8, OUTPUTS, accumulator
from wmma_ops.testing import functions, reference
from wmma_ops.testing.cases.case import AttentionCase, GemmCase, GemmGemmCase, VarlenAttentionCase

Tensor = torch.Tensor


class Mismatch(AssertionError):
    """A result outside its bound; the text names the case and the worst element."""


# Backends: where tensors live, and what is active around the call.


def backends() -> list[str]:
    """The backends that can run here: "cpu", "emulated:<target>", and "cuda" where a GPU is."""
    return ["cpu", *(f"emulated:{target}" for target in EMULATED), *(["cuda"] if torch.cuda.is_available() else [])]


@contextlib.contextmanager
def _active(name: str, case, order: str, seed: int) -> Iterator[None]:
    """What is active around the case's call on a backend."""
    if name not in backends():
        raise ValueError(f"backend is {name!r}; takes one of {', '.join(backends())}")
    if not name.startswith("emulated:"):
        yield
        return
    with wmma_ops.emulate(name.removeprefix("emulated:"), order=order, seed=seed) as emulation:
        yield
    if not emulation.launches and 0 not in _sizes(case):
        raise Mismatch(f"{case!r}\n  nothing was emulated")


def _sizes(case) -> tuple[int, ...]:
    if isinstance(case, AttentionCase):
        return (case.batch, case.sq, case.skv)
    if isinstance(case, VarlenAttentionCase):
        return (sum(case.queries),)
    batch = (*case.batch,) if isinstance(case, GemmGemmCase) else _batch_of(case)
    return (case.m, case.n, *batch)


def _batch_of(case: GemmCase) -> tuple[int, ...]:
    return torch.broadcast_shapes(case.batch_a, case.batch_b, case.batch_a2, case.batch_b2)


# Operands.


def _values(generator: torch.Generator, shape, dtype: torch.dtype) -> Tensor:
    if dtype == torch.int8:
        return torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8)
    if dtype == torch.int32:
        return torch.randint(-1000, 1000, shape, generator=generator, dtype=torch.int32)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def _filled(shape, dtype: torch.dtype) -> Tensor:
    """Memory that no right answer may use."""
    if not dtype.is_floating_point:
        return torch.full(shape, 99, dtype=dtype)
    return torch.full(shape, float("nan"), dtype=torch.float32).to(dtype)


def place(x: Tensor, layout: str) -> Tensor:
    """The values of `x` (for "expanded": of its first row) in memory of the given layout."""
    *batch, m, n = x.shape
    if layout == "row":
        return x.contiguous()
    if layout == "column":
        return x.mT.contiguous().mT
    if layout == "expanded":
        return x[..., :1, :].clone().expand_as(x) if m else x
    if layout == "offset":
        store = _filled((x.numel() + 2,), x.dtype)
        view = store[1 : 1 + x.numel()].view(x.shape)
    elif layout == "sliced":
        view = _filled((*batch, m + 2, n + 5), x.dtype)[..., 1 : m + 1, 3 : n + 3]
    elif layout == "column_sliced":
        view = _filled((*batch, n + 2, m + 5), x.dtype)[..., 1 : n + 1, 3 : m + 3].mT
    elif layout == "strided":
        view = _filled((*batch, 2 * m + 1, 2 * n + 1), x.dtype)[..., 1::2, 1::2]
    else:
        raise ValueError(f"layout is {layout!r}")
    view.copy_(x)
    return view


def _place_attention(x: Tensor, layout: str) -> Tensor:
    if layout in ("bshd", "htd"):
        return x.transpose(-3, -2).contiguous().transpose(-3, -2)
    if layout == "halves":
        return _filled((x.shape[0], 2, *x.shape[1:]), x.dtype)[:, 1].copy_(x)
    return place(x, "row" if layout in ("bhsd", "thd") else layout)


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


def operands(case) -> dict[str, Tensor | None]:
    """The case's tensors by the argument names of the op, of products those of `gemm`, on the CPU."""
    generator = torch.Generator().manual_seed(zlib.crc32(repr(case).encode()))
    make = {GemmCase: _gemm_operands, GemmGemmCase: _gemm_gemm_operands, AttentionCase: _attention_operands}
    make[VarlenAttentionCase] = _varlen_operands
    return make[type(case)](case, generator)


def _dtype(text: str | None, default: torch.dtype) -> torch.dtype:
    return default if text is None else getattr(torch, text)


def out_type(case) -> torch.dtype:
    operand = getattr(torch, case.dtype)
    if isinstance(case, (AttentionCase, VarlenAttentionCase)):
        return operand
    if case.op == "addmm_":
        return _dtype(case.c_dtype, operand)
    if case.op == "scaled_mm" and case.out_dtype is None:
        return torch.bfloat16
    return _dtype(case.out_dtype, OUTPUTS[operand][0])


def _gemm_operands(case: GemmCase, generator) -> dict:
    dtype = getattr(torch, case.dtype)
    beside = _dtype(case.beside, accumulator(dtype))
    m, n, k = case.m, case.n, case.k
    batch = _batch_of(case)

    def values(shape, dtype):
        return _values(generator, shape, dtype)

    def vector(kind, length, batch=()):
        # Scales are positive and of moderate size, as scales are.
        shape = () if kind == "one" else (*(batch if kind in ("each", "matrices") else ()), length)
        return None if kind is None else values(shape, beside).abs() * 0.5 + 0.25

    t = {
        "a": place(values((*case.batch_a, m, k), dtype), case.a_layout),
        "b": place(values((*case.batch_b, k, n), _dtype(case.dtype_b, dtype)), case.b_layout),
        "c": _addend(generator, case.c, (*batch, m, n), _dtype(case.c_dtype, beside), case.c_layout),
        "bias": values((n,), beside) if case.bias else None,
        "row_scale": vector(case.row_scale, m, case.batch_a),
        "col_scale": vector(case.col_scale, n, case.batch_b),
        "a_scale": vector(case.a_scale, k),
        "multiply": _addend(generator, case.multiply, (*batch, m, n), beside),
    }
    if case.k2 is not None:
        t["a2"] = place(values((*case.batch_a2, m, case.k2), dtype), case.a2_layout)
        t["b2"] = place(values((*case.batch_b2, case.k2, n), t["b"].dtype), case.b2_layout)
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


def _attention_operands(case: AttentionCase, generator) -> dict:
    dtype = getattr(torch, case.dtype)
    kv_heads = case.heads if case.kv_heads is None else case.kv_heads
    ev = case.e if case.ev is None else case.ev

    def tensor(heads, length, size):
        return _place_attention(_values(generator, (case.batch, heads, length, size), dtype), case.layout)

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
    if case.special == "nan_q":
        _poison(t["q"], float("nan"))
    if case.special == "inf_k":
        _poison(t["k"], float("inf"))
    return t


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
        x = _filled((count, case.page_size, heads, size), stored)
        for i, keys in enumerate(used):
            for first in range(0, keys, case.page_size):
                there = min(case.page_size, keys - first)
                x[table[i, first // case.page_size], :there] = _values(generator, (there, heads, size), stored)
        return _place_attention(x, case.layout)

    def tokens(lengths, used, heads, size):
        x = _values(generator, (sum(lengths) + case.beyond, heads, size), dtype)
        for start, length, there in zip(ends(lengths).tolist(), lengths, used or lengths, strict=False):
            x[start + there : start + length] = torch.nan
        x[sum(lengths) :] = torch.nan
        return _place_attention(x, case.layout)

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


def _dropout_seed(generator) -> Tensor:
    return torch.randint(-(2**63), 2**63 - 1, (1,), generator=generator)


def _block_table(generator, pages: list[int]) -> tuple[Tensor, int]:
    """Of sequences with so many pages, in any order, and behind the last of them numbers of none; and how many pages there
    are, of which two are nobody's."""
    order = torch.randperm(sum(pages) + 2, generator=generator).tolist()
    table = torch.full((len(pages), max(pages, default=0) + 1), 2**30, dtype=torch.int32)
    table[:, 1::2] = -1
    for row, count in zip(table, pages, strict=True):
        row[:count] = torch.tensor([order.pop() for _ in range(count)], dtype=torch.int32)
    return table, sum(pages) + 2


# Calls.


def call(case, t: dict, implementation: dict[str, Callable]) -> tuple[Tensor, ...]:
    """Calls the case's op, which `implementation` may replace, with the tensors `t`."""
    op = implementation.get(case.op, getattr(wmma_ops, case.op))
    if isinstance(case, AttentionCase):
        return tuple(
            op(
                t["q"],
                t["k"],
                t["v"],
                mask=t["mask"],
                is_causal=case.causal or False,
                scale=case.scale,
                enable_gqa=case.kv_heads is not None,
                **_rules_of(case, t),
            )
        )
    if isinstance(case, VarlenAttentionCase):
        rules = {"window_size": case.window, "softcap": case.softcap, "scale": case.scale, "dropout_p": case.dropout}
        longest = {"max_q": max(case.queries, default=0), "max_k": max(case.keys, default=0)}
        if case.page_size is not None:
            longest["max_k"] = None
        mods = tuple(x for name, x in t.items() if name in ARGUMENTS)
        if case.score_mod is not None or case.mask_mod is not None:  # implementations may know less
            rules |= {"score_mod": case.score_mod, "mask_mod": case.mask_mod, "mod_operands": mods}
        given = {name: x for name, x in t.items() if name not in ARGUMENTS}
        return tuple(op(**given, **longest, **rules, enable_gqa=case.kv_heads is not None))
    out_dtype = None if case.out_dtype is None else getattr(torch, case.out_dtype)
    if isinstance(case, GemmGemmCase):
        companions = {name: t[name] for name in ("c", "bias0", "bias1", "gate")}
        factors = {"alpha0": case.alpha0, "alpha1": case.alpha1, "beta1": case.beta1}
        return (op(t["a"], t["b0"], t["b1"], **companions, **factors, activation=case.activation, out_dtype=out_dtype),)
    a, b = t["a"], t["b"]
    match case.op:
        case "matmul":
            return (op(a[0] if case.vector_a else a, b[..., 0] if case.vector_b else b, out_dtype=out_dtype),)
        case "addmm" | "baddbmm":
            return (op(t["c"], a, b, alpha=case.alpha, beta=case.beta, out_dtype=out_dtype),)
        case "addmm_":
            return (op(t["c"], a, b, alpha=case.alpha, beta=case.beta),)
        case "linear":
            residual = t["c"]
            weight = b.mT
            return (op(a[0] if case.vector_a else a, weight, t["bias"], activation=case.activation, residual=residual),)
        case "scaled_mm":
            scales = _as_asked(t["row_scale"], case.row_scale, -1), _as_asked(t["col_scale"], case.col_scale, -2)
            return (op(a, b, *scales, bias=t["bias"], out_dtype=out_dtype),)
    companions = {name: t[name] for name in ("c", "bias", "row_scale", "col_scale", "a_scale", "multiply")}
    companions |= {name: t[name] for name in ("a2", "b2") if name in t}
    options = {"alpha": case.alpha, "beta": case.beta, "out_dtype": out_dtype}
    return (op(a, b, **companions, **options, a_activation=case.a_activation, activation=case.activation),)


def _rules_of(case: AttentionCase, t: dict) -> dict:
    """What is asked for, and no more: implementations may know less."""
    given = {"window": case.window, "softcap": case.softcap, "dropout_p": case.dropout}
    given |= {name: t.get(name) for name in ("sinks", "alibi_slopes", "dropout_seed")}
    defaults = {"window": (-1, -1), "softcap": 0.0, "dropout_p": 0.0}
    return {name: x for name, x in given.items() if isinstance(x, torch.Tensor) or x != defaults.get(name)}


def _as_asked(scale: Tensor, kind: str | None, one: int) -> Tensor:
    """With a dimension of one, as torch's scales have it."""
    return scale.unsqueeze(one) if kind in ("matrix", "matrices") else scale


def expected(case, t: dict) -> tuple[reference.Value, ...]:
    """The float64 results with their bounds."""
    if isinstance(case, AttentionCase):
        options = {"window": case.window, "softcap": case.softcap or None, "dropout": case.dropout}
        return reference.attention(t, causal=case.causal, scale=case.scale, **options)
    if isinstance(case, VarlenAttentionCase):
        return _varlen_expected(case, t)
    if isinstance(case, GemmGemmCase):
        options = {"alpha0": case.alpha0, "alpha1": case.alpha1, "beta1": case.beta1, "activation": case.activation}
        return (reference.gemm_gemm(t, out_type(case), **options),)
    value = reference.gemm(
        t,
        out_type(case),
        alpha=case.alpha,
        beta=case.beta,
        a_activation=case.a_activation,
        activation=case.activation,
    )
    if case.vector_b:
        value = reference.Value(value.x[..., 0], value.error[..., 0])
    if case.vector_a:
        axis = -1 if case.vector_b else -2
        value = reference.Value(value.x.select(axis, 0), value.error.select(axis, 0))
    return (value,)


def _varlen_expected(case: VarlenAttentionCase, t: dict) -> tuple[reference.Value, ...]:
    """Each sequence's own, one after the other; of tokens of none, those of rows that see no key."""
    tokens, number = t["query"].shape[0], torch.float64
    shape = (case.heads, tokens, t["value"].shape[-1])
    out = reference.exact(torch.zeros(shape, dtype=number))
    lse = reference.exact(torch.full(shape[:2], -torch.inf, dtype=number))
    starts_q, starts_k = (None if t[name] is None else t[name].tolist() for name in ("cu_seq_q", "cu_seq_k"))
    for i, (queries, keys) in enumerate(zip(case.queries, case.used or case.keys, strict=True)):
        rows = slice(starts_q[i], starts_q[i] + queries)

        def seen(x, i=i, keys=keys):
            if case.page_size is None:
                return x[starts_k[i] : starts_k[i] + keys]
            own = t["block_table"][i, : -(-keys // case.page_size)].tolist()
            return x[own].flatten(0, 1)[:keys]

        own = {"q": t["query"][rows], "k": seen(t["key"]), "v": seen(t["value"])}
        own = {name: x.transpose(0, 1) for name, x in own.items()}
        for name in ("k", "v") if case.descale is not None else ():
            descale = t[f"{name}_descale"].double().expand(len(case.queries), own[name].shape[0])[i]
            own[name] = own[name].double() * descale[:, None, None]
        own |= {name: t.get(name) for name in ("sinks", "alibi_slopes", "dropout_seed")}
        if case.score_mod is not None or case.mask_mod is not None:
            shape = (case.heads, queries, keys)
            own["mask"] = functions.added(t.get("mod_a"), t.get("mod_b"), case.mask_mod is not None, i, shape)
        rules = {"window": case.window, "softcap": case.softcap or None, "dropout": case.dropout}
        parts = reference.attention(own, scale=case.scale, first_batch=i, **rules)
        for whole, part in zip((out, lse), parts, strict=True):
            whole.x[:, rows], whole.error[:, rows] = part.x, part.error
    return reference.Value(out.x.transpose(0, 1), out.error.transpose(0, 1)), lse


def torch_result(case, t: dict) -> Tensor | None:
    """The same computed by torch in the operands' own type, rounding after each step; None where torch has none."""
    if isinstance(case, VarlenAttentionCase):
        return None  # which it has on a GPU alone
    dtype = getattr(torch, case.dtype)
    if dtype not in (torch.float32, torch.bfloat16, torch.float16) or case.special is not None:
        return None  # (in float64, torch computes the reference itself)

    def own(x):
        return x if x is None or x.dtype == torch.bool else x.to(dtype)

    if isinstance(case, AttentionCase):
        if 0 in (case.sq, case.skv, case.batch) or case.causal == "bottom_right":
            return None
        if case.mask == "far" and dtype == torch.float16:
            return None  # which has no such numbers
        if case.window != (-1, -1) or case.softcap or case.sinks or case.slopes or case.dropout:
            return None  # which it has not
        mask = None if t["mask"] is None else own(t["mask"]).expand(case.batch, case.heads, case.sq, case.skv)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(
                t["q"],
                t["k"],
                t["v"],
                attn_mask=mask,
                is_causal=case.causal is not None,
                scale=case.scale,
                enable_gqa=case.kv_heads is not None,
            )
    if out_type(case) != dtype:
        return None
    act = activations.by_code(activations.code("torch", "activation", case.activation)).forward
    if isinstance(case, GemmGemmCase):
        d0 = case.alpha0 * torch.matmul(t["a"], t["b0"])
        d0 = act(d0 if t["bias0"] is None else d0 + own(t["bias0"]))
        d0 = d0 if t["gate"] is None else d0 * torch.matmul(t["a"], t["gate"])
        d1 = case.alpha1 * torch.matmul(d0, t["b1"])
        d1 = d1 if t["c"] is None or case.beta1 == 0 else d1 + case.beta1 * own(t["c"])
        return d1 if t["bias1"] is None else d1 + own(t["bias1"])
    if case.vector_a or case.vector_b:
        return None
    p = t["a"] if t["a_scale"] is None else t["a"] * own(t["a_scale"])
    if case.a_activation is not None:
        p = activations.by_code(activations.code("torch", "a_activation", case.a_activation)).forward(p)
    s = torch.matmul(p, t["b"])
    if "a2" in t:
        s = s + torch.matmul(t["a2"], t["b2"])
    s = case.alpha * s
    if (row := t["row_scale"]) is not None:
        s = s * own(row.unsqueeze(-1) if row.dim() else row)
    if (column := t["col_scale"]) is not None:
        s = s * own(column.unsqueeze(-2) if column.dim() > 1 else column)
    s = s if t["c"] is None or case.beta == 0 else s + case.beta * own(t["c"])
    s = act(s if t["bias"] is None else s + own(t["bias"]))
    return s if t["multiply"] is None else s * own(t["multiply"])


# Comparison.


def _report(case, what: str, where, got, want, bound) -> Mismatch:
    at = tuple(int(i) for i in where)
    return Mismatch(f"{case!r}\n  {what} at {at}: got {got}, expected {want} within {bound:.3g}")


def compare(case, got: Tensor, value: reference.Value, out: torch.dtype, what: str = "result") -> None:
    """Raises Mismatch unless `got` is `value`, with NaN and infinities in the same places."""
    if got.dtype != out:
        raise Mismatch(f"{case!r}\n  {what} has type {got.dtype}, expected {out}")
    if got.shape != value.x.shape:
        raise Mismatch(f"{case!r}\n  {what} has shape {list(got.shape)}, expected {list(value.x.shape)}")
    if got.numel() == 0:
        return
    x = got.double().cpu()
    want = value.x.to(out).double()  # where the output type overflows, the right answer is an infinity
    finite = want.isfinite()
    for name, wrong in (
        ("NaN", x.isnan() != want.isnan()),
        ("infinity", (x.isinf() | want.isinf()) & (x != want) & ~x.isnan() & ~want.isnan()),
    ):
        if bool(wrong.any()):
            where = wrong.nonzero()[0]
            raise _report(case, f"{what}: {name}", where, x[tuple(where)].item(), want[tuple(where)].item(), 0)
    excess = torch.where(finite, (x - value.x).abs() - value.error, -1.0)
    if bool((excess > 0).any()):
        flat = int(excess.argmax())
        where = torch.unravel_index(torch.tensor(flat), excess.shape)
        at = tuple(int(i) for i in where)
        raise _report(case, what, at, x[at].item(), value.x[at].item(), value.error[at].item())


def compare_with_torch(case, got: Tensor, value: reference.Value, own: Tensor) -> None:
    """No worse than twice torch's result in the same type, beside one rounding of the largest element.

    Over 256 elements or more: the largest error of a few is luck.
    """
    if got.numel() < 256:
        return
    finite = value.x.isfinite() & own.double().isfinite()
    if not bool(finite.any()):
        return
    ours = (got.double().cpu() - value.x).abs()[finite].max().item()
    theirs = (own.double() - value.x).abs()[finite].max().item()
    floor = reference.unit(got.dtype) * value.x.abs()[finite].max().item()
    if ours > 2 * theirs + floor:
        raise Mismatch(f"{case!r}\n  largest error {ours:.3g}, torch's own in the same type {theirs:.3g}")


def run(
    case,
    backend: str = "cpu",
    implementation: dict[str, Callable] | None = None,
    *,
    against_torch: bool = True,
    order: str = "forward",
    seed: int = 0,
) -> None:
    """Runs one case on a backend; raises Mismatch where the contract on values is broken.

    `implementation` replaces ops by name: the tests use it to show that wrong ones are caught. `against_torch` is for
    cases with enough different elements for a largest error to mean something. `order` and `seed` are `emulate`'s.
    """
    device = "cuda" if backend == "cuda" else "cpu"
    t = operands(case)
    values = expected(case, t)
    own = torch_result(case, t) if against_torch else None
    on_device = {name: None if x is None else fenced(x, device) for name, x in t.items()}
    before = {name: None if x is None else x.clone() for name, x in on_device.items()}
    with _active(backend, case, order, seed):
        results = call(case, on_device, implementation or {})
    outs = [out_type(case)]
    if isinstance(case, (AttentionCase, VarlenAttentionCase)):
        outs.append(accumulator(outs[0]))
    for index, (got, value, out) in enumerate(zip(results, values, outs, strict=True)):
        compare(case, got, value, out, "lse" if index else "result")
    if own is not None:
        compare_with_torch(case, results[0], values[0], own)
    for name, x in on_device.items():
        if x is not None and not (case.op == "addmm_" and name == "c"):
            same = torch.equal(x.nan_to_num(7.0), before[name].nan_to_num(7.0)) if _comparable(x) else True
            if not same:
                raise Mismatch(f"{case!r}\n  the operand {name} was written to")
    if case.op == "addmm_":
        if results[0] is not on_device["c"]:
            raise Mismatch(f"{case!r}\n  the result is not the input")
        _check_surroundings(case, on_device["c"])


def _comparable(x: Tensor) -> bool:
    return x.dtype not in FP8


def _check_surroundings(case, x: Tensor) -> None:
    """What lies around the input of an in-place op is as it was."""
    store = torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage())
    mine = torch.zeros(store.numel(), dtype=torch.bool, device=x.device)
    mine.as_strided(x.shape, x.stride(), x.storage_offset()).fill_(True)
    around = store[~mine].cpu()
    filling = _filled(around.shape, x.dtype)
    if not torch.equal(around.nan_to_num(7.0), filling.nan_to_num(7.0)):
        raise Mismatch(f"{case!r}\n  memory around the input was written to")


_FENCE = 1 << 16  # bytes, a multiple of every alignment


def fenced(x: Tensor, device: str) -> Tensor:
    """`x` on the device with the same strides and surroundings. On the CPU with a fence around these: what a kernel reads
    beyond a tensor is then no neighbour's memory, wherever the allocator has put the others."""
    store = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    if device == "cpu":
        fence = _FENCE // x.element_size()
        fenced = _filled((store.numel() + 2 * fence,), x.dtype)[fence:-fence]
        return fenced.copy_(store).as_strided(x.shape, x.stride(), fence + x.storage_offset())
    return store.to(device).as_strided(x.shape, x.stride(), x.storage_offset())
