"""Calls of torch's scaled_dot_product_attention that are ours inside other people's models."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch.nn.functional as F

from wmma_ops.nn import rules
from wmma_ops.nn.mode import RuleMode


@dataclass
class Calls:
    """What became of the calls: how many ours took, and why it left the others to torch."""

    taken: int = 0
    left: list[str] = field(default_factory=list)


class AttentionMode(RuleMode):
    """While it is active, F.scaled_dot_product_attention is ours; `calls` is told what was taken."""

    _table: ClassVar[dict] = {F.scaled_dot_product_attention: ("scaled_dot_product_attention", rules.attention)}

    def __init__(self, calls: Calls):  # made outside: a graph that is traced cannot read back from a mode
        super().__init__()
        self.calls = calls

    def _count(self, name: str, reason: str | None) -> None:
        if reason is None:
            self.calls.taken += 1
        else:
            self.calls.left.append(reason)
