"""torch's flash attention as ours: what its dispatcher calls, here on the CPU, for which torch has no such kernels."""

import pytest
import torch
import torch.nn.functional as F
from op_counts import ran
from torch import nn
from torch._subclasses import FakeTensorMode

import wmma_ops
from wmma_ops import torch_internals
from wmma_ops.integrations import flash
from wmma_ops.ops.dropout import new_seed
from wmma_ops.testing import reference

ON_THE_CPU = "wmma, on the CPU"
IS_KNOWN = hasattr(nn.attention, "restore_flash_attention_impl")  # torch 2.10 has the way there, and none back
known = pytest.mark.skipif(not IS_KNOWN, reason="in torch 2.11 and later")
aten = torch.ops.aten


def _in_use(device="CPU"):
    return torch._C._dispatch_has_kernel_for_dispatch_key("aten::_flash_attention_forward", device)


@pytest.fixture
def active():
    if not IS_KNOWN:
        pytest.skip("in torch 2.11 and later")
    nn.attention.register_flash_attention_impl(ON_THE_CPU, register_fn=lambda: flash.take_over("CPU"))
    nn.attention.activate_flash_attention_impl(ON_THE_CPU)
    flash.taken.clear()
    flash.left.clear()
    yield
    nn.attention.restore_flash_attention_impl()
    assert not _in_use()


def _packed(*, queries=(3, 0, 6, 1), keys=(5, 2, 6, 4), heads=(4, 2), size=8, dtype=torch.float32):
    """Query, key, value and the arguments that say where sequences are."""
    shapes = ((sum(queries), heads[0]), (sum(keys), heads[1]), (sum(keys), heads[1]))
    tensors = [torch.randn(*shape, size).to(dtype).requires_grad_() for shape in shapes]
    ends = [F.pad(torch.tensor(lengths).cumsum(0), (1, 0)).int() for lengths in (queries, keys)]
    return tensors, (*ends, max(queries), max(keys))


def _expected(tensors, where, *, causal=False, window=(-1, -1), scale=None, used=None, drop=None):
    """Sequence by sequence, in float64. `drop`: the seed and the share."""
    (cu_q, cu_k, _, _), outs = where, []
    for i in range(len(cu_q) - 1):
        q, k, v = (
            x.double()[cu[i] : cu[i + 1]].transpose(0, 1) for x, cu in zip(tensors, (cu_q, cu_k, cu_k), strict=True)
        )
        if used is not None:
            k, v = k[:, : used[i]], v[:, : used[i]]
        stands = torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1]
        steps = stands - torch.arange(k.shape[1])
        seen = torch.ones_like(steps, dtype=torch.bool)
        seen &= steps >= 0 if causal else seen
        seen &= steps <= window[0] if window[0] >= 0 else seen
        seen &= -steps <= window[1] if window[1] >= 0 else seen
        groups = q.shape[0] // k.shape[0]
        scores = q @ k.repeat_interleave(groups, 0).mT * (q.shape[-1] ** -0.5 if scale is None else scale)
        weights = torch.softmax(scores.masked_fill(~seen, -torch.inf), -1)
        weights = weights.masked_fill(~seen.any(-1, keepdim=True), 0)
        if drop is not None:
            kept, factor = reference.dropped_by(drop[0], drop[1], weights.shape, first_batch=i)
            weights = torch.where(kept, weights * factor, 0.0)
        outs.append((weights @ v.repeat_interleave(groups, 0)).transpose(0, 1))
    return torch.cat(outs)


def _close(out, want, tensors, tolerance=1e-5):
    """Results and gradients, of which `want` has none that are not numbers."""
    torch.testing.assert_close(out.double(), want, rtol=tolerance, atol=tolerance)
    weights = torch.randn_like(want)
    grads = [torch.autograd.grad((x * weights).sum(), tensors) for x in (out, want)]
    torch.testing.assert_close(*grads, rtol=10 * tolerance, atol=10 * tolerance)


@known
def test_the_name_is_known_and_nothing_is_active_before_it_is_asked_for():
    assert flash.NAME in nn.attention.list_flash_attention_impls()
    assert nn.attention.current_flash_attention_impl() is None
    had = _in_use("CUDA")
    torchs = torch.library.get_kernel("aten::_flash_attention_forward", "CUDA") if had else None
    flash.activate()
    assert nn.attention.current_flash_attention_impl() == "wmma"
    assert _in_use("CUDA")
    ours = torch.library.get_kernel("aten::_flash_attention_forward", "CUDA")
    assert "flash.py" in str(ours)
    nn.attention.restore_flash_attention_impl()
    assert _in_use("CUDA") == had
    if had:
        assert str(torch.library.get_kernel("aten::_flash_attention_forward", "CUDA")) == str(torchs)


def test_an_older_torch_is_told_so(monkeypatch):
    monkeypatch.delattr(nn.attention, "activate_flash_attention_impl", raising=False)
    monkeypatch.delattr(nn.attention, "register_flash_attention_impl", raising=False)
    flash.register()
    with pytest.raises(RuntimeError, match=r"has no .*in torch 2\.11 and later: within wmma_ops\.swapped\(\)"):
        flash.activate()


def test_a_torch_without_its_operators_is_told_so(monkeypatch):
    monkeypatch.setattr(torch_internals, "flash_operators", tuple)
    with pytest.raises(RuntimeError, match="has not the operators of flash attention"):
        flash.take_over("CPU")


@known
@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (2, 0), (1, 3)], ids=str)
def test_varlen_attn(active, window):
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    heads = (4, 2) if "enable_gqa" in varlen_attn.__kwdefaults__ else (4, 4)  # torch 2.11 has no groups
    tensors, where = _packed(heads=heads)
    options = {"enable_gqa": True} if heads[0] != heads[1] else {}
    with ran() as counts:
        out, lse = varlen_attn(*tensors, *where, window_size=window, scale=0.4, return_aux=AuxRequest(True), **options)
    assert counts == {"varlen_attention": 1}
    want = _expected(tensors, where, window=window, scale=0.4)
    _close(out, want, tensors)
    _, ours = wmma_ops.varlen_attention(*tensors, *where, window_size=window, scale=0.4, enable_gqa=True)
    assert torch.equal(lse, ours)
    assert flash.taken == {"_flash_attention_forward": 1, "_flash_attention_backward": 1}
    assert not flash.left


@known
@pytest.mark.skipif(not hasattr(aten, "_flash_attention_forward_no_dropout_inplace"), reason="not in this torch")
def test_varlen_attn_out(active):
    from torch.nn.attention.varlen import varlen_attn_out

    tensors, where = _packed()
    tensors = [x.detach() for x in tensors]
    out = torch.full_like(tensors[0], torch.nan)
    assert varlen_attn_out(out, *tensors, *where, enable_gqa=True) is out
    torch.testing.assert_close(out.double(), _expected(tensors, where), rtol=1e-5, atol=1e-5)


@known
def test_a_part_of_the_keys(active):
    tensors, where = _packed()
    tensors, used = [x.detach() for x in tensors], torch.tensor([2, 0, 6, 3], dtype=torch.int32)
    out, *_ = aten._flash_attention_forward(*tensors, *where, 0.0, True, False, seqused_k=used)
    torch.testing.assert_close(
        out.double(), _expected(tensors, where, causal=True, used=used.tolist()), rtol=1e-5, atol=1e-5
    )


@known
@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (9, 0)], ids=str)
@pytest.mark.parametrize("size", [16, 32])
def test_keys_in_pages(active, size, window):
    from torch.nn.attention.varlen import varlen_attn

    if "block_table" not in varlen_attn.__kwdefaults__:
        pytest.skip("not in this torch")
    used = (40, 3, 16, 33)
    tensors, where = _packed(keys=used)
    q, k, v = (x.detach() for x in tensors)
    most = -(-max(used) // size)  # pages of a sequence, of which there are some more than are in use
    table = torch.randperm(5 * most)[: 4 * most].view(4, -1).int()
    pages = [torch.full((5 * most, size, 2, 8), torch.nan) for _ in range(2)]
    for i, length in enumerate(used):
        for x, held in zip((k, v), pages, strict=True):
            for j in range(length):
                held[table[i, j // size], j % size] = x[where[1][i] + j]
    options = {"seqused_k": torch.tensor(used).int(), "block_table": table, "enable_gqa": True, "window_size": window}
    with torch.no_grad():
        out = varlen_attn(q, *pages, where[0], None, where[2], max(used), **options)
    torch.testing.assert_close(out.double(), _expected((q, k, v), where, window=window), rtol=1e-5, atol=1e-5)
    assert flash.taken == {"_flash_attention_forward": 1}


@known
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [(7, 7), (3, 9), (9, 3)], ids=str)
def test_dense(active, lengths, causal):
    """The last query stands at the last key; ``[batch, length, heads, size]``."""
    queries, keys = lengths
    tensors = [torch.randn(2, n, h, 8, requires_grad=True) for n, h in ((queries, 4), (keys, 2), (keys, 2))]
    with ran() as counts:
        out, lse, *_ = aten._flash_attention_forward(*tensors, None, None, *lengths, 0.0, causal, False, scale=0.3)
    assert counts == {"attention": 1}
    assert lse.shape == (2, 4, lengths[0])
    one = (torch.tensor([0, lengths[0]]), torch.tensor([0, lengths[1]]), *lengths)
    want = torch.stack([_expected([x[i] for x in tensors], one, causal=causal, scale=0.3) for i in range(2)])
    _close(out, want, tensors)


@known
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_what_sdpa_calls(active, causal, dtype):
    q, k, v = (torch.randn(2, h, 7, 16).to(dtype).requires_grad_() for h in (4, 2, 2))
    with ran() as counts:
        out, lse, _, _, *lengths, _, _, _ = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, scale=0.3)
    assert counts == {"attention": 1}
    assert lengths == [7, 7]
    double = [x.double() for x in (q, k, v)]
    want = F.scaled_dot_product_attention(*double, is_causal=causal, scale=0.3, enable_gqa=True)
    _close(out, want, (q, k, v), tolerance=1e-5 if dtype == torch.float32 else 2e-2)
    torch.testing.assert_close(lse, wmma_ops.attention(q, k, v, is_causal=causal, scale=0.3, enable_gqa=True)[1])
    assert set(flash.taken) == {
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_backward",
    }


def _sdpa(*tensors):
    return aten._scaled_dot_product_flash_attention(*tensors, 0.0, True)


def _flash(*tensors):
    return aten._flash_attention_forward(*tensors, None, None, 7, 7, 0.0, True, False)


def _swapped(x):
    return x.transpose(1, 2)


ENDS = torch.tensor([0, 4, 10], dtype=torch.int32)
# By name: the inputs' shapes, and what is called.
LAYOUTS = {
    "heads first": ([(2, 4, 7, 8)] * 3, _sdpa),
    "heads second in memory": ([(2, 7, 4, 8)] * 3, lambda *rows: _sdpa(*map(_swapped, rows))),
    "parts of one": ([(2, 7, 3, 4, 8)], lambda fused: _sdpa(*map(_swapped, fused.unbind(2)))),
    "dense": ([(2, 7, 4, 8)] * 3, _flash),
    "dense, of heads": ([(2, 4, 7, 8)] * 3, lambda *heads: _flash(*map(_swapped, heads))),
    "packed": (
        [(10, 4, 8)] * 3,
        lambda *rows: aten._flash_attention_forward(*rows, ENDS, ENDS, 6, 6, 0.0, True, False),
    ),
}


@known
@pytest.mark.parametrize("name", LAYOUTS)
def test_results_lie_as_the_compiler_is_told(active, name):
    """Of all results and gradients the shape, the type and the strides, as torch's own fakes have them."""
    shapes, call = LAYOUTS[name]
    fakes = FakeTensorMode(allow_non_fake_inputs=True)
    found = []
    for mode in (torch.enable_grad(), fakes):
        with mode:
            inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
            results = call(*inputs)
            grads = torch.autograd.grad(results[0].square().sum(), inputs)
        found.append([(x.shape, x.dtype, x.stride()) if isinstance(x, torch.Tensor) else x for x in (*results, *grads)])
    assert found[0] == found[1]


@known
def test_compiled(active):
    from torch.nn.attention.varlen import varlen_attn

    tensors, where = _packed(heads=(4, 4))

    def function(q, k, v):
        return varlen_attn(q * 2, k, v, *where, window_size=(-1, 0)).sin()

    want = function(*tensors)
    with ran() as counts:
        got = torch.compile(function, backend="aot_eager", fullgraph=True)(*tensors)
        grads = torch.autograd.grad(got.sum(), tensors)
    assert counts["varlen_attention"] == 1
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(grads, torch.autograd.grad(want.sum(), tensors))


def _dropped(function, *args):
    """What it gives, and the seed that it drew."""
    torch.manual_seed(11)
    got = function(*args)
    torch.manual_seed(11)
    return got, int(new_seed(torch.device("cpu")))


@known
@pytest.mark.parametrize("causal", [False, True])
def test_dropout_of_packed_sequences(active, causal):
    """Backward is given the numbers that forward left."""
    tensors, where = _packed()
    given = [x.detach() for x in tensors]
    call = aten._flash_attention_forward
    (out, lse, state, offset, _), seed = _dropped(call, *given, *where, 0.4, causal, False)
    want = _expected(tensors, where, causal=causal, drop=(seed, 0.4))
    torch.testing.assert_close(out.double(), want, rtol=1e-5, atol=1e-5)
    g = torch.randn_like(out)
    got = aten._flash_attention_backward(g, *given, out, lse, *where, 0.4, causal, state, offset)
    torch.testing.assert_close(got, torch.autograd.grad(want, tensors, g.double()), rtol=1e-4, atol=1e-4)
    assert not flash.left


@known
def test_dropout_of_scaled_dot_product_attention(active):
    given = [torch.randn(2, 4, 9, 8) for _ in range(3)]
    call = aten._scaled_dot_product_flash_attention
    (out, lse, _, _, sq, skv, state, offset, _), seed = _dropped(call, *given, 0.3, True)
    tensors = [x.double().requires_grad_() for x in given]
    kept, factor = reference.dropped_by(seed, 0.3, (2, 4, 9, 9))
    seen = torch.ones(9, 9, dtype=torch.bool).tril()
    weights = (tensors[0] @ tensors[1].mT / 8**0.5).masked_fill(~seen, -torch.inf).softmax(-1)
    want = torch.where(kept, weights * factor, 0.0) @ tensors[2]
    torch.testing.assert_close(out.double(), want, rtol=1e-5, atol=1e-5)
    g = torch.randn_like(out)
    back = aten._scaled_dot_product_flash_attention_backward
    got = back(g, *given, out, lse, None, None, sq, skv, 0.3, True, state, offset)
    grads = [x.float() for x in torch.autograd.grad(want, tensors, g.double())]
    torch.testing.assert_close(list(got), grads, rtol=1e-4, atol=1e-4)


@known
def test_what_does_not_go_with_dropout(active):
    """To torch's forward ours would be the backward."""
    tensors, where = _packed()
    with pytest.raises(RuntimeError, match="asks for the mask of its dropout, beside dropout; takes one of the two"):
        aten._flash_attention_forward(*tensors, *where, 0.4, False, True)
    with pytest.raises(RuntimeError, match=r"it has slopes, .* beside dropout"):
        aten._flash_attention_forward(*tensors, *where, 0.4, False, False, alibi_slopes=torch.ones(4))


LEFT = {
    "everything dropped": ({"dropout_p": 1.0}, "its dropout is 1.0"),
    "debugging": ({"return_debug_mask": True}, "it asks for the mask of its dropout"),
    "slopes": ({"alibi_slopes": torch.ones(4)}, "it has slopes"),
    "pages": ({"block_table": torch.zeros(4, 1, dtype=torch.int32)}, "its keys are in pages that ours does not take"),
    "splits": ({"num_splits": 1}, "how keys are to be split"),
    "float64": ({"dtype": torch.float64}, "its tensors are float64"),
    "wide": ({"size": 520}, "its head size"),
}


@known
@pytest.mark.parametrize("name", LEFT)
def test_left_to_torch(name):
    """Its own kernel, which stood there before, gets all that came, and nothing where ours takes a call."""
    options, reason = LEFT[name]
    options = dict(options)
    schema = aten._flash_attention_forward.default._schema
    if options.keys() - {argument.name for argument in schema.arguments} - {"dtype", "size"}:
        pytest.skip("not in this torch")
    torchs, got = torch.library.Library("aten", "IMPL", "CPU"), []

    def kernel(query, *args, **kwargs):
        got.append((query, args, kwargs))
        return torch.full_like(query, 7), *(torch.zeros(1) for _ in range(4))

    tensors, where = _packed(heads=(4, 4), dtype=options.pop("dtype", torch.float32), size=options.pop("size", 8))
    tensors = [x.detach() for x in tensors]
    dropout, debugging = options.pop("dropout_p", 0.0), options.pop("return_debug_mask", False)
    torchs.impl("_flash_attention_forward", kernel, "CPU")
    taken = flash.take_over("CPU")
    flash.left.clear()
    try:
        out, *_ = aten._flash_attention_forward(*tensors, *where, dropout, True, debugging, scale=0.3, **options)
        assert bool((out == 7).all())
        ((query, args, kwargs),) = got
        assert query is tensors[0]
        assert args[-3:] == (dropout, True, debugging)
        assert kwargs.keys() == {"scale", *options}
        assert [(operator, reason in why) for operator, why in flash.left] == [("_flash_attention_forward", True)]
        if name == "everything dropped":
            short, where = _packed()
            aten._flash_attention_forward(*short, *where, 0.0, True, False)
            assert len(got) == 1
    finally:
        taken.remove()
        torchs._destroy()


@known
def test_words_of_a_later_torch_are_left_to_it(monkeypatch):
    """Here one that is known, of a kernel that does not know it."""

    def _older(
        query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, *, scale=None
    ):
        return flash_forward(*[query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, False])

    flash_forward = flash._forward
    monkeypatch.setattr(flash, "_forward", _older)
    taken = flash.take_over("CPU")
    tensors, where = _packed()
    try:
        aten._flash_attention_forward(*tensors, *where, 0.0, True, False)
        with pytest.raises(
            RuntimeError, match="_flash_attention_forward: it has window_size_left, which is left to torch"
        ):
            aten._flash_attention_forward(*tensors, *where, 0.0, True, False, window_size_left=2)
    finally:
        taken.remove()


@known
def test_backward_leaves_what_forward_left(active):
    tensors, where = _packed(heads=(4, 4))
    q, k, v = (x.detach() for x in tensors)
    with pytest.raises(RuntimeError, match=r"_flash_attention_backward: its dropout is 1\.0, which is left to torch"):
        aten._flash_attention_backward(q, q, k, v, q, q[:, :, 0].mT, *where, 1.0, True, q, q)
    q = q.view(2, 4, 5, 8)
    with pytest.raises(RuntimeError, match="_scaled_dot_product_flash_attention_backward: its dropout is"):
        aten._scaled_dot_product_flash_attention_backward(q, q, q, q, q, q[..., 0], None, None, 5, 5, 1.0, True, q, q)
    assert not flash.taken


@known
def test_is_refused_by_name_what_neither_takes(active):
    tensors, where = _packed(heads=(4, 3))
    with pytest.raises(ValueError, match="divides that of query"):
        aten._flash_attention_forward(*tensors, *where, 0.0, True, False)


# Wrong on purpose: each has to be noticed by the checks above.

WRONG = {
    "backward drops by another seed": (
        "_seed_of",
        lambda state, dropout: torch.ones(1, dtype=torch.int64),
        lambda: test_dropout_of_packed_sequences(None, False),
    ),
    "windows are not passed on": ("_side", lambda size: -1, lambda: test_varlen_attn(None, (2, 0))),
    "the first query stands at the first key": (
        "_causal",
        lambda q, k, is_causal: is_causal,
        lambda: test_dense(None, (3, 9), True),
    ),
    "results lie as ours do": (
        "_laid_out",
        lambda x, like: x,
        lambda: test_results_lie_as_the_compiler_is_told(None, "heads second in memory"),
    ),
}


@known
@pytest.mark.parametrize("name", WRONG)
def test_is_caught(active, monkeypatch, name):
    attribute, wrong, check = WRONG[name]
    monkeypatch.setattr(flash, attribute, wrong)
    with pytest.raises(AssertionError):
        check()
