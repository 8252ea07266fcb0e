"""Dropout of attention's weights in torch's own: kernels/wmma/attention/terms/dropout.hpp says it for kernels and the CPU.

Words of 32 bits are int64 here, which has room for their products' halves.
"""

from typing import NamedTuple

import torch

from wmma_ops.ops.neighbours import answering
from wmma_ops.ops.seen import PackedSight

Tensor = torch.Tensor

_WORD = (1 << 32) - 1

# Not ``x >> n``: of a DTensor torch 2.13's returns x.
_right, _left = torch.bitwise_right_shift, torch.bitwise_left_shift


def kept_below(p: float) -> int:
    """A weight is kept where its number of 32 bits is below it."""
    return min(max(round((1 - p) * 2**32), 1), _WORD)


def kept_factor(p: float) -> float:
    """What is kept is multiplied by it."""
    return 2**32 / kept_below(p)


def new_seed(device: torch.device) -> Tensor:
    """By torch's generator of the device, as torch draws its own dropout."""
    return torch.randint(1 << 62, (), dtype=torch.int64, device=device)


def kept(seed: Tensor, p: float, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Which weights are kept, by indices that broadcast: of the flattened batch, of the query's head, of the query and of
    the key."""
    words = [seed.reshape(()) & _WORD, _right(seed.reshape(()), 32) & _WORD]
    counter = list(torch.broadcast_tensors(query, head, batch, torch.zeros_like(query)))
    for _ in range(10):
        (even_high, even_low), (odd_high, odd_low) = _product(counter[0], 0xD2511F53), _product(counter[2], 0xCD9E8D57)
        counter = [odd_high ^ counter[1] ^ words[0], odd_low, even_high ^ counter[3] ^ words[1], even_low]
        words = [(words[0] + 0x9E3779B9) & _WORD, (words[1] + 0xBB67AE85) & _WORD]
    x = key ^ counter[0]
    x = _product(x ^ _right(x, 16), 0x7FEB352D)[1]
    x = _product(x ^ _right(x, 15) ^ counter[1], 0x846CA68B)[1]
    return x < kept_below(p)


def kept_of(q: Tensor, skv, seed: Tensor, p: float) -> Tensor:
    """Which weights of ``[..., heads, queries, size]`` are kept, and of so many keys. A DTensor where q is one."""
    *batch, queries, _ = q.shape
    heads = batch.pop() if batch else 1
    total = 1
    for size in batch:
        total = total * size

    def places(count, dims):
        return (q.new_ones(count, dtype=torch.int64).cumsum(0) - 1).reshape(count, *(1,) * dims)

    found = kept(seed, p, places(total, 3), places(heads, 2), places(queries, 1), places(skv, 0))
    return found.reshape(*q.shape[:-1], skv)


class Drop(NamedTuple):
    """Drops weights; what is behind them as well, on the way back."""

    kept: Tensor
    factor: float

    def __call__(self, weights: Tensor) -> Tensor:
        return torch.where(self.kept, weights * self.factor, 0.0)


def drop_of(q: Tensor, skv, seed: Tensor | None, p: float) -> Drop | None:
    """None where nothing is dropped."""
    return Drop(kept_of(q, skv, seed, p), kept_factor(p)) if p else None


def packed_drop(sight: PackedSight, heads, seed: Tensor | None, p: float) -> Drop | None:
    """Likewise of the tokens of packed sequences, ``[heads, queries, keys]``."""
    if not p:
        return None
    head = (sight.queries.new_ones(heads).cumsum(0) - 1)[:, None, None]
    found = kept(seed, p, sight.sequences[:, None], head, sight.queries[:, None], sight.keys)
    return Drop(found, kept_factor(p))


@answering
def dropout_mask(seed: Tensor, dropout_p: float, shape) -> Tensor:
    """Which weights ``attention`` keeps with this seed, on any device and in any configuration.

    Args:
        seed: what ``attention`` is given as dropout_seed.
        dropout_p: likewise.
        shape: of the scores, ``[..., heads, Sq, Skv]``. Of packed sequences each is a batch of its own, whose index it has.

    Examples:
        >>> import torch, wmma_ops
        >>> q, seed = torch.randn(1, 4, 8), torch.tensor(7)
        >>> kept = wmma_ops.dropout_mask(seed, 0.5, (1, 4, 4))
        >>> out, _ = wmma_ops.attention(q, q, q, dropout_p=0.5, dropout_seed=seed)
        >>> weights = (q @ q.mT / 8**0.5).softmax(-1)
        >>> torch.allclose(out, (2 * weights * kept) @ q, atol=1e-6)
        True
    """
    shape = tuple(shape)
    if len(shape) < 2:
        raise ValueError(f"wmma.dropout_mask: shape is {list(shape)}; takes [..., heads, Sq, Skv]")
    if seed.dtype != torch.int64 or seed.numel() != 1:
        raise ValueError(f"wmma.dropout_mask: seed has shape {list(seed.shape)} of {seed.dtype}; takes one int64")
    if not 0 <= dropout_p < 1:
        raise ValueError(f"wmma.dropout_mask: dropout_p is {dropout_p}; takes 0 (none) up to, but not, 1")
    if dropout_p == 0:
        return torch.ones(shape, dtype=torch.bool, device=seed.device)
    return kept_of(seed.new_ones(()).expand(*shape[:-1], 1), shape[-1], seed, dropout_p)


def _product(x: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """The two words of it. Nothing in between has 64 bits."""
    low = (x & 0xFFFF) * factor
    high = _right(x, 16) * factor + _right(low, 16)
    return _right(high, 16), (low & 0xFFFF) | _left(high & 0xFFFF, 16)
