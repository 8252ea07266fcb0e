"""Attention with functions of scores and masks, and with block masks: cases, ours, and a formula by torch in float64."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.ops import score_functions
from wmma_ops.testing.reference import unit

Tensor = torch.Tensor
FAR = 3  # distances that a table has a number of, each way
SEED = torch.tensor(3 * 2**40 + 11)
IDS = 2**24  # from here on no float counts documents


def score_named(name: str, expression: str, derivative: str, function: Callable[..., Tensor], operands: int = 0) -> str:
    wmma_ops.register_score_mod(
        name, expression=expression, derivative=derivative, function=function, operands=operands
    )
    return name


def mask_named(name: str, expression: str, function: Callable[..., Tensor], operands: int = 0) -> str:
    wmma_ops.register_mask_mod(name, expression=expression, function=function, operands=operands)
    return name


TABLE = score_named(
    "table_of_distances",
    f"score + a(head, min(max(query - key, -{FAR}), {FAR}) + {FAR})",
    "1",
    lambda score, b, h, q, k, table: score + table[h, (q - k).clamp(-FAR, FAR) + FAR],
    1,
)
SLOPES = score_named(
    "slopes_as_a_tensor",
    "score - a(head) * abs(query - key)",
    "1.f",
    lambda score, b, h, q, k, slopes: score - slopes[h] * (q - k).abs(),
    1,
)
CAP = score_named(
    "cap_of_3",
    "3 * tanh(score / 3)",
    "1 - tanh(score / 3) * tanh(score / 3)",
    lambda score, b, h, q, k: 3 * torch.tanh(score / 3),
)
BOTH = score_named(  # two tensors, bent, of every place
    "bent_where_a_key_is_marked",
    "b(key) ? score * score * a(batch, head) : score + query / 100.f",
    "b(key) ? 2 * score * a(batch, head) : 1",
    lambda score, b, h, q, k, factor, marked: torch.where(marked[k], score**2 * factor[b, h], score + q / 100),
    2,
)
LEAST = score_named(  # as models hide keys, all of a row's among them
    "the_least_number",
    "key > query || query % 4 == 0 ? score - 1e30f : score",
    "1",
    lambda score, b, h, q, k: torch.where((k > q) | (q % 4 == 0), score - 1e30, score),
)
OUTSIDE = score_named(  # but keys from 30 on are hidden
    "reads_outside_its_tensor",
    "score + a(key)",
    "1",
    lambda score, b, h, q, k, table: score + table[k.clamp(max=29)],
    1,
)
DOCUMENTS = mask_named(
    "one_document", "a(batch, query) == a(batch, key)", lambda b, h, q, k, ids: ids[b, q] == ids[b, k], 1
)
PREFIX = mask_named(
    "prefix_or_causal", "key < b(batch) || key <= query", lambda b, h, q, k, _, n: (k < n[b]) | (k <= q), 2
)
NEAR = mask_named("up_to_5_away", "abs(query - key) <= 5", lambda b, h, q, k: (q - k).abs() <= 5)
EVEN = mask_named("even_keys_but_of_query_3", "query != 3 && key % 2 == 0", lambda b, h, q, k: (q != 3) & (k % 2 == 0))
ROUND = mask_named(
    "of_each_batch", "key / 90 == (query / 90 + batch) % 3", lambda b, h, q, k: k // 90 == (q // 90 + b) % 3
)
FIRST = mask_named("keys_before_30", "key < 30", lambda b, h, q, k: (k < 30) & (q >= 0))


@dataclass(frozen=True)
class Case:
    dtype: str
    score_mod: str | None = None
    mask_mod: str | None = None
    batch: tuple[int, ...] = (2,)
    heads: int = 2
    kv_heads: int | None = None
    sq: int = 19
    skv: int = 37
    e: int = 24
    ev: int = 16
    scale: float | None = None
    causal: str | None = None
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    sinks: bool = False
    slopes: bool = False
    mask: str | None = None  # "bool" or "float"
    apart: bool = False  # batches that cannot be joined: more than one launch
    dropout_p: float = 0.0
    blocks: tuple[int, int] | None = None  # sizes of those of a block mask
    blocks_alike: bool = False  # of all heads and batches
    first_batch: int = 0  # its number
    # It is one of so many packed ones, the longest of so many rows and keys.
    sequences: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        extras = [
            name
            for name in ("causal", "softcap", "sinks", "slopes", "mask", "apart", "dropout_p", "blocks")
            if getattr(self, name)
        ]
        return "-".join(filter(None, (self.dtype, self.score_mod, self.mask_mod, *extras)))


WITH_FUNCTIONS = (
    Case("float16", TABLE),
    Case("bfloat16", TABLE, heads=4, kv_heads=2, causal="bottom_right", sq=40, skv=50),
    Case("float32", SLOPES, causal="top_left"),
    Case("float64", CAP, sq=10, skv=12),
    Case("float16", CAP, NEAR, sq=33, skv=33, softcap=4.0, sinks=True),
    Case("bfloat16", BOTH, mask="bool", batch=(2, 3), apart=True, dropout_p=0.3),
    Case("float32", BOTH, EVEN, batch=(3, 2), apart=True, sinks=True),
    Case("float64", TABLE, PREFIX, sq=9, skv=14),
    Case("bfloat16", LEAST, scale=0.4),
    Case("bfloat16", None, DOCUMENTS, sq=70, skv=70, e=64, ev=64),
    Case("float16", None, DOCUMENTS, sq=33, skv=33, causal="top_left", slopes=True, softcap=3.0),
    Case("float32", TABLE, EVEN, mask="float", window=(6, 3)),
    Case("float16", TABLE, None, batch=(1,), heads=4, kv_heads=1, sq=2, skv=600, e=64, ev=64),  # keys are split
    Case("float64", SLOPES, NEAR, batch=(), sq=11, skv=11),
    Case("float16", OUTSIDE, FIRST),
    Case("bfloat16", CAP, FIRST, heads=4, kv_heads=2, causal="top_left", dropout_p=0.5),
)
WITH_BLOCKS = (
    Case("float16", sq=100, skv=150, blocks=(32, 32)),
    Case("bfloat16", None, NEAR, heads=4, kv_heads=2, sq=200, skv=300, e=64, ev=64, blocks=(64, 128)),
    Case("float32", sq=130, skv=100, blocks=(64, 32), blocks_alike=True, causal="bottom_right", softcap=3.0),
    Case("float64", CAP, EVEN, batch=(), sq=70, skv=70, blocks=(32, 64)),
    Case("float16", None, EVEN, sq=130, skv=290, window=(200, 90), sinks=True, slopes=True, blocks=(128, 96)),
    Case("bfloat16", TABLE, NEAR, batch=(2, 3), apart=True, sq=70, skv=70, blocks=(64, 32), mask="bool"),
    Case("float16", batch=(1,), heads=4, kv_heads=1, sq=2, skv=1500, e=64, ev=64, blocks=(32, 64)),  # keys are split
    Case("bfloat16", None, NEAR, sq=260, skv=390, e=128, ev=128, blocks=(128, 128), dropout_p=0.3, blocks_alike=True),
    Case("float16", heads=1, sq=33, skv=2400, blocks=(96, 32)),  # more blocks than are looked at at once
    Case("float16", heads=1, sq=2400, skv=33, blocks=(32, 32)),
    Case("bfloat16", sq=96, skv=160, e=320, ev=24, blocks=(32, 32)),  # rows of K come in parts
)
# Kernels find the blocks.
FOUND = (
    Case("float16", None, DOCUMENTS, heads=8, batch=(1,), sq=300, skv=300, e=32, ev=32),
    Case("bfloat16", None, DOCUMENTS, heads=8, batch=(1,), sq=256, skv=390, e=32, ev=32, causal="bottom_right"),
    Case("bfloat16", None, ROUND, heads=8, batch=(2, 2), apart=True, sq=270, skv=270, e=16, ev=16),
    Case("float16", CAP, NEAR, heads=4, sq=260, skv=260),
    Case("bfloat16", TABLE, PREFIX, heads=8, kv_heads=2, batch=(1,), sq=270, skv=270, window=(250, 120)),
)


def by_turns(cases: Sequence, first: int, second: int, quick: int | None = None) -> list:
    """Each case on two of the emulated targets, which take turns; the second is for the full tests, and so are both of
    those behind the first `quick`."""
    return [
        pytest.param(
            arch.EMULATED[(i + turn) % len(arch.EMULATED)],
            case,
            marks=pytest.mark.full if turn == second or (quick is not None and i >= quick) else (),
        )
        for turn in (first, second)
        for i, case in enumerate(cases)
    ]


def mods_of(case: Case) -> tuple[Tensor, ...]:
    """Of odd strides and of several types."""
    generator = torch.Generator().manual_seed(1)

    def numbers(*shape):
        return torch.randn(*shape, 2, generator=generator)[..., 0]

    batches = math.prod(case.batch)
    first = {
        TABLE: numbers(2 * FAR + 1, case.heads).T,
        SLOPES: numbers(case.heads).to(torch.float64),
        BOTH: numbers(case.heads, batches).T.bfloat16(),
        OUTSIDE: numbers(60)[:30],
        DOCUMENTS: IDS + torch.arange(case.skv).repeat(batches, 1) // 7 + torch.arange(batches)[:, None],
    }
    found = [first.get(case.score_mod, first.get(case.mask_mod))]
    if case.score_mod == BOTH:
        found.append(torch.arange(2 * case.skv).view(-1, 2)[:, 1] % 3 == 0)
    if case.mask_mod == PREFIX:
        found[1:] = [torch.arange(1, batches + 1, dtype=torch.int32)]
    return tuple(x for x in found if x is not None)


def operands(case: Case) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    dtype = getattr(torch, case.dtype)

    def tensor(*shape):
        return torch.randn(shape, generator=generator).to(dtype)

    kv = (*case.batch, case.kv_heads or case.heads, case.skv)
    t = {"q": tensor(*case.batch, case.heads, case.sq, case.e), "k": tensor(*kv, case.e), "v": tensor(*kv, case.ev)}
    if case.apart:
        t["k"] = t["k"].transpose(0, 1).contiguous().transpose(0, 1)
    if case.sinks:
        t["sinks"] = tensor(case.heads)
    if case.slopes:
        t["alibi_slopes"] = tensor(case.heads).float().abs()
    if case.mask:
        mask = torch.randn(case.sq, case.skv, generator=generator)
        t["mask"] = mask < 1 if case.mask == "bool" else mask
    return t


def states_of(case: Case) -> Tensor:
    """Of every kind; a line of blocks of queries sees nothing, and one of keys is not seen."""
    assert case.blocks is not None
    if case.sequences:
        count, sq, skv = case.sequences
        of_all = states_of(replace(case, batch=(count,), sq=sq, skv=skv, sequences=None))
        own = of_all if case.blocks_alike else of_all[case.first_batch]
        return own[..., : math.ceil(case.sq / case.blocks[0]), : math.ceil(case.skv / case.blocks[1])]
    outer = () if case.blocks_alike else (*case.batch, case.heads)
    rows, columns = math.ceil(case.sq / case.blocks[0]), math.ceil(case.skv / case.blocks[1])
    generator = torch.Generator().manual_seed(3)
    states = torch.randint(0, 4, (*outer, rows, columns, 2), generator=generator, dtype=torch.int8)[..., 0] % 3
    if rows > 2:
        states[..., rows // 2, :] = 0
    if columns > 2:
        states[..., columns // 3] = 0
    return states


def ours(q, k, v, case: Case, mods: tuple[Tensor, ...], **beside: Tensor) -> tuple[Tensor, Tensor]:
    options: dict[str, Any] = {
        "is_causal": case.causal or False,
        "scale": case.scale,
        "window": case.window,
        "softcap": case.softcap,
    }
    gqa = case.kv_heads is not None
    if case.dropout_p:
        options |= {"dropout_p": case.dropout_p, "dropout_seed": SEED.to(q.device)}
    if case.blocks:
        options["block_mask"] = wmma_ops.Blocks(states_of(case).to(q.device), *case.blocks)
    names = {"score_mod": case.score_mod, "mask_mod": case.mask_mod}
    return wmma_ops.attention(q, k, v, enable_gqa=gqa, mod_operands=mods, **names, **options, **beside)


def formula(q, k, v, case: Case, mods, *, mask=None, sinks=None, alibi_slopes=None) -> tuple[Tensor, Tensor]:
    """By torch alone."""
    if case.kv_heads:
        k, v = (x.repeat_interleave(case.heads // case.kv_heads, -3) for x in (k, v))
    batch = case.first_batch + torch.arange(math.prod(case.batch)).view(*case.batch, 1, 1, 1)
    head, query = torch.arange(case.heads).view(-1, 1, 1), torch.arange(case.sq).view(-1, 1)
    key = torch.arange(case.skv)
    mods = tuple(x.to(q.dtype) if x.is_floating_point() else x for x in mods)
    scores = (case.e**-0.5 if case.scale is None else case.scale) * (q @ k.mT)
    if case.softcap:
        scores = case.softcap * torch.tanh(scores / case.softcap)
    stands = query if case.causal == "top_left" else query + case.skv - case.sq
    if alibi_slopes is not None:
        scores = scores - alibi_slopes.to(q.dtype)[:, None, None] * (stands - key).abs()
    if case.score_mod:
        function = score_functions.by_code(False, score_functions.codes("", case.score_mod, None)["score_mod"])
        scores = function.function(scores, batch, head, query, key, *mods[: function.operands])
    shown = torch.ones(case.sq, case.skv, dtype=torch.bool)
    if case.causal:
        shown = shown & (key <= stands)
    if case.window[0] >= 0:
        shown = shown & (key >= stands - case.window[0])
    if case.window[1] >= 0:
        shown = shown & (key <= stands + case.window[1])
    if case.mask_mod:
        function = score_functions.by_code(True, score_functions.codes("", None, case.mask_mod)["mask_mod"])
        by_function = function.function(batch, head, query, key, *mods[: function.operands])
    else:
        by_function = torch.ones((), dtype=torch.bool)
    if case.blocks:
        state = states_of(case)[..., query // case.blocks[0], key // case.blocks[1]]
        by_function = (state == 2) | ((state == 1) & by_function)
    shown = shown & by_function
    if case.mask == "float":
        scores = scores + mask.to(q.dtype)
    elif case.mask:
        shown = shown & mask
    blind = ~shown.expand(scores.shape).any(-1)
    scores = scores.masked_fill(~shown, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(q.dtype)[:, None, None].expand(*scores.shape[:-1], 1)], -1)
    elif blind.any():
        scores = scores.masked_fill(blind[..., None], 0.0)  # whose softmax has a gradient
    lse = torch.logsumexp(scores, -1)
    weights = torch.softmax(scores, -1)[..., : case.skv].masked_fill(blind[..., None], 0.0)
    if case.dropout_p:
        of_all = case.first_batch + math.prod(case.batch), *weights.shape[-3:]
        kept = wmma_ops.dropout_mask(SEED, case.dropout_p, of_all)[case.first_batch :].view(weights.shape)
        weights = torch.where(kept, weights / (1 - case.dropout_p), 0.0)
    return weights.to(v.dtype) @ v, lse if sinks is not None else lse.masked_fill(blind, -torch.inf)


def on(device: str, x: Tensor) -> Tensor:
    """With the same strides."""
    if device == "cpu":
        return x
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device).copy_(x)


def results(case: Case, compute, dtype: torch.dtype | None = None, device: str = "cpu") -> dict[str, Tensor]:
    """Both results, and the gradients of what both have."""
    return differentiated(case, operands(case), mods_of(case), compute, dtype, device)


def differentiated(
    case, t: dict[str, Tensor], mods, compute, dtype: torch.dtype | None = None, device: str = "cpu"
) -> dict[str, Tensor]:
    t = {name: x.to(dtype) if dtype and x.is_floating_point() else x for name, x in t.items()}
    t = {name: on(device, x) for name, x in t.items()}
    names = [name for name in ("q", "k", "v", "sinks") if name in t]
    t |= {name: t[name].detach().requires_grad_() for name in names}
    mods = tuple(on(device, x) for x in mods)
    q, k, v = (t.pop(name) for name in "qkv")
    out, lse = compute(q, k, v, case, mods, **t)
    generator = torch.Generator().manual_seed(2)
    g_out, g_lse = (torch.randn(x.shape, generator=generator).to(x.dtype).to(device) for x in (out, lse))
    # Of a row that sees nothing, or least numbers alone, lse has no gradient.
    g_lse = torch.where(lse.isfinite() & (lse > -1e20), g_lse, 0.0)
    given = [q, k, v, *(t[name] for name in names[3:])]
    grads = torch.autograd.grad((out, lse), given, (g_out, g_lse))
    found = {"out": out.detach(), "lse": lse.detach()} | {f"g_{x}": g for x, g in zip(names, grads, strict=True)}
    return {name: x.cpu() for name, x in found.items()}


def check(case: Case, got: dict[str, Tensor]) -> None:
    """Against the formula in float64; as far off as the formula is in the case's own type."""
    compare(case, got, results(case, formula, torch.float64), results(case, formula))


def compare(case, got: dict[str, Tensor], want: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    for name, x in got.items():
        exact = want[name]
        seen = exact.isfinite() & (exact > -1e20)
        assert torch.equal(x.isfinite(), exact.isfinite()), f"{name} of {case}: another row sees nothing"
        error, own = ((y.double() - exact)[seen].abs().max() for y in (x, theirs[name]))
        terms = case.skv + case.e
        # In types that sums are made in these are made in another order: their roundings add up as a walk does; beside a
        # formula in the very type that is exact here, nothing is known of its own.
        roundings = {"float64": 2.0 * terms, "float32": 2.0 * terms**0.5}.get(case.dtype, 4.0)
        floor = roundings * unit(x.dtype) * exact[seen].abs().max()
        if name == "lse":
            own, floor = 0.0, 4 * roundings * unit(x.dtype) * max(exact[seen].abs().max(), 1.0)
        assert error <= 2 * own + floor, f"{name} of {case}: {error:.3g}, by the formula in its type {own:.3g}"


def emulated(case: Case, target: str) -> dict[str, Tensor]:
    with wmma_ops.emulate(target) as emulation:
        got = results(case, ours)
    assert len(emulation.launches) >= 4
    return got
