"""Where a kernel of the device library runs: under emulation, or on the GPU."""

import contextlib

import pytest
import torch

import wmma_ops
from wmma_ops import jit
from wmma_ops.hardware import arch


class Machine:
    """A target by its name, or "cuda"."""

    def __init__(self, target: str, order: str = "forward"):
        self.target, self.order = target, order
        self.cuda = target == "cuda"
        self.wave = 32 if self.cuda else arch.target(target).wave

    def run(self, kernel, grid, block, *arguments, shared=0):
        """Launches on copies of the tensors, which then get what the kernel has written."""
        put = [x.to("cuda" if self.cuda else "cpu") if isinstance(x, torch.Tensor) else x for x in arguments]
        with contextlib.nullcontext() if self.cuda else wmma_ops.emulate(self.target, order=self.order, seed=5):
            kernel[grid, block](*put, shared=shared)
        if self.cuda:
            torch.cuda.synchronize()
            for x, there in zip(arguments, put, strict=True):
                if isinstance(x, torch.Tensor):
                    x.copy_(there)


def assert_compiles(target: str, *sources: str):
    """Without a word from the compiler; for a target that is not emulated."""
    if target.startswith("gfx") and not jit.available(target, "clang"):
        pytest.skip(f"no clang here knows {target}")
    for source in sources:
        assert not jit.compile(source, target).log
