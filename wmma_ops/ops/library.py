"""Loads the C++ library, which defines every op and its CPU kernel."""

import contextlib
import contextvars
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import torch

from wmma_ops import torch_internals

# The variable names a sanitized build (`make asan`).
PATH = Path(os.environ.get("WMMA_OPS_LIBRARY") or Path(__file__).parents[1] / "_library.so")

# Every op. Each exists as torch.ops.wmma.X, differentiable, and torch.ops.wmma_raw.X, without a
# derivative and therefore several times cheaper to call.
OPS = (
    "matmul", "addmm", "addmm_", "baddbmm", "gemm", "linear", "gemm_gemm", "attention", "varlen_attention", "scaled_mm",
    "scaled_attention",
)  # fmt: skip
# Beside them what computes no product and only writes in place: without a derivative, or operations to count.
WRITERS = ("kv_append",)
NAMESPACES = ("wmma", "wmma_raw")

if not PATH.exists():
    raise ImportError(f"{PATH} is not there: build it with `make build`, or `pip install --no-build-isolation .`")
torch.ops.load_library(str(PATH))

# Holds the Python kernels (fakes, derivatives, autocast, vmap) for as long as the process lives.
IMPLEMENTATIONS = {namespace: torch.library.Library(namespace, "IMPL") for namespace in NAMESPACES}


@contextlib.contextmanager
def special_mode(variable: contextvars.ContextVar, value) -> Iterator[None]:
    """Within it the variable has a value, and ops ask Python how to run: while no such mode is on, they ask nobody."""
    token = variable.set(value)
    torch.ops.wmma._count_mode(1)
    try:
        yield
    finally:
        torch.ops.wmma._count_mode(-1)
        variable.reset(token)


def tensor_names(call) -> list[str]:
    """The tensors among an overload's arguments, in order."""
    return [argument.name for argument in torch_internals.schema(call).arguments if not argument.kwarg_only]


def arguments(op: str, given: tuple, named: dict) -> SimpleNamespace:
    """All that an op takes, by name: as given, or as its schema has it."""
    schema = torch_internals.schema(overload(op)).arguments
    found = {one.name: one.default_value for one in schema if one.has_default_value()}
    return SimpleNamespace(**found | dict(zip((one.name for one in schema), given, strict=False)) | named)


def overload(name: str, *, raw: bool = False):
    """The OpOverload of one op."""
    return getattr(getattr(torch.ops, "wmma_raw" if raw else "wmma"), name).default
