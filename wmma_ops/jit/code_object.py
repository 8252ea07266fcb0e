"""AMD's code objects that others compiled: what they say of themselves, checked before anything is run."""

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from wmma_ops.hardware import arch
from wmma_ops.jit import elf, listing, metadata
from wmma_ops.jit.compiler import CodeObject

_HSA = 64  # in the file's head: for ROCm's runtime
_BUNDLES = (b"__CL", b"CCOB")
# The processor in the flags of the file's head.
_PROCESSORS = {
    0x2F: "gfx906", 0x30: "gfx908", 0x3F: "gfx90a", 0x40: "gfx940", 0x4B: "gfx941", 0x4C: "gfx942", 0x4F: "gfx950",
    0x36: "gfx1030", 0x41: "gfx1100", 0x46: "gfx1101", 0x47: "gfx1102", 0x44: "gfx1103", 0x43: "gfx1150",
    0x4A: "gfx1151", 0x55: "gfx1152", 0x58: "gfx1153", 0x48: "gfx1200", 0x4E: "gfx1201", 0x49: "gfx1250",
}  # fmt: skip
_DAMAGE = (
    struct.error, UnicodeDecodeError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError, RecursionError,
)  # fmt: skip


class CodeObjectError(ValueError):
    """A file that is no code object, or none that runs here; one line says why."""


def read(file: str | os.PathLike, target: str | None = None) -> CodeObject:
    """A code object from a file; of `target`, where one is named. Its assembly is made when something reads it."""
    path = Path(file)
    asked = None if target is None else arch.target(target)
    if asked and asked.vendor != "amd":
        raise CodeObjectError(f"{path}: code objects are AMD's, and {target} was asked for, which is NVIDIA's")
    try:
        code = path.read_bytes()
    except OSError as error:
        raise CodeObjectError(f"{path}: {error.strerror or error}") from None
    with _read(path, code):
        found = _processor(code)
        kernels = metadata.kernels(code)
        entries = tuple(name for name in elf.kernels(code) if name in kernels)
        for name in entries:
            metadata.arguments(code, name)
    if found not in arch.TARGETS:
        raise CodeObjectError(f"{path}: is for {found}; takes one for {', '.join(arch.EMULATED)}")
    if asked and found != asked.name:
        raise CodeObjectError(f"{path}: is for {found}, and {target} was asked for")
    if not kernels:
        raise CodeObjectError(f"{path}: has no metadata of kernels (code objects of version 3 or later have it)")
    if not entries:
        raise CodeObjectError(f"{path}: has no symbol of a kernel that its metadata names: {', '.join(kernels)}")
    return CodeObject(found, f"another compiler ({path.name})", code, None, "", entries)


def assembly(code: CodeObject) -> str:
    """What it was assembled from, or could have been. Raises NoDisassembler, saying what to install."""
    if code.assembly is not None:
        return code.assembly
    with _read(code.compiler, code.code):
        return listing.listing(code.code, code.target)


@contextlib.contextmanager
def _read(what: object, code: bytes) -> Iterator[None]:
    """Within it, whatever a damaged file leads to is told as that."""
    try:
        yield
    except _DAMAGE as error:
        raise CodeObjectError(f"{what}: is cut off, or damaged: {len(code)} bytes of an ELF file") from error
    except ValueError as error:
        raise CodeObjectError(f"{what}: {error}") from None


def _processor(code: bytes) -> str:
    if code[:4] != b"\x7fELF":
        is_bundle = code[:4] in _BUNDLES
        what = "a bundle of several targets' (clang-offload-bundler takes one out)" if is_bundle else "no ELF file"
        raise ValueError(f"is {what}; takes a code object")
    (machine,), (flags,) = struct.unpack_from("<H", code, 0x12), struct.unpack_from("<I", code, 0x30)
    if machine != elf.MACHINE_AMDGPU or code[7] != _HSA:
        raise ValueError("is an ELF file, but no code object of AMD's ROCm")
    found = elf.sections(code)
    if not found or any(len(one.contents) != one.size for one in found if one.kind != elf.NOBITS):
        raise IndexError
    return _PROCESSORS.get(flags & 0xFF, f"a processor of number 0x{flags & 0xFF:x}")
