"""Functions of attention's scores and masks that users register: values and gradients on the CPU and on emulated targets
against a formula in float64, what is refused, and kernels that are wrong on purpose."""

from dataclasses import dataclass

import pytest
import torch
from planted import Planted, check_is_caught, check_that_each_stands_once, some_in_quick
from scored import (
    BOTH,
    CAP,
    EVEN,
    FAR,
    NEAR,
    PREFIX,
    TABLE,
    WITH_FUNCTIONS,
    Case,
    by_turns,
    check,
    emulated,
    mask_named,
    ours,
    results,
    score_named,
)
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import wmma_ops
from wmma_ops import jit
from wmma_ops.hardware import arch
from wmma_ops.jit import kernels_dir
from wmma_ops.ops import expressions, score_functions
from wmma_ops.plan.attention import backward
from wmma_ops.plan.attention.loops import forward, warpgroup
from wmma_ops.runtime import launching

FOLDER = "wmma/attention"


@pytest.mark.parametrize("case", WITH_FUNCTIONS, ids=str)
def test_values_and_gradients_on_the_cpu(case):
    check(case, results(case, ours))


@pytest.mark.parametrize(("target", "case"), by_turns(WITH_FUNCTIONS, 0, 5), ids=str)
def test_values_and_gradients_by_kernels(target, case):
    check(case, emulated(case, target))


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

    score_named("of_flex", "score", "1", score_mod)
    mask_named("mask_of_flex", "query >= key", mask_mod)
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


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "sm_80", "sm_90a"])
def test_who_has_functions(target):
    """The general loops, and sm_90a's warpgroups."""
    q = torch.empty(1, 2, 512, 128).bfloat16()
    (found,) = launching.problems(lambda: wmma_ops.attention(q, q, q, mask_mod=NEAR), arch.target(target))
    plan = launching.plan_for(found, arch.target(target))
    if target == "sm_90a":
        assert isinstance(plan.config, warpgroup.WarpgroupConfig)
        assert plan.config.groups == 2  # of three, registers would spill
    else:
        assert isinstance(plan.config, forward.AttentionConfig)
        assert not plan.config.ping_pong
    call = torch.ops.wmma._attention_backward
    code = score_functions.codes("attention", CAP, None)["score_mod"]
    lse = torch.empty(1, 2, 512)
    (found,) = launching.problems(lambda: call(q, q, q, q, q, lse, score_mod=code), arch.target(target))
    config = launching.plan_for(found, arch.target(target)).config
    assert isinstance(config, backward.BackwardConfig)
    loop = "warpgroup_owners" if target == "sm_90a" else "gradients"
    assert {owner.LOOP for owner in config.kernels} == {loop}


EVERY_SECOND = mask_named("as_a_tensor_says", "a(key % 2)", lambda b, h, q, k, shown: shown[k % 2] & (q >= 0), 1)


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_a_tensor_whose_elements_32_bits_do_not_count(target):
    """Memory that is not touched costs nothing."""
    shown = torch.empty(2**32 + 1, dtype=torch.bool).as_strided((2,), (2**32,))
    shown.copy_(torch.tensor([True, False]))
    q = torch.randn(1, 2, 9, 16).half()
    with wmma_ops.emulate(target):
        out, _ = wmma_ops.attention(q, q, q, mask_mod=EVERY_SECOND, mod_operands=(shown,))
    seen = q[:, :, ::2]
    torch.testing.assert_close(out, wmma_ops.attention(q, seen, seen)[0], rtol=0.01, atol=1e-3)


@pytest.mark.full
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx1250"])
@pytest.mark.parametrize(
    "case", [WITH_FUNCTIONS[1], WITH_FUNCTIONS[4], WITH_FUNCTIONS[7], WITH_FUNCTIONS[11], WITH_FUNCTIONS[12]], ids=str
)
def test_kernels_compile(target, case):
    for problem in launching.problems(lambda: results(case, ours), arch.target(target)):
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
        (
            {"expression": "scores"},
            r"names 'scores' \(did you mean 'score'\?\); takes an expression of score, batch, head, query, key and",
        ),
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
    score_named("sums_up", "a(head)", "0", lambda score, b, h, q, k, x: x[:, None] @ x[None], 1)
    score_named("gives_a_number", "a(head)", "0", lambda score, b, h, q, k, x: 1.0, 1)
    score_named("reads_too_far", "a(head)", "0", lambda score, b, h, q, k, x: x[k], 1)
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
    assert not [name for name in expressions.MATH if f" {name}(" not in text]


@dataclass(frozen=True)
class Wrong(Planted):
    case: Case = WITH_FUNCTIONS[0]
    target: str = "gfx942"

    def __str__(self) -> str:
        return f"{self.name}-{self.target}"


FUNCTIONS, MASK, BACKWARD, MATH = (
    f"{name}.hpp" for name in ("terms/functions", "terms/row_mask", "loops/gradients", "math")
)
ROW = "before, batch_, heads_[i], query, key)"
WRONG = (
    Wrong("query_for_key", MASK, "bend, queries_[i], lane_first, key, i)", "bend, key, lane_first, queries_[i], i)"),
    Wrong(
        "query_for_key_in_the_gradients",
        BACKWARD,
        "(score, bend, query, key, key, 0)",
        "(score, bend, key, query, query, 0)",
        target="gfx1201",
    ),
    Wrong(
        "no_derivative",
        FUNCTIONS,
        f"bend *= Functions::slope(functions_, {ROW};",
        ";",
        WITH_FUNCTIONS[3],
    ),
    Wrong(
        "the_derivative_of_what_comes_out",
        FUNCTIONS,
        "slope(functions_, before,",
        f"slope(functions_, Functions::changed(functions_, {ROW},",
        WITH_FUNCTIONS[3],
    ),
    Wrong(
        "keys_shown_in_the_gradients",
        BACKWARD,
        "terms.shows(query, key, 0)",
        "true",
        WITH_FUNCTIONS[9],
        "gfx1201",
    ),
    Wrong("keys_shown", MASK, "this->shows(queries_[i], key, i)", "true", WITH_FUNCTIONS[13]),
    Wrong("one_stride_for_all", FUNCTIONS, "(x_.strides[dim++])", "(x_.strides[0 * dim++])"),
    Wrong(
        "reads_outside",
        FUNCTIONS,
        "return static_cast<Whole>(index) < static_cast<Whole>(size);",
        "return true;",
        WITH_FUNCTIONS[14],
        "gfx1100",
    ),
    Wrong("the_first_head_of_a_group", MASK, "head = place.head_of(row)", "head = place.head", WITH_FUNCTIONS[12]),
    Wrong(
        "a_batch_from_0_on",
        MASK,
        "Rows(p, place.batch)",
        "Rows(p, place.batch - p.rules.first_batch)",
        WITH_FUNCTIONS[5],
    ),
    Wrong(
        "a_batch_from_0_on_in_the_gradients",
        BACKWARD,
        "terms(x.p, x.place.batch)",
        "terms(x.p, x.place.batch - x.p.rules.first_batch)",
        WITH_FUNCTIONS[6],
    ),
    Wrong(
        "scores_in_another_unit",
        MATH,
        "typename Config::Mask, kTakesNumbers<Config>>",
        "typename Config::Mask>",
        WITH_FUNCTIONS[4],
    ),
    Wrong(
        "weights_are_not_corrected",
        BACKWARD,
        "if (kOwnsKeys) weights[f] *= statistics[2 * kOthers + other];",
        "",
        WITH_FUNCTIONS[8],
    ),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / FOLDER, WRONG)


IN_QUICK = ("no_derivative", "keys_shown_in_the_gradients", "a_batch_from_0_on")


@pytest.mark.parametrize("of", some_in_quick(WRONG, IN_QUICK))
def test_is_caught(of, sources):
    check_is_caught(of, sources / FOLDER, lambda: check(of.case, emulated(of.case, of.target)))
