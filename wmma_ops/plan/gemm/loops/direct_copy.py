"""kernels/wmma/gemm/direct_copy.hpp: gfx950's loads straight to shared memory, for operands that go there as they are."""

import torch

from wmma_ops.hardware import arch
from wmma_ops.plan.gemm.config import goes_as_it_is
from wmma_ops.plan.gemm.tiled import TiledLoop
from wmma_ops.plan.problem import GemmProblem


class DirectCopy(TiledLoop):
    name = "direct_copy"
    tag = "DirectCopy"
    stages = (2,)

    def takes(self, problem: GemmProblem, target: arch.Target, element: torch.dtype, lanes: bool) -> bool:
        plain = not lanes and problem.a == element and goes_as_it_is(problem)
        return target.name == "gfx950" and plain and not problem.wide

    def lines_along(self, order: str) -> bool:
        return order == "k"


LOOP = DirectCopy()
