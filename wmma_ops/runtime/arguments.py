"""A launch's arguments as bytes: what values a parameter takes, and where the compiled code wants them."""

import ctypes
import math
import numbers
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from wmma_ops.emulator.placing import one_after_another
from wmma_ops.jit import CodeObject, metadata
from wmma_ops.runtime.parameters import FORMS, Parameter, laid_out

_AS_BYTES = (bytes, bytearray, memoryview, ctypes.Structure, ctypes.Union, np.void)
_STRUCTS = "bytes, a ctypes.Structure, a NumPy record, or a tuple of its members"


_NUMPY = {"float16": "half_t", "float32": "float", "float64": "double", "bool": "bool"} | {
    name: f"{name}_t" for bits in (8, 16, 32, 64) for name in (f"int{bits}", f"uint{bits}")
}


class Slot(NamedTuple):
    """Where an argument lies, as the compiled code tells."""

    offset: int
    size: int
    pointer: bool | None  # None where it is not told


def slots(code: CodeObject, name: str) -> list[Slot] | None:
    """Of each parameter of a kernel; None where neither metadata nor PTX is there to tell."""
    if code.target.startswith("gfx"):
        found = metadata.arguments(code.code, name)
        return found and [Slot(a["offset"], a["size"], a["value_kind"] == "global_buffer") for a in found]
    match = re.search(rf"\.entry {re.escape(name)}\((.*?)\)\s*[{{.]", code.assembly or "", re.S)
    if match is None:
        return None
    parts = []
    for alignment, bits, count in re.findall(
        r"\.param(?: \.align (\d+))? \.[a-z](\d+)(?: \.ptr[^,]*?)? \w+(?:\[(\d+)\])?", match[1]
    ):
        size = int(bits) // 8 * int(count or 1)
        parts.append((size, int(alignment or size)))
    return [Slot(start, size, None) for start, (size, _) in zip(one_after_another(parts)[0], parts, strict=True)]


def fit(declared: Sequence[Parameter], placed: Sequence[Slot]) -> bool:
    """Whether the code's arguments may be those that a source declares."""

    def one(parameter: Parameter, slot: Slot) -> bool:
        told = parameter.one if not parameter.is_own else None
        return slot.pointer in (None, parameter.pointer) and (told is None or told[0] == slot.size)

    return len(declared) == len(placed) and all(map(one, declared, placed))


def check(kernel: str, parameter: Parameter, value) -> None:
    """Refuses a value that the parameter does not take, as far as its type tells."""
    kind = type(value).__name__
    if parameter.pointer:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{kernel}: {parameter.name} is of type {kind}; takes a tensor")
        if not parameter.takes(value.dtype):
            raise TypeError(f"{kernel}: {parameter.name} is {value.dtype}; takes {parameter.dtype}")
    elif parameter.is_own and isinstance(value, (*_AS_BYTES, tuple)):
        if isinstance(value, tuple):
            for member, given in _members(kernel, parameter, value):
                check(kernel, member, given)
    elif parameter.is_own and (parameter.members is not None or not isinstance(value, (float, np.number))):
        takes = _STRUCTS
        if isinstance(value, numbers.Real) and parameter.members is None:  # 2 may be meant as 2.0
            takes = f"{float(value)}, or a NumPy number of its kind, as numpy.int32({value!r}), or {_STRUCTS}"
        raise TypeError(f"{kernel}: {parameter.name} is of type {kind}; takes {takes} ({parameter.type})")
    elif not isinstance(value, numbers.Real) or (isinstance(value, bool) and parameter.type != "bool"):
        raise TypeError(f"{kernel}: {parameter.name} is of type {kind}; takes a number ({parameter.type})")
    elif FORMS.get(parameter.type, "d") not in "fd" and not isinstance(value, numbers.Integral):
        raise TypeError(f"{kernel}: {parameter.name} is {value!r}; takes a whole number ({parameter.type})")


def _members(kernel: str, parameter: Parameter, value: tuple) -> list[tuple[Parameter, object]]:
    """Each element of the members of a struct, named from outside, with what is given for it."""
    parameter = _told(kernel, parameter, value)
    wanted = ", ".join(map(str, parameter.members))
    if len(value) != len(parameter.members):
        raise TypeError(f"{kernel}: {parameter.name} has {len(value)} members; {parameter.type} takes {wanted}")
    found = []
    for member, given in zip(parameter.members, value, strict=True):
        elements = _flat(given, member.shape)
        if elements is None:
            raise TypeError(
                f"{kernel}: {parameter.name}.{member.name} takes {math.prod(member.shape)} values ({member})"
            )
        for index, element in enumerate(elements):
            label = f"{parameter.name}.{member.name}" + (f"[{index}]" if member.shape else "")
            found.append((Parameter(label, member.type, member.pointer, (), member.members), element))
    return found


def _told(kernel: str, parameter: Parameter, value: tuple) -> Parameter:
    """A struct with its members: those that the source tells, else those that the values are by themselves."""
    if parameter.members is not None:
        return parameter
    members = tuple(_by_itself(f"{index}", member) for index, member in enumerate(value))
    if None in members:
        raise TypeError(
            f"{kernel}: {parameter.name} is a tuple, and nothing tells the members of {parameter.type} plainly; takes "
            + _STRUCTS.replace("its members", "tensors and NumPy numbers")
        )
    return replace(parameter, members=members)


def _by_itself(name: str, value) -> Parameter | None:
    """The parameter that a value tells by itself: a pointer, or a number of its type; None of others."""
    if isinstance(value, torch.Tensor):
        return Parameter(name, "void", True)
    kind = _NUMPY.get(value.dtype.name) if isinstance(value, (np.number, np.bool_)) else None
    return kind and Parameter(name, kind, False)


def _flat(value, shape: tuple[int, ...]) -> list | None:
    """An array's elements in memory's order; None where there are more or fewer."""
    if not shape:
        return [value]
    if not hasattr(value, "__len__") or len(value) != shape[0]:
        return None
    parts = [_flat(part, shape[1:]) for part in value]
    return None if None in parts else [element for part in parts for element in part]


def tensors(kernel: str, parameter: Parameter, value) -> Iterator[tuple[Parameter, torch.Tensor]]:
    """The tensors of a value that was checked, within structs as well, with the parameter that takes each."""
    if isinstance(value, torch.Tensor):
        yield parameter, value
    elif isinstance(value, tuple):
        for member, given in _members(kernel, parameter, value):
            yield from tensors(kernel, member, given)


def packed(kernel: str, parameter: Parameter, value, size: int | None) -> bytes:
    """A value's bytes. `size` is the compiler's, for types that only the source knows."""
    if parameter.pointer:
        return struct.pack("<Q", value.data_ptr())
    if isinstance(value, _AS_BYTES):
        content = value.tobytes() if isinstance(value, (memoryview, np.void)) else bytes(value)
    elif isinstance(value, tuple):
        content = _struct(kernel, parameter, value)
    elif parameter.is_own and isinstance(value, np.number):
        content = value.tobytes()
    elif parameter.is_own:
        content = struct.pack({2: "<e", 8: "<d"}.get(size or 4, "<f"), value)
    else:
        content = _number(kernel, parameter, value)
    if size is not None and len(content) != size:
        raise TypeError(
            f"{kernel}: {parameter.name} has {len(content)} bytes; {parameter.type} has {size}"
            + (f", as {_STRUCTS}" if parameter.is_own else "")
        )
    return content


def _struct(kernel: str, parameter: Parameter, value: tuple) -> bytes:
    parameter = _told(kernel, parameter, value)
    starts, size, _ = laid_out(parameter.members)
    content = bytearray(size)
    elements = iter(_members(kernel, parameter, value))
    for member, start in zip(parameter.members, starts, strict=True):
        step = member.one[0]
        for index in range(math.prod(member.shape)):
            at = start + index * step
            content[at : at + step] = packed(kernel, *next(elements), step)
    return bytes(content)


def _number(kernel: str, parameter: Parameter, value) -> bytes:
    number = int(value) if isinstance(value, numbers.Integral) else float(value)
    form = FORMS.get(parameter.type)
    try:
        return struct.pack(f"<{form}", number) if form else _rounded(float(number), parameter.dtype)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"{kernel}: {parameter.name} is {value!r}; takes a {parameter.type}") from error


def _rounded(number: float, dtype: torch.dtype) -> bytes:
    """A number in one of the narrow types, which structs have no form for."""
    if math.isfinite(number) and abs(number) > torch.finfo(dtype).max:
        raise OverflowError(f"{number} is beyond {dtype}")
    return bytes(torch.tensor([number], dtype=torch.float64).to(dtype).view(torch.uint8).tolist())
