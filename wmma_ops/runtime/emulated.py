"""A compiled kernel as the emulator runs it: what `wmma_ops.Kernel` and the ops have in common."""

import threading

import torch

from wmma_ops import jit
from wmma_ops.emulator import assembly, machine, program, shared_names
from wmma_ops.emulator.memory import Region
from wmma_ops.hardware import arch
from wmma_ops.jit import CodeObject
from wmma_ops.jit.clang import PINNED
from wmma_ops.runtime.emulation import Emulation


class EmulatedKernel:
    """One kernel of a code object. It is read when first asked for, and each of its blocks when that is first run."""

    def __init__(self, code: CodeObject, name: str):
        self.code, self.name, self.target = code, name, arch.target(code.target)
        self._program: program.Program | None = None
        self._lock = threading.Lock()

    @property
    def program(self) -> program.Program:
        with self._lock:
            if self._program is None:
                if self.code.assembly is None:
                    raise jit.CompileError(
                        f"{self.name} was compiled by {self.code.compiler}, which writes no assembly for the emulator to "
                        f"read; install clang for every target: pip install {PINNED}",
                        target=self.code.target,
                        compiler=self.code.compiler,
                    )
                text = assembly.parse(self.code.assembly)
                if self.name not in text.kernels:
                    raise ValueError(f'{self.name!r} is not in the compiled code; declare it extern "C" __global__')
                names = shared_names.read(self.code.log, self.name)
                self._program = program.build(text.kernels[self.name], self.code.target, names)
            return self._program

    @property
    def explicit(self) -> list:
        """The arguments that the source declares, with their offsets and sizes."""
        return [a for a in self.program.kernel.arguments if not a.kind.startswith("hidden")]

    @property
    def static_shared(self) -> int:
        return self.program.kernel.descriptor.get("group_segment_fixed_size", 0)

    def run(self, active: Emulation, grid, block, arguments: bytes, tensors: dict, shared: int) -> None:
        """Executes the kernel, which may touch the named tensors alone, and keeps the statistics in `active`."""
        statistics = machine.launch(
            self.program,
            grid,
            block,
            arguments,
            regions(tensors),
            shared_bytes=shared,
            order=active.order,
            seed=active.seed,
            budget=active.budget,
            count_traffic=active.count_traffic,
            banks=self.target.lds_banks or 32,
        )
        active.launches.append(statistics)


def regions(tensors: dict[str, torch.Tensor]) -> list[Region]:
    """What of memory the tensors cover. Those that share some are one region, under both names."""
    spans = []
    for name, x in tensors.items():
        if x.numel():
            spans.append((*_span(x), name, x))
    joined = []
    for low, high, name, x in sorted(spans, key=lambda span: span[:2]):
        if joined and low < joined[-1][1]:
            before = joined[-1]
            joined[-1] = (before[0], max(before[1], high), f"{before[2]} and {name}", (before[3], x))
        else:
            joined.append((low, high, name, x))
    return [Region(low, high - low, name, keep) for low, high, name, keep in joined]


def _span(x: torch.Tensor) -> tuple[int, int]:
    """The addresses of a tensor's first byte and of the one after its last."""
    steps = [(size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True)]
    size, at = x.element_size(), x.data_ptr()
    return at + sum(s for s in steps if s < 0) * size, at + (sum(s for s in steps if s > 0) + 1) * size
