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
def _has_flash4() -> bool:
    return (
        importlib.util.find_spec("flash_attn") is not None and importlib.util.find_spec("flash_attn.cute") is not None
    )


def names(gradients: bool = False) -> tuple[str, ...]:
    flash4 = () if not _has_flash4() else (FLASH4, ORDERED) if gradients else (FLASH4,)
    return (*BACKENDS, LAST, *flash4)


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
    refused = "takes no mask" if mask is not None else ""
    if is_causal and q.shape[-2] != k.shape[-2]:
        refused = "aligns the last query"
    if window is not None:
        places = torch.arange(k.shape[-2], device=q.device)
        apart = places[-q.shape[-2] :, None] - places
        mask, is_causal = (apart >= 0) & (apart <= window), False

    def of_torch(backend: SDPBackend) -> torch.Tensor:
        with sdpa_kernel(backend):
            grouped = q.shape[-3] != k.shape[-3]
            return F.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, enable_gqa=grouped)

    found: dict[str, Attention] = {}
    missing: dict[str, str] = {}
    for name, backend in {**BACKENDS, LAST: SDPBackend.MATH}.items():
        if name == LAST and found:
            missing[name] = "others take it"
            continue
        try:
            of_torch(backend)
            found[name] = partial(of_torch, backend)
        except RuntimeError as error:
            missing[name] = str(error).strip().splitlines()[0].partition(". ")[0]
    for name in names(gradients)[len(BACKENDS) + 1 :]:
        call = partial(_of_flash4, q, k, v, is_causal, window, name == ORDERED)
        try:
            if refused:
                raise RuntimeError(refused)
            call()
            found[name] = call
        except (RuntimeError, AssertionError, ValueError) as error:
            missing[name] = str(error).strip().partition("\n")[0][:60] or type(error).__name__
    return found, missing


def _of_flash4(q, k, v, is_causal: bool, window: int | None, ordered: bool) -> torch.Tensor:
    from flash_attn.cute import flash_attn_func

    rows = (x.transpose(1, 2) for x in (q, k, v))
    sides = (None, None) if window is None else (window, 0)
    out = flash_attn_func(*rows, causal=is_causal, window_size=sides, deterministic=ordered)
    return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)
