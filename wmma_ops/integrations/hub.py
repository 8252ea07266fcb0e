"""Our layers as a repository of the package `kernels`, to be loaded from a folder or uploaded to the hub.

    from kernels import LocalLayerRepository, Mode, kernelize, use_kernel_mapping
    from wmma_ops.integrations import hub

    layer = LocalLayerRepository(hub.write("wmma-kernels"), layer_name="GatedMLP")
    with use_kernel_mapping({"MLP": {"cuda": {Mode.TRAINING | Mode.TORCH_COMPILE: layer}}}):
        kernelize(model, mode=Mode.TRAINING | Mode.TORCH_COMPILE, device="cuda")

The repository holds no machine code: it finds ours in the installed package, which compiles for the GPU at hand.
"""

import json
from pathlib import Path

VERSION = 1
BACKENDS = ("cpu", "cuda", "rocm")

_FUNCTIONS = '''"""wmma_ops as a kernel: `layers`, and its ops as functions. Needs the package wmma_ops, of 0.1 or later."""

from wmma_ops import attention, gemm, gemm_gemm, linear, matmul, scaled_attention, scaled_mm

from . import layers

__all__ = ["attention", "gemm", "gemm_gemm", "layers", "linear", "matmul", "scaled_attention", "scaled_mm"]
'''
_LAYERS = '''"""The layers, each without state of its own."""

from wmma_ops.integrations.hub_layers import Attention, GatedMLP, Linear

__all__ = ["Attention", "GatedMLP", "Linear"]
'''


def write(folder: str | Path) -> Path:
    """Writes the repository into a folder, one variant a backend, and returns the folder.

    Args:
        folder: is made where it is missing; files of an earlier repository are replaced.
    """
    folder = Path(folder)
    for backend in BACKENDS:
        variant = folder / "build" / f"torch-{backend}"
        variant.mkdir(parents=True, exist_ok=True)
        (variant / "__init__.py").write_text(_FUNCTIONS)
        (variant / "layers.py").write_text(_LAYERS)
        (variant / "metadata.json").write_text(json.dumps(_metadata(backend), indent=2) + "\n")
    return folder


def _metadata(backend: str) -> dict:
    return {
        "name": "wmma-ops",
        "id": f"_wmma_ops_{backend}_{VERSION}",
        "version": VERSION,
        "license": "MIT",
        "python-depends": [],
        "backend": {"type": backend},
    }
