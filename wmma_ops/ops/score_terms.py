"""What bears on the scores of a call of attention beside its products, in torch's own, for batches and packed sequences."""

from typing import NamedTuple

import torch
from torch import Tensor

from wmma_ops.ops import score_functions
from wmma_ops.ops.attention_call import AttentionCall
from wmma_ops.ops.dropout import Drop, drop_of, packed_drop
from wmma_ops.ops.score_functions import Functions
from wmma_ops.ops.seen import distances, packed_sight, seen, unseen_keys
from wmma_ops.ops.types import accumulator


class Terms(NamedTuple):
    """On scores [..., heads, queries, keys], of packed sequences those of all tokens. None: there is no such term."""

    unseen: Tensor | None  # True where a query may not look
    distances: Tensor | None  # of a key from where the query stands
    drop: Drop | None
    functions: Functions | None
    outside: Tensor | None = None  # True of queries of no sequence


def terms_of(call: AttentionCall) -> Terms:
    q, k = call.q, call.k
    if call.is_packed:
        ends = (call.cu_seq_q, call.cu_seq_k, call.seqused_k, call.max_q, call.max_k)
        sight = packed_sight(q, k, *ends, call.window_left, call.window_right)
        drop = packed_drop(sight, q.shape[1], call.dropout_seed, call.dropout_p)
        functions = score_functions.of_packed(call, sight)
        return Terms(sight.unseen, sight.distances, drop, functions, sight.outside)
    skv = k.shape[-2]
    bounds = seen(q.shape[-2], skv, call.is_causal, call.window_left, call.window_right)
    return Terms(
        unseen_keys(q, skv, bounds),
        None if call.alibi_slopes is None else distances(q, skv, bounds, accumulator(q.dtype)),
        drop_of(q, skv, call.dropout_seed, call.dropout_p),
        score_functions.of_call(call),
    )


class Scored(NamedTuple):
    """Scores, and what the slope of the way to them is made of. None: it is 1."""

    scores: Tensor
    capped: Tensor | None  # the hyperbolic tangent under the soft cap
    unchanged: Tensor | None  # what a score function was given

    def gradients(self, functions: Functions | None, g: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of the capped product, which distances are taken from, and of the product, by those of the scores."""
        g_capped = g if functions is None or self.unchanged is None else g * functions.slope(self.unchanged)
        return g_capped, g_capped if self.capped is None else g_capped * (1 - self.capped * self.capped)


def scored(call: AttentionCall, terms: Terms, product: Tensor) -> Scored:
    """f(cap(product) − slope·distance) + mask, of scale·Q·Kᵀ [..., heads, queries, keys]."""
    scores, functions, mask = product, terms.functions, call.mask
    capped = unchanged = None
    if call.softcap:
        capped = torch.tanh(scores / call.softcap)
        scores = call.softcap * capped
    if call.alibi_slopes is not None:
        scores = scores - call.alibi_slopes.to(product.dtype)[..., None, None] * terms.distances
    if functions is not None and functions.score_mod:
        unchanged = scores
        scores = functions.changed(scores)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask.to(product.dtype)
    if functions is not None:
        scores = functions.masked(scores)
    if terms.unseen is not None:
        scores = scores.masked_fill(terms.unseen, -torch.inf)
    return Scored(scores, capped, unchanged)
