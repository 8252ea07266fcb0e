"""How the tensors of a case lie in memory, and what lies around them."""

import torch

Tensor = torch.Tensor


def filled(shape, dtype: torch.dtype) -> Tensor:
    """Memory that no right answer may use."""
    if not dtype.is_floating_point:
        return torch.full(shape, 99, dtype=dtype)
    return torch.full(shape, float("nan"), dtype=torch.float32).to(dtype)


def place(x: Tensor, layout: str) -> Tensor:
    """The values of `x` (for "expanded": of its first row) in memory of the given layout."""
    *batch, m, n = x.shape
    if layout == "row":
        return x.contiguous()
    if layout == "column":
        return x.mT.contiguous().mT
    if layout == "expanded":
        return x[..., :1, :].clone().expand_as(x) if m else x
    if layout == "offset":
        store = filled((x.numel() + 2,), x.dtype)
        view = store[1 : 1 + x.numel()].view(x.shape)
    elif layout == "sliced":
        view = filled((*batch, m + 2, n + 5), x.dtype)[..., 1 : m + 1, 3 : n + 3]
    elif layout == "column_sliced":
        view = filled((*batch, n + 2, m + 5), x.dtype)[..., 1 : n + 1, 3 : m + 3].mT
    elif layout == "strided":
        view = filled((*batch, 2 * m + 1, 2 * n + 1), x.dtype)[..., 1::2, 1::2]
    else:
        raise ValueError(f"layout is {layout!r}")
    view.copy_(x)
    return view


def place_attention(x: Tensor, layout: str) -> Tensor:
    if layout in ("bshd", "htd"):
        return x.transpose(-3, -2).contiguous().transpose(-3, -2)
    if layout == "halves":
        return filled((x.shape[0], 2, *x.shape[1:]), x.dtype)[:, 1].copy_(x)
    return place(x, "row" if layout in ("bhsd", "thd") else layout)


_FENCE = 1 << 16  # bytes, a multiple of every alignment


def fenced(x: Tensor, device: str) -> Tensor:
    """`x` on the device with the same strides and surroundings. On the CPU with a fence around these: what a kernel reads
    beyond a tensor is then no neighbour's memory, wherever the allocator has put the others."""
    store = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    if device == "cpu":
        fence = _FENCE // x.element_size()
        fenced = filled((store.numel() + 2 * fence,), x.dtype)[fence:-fence]
        return fenced.copy_(store).as_strided(x.shape, x.stride(), fence + x.storage_offset())
    return store.to(device).as_strided(x.shape, x.stride(), x.storage_offset())
