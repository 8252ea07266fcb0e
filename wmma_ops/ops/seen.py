"""Which keys a query of attention sees, and how far they are from it, in torch's own: what csrc/calls/attention_checks.cpp
and kernels/wmma/attention/rows/varlen.hpp say for the kernels."""

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


class PackedSight(NamedTuple):
    """Of tokens of packed sequences, [queries, keys] each."""

    unseen: Tensor  # True where a query may not look
    distances: Tensor  # of a key from where the query stands, in its sequence
    outside: Tensor  # [queries], True of tokens of no sequence
    sequences: Tensor  # [queries], the one that each is of
    queries: Tensor  # [queries], its place in it
    keys: Tensor  # [keys], likewise


def packed_sight(q, k, cu_q, cu_k, used_k, max_q: int, max_k: int, window_left: int, window_right: int) -> PackedSight:
    """Of [tokens, heads, size]. By comparisons alone, so that nobody waits for the numbers."""

    def lengths(cu, most):
        return (cu[1:] - cu[:-1]).clamp(0, most)

    def of_tokens(x, cu, lengths):
        """Each token's place in a sequence, and whether it is in it: [tokens, sequences] both."""
        # Counted in cu's type: the tokens' own may have none of the odd numbers beyond 256.
        places = x.new_ones(x.shape[0], 1, dtype=cu.dtype).cumsum(0, dtype=cu.dtype) - 1 - cu[:-1]
        return places, (places >= 0) & (places < lengths)

    queries, keys = lengths(cu_q, max_q), lengths(cu_k, max_k)
    if used_k is not None:
        keys = torch.minimum(keys, used_k).clamp(min=0)
    places_q, inside_q = of_tokens(q, cu_q, queries)
    places_k, inside_k = of_tokens(k, cu_k, keys)
    stands = ((places_q + keys - queries) * inside_q).sum(-1, keepdim=True)
    place_q, place_k = (places_q * inside_q).sum(-1), (places_k * inside_k).sum(-1)
    steps = stands - place_k
    unseen = (inside_q.to(torch.float32) @ inside_k.to(torch.float32).mT) == 0
    if window_left >= 0:
        unseen = unseen | (steps > window_left)
    if window_right >= 0:
        unseen = unseen | (-steps > window_right)
    sequences = (inside_q * (torch.ones_like(cu_q[:-1]).cumsum(0) - 1)).sum(-1)
    return PackedSight(unseen, steps.abs(), ~inside_q.any(-1), sequences, place_q, place_k)


def distances(q: Tensor, skv, bounds: Seen, dtype: torch.dtype) -> Tensor:
    """[Sq, Skv]: of each key from where the query stands. A DTensor where q is one."""
    queries = q.new_ones(q.shape[-2], 1, dtype=dtype).cumsum(0)
    return (queries + bounds.diagonal - q.new_ones(skv, dtype=dtype).cumsum(0)).abs()
