"""Which keys a query of attention sees, and how far they are from it, in torch's own: what csrc/calls/attention_checks.cpp
says for the kernels."""

from typing import NamedTuple

import torch

Tensor = torch.Tensor


class Seen(NamedTuple):
    """Query i stands at key i + diagonal and sees the keys from i + start to i + end; None: all on that side."""

    diagonal: int | torch.SymInt
    start: int | torch.SymInt | None
    end: int | torch.SymInt | None


def seen(sq, skv, is_causal: int, window_left: int, window_right: int) -> Seen:
    diagonal = 0 if is_causal == 1 else skv - sq
    right = 0 if is_causal else window_right
    return Seen(diagonal, None if window_left < 0 else diagonal - window_left, None if right < 0 else diagonal + right)


def unseen_keys(q: Tensor, skv, bounds: Seen) -> Tensor | None:
    """[Sq, Skv], True where a query may not look. A DTensor where q is one."""
    if bounds.start is None and bounds.end is None:
        return None
    inside = q.new_ones(q.shape[-2], skv, dtype=torch.bool)
    if bounds.end is not None:
        inside = inside.tril(bounds.end)
    if bounds.start is not None:
        inside = inside.triu(bounds.start)
    return ~inside


def distances(q: Tensor, skv, bounds: Seen, dtype: torch.dtype) -> Tensor:
    """[Sq, Skv]: of each key from where the query stands. A DTensor where q is one."""
    queries = q.new_ones(q.shape[-2], 1, dtype=dtype).cumsum(0)
    return (queries + bounds.diagonal - q.new_ones(skv, dtype=dtype).cumsum(0)).abs()
