"""The pass on graphs as Dynamo makes them: it fires, not where it must not, and numbers and gradients are eager's."""

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from compiled_functions import Compiled, same
from op_counts import ran

import wmma_ops
from wmma_ops import inductor

B, M, K, N = 2, 5, 8, 6


def _x(*shape, dtype=torch.float32, grad=True):
    return torch.randn(shape, dtype=dtype).requires_grad_(grad)


@dataclass(frozen=True)
class Case:
    """`function` of tensors of these shapes, and the ops that its graph is to call when it runs."""

    name: str
    function: object
    shapes: tuple
    ops: dict

    def __str__(self):
        return self.name


LINEAR = ((B, M, K), (N, K), (N,))
PRODUCT = ((M, K), (K, N), (M, N))
BATCH = ((B, M, K), (B, K, N), (B, M, N))
GATED = ((M, K), (N, K), (N, K), (K, N))
HEADS = ((B, 4, M, K), (B, 4, 7, K), (B, 4, 7, K))


def _in_place(x, w, b, r):
    h = F.linear(x, w, b)
    h += r
    return F.relu(h, inplace=True)


def _lora(x, w, b, down, up):
    return F.linear(x, w, b) + F.linear(F.linear(F.dropout(x, 0.1, False), down), up) * 2.0


def _lora_first(x, w, b, down, up):
    return F.linear(F.linear(x, down), up) + F.linear(x, w, b)


def _recurrent(x, w, b, h, u, d):
    return torch.tanh(F.linear(x, w, b) + F.linear(h, u, d))


def _gated_mlp(x, g, u, d):
    return F.linear(F.silu(F.linear(x, g)) * F.linear(x, u), d)


def _inference_dropout(x, w, b, d):
    return F.linear(F.dropout(F.gelu(F.linear(x, w, b)), 0.5, training=False), d)


FIRES = [
    Case("linear", F.linear, LINEAR, {"linear": 1}),
    Case("without bias", lambda x, w: F.linear(x, w), LINEAR[:2], {"linear": 1}),
    Case("a vector", lambda x, w, b: F.relu(F.linear(x, w, b)), ((K,), (N, K), (N,)), {"linear": 1}),
    Case("linear relu", lambda x, w, b: F.relu(F.linear(x, w, b)), LINEAR, {"linear": 1}),
    Case("linear gelu", lambda x, w, b: F.gelu(F.linear(x, w, b)), LINEAR, {"linear": 1}),
    Case("linear gelu tanh", lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"), LINEAR, {"linear": 1}),
    Case("linear silu", lambda x, w, b: F.silu(F.linear(x, w, b)), LINEAR, {"linear": 1}),
    Case("linear sigmoid", lambda x, w, b: torch.sigmoid(F.linear(x, w, b)), LINEAR, {"linear": 1}),
    Case("linear tanh", lambda x, w, b: F.linear(x, w, b).tanh(), LINEAR, {"linear": 1}),
    Case("linear leaky relu", lambda x, w, b: F.leaky_relu(F.linear(x, w, b)), LINEAR, {"linear": 1}),
    Case("residual", lambda x, w, b, r: F.linear(x, w, b) + r, (*LINEAR, (B, M, N)), {"linear": 1}),
    Case("residual first", lambda x, w, b, r: torch.add(r, F.linear(x, w, b)), (*LINEAR, (B, M, N)), {"linear": 1}),
    Case("residual relu", lambda x, w, b, r: (F.linear(x, w, b) + r).relu(), (*LINEAR, (M, N)), {"linear": 1}),
    Case("in place", _in_place, (*LINEAR, (B, M, N)), {"linear": 1}),
    Case("multiplied", lambda x, w, b, r: F.linear(x, w, b) * r, (*LINEAR, (B, M, 1)), {"gemm": 1}),
    Case("gelu, multiplied", lambda x, w, b, r: r * F.gelu(F.linear(x, w, b)), (*LINEAR, (B, M, N)), {"gemm": 1}),
    Case("scaled linear", lambda x, w: F.linear(x, w) / 4, LINEAR[:2], {"gemm": 1}),
    Case("matmul", torch.matmul, PRODUCT[:2], {"matmul": 1}),
    Case("@", lambda a, b: a @ b, BATCH[:2], {"matmul": 1}),
    Case("linalg.matmul", torch.linalg.matmul, PRODUCT[:2], {"matmul": 1}),
    Case("matrix by vector", lambda a, b: a @ b, ((M, K), (K,)), {"matmul": 1}),
    Case("mm, bias, relu", lambda a, b, c: F.relu(a.mm(b) + c), (*PRODUCT[:2], (N,)), {"gemm": 1}),
    Case("bmm, sum", lambda a, b, c: torch.bmm(a, b) + c, BATCH, {"gemm": 1}),
    Case("scale, sum, silu", lambda a, b, c: F.silu(0.5 * (a @ b) + c), BATCH, {"gemm": 1}),
    Case("of the transposed", lambda a, b, c: a.t() @ b + c, ((K, M), *PRODUCT[1:]), {"gemm": 1}),
    Case("addmm", lambda a, b, c: torch.addmm(c, a, b, beta=0.5, alpha=2.0), PRODUCT, {"gemm": 1}),
    Case("addmm, bias", lambda a, b, c: F.gelu(c.addmm(a, b)), (*PRODUCT[:2], (N,)), {"gemm": 1}),
    Case("addmm, half a bias", lambda a, b, c: torch.addmm(c, a, b, beta=0.5), (*PRODUCT[:2], (N,)), {"gemm": 1}),
    Case("baddbmm", lambda a, b, c: torch.baddbmm(c, a, b, alpha=3), BATCH, {"gemm": 1}),
    Case("silu gate", lambda x, g, u: F.silu(F.linear(x, g)) * F.linear(x, u), GATED[:3], {"gemm": 1}),
    Case("gelu gate", lambda x, g, u: F.linear(x, u) * F.gelu(F.linear(x, g)), GATED[:3], {"gemm": 1}),
    Case("gated mlp", _gated_mlp, GATED, {"gemm_gemm": 1}),
    Case("mlp", lambda x, w, b, d: F.linear(F.gelu(F.linear(x, w, b)), d) + x, (*LINEAR, (K, N)), {"gemm_gemm": 1}),
    Case("mlp, dropout off", _inference_dropout, (*LINEAR, (K, N)), {"gemm_gemm": 1}),
    Case("lora", _lora, (*LINEAR, (3, K), (N, 3)), {"gemm": 2}),
    Case("lora without a factor", _lora_first, (*LINEAR, (3, K), (N, 3)), {"gemm": 2}),
    Case("recurrent", _recurrent, (*LINEAR, (B, M, 4), (N, 4), (N,)), {"gemm": 1}),
    Case("products of two pairs", lambda a, b, c, d: a @ b + c @ d, (*PRODUCT[:2], (M, 3), (3, N)), {"gemm": 1}),
    Case(
        "a sum of two products and more",
        lambda a, b, c, d, r, s: F.gelu(2 * (a @ b) + r + 2 * (c @ d)) * s,
        (*PRODUCT[:2], (M, 3), (3, N), (M, N), (M, N)),
        {"gemm": 1},
    ),
    Case("two products", lambda a, b, d: (a @ b) @ d, (*PRODUCT[:2], (N, K)), {"gemm_gemm": 1}),
    Case("attention", F.scaled_dot_product_attention, HEADS, {"attention": 1}),
    Case("causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), HEADS, {"attention": 1}),
    Case("scale 0", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.0), HEADS, {"attention": 1}),
    Case(
        "float mask",
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.3),
        (*HEADS, (M, 7)),
        {"attention": 1},
    ),
    Case(
        "bool mask",
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m > 0),
        (*HEADS, (B, 1, M, 7)),
        {"attention": 1},
    ),
    Case(
        "grouped heads",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        (HEADS[0], (B, 2, 7, K), (B, 2, 7, K)),
        {"attention": 1},
    ),
    Case(
        "heads by strides",
        lambda q, k, v: (
            F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2).flatten(2)
        ),
        ((B, M, 4, K), (B, 7, 4, K), (B, 7, 4, K)),
        {"attention": 1},
    ),
]


@pytest.mark.parametrize("case", FIRES, ids=str)
def test_fires(case):
    compiled = Compiled(case.function)
    assert same(case.function, compiled, [_x(*shape) for shape in case.shapes]) == case.ops
    assert not compiled.report.left


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_other_types(dtype):
    inputs = [_x(*shape, dtype=dtype) for shape in ((M, K), (N, K), (N,), (K, N))]

    def mlp(x, w, b, d):
        return F.linear(F.gelu(F.linear(x, w, b)), d) + x

    tolerance = 1e-10 if dtype == torch.float64 else 3e-2
    assert same(mlp, Compiled(mlp), inputs, tolerance=tolerance) == {"gemm_gemm": 1}


def _geglu(x, w, b):
    h, gate = F.linear(x, w, b).chunk(2, dim=-1)
    return h * F.gelu(gate)


def _swiglu(x, w, b):
    gate, up = torch.split(F.linear(x, w), N, -1)
    return F.silu(gate).mul(up)


@pytest.mark.parametrize("function", [_geglu, _swiglu])
@pytest.mark.parametrize("dynamic", [False, True], ids=["", "dynamic"])
def test_a_gate_from_the_halves_of_one_product(function, dynamic):
    x, w, b = (torch.nn.Parameter(_x(*shape), False) for shape in ((B, M, K), (2 * N, K), (2 * N,)))

    def gate(x):
        return function(x, w, b)

    compiled = Compiled(gate, dynamic=dynamic)
    assert same(gate, compiled, [x], gradients=False) == {"gemm": 1}
    (entry,) = compiled.report.rewritten
    assert entry.op == "gemm"
    assert "a half of it + " in entry.pattern
    w.requires_grad_()
    compiled = Compiled(gate, dynamic=dynamic)
    assert same(gate, compiled, [x], gradients=False) == {"linear": 1}
    assert "no further: its halves could be two products, were not: the gradients" in str(compiled.report.entries)


def test_halves_are_held_against_torchs_one_product():
    """Two launches for torch's two, of which the one multiplies all columns at once."""
    x, w, b = torch.empty(16, 1280).bfloat16(), torch.empty(10240, 1280).bfloat16(), torch.empty(10240).bfloat16()
    compiled = Compiled(_geglu, force=False)
    with wmma_ops.emulate("gfx942"), torch.no_grad():
        compiled(x, w, b)
    (entry,) = compiled.report.entries
    assert entry.op is None
    assert "not linear, a half of it + gelu + multiply: 1." in entry.reason


def _rows(x, w, b):
    h, gate = F.linear(x, w, b).chunk(2, dim=-2)
    return h * F.gelu(gate)


def _half_used_twice(x, w, b):
    h, gate = F.linear(x, w, b).chunk(2, dim=-1)
    return h * F.gelu(gate) + gate


def _of_one_half(x, w, b):
    h, _ = F.linear(x, w, b).chunk(2, dim=-1)
    return h * F.gelu(h)


def _of_two(x, w, b):
    h, gate, _ = F.linear(x, w, b).split((N // 2, N // 2, N), dim=-1)
    return h * F.gelu(gate)


@pytest.mark.parametrize("function", [_rows, _half_used_twice, _of_one_half, _of_two])
def test_what_is_no_gate_from_halves(function):
    inputs = [_x(*shape, grad=False) for shape in ((B, 4, K), (2 * N, K), (2 * N,))]
    assert same(function, Compiled(function), inputs, gradients=False) == {"linear": 1}


# ---------------------------------------------------------------------------------------------- where it must not, or less


def _used_elsewhere(x, w, b):
    h = F.linear(x, w, b)
    return F.gelu(h), h


def _used_by_both(x, w, b):
    h = F.linear(x, w, b)
    return h * h


def _hidden_used_elsewhere(x, w, b, d):
    h = F.relu(F.linear(x, w, b))
    return F.linear(h, d), h


def _input_changed(x, w, b):
    x = x * 1
    h = F.linear(x, w, b)
    x.add_(1)
    return F.gelu(h) + x.sum()


def _view_of_input_changed(x, w, b):
    x = x * 1
    h = F.linear(x, w, b)
    x[0] = 7.0
    return F.gelu(h) + x.sum()


def _weight_changed(x, w, b, d):
    w = w * 1
    h = F.relu(F.linear(x, w, b))
    w.mul_(2)
    return F.linear(h, d) + w.sum()


def _residual_changed(x, w, b, r):
    r = r * 1
    r += F.linear(x, w, b)
    return r


def _intermediate_changed(x, w, b):
    h = F.linear(x, w, b)
    h.clamp_(max=0.5)
    return F.gelu(h)


def _partly_without_gradient(x, w, b):
    with torch.no_grad():
        h = F.linear(x, w, b)
    return F.gelu(h) + x.sum()


def _gradient_off_after(x, w, b):
    h = F.linear(x, w, b)
    with torch.no_grad():
        return F.gelu(h)


def _gate_with_bias(x, g, u, d, b):
    return F.linear(F.silu(F.linear(x, g)) * F.linear(x, u, b), d)


def _gate_of_another(x, g, u, d):
    return F.linear(F.silu(F.linear(x, g)) * F.linear(x + 1, u), d)


def _view_by_rows(*inputs):
    return F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in inputs)).transpose(1, 2).view(B, M, 4 * K)


def _view_by_batches(*inputs):
    out = F.scaled_dot_product_attention(*(x.permute(1, 2, 0, 3) for x in inputs))
    return out.permute(2, 0, 1, 3).view(M * B, 4 * K)


SHORT = [
    (Case("used elsewhere", _used_elsewhere, LINEAR, {"linear": 1}), "used more than once"),
    (Case("used by both sides", _used_by_both, LINEAR, {"linear": 1}), "used more than once"),
    (Case("hidden used elsewhere", _hidden_used_elsewhere, (*LINEAR, (K, N)), {"linear": 2}), "used more than once"),
    (Case("residual changed", _residual_changed, (*LINEAR, (B, M, N)), {"linear": 1}), "changes its other operand"),
    (Case("intermediate changed", _intermediate_changed, LINEAR, {"linear": 1}), ""),
    (Case("partly without gradient", _partly_without_gradient, LINEAR, {"linear": 1}), "switched on the way"),
    (Case("another slope", lambda x, w: F.leaky_relu(F.linear(x, w), 0.2), LINEAR[:2], {"linear": 1}), ""),
    (
        Case("two activations", lambda x, w: F.linear(x, w).relu().tanh(), LINEAR[:2], {"linear": 1}),
        "a second activation",
    ),
    (
        Case("a sum after", lambda x, w, b, r: F.linear(x, w, b).relu() + r, (*LINEAR, (M, N)), {"linear": 1}),
        "after the activation",
    ),
    (
        Case(
            "a sum between",
            lambda x, w, b, r, d: F.linear(F.linear(x, w, b) + r, d),
            (*LINEAR, (M, N), (K, N)),
            {"linear": 2},
        ),
        "",
    ),
    (
        Case(
            "a last activation",
            lambda x, w, b, d: F.linear(F.relu(F.linear(x, w, b)), d).relu(),
            (*LINEAR, (K, N)),
            {"gemm_gemm": 1},
        ),
        "",
    ),
    (Case("scaled sum", lambda x, w, b: F.linear(x, w, b) * 2, LINEAR, {"linear": 1}), "a factor comes after the sum"),
    (Case("sum of a number", lambda x, w: F.linear(x, w) + 2, LINEAR[:2], {"linear": 1}), "a number is added"),
    (
        Case("broadcast", lambda a, b, c: a @ b + c, (*PRODUCT[:2], (B, M, N)), {"matmul": 1}),
        "another type or shape",
    ),
    (
        Case("other type", lambda a, b, c: a @ b + c.double(), PRODUCT, {"matmul": 1}),
        "another type or shape",
    ),
    (
        Case(
            "a sum of two products with three addends",
            lambda x, w, b, h, u, d, r: (F.linear(x, w, b) + r) + F.linear(h, u, d),
            (*LINEAR, (B, M, 4), (N, 4), (N,), (B, M, N)),
            {"linear": 2},
        ),
        "",
    ),
    (
        Case(
            "two products with factors of their own",
            lambda a, b, c, d: 2 * (a @ b) + 3 * (c @ d),
            (*PRODUCT[:2], (M, 3), (3, N)),
            {"gemm": 2},
        ),
        "",
    ),
    (
        Case(
            "a product used beside a sum",
            lambda a, b, c, d: (s := a @ b, s + c @ d),
            (*PRODUCT[:2], (M, 3), (3, N)),
            {"gemm": 1, "matmul": 1},
        ),
        "used more than once",
    ),
    (Case("gate with bias", _gate_with_bias, (*GATED, (N,)), {"gemm": 1, "linear": 1}), ""),
    (Case("gate of another", _gate_of_another, GATED, {"gemm": 1, "linear": 2}), ""),
    (
        Case("bias of one", lambda x, w, b: F.gelu(x @ w + b), (*PRODUCT[:2], (1,)), {"gemm": 1}),
        "",
    ),
]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, r: F.linear(x, w) * 0.0,
        lambda x, w, r: F.linear(x, w) / torch.inf,
        lambda x, w, r: F.linear(x, w) * 1e-50,
        lambda x, w, r: torch.add(F.linear(x, w), r, alpha=0),
    ],
    ids=["times 0", "by infinity", "times nearly 0", "and 0 times"],
)
def test_a_factor_of_0_stays_a_product(function):
    """The op would leave its operands unread, and their NaN with them."""
    x, w, r = _x(M, K, grad=False), _x(N, K, grad=False), _x(M, N, grad=False)
    x[0, 0] = r[1, 1] = torch.nan
    compiled = Compiled(function)
    torch.testing.assert_close(compiled(x, w, r), function(x, w, r), equal_nan=True)
    (entry,) = compiled.report.entries
    assert (entry.op, "a factor is 0" in entry.reason) == ("linear", True)


@pytest.mark.parametrize(
    ("function", "ops"),
    [
        (lambda a, b, c: torch.addmm(c, a, b, alpha=0), {}),
        (lambda a, b, c: torch.addmm(c, a, b, beta=1e-50), {}),
        (lambda a, b, c: torch.addmm(a @ b, a, b, alpha=0), {"matmul": 1}),
        (lambda a, b, c: torch.addmm(c, a, b, alpha=0) + a @ b, {"gemm": 1}),
    ],
    ids=["alpha", "beta", "beside a product", "and a product"],
)
def test_leaves_a_product_with_a_factor_of_0(function, ops):
    a, b, c = (_x(*shape, dtype=torch.float64, grad=False) for shape in PRODUCT)
    a[0, 0] = c[1, 1] = torch.nan
    compiled = Compiled(function)
    compiled(a, b, c)
    with ran() as called:
        torch.testing.assert_close(compiled(a, b, c), function(a, b, c), equal_nan=True)
    assert dict(called) == ops
    assert ["a factor is 0" in entry.reason for entry in compiled.report.left] == [True]


def test_an_addend_with_a_factor_of_0_has_a_gradient():
    c, a, b = (_x(*shape) for shape in ((5, 7), (5, 6), (6, 7)))
    compiled = Compiled(lambda c, a, b: torch.addmm(c, a, b, beta=0))
    compiled(c, a, b).sum().backward()
    assert torch.equal(c.grad, torch.zeros_like(c))
    (entry,) = compiled.report.left
    assert "has a gradient" in entry.reason


def test_a_large_factor_leaves_float16_its_range():
    """x·a is near the type's end: the factor stays behind the second product."""
    x, w, a, b = (
        torch.full(shape, one).half()
        for shape, one in (((8, 64), 1.0), ((64, 8), 0.0), ((64, 4), 90.0), ((4, 8), 0.001))
    )
    compiled = Compiled(lambda x, w, a, b: x @ w + 16 * (x @ a @ b))
    torch.testing.assert_close(compiled(x, w, a, b), torch.full((8, 8), 368.0).half(), rtol=1e-2, atol=0)


# What eager itself does not differentiate.
CHANGED = [
    (Case("input changed", _input_changed, LINEAR, {"linear": 1}), "changed in place"),
    (Case("a part of it changed", _view_of_input_changed, LINEAR, {"linear": 1}), "changed in place"),
    (Case("weight changed", _weight_changed, (*LINEAR, (K, N)), {"linear": 2}), "changed in place"),
    (Case("gradient off after", _gradient_off_after, LINEAR, {"linear": 1}), "switched on the way"),
]


@pytest.mark.parametrize(("case", "why"), CHANGED, ids=lambda x: str(x) if isinstance(x, Case) else "")
def test_stops_at_a_change(case, why):
    compiled = Compiled(case.function)
    inputs = [_x(*shape, grad=False) for shape in case.shapes]
    assert same(case.function, compiled, inputs, gradients=False) == case.ops
    assert why in "; ".join(entry.reason for entry in compiled.report.entries)


@pytest.mark.parametrize(("case", "why"), SHORT, ids=lambda x: str(x) if isinstance(x, Case) else "")
def test_stops_where_it_must(case, why):
    compiled = Compiled(case.function)
    assert same(case.function, compiled, [_x(*shape) for shape in case.shapes]) == case.ops
    assert why in "; ".join(entry.reason for entry in compiled.report.entries)


def _left(function, inputs, why, **options):
    compiled = Compiled(function, **options)
    assert same(function, compiled, inputs, gradients=False) == {}
    assert [why in entry.reason for entry in compiled.report.left] == [True], compiled.report
    assert not compiled.report.rewritten


def test_leaves_other_types():
    _left(torch.matmul, [torch.randint(9, (M, K)), torch.randint(9, (K, N))], "its types are int64")


def _graph(function, *tensors, **keywords):
    """A graph of one call, that torch itself may refuse to run."""
    graph = torch.fx.Graph()
    names = [graph.placeholder(f"x{i}") for i in range(len(tensors))]
    node = graph.call_function(function, tuple(names), keywords)
    graph.output(node)
    for placeholder, x in zip(names, tensors, strict=True):
        placeholder.meta["example_value"] = x
    node.meta["example_value"] = tensors[0].new_empty((*tensors[0].shape[:-1], tensors[-1].shape[-1]))
    return graph


@pytest.mark.parametrize(
    ("mask", "keywords", "why"),
    [
        (torch.ones(M, 7, dtype=torch.int32), {}, "its mask is int32; ours takes bool, float32 or float16"),
        (torch.ones(2, B, 4, M, 7, dtype=torch.bool), {}, "its mask of shape [2, 2, 4, 5, 7] does not broadcast"),
        (torch.ones(M, 6, dtype=torch.bool), {}, "its mask of shape [5, 6] does not broadcast"),
        (torch.ones(M, 7, dtype=torch.bool), {"is_causal": True}, "ours takes one of the two"),
        (torch.ones(M, 7, device="meta"), {}, "no plain tensor of the same device"),
        (torch.ones(M, 7), {"scale": float("nan")}, "no finite number"),
    ],
    ids=["int", "rank", "size", "causal", "device", "scale"],
)
def test_leaves_attention_that_ours_does_not_take(mask, keywords, why):
    q, k, v = (torch.randn(shape).half() for shape in HEADS)
    graph = _graph(F.scaled_dot_product_attention, q, k, v, mask, **keywords)
    report = inductor.rewrite(graph, inductor.Settings(force=True))
    assert [why in entry.reason for entry in report.left] == [True], report
    assert [node.target for node in graph.nodes if node.op == "call_function"] == [F.scaled_dot_product_attention]


@pytest.mark.parametrize("types", [("float16", "float32"), ("float32", "float16")], ids=" · ".join)
def test_leaves_types_that_differ(types):
    a, b = (torch.ones(4, 4, dtype=getattr(torch, name)) for name in types)
    report = inductor.rewrite(_graph(torch.matmul, a, b), inductor.Settings(force=True))
    assert f"its types are {', '.join(types)}" in report.left[0].reason


UNREAD = {
    "einsum": lambda a, b: torch.einsum("mk,kn->mn", a, b),
    "multi_dot": lambda a, b: torch.linalg.multi_dot([a, b]),
    "mv": lambda a, b: a.mv(b[:, 0]),
    "addmm_": lambda a, b: torch.zeros(M, N).addmm_(a, b),
    "bilinear": lambda a, b: F.bilinear(a, a, torch.ones(2, K, K)),
}


@pytest.mark.parametrize("function", UNREAD.values(), ids=UNREAD)
def test_names_products_that_it_does_not_read(function):
    _left(function, [_x(M, K, grad=False), _x(K, N, grad=False)], "no pattern looks into it")


def test_names_a_layer_that_torch_computes_whole():
    layer = torch.nn.TransformerEncoderLayer(K, 2, 16, batch_first=True).eval()
    compiled = Compiled(layer)
    with torch.no_grad():
        compiled(_x(B, M, K, grad=False))
    (entry,) = compiled.report.entries
    assert (entry.pattern, entry.op, entry.reason) == (
        "_transformer_encoder_layer_fwd",
        None,
        "no pattern looks into it",
    )


@pytest.mark.parametrize(
    ("shapes", "why"),
    [
        ((HEADS[0], (B, 1, 7, K), (B, 1, 7, K)), "broadcast"),
        (((B, 4, M, K), (1, 4, 7, K), (1, 4, 7, K)), "broadcast"),
    ],
    ids=["heads", "batch"],
)
def test_leaves_attention_that_broadcasts(shapes, why):
    _left(F.scaled_dot_product_attention, [_x(*shape) for shape in shapes], why)


def test_leaves_attention_with_dropout():
    compiled = Compiled(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5))
    compiled(*(_x(*shape) for shape in HEADS))
    assert [entry.reason for entry in compiled.report.left] == ["dropout is on, which torch is to draw"]


def test_dropout_in_training_stays_between():
    layer = torch.nn.Sequential(torch.nn.Linear(K, N), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(N, K))
    x = _x(64, K)
    compiled = Compiled(layer)
    torch.manual_seed(1)
    got = compiled(x)
    torch.manual_seed(1)
    torch.testing.assert_close(got, layer(x), rtol=1e-5, atol=1e-5)
    assert [entry.op for entry in compiled.report.entries] == ["linear", "linear"]
    assert "dropout is on" in str(compiled.report)
    assert same(layer.eval(), Compiled(layer), [x]) == {"gemm_gemm": 1}


def test_leaves_what_is_viewed_by_its_strides():
    _left(_view_by_batches, [_x(M, B, 4, K) for _ in "qkv"], "needs torch's strides")


def test_takes_what_is_viewed_where_results_lie_as_torchs_do():
    compiled = Compiled(_view_by_rows)
    assert same(_view_by_rows, compiled, [_x(B, M, 4, K) for _ in "qkv"], gradients=False) == {"attention": 1}


def test_leaves_other_devices():
    compiled = Compiled(F.linear)
    compiled(torch.empty(M, K, device="meta"), torch.empty(N, K, device="meta"))
    assert "on meta" in compiled.report.left[0].reason


def test_leaves_transforms():
    def rows(x, w):
        return torch.func.vmap(lambda row: F.relu(F.linear(row, w)))(x)

    _left(rows, [_x(M, K), _x(N, K)], "torch.func")


# ------------------------------------------------------------------------------------------------------------ whole models


class _Block(torch.nn.Module):
    """A layer of a transformer, as people write them."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = torch.nn.LayerNorm(K), torch.nn.Linear(K, 3 * K), torch.nn.Linear(K, K)
        self.gate, self.up, self.down = (torch.nn.Linear(K, 16, bias=False) for _ in range(3))
        self.down = torch.nn.Linear(16, K, bias=False)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (2, -1)).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).contiguous().view(x.shape))
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def test_a_transformer_layer_trains():
    layer = _Block()
    compiled = Compiled(layer, backend="aot_eager")
    x = _x(B, M, K)
    called = same(layer, compiled, [x], tolerance=1e-5)
    # The gradients are traced with the forward pass, and of our ops too: the products they need are gemm.
    assert [called[op] for op in ("attention", "linear", "gemm_gemm")] == [1, 2, 1]
    want = torch.autograd.grad(layer(x).sum(), list(layer.parameters()))
    got = torch.autograd.grad(compiled(x).sum(), list(layer.parameters()))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_parameters_get_their_gradients():
    layer = torch.nn.Sequential(torch.nn.Linear(K, N), torch.nn.GELU(), torch.nn.Linear(N, K))
    x = _x(M, K)
    want = torch.autograd.grad(layer(x).sin().sum(), [x, *layer.parameters()])
    compiled = Compiled(layer, backend="aot_eager")
    got = torch.autograd.grad(compiled(x).sin().sum(), [x, *layer.parameters()])
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert [entry.op for entry in compiled.report.entries] == ["gemm_gemm"]


def test_dynamic_sizes_keep_one_graph():
    def mlp(x, w, b, d):
        return F.linear(F.gelu(F.linear(x, w, b)), d) + x

    compiled = Compiled(mlp, dynamic=True, backend="aot_eager")
    for rows in (3, 12, 40):
        inputs = [_x(rows, K), _x(N, K), _x(N), _x(K, N)]
        assert same(mlp, compiled, inputs, tolerance=1e-4)["gemm_gemm"] == 1
    assert compiled.graphs == 1


def test_dynamic_attention():
    compiled = Compiled(F.scaled_dot_product_attention, dynamic=True)
    for keys in (3, 12):
        inputs = [_x(B, 4, M, K), _x(B, 4, keys, K), _x(B, 4, keys, K)]
        assert same(F.scaled_dot_product_attention, compiled, inputs) == {"attention": 1}


def test_checkpointed_layers_are_seen():
    def model(x, w, b):
        return torch.utils.checkpoint.checkpoint(lambda x: F.gelu(F.linear(x, w, b)), x, use_reentrant=False)

    inputs = [_x(*shape) for shape in LINEAR]
    compiled = Compiled(model, backend="aot_eager")
    assert same(model, compiled, inputs, others=["wmma::_linear_aux"]) == {"wmma::_linear_aux": 1}
    assert [entry.op for entry in compiled.report.entries] == ["linear"]


@pytest.mark.parametrize("where", ["around", "inside"])
def test_autocast(where):
    def mlp(x, w, b, d):
        return F.linear(F.gelu(F.linear(x, w, b)), d)

    def inside(x, w, b, d):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = mlp(x, w, b, d)
        return x @ w.mT, y  # float32 again

    inputs = [(0.5 * _x(*shape, grad=False)).requires_grad_() for shape in (*LINEAR, (K, N))]
    if where == "inside":
        called = same(inside, Compiled(inside, backend="aot_eager"), inputs, tolerance=3e-2)
        assert called["gemm_gemm"] == called["matmul"] == 1
    else:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert same(mlp, Compiled(mlp, backend="aot_eager"), inputs, tolerance=3e-2)["gemm_gemm"] == 1
