"""torch's attention with weights dropped as ours drops them: by a seed of its generator and the places of the weights."""

import contextlib
import math
from unittest import mock

import torch
import torch.nn.functional as F

import wmma_ops
from wmma_ops.ops.dropout import kept_factor, new_seed

_dropout = F.dropout


def drop(weights, p=0.5, training=True, inplace=False):
    """In place of F.dropout: what is no attention's weights is torch's."""
    if weights.dim() < 3 or (weights.dim() == 3 and weights.shape[-1] == 1):
        return _dropout(weights, p, training, inplace)
    if not training or p == 0:
        return weights
    kept = wmma_ops.dropout_mask(new_seed(weights.device), p, weights.shape)
    return torch.where(kept, weights * kept_factor(p), 0.0).to(weights.dtype)


def attend(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """In place of F.scaled_dot_product_attention."""
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    blind = (scores == -torch.inf).all(-1, keepdim=True)
    weights = scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)
    return drop(weights, dropout_p) @ value


@contextlib.contextmanager
def drops_as_ours():
    """Within it torch's own layers do, after the same torch.manual_seed."""
    with mock.patch.object(F, "scaled_dot_product_attention", attend), mock.patch.object(F, "dropout", drop):
        yield
