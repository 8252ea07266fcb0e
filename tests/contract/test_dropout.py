"""Dropout of attention's weights: which are dropped, the gradients by kernels and by scores, seeds, and kernels that are
wrong on purpose. Values of the forward pass: the value suite's groups "rules" and "packed"."""

import math
from dataclasses import dataclass

import pytest
import torch
from planted import Planted, check_that_each_stands_once
from torch.utils.checkpoint import checkpoint

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.runtime import launching
from wmma_ops.testing import AttentionCase, VarlenAttentionCase
from wmma_ops.testing.calls import call
from wmma_ops.testing.operands import operands
from wmma_ops.testing.reference import dropped_by, unit

FOLDER = "wmma/attention"
LONG = {"sq": 150, "skv": 200, "e": 64}
CASES = (
    AttentionCase(dtype="float16", batch=2, heads=2, kv_heads=1, causal="bottom_right", dropout=0.3, **LONG),
    AttentionCase(dtype="bfloat16", heads=2, dropout=0.5, window=(30, 20), softcap=3.0, slopes="each", **LONG),
    AttentionCase(dtype="float32", batch=2, heads=4, kv_heads=2, sq=21, skv=30, e=24, sinks="heads", dropout=0.1),
    AttentionCase(dtype="float64", batch=2, sq=10, skv=12, mask="blind", dropout=0.7),
    AttentionCase(dtype="float16", batch=2, sq=20, skv=37, e=24, mask="float", sinks="heads", dropout=0.4),
    VarlenAttentionCase(queries=(3, 0, 40, 1), keys=(5, 2, 33, 70), heads=4, kv_heads=2, e=24, dropout=0.4),
    VarlenAttentionCase(queries=(70, 9), keys=(90, 9), dtype="bfloat16", e=64, window=(-1, 0), beyond=3, dropout=0.2),
)
BY_TURNS = [(arch.EMULATED[(i + j) % len(arch.EMULATED)], case) for i, case in enumerate(CASES) for j in (0, 3)]


def _gradients(case, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    t = operands(case)
    if dtype is not None:
        t = {name: x.to(dtype) if x is not None and x.is_floating_point() else x for name, x in t.items()}
    names = [name for name in ("q", "k", "v", "query", "key", "value", "sinks") if t.get(name) is not None]
    given = [t[name].nan_to_num().requires_grad_() for name in names]
    out, lse = call(case, t | dict(zip(names, given, strict=True)), {})
    generator = torch.Generator().manual_seed(1)
    g_out, g_lse = (torch.randn(x.shape, generator=generator).to(getattr(torch, case.dtype)).to(x) for x in (out, lse))
    g_lse = torch.where(lse.isfinite(), g_lse, 0.0)
    return dict(zip(names, torch.autograd.grad((out, lse), given, (g_out, g_lse)), strict=True))


def _are_right(case, target: str) -> None:
    want, own = _gradients(case, torch.float64), _gradients(case)
    with wmma_ops.emulate(target) as emulation:
        got = _gradients(case)
    assert len(emulation.launches) >= 3
    for name, x in got.items():
        exact = want[name]
        error, theirs = (x.double() - exact).abs().max(), (own[name].double() - exact).abs().max()
        # As test_attention_rules.py has it.
        dtype = getattr(torch, case.dtype)
        roundings = 2 * (64 + case.e) if dtype == torch.float64 else 4
        floor = roundings * unit(dtype) * exact.abs().max()
        assert error <= 2 * theirs + floor, f"g_{name} of {case}: {error:.3g}, in the same type on the CPU {theirs:.3g}"


@pytest.mark.parametrize(("target", "case"), BY_TURNS, ids=str)
def test_gradients_are_those_of_float64(target, case):
    _are_right(case, target)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.dtype == "float64" or case.dtype == "float32"], ids=str
)
def test_gradients_on_the_cpu_by_the_formula(case):
    """What differentiates the forward pass as it is written there, against finite differences of the kernel."""
    t = {name: x.double() if x is not None and x.is_floating_point() else x for name, x in operands(case).items()}
    names = [name for name in ("q", "k", "v", "query", "key", "value") if name in t]
    small = {name: t[name].nan_to_num().requires_grad_() for name in names}

    def function(*given):
        return call(case, t | dict(zip(names, given, strict=True)), {})[0]

    assert torch.autograd.gradcheck(function, tuple(small.values()), fast_mode=True)
    assert torch.autograd.gradgradcheck(function, tuple(small.values()), fast_mode=True)


@pytest.mark.parametrize("p", [1e-12, 0.1, 0.5, 0.97])
@pytest.mark.parametrize("seed", [0, -1, 2**62 + 12345, -(2**63)])
def test_the_mask_is_the_one_that_the_reference_has(seed, p):
    shape = (2, 1, 3, 5, 70)
    want, _ = dropped_by(seed, p, shape)
    assert torch.equal(wmma_ops.dropout_mask(torch.tensor(seed), p, shape), want)
    q, k, v = torch.zeros(2, 1, 3, 5, 8), torch.zeros(2, 1, 3, 70, 8), torch.eye(70).expand(2, 1, 3, 70, 70)
    out, lse = wmma_ops.attention(q, k, v, dropout_p=p, dropout_seed=torch.tensor([seed]))
    assert torch.equal(out != 0, want)
    torch.testing.assert_close(out[want], torch.full_like(out[want], 1 / 70 / (1 - p)))
    torch.testing.assert_close(lse, torch.full_like(lse, math.log(70)))


def test_the_mask_looks_as_if_drawn():
    """Shares of rows, of columns and of neighbours, each within five times what a true draw is off by."""
    p, shape = 0.3, (2, 2, 512, 512)
    off = wmma_ops.dropout_mask(torch.tensor(5), p, shape).double() - (1 - p)
    variance = p * (1 - p)

    def within(sums, count):
        deviations = sums / math.sqrt(count * variance)
        assert deviations.abs().max() < 5.5
        assert (deviations.square().mean() - 1).abs() < 5 * math.sqrt(2 / deviations.numel())

    for dim in (-1, -2):
        within(off.sum(dim), 512)
        for step in (1, 2, 3, 8, 64):
            pairs = off.narrow(dim, 0, 512 - step) * off.narrow(dim, step, 512 - step)
            within(pairs.sum(dim) / math.sqrt(variance), 512 - step)
    for one in (off[0, 0] * off[0, 1], off[0, 0] * off[1, 0], off[0, 1] * off[1, 0]):
        within(one.sum(-1) / math.sqrt(variance), 512)


def test_seeds_are_drawn_by_torchs_generator():
    q = torch.randn(2, 4, 9, 16, requires_grad=True)

    def run(seed):
        torch.manual_seed(seed)
        out, _ = wmma_ops.attention(q, q, q, dropout_p=0.5)
        return out

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))
    torch.manual_seed(1)
    again = checkpoint(lambda x: wmma_ops.attention(x, x, x, dropout_p=0.5)[0], q, use_reentrant=False)
    torch.testing.assert_close(*(torch.autograd.grad(x.sum(), q) for x in (again, run(1))))


def test_nothing_dropped_is_no_dropout():
    q = torch.empty(1, 2, 70, 64).half()

    def problem(**options):
        (found,) = launching.problems(lambda: wmma_ops.attention(q, q, q, **options), arch.target("gfx942"))
        return found

    assert problem(dropout_p=0.0, dropout_seed=torch.tensor(3)) == problem() != problem(dropout_p=0.1)


def test_the_op_asks_for_a_seed():
    q, ends = torch.ones(2, 3, 4), torch.tensor([0, 2])
    for namespace in (torch.ops.wmma, torch.ops.wmma_raw):
        with pytest.raises(RuntimeError, match="dropout_seed is None; takes a tensor of one number beside dropout_p"):
            namespace.attention(q, q, q, dropout_p=0.5)
        with pytest.raises(RuntimeError, match="dropout_seed is None; takes a tensor"):
            namespace.varlen_attention(q, q, q, ends, ends, max_q=2, max_k=2, dropout_p=0.5)
    with pytest.raises(TypeError, match="dropout_seed is of type int; takes a tensor"):
        wmma_ops.attention(q, q, q, dropout_p=0.5, dropout_seed=3)


@pytest.mark.parametrize("dynamic", [False, True])
def test_in_a_graph(dynamic):
    seed, q = torch.tensor(7), torch.randn(2, 4, 9, 16, requires_grad=True)
    ends = torch.tensor([0, 4, 9])

    def function(x, seed):
        out, _ = wmma_ops.attention(x, x, x, dropout_p=0.5, dropout_seed=seed)
        tokens = out[0].transpose(0, 1)
        return wmma_ops.varlen_attention(tokens, tokens, tokens, ends, ends, 5, 5, dropout_p=0.3, dropout_seed=seed)[0]

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    got, want = compiled(q, seed), function(q, seed)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(*(torch.autograd.grad(x.square().sum(), q) for x in (got, want)))
    drawn = torch.compile(lambda x: wmma_ops.attention(x, x, x, dropout_p=0.5)[0], backend="aot_eager", fullgraph=True)
    assert not torch.equal(drawn(q), drawn(q))


def test_under_vmap_a_seed_is_that_of_each():
    q, seeds = torch.randn(3, 2, 4, 9, 8), torch.arange(3)

    def one(x, seed):
        return wmma_ops.attention(x, x, x, dropout_p=0.5, dropout_seed=seed)[0]

    for dim, of in ((0, lambda i: seeds[i]), (None, lambda i: seeds[2])):
        got = torch.func.vmap(one, in_dims=(0, dim))(q, seeds if dim == 0 else seeds[2])
        torch.testing.assert_close(got, torch.stack([one(q[i], of(i)) for i in range(3)]))


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_batches_that_no_kernel_takes_at_once(target):
    """Dimensions that cannot be joined: each launch knows which of the batch it has."""
    x = torch.randn(3, 5, 2, 9, 16)[:, ::2].half()
    assert not x.flatten(0, 1).is_set_to(x)
    options = {"dropout_p": 0.5, "dropout_seed": torch.tensor(9)}
    want = wmma_ops.attention(x.contiguous(), x.contiguous(), x.contiguous(), **options)
    with wmma_ops.emulate(target):
        got = wmma_ops.attention(x, x, x, **options)
    torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)


@dataclass(frozen=True)
class Wrong(Planted):
    case: AttentionCase | VarlenAttentionCase = CASES[2]
    target: str = "gfx942"

    def __str__(self) -> str:
        return f"{self.name}-{self.target}"


ROWS = "dropout_row(*p.rules.seed, query, head, p.rules.first_batch + batch)"
WRONG = (
    Wrong("another_row", "terms/dropout.hpp", ROWS, ROWS.replace("query,", "query + 1,"), CASES[5], "gfx1100"),
    Wrong("every_head_alike", "terms/dropout.hpp", ROWS, ROWS.replace("head,", "0,")),
    Wrong("every_batch_alike", "terms/dropout.hpp", ROWS, ROWS.replace("first_batch + batch", "first_batch")),
    Wrong(
        "every_sequence_alike", "terms/dropout.hpp", ROWS, ROWS.replace("first_batch + batch", "first_batch"), CASES[5]
    ),
    Wrong("another_round", "terms/dropout.hpp", "round < 10", "round < 9"),
    Wrong(
        "others_are_dropped_backward", "loops/gradients.hpp", "const bool kept = keeps(", "const bool kept = !keeps("
    ),
    Wrong("keys_kept_too_small", "loops/gradients.hpp", "kept ? weights[f] * kept_factor", "kept ? weights[f]"),
    Wrong(
        "slopes_of_what_is_dropped", "loops/gradients.hpp", "(kept ? slopes[f] * kept_factor : Number(0))", "slopes[f]"
    ),
    Wrong("results_too_small", "loops/forward.hpp", "static_cast<Number>(p.rules.kept)", "Number(1)"),
    Wrong(
        "a_lanes_keys_alike",
        "terms/row_mask.hpp",
        "first_key) + Link::place(lane, f);",
        "first_key);",
        CASES[0],
        "gfx1201",
    ),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / FOLDER, WRONG)


def _both_are_right(case, target: str) -> None:
    t = operands(case)
    want = call(case, t, {})[0]
    with wmma_ops.emulate(target):
        got = call(case, t, {})[0]
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2, equal_nan=True)
    _are_right(case, target)


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    of.plant(sources / FOLDER)
    with pytest.raises((RuntimeError, AssertionError)) as caught:
        _both_are_right(of.case, of.target)
    assert "does not compile" not in str(caught.value)
