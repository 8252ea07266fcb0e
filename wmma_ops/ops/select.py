"""Chooses between an op and its raw twin: the raw one costs a fraction of a call and has no derivative."""

import torch

from wmma_ops.ops.library import OPS, overload
from wmma_ops.torch_internals import (
    compilation,
    direct,
    is_forward_mode,
    is_fx_tracing,
    is_jit_tracing,
    transforms_active,
)

DIFFERENTIABLE = {name: overload(name) for name in OPS}
RAW = {name: direct(overload(name, raw=True)) for name in OPS}

is_compiling = torch.compiler.is_compiling
is_grad_enabled = torch.is_grad_enabled


def traced() -> bool:
    """True where a graph or a transform looks on: it must see the op that has a derivative."""
    return (
        is_compiling()
        or transforms_active()
        or is_forward_mode()
        or is_fx_tracing()  # symbolic_trace's proxies cannot be asked; make_fx's graph may be differentiated
        or is_jit_tracing()
    )


def makes_graph() -> bool:
    """Whether the compiler traces, or what is behind it does, of which `is_compiling` says nothing before torch 2.13."""
    return is_compiling() or compilation() is not None


def select(name: str, *tensors):
    """The op for these tensors."""
    if traced() or (is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in tensors)):
        return DIFFERENTIABLE[name]
    return RAW[name]
