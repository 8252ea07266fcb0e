"""Where attention's results lie: a row's heads together where they do in what they are of, as the fakes say."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import wmma_ops

HEADS, ROWS, SIZE = 4, 33, 16


def _contiguous(*outer):
    return torch.randn(*outer, HEADS, ROWS, SIZE)


def _by_rows(*outer):
    return torch.randn(*outer, ROWS, HEADS, SIZE).transpose(-3, -2)


def _of_three(*outer):
    return torch.randn(*outer, ROWS, 3, HEADS, SIZE).select(-3, 1).transpose(-3, -2)


def _repeated(*outer):
    return torch.randn(*outer, 1, ROWS, SIZE).expand(*outer, HEADS, ROWS, SIZE)


def _rows_only(*outer):
    return torch.randn(ROWS, SIZE)


def _strides(by_rows, shape):
    *outer, heads, rows, size = shape
    laid = torch.empty(*outer, rows, heads, size).transpose(-3, -2) if by_rows else torch.empty(shape)
    return laid.stride()


LAYOUTS = [(_contiguous, False), (_by_rows, True), (_of_three, True), (_repeated, False)]


@pytest.mark.parametrize("outer", [(2,), (2, 3), ()], ids=str)
@pytest.mark.parametrize(("make", "by_rows"), LAYOUTS)
@pytest.mark.parametrize("target", [None, "gfx942", "gfx1201"])
def test_results_lie_as_queries_do(target, make, by_rows, outer):
    torch.manual_seed(0)
    q, k, v = make(*outer).bfloat16(), _contiguous(*outer).bfloat16(), _contiguous(*outer).bfloat16()[..., :8]
    if make is _repeated:
        q = q[..., :1, :, :].expand_as(q)  # a cast makes memory of its own

    def call():
        return wmma_ops.attention(q, k, v)[0]

    if target is None:
        out = call()
    else:
        with wmma_ops.emulate(target):
            out = call()
    assert out.stride() == _strides(by_rows, out.shape)
    torch.testing.assert_close(
        out.float(),
        torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float()),
        atol=2e-2,
        rtol=0.0,
    )
    assert not by_rows or out.transpose(-3, -2).is_contiguous()
    out.mul_(2)  # no view, which autograd would not let be changed


@pytest.mark.parametrize("target", ["gfx950", "gfx1100"])
@pytest.mark.parametrize(("make", "by_rows"), LAYOUTS)
def test_gradients_lie_as_what_they_are_of(target, make, by_rows):
    torch.manual_seed(0)
    q, g = _contiguous(2).bfloat16(), _contiguous(2).bfloat16()
    k, v = (
        make(2).bfloat16().transpose(-3, -2).contiguous().transpose(-3, -2) if by_rows else make(2).bfloat16()
        for _ in "kv"
    )
    with wmma_ops.emulate(target):
        lse = wmma_ops.attention(q, k, v)[1]
        out = wmma_ops.attention(q, k, v)[0]
        found = torch.ops.wmma._attention_backward(g, q, k, v, out, lse)
    assert [x.stride() for x in found] == [_strides(laid, q.shape) for laid in (False, by_rows, by_rows)]
    leaves = [x.float().requires_grad_() for x in (q, k, v)]
    want = torch.autograd.grad(torch.nn.functional.scaled_dot_product_attention(*leaves), leaves, g.float())
    for one, other in zip(found, want, strict=True):
        torch.testing.assert_close(one.float(), other, atol=6e-2, rtol=2e-2)


@pytest.mark.parametrize("make", [make for make, _ in LAYOUTS] + [_rows_only])
def test_fakes_say_so(make):
    q, k, v = (make(2).bfloat16() for _ in "qkv")
    torch.library.opcheck(torch.ops.wmma.attention.default, (q, k, v), test_utils=("test_schema", "test_faketensor"))
    with torch._subclasses.FakeTensorMode() as mode:
        fakes = [mode.from_tensor(x) for x in (q, k, v)]
        said = torch.ops.wmma._attention_backward(
            fakes[0], *fakes, fakes[0], fakes[0].new_empty(q.shape[:-1], dtype=torch.float32)
        )
    with wmma_ops.emulate("gfx942"):
        out, lse = wmma_ops.attention(q, k, v)
        found = torch.ops.wmma._attention_backward(out, q, k, v, out, lse)
    assert [x.stride() for x in said] == [x.stride() for x in found]


def test_a_graph_copies_nothing_between_attention_and_what_takes_its_rows():
    def block(x, weight):
        q, k, v = (x @ weight).view(2, ROWS, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
        return wmma_ops.attention(q, k, v)[0].transpose(1, 2).reshape(2, ROWS, HEADS * SIZE)

    x, weight = torch.randn(2, ROWS, 32), torch.randn(32, 3 * HEADS * SIZE)
    graph = make_fx(block, tracing_mode="symbolic")(x, weight).graph
    assert not [node for node in graph.nodes if "clone" in str(node.target)]
