"""FlashAttention-4 (flash_attn.cute, PyPI's flash-attn-4) as a peer on Hopper, where it is installed."""

import importlib.util
from functools import cache

import torch

NAME, ORDERED = "flash-4", "flash-4, equal bits"


@cache
def is_there() -> bool:
    return (
        importlib.util.find_spec("flash_attn") is not None and importlib.util.find_spec("flash_attn.cute") is not None
    )


def names(gradients: bool) -> tuple[str, ...]:
    return () if not is_there() else (NAME, ORDERED) if gradients else (NAME,)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    is_causal: bool = False,
    window: tuple[int | None, int | None] = (None, None),
    ordered: bool = False,
) -> torch.Tensor:
    """Of [batch, heads, rows, size]; heads that share keys are told by their numbers. `ordered`: gradients are summed up in
    one order."""
    from flash_attn.cute import flash_attn_func

    rows = (x.transpose(1, 2) for x in (q, k, v))
    out = flash_attn_func(*rows, causal=is_causal, window_size=window, deterministic=ordered)
    return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)
