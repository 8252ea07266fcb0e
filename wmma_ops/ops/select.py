"""Chooses between an op and its raw twin: the raw one costs a fraction of a call and has no derivative."""

import torch
import torch.autograd.forward_ad as forward_ad
from torch.fx._symbolic_trace import is_fx_symbolic_tracing

from wmma_ops.ops.library import OPS, overload

DIFFERENTIABLE = {name: overload(name) for name in OPS}
# `_op` is what an OpOverload calls; taking it directly saves a Python frame.
RAW = {name: overload(name, raw=True)._op for name in OPS}

is_compiling = torch.compiler.is_compiling
transforms_active = torch._C._are_functorch_transforms_active
is_grad_enabled = torch.is_grad_enabled
is_jit_tracing = torch._C._is_tracing


def traced() -> bool:
    """True where a graph or a transform looks on: it must see the op that has a derivative."""
    return (
        is_compiling()
        or transforms_active()
        or forward_ad._current_level >= 0
        or is_fx_symbolic_tracing()  # symbolic_trace's proxies cannot be asked; make_fx's graph may be differentiated
        or is_jit_tracing()
    )


def select(name: str, *tensors):
    """The op for these tensors."""
    if traced() or (is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in tensors)):
        return DIFFERENTIABLE[name]
    return RAW[name]
