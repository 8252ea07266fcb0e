"""Loads the C++ library, which defines every op and its CPU kernel."""

from pathlib import Path

import torch

PATH = Path(__file__).with_name("_library.so")

# Every op. Each exists as torch.ops.wmma.X, differentiable, and torch.ops.wmma_raw.X, without a
# derivative and therefore several times cheaper to call.
OPS = ("matmul", "addmm", "addmm_", "baddbmm", "gemm", "linear", "gemm_gemm", "attention", "scaled_mm")
NAMESPACES = ("wmma", "wmma_raw")

if not PATH.exists():
    raise ImportError(f"{PATH} is not there: build it with `make build`, or `pip install --no-build-isolation .`")
torch.ops.load_library(str(PATH))

# Holds the Python kernels (fakes, derivatives, autocast, vmap) for as long as the process lives.
IMPLEMENTATIONS = {namespace: torch.library.Library(namespace, "IMPL") for namespace in NAMESPACES}


def overload(name: str, *, raw: bool = False):
    """The OpOverload of one op."""
    return getattr(getattr(torch.ops, "wmma_raw" if raw else "wmma"), name).default
