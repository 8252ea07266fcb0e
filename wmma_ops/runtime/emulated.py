"""A compiled kernel as the emulator runs it: what `wmma_ops.Kernel` and the ops have in common."""

import math
import os
import pickle
import threading
import weakref
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

import torch

from wmma_ops import jit
from wmma_ops.emulator import assembly, launching, shared_names
from wmma_ops.emulator.errors import malformed
from wmma_ops.emulator.memory import Region
from wmma_ops.emulator.program import Program, build
from wmma_ops.emulator.timing import Trace, rules
from wmma_ops.hardware import arch
from wmma_ops.hardware.occupancy import amd_occupancy_of
from wmma_ops.jit import CodeObject, code_object
from wmma_ops.jit.clang import PINNED
from wmma_ops.jit.disassembler import NoDisassembler
from wmma_ops.runtime.emulation import Emulation

_KEPT = 100_000  # instructions of decoded kernels, at 1 to 2 KB each

_guard = threading.Lock()
_decoded: "weakref.WeakValueDictionary[int, EmulatedKernel]" = (
    weakref.WeakValueDictionary()
)  # the last used stands last


class EmulatedKernel:
    """One kernel of a code object. It is decoded when first asked for, and each of its blocks when that is first run; and
    again where others have been used since: _KEPT bounds what stays decoded."""

    def __init__(self, code: CodeObject, name: str):
        self.name, self.target = name, arch.target(code.target)
        self._packed = zlib.compress(pickle.dumps(code), 1)  # a tenth: plans and graphs hold kernels for good
        self._program: Program | None = None
        self._lock = threading.Lock()

    @property
    def code(self) -> CodeObject:
        return pickle.loads(zlib.decompress(self._packed))

    @property
    def program(self) -> Program:
        with self._lock:
            found = self._program = self._program or self._decode()
        with _guard:
            self._program = found  # even where others have just made room
            _decoded.pop(id(self), None)
            _decoded[id(self)] = self
        return found

    def _decode(self) -> Program:
        code = self.code
        try:
            text = code_object.assembly(code)
        except NoDisassembler as error:
            raise jit.CompileError(
                f"{self.name} was compiled by {code.compiler}, which writes no assembly for the emulator to read; {error}. "
                f"Or install clang for every target: pip install {PINNED}",
                target=code.target,
                compiler=code.compiler,
            ) from None
        entry = code.entry(self.name)
        with malformed(f"{self.name} on {code.target}"):
            kernel = replace(assembly.parse(text).kernels[entry], name=self.name)  # as messages name it
            built = build(kernel, code.target, shared_names.read(code.log, entry))
        _make_room(built.size)
        return built

    @property
    def explicit(self) -> list:
        """The arguments that the source declares, with their offsets and sizes."""
        return [a for a in self.program.kernel.arguments if not a.kind.startswith("hidden")]

    @property
    def static_shared(self) -> int:
        return self.program.kernel.descriptor.get("group_segment_fixed_size", 0)

    def has(self, variable: str) -> bool:
        """Whether the kernel, or what it calls, names a variable."""
        return self.program.variable(variable) is not None

    def run(
        self,
        active: Emulation,
        grid,
        block,
        arguments: bytes,
        tensors: dict,
        shared: int,
        variables: Mapping[str, bytearray] = MappingProxyType({}),
        cooperative: bool = False,
    ) -> None:
        """Executes the kernel, which may touch the named tensors alone, and keeps the statistics in `active`. `variables`
        are what some of its variables hold before, and then after it; `cooperative`, its blocks run interleaved."""
        statistics = launching.launch(
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
            trace=Trace(self.target.name, rules(self.target.name), self.target.wave, self.resident(block, shared))
            if active.timing
            else None,
            variables=variables,
            cooperative=cooperative,
        )
        active.launches.append(statistics)

    def resident(self, block: tuple[int, int, int], shared: int) -> int:
        """How many blocks a compute unit has at once; on RDNA a WGP."""
        kernel, threads = self.program.kernel, math.prod(block)
        lds = self.static_shared + shared
        waves = amd_occupancy_of(self.target, threads, kernel.facts, kernel.descriptor, lds)
        simds = self.target.simds * (1 if self.target.family == "cdna" else 2)
        return max(int(waves * simds) // -(-threads // self.target.wave), 1)


def _make_room(size: int) -> None:
    """Drops what was decoded, from that which was not used for longest, until `size` more instructions are few enough."""
    with _guard:
        programs = []
        for kernel in list(_decoded.values()):
            if (found := kernel._program) is not None:
                programs.append((kernel, found))
            else:
                _decoded.pop(id(kernel), None)
        size += sum(found.size for _, found in programs)
        for kernel, found in programs:
            if size <= _KEPT:
                break
            kernel._program = None
            del _decoded[id(kernel)]
            size -= found.size


def regions(tensors: dict[str, torch.Tensor]) -> list[Region]:
    """What of memory the tensors cover. Those that share some are one region, under both names."""
    spans = []
    for name, x in tensors.items():
        if x.numel():
            spans.append((*_span(x), name, x, x.element_size()))
    joined = []
    for low, high, name, x, element in sorted(spans, key=lambda span: span[:2]):
        if joined and low < joined[-1][1]:
            before = joined[-1]
            joined[-1] = (before[0], max(before[1], high), f"{before[2]} and {name}", (before[3], x), 1)
        else:
            joined.append((low, high, name, x, element))
    places = _places(tensors.values())
    return [
        Region(low, high - low, name, keep, element, _shift(keep, places)) for low, high, name, keep, element in joined
    ]


_UNIT = 2 << 20  # bytes: large memory lies at multiples of it on a GPU


def _places(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Where a GPU would have what these lie in, one after the other. What a launch takes hangs on that, and must not on
    where the host has it."""
    places, end = {}, _UNIT
    for storage in (x.untyped_storage() for x in tensors):
        if storage.data_ptr() not in places:
            places[storage.data_ptr()] = end
            end += -(-storage.nbytes() // _UNIT) * _UNIT
    return places


def _shift(keep, places: dict[int, int]) -> int:
    first = keep
    while isinstance(first, tuple):
        first = first[0]
    base = first.untyped_storage().data_ptr()
    return (base - places[base]) % (1 << 64)


def _span(x: torch.Tensor) -> tuple[int, int]:
    """The addresses of a tensor's first byte and of the one after its last."""
    steps = [(size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True)]
    size, at = x.element_size(), x.data_ptr()
    return at + sum(s for s in steps if s < 0) * size, at + (sum(s for s in steps if s > 0) + 1) * size


def _after_fork() -> None:
    global _guard
    _guard = threading.Lock()  # the thread that held it is not in the child
    for kernel in _decoded.values():
        kernel._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
