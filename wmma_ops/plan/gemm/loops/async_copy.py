"""kernels/wmma/gemm/async_copy.hpp: NVIDIA's asynchronous copies, for operands that go to shared memory as they are."""

import torch

from wmma_ops.hardware import arch
from wmma_ops.plan.gemm.config import goes_as_it_is
from wmma_ops.plan.gemm.tiled import TiledLoop
from wmma_ops.plan.problem import GemmProblem


class AsyncCopy(TiledLoop):
    name = "async_copy"
    tag = "AsyncCopy"
    stages = (3, 4, 6)
    widths = (16, 32, 64, 96, 112, 128, 192, 256)
    crowds = True
    zeros_cost = 6

    def takes(self, problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool) -> bool:
        return target.vendor == "nvidia" and not lanes and problem.a == element and goes_as_it_is(problem)

    def lines_along(self, order: str) -> bool:
        return order == "k"


LOOP = AsyncCopy()
