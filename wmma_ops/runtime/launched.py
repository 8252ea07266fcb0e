"""What launches a kernel, be it compiled of a source or a code object: on a GPU or under `wmma_ops.emulate`."""

import functools
import math
import numbers
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import torch

from wmma_ops import jit
from wmma_ops.emulator import EmulationError, Trap
from wmma_ops.hardware import arch
from wmma_ops.ops.errors import CaptureError
from wmma_ops.runtime import arguments, cooperative, driver, emulation, printing
from wmma_ops.runtime.loaded import Loaded
from wmma_ops.runtime.parameters import Parameter

if TYPE_CHECKING:  # as in launching.py
    from wmma_ops.runtime.emulated import EmulatedKernel


def _triple(value, what: str) -> tuple[int, int, int]:
    try:
        given = tuple(map(operator.index, value if isinstance(value, Iterable) else (value,)))
    except TypeError:
        given = ()
    if not 1 <= len(given) <= 3:
        raise ValueError(f"Kernel: {what} is {value!r}; takes one to three whole numbers")
    value = (*given, 1, 1)[:3]
    if min(value) < 1:
        raise ValueError(f"Kernel: {what} is {value}; takes sizes of 1 or more")
    return value


class Launched:
    """A kernel with its parameters. Others say where its machine code comes from, and where that has its arguments."""

    def __init__(self, name: str, declared: list[tuple[Parameter, ...]], strided: tuple[str, ...], print_bytes: int):
        self.name, self.strided, self.print_bytes = name, tuple(strided), print_bytes
        if not isinstance(print_bytes, int) or not 64 <= print_bytes <= 1 << 32:
            raise ValueError(f"Kernel: print_bytes is {print_bytes!r}; takes a number from 64 to 2**32")
        self._declared = declared
        self.parameters = declared[0]
        self._settled_for: str | None = None  # the target whose code the parameters are of
        pointers = list(dict.fromkeys(pointer for one in declared for pointer in _pointers(one)))
        if unknown := set(self.strided).difference(pointers):
            raise ValueError(f"Kernel: strided has {sorted(unknown)}; takes pointers of {name}: {', '.join(pointers)}")
        self._emulated: dict[str, EmulatedKernel] = {}
        self._rooms: dict[tuple[str, int, int], tuple[int, int]] = {}
        self._slots: dict[str, list[arguments.Slot]] = {}  # of those
        self._loaded: dict[tuple[int, int], Loaded] = {}

    def compile(self, target: str) -> jit.CodeObject:
        """The machine code for a target."""
        raise NotImplementedError

    def _compile_named(self, target: str) -> jit.CodeObject:
        """The same machine code, with the names of shared memory in its log where the compiler can tell them."""
        return self.compile(target)

    def _settled(self, code: jit.CodeObject) -> list[arguments.Slot]:
        """Where the machine code has its arguments; the parameters are from then on those of this code."""
        raise NotImplementedError

    def __getitem__(self, launch):
        if not isinstance(launch, tuple) or len(launch) != 2:
            raise ValueError("Kernel: launch it as kernel[grid, block](…)")
        return functools.partial(self._launch, _triple(launch[0], "grid"), _triple(launch[1], "block"))

    # Checks, before anything is launched.

    def _check(self, given, shared: int) -> torch.device:
        if len(given) != len(self.parameters):
            wanted = ", ".join(p.name for p in self.parameters)
            raise TypeError(
                f"{self.name}: {len(given)} arguments came; takes {len(self.parameters)}: {wanted or 'none'}"
            )
        device = None
        for parameter, value in zip(self.parameters, given, strict=True):
            arguments.check(self.name, parameter, value)
            for pointer, tensor in arguments.tensors(self.name, parameter, value):
                device = self._check_tensor(pointer.name, tensor, device)
        if not isinstance(shared, numbers.Integral) or shared < 0:
            raise ValueError(f"{self.name}: shared is {shared!r}; takes a number of bytes")
        return device or torch.device("cuda" if torch.cuda.is_available() and not emulation.active() else "cpu")

    def _check_tensor(self, name: str, value: torch.Tensor, device: torch.device | None) -> torch.device:
        """The device of this one and of those before."""
        if device is not None and value.device != device:
            raise ValueError(f"{self.name}: {name} is on {value.device}; takes tensors on {device}, all")
        if value.device.type not in ("cpu", "cuda"):
            raise ValueError(f"{self.name}: {name} is on {value.device}; takes tensors on a GPU or the cpu")
        if value.layout != torch.strided:
            raise TypeError(f"{self.name}: {name} is {value.layout}; takes torch.strided")
        if value.is_neg() or value.is_conj():
            raise ValueError(
                f"{self.name}: {name} is a negated or conjugated view, which memory does not show; takes what its "
                "resolve_neg() or resolve_conj() gives"
            )
        if not value.is_contiguous() and name not in self.strided:
            raise ValueError(
                f"{self.name}: {name} has shape {tuple(value.shape)} and strides {value.stride()}, and the kernel gets its "
                f"address alone; takes a contiguous tensor ({name}.contiguous()) or, with Kernel(…, strided=({name!r},)), "
                "any whose strides you pass as numbers"
            )
        return value.device

    def _check_target(self, target: arch.Target, grid, block, static: int, shared: int) -> None:
        # AMD counts a dimension's threads in 32 bits, NVIDIA its blocks in 31 and 16.
        limits = [(2**32 - 1) // size for size in block] if target.vendor == "amd" else [2**31 - 1, 65535, 65535]
        if any(size > limit for size, limit in zip(grid, limits, strict=True)):
            raise ValueError(f"{self.name}: grid is {grid}; {target.name} takes up to {tuple(limits)} of block {block}")
        threads = math.prod(block)
        if threads > target.max_threads:
            raise ValueError(
                f"{self.name}: block {block} has {threads} threads; {target.name} takes up to {target.max_threads}"
            )
        if static + shared > target.lds_bytes:
            raise ValueError(
                f"{self.name}: {static} + {shared} bytes of shared memory (static + dynamic); {target.name} takes up to "
                f"{target.lds_bytes}"
            )

    def _segment(self, given, placed: list[arguments.Slot]) -> bytes:
        """The arguments as the compiled code wants them in memory."""
        found = bytearray(placed[-1].offset + placed[-1].size if placed else 0)
        for parameter, slot, value in zip(self.parameters, placed, given, strict=True):
            content = arguments.packed(self.name, parameter, value, slot.size)
            found[slot.offset : slot.offset + slot.size] = content
        return bytes(found)

    def _launch(self, grid, block, *given, shared: int = 0) -> None:
        if len(self._declared) > 1 and self._settled_for != (target := self._target()):
            self._settled(self.compile(target))
        device = self._check(given, shared)
        if device.type == "cpu" and not driver.stands_in():
            active = emulation.active()
            if active is None:
                raise ValueError(
                    f"{self.name}: the tensors are on the cpu; takes tensors on a GPU, or a launch within "
                    "`with wmma_ops.emulate(target):`"
                )
            self._emulate(active, grid, block, given, shared)
        else:
            self._run(device, grid, block, given, shared)

    def _target(self) -> str:
        active = emulation.active()
        return (
            active.target
            if active is not None
            else driver.target_of(0 if driver.stands_in() else torch.cuda.current_device())
        )

    def _emulate(self, emulation, grid, block, given, shared: int) -> None:
        from wmma_ops.runtime.emulated import EmulatedKernel

        target = emulation.target
        if target not in self._emulated:
            code = self._compile_named(target)
            self._slots[target] = self._settled(code)
            self._emulated[target] = EmulatedKernel(code, self.name)
        kernel = self._emulated[target]
        self._check_target(kernel.target, grid, block, kernel.static_shared, shared)
        bound = kernel.program.kernel.facts.get("max_flat_workgroup_size", kernel.target.max_threads)
        if math.prod(block) > bound:
            raise ValueError(
                f"{self.name}: block {block} has {math.prod(block)} threads; its __launch_bounds__ is {bound}"
            )
        segment = self._segment(given, self._slots[target])
        tensors = {
            pointer.name: tensor
            for parameter, value in zip(self.parameters, given, strict=True)
            for pointer, tensor in arguments.tensors(self.name, parameter, value)
        }
        variables = {}
        if meets := kernel.has(cooperative.SYMBOL):
            key = target, math.prod(block), shared
            if key not in self._rooms:
                self._rooms[key] = cooperative.emulated_room(kernel.code, self.name, kernel.target, *key[1:])
            cooperative.check(self.name, kernel.target, grid, block, *self._rooms[key])
            variables[cooperative.SYMBOL] = bytearray(cooperative.CLEAR)
        run = functools.partial(kernel.run, emulation, grid, block, segment, tensors, shared, variables, meets)
        if not kernel.has(printing.SYMBOL):
            run()
            return
        words = tensors["what it prints"] = torch.zeros(self.print_bytes // 4, dtype=torch.int32)
        prints = printing.Buffer(words.numpy().view(np.uint32))
        state = variables[printing.SYMBOL] = bytearray(prints.state())

        def hear() -> str:
            place = functools.partial(printing.place, grid=grid, block=block, wave=kernel.target.wave)
            return printing.tell(self.name, *prints.read(state), prints.words.nbytes, place)

        try:
            run()
        except EmulationError as error:
            if failed := hear():
                raise Trap(f"{self.name} on {target}: {printing.at_the_kernels_line(failed, error.place)}") from None
            raise error from None
        hear()

    def _run(self, device: torch.device, grid, block, given, shared: int) -> None:
        index = device.index
        if index is None:
            index = 0 if device.type == "cpu" else torch.cuda.current_device()  # the cpu's is the tests' driver's
        key = index, driver.generation()
        if key not in self._loaded:
            if driver.capturing(index):
                raise CaptureError(
                    f"{self.name} is not loaded yet, and none can be while a CUDA graph is captured; launch it once before"
                )
            code = self.compile(driver.target_of(index))
            self._loaded[key] = Loaded(code, self.name, index, self._settled(code), self.print_bytes)
        loaded = self._loaded[key]
        self._check_target(loaded.target, grid, block, loaded.static_shared, shared)
        loaded.launch(grid, block, shared, self._segment(given, loaded.slots))


def _pointers(declared: Iterable[Parameter]) -> list[str]:
    """The names by which pointers are known, members of structs behind their struct's."""
    found = []
    for parameter in declared:
        if parameter.pointer:
            found.append(parameter.name)
        found += [f"{parameter.name}.{name}" for name in _pointers(parameter.members or ())]
    return found
