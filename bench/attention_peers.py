"""What our attention is held against on a GPU: the backends of torch's scaled_dot_product_attention, and FlashAttention-4
(flash_attn.cute, PyPI's flash-attn-4) where it is installed."""

import importlib.util
from collections.abc import Callable
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
LAST = "math"  # where no other takes a call
FLASH4, ORDERED = "flash-4", "flash-4, equal bits"

Attention = Callable[[], torch.Tensor]


@cache
def _flash4_names(gradients: bool) -> tuple[str, ...]:
    if importlib.util.find_spec("flash_attn") is None or importlib.util.find_spec("flash_attn.cute") is None:
        return ()
    return (FLASH4, ORDERED) if gradients else (FLASH4,)


def names(gradients: bool = False) -> tuple[str, ...]:
    return (*BACKENDS, LAST, *_flash4_names(gradients))


def peers(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    is_causal: bool = False,
    window: int | None = None,
    gradients: bool = False,
) -> tuple[dict[str, Attention], dict[str, str]]:
    """Calls of those that take these operands, and why the others do not. `window`: so many keys before its own a query
    sees, and none behind it. `gradients` are asked for."""
    not_by_flash4 = "takes no mask" if mask is not None else ""
    if is_causal and q.shape[-2] != k.shape[-2]:
        not_by_flash4 = "aligns the last query"
    if window is not None:
        places = torch.arange(k.shape[-2], device=q.device)
        apart = places[-q.shape[-2] :, None] - places
        mask, is_causal = (apart >= 0) & (apart <= window), False

    def of_torch(backend: SDPBackend) -> torch.Tensor:
        with sdpa_kernel(backend):
            grouped = q.shape[-3] != k.shape[-3]
            return F.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, enable_gqa=grouped)

    calls: dict[str, Attention] = {name: partial(of_torch, backend) for name, backend in BACKENDS.items()}
    for name in _flash4_names(gradients):
        calls[name] = partial(_of_flash4, q, k, v, is_causal, window, name == ORDERED)
    found: dict[str, Attention] = {}
    missing = dict.fromkeys(_flash4_names(gradients), not_by_flash4) if not_by_flash4 else {}

    def attempt(name: str, call: Attention) -> None:
        try:
            call()
            found[name] = call
        except (RuntimeError, AssertionError, ValueError) as error:
            missing[name] = str(error).strip().partition("\n")[0].partition(". ")[0] or type(error).__name__

    for name, call in calls.items():
        if name not in missing:
            attempt(name, call)
    if found.keys() & BACKENDS:
        missing[LAST] = "others take it"
    else:
        attempt(LAST, partial(of_torch, SDPBackend.MATH))
    return found, missing


def _of_flash4(q, k, v, is_causal: bool, window: int | None, ordered: bool) -> torch.Tensor:
    from flash_attn.cute import flash_attn_func

    rows = (x.transpose(1, 2) for x in (q, k, v))
    sides = (None, None) if window is None else (window, 0)
    out = flash_attn_func(*rows, causal=is_causal, window_size=sides, deterministic=ordered)
    return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)
