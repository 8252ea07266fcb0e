"""`wmma_ops.Kernel`: a kernel of your own, compiled when it is first launched, on a GPU or under `wmma_ops.emulate`."""

import contextlib
import functools
import math
import numbers
import operator
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from wmma_ops import jit
from wmma_ops.emulator import shared_names
from wmma_ops.hardware import arch
from wmma_ops.ops.types import ELEMENTS
from wmma_ops.runtime import driver, emulation
from wmma_ops.runtime.emulated import EmulatedKernel

# What a parameter's type takes, by its shortest name: a tensor's dtype behind a pointer, or the form of a number.
_POINTED = {
    "_Float16": torch.float16,
    "uint8_t": torch.uint8,
    "int16_t": torch.int16,
    "int64_t": torch.int64,
    "int": torch.int32,
    "unsigned": torch.int32,
    "uint32_t": torch.int32,
    "signed char": torch.int8,
    "char": torch.int8,
    "unsigned char": torch.uint8,
    "short": torch.int16,
    "long long": torch.int64,
    "bool": torch.bool,
    **{row.device.removeprefix("wmma::"): row.dtype for row in ELEMENTS if row.dtype != torch.bool},
}
_UNSIGNED = ("unsigned", "uint32_t")  # these take torch.uint32 as well, for which torch has few functions
_NUMBERS = {
    "int": "i",
    "int32_t": "i",
    "unsigned": "I",
    "uint32_t": "I",
    "short": "h",
    "int16_t": "h",
    "unsigned short": "H",
    "uint16_t": "H",
    "long": "q",
    "long long": "q",
    "int64_t": "q",
    "unsigned long": "Q",
    "unsigned long long": "Q",
    "uint64_t": "Q",
    "size_t": "Q",
    "float": "f",
    "double": "d",
    "bool": "?",
    "char": "b",
    "signed char": "b",
    "int8_t": "b",
    "unsigned char": "B",
    "uint8_t": "B",
}


@dataclass(frozen=True)
class Parameter:
    name: str
    type: str  # without const, restrict and *
    pointer: bool

    @property
    def dtype(self) -> torch.dtype | None:
        """None where any is taken: void, or a name that the source defines."""
        return _POINTED.get(self.type)

    def takes(self, dtype: torch.dtype) -> bool:
        """Whether it may point to a tensor of this type."""
        return self.dtype in (None, dtype) or (self.type in _UNSIGNED and dtype == torch.uint32)


def parameters(source: str, name: str) -> tuple[Parameter, ...]:
    """The kernel's parameters as the source declares them."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.S)
    match = re.search(rf"__global__[^;{{}}]*?\b{re.escape(name)}\s*\(([^)]*)\)", text, re.S)
    if match is None:
        raise ValueError(f"Kernel: name is {name!r}, but the source has no `__global__ void {name}(…)`")
    found = []
    for part in filter(None, (p.strip() for p in match.group(1).split(","))):
        words = re.sub(
            r"\b(const|volatile|restrict|__restrict__|__restrict|struct)\b|wmma::|=.*", " ", part, flags=re.S
        )
        declared, *array = words.split("[")
        pointer = "*" in declared or bool(array)
        *kind, label = declared.replace("*", " ").split()
        if kind or label != "void":
            found.append(Parameter(label, _shortest(kind), pointer))
    return tuple(found)


def _shortest(words: list[str]) -> str:
    """`unsigned long` for `long unsigned int`."""
    if {"short", "long", "signed", "unsigned"} & set(words) and "double" not in words:
        words = sorted((word for word in words if word != "int"), key=lambda word: word not in ("signed", "unsigned"))
        if words[0] == "signed" and "char" not in words:
            words = words[1:] or ["int"]
    return " ".join(words)


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


class Kernel:
    """A kernel written in HIP C++ with the device library, launched like a function.

    Args:
        source: the text; ``#include <wmma/fragment.hpp>`` and its neighbours are found.
        name: an ``extern "C" __global__ void`` function in it.
        options: further compiler options, such as ``-DTILE=4``.
        strided: the names of pointers whose tensors need not be contiguous. The kernel gets a tensor's address alone: what
            strides it has, you pass as numbers.

    ``kernel[grid, block](*arguments, shared=bytes)`` launches it: tensors for pointers, numbers for the rest; grid and block
    are one to three numbers each, as on the device. Tensors on a GPU run there, on the current stream; tensors on the CPU
    run under ``with wmma_ops.emulate(target):``.

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

    def __init__(self, source: str, name: str, *, options: tuple[str, ...] = (), strided: tuple[str, ...] = ()):
        for argument, value in (("source", source), ("name", name)):
            if not isinstance(value, str):
                raise TypeError(f"Kernel: {argument} is of type {type(value).__name__}; takes a str")
        for argument, words in (("options", options), ("strided", strided)):
            if isinstance(words, str) or not all(isinstance(word, str) for word in words):
                raise TypeError(f"Kernel: {argument} is {words!r}; takes a tuple of str")
        self.source, self.name, self.options, self.strided = source, name, tuple(options), tuple(strided)
        self.parameters = parameters(source, name)
        pointers = [parameter.name for parameter in self.parameters if parameter.pointer]
        if unknown := set(self.strided).difference(pointers):
            raise ValueError(f"Kernel: strided has {sorted(unknown)}; takes pointers of {name}: {', '.join(pointers)}")
        self._emulated: dict[str, EmulatedKernel] = {}
        self._loaded: dict[int, tuple[int, arch.Target, list[int] | None]] = {}

    def __reduce__(self):  # copied and sent to other processes as its text, without what was compiled
        return functools.partial(type(self), options=self.options, strided=self.strided), (self.source, self.name)

    def __getitem__(self, launch):
        if not isinstance(launch, tuple) or len(launch) != 2:
            raise ValueError("Kernel: launch it as kernel[grid, block](…)")
        return functools.partial(self._launch, _triple(launch[0], "grid"), _triple(launch[1], "block"))

    def compile(self, target: str) -> jit.CodeObject:
        """The machine code for a target."""
        return jit.compile(self.source, target, options=self.options, name=f"{self.name}.hip")

    def _compile_named(self, target: str) -> jit.CodeObject:
        """The same machine code, with the names of shared memory in its log where the compiler can tell them."""
        if "__shared__" in self.source:
            with contextlib.suppress(jit.CompileError):
                options = self.options + shared_names.OPTIONS
                return jit.compile(self.source, target, options=options, name=f"{self.name}.hip")
        return self.compile(target)

    # Checks, before anything is launched.

    def _check(self, arguments, shared: int) -> torch.device:
        if len(arguments) != len(self.parameters):
            wanted = ", ".join(p.name for p in self.parameters)
            raise TypeError(
                f"{self.name}: {len(arguments)} arguments came; takes {len(self.parameters)}: {wanted or 'none'}"
            )
        device = None
        for parameter, value in zip(self.parameters, arguments, strict=True):
            kind = type(value).__name__
            if parameter.pointer:
                if not isinstance(value, torch.Tensor):
                    raise TypeError(f"{self.name}: {parameter.name} is of type {kind}; takes a tensor")
                if not parameter.takes(value.dtype):
                    raise TypeError(f"{self.name}: {parameter.name} is {value.dtype}; takes {parameter.dtype}")
                if device is not None and value.device != device:
                    raise ValueError(
                        f"{self.name}: {parameter.name} is on {value.device}; takes tensors on {device}, all"
                    )
                device = value.device
                if device.type not in ("cpu", "cuda"):
                    raise ValueError(f"{self.name}: {parameter.name} is on {device}; takes tensors on a GPU or the cpu")
                if value.layout != torch.strided:
                    raise TypeError(f"{self.name}: {parameter.name} is {value.layout}; takes torch.strided")
                if value.is_neg() or value.is_conj():
                    raise ValueError(
                        f"{self.name}: {parameter.name} is a negated or conjugated view, which memory does not show; takes "
                        "what its resolve_neg() or resolve_conj() gives"
                    )
                if not value.is_contiguous() and parameter.name not in self.strided:
                    raise ValueError(
                        f"{self.name}: {parameter.name} has shape {tuple(value.shape)} and strides {value.stride()}, and "
                        f"the kernel gets its address alone; takes a contiguous tensor ({parameter.name}.contiguous()) or, "
                        f"with Kernel(…, strided=({parameter.name!r},)), any whose strides you pass as numbers"
                    )
            elif not isinstance(value, numbers.Real) or (isinstance(value, bool) and parameter.type != "bool"):
                raise TypeError(f"{self.name}: {parameter.name} is of type {kind}; takes a number ({parameter.type})")
            elif _NUMBERS.get(parameter.type, "d") not in "fd" and not isinstance(value, numbers.Integral):
                raise TypeError(f"{self.name}: {parameter.name} is {value!r}; takes a whole number ({parameter.type})")
        if not isinstance(shared, numbers.Integral) or shared < 0:
            raise ValueError(f"{self.name}: shared is {shared!r}; takes a number of bytes")
        return device or torch.device("cuda" if torch.cuda.is_available() and not emulation.active() else "cpu")

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

    def _packed(self, arguments, sizes: list[int] | None = None) -> list[bytes]:
        """The arguments' bytes. `sizes` are the compiler's, for types that only the source knows."""
        packed = []
        for index, (parameter, value) in enumerate(zip(self.parameters, arguments, strict=True)):
            if parameter.pointer:
                packed.append(struct.pack("<Q", value.data_ptr()))
                continue
            number = int(value) if isinstance(value, numbers.Integral) else float(value)
            form = _NUMBERS.get(parameter.type)
            if form is None and parameter.dtype is None:
                size = sizes[index] if sizes else 4
                form = (
                    {2: "e", 4: "f", 8: "d"}.get(size, "f")
                    if isinstance(number, float)
                    else {1: "b", 2: "h", 8: "q"}.get(size, "i")
                )
            try:
                packed.append(struct.pack(f"<{form}", number) if form else _rounded(float(number), parameter.dtype))
            except (struct.error, OverflowError) as error:
                raise ValueError(f"{self.name}: {parameter.name} is {value!r}; takes a {parameter.type}") from error
        return packed

    def _launch(self, grid, block, *arguments, shared: int = 0) -> None:
        device = self._check(arguments, shared)
        if device.type == "cpu":
            active = emulation.active()
            if active is None:
                raise ValueError(
                    f"{self.name}: the tensors are on the cpu; takes tensors on a GPU, or a launch within "
                    "`with wmma_ops.emulate(target):`"
                )
            self._emulate(active, grid, block, arguments, shared)
        else:
            self._run(device, grid, block, arguments, shared)

    def _emulate(self, emulation, grid, block, arguments, shared: int) -> None:
        target = emulation.target
        if target not in self._emulated:
            self._emulated[target] = EmulatedKernel(self._compile_named(target), self.name)
        kernel = self._emulated[target]
        explicit = kernel.explicit
        self._check_target(kernel.target, grid, block, kernel.static_shared, shared)
        bound = kernel.program.kernel.facts.get("max_flat_workgroup_size", kernel.target.max_threads)
        if math.prod(block) > bound:
            raise ValueError(
                f"{self.name}: block {block} has {math.prod(block)} threads; its __launch_bounds__ is {bound}"
            )
        packed = self._packed(arguments, [a.size for a in explicit])
        segment = bytearray(explicit[-1].offset + explicit[-1].size if explicit else 0)
        for parameter, described, value in zip(self.parameters, explicit, packed, strict=True):
            if len(value) != described.size:
                raise TypeError(
                    f"{self.name}: {parameter.name} ({parameter.type}) has {described.size} bytes; pass a number of them"
                )
            segment[described.offset : described.offset + described.size] = value
        tensors = {
            parameter.name: value
            for parameter, value in zip(self.parameters, arguments, strict=True)
            if isinstance(value, torch.Tensor)
        }
        kernel.run(emulation, grid, block, bytes(segment), tensors, shared)

    def _run(self, device: torch.device, grid, block, arguments, shared: int) -> None:
        index = torch.cuda.current_device() if device.index is None else device.index
        if index not in self._loaded:
            target = driver.target_of(index)
            compiled = self.compile(target)
            function = driver.load(compiled.code, self.name, device=index)
            self._loaded[index] = (function, arch.target(target), _ptx_sizes(compiled.assembly, self.name))
        function, target, sizes = self._loaded[index]
        self._check_target(target, grid, block, 0, shared)
        buffer = bytearray()
        for value in self._packed(arguments, sizes):  # each at a multiple of its size, as in a struct
            buffer += bytes(-len(buffer) % len(value)) + value
        driver.launch(function, grid, block, shared, bytes(buffer))


def _rounded(number: float, dtype: torch.dtype) -> bytes:
    """A number in one of the narrow types, which structs have no form for."""
    if math.isfinite(number) and abs(number) > torch.finfo(dtype).max:
        raise OverflowError(f"{number} is beyond {dtype}")
    return bytes(torch.tensor([number], dtype=torch.float64).to(dtype).view(torch.uint8).tolist())


def _ptx_sizes(ptx: str | None, name: str) -> list[int] | None:
    """The bytes of each of a kernel's parameters."""
    match = re.search(rf"\.entry {re.escape(name)}\((.*?)\)", ptx or "", re.S)
    if match is None:
        return None
    return [int(bits) // 8 for bits in re.findall(r"\.param \.[a-z](\d+)", match.group(1))]
