"""Functions of attention's scores and masks that users register: values and gradients on the CPU and on emulated targets
against a formula of this file in float64, what is refused, and kernels that are wrong on purpose."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from planted import Planted, check_is_caught, check_that_each_stands_once
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import wmma_ops
from wmma_ops import jit
from wmma_ops.hardware import arch
from wmma_ops.jit import kernels_dir
from wmma_ops.ops import score_functions
from wmma_ops.plan.attention.loops import backward, forward
from wmma_ops.runtime import launching
from wmma_ops.testing.reference import unit

Tensor = torch.Tensor
FOLDER = "wmma/attention"
FAR = 3  # distances that a table has a number of, each way
SEED = torch.tensor(3 * 2**40 + 11)
IDS = 2**24  # from here on no float counts documents


def _score(name: str, expression: str, derivative: str, function: Callable[..., Tensor], operands: int = 0) -> str:
    wmma_ops.register_score_mod(
        name, expression=expression, derivative=derivative, function=function, operands=operands
    )
    return name


def _mask(name: str, expression: str, function: Callable[..., Tensor], operands: int = 0) -> str:
    wmma_ops.register_mask_mod(name, expression=expression, function=function, operands=operands)
    return name


TABLE = _score(
    "table_of_distances",
    f"score + a(head, min(max(query - key, -{FAR}), {FAR}) + {FAR})",
    "1",
    lambda score, b, h, q, k, table: score + table[h, (q - k).clamp(-FAR, FAR) + FAR],
    1,
)
SLOPES = _score(
    "slopes_as_a_tensor",
    "score - a(head) * abs(query - key)",
    "1.f",
    lambda score, b, h, q, k, slopes: score - slopes[h] * (q - k).abs(),
    1,
)
CAP = _score(
    "cap_of_3",
    "3 * tanh(score / 3)",
    "1 - tanh(score / 3) * tanh(score / 3)",
    lambda score, b, h, q, k: 3 * torch.tanh(score / 3),
)
BOTH = _score(  # two tensors, bent, of every place
    "bent_where_a_key_is_marked",
    "b(key) ? score * score * a(batch, head) : score + query / 100.f",
    "b(key) ? 2 * score * a(batch, head) : 1",
    lambda score, b, h, q, k, factor, marked: torch.where(marked[k], score**2 * factor[b, h], score + q / 100),
    2,
)
LEAST = _score(  # as models hide keys, all of a row's among them
    "the_least_number",
    "key > query || query % 4 == 0 ? score - 1e30f : score",
    "1",
    lambda score, b, h, q, k: torch.where((k > q) | (q % 4 == 0), score - 1e30, score),
)
OUTSIDE = _score(  # but keys from 30 on are hidden
    "reads_outside_its_tensor",
    "score + a(key)",
    "1",
    lambda score, b, h, q, k, table: score + table[k.clamp(max=29)],
    1,
)
DOCUMENTS = _mask("one_document", "a(batch, query) == a(batch, key)", lambda b, h, q, k, ids: ids[b, q] == ids[b, k], 1)
PREFIX = _mask("prefix_or_causal", "key < b(batch) || key <= query", lambda b, h, q, k, _, n: (k < n[b]) | (k <= q), 2)
NEAR = _mask("up_to_5_away", "abs(query - key) <= 5", lambda b, h, q, k: (q - k).abs() <= 5)
EVEN = _mask("even_keys_but_of_query_3", "query != 3 && key % 2 == 0", lambda b, h, q, k: (q != 3) & (k % 2 == 0))
FIRST = _mask("keys_before_30", "key < 30", lambda b, h, q, k: (k < 30) & (q >= 0))


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

    def __str__(self) -> str:
        extras = [
            name
            for name in ("causal", "softcap", "sinks", "slopes", "mask", "apart", "dropout_p")
            if getattr(self, name)
        ]
        return "-".join(filter(None, (self.dtype, self.score_mod, self.mask_mod, *extras)))


CASES = (
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
BY_TURNS = [
    pytest.param(arch.EMULATED[(i + turn) % len(arch.EMULATED)], case, marks=pytest.mark.full if turn else ())
    for turn in (0, 5)
    for i, case in enumerate(CASES)
]


def _mods(case: Case, generator: torch.Generator) -> tuple[Tensor, ...]:
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


def _operands(case: Case) -> dict[str, Tensor]:
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


def _ours(q, k, v, case: Case, mods: tuple[Tensor, ...], **beside: Tensor) -> tuple[Tensor, Tensor]:
    options = {"is_causal": case.causal or False, "scale": case.scale, "window": case.window, "softcap": case.softcap}
    gqa = case.kv_heads is not None
    if case.dropout_p:
        options |= {"dropout_p": case.dropout_p, "dropout_seed": SEED}
    names = {"score_mod": case.score_mod, "mask_mod": case.mask_mod}
    return wmma_ops.attention(q, k, v, enable_gqa=gqa, mod_operands=mods, **names, **options, **beside)


def _formula(q, k, v, case: Case, mods, *, mask=None, sinks=None, alibi_slopes=None) -> tuple[Tensor, Tensor]:
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
        shown = shown & function.function(batch, head, query, key, *mods[: function.operands])
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


def _results(case: Case, compute, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Both results, and the gradients of what both have."""
    t = {name: x.to(dtype) if dtype and x.is_floating_point() else x for name, x in _operands(case).items()}
    names = [name for name in ("q", "k", "v", "sinks") if name in t]
    t |= {name: t[name].detach().requires_grad_() for name in names}
    mods = _mods(case, torch.Generator().manual_seed(1))
    q, k, v = (t.pop(name) for name in "qkv")
    out, lse = compute(q, k, v, case, mods, **t)
    generator = torch.Generator().manual_seed(2)
    g_out, g_lse = (torch.randn(x.shape, generator=generator).to(x) for x in (out, lse))
    # Of a row that sees nothing, or least numbers alone, lse has no gradient.
    g_lse = torch.where(lse.isfinite() & (lse > -1e20), g_lse, 0.0)
    given = [q, k, v, *(t[name] for name in names[3:])]
    grads = torch.autograd.grad((out, lse), given, (g_out, g_lse))
    return {"out": out.detach(), "lse": lse.detach()} | {f"g_{x}": g for x, g in zip(names, grads, strict=True)}


def _check(case: Case, got: dict[str, Tensor]) -> None:
    """Against the formula in float64; as far off as the formula is in the case's own type."""
    want, theirs = _results(case, _formula, torch.float64), _results(case, _formula)
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


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_on_the_cpu(case):
    _check(case, _results(case, _ours))


def _emulated(case: Case, target: str) -> dict[str, Tensor]:
    with wmma_ops.emulate(target) as emulation:
        got = _results(case, _ours)
    assert len(emulation.launches) >= 4
    return got


@pytest.mark.parametrize(("target", "case"), BY_TURNS, ids=str)
def test_values_and_gradients_by_kernels(target, case):
    _check(case, _emulated(case, target))


def test_a_cap_of_ones_own_is_the_soft_cap():
    q, k, v = (torch.randn(2, 2, n, 24) for n in (19, 37, 37))
    own, theirs = wmma_ops.attention(q, k, v, score_mod=CAP), wmma_ops.attention(q, k, v, softcap=3.0)
    torch.testing.assert_close(own, theirs, rtol=1e-5, atol=1e-6)


def test_a_window_of_ones_own_is_the_window():
    q, k, v = (torch.randn(1, 2, 40, 24) for _ in range(3))
    own, theirs = wmma_ops.attention(q, k, v, mask_mod=NEAR), wmma_ops.attention(q, k, v, window=(5, 5))
    torch.testing.assert_close(own, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_functions_written_for_flex_attention():
    """With scalars for places there, with tensors here."""
    bias = torch.randn(3, 32)
    q, k, v = (torch.randn(2, 3, 32, 16) for _ in range(3))

    def score_mod(score, b, h, q_idx, kv_idx):
        return score + bias[h, (q_idx - kv_idx).abs()] * (b + 1)

    def mask_mod(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (kv_idx != b)

    _score("of_flex", "score", "1", score_mod)
    _mask("mask_of_flex", "query >= key", mask_mod)
    got, _ = wmma_ops.attention(q, k, v, score_mod="of_flex", mask_mod="mask_of_flex")
    blocks = create_block_mask(mask_mod, 2, 3, 32, 32, device="cpu", BLOCK_SIZE=32)
    torch.testing.assert_close(got, flex_attention(q, k, v, score_mod=score_mod, block_mask=blocks))


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_what_a_function_hides_may_be_nan(target):
    q, k, v = (torch.randn(1, 2, n, 16).half() for n in (20, 37, 37))
    with wmma_ops.emulate(target):
        want = wmma_ops.attention(q, k, v, mask_mod=EVEN, softcap=2.0)
        k[:, :, 1::2] = float("nan")
        got = wmma_ops.attention(q, k, v, mask_mod=EVEN, softcap=2.0)
    assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


def test_gradients_by_the_formula():
    """Those of the gradients too, in float64, and of several at once."""
    generator = torch.Generator().manual_seed(0)

    def tensor(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    given = tuple(x.requires_grad_() for x in (tensor(1, 2, 3, 2), tensor(1, 1, 4, 2), tensor(1, 1, 4, 1), tensor(2)))
    marked = torch.tensor([True, False, True, True])
    calls = ({"score_mod": BOTH, "mod_operands": (tensor(1, 2), marked)}, {"score_mod": CAP, "softcap": 2.0})
    for options in calls:

        def call(q, k, v, slopes, options=options):
            return wmma_ops.attention(q, k, v, alibi_slopes=slopes, mask_mod=NEAR, enable_gqa=True, **options)

        assert torch.autograd.gradcheck(call, given, check_batched_grad=True)
        assert torch.autograd.gradgradcheck(call, given)


def _model(given, table):
    q, k, v = given
    out, lse = wmma_ops.attention(q, k, v, score_mod=TABLE, mask_mod=NEAR, mod_operands=(table,))
    return out.sin().sum() + lse.sum()


@pytest.mark.full
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles(dynamic):
    table = torch.randn(2, 2 * FAR + 1)
    compiled = torch.compile(_model, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for length in (12, 15):
        given = [torch.randn(2, 2, length, 8).requires_grad_() for _ in range(3)]
        got, want = compiled(given, table), _model(given, table)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(torch.autograd.grad(got, given), torch.autograd.grad(want, given))


def test_exports():
    class Model(torch.nn.Module):
        def forward(self, q, table):
            return wmma_ops.attention(q, q, q, score_mod=TABLE, mod_operands=(table,))

    given = torch.randn(1, 2, 9, 8), torch.randn(2, 2 * FAR + 1)
    exported = torch.export.export(Model(), given).module()
    assert all(torch.equal(x, y) for x, y in zip(exported(*given), Model()(*given), strict=True))


@pytest.mark.parametrize("grads", [False, True])
def test_opcheck(grads):
    given = [torch.randn(1, 2, 9, 8).requires_grad_(grads) for _ in range(3)]
    codes = score_functions.codes("attention", TABLE, NEAR)
    mods = {"mod_a": torch.randn(2, 2 * FAR + 1)}
    torch.library.opcheck(torch.ops.wmma.attention.default, given, mods | codes)


def test_transforms():
    """Under vmap a function counts the batch of each."""
    q, factor, marked = torch.randn(3, 2, 2, 9, 8), torch.randn(2, 2), torch.arange(9) % 2 == 0

    def call(q):
        return wmma_ops.attention(q, q, q, score_mod=BOTH, mod_operands=(factor, marked))[0]

    torch.testing.assert_close(torch.vmap(call)(q), torch.stack([call(x) for x in q]))
    of = q[0].clone().requires_grad_()
    (want,) = torch.autograd.grad(call(of).sin().sum(), of)
    torch.testing.assert_close(torch.func.grad(lambda x: call(x).sin().sum())(q[0]), want)
    each = torch.vmap(torch.func.grad(lambda x: call(x).sin().sum()))(q)
    torch.testing.assert_close(each[0], want)

    def dropped(q, seed):
        options = {"score_mod": BOTH, "mod_operands": (factor, marked), "dropout_p": 0.5, "dropout_seed": seed}
        return wmma_ops.attention(q, q, q, **options)[0]

    seeds = torch.arange(3)
    torch.testing.assert_close(torch.vmap(dropped)(q, seeds), torch.stack(list(map(dropped, q, seeds))))


def test_autocast_leaves_tensors_of_functions_alone():
    q, table = torch.randn(1, 2, 9, 8), torch.randn(2, 2 * FAR + 1) * 1000
    with torch.autocast("cpu", torch.bfloat16):
        got, _ = wmma_ops.attention(q, q, q, score_mod=TABLE, mod_operands=(table,))
    b = q.bfloat16()
    assert torch.equal(got, wmma_ops.attention(b, b, b, score_mod=TABLE, mod_operands=(table,))[0])


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "sm_90a"])
def test_the_generic_loops_have_functions(target):
    q = torch.empty(1, 2, 512, 128).bfloat16()
    (found,) = launching.problems(lambda: wmma_ops.attention(q, q, q, mask_mod=NEAR), arch.target(target))
    plan = launching.plan_for(found, arch.target(target))
    assert isinstance(plan.config, forward.AttentionConfig)
    assert not plan.config.in_turns
    call = torch.ops.wmma._attention_backward
    code = score_functions.codes("attention", CAP, None)["score_mod"]
    lse = torch.empty(1, 2, 512)
    (found,) = launching.problems(lambda: call(q, q, q, q, q, lse, score_mod=code), arch.target(target))
    config = launching.plan_for(found, arch.target(target)).config
    assert isinstance(config, backward.BackwardConfig)
    assert not any(owner.interleaved or owner.marches for owner in (config.queries, config.keys))


@pytest.mark.full
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx1250"])
@pytest.mark.parametrize("case", [CASES[1], CASES[4], CASES[7], CASES[11], CASES[12]], ids=str)
def test_kernels_compile(target, case):
    for problem in launching.problems(lambda: _results(case, _ours), arch.target(target)):
        for launch in launching.plan_for(problem, arch.target(target)).launches:
            jit.compile(launch.source, target)


def test_explains():
    q, table = torch.randn(1, 2, 9, 8), torch.randn(2, 2 * FAR + 1)
    options = {"score_mod": TABLE, "mask_mod": NEAR, "mod_operands": (table,)}
    text = str(wmma_ops.explain("attention", q, q, q, target="gfx942", **options))
    assert f"the score function {TABLE}" in text
    assert f"the mask function {NEAR}" in text


GOOD = {"expression": "score", "derivative": "1", "function": lambda score, b, h, q, k: score}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": "no name"}, "takes a Python identifier"),
        ({"name": CAP}, "is taken"),
        ({"operands": 5}, "operands is 5; takes 0 to 4"),
        ({"expression": ""}, "expression is ''; takes a C"),
        ({"expression": "scores"}, "expression names 'scores'; takes an expression of score, batch, head, query, key"),
        ({"derivative": "score + other"}, "derivative names 'other'"),
        ({"expression": "score + a(head)"}, "reads 'a', and operands is 0"),
        ({"expression": "score + b(head)", "operands": 1}, "reads 'b', and operands is 1; takes an expression of a"),
        ({"expression": "score + a", "operands": 1}, "has 'a' without indices"),
        ({"expression": "a(head) + a(head, key)", "operands": 1}, "gives 'a' 2 and 1 indices"),
        ({"expression": "a(head)", "derivative": "a(head, min(key, 2))", "operands": 1}, "gives 'a' 2 and 1 indices"),
        ({"expression": "a(0, 0, 0, 0, 0)", "operands": 1}, "5 indices; takes up to 4"),
        ({"expression": "score; return 0"}, "has ';'"),
        ({"expression": "score // all"}, "has '//'"),
        ({"expression": "(score"}, "leaves a parenthesis open"),
        ({"expression": "score) + (1"}, "closes what it did not open"),
        ({"function": None}, "function is None; takes a torch function"),
        ({"function": lambda score, b, h, q, k: score.sum()}, "is not elementwise"),
        ({"function": lambda score, b, h, q, k: score - score.amax(-1, keepdim=True)}, "is not elementwise"),
        ({"function": lambda score: score}, "is not elementwise"),
    ],
    ids=lambda x: str(x) if isinstance(x, str) else "",
)
def test_registering_refuses(options, text):
    with pytest.raises(ValueError, match=text):
        wmma_ops.register_score_mod(**({"name": "bad_function"} | GOOD | options))
    with pytest.raises(ValueError, match="score_mod is 'bad_function'"):
        wmma_ops.attention(*(torch.ones(1, 1, 2, 4),) * 3, score_mod="bad_function")


def test_masks_know_no_scores():
    with pytest.raises(ValueError, match="expression names 'score'; takes an expression of batch, head, query, key"):
        wmma_ops.register_mask_mod("bad_mask", expression="score > 0", function=lambda b, h, q, k: k > 0)


TENSOR = torch.ones(2, 2 * FAR + 1)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"score_mod": 3}, TypeError, "score_mod is of type int; takes a name"),
        ({"score_mod": "cap_of_4"}, ValueError, "score_mod is 'cap_of_4' .did you mean 'cap_of_3'.."),
        ({"mask_mod": CAP}, ValueError, f"mask_mod is '{CAP}'; takes one of"),
        ({"score_mod": TABLE}, TypeError, "mod_a is None; takes a tensor, as score_mod reads 1 tensor"),
        (
            {"mask_mod": PREFIX, "mod_operands": (TENSOR,)},
            TypeError,
            "mod_b is None; takes a tensor, as mask_mod reads 2",
        ),
        ({"mod_operands": (TENSOR,)}, ValueError, "mod_a is a tensor that no function reads; takes None"),
        ({"score_mod": CAP, "mod_operands": (TENSOR,)}, ValueError, "mod_a is a tensor that no function reads"),
        ({"score_mod": TABLE, "mod_operands": TENSOR}, TypeError, "mod_operands is tensor"),
        ({"score_mod": TABLE, "mod_operands": (TENSOR,) * 5}, ValueError, "mod_operands has 5 tensors; takes up to 4"),
        (
            {"score_mod": TABLE, "mod_operands": (TENSOR[0],)},
            ValueError,
            r"mod_a has shape \[7\]; takes a tensor of 2 dim",
        ),
        (
            {"score_mod": TABLE, "mod_operands": (TENSOR[:0],)},
            ValueError,
            r"mod_a has shape \[0, 7\]; takes sizes of 1",
        ),
        ({"score_mod": TABLE, "mod_operands": (TENSOR.to(torch.int8),)}, TypeError, "mod_a is int8; takes float16"),
        ({"score_mod": TABLE, "mod_operands": (TENSOR.to_sparse(),)}, TypeError, "mod_a is a sparse tensor; takes str"),
        (
            {"score_mod": TABLE, "mod_operands": (TENSOR.clone().requires_grad_(),)},
            ValueError,
            "mod_a requires grad, but tensors that functions read have no gradient; takes a detached tensor",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_calls_are_refused(options, kind, text):
    q = torch.ones(1, 2, 5, 4)
    with pytest.raises(kind, match=f"^wmma.attention: {text}"):
        wmma_ops.attention(q, q, q, **options)


def test_unknown_codes_are_refused():
    q = torch.ones(1, 2, 5, 4)
    with pytest.raises(
        RuntimeError, match=r"score_mod is code 300; takes 0 \(none\) or the code of a registered function"
    ):
        torch.ops.wmma.attention(q, q, q, score_mod=300)


def test_functions_that_are_no_such_are_refused_as_they_run():
    _score("sums_up", "a(head)", "0", lambda score, b, h, q, k, x: x[:, None] @ x[None], 1)
    _score("gives_a_number", "a(head)", "0", lambda score, b, h, q, k, x: 1.0, 1)
    _score("reads_too_far", "a(head)", "0", lambda score, b, h, q, k, x: x[k], 1)
    q = torch.ones(1, 2, 5, 4)
    with pytest.raises(
        ValueError, match=r"score_mod 'sums_up' gives shape \[3, 3\] for scores \[1, 2, 5, 5\]; takes an el"
    ):
        wmma_ops.attention(q, q, q, score_mod="sums_up", mod_operands=(torch.ones(3),))
    with pytest.raises(TypeError, match="score_mod 'gives_a_number' gives a float; takes a tensor"):
        wmma_ops.attention(q, q, q, score_mod="gives_a_number", mod_operands=(torch.ones(3),))
    with pytest.raises(ValueError, match="score_mod 'reads_too_far' raised IndexError, index 3 is out of bounds"):
        wmma_ops.attention(q, q, q, score_mod="reads_too_far", mod_operands=(torch.ones(3),))


def test_the_functions_of_math_stand_in_its_headers():
    kernels = kernels_dir.PATH / "wmma/math"
    text = "\n".join(path.read_text() for path in kernels.glob("*.hpp"))
    assert not [name for name in score_functions.MATH if f" {name}(" not in text]


@dataclass(frozen=True)
class Wrong(Planted):
    case: Case = CASES[0]
    target: str = "gfx942"

    def __str__(self) -> str:
        return f"{self.name}-{self.target}"


FUNCTIONS, MASK, BACKWARD, MATH = (f"{name}.hpp" for name in ("functions", "mask", "backward", "math"))
WRONG = (
    Wrong(
        "query_for_key", MASK, "score, batch, heads[i], queries[i], key)", "score, batch, heads[i], key, queries[i])"
    ),
    Wrong(
        "query_for_key_in_the_gradients",
        BACKWARD,
        "changed(x.p.functions, before, batch, query_head, query, key)",
        "changed(x.p.functions, before, batch, query_head, key, query)",
        target="gfx1201",
    ),
    Wrong(
        "no_derivative",
        BACKWARD,
        "bend *= Rules::Functions::slope(x.p.functions, before, batch, query_head, query, key);",
        "",
        CASES[3],
    ),
    Wrong(
        "the_derivative_of_what_comes_out",
        BACKWARD,
        "slope(x.p.functions, before,",
        "slope(x.p.functions, score,",
        CASES[3],
    ),
    Wrong(
        "keys_shown_in_the_gradients",
        BACKWARD,
        "inside = inside && Rules::Functions::shows(x.p.functions, batch, query_head, query, key);",
        "",
        CASES[9],
        "gfx1201",
    ),
    Wrong("keys_shown", MASK, "if (!this->shows(key, i)) x = kNever;", "", CASES[13]),
    Wrong("one_stride_for_all", FUNCTIONS, "indices * x_.strides[dim++]", "indices * x_.strides[0 * dim++]"),
    Wrong("reads_outside", FUNCTIONS, "return index >= 0 && index < size;", "return index >= 0;", CASES[14], "gfx1100"),
    Wrong("the_first_head_of_a_group", MASK, "static_cast<int>(place.head_of(row));", "place.head;", CASES[12]),
    Wrong("a_batch_from_0_on", MASK, "p.rules.first_batch + place.batch", "place.batch", CASES[5]),
    Wrong(
        "a_batch_from_0_on_in_the_gradients",
        BACKWARD,
        "batch += static_cast<int>(x.p.rules.first_batch);",
        "batch += 0;",
        CASES[6],
    ),
    Wrong(
        "scores_in_another_unit",
        MATH,
        "typename Config::Mask, kTakesNumbers<Config>>",
        "typename Config::Mask>",
        CASES[4],
    ),
    Wrong(
        "weights_are_not_corrected",
        BACKWARD,
        "if (kOwnsKeys) weights[f] *= statistics[2 * kOthers + other];",
        "",
        CASES[8],
    ),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / FOLDER, WRONG)


IN_QUICK = ("no_derivative", "keys_shown_in_the_gradients", "a_batch_from_0_on")


@pytest.mark.parametrize(
    "of", [pytest.param(of, marks=() if of.name in IN_QUICK else pytest.mark.full, id=str(of)) for of in WRONG]
)
def test_is_caught(of, sources):
    check_is_caught(of, sources / FOLDER, lambda: _check(of.case, _emulated(of.case, of.target)))
