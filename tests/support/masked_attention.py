"""Attention and its gradients beside masks, on a GPU: near a reference in float64, and twice the same."""

import torch
from on_gpu import close, matrix

import wmma_ops

F16, BF16 = torch.float16, torch.bfloat16
BOUNDS = {F16: 1.5e-3, BF16: 8e-3}
BATCH = 3


def check(masks, want, dtype, heads, kv_heads, queries, keys, size, value_size):
    """`want` gives the result and the gradients of q, k and v, by q, k, v, a mask and the gradients of both results."""
    q = matrix(BATCH, heads, queries, size, dtype=dtype).requires_grad_()
    k, v = (matrix(BATCH, kv_heads, keys, n, dtype=dtype).requires_grad_() for n in (size, value_size))
    g, g_lse = (
        matrix(BATCH, heads, queries, value_size, dtype=dtype),
        matrix(BATCH, heads, queries, dtype=torch.float32),
    )
    for mask in masks:

        def gradients(mask=mask):
            results = wmma_ops.attention(q, k, v, mask=mask, enable_gqa=heads != kv_heads)
            return results[0], *torch.autograd.grad(results, [q, k, v], [g, g_lse])

        got, again = gradients(), gradients()
        assert all(torch.equal(*pair) for pair in zip(got, again, strict=True))
        out, wanted = want(*wide(q, k, v), mask, g.double(), g_lse.double())
        for one, other in zip(got, (out, *wanted), strict=True):
            close(one, other, BOUNDS[dtype])


def check_gradients(gradients, q, k, v, g, dtype, shown=None, added=0.0):
    """The result and the gradients that it gives, twice, beside those of attention to the keys that are shown, with numbers
    added to scores. Rows that are shown none give nothing."""
    got, again = gradients(), gradients()
    assert all(torch.equal(*pair) for pair in zip(got, again, strict=True))
    leaves = wide(q, k, v)
    many_k, many_v = for_each_head(*leaves)
    scores = leaves[0] @ many_k.mT * q.shape[-1] ** -0.5 + added
    if shown is None:
        shown = torch.ones_like(scores, dtype=torch.bool)
    sees = shown.any(-1, keepdim=True)
    out = torch.where(sees, torch.softmax(scores.masked_fill(~shown & sees, -torch.inf), -1), 0.0) @ many_v
    for one, want in zip(got, (out, *torch.autograd.grad(out, leaves, g.double())), strict=True):
        close(one, want, BOUNDS[dtype])


def wide(q, k, v):
    """Leaves in float64."""
    return [x.detach().double().requires_grad_() for x in (q, k, v)]


def for_each_head(q, *of_keys):
    """Keys and values, repeated for the heads that share them."""
    return [x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in of_keys]


def check_far_below(dtype, size):
    """Gradients where scores are far below zero, and where the last tiles are not whole."""
    sign = torch.randn(size, device="cuda").sign()
    q = (-8 * sign + matrix(2, 3, 200, size, dtype=torch.float32)).to(dtype).requires_grad_()
    k = (5 * sign + matrix(2, 3, 130, size, dtype=torch.float32)).to(dtype).requires_grad_()
    v, g = matrix(2, 3, 130, size, dtype=dtype).requires_grad_(), matrix(2, 3, 200, size, dtype=dtype)
    got = torch.autograd.grad(wmma_ops.attention(q, k, v)[0], [q, k, v], g)
    leaves = wide(q, k, v)
    scores = leaves[0] @ leaves[1].mT * size**-0.5
    assert scores.max() < -150
    want = torch.autograd.grad(torch.softmax(scores, -1) @ leaves[2], leaves, g.double())
    for one, other in zip(got, want, strict=True):
        close(one, other, 4 * BOUNDS[dtype])
