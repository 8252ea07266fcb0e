"""Where a kernel of the device library runs: under emulation, or on the GPU."""

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
        """Launches; on a GPU on copies of all that the tensors are parts of, which then get what the kernel has written."""
        if not self.cuda:
            with wmma_ops.emulate(self.target, order=self.order, seed=5):
                kernel[grid, block](*arguments, shared=shared)
            return
        wholes = {i: _whole(x) for i, x in enumerate(arguments) if isinstance(x, torch.Tensor)}
        copies = {i: whole.cuda() for i, whole in wholes.items()}
        there = list(arguments)
        for i, copy in copies.items():
            there[i] = copy.as_strided(there[i].size(), there[i].stride(), there[i].storage_offset())
        kernel[grid, block](*there, shared=shared)
        torch.cuda.synchronize()
        for i, whole in wholes.items():
            whole.copy_(copies[i])


def _whole(x: torch.Tensor) -> torch.Tensor:
    """All that lies in a tensor's memory."""
    return torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())


def assert_compiles(target: str, *sources: str):
    """Without a word from the compiler; for a target that is not emulated."""
    if target.startswith("gfx") and not jit.available(target, "clang"):
        pytest.skip(f"no clang here knows {target}")
    for source in sources:
        assert not jit.compile(source, target).log
