"""The library of derivatives in C++ (csrc/nodes/nodes.cpp), where one was built against the torch at hand.

It takes an op's place at autograd's key. What it does not take comes back here: calls that somebody looks on, to the op's
kernel in Python, and gradients that are differentiated again, to its formulas. Both stand in a namespace of their own.
"""

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator

import torch

from wmma_ops import torch_internals
from wmma_ops.ops.errors import translate
from wmma_ops.ops.library import IMPLEMENTATIONS, PATH, overload, tensor_names

# Of which ops: as the library registers them.
OPS = ("matmul", "addmm", "linear", "gemm", "attention")
GENERAL = "wmma_general"
_NODES = PATH.with_name(f"_nodes_{re.sub(r'[^0-9a-z]', '_', torch.__version__)}.so")
# Without them derivatives take their general way, which tests compare with.
are_there = _NODES.exists() and os.environ.get("WMMA_OPS_NODES") != "0"
_general = torch.library.Library(GENERAL, "DEF")


def state() -> str:
    """For people: where derivatives are recorded."""
    if are_there:
        return _NODES.name
    if _NODES.exists():
        return "in Python, as WMMA_OPS_NODES=0 asks for"
    other = f"built beside another torch than {torch.__version__}; install again"
    return f"in Python, several times slower for small calls: {other}"


def register(op: str, kernel: Callable, gradients: Callable | None) -> None:
    """An op's kernel at autograd's key, `kernel(keyset, *tensors, **scalars)`, and its formulas, as autograd.py has them."""
    if not (are_there and op in OPS):
        IMPLEMENTATIONS["wmma"].impl(op, kernel, "Autograd", with_keyset=True)
        return
    call = overload(op)
    _general.define(f"{op}({_signature(call)}")
    _general.impl(op, kernel, "Autograd", with_keyset=True)
    _register_formulas(op, call, gradients)


def register_layer(name: str, gradients: Callable) -> None:
    """The formulas of a layer that csrc/nodes/layers.hpp has, after all are loaded."""
    if are_there:
        _register_formulas(name, _layer(name), gradients)


def _signature(call) -> str:
    """An overload's arguments and result, as its schema has them."""
    return str(torch_internals.schema(call)).partition("(")[2]


def _register_formulas(op: str, call, gradients: Callable) -> None:
    names = tensor_names(call)
    defaults = {one.name: one.default_value for one in torch_internals.schema(call).arguments if one.kwarg_only}

    def formulas(grads, outputs, needs, *tensors, **scalars):
        tensors = dict.fromkeys(names) | dict(zip(names, tensors, strict=False))
        needs = dict(zip(names, needs, strict=True))
        scalars = {key: value for key, value in (defaults | scalars).items() if key != "out_dtype"}
        found = gradients(grads, tensors, needs, outputs, **scalars)
        return [found[name] for name in names if needs[name]]

    given = _signature(call).rpartition(") -> ")[0]
    _general.define(f"{op}_gradients(Tensor?[] grads, Tensor?[] outputs, bool[] needs, {given}) -> Tensor[]")
    # Under either vmap they are torch code too.
    for key in ("CompositeImplicitAutograd", "Batched", "FuncTorchBatched"):
        _general.impl(f"{op}_gradients", formulas, key)


@contextlib.contextmanager
def recomputing() -> Iterator[None]:
    """Within it, what smooth activations are given is not kept: the backward pass multiplies again, as the formulas do."""
    if not are_there:
        yield
        return
    before = torch.ops.wmma_general.recompute(True)
    try:
        yield
    finally:
        torch.ops.wmma_general.recompute(before)


def load() -> None:
    """After all are registered."""
    if are_there:
        torch.ops.load_library(str(_NODES))


def _layer(name: str):
    return getattr(torch.ops.wmma_general, name).default


def layer(name: str, *tensors: torch.Tensor | None, **scalars: object) -> torch.Tensor:
    """A layer, which is one to autograd (csrc/nodes/layers.hpp); errors as of the ops that it is made of."""
    try:
        return _direct(name)(*tensors, **scalars)
    except (RuntimeError, TypeError) as error:
        raise translate("linear", error, {}) from None


@functools.cache
def _direct(name: str) -> Callable:
    return torch_internals.direct(_layer(name))
