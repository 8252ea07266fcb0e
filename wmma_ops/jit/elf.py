"""Reads a code object: 64-bit little-endian ELF, AMD's or NVIDIA's."""

import re
import struct
from typing import NamedTuple

MACHINE_CUDA, MACHINE_AMDGPU = 190, 224
PROGBITS, RELA, NOBITS = 1, 4, 8
FUNC, OBJECT = 2, 1
WRITABLE, ALLOCATED, EXECUTABLE = 1, 2, 4
SYMTAB, DYNSYM = 2, 11
NAME = re.compile(r"[\w.$@]+")  # of a symbol or an argument
_UNNAMED = (3, 4)  # symbols of sections and of sources, whose names nobody asks for
_LONGEST = 1 << 16
_HEADER = struct.Struct("<IIQQQQIIQQ")
_CUDA_ENTRY = 0x10  # in st_other, marks a __global__ function


class Section(NamedTuple):
    name: str
    kind: int
    link: int
    contents: bytes  # none of those that the file leaves out
    address: int
    size: int  # once it is loaded
    flags: int


class Symbol(NamedTuple):
    name: str
    kind: int
    other: int
    address: int
    size: int


def named(text: str) -> str:
    """The name itself, if it is one that symbols and arguments have."""
    if NAME.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no name: takes letters, digits, _, ., $ and @")
    return text


def sections(code: bytes) -> list[Section]:
    (start,) = struct.unpack_from("<Q", code, 0x28)
    size, count, names = struct.unpack_from("<HHH", code, 0x3A)
    if count and size != _HEADER.size:
        raise ValueError(f"its section headers have {size} bytes")
    rows = [_HEADER.unpack_from(code, start + i * size) for i in range(count)]
    if sum(length for _, kind, _, _, _, length, *_ in rows if kind != NOBITS) > len(code):
        raise ValueError("its sections overlap, or lie behind its end")
    strings = code[rows[names][4] :] if rows else b""
    return [
        Section(
            _string(strings, name),
            kind,
            link,
            b"" if kind == NOBITS else code[at : at + length],
            address,
            length,
            flags,
        )
        for name, kind, flags, address, at, length, link, *_ in rows
    ]


def symbols(code: bytes, kinds: tuple[int, ...] = (SYMTAB, DYNSYM)) -> list[Symbol]:
    """Those of the tables of the given kinds."""
    found = sections(code)
    return [
        Symbol(_named(found[table.link].contents, name, info & 0xF), info & 0xF, other, value, size)
        for table in found
        if table.kind in kinds
        for name, info, other, _, value, size in struct.iter_unpack("<IBBHQQ", table.contents)
    ]


def relocations(code: bytes) -> dict[int, tuple[int, str, int]]:
    """Of what is loaded: address -> (kind, symbol, addend)."""
    found = sections(code)
    placed = {}
    for section in found:
        if section.kind == RELA and section.flags & ALLOCATED:
            names = [
                _named(found[found[section.link].link].contents, name, info & 0xF)
                for name, info, *_ in struct.iter_unpack("<IBBHQQ", found[section.link].contents)
            ]
            for address, info, addend in struct.iter_unpack("<QQq", section.contents):
                placed[address] = info & 0xFFFFFFFF, names[info >> 32], addend
    return placed


def size_of(code: bytes, section: str) -> int:
    """The bytes that a section has once it is loaded, those that the file leaves out too; 0 where there is none."""
    return next((found.size for found in sections(code) if found.name == section), 0)


def kernels(code: bytes) -> tuple[str, ...]:
    """The kernels that a driver can look up in `code`, in the order of its symbols; none where it is no ELF file."""
    if code[:4] != b"\x7fELF":
        return ()
    (machine,) = struct.unpack_from("<H", code, 0x12)
    found = symbols(code, (SYMTAB,)) or symbols(code)  # those of a stripped file are in the other
    if machine == MACHINE_AMDGPU:  # the descriptor that stands beside each kernel
        return tuple(symbol.name[: -len(".kd")] for symbol in found if symbol.name.endswith(".kd"))
    is_entry = (symbol.kind == FUNC and bool(symbol.other & _CUDA_ENTRY) for symbol in found)
    return tuple(
        symbol.name for symbol, wanted in zip(found, is_entry, strict=True) if wanted and machine == MACHINE_CUDA
    )


def _named(table: bytes, at: int, kind: int) -> str:
    """A symbol's name; the first symbol of a table has none."""
    name = _string(table, at)
    return named(name) if name and kind not in _UNNAMED else name


def _string(table: bytes, at: int) -> str:
    found = table[at : table.index(0, at, at + _LONGEST)].decode()
    if not found.isprintable():
        raise ValueError(f"{found!r} is no name")
    return found
