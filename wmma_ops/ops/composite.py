"""What the ops compute, in torch's own: where torch lets no op bring a derivative of its own, these have one.

Signatures and results are those of the ops, for the types that are differentiated. Computed in the accumulator's type. An
activation is differentiated as the torch function that it is.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from wmma_ops.ops import activations, fakes
from wmma_ops.ops.attention_call import AttentionCall
from wmma_ops.ops.library import arguments, overload, tensor_names
from wmma_ops.ops.score_terms import scored, terms_of
from wmma_ops.ops.types import DIFFERENTIABLE, accumulator
from wmma_ops.torch_internals import any_requires_grad, is_fx_tracing


def rows(x):
    """A vector along the columns' index as a matrix to multiply with: it broadcasts over rows."""
    return x.unsqueeze(-2) if x.dim() > 1 else x


def columns(x):
    """A vector along the rows' index, likewise."""
    return x.unsqueeze(-1) if x.dim() > 0 else x


def _unread(x):
    """Zeros in the place of what has the factor 0, whatever it holds; its gradient is zero."""
    return None if x is None else x.masked_fill(x.new_ones((), dtype=torch.bool), 0)


def _activated(code, x):
    return activations.by_code(code).forward(x)


def matmul(a, b, *, out_dtype=None):
    work = accumulator(a.dtype)
    return torch.matmul(a.to(work), b.to(work)).to(out_dtype or a.dtype)


def addmm(input, a, b, *, beta=1.0, alpha=1.0, out_dtype=None):
    return gemm(a, b, input, alpha=alpha, beta=beta, out_dtype=out_dtype)


baddbmm = addmm


def addmm_(input, a, b, *, beta=1.0, alpha=1.0):
    input.copy_(addmm(input, a, b, beta=beta, alpha=alpha, out_dtype=input.dtype))


def gemm(*tensors, **scalars):
    t = arguments("gemm", tensors, scalars)
    work = accumulator(t.a.dtype)
    multiply = t.multiply
    if t.gate is not None:
        multiply = gemm(t.a, t.gate, None, t.gate_bias, out_dtype=work)
    product = (t.a, t.b, t.a_scale, t.a2, t.b2, t.row_scale, t.col_scale)
    a, b, a_scale, a2, b2, row_scale, col_scale = product if t.alpha != 0 else map(_unread, product)
    p = a.to(work)
    if a_scale is not None:
        p = p * rows(a_scale.to(work))
    s = matmul(_activated(t.a_activation, p).to(a.dtype), b, out_dtype=work)
    if a2 is not None:
        s = s + matmul(a2, b2, out_dtype=work)
    s = t.alpha * s
    if row_scale is not None:
        s = s * columns(row_scale.to(work))
    if col_scale is not None:
        s = s * rows(col_scale.to(work))
    if t.c is not None:
        s = s + t.beta * (t.c if t.beta != 0 else _unread(t.c)).to(work)
    if t.bias is not None:
        s = s + rows(t.bias.to(work))
    s = _activated(t.activation, s)
    if multiply is not None:
        s = s * multiply.to(work)
    return s.to(t.out_dtype or a.dtype).expand(_shape(a, b, a2, b2)).contiguous()


def _shape(a, b, a2, b2):
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (a, b, a2, b2) if x is not None))
    return (*batch, a.shape[-2], b.shape[-1])


def linear(x, weight, bias=None, residual=None, *, activation=0):
    if x.dim() == 1:
        return gemm(x.unsqueeze(0), weight.mT, residual, bias, activation=activation).squeeze(0)
    return gemm(x, weight.mT, residual, bias, activation=activation)


def gemm_gemm(*tensors, **scalars):
    t = arguments("gemm_gemm", tensors, scalars)
    multiply = None if t.gate is None else matmul(t.a, t.gate, out_dtype=accumulator(t.a.dtype))
    d0 = gemm(t.a, t.b0, None, t.bias0, multiply=multiply, alpha=t.alpha0, activation=t.activation)
    return gemm(d0, t.b1, t.c, t.bias1, alpha=t.alpha1, beta=t.beta1, out_dtype=t.out_dtype)


def attention(*tensors, **scalars):
    call = AttentionCall.of("attention", tensors, scalars)
    return _attended(call, call.q, call.k, call.v, terms_of(call))


def varlen_attention(*tensors, **scalars):
    call = AttentionCall.of("varlen_attention", tensors, scalars)
    terms = terms_of(call)
    q, k, v = (x.transpose(0, 1) for x in (call.q, call.k, call.v))
    out, lse = _attended(call, q, k, v, terms)
    return out.transpose(0, 1).contiguous(), lse.masked_fill(terms.outside, -torch.inf)


def _attended(call, q, k, v, terms):
    """`q`, `k` and `v` have their heads before their rows."""
    work = accumulator(q.dtype)
    skv = k.shape[-2]
    if call.enable_gqa and q.dim() > 2 and k.shape[-3] > 0:
        k, v = (x.repeat_interleave(q.shape[-3] // k.shape[-3], -3) for x in (k, v))
    factor = max(q.shape[-1], 1) ** -0.5 if call.scale is None else call.scale
    scores = scored(call, terms, factor * matmul(q, k.mT, out_dtype=work)).scores
    if call.sinks is not None:
        scores = torch.cat([scores, call.sinks.to(work)[..., None, None].expand(*scores.shape[:-1], 1)], -1)
    # torch.logsumexp asks for sizes that may be known only as it runs, and has no gradient for a row that sees no key.
    blind = (scores == -torch.inf).all(-1, keepdim=True)
    largest = F.pad(scores, (0, 1), value=-torch.inf).amax(-1, keepdim=True).masked_fill(blind, 0.0).detach()
    p = torch.exp(scores - largest)
    total = p.sum(-1, keepdim=True).masked_fill(blind, 1.0)
    lse = (total.log() + largest).masked_fill(blind, -torch.inf).squeeze(-1)
    weights = (p / total)[..., :skv]
    return matmul(weights if terms.drop is None else terms.drop(weights), v.to(work), out_dtype=q.dtype), lse


def without_gradient(tensors: dict) -> str | None:
    """Why a call has none, whatever its types: keys and values in pages are those of inference."""
    return "attention's keys in pages" if tensors.get("block_table") is not None else None


def operand_place(op: str) -> int:
    """Which of the op's tensors is the first operand of its product, whose type says whether there is a derivative."""
    names = tensor_names(overload(op))
    return names.index("a") if "a" in names else 0


def composite(op: str) -> Callable:
    """The op, in torch's own where a gradient is asked for or may be; refuses what the fake refuses, with its words."""
    raw, refuse, compute = overload(op, raw=True), getattr(fakes, op), globals().get(op)
    names, place = tensor_names(raw), operand_place(op)

    def call(*inputs, **scalars):
        asked = is_fx_tracing() or (torch.is_grad_enabled() and any_requires_grad(*inputs))
        if not asked or inputs[place].dtype not in DIFFERENTIABLE or compute is None:
            return raw(*inputs, **scalars)
        if without_gradient(dict(zip(names, inputs, strict=False))):
            return raw(*inputs, **scalars)
        refuse(*inputs, **scalars)
        return compute(*inputs, **scalars)

    return call
