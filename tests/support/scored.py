"""Attention with functions of scores and masks, and with block masks: cases, ours, and a formula by torch in float64."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import wmma_ops
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

    def __str__(self) -> str:
        extras = [
            name
            for name in ("causal", "softcap", "sinks", "slopes", "mask", "apart", "dropout_p", "blocks")
            if getattr(self, name)
        ]
        return "-".join(filter(None, (self.dtype, self.score_mod, self.mask_mod, *extras)))


def mods_of(case: Case, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Of odd strides and of several types."""

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
        options |= {"dropout_p": case.dropout_p, "dropout_seed": SEED}
    if case.blocks:
        options["block_mask"] = wmma_ops.Blocks(states_of(case), *case.blocks)
    names = {"score_mod": case.score_mod, "mask_mod": case.mask_mod}
    return wmma_ops.attention(q, k, v, enable_gqa=gqa, mod_operands=mods, **names, **options, **beside)


def formula(q, k, v, case: Case, mods, *, mask=None, sinks=None, alibi_slopes=None) -> tuple[Tensor, Tensor]:
    """By torch alone."""
    if case.kv_heads:
        k, v = (x.repeat_interleave(case.heads // case.kv_heads, -3) for x in (k, v))
    batch = torch.arange(math.prod(case.batch)).view(*case.batch, 1, 1, 1)
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
        kept = wmma_ops.dropout_mask(SEED, case.dropout_p, weights.shape)
        weights = torch.where(kept, weights / (1 - case.dropout_p), 0.0)
    return weights.to(v.dtype) @ v, lse if sinks is not None else lse.masked_fill(blind, -torch.inf)


def results(case: Case, compute, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Both results, and the gradients of what both have."""
    t = {name: x.to(dtype) if dtype and x.is_floating_point() else x for name, x in operands(case).items()}
    names = [name for name in ("q", "k", "v", "sinks") if name in t]
    t |= {name: t[name].detach().requires_grad_() for name in names}
    mods = mods_of(case, torch.Generator().manual_seed(1))
    q, k, v = (t.pop(name) for name in "qkv")
    out, lse = compute(q, k, v, case, mods, **t)
    generator = torch.Generator().manual_seed(2)
    g_out, g_lse = (torch.randn(x.shape, generator=generator).to(x) for x in (out, lse))
    # Of a row that sees nothing, or least numbers alone, lse has no gradient.
    g_lse = torch.where(lse.isfinite() & (lse > -1e20), g_lse, 0.0)
    given = [q, k, v, *(t[name] for name in names[3:])]
    grads = torch.autograd.grad((out, lse), given, (g_out, g_lse))
    return {"out": out.detach(), "lse": lse.detach()} | {f"g_{x}": g for x, g in zip(names, grads, strict=True)}


def check(case: Case, got: dict[str, Tensor]) -> None:
    """Against the formula in float64; as far off as the formula is in the case's own type."""
    want, theirs = results(case, formula, torch.float64), results(case, formula)
    for name, x in got.items():
        exact = want[name]
        seen = exact.isfinite() & (exact > -1e20)
        assert torch.equal(x.isfinite(), exact.isfinite()), f"{name} of {case}: another row sees nothing"
        error, own = ((y.double() - exact)[seen].abs().max() for y in (x, theirs[name]))
        roundings = 2 * (case.skv + case.e) if case.dtype == "float64" else 4
        floor = roundings * unit(x.dtype) * exact[seen].abs().max()
        if name == "lse":
            own, floor = 0.0, 4 * roundings * unit(x.dtype) * max(exact[seen].abs().max(), 1.0)
        assert error <= 2 * own + floor, f"{name} of {case}: {error:.3g}, by the formula in its type {own:.3g}"


def emulated(case: Case, target: str) -> dict[str, Tensor]:
    with wmma_ops.emulate(target) as emulation:
        got = results(case, ours)
    assert len(emulation.launches) >= 4
    return got
