"""Functions of scores and masks in attention of packed sequences: values and gradients on the CPU and on emulated targets
against a formula of each sequence, what is refused, and kernels that are wrong on purpose."""

from dataclasses import dataclass

import pytest
import torch
from packed_scored import CASES, IN_PAGES, PackedCase, check, emulated, ours, results
from planted import Planted, check_is_caught, check_that_each_stands_once, some_in_quick
from scored import BOTH, CAP, EVEN, FAR, NEAR, TABLE, by_turns
from torch.utils.flop_counter import FlopCounterMode

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.ops import score_functions
from wmma_ops.plan.attention import backward, planner
from wmma_ops.plan.attention.loops import forward, warpgroup
from wmma_ops.runtime import launching

FOLDER = "wmma/attention"

ALL = (*CASES, *IN_PAGES)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_values_and_gradients_on_the_cpu(case):
    check(case, results(case, ours))


@pytest.mark.parametrize(("target", "case"), by_turns(ALL, 1, 6), ids=str)
def test_values_and_gradients_by_kernels(target, case):
    check(case, emulated(case, target))


def test_a_sequence_is_as_one_of_a_batch():
    q, k, v = (torch.randn(3, 2, n, 24) for n in (9, 14, 14))
    factor, marked = torch.randn(3, 2), torch.arange(14) % 3 == 0
    options = {"score_mod": BOTH, "mask_mod": EVEN, "mod_operands": (factor, marked)}
    want, want_lse = wmma_ops.attention(q, k, v, is_causal="bottom_right", **options)
    packed = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    ends = torch.arange(4)
    out, lse = wmma_ops.varlen_attention(*packed, 9 * ends, 14 * ends, 9, 14, window_size=(-1, 0), **options)
    torch.testing.assert_close(out.unflatten(0, (3, 9)).transpose(1, 2), want)
    torch.testing.assert_close(lse.unflatten(1, (3, 9)).transpose(0, 1), want_lse)


def _tokens(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


ENDS = torch.tensor([0, 2, 2, 5])


def test_gradients_by_the_formula():
    """Those of the gradients too, in float64, and of several at once."""
    given = tuple(x.requires_grad_() for x in (_tokens(5, 2, 2), _tokens(6, 1, 2), _tokens(6, 1, 1), _tokens(2)))
    marked = torch.tensor([True, False, True])
    calls = ({"score_mod": BOTH, "mod_operands": (_tokens(3, 2), marked)}, {"score_mod": CAP, "softcap": 2.0})
    for options in calls:

        def call(q, k, v, slopes, options=options):
            rules = {"alibi_slopes": slopes, "mask_mod": NEAR, "enable_gqa": True, **options}
            out, lse = wmma_ops.varlen_attention(q, k, v, ENDS, torch.tensor([0, 3, 4, 6]), 3, 3, **rules)
            return out, lse

        assert torch.autograd.gradcheck(call, given, check_batched_grad=True)
        assert torch.autograd.gradgradcheck(call, given)


def _model(given, ends, table):
    q, k, v = given
    options = {"score_mod": TABLE, "mask_mod": NEAR, "mod_operands": (table,), "window_size": (-1, 0)}
    out, lse = wmma_ops.varlen_attention(q, k, v, ends, ends, 6, 6, **options)
    return out.sin().sum() + lse.sum()


@pytest.mark.full
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles(dynamic):
    table = torch.randn(2, 2 * FAR + 1)
    compiled = torch.compile(_model, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for lengths in ((2, 4), (5, 6)):
        ends = torch.tensor([0, *lengths]).cumsum(0)
        given = [torch.randn(sum(lengths), 2, 8).requires_grad_() for _ in range(3)]
        got, want = compiled(given, ends, table), _model(given, ends, table)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(torch.autograd.grad(got, given), torch.autograd.grad(want, given))


def test_exports():
    class Model(torch.nn.Module):
        def forward(self, *given):
            return _model(given[:3], *given[3:])

    given = *(torch.randn(5, 2, 8) for _ in range(3)), ENDS, torch.randn(2, 2 * FAR + 1)
    exported = torch.export.export(Model(), given).module()
    assert torch.equal(exported(*given), Model()(*given))


@pytest.mark.parametrize("grads", [False, pytest.param(True, marks=pytest.mark.full)])
def test_opcheck(grads):
    given = [*(torch.randn(5, 2, 8).requires_grad_(grads) for _ in range(3)), ENDS, ENDS]
    options = {"mod_a": torch.randn(2, 2 * FAR + 1), "max_q": 3, "max_k": 3}
    codes = score_functions.codes("varlen_attention", TABLE, NEAR)
    torch.library.opcheck(torch.ops.wmma.varlen_attention.default, given, options | codes)


def test_transforms():
    x, factor, marked = torch.randn(3, 5, 2, 8), torch.randn(3, 2), torch.arange(3) % 2 == 0

    def call(x):
        return wmma_ops.varlen_attention(x, x, x, ENDS, ENDS, 3, 3, score_mod=BOTH, mod_operands=(factor, marked))[0]

    torch.testing.assert_close(torch.vmap(call)(x), torch.stack([call(one) for one in x]))
    of = x[0].clone().requires_grad_()
    (want,) = torch.autograd.grad(call(of).sin().sum(), of)
    each = torch.vmap(torch.func.grad(lambda x: call(x).sin().sum()))(x)
    torch.testing.assert_close(each[0], want)


def test_autocast_leaves_tensors_of_functions_alone():
    x, table = torch.randn(5, 2, 8), torch.randn(2, 2 * FAR + 1) * 1000

    def call(x):
        return wmma_ops.varlen_attention(x, x, x, ENDS, ENDS, 3, 3, score_mod=TABLE, mod_operands=(table,))[0]

    with torch.autocast("cpu", torch.bfloat16):
        got = call(x)
    assert torch.equal(got, call(x.bfloat16()))


def test_counted_as_without_functions():
    x, table = torch.randn(5, 2, 8).requires_grad_(), torch.randn(2, 2 * FAR + 1)
    counts = []
    for options in ({}, {"score_mod": TABLE, "mod_operands": (table,)}):
        with FlopCounterMode(display=False) as counter:
            wmma_ops.varlen_attention(x, x, x, ENDS, ENDS, 3, 3, **options)
        counts.append(counter.get_total_flops())
    assert counts == [2 * 2 * (4 + 9) * 16] * 2


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "sm_80", "sm_90a"])
def test_who_has_functions(target):
    """The general loops, and warpgroups forward."""
    ahead = warpgroup.WarpgroupConfig if target == "sm_90a" else forward.AttentionConfig
    x, ends, lse = torch.empty(700, 2, 128).bfloat16(), torch.zeros(4, dtype=torch.int32), torch.empty(2, 700)
    code = score_functions.codes("varlen_attention", CAP, None)["score_mod"]
    of_gradients = torch.ops.wmma._varlen_attention_backward
    for call, kind in (
        (lambda: wmma_ops.varlen_attention(x, x, x, ends, ends, 500, 500, mask_mod=NEAR), ahead),
        (
            lambda: of_gradients(x, x, x, x, x, lse, ends, ends, max_q=500, max_k=500, score_mod=code),
            backward.BackwardConfig,
        ),
    ):
        (found,) = launching.problems(call, arch.target(target))
        plan = launching.plan_for(found, arch.target(target))
        assert isinstance(plan.config, kind)
        assert not getattr(plan.config, "ping_pong", False)
        assert "attention_block_states" not in [launch.kernel for launch in plan.launches]


@pytest.mark.full
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx1250"])
@pytest.mark.parametrize("case", [CASES[3], CASES[4], CASES[5], CASES[8], *IN_PAGES[:2]], ids=str)
def test_kernels_compile(target, case):
    for problem in launching.problems(lambda: results(case, ours), arch.target(target)):
        for launch in planner.plan(problem, arch.target(target)).launches:
            launch.compile(arch.target(target))


def test_explains():
    x, table = torch.randn(5, 2, 8), torch.randn(2, 2 * FAR + 1)
    options = {"score_mod": TABLE, "mask_mod": NEAR, "mod_operands": (table,)}
    text = str(wmma_ops.explain("varlen_attention", x, x, x, ENDS, ENDS, 3, 3, target="gfx942", **options))
    assert f"the score function {TABLE}" in text
    assert f"the mask function {NEAR}" in text


TENSOR = torch.ones(2, 2 * FAR + 1)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"score_mod": "cap_of_4"}, ValueError, "score_mod is 'cap_of_4' .did you mean 'cap_of_3'.."),
        ({"score_mod": TABLE}, TypeError, "mod_a is None; takes a tensor, as score_mod reads 1 tensor"),
        ({"mod_operands": (TENSOR,)}, ValueError, "mod_a is a tensor that no function reads; takes None"),
        ({"mod_operands": TENSOR}, TypeError, "mod_operands is tensor"),
        (
            {"score_mod": TABLE, "mod_operands": (TENSOR[0],)},
            ValueError,
            r"mod_a has shape \[7\]; takes a tensor of 2 dim",
        ),
        (
            {"score_mod": TABLE, "mod_operands": (TENSOR.clone().requires_grad_(),)},
            ValueError,
            "mod_a requires grad, but tensors that functions read have no gradient; takes a detached tensor",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_calls_are_refused(options, kind, text):
    x = torch.ones(5, 2, 4)
    with pytest.raises(kind, match=f"^wmma.varlen_attention: {text}"):
        wmma_ops.varlen_attention(x, x, x, ENDS, ENDS, 3, 3, **options)


@pytest.mark.parametrize("which", ["batch", "query", "key"])
@pytest.mark.parametrize("case", [CASES[2]], ids=str)
def test_places_that_are_wrong_are_caught_on_the_cpu(which, case, monkeypatch):
    """In the gradients, where functions are told of all tokens at once."""
    right = score_functions.of_packed

    def wrong(*given):
        found = right(*given)
        batch, head, query, key = found.places
        starts = {
            "batch": (0 * batch, query, key),
            "query": (batch, query + batch, key),
            "key": (batch, query, key.flip(-1)),
        }
        batch, query, key = starts[which]
        return found._replace(places=(batch, head, query, key))

    monkeypatch.setattr(score_functions, "of_packed", wrong)
    with pytest.raises(AssertionError, match=r"^g_"):
        check(case, results(case, ours))


def test_a_batch_from_0_on_is_caught_on_the_cpu(monkeypatch):
    right = score_functions._places
    monkeypatch.setattr(score_functions, "_places", lambda scores, first=0, head=0, batch=0: right(scores, first, head))
    with pytest.raises(AssertionError, match=r"^out"):
        check(CASES[3], results(CASES[3], ours))


@dataclass(frozen=True)
class Wrong(Planted):
    case: PackedCase = CASES[3]
    target: str = "gfx942"

    def __str__(self) -> str:
        return f"{self.name}-{self.target}"


SEQUENCES, MASK, FUNCTIONS, BACKWARD = (
    f"{name}.hpp" for name in ("rows/varlen", "terms/row_mask", "terms/functions", "loops/gradients")
)
CHANGED = "(score, bend, query, key, key, 0)"
SLOPE, SHOWS = (
    "slope(functions_, before, batch_, heads_[i], query, key)",
    "shows(functions_, batch_, heads_[i], query, key)",
)
WRONG = (
    Wrong("the_first_sequences_number", MASK, "Rows(p, place.batch)", "Rows(p, 0)"),
    Wrong(
        "the_first_sequences_number_in_pages",
        MASK,
        "Rows(p, place.batch)",
        "Rows(p, 0)",
        IN_PAGES[1],
        "gfx1100",
    ),
    Wrong(
        "a_query_among_all",
        MASK,
        "queries_[i] = static_cast<int>(query);",
        "queries_[i] = static_cast<int>(query) + queries_of(p.sequences, place.batch).start;",
        CASES[0],
        "gfx1201",
    ),
    Wrong(
        "a_query_at_the_keys_place",
        MASK,
        "queries_[i] = static_cast<int>(query);",
        "queries_[i] = static_cast<int>(query + p.rules.diagonal);",
        CASES[0],
    ),
    Wrong("a_key_from_another_start", FUNCTIONS, SHOWS, SHOWS.replace("key)", "key + batch_)"), CASES[1]),
    Wrong(
        "the_first_sequences_number_in_the_gradients",
        BACKWARD,
        "terms(x.p, x.place.batch)",
        "terms(x.p, 0)",
        target="gfx1201",
    ),
    Wrong(
        "a_query_among_all_in_the_gradients",
        BACKWARD,
        CHANGED,
        CHANGED.replace("query,", "query + queries_of(x.p.sequences, x.place.batch).start,"),
        CASES[0],
    ),
    Wrong(
        "a_key_among_all_in_the_gradients",
        BACKWARD,
        CHANGED,
        CHANGED.replace("key,", "key + keys_of(x.p, x.place.batch).start,"),
        CASES[0],
        "gfx1100",
    ),
    Wrong("the_slope_of_another_key", FUNCTIONS, SLOPE, SLOPE.replace("key)", "key + batch_)")),
    Wrong(
        "keys_of_all_with_functions",
        SEQUENCES,
        "return {arguments_of<T, Number>(static_cast<const Others&>(all), index), all.functions};",
        "return all;",
    ),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / FOLDER, WRONG)


IN_QUICK = ("the_first_sequences_number", "a_key_among_all_in_the_gradients", "a_query_among_all")


@pytest.mark.parametrize("of", some_in_quick(WRONG, IN_QUICK))
def test_is_caught(of, sources):
    check_is_caught(of, sources / FOLDER, lambda: check(of.case, emulated(of.case, of.target)))
