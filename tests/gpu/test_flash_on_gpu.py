"""torch's flash attention as ours on a GPU: SDPA, packed and jagged sequences, beside torch's own kernels."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from op_counts import ran
from torch import nn

import wmma_ops
from wmma_ops.integrations import flash
from wmma_ops.ops.dropout import new_seed

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.skipif(not hasattr(nn.attention, "restore_flash_attention_impl"), reason="in torch 2.11 and later"),
]
ENDS = (0, 300, 301, 301, 900, 1024)


@pytest.fixture
def active():
    flash.taken.clear()
    flash.left.clear()
    nn.attention.activate_flash_attention_impl("wmma")
    yield
    if nn.attention.current_flash_attention_impl() is not None:
        nn.attention.restore_flash_attention_impl()


@pytest.fixture(autouse=True)
def _by_the_flash_backend():
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.FLASH_ATTENTION):
        yield


def _random(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_()


def _with_gradients(call, inputs):
    out = call(*inputs)
    seed = torch.randn(out.shape, generator=torch.Generator("cuda").manual_seed(1), device="cuda")
    return [out, *torch.autograd.grad(out, inputs, seed.to(out.dtype))]


def _no_worse(ours, torchs, exact):
    """At most twice as far from float64 as torch's own, by the largest error of each."""
    for mine, theirs, want in zip(ours, torchs, exact, strict=True):
        assert mine.shape == theirs.shape
        off, peers = ((x.double() - want).abs().max() for x in (mine, theirs))
        assert off <= 2 * peers + torch.finfo(mine.dtype).eps * want.abs().max(), (off, peers)


def _exact(call, inputs):
    """By torch's plain kernels, in float64."""
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        return _with_gradients(call, [x.detach().double().requires_grad_() for x in inputs])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [64, 128, 72])
def test_sdpa(request, size, causal, dtype):
    inputs = [_random(2, 8, 333, size, dtype=dtype) for _ in range(3)]

    def call(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    torchs = _with_gradients(call, inputs)
    request.getfixturevalue("active")
    with ran() as counts:
        ours = _with_gradients(call, inputs)
    assert counts["attention"] == 1
    assert flash.taken["_scaled_dot_product_flash_attention_backward"] == 1
    _no_worse(ours, torchs, _exact(call, inputs))


def test_sdpa_of_grouped_heads_as_models_have_them(request):
    inputs = [_random(2, 500, heads, 128) for heads in (8, 2, 2)]

    def call(*rows):
        return F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in rows), is_causal=True, enable_gqa=True)

    torchs = _with_gradients(call, inputs)
    request.getfixturevalue("active")
    ours = _with_gradients(call, inputs)
    assert not flash.left
    assert ours[0].stride() == torchs[0].stride()
    _no_worse(ours, torchs, _exact(call, inputs))


@pytest.mark.parametrize("window", [(2000, 2000), (-1, 0), (100, 0)], ids=str)  # torch 2.14 takes cuDNN for (-1, -1)
def test_varlen_attn(request, window):
    from torch.nn.attention.varlen import varlen_attn

    inputs = [_random(ENDS[-1], 8, 128) for _ in range(3)]
    ends = torch.tensor(ENDS, device="cuda", dtype=torch.int32)

    def call(*tensors):
        return varlen_attn(*tensors, ends, ends, 599, 599, window_size=window)

    def alone(q, k, v):
        """Sequence by sequence."""
        outs = []
        for start, end in itertools.pairwise(ENDS):
            steps = torch.arange(end - start, device="cuda")[:, None] - torch.arange(end - start, device="cuda")
            seen = (steps >= (0 if window[1] == 0 else -9999)) & (steps <= (window[0] if window[0] >= 0 else 9999))
            mine = (x[start:end].transpose(0, 1) for x in (q, k, v))
            outs.append(F.scaled_dot_product_attention(*mine, attn_mask=seen).transpose(0, 1))
        return torch.cat(outs)

    torchs = _with_gradients(call, inputs)
    request.getfixturevalue("active")
    with ran() as counts:
        ours = _with_gradients(call, inputs)
    assert counts["varlen_attention"] == 1
    assert flash.taken["_flash_attention_backward"] == 1
    _no_worse(ours, torchs, _exact(alone, inputs))


@torch.no_grad()
def test_keys_in_pages(active):
    from torch.nn.attention.varlen import varlen_attn

    if "block_table" not in varlen_attn.__kwdefaults__:
        pytest.skip("not in this torch")
    used = torch.tensor([300, 17, 64, 1], device="cuda", dtype=torch.int32)
    ends = torch.arange(5, device="cuda", dtype=torch.int32)
    q, pages = _random(4, 8, 128), [_random(24, 64, 2, 128) for _ in range(2)]
    table = torch.randperm(24, device="cuda")[:20].view(4, 5).int()
    options = {"seqused_k": used, "block_table": table, "enable_gqa": True}
    out = varlen_attn(q, *pages, ends, None, 1, 300, **options)
    assert flash.taken == {"_flash_attention_forward": 1}
    for i, length in enumerate(used.tolist()):
        k, v = (x[table[i]].flatten(0, 1)[:length].transpose(0, 1).double() for x in pages)
        with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
            want = F.scaled_dot_product_attention(q[i].unsqueeze(1).double(), k, v, enable_gqa=True)
        torch.testing.assert_close(out[i].double(), want.squeeze(1), rtol=0.02, atol=0.02)


def test_jagged_sequences(request):
    inputs = [_random(ENDS[-1], 4, 64) for _ in range(3)]
    ends = torch.tensor([0, 300, 301, 900, 1024], device="cuda")

    def call(*tensors):
        jagged = [torch.nested.nested_tensor_from_jagged(x, ends).transpose(1, 2) for x in tensors]
        return F.scaled_dot_product_attention(*jagged, is_causal=True).transpose(1, 2).values()

    torchs = _with_gradients(call, inputs)
    request.getfixturevalue("active")
    ours = _with_gradients(call, inputs)
    assert flash.taken == {"_flash_attention_forward": 1, "_flash_attention_backward": 1}
    for mine, theirs in zip(ours, torchs, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0.05, atol=0.05)


def test_dropout(active):
    """By a seed that torch's generator draws, forward and backward."""
    q, k, v = (_random(2, 4, 256, 64) for _ in range(3))

    def call(*tensors):
        torch.manual_seed(0)
        return F.scaled_dot_product_attention(*tensors, dropout_p=0.4)

    def formula(q, k, v):
        torch.manual_seed(0)
        kept = wmma_ops.dropout_mask(new_seed(q.device), 0.4, (2, 4, 256, 256))
        weights = (q.float() @ k.float().mT / 8).softmax(-1)
        return (torch.where(kept, weights / 0.6, 0.0) @ v.float()).to(q.dtype)

    with ran() as counts:
        ours = _with_gradients(call, (q, k, v))
    assert counts["attention"] > 0
    assert not flash.left
    for mine, wanted in zip(ours, _with_gradients(formula, (q, k, v)), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=0.05, atol=0.05)
    assert torch.equal(ours[0], _with_gradients(call, (q, k, v))[0])


def test_torchs_own_comes_back(active):
    q = _random(1, 2, 64, 64).detach()
    nn.attention.restore_flash_attention_impl()
    with ran() as counts:
        F.scaled_dot_product_attention(q, q, q)
    assert not counts
    nn.attention.activate_flash_attention_impl("wmma")
    with ran() as counts:
        F.scaled_dot_product_attention(q, q, q)
    assert counts == {"attention": 1}


def test_compiled(active):
    from torch.nn.attention.varlen import varlen_attn

    inputs = [_random(1024, 8, 64) for _ in range(3)]
    ends = torch.tensor(ENDS, device="cuda", dtype=torch.int32)

    def call(q, k, v):
        packed = varlen_attn(q.sin(), k, v, ends, ends, 599, 599, window_size=(-1, 0))
        rows = [x.unflatten(0, (2, 512)).transpose(1, 2) for x in (packed, k, v)]
        return F.scaled_dot_product_attention(*rows, is_causal=True).transpose(1, 2).flatten(0, 1).cos()

    want = _with_gradients(call, inputs)
    flash.taken.clear()
    got = _with_gradients(torch.compile(call, fullgraph=True), inputs)
    assert len(flash.taken) == 4
    assert not flash.left
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)


def test_a_captured_graph_replays_on_new_values(active):
    from torch.nn.attention.varlen import varlen_attn

    inputs = [_random(1024, 8, 64).detach() for _ in range(3)]
    ends = torch.tensor(ENDS, device="cuda", dtype=torch.int32)
    varlen_attn(*inputs, ends, ends, 599, 599)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = varlen_attn(*inputs, ends, ends, 599, 599)
    ends[1] -= 40
    for x in inputs:
        x.normal_()
    graph.replay()
    torch.testing.assert_close(out, varlen_attn(*inputs, ends, ends, 599, 599))
