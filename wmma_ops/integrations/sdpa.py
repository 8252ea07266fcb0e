"""torch's scaled_dot_product_attention by our ops, and a mode under which code that calls torch's gets ours."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from wmma_ops import ops
from wmma_ops.integrations.scores import attention_by_scores
from wmma_ops.types import DIFFERENTIABLE, name

Tensor = torch.Tensor
_TORCH = F.scaled_dot_product_attention


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """As torch.nn.functional's: the op `attention`, or with dropout two products and the scores between them."""
    if dropout_p > 0:
        options = {"mask": attn_mask, "is_causal": is_causal, "scale": scale, "dropout": dropout_p}
        return attention_by_scores(query, key, value, **options)[0]
    options = {"mask": attn_mask, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    return ops.attention(query, key, value, **options)[0]


def obstacle(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> str | None:
    """Why ours cannot take these arguments, or None."""
    for which, x in (("query", query), ("key", key), ("value", value)):
        if x.is_nested or x.layout != torch.strided:
            return f"{which} is not a plain tensor"
        if x.dtype not in DIFFERENTIABLE or x.dtype != query.dtype:
            return f"{which} is {name(x.dtype)}"
        if x.dim() < 3 or x.shape[:-3] != query.shape[:-3]:
            return f"{which} has shape {list(x.shape)}, query {list(query.shape)}"
    if key.shape[-3] != value.shape[-3] or (key.shape[-3] != query.shape[-3] and not enable_gqa):
        return f"{query.shape[-3]} heads over {key.shape[-3]} and {value.shape[-3]}"
    if attn_mask is not None and is_causal:
        return "a mask beside is_causal"
    return None


@dataclass
class Calls:
    """What became of the calls: how many ours took, and why it left the others to torch."""

    taken: int = 0
    left: list[str] = field(default_factory=list)


class SdpaMode(TorchFunctionMode):
    """While it is active, F.scaled_dot_product_attention is ours; `calls` is told what was taken."""

    def __init__(self, calls: Calls):  # made outside: a graph that is traced cannot read back from a mode
        super().__init__()
        self.calls = calls

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is Tensor.unflatten:  # in Python, by super(), which Dynamo cannot follow from inside a mode
            return torch.unflatten(*args, **kwargs)
        if func is not _TORCH:
            return func(*args, **kwargs)
        reason = obstacle(*args, **kwargs)
        if reason is not None:
            self.calls.left.append(reason)
            return func(*args, **kwargs)
        self.calls.taken += 1
        return scaled_dot_product_attention(*args, **kwargs)
