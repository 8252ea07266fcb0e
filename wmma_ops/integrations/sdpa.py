"""Calls of torch's scaled_dot_product_attention that are ours inside other people's models: with dropout, too."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch.nn.functional as F

from wmma_ops.integrations.scores import attention_by_scores
from wmma_ops.nn import rules
from wmma_ops.nn.mode import RuleMode


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """The rule of `swapped`, which has no dropout; with it, two products and the scores between them."""
    call, reason = rules.attention(query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa)
    if reason is not None or dropout_p <= 0:
        return call, reason
    if query.dim() < 3:
        return None, "it has dropout and no heads"
    options = {"mask": attn_mask, "is_causal": is_causal, "scale": scale, "dropout": dropout_p}
    return lambda: attention_by_scores(query, key, value, **options)[0], None


@dataclass
class Calls:
    """What became of the calls: how many ours took, and why it left the others to torch."""

    taken: int = 0
    left: list[str] = field(default_factory=list)


class AttentionMode(RuleMode):
    """While it is active, F.scaled_dot_product_attention is ours; `calls` is told what was taken."""

    _table: ClassVar[dict] = {F.scaled_dot_product_attention: ("scaled_dot_product_attention", attention)}

    def __init__(self, calls: Calls):  # made outside: a graph that is traced cannot read back from a mode
        super().__init__()
        self.calls = calls

    def _count(self, name: str, reason: str | None) -> None:
        if reason is None:
            self.calls.taken += 1
        else:
            self.calls.left.append(reason)
