"""`wmma_ops.Kernel`: a kernel of your own, compiled when it is first launched, on a GPU or under `wmma_ops.emulate`."""

import contextlib
import functools
import math
import os

from wmma_ops import jit
from wmma_ops.emulator import shared_names
from wmma_ops.hardware import arch
from wmma_ops.runtime import arguments, foreign
from wmma_ops.runtime.launched import Launched
from wmma_ops.runtime.parameters import declarations, least_threads


class Kernel(Launched):
    """A kernel written in HIP C++ with the device library, launched like a function.

    Args:
        source: the text; ``#include <wmma/fragment.hpp>`` and its neighbours are found.
        name: a ``__global__ void`` function in it, the only one of that name; of a template, the one that the source
            instantiates: ``"f"`` with ``template __global__ void f<float>(float*);``.
        options: further compiler options, such as ``-DTILE=4``.
        strided: the names of pointers whose tensors need not be contiguous. The kernel gets a tensor's address alone: what
            strides it has, you pass as numbers.
        print_bytes: room for what a launch prints; what finds none is dropped, and told.

    ``kernel[grid, block](*arguments, shared=bytes)`` launches it: tensors for pointers, numbers for the rest; grid and block
    are one to three numbers each, as on the device. A struct by value is given as its bytes, a ``ctypes.Structure``, a NumPy
    record, or a tuple of its members, with sequences for arrays and tensors for pointers. Tensors on a GPU run there, on the
    current stream; tensors on the CPU run under ``with wmma_ops.emulate(target):``.

    Examples:
        >>> import torch, wmma_ops
        >>> scale = wmma_ops.Kernel('''
        ... #include <wmma/grid.hpp>
        ... extern "C" __global__ void scale(float* x, int n, float factor) {
        ...   int i = blockIdx.x * blockDim.x + threadIdx.x;
        ...   if (i < n) x[i] *= factor;
        ... }''', "scale")
        >>> x = torch.ones(100)
        >>> with wmma_ops.emulate("gfx942"):
        ...     scale[1, 128](x, 100, 3.0)
        >>> x.sum()
        tensor(300.)
    """

    def __init__(
        self,
        source: str,
        name: str,
        *,
        options: tuple[str, ...] = (),
        strided: tuple[str, ...] = (),
        print_bytes: int = 1 << 20,
    ):
        for argument, value in (("source", source), ("name", name)):
            if not isinstance(value, str):
                raise TypeError(f"Kernel: {argument} is of type {type(value).__name__}; takes a str")
        for argument, words in (("options", options), ("strided", strided)):
            if isinstance(words, str) or not all(isinstance(word, str) for word in words):
                raise TypeError(f"Kernel: {argument} is {words!r}; takes a tuple of str")
        self.source, self.options = source, tuple(options)
        self._least_threads = least_threads(source, name, self.options)
        super().__init__(name, declarations(source, name, self.options), strided, print_bytes)

    @staticmethod
    def from_code_object(
        file: str | os.PathLike, name: str | None = None, *, strided: tuple[str, ...] = (), print_bytes: int = 1 << 20
    ) -> foreign.ForeignKernel:
        """A kernel that another compiler made, or another's hand: of an AMD code object, a file that ends in .co or .hsaco.

        It launches on the target that it is for, on a GPU or under ``wmma_ops.emulate``, where its instructions are
        executed. For that they are disassembled, by PyPI's rocm-llvm-python (``pip install rocm-llvm-python``) or an
        llvm-objdump on PATH that knows the target.

        Args:
            file: the code object.
            name: the kernel, by its symbol or by its plain name in C++; without it, the only one.
            strided: as `Kernel` takes it.
            print_bytes: as `Kernel` takes it.

        Its arguments are those of its metadata, in order or by name, but for such as are called padding. Metadata tells no
        types: a pointer takes any tensor, or None for a null pointer; anything else its bytes, a float of its size, or a
        NumPy number, ``numpy.int32(5)``.
        """
        return foreign.read(file, name, strided=strided, print_bytes=print_bytes)

    def __reduce__(self):  # copied and sent to other processes as its text, without what was compiled
        options = {"options": self.options, "strided": self.strided, "print_bytes": self.print_bytes}
        return functools.partial(type(self), **options), (self.source, self.name)

    def compile(self, target: str) -> jit.CodeObject:
        """The machine code for a target."""
        return jit.compile(self.source, target, options=self.options, name=f"{self.name}.hip")

    def _compile_named(self, target: str) -> jit.CodeObject:
        if "__shared__" in self.source:
            with contextlib.suppress(jit.CompileError):
                options = self.options + shared_names.OPTIONS
                return jit.compile(self.source, target, options=options, name=f"{self.name}.hip")
        return self.compile(target)

    def _check_target(self, target: arch.Target, grid, block, static: int, shared: int) -> None:
        super()._check_target(target, grid, block, static, shared)
        if target.vendor == "amd" and math.prod(block) < self._least_threads:
            raise ValueError(
                f"{self.name}: block {block} has {math.prod(block)} threads; its amdgpu_flat_work_group_size takes "
                f"{self._least_threads} or more"
            )

    def _settled(self, code: jit.CodeObject) -> list[arguments.Slot]:
        """Where the compiled code has its arguments, and of the source's definitions the one that was compiled."""
        placed = arguments.slots(code, code.entry(self.name))
        if placed is None:
            raise ValueError(f"{self.name}: what {code.compiler} made for {code.target} does not tell its arguments")
        found = next((declared for declared in self._declared if arguments.fit(declared, placed)), None)
        if found is None:
            raise ValueError(
                f"{self.name}: the source declares ({', '.join(map(str, self.parameters))}), and the compiled code takes "
                f"{len(placed)} arguments of {', '.join(str(slot.size) for slot in placed)} bytes; takes a definition "
                "that is written out, without macros for its parameters"
            )
        self.parameters, self._settled_for = found, code.target
        return placed
