"""Matrix-core kernels for PyTorch: ``torch.ops.wmma.*`` and, documented, the functions of this package."""

import importlib

from wmma_ops.emulator import emulate
from wmma_ops.nn.mode import swapped
from wmma_ops.nn.swap import restore_, swap_
from wmma_ops.ops import autocast, autograd, fakes, flops, negated, vmap  # noqa: F401  (registers them)
from wmma_ops.ops.activations import register_activation
from wmma_ops.ops.functions import addmm, addmm_, attention, baddbmm, gemm, gemm_gemm, linear, matmul, scaled_mm
from wmma_ops.plan import ConfigError as ConfigError
from wmma_ops.runtime import launching  # noqa: F401  (registers the ops that the library calls)
from wmma_ops.runtime.explain import explain, warmup
from wmma_ops.runtime.kernel import Kernel
from wmma_ops.runtime.recording import record
from wmma_ops.runtime.tuning import tune

__version__ = "0.1.0"


def __getattr__(name: str):
    if name == "inductor":  # which imports torch._dynamo, for seconds
        return importlib.import_module("wmma_ops.inductor")
    raise AttributeError(f"module 'wmma_ops' has no attribute {name!r}")


__all__ = [
    "Kernel",
    "addmm",
    "addmm_",
    "attention",
    "baddbmm",
    "emulate",
    "explain",
    "gemm",
    "gemm_gemm",
    "linear",
    "matmul",
    "record",
    "register_activation",
    "restore_",
    "scaled_mm",
    "swap_",
    "swapped",
    "tune",
    "warmup",
]
