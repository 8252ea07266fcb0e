"""Matrix-core kernels for PyTorch: ``torch.ops.wmma.*`` and, documented, the functions of this package."""

import importlib
from typing import TYPE_CHECKING

from wmma_ops.cli import is_for_help
from wmma_ops.version import __version__ as __version__

if not is_for_help():
    from wmma_ops.integrations import flash
    from wmma_ops.ops import autocast, autograd, fakes, flops, negated, vmap  # noqa: F401  (registers them)
    from wmma_ops.ops.activations import register_activation
    from wmma_ops.ops.blocks import Blocks
    from wmma_ops.ops.dropout import dropout_mask
    from wmma_ops.ops.functions import (
        addmm,
        addmm_,
        attention,
        baddbmm,
        gemm,
        gemm_gemm,
        kv_append,
        linear,
        matmul,
        scaled_attention,
        scaled_mm,
        varlen_attention,
    )
    from wmma_ops.ops.invariance import batch_invariant
    from wmma_ops.ops.order import allow_unordered_sums
    from wmma_ops.ops.score_functions import register_mask_mod, register_score_mod
    from wmma_ops.runtime import callbacks  # noqa: F401  (registers what the library calls)

    flash.register()

if TYPE_CHECKING:
    from wmma_ops.nn.mode import swapped
    from wmma_ops.nn.swap import restore_, swap_
    from wmma_ops.plan import ConfigError as ConfigError
    from wmma_ops.runtime.emulation import emulate
    from wmma_ops.runtime.explain import explain, warmup
    from wmma_ops.runtime.kernel import Kernel
    from wmma_ops.runtime.loaded import flush_prints
    from wmma_ops.runtime.recording import record
    from wmma_ops.runtime.tuning import tune

# What is loaded when first asked for: importing the package is to cost little.
_WHERE = {
    "ConfigError": "plan",
    "Kernel": "runtime.kernel",
    "emulate": "runtime.emulation",
    "explain": "runtime.explain",
    "flush_prints": "runtime.loaded",
    "record": "runtime.recording",
    "restore_": "nn.swap",
    "swap_": "nn.swap",
    "swapped": "nn.mode",
    "tune": "runtime.tuning",
    "warmup": "runtime.explain",
}
_ROOMS = ("analysis", "emulator", "inductor", "jit", "nn", "plan", "testing")


def __getattr__(name: str):
    if name in _WHERE:
        return globals().setdefault(name, getattr(importlib.import_module(f"wmma_ops.{_WHERE[name]}"), name))
    if name in _ROOMS:
        return importlib.import_module(f"wmma_ops.{name}")
    raise AttributeError(f"module 'wmma_ops' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE, *_ROOMS})


__all__ = [
    "Blocks",
    "Kernel",
    "addmm",
    "addmm_",
    "allow_unordered_sums",
    "attention",
    "baddbmm",
    "batch_invariant",
    "dropout_mask",
    "emulate",
    "explain",
    "flush_prints",
    "gemm",
    "gemm_gemm",
    "kv_append",
    "linear",
    "matmul",
    "record",
    "register_activation",
    "register_mask_mod",
    "register_score_mod",
    "restore_",
    "scaled_attention",
    "scaled_mm",
    "swap_",
    "swapped",
    "tune",
    "varlen_attention",
    "warmup",
]
