"""What code objects, AMD's above all, tell their driver of each kernel: registers, shared memory, scratch, arguments."""

import struct

from wmma_ops.hardware.occupancy import RESERVED_SHARED
from wmma_ops.jit import elf


def of_kernels(code: bytes) -> dict[str, dict[str, int]]:
    """The numbers of each kernel."""
    return {
        name: {key[1:]: int(value) for key, value in kernel.items() if isinstance(value, int)}
        for name, kernel in kernels(code).items()
    }


def arguments(code: bytes, name: str) -> list[dict] | None:
    """Offset, size and kind of each argument that the source declares of a kernel, and its name, where the compiler tells
    that; None where the code does not tell."""
    kernel = kernels(code).get(name)
    if kernel is None:
        return None
    keys = (".offset", ".size", ".value_kind")
    found = ({key[1:]: one[key] for key in keys} | {"name": one.get(".name", "")} for one in kernel.get(".args", ()))
    return [one for one in found if not one["value_kind"].startswith("hidden")]


def static_shared(code: bytes, name: str) -> int:
    """The bytes of shared memory that a kernel itself declares, AMD's or NVIDIA's."""
    if (found := of_kernels(code).get(name)) is not None:
        return found.get("group_segment_fixed_size", 0)
    titles = [section.name for section in elf.sections(code)]
    # From sm_90 on, the section holds what every block takes, too.
    reserved = RESERVED_SHARED if any(title.startswith(".nv.shared.reserved") for title in titles) else 0
    return max(elf.size_of(code, f".nv.shared.{name}") - reserved, 0)


def kernels(code: bytes) -> dict[str, dict]:
    """Each kernel's metadata, out of the ELF note in which the driver finds it."""
    sections = elf.sections(code) if code[:4] == b"\x7fELF" else ()
    for section in sections:
        if section.name == ".note":
            owner, size, _ = struct.unpack_from("<III", section.contents)
            start = 12 + -(-owner // 4) * 4
            root, _ = _unpack(section.contents[start : start + size], 0)
            return {kernel[".name"]: _checked(kernel) for kernel in root.get("amdhsa.kernels", ())}
    return {}


_SEGMENT = 1 << 20  # bytes of arguments: more than any driver takes


_COUNTS = frozenset(
    """.vgpr_count .sgpr_count .agpr_count .wavefront_size .max_flat_workgroup_size .kernarg_segment_size
    .group_segment_fixed_size .private_segment_fixed_size""".split()
)


def _is_count(value: object, most: int = (1 << 32) - 1) -> bool:
    return isinstance(value, int) and 0 <= value <= most


def _checked(kernel: dict) -> dict:
    """A kernel's metadata, all of whose names are names and whose numbers are numbers."""
    arguments = kernel.get(".args", ())
    for name in (*kernel, kernel[".name"], kernel[".symbol"], *(one[".value_kind"] for one in arguments)):
        elf.named(name)
    for key, value in kernel.items():
        if (key in _COUNTS or isinstance(value, int)) and not _is_count(value):
            raise ValueError(f"{key} of {kernel['.name']} is {value!r}; takes a number of 32 bits")
    if not all(map(_is_count, kernel.get(".reqd_workgroup_size", ()))):
        raise ValueError(f"{kernel['.name']} takes blocks of {kernel['.reqd_workgroup_size']!r} threads")
    for one in arguments:
        elf.named(one.get(".name") or one[".value_kind"])
        offset, size = one[".offset"], one[".size"]
        if not (_is_count(offset, _SEGMENT) and _is_count(size, _SEGMENT - offset)):
            raise ValueError(
                f"an argument of {kernel['.name']} has {size!r} bytes at {offset!r}; its arguments take up to {_SEGMENT}"
            )
    return kernel


_MSGPACK = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_LENGTH = {0xD9: (">B", str), 0xDA: (">H", str), 0xDC: (">H", list), 0xDD: (">I", list), 0xDE: (">H", dict)}


def _unpack(data: bytes, at: int) -> tuple:
    """(value, end) of what MessagePack has at `at`: the kinds that LLVM writes."""
    head, at = data[at], at + 1
    if head < 0x80:
        return head, at
    if head in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[head], at
    if head in _MSGPACK:
        return struct.unpack_from(_MSGPACK[head], data, at)[0], at + struct.calcsize(_MSGPACK[head])
    if head in _LENGTH:
        form, kind = _LENGTH[head]
        (count,) = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
    else:
        kind, count = (str, head & 31) if head >= 0xA0 else (list, head & 15) if head >= 0x90 else (dict, head & 15)
    if kind is str:
        return data[at : at + count].decode(), at + count
    values = []
    for _ in range(count * (2 if kind is dict else 1)):
        value, at = _unpack(data, at)
        values.append(value)
    return (dict(zip(values[::2], values[1::2], strict=True)) if kind is dict else values), at
