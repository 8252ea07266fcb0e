"""Autocast on CPU and CUDA: matrix operands take the region's type, everything beside them keeps its own.

torch.library.register_autocast casts every tensor to one type fixed at registration; ours follows
torch.get_autocast_dtype, keeps scales and biases in float32, and leaves int8, fp8 and float64 products alone.
"""

import functools

import torch

from wmma_ops import torch_internals
from wmma_ops.ops.library import IMPLEMENTATIONS, NAMESPACES, OPS, WRITERS, overload
from wmma_ops.ops.types import FP8_PAGES

# The positions of the matrix operands. addmm_ writes into a tensor of its caller's type, so it casts nothing.
OPERANDS = {
    "matmul": (0, 1),
    "addmm": (1, 2),
    "baddbmm": (1, 2),
    "gemm": (0, 1, 8, 9, 10),
    "linear": (0, 1),
    "gemm_gemm": (0, 1, 2, 6),
    "attention": (0, 1, 2),
    "varlen_attention": (0, 1, 2),
}
_CASTABLE = (torch.float32, torch.float16, torch.bfloat16)
# What operands keep beside others that take the region's type: in pages.
KEPT = {"varlen_attention": FP8_PAGES}


def is_on(x: torch.Tensor) -> bool:
    """Whether autocast is on for the tensor's device."""
    return x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)


def _autocast(op, positions, kept, device_type, *args, **kwargs):
    schema = torch_internals.schema(op).arguments
    args = list(args)
    target = torch.get_autocast_dtype(device_type)
    operands = [(args, i) if i < len(args) else (kwargs, schema[i].name) for i in positions]
    operands = [(holder, at) for holder, at in operands if not isinstance(holder, dict) or holder.get(at) is not None]
    if kept is not None:
        operands = [(holder, at) for holder, at in operands if getattr(holder[at], "dtype", None) != kept]
    if all(holder[at] is None or holder[at].dtype in _CASTABLE for holder, at in operands):
        for holder, at in operands:
            if holder[at] is not None and holder[at].device.type == device_type:
                holder[at] = holder[at].to(target)
    with torch_internals.without_autocast(device_type):
        return op(*args, **kwargs)


def _autocast_to_pages(op, device_type, key, value, key_pages, *others, **scalars):
    """Pages are of their owner's type, which what is written takes, as with torch's ``index_put_``: not the region's, but
    where they are of 8 bits."""
    if all(x is not None and x.dtype in (*_CASTABLE, FP8_PAGES) for x in (key, value, key_pages)):
        target = key_pages.dtype if key_pages.dtype in _CASTABLE else torch.get_autocast_dtype(device_type)
        key, value = key.to(target), value.to(target)
    with torch_internals.without_autocast(device_type):
        return op(key, value, key_pages, *others, **scalars)


def _kernel(op, namespace, device_type):
    call = overload(op, raw=namespace == "wmma_raw")
    if op in WRITERS:
        return functools.partial(_autocast_to_pages, call, device_type)
    return functools.partial(_autocast, call, OPERANDS.get(op, ()), KEPT.get(op), device_type)


for _op in (*OPS, *WRITERS):
    for _namespace in NAMESPACES:
        for _device, _key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
            IMPLEMENTATIONS[_namespace].impl(_op, _kernel(_op, _namespace, _device), _key)
