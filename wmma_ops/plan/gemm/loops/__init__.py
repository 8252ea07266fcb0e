"""The main loops of a product, by name: each a file here and a header of the same stem in kernels/wmma/gemm."""

import importlib
import pkgutil

from wmma_ops.plan.gemm.config import GemmConfig
from wmma_ops.plan.gemm.loop import Loop

LOOPS: dict[str, Loop] = {
    found.name: importlib.import_module(f"{__name__}.{found.name}").LOOP for found in pkgutil.iter_modules(__path__)
}


def loop_of(config: GemmConfig) -> Loop:
    return LOOPS[config.loop]
