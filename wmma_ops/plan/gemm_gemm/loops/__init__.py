"""The main loops of two products, by name: each a file here and a header of the same stem in kernels/wmma/gemm_gemm."""

import importlib
import pkgutil

from wmma_ops.plan.gemm_gemm.config import GemmGemmConfig
from wmma_ops.plan.gemm_gemm.loop import Loop

LOOPS: dict[str, Loop] = {
    found.name: importlib.import_module(f"{__name__}.{found.name}").LOOP for found in pkgutil.iter_modules(__path__)
}


def loop_of(config: GemmGemmConfig) -> Loop:
    return LOOPS[config.loop]
