"""Functions of scores and masks that cases of the value suite name, of every place and of tensors that both read."""

import torch

from wmma_ops.ops.score_functions import register_mask_mod, register_score_mod

Tensor = torch.Tensor


def _biased(score, batch, head, query, key, of_keys, of_heads):
    return score + of_keys[batch, key] - of_heads[head] * (query - key).abs()


def _shown(batch, head, query, key):
    return (query + 2 * key + batch + head) % 4 != 0


SCORE_MOD, MASK_MOD = "suite_bias", "suite_mask"
register_score_mod(
    SCORE_MOD,
    expression="score + a(batch, key) - b(head) * abs(query - key)",
    derivative="1",
    function=_biased,
    operands=2,
)
register_mask_mod(MASK_MOD, expression="(query + 2 * key + batch + head) % 4 != 0", function=_shown)


def added(of_keys: Tensor | None, of_heads: Tensor | None, hides: bool, batch: int, shape: tuple[int, ...]) -> Tensor:
    """What they add to scores ``[heads, queries, keys]`` of a batch, exactly; the tensors are None where scores stay."""
    heads, queries, keys = (torch.arange(size) for size in shape)
    places = torch.tensor(batch), heads[:, None, None], queries[:, None], keys
    total = torch.zeros(shape, dtype=torch.float64)
    if of_keys is not None and of_heads is not None:
        total = _biased(total, *places, of_keys.double(), of_heads.double())
    return total.masked_fill(~_shown(*places), -torch.inf) if hides else total
