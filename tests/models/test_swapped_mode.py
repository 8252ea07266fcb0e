"""Products and attention of torch that run as ours within `wmma_ops.swapped()`."""

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from dropped import attend
from op_counts import ran
from torch import nn
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention, noop_mask
from torch.utils.checkpoint import checkpoint

import wmma_ops

SEED = torch.Generator().manual_seed(0)
A, B, C, Q, K = (torch.randn(s, generator=SEED) for s in ((6, 8), (8, 5), (6, 5), (2, 4, 6, 8), (2, 2, 7, 8)))
MASK = torch.rand(6, 7, generator=SEED) < 0.8


TAKEN = {
    "linear": (lambda: F.linear(A, B.mT, C[0]), "linear", "linear"),
    "matmul": (lambda: torch.matmul(A, B), "matmul", "matmul"),
    "method": (lambda: A.matmul(B), "matmul", "matmul"),
    "@": (lambda: A @ B, "matmul", "matmul"),
    "__rmatmul__": (lambda: B.__rmatmul__(A), "matmul", "matmul"),
    "vector": (lambda: A @ B[:, 0], "matmul", "matmul"),
    "mm": (lambda: torch.mm(A, mat2=B), "mm", "matmul"),
    "bmm": (lambda: Q[0].bmm(Q[0].mT), "bmm", "matmul"),
    "addmm": (lambda: torch.addmm(C, A, B, beta=0.5, alpha=2), "addmm", "addmm"),
    "addmm method": (lambda: C[0].addmm(A, B), "addmm", "addmm"),
    "baddbmm": (lambda: torch.baddbmm(C[:, :1], Q[0], Q[0].mT), "baddbmm", "baddbmm"),
    "attention": (lambda: F.scaled_dot_product_attention(Q, Q, Q, is_causal=True), None, "attention"),
    "infinite factor": (lambda: torch.addmm(C, A, B, beta=torch.inf), "addmm", "addmm"),
    "grouped": (
        lambda: F.scaled_dot_product_attention(Q, K, K, MASK, scale=0.2, enable_gqa=True),
        None,
        "attention",
    ),
}


@pytest.mark.parametrize(("function", "name", "op"), TAKEN.values(), ids=TAKEN)
def test_taken(function, name, op):
    want = function()
    with wmma_ops.swapped() as calls, ran() as counts:
        got = function()
    torch.testing.assert_close(got, want)
    assert counts == {op: 1}
    assert calls.taken == {name or "scaled_dot_product_attention": 1}
    assert not calls.left
    with ran() as counts:
        function()
    assert not counts


def _sdpa(*args, **options):
    return lambda: F.scaled_dot_product_attention(*args, **options)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": torch.eye(6)}], ids=str)
def test_dropout(options):
    """The one that is drawn, with its gradients."""
    given = [x.clone().requires_grad_() for x in (Q, Q, Q)]
    torch.manual_seed(3)
    with wmma_ops.swapped() as calls:
        got = F.scaled_dot_product_attention(*given, dropout_p=0.4, **options)
        grads = torch.autograd.grad(got.square().sum(), given)
    assert not calls.left
    torch.manual_seed(3)
    want = attend(*given, dropout_p=0.4, **options)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(grads, torch.autograd.grad(want.square().sum(), given))


LEFT = {
    "integers": (lambda: A.long() @ B.long(), "its first argument is int64"),
    "int8": (lambda: A.to(torch.int8) @ B.to(torch.int8), "its first argument is int8"),
    "out": (lambda: torch.mm(A, B, out=torch.empty(6, 5)), "out= is given"),
    "sparse": (lambda: A.to_sparse() @ B, "its first argument is sparse"),
    "complex": (lambda: torch.addmm(C.cfloat(), A.cfloat(), B.cfloat(), alpha=1j), "its first argument is complex64"),
    "subclass": (lambda: A.as_subclass(_Mine) @ B, "its first argument is a _Mine"),
    "einsum": (lambda: torch.einsum("ij,jk->ik", A, B), "within one function"),
    "everything dropped": (_sdpa(Q, Q, Q, dropout_p=1.0), "its dropout is 1.0"),
    "causal and mask": (_sdpa(Q, Q, Q, torch.zeros(6, 6), is_causal=True), "it is causal and has a mask"),
    "batches": (_sdpa(Q[:1], Q, Q), "its batches differ in size"),
    "heads": (_sdpa(Q[:, :1], Q, Q), "its heads differ in number"),
    "wide": (_sdpa(torch.ones(2, 4, 600), torch.ones(2, 4, 600), torch.ones(2, 4, 600)), "not from 1 to 512"),
    "infinite scale": (_sdpa(Q, Q, Q, scale=torch.inf), "its scale is inf"),
    "negative infinite scale": (_sdpa(Q, Q, Q, torch.zeros(6, 6), scale=-torch.inf), "its scale is -inf"),
    "scale of NaN": (_sdpa(Q, Q, Q, is_causal=True, scale=torch.nan), "its scale is nan"),
    "scale beyond float32": (_sdpa(Q, Q, Q, scale=1e300), "its scale is 1e+300"),
    "vector bias": (lambda: F.linear(A, B[:, 0]), "its weight is no matrix"),
    "one bias": (lambda: F.linear(A, B.mT, C[0, :1]), "its bias has one element for all columns"),
}


class _Mine(torch.Tensor):
    pass


def _answer(function):
    """The result, or the words of a refusal."""
    try:
        return function()
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize(("function", "reason"), LEFT.values(), ids=LEFT)
def test_left_to_torch(function, reason):
    torch.manual_seed(0)
    want = _answer(function)
    torch.manual_seed(0)
    with wmma_ops.swapped() as calls, ran() as counts:
        got = _answer(function)
    assert type(got) is type(want)
    if isinstance(want, str):  # torch 2.15 takes no mask beside is_causal
        assert got == want
        assert reason == "it is causal and has a mask"
    else:
        torch.testing.assert_close(got, want, equal_nan=True)
    assert not counts
    assert not calls.taken
    assert [reason in why for _, why in calls.left] == [True]
    assert reason in str(calls)


@pytest.fixture
def flex():
    """Compiled, as people call it, and anew for each test."""
    torch.compiler.reset()
    return torch.compile(flex_attention, backend="aot_eager")


@pytest.mark.parametrize("compiled", [True, False])
@torch.no_grad()
def test_flex_attention(flex, compiled, recwarn):
    """Without functions; torch compiles it by itself where nobody else does."""
    function = flex if compiled else flex_attention
    options = {"scale": 0.3, "enable_gqa": True, "return_aux": AuxRequest(lse=True)}
    want, aux = function(Q, K, K, **options)
    with wmma_ops.swapped() as calls, ran() as counts:
        got, ours = function(Q, K, K, **options)
    assert counts["attention"] > 0
    assert calls.taken == {"flex_attention": 1}
    assert not calls.left
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(ours.lse, aux.lse)


def _earlier(b, h, i, j):
    return i >= j


def _doubled(score, b, h, i, j):
    return 2 * score


def _apart(b, h, i, j):
    return (i + j) % 3 != 0


def _tripled(score, b, h, i, j):
    return 3 * score - j


@pytest.fixture(scope="module")
def registered():
    wmma_ops.register_mask_mod("apart_by_thirds", expression="(query + key) % 3 != 0", function=_apart)
    wmma_ops.register_score_mod("tripled", expression="3 * score - key", derivative="3", function=_tripled)


def _flex_options(mask=None, block=128, **options):
    if mask is not None:
        lengths = (Q.shape[2], K.shape[2])
        options["block_mask"] = create_block_mask(mask, None, None, *lengths, device="cpu", BLOCK_SIZE=block)
    return options


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"score_mod": _tripled},
        {"mask": _apart},
        {"score_mod": _tripled, "mask": _apart, "block": 32},
        {"mask": noop_mask},
    ],
    ids=["score_mod", "block_mask", "both", "block_mask of all"],
)
@torch.no_grad()
def test_flex_attention_with_functions_that_are_registered(flex, registered, compiled, options):
    function, options = flex if compiled else flex_attention, _flex_options(**options)
    want = function(Q, K, K, enable_gqa=True, **options)
    with wmma_ops.swapped() as calls, ran() as counts:
        got = function(Q, K, K, enable_gqa=True, **options)
    torch.testing.assert_close(got, want)
    assert counts["attention"] > 0
    assert calls.taken == {"flex_attention": 1}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"score_mod": _doubled}, "it has a score_mod that is not registered"),
        ({"mask": _earlier}, "its block_mask has a mask_mod that is not registered"),
        ({"mask": _apart, "block": 16}, "its block_mask has blocks of 16 queries and 16 keys"),
        ({"scale": 1e300}, "its scale is 1e+300"),
    ],
    ids=["score_mod", "block_mask", "blocks", "scale"],
)
@torch.no_grad()
def test_flex_attention_left_to_torch(flex, registered, options, reason):
    options = _flex_options(**options)
    want = flex(Q, K, K, enable_gqa=True, **options)
    with wmma_ops.swapped() as calls, ran() as counts:
        got = flex(Q, K, K, enable_gqa=True, **options)
    torch.testing.assert_close(got, want, equal_nan=True)
    assert not counts
    assert calls.left == {("flex_attention", reason): 1}


REFUSED = {
    "mixed": lambda: A @ B.double(),
    "mm of vectors": lambda: torch.mm(A, B[:, 0]),
    "bmm of two sizes": lambda: torch.bmm(Q[0], Q[0, :1].mT),
    "mask type": _sdpa(Q, Q, Q, torch.ones(6, 6).double()),
    "no tensor": lambda: torch.matmul(A, 3),
    "beyond float32": lambda: torch.addmm(C, A, B, alpha=1e300),
    "too few": lambda: torch.matmul(A),  # type: ignore[call-arg]
    "keys without a batch": lambda: nn.MultiheadAttention(8, 2)(A[:, None], A, A),
}


@pytest.mark.parametrize("function", REFUSED.values(), ids=REFUSED)
def test_torch_refuses_in_its_own_words(function):
    errors = []
    for mode in (torch.overrides.BaseTorchFunctionMode(), wmma_ops.swapped()):
        with mode, pytest.raises((AssertionError, RuntimeError, TypeError)) as caught:
            function()
        errors.append((caught.type, str(caught.value)))
    assert errors[0] == errors[1]


def test_shapes_that_do_not_fit_are_refused_by_name():
    with wmma_ops.swapped(), pytest.raises(ValueError, match=r"wmma\.matmul: b has shape \[8, 5\]"):
        B @ B


class _Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 8)

    def forward(self, x):
        return F.gelu(self.head(self.layer(x))) @ self.head.weight


def _outcome(function, model, x):
    x = x.detach().requires_grad_()
    out = function(x)
    return [out, *torch.autograd.grad(out.square().sum(), [x, *model.parameters()])]


def test_a_model_in_eval_and_in_training():
    model, x = _Net(), torch.randn(2, 5, 16)
    want = _outcome(model, model, x)
    with wmma_ops.swapped() as calls:
        got = _outcome(model, model, x)
    torch.testing.assert_close(got, want)
    assert calls.taken == {"multi_head_attention_forward": 1, "linear": 3, "matmul": 1}
    model.eval()
    with torch.no_grad(), wmma_ops.swapped() as calls, ran() as counts:
        torch.testing.assert_close(model(x), want[0])  # torch's fused layer would go around
    assert calls.taken == {"multi_head_attention_forward": 1, "linear": 3, "matmul": 1}
    assert counts == {"linear": 5, "attention": 1, "matmul": 1}


def test_multi_head_attention_of_every_kind():
    x, y = torch.randn(5, 3, 16), torch.randn(4, 3, 16)
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    for module, inputs, options in [
        (nn.MultiheadAttention(16, 4), (x, x, x), {"attn_mask": later, "is_causal": True, "need_weights": False}),
        (nn.MultiheadAttention(16, 4, batch_first=True), (x, x, x), {"attn_mask": torch.randn(3, 3)}),
        (nn.MultiheadAttention(16, 4, bias=False, vdim=8, kdim=16), (x, y, y[..., :8]), {}),
        (nn.MultiheadAttention(16, 4), (x[:, 0], x[:, 0], x[:, 0]), {"key_padding_mask": torch.arange(5) > 2}),
    ]:
        want = module(*inputs, **options)
        with wmma_ops.swapped() as calls:
            got = module(*inputs, **options)
        torch.testing.assert_close(got, want)
        assert calls.taken == {"multi_head_attention_forward": 1}
    with wmma_ops.swapped() as calls:
        nn.MultiheadAttention(16, 4, add_bias_kv=True)(x, x, x)
    assert [why for _, why in calls.left] == ["it adds keys of its own"]


@pytest.mark.parametrize("reentrant", [False, True], ids=["", "reentrant"])
def test_what_is_recomputed_is_ours_too(reentrant):
    layer, x = nn.Linear(8, 8), torch.randn(2, 8, requires_grad=True)
    inputs = [x, layer.weight]

    def loss(x):
        return checkpoint(lambda x: (layer(x) @ layer.weight).sin(), x, use_reentrant=reentrant).sum()

    def gradients(function):
        layer.zero_grad()
        x.grad = None
        function(loss(x))
        return [one.grad.clone() for one in inputs]

    ways = {
        "backward": (torch.Tensor.backward, 1),
        "with a gradient": (lambda y: y.backward(torch.tensor(1.0)), 1),
        "of several": (lambda y: torch.autograd.backward([y, 2 * y], retain_graph=True), 1),
        "unrelated": (lambda y: torch.autograd.backward(x.sum() + y * torch.ones(3).sum()), 1),
    }
    for name, (way, times) in ways.items():
        want = gradients(way)
        with wmma_ops.swapped() as calls, ran() as counts:
            got = gradients(way)
        torch.testing.assert_close(got, want)
        assert calls.taken == {"linear": 1 + times, "matmul": 1 + times}, name
        assert not calls.left
        assert counts["linear"] == 2
    if reentrant:
        return
    want = torch.autograd.grad(loss(x), inputs)
    by_name = {"x": x, "w": layer.weight}
    try:
        torch.autograd.grad(loss(x), by_name)
    except RuntimeError:  # torch 2.10 takes no names
        by_name = inputs
    with wmma_ops.swapped() as calls:
        got = torch.autograd.grad(loss(x), inputs)
        named = torch.autograd.grad(loss(x), by_name)
        (whole,) = torch.autograd.grad(x.square().sum(), x, materialize_grads=True)
        with pytest.raises(RuntimeError, match="does not require grad"):
            torch.ones(2).sum().backward()
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(whole, 2 * x)
    torch.testing.assert_close(list(named.values() if isinstance(named, dict) else named), list(want))
    assert calls.taken == {"linear": 4, "matmul": 4}


def test_compile_around_and_within():
    layer, x = nn.Linear(8, 8), torch.randn(2, 6, 8)

    def model(x):
        h = (layer(x) @ layer.weight).unflatten(-1, (2, 4)).flatten(-2)
        return F.scaled_dot_product_attention(h, h, h, is_causal=True)

    want = _outcome(model, layer, x)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with ran() as counts:
        compiled(x)
    assert not counts
    with wmma_ops.swapped() as calls:
        _outcome(compiled, layer, x)
    assert calls.taken == {"linear": 1, "matmul": 1, "scaled_dot_product_attention": 1}  # traced
    with wmma_ops.swapped() as calls, ran() as counts:
        got = _outcome(compiled, layer, x)
    torch.testing.assert_close(got, want)
    assert not calls.taken  # the same graph again
    assert counts["attention"] == counts["linear"] == counts["matmul"] == 1
    with ran() as counts:
        compiled(x)
    assert not counts

    def within(x):
        with wmma_ops.swapped():
            return model(x)

    compiled = torch.compile(within, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(_outcome(compiled, layer, x), want)
    with ran() as counts:
        _outcome(compiled, layer, x)
    assert counts["attention"] == 1


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "as it runs"])
def test_export(strict):
    model, x = nn.Sequential(nn.Linear(8, 4), nn.ReLU()), torch.randn(3, 8)
    with wmma_ops.swapped() as calls:
        program = torch.export.export(model, (x,), strict=strict)
    assert "wmma.linear.default" in {str(node.target) for node in program.graph.nodes}
    assert not calls.left
    torch.testing.assert_close(program.module()(x), model(x))


def test_autocast_and_nesting():
    with wmma_ops.swapped() as outer, torch.autocast("cpu", torch.bfloat16):
        with wmma_ops.swapped() as inner:
            got = F.linear(A, B.mT.bfloat16(), C[0])
            mixed = F.scaled_dot_product_attention(Q, Q.bfloat16(), Q, torch.zeros(6, 6))
        A @ B
    assert got.dtype == mixed.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), A @ B + C[0], rtol=3e-2, atol=6e-2)
    assert inner.taken == {"linear": 1, "scaled_dot_product_attention": 1}
    assert outer.taken == {"matmul": 1}


def test_what_was_left_unfused_is_said():
    layer, other = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 8, False).requires_grad_(False)
    x = torch.randn(3, 8)

    def adapted(x):  # as peft's layers
        return layer(x) + other(other(x)) * 2.0

    with torch.no_grad(), wmma_ops.swapped() as calls:
        F.silu(layer(x)) * layer(x)
        nn.GELU("tanh")(x @ layer.weight).relu()
        adapted(x)
        layer(x).relu().add(1).exp()
        layer(x).sin().relu()
        F.gelu(x)
    assert calls.unfused == {
        ("linear", "silu"): 1,
        ("linear", "mul"): 1,
        ("matmul", "gelu"): 1,
        ("linear", "add"): 1,
        ("linear", "relu"): 1,
    }
    assert str(calls).endswith(
        "could be fused, was not: one call is seen at a time (swap_ and torch.compile see what follows)\n"
        "  linear, silu  1\n  linear, mul  1\n  matmul, gelu  1\n  linear, add  1\n  linear, relu  1"
    )
    layer.requires_grad_()
    with wmma_ops.swapped() as calls:  # where the backward pass needs the activation's argument it is apart everywhere
        F.gelu(layer(x))
        F.relu(layer(x))
    assert calls.unfused == {("linear", "relu"): 1}
    model = nn.Sequential(layer, nn.GELU()).requires_grad_(False)
    wmma_ops.swap_(model)
    with torch.no_grad(), wmma_ops.swapped() as calls:
        model(x)
    assert not calls.unfused
    assert "could be" not in str(calls)


def test_transforms():
    batch = torch.randn(3, 6, 8)
    with wmma_ops.swapped() as calls:
        got = torch.func.vmap(lambda a: torch.func.grad(lambda a: (a @ B).sin().sum())(a))(batch)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(A, torch.ones_like(A))
            tangent = forward_ad.unpack_dual(dual @ B).tangent
        jacobian = torch.func.jacrev(lambda a: (a @ B).sum(0))(A)
    torch.testing.assert_close(jacobian, B.T[:, None].expand(5, 6, 8))
    torch.testing.assert_close(got, torch.cos(batch @ B) @ B.mT)
    torch.testing.assert_close(tangent, torch.ones_like(A) @ B)
    assert calls.left == {("matmul", "forward-mode derivatives are on"): 1}


TRANSFORMS = {
    "vjp": lambda f, x: torch.func.vjp(f, x)[1](torch.ones_like(f(x))),
    "vjp under vmap": lambda f, x: torch.vmap(torch.func.vjp(f, x)[1])(torch.eye(x.numel()).view(-1, *f(x).shape)),
    "vjp of vjp": lambda f, x: torch.func.vjp(lambda x: torch.func.vjp(f, x)[1](x)[0].sin(), x)[1](x),
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
    "jacrev by rows": lambda f, x: torch.func.jacrev(f, chunk_size=1)(x),
    "twice by rows": lambda f, x: torch.func.jacrev(torch.func.jacrev(f, chunk_size=1), chunk_size=1)(x),
    "hessian": lambda f, x: torch.func.hessian(lambda x: f(x).sin().sum())(x),
    "vmap": lambda f, x: torch.vmap(f)(torch.stack([x, 2 * x])),
    "vmap of grad": lambda f, x: torch.vmap(torch.func.grad(lambda x: f(x).sin().sum()))(torch.stack([x, 2 * x])),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transforms_of_models(transform):
    """What vjp gives back is called when the transform is over, with tensors that are still its own."""
    x, mlp = torch.randn(2, 3, 4), nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4))
    functions = {
        "relu": torch.relu,
        "mlp": mlp,
        "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    }
    forward_mode = transform is TRANSFORMS["hessian"]  # left to torch
    for name, function in functions.items():
        with torch.nn.attention.sdpa_kernel(
            torch.nn.attention.SDPBackend.MATH
        ):  # the only one that differentiates twice
            want = transform(function, x)
            with wmma_ops.swapped() as calls:
                got = transform(function, x)
        torch.testing.assert_close(got, want)
        assert bool(calls.taken) == (name != "relu" and not forward_mode)
