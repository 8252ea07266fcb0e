"""Reads the kernels' names out of a code object: 64-bit little-endian ELF, AMD's or NVIDIA's."""

import struct

_MACHINE_CUDA, _MACHINE_AMDGPU = 190, 224
_SYMTAB, _FUNC = 2, 2
_CUDA_ENTRY = 0x10  # in st_other, marks a __global__ function


def sections(code: bytes) -> list[tuple[str, int, int, bytes]]:
    """(name, type, link, contents) of every section."""
    (start,) = struct.unpack_from("<Q", code, 0x28)
    size, count, names = struct.unpack_from("<HHH", code, 0x3A)
    rows = [struct.unpack_from("<IIQQQQII", code, start + i * size) for i in range(count)]
    strings = code[rows[names][4] :] if rows else b""
    nobits = 8
    return [
        (_string(strings, row[0]), row[1], row[6], b"" if row[1] == nobits else code[row[4] : row[4] + row[5]])
        for row in rows
    ]


def size_of(code: bytes, section: str) -> int:
    """The bytes that a section has once it is loaded, those that the file leaves out too; 0 where there is none."""
    (start,) = struct.unpack_from("<Q", code, 0x28)
    (size,) = struct.unpack_from("<H", code, 0x3A)
    names = [name for name, *_ in sections(code)]
    at = names.index(section) if section in names else None
    return 0 if at is None else struct.unpack_from("<IIQQQQII", code, start + at * size)[5]


def kernels(code: bytes) -> tuple[str, ...]:
    """The kernels that a driver can look up in `code`, in the order of its symbols; none where it is no ELF file."""
    if code[:4] != b"\x7fELF":
        return ()
    (machine,) = struct.unpack_from("<H", code, 0x12)
    found = sections(code)
    names = []
    for _, kind, link, contents in found:
        if kind != _SYMTAB:
            continue
        for name_at, info, other, _section, _value, _size in struct.iter_unpack("<IBBHQQ", contents):
            name = _string(found[link][3], name_at)
            if machine == _MACHINE_AMDGPU and name.endswith(".kd"):  # the descriptor that stands beside each kernel
                names.append(name[: -len(".kd")])
            elif machine == _MACHINE_CUDA and info & 0xF == _FUNC and other & _CUDA_ENTRY:
                names.append(name)
    return tuple(names)


def _string(table: bytes, at: int) -> str:
    return table[at : table.index(0, at)].decode()
