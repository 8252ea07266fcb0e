"""Attention with its scores written out: two products of ours and torch's softmax between them.

For weights that are to be returned, which the op `attention` has not. It needs memory for queries times keys. Gradients of
any order follow from those of its parts.
"""

import torch

from wmma_ops.ops import functions as ops
from wmma_ops.ops.types import accumulator

Tensor = torch.Tensor


def attention_by_scores(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """``dropout(softmax(cap(scale·Q·Kᵀ) + mask))·V`` and the weights that V was multiplied by, as V's type.

    Args:
        q, k, v: ``[..., heads, length, head size]``; k and v may have fewer heads, each serving a group of query heads.
        mask: bool (True: may look) or floating (added), of any shape that broadcasts to ``[..., heads, Sq, Skv]``.
        is_causal: query i sees keys 0 to i.
        scale: by default ``1/√E``.
        softcap: cap(x) is ``softcap·tanh(x/softcap)``.
        sinks: one more score a row, ``[..., heads, Sq]`` or what broadcasts to it, that takes weight and gives nothing.
        dropout: the share of weights that become 0; the others grow by 1/(1 − dropout).

    A row that may look at no key gives zeros.
    """
    work = accumulator(q.dtype)
    heads, kv_heads, length = q.shape[-3], k.shape[-3], q.shape[-2]
    group = heads // kv_heads

    def rows(x: Tensor) -> Tensor:
        """Query heads that share a key head, as rows of one product."""
        return x.unflatten(-3, (kv_heads, group)).flatten(-3, -2)

    def unrows(x: Tensor) -> Tensor:
        return x.unflatten(-2, (group, length)).flatten(-4, -3)

    # 1. Scores, capped in the same product.
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if softcap is None:
        scores = unrows(ops.gemm(rows(q), k.mT, alpha=scale, out_dtype=work))
    else:
        capped = ops.gemm(rows(q), k.mT, alpha=scale / softcap, activation="tanh", out_dtype=work)
        scores = unrows(capped) * softcap

    # 2. Who may look where.
    if is_causal:
        seen = torch.ones(length, k.shape[-2], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask.to(work)

    # 3. Weights. A row without a key would be 0/0, in the gradients too: it gets scores of 0, and then no weight.
    if sinks is not None:
        sink = sinks.to(work).unsqueeze(-1).expand(*scores.shape[:-1], 1)
        weights = torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1]
    else:
        blind = (scores == -torch.inf).all(-1, keepdim=True)
        weights = torch.softmax(scores.masked_fill(blind, 0.0), -1).masked_fill(blind, 0.0)
    weights = weights.to(v.dtype)
    if dropout > 0:
        weights = torch.nn.functional.dropout(weights, dropout)
    return unrows(ops.matmul(rows(weights), v)), weights
