"""Machine code to instructions: by the LLVM of PyPI's rocm-llvm-python, else by an llvm-objdump that knows the target."""

import contextlib
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wmma_ops.jit import decoder, elf, files

PACKAGE = "rocm-llvm-python"
UNDECODED = "undecoded"  # in place of an instruction's name
_FALLS = 20  # bytes at which LLVM may end its process
_LINE = re.compile(r"^\t(?P<text>\S.*?)\s*// (?P<address>[0-9A-F]+): (?P<words>[0-9A-F ]+)", re.M)
_NAMED = re.compile(r"llvm-objdump(-\d+)?")


class Decoded(NamedTuple):
    address: int
    size: int
    text: str  # as the assembler takes it; branches have the number of words that they skip


class NoDisassembler(RuntimeError):
    """None is here that knows the target."""


def decode(code: bytes, target: str) -> list[Decoded]:
    """Every instruction of a code object's sections of code. What is none has its four bytes, as `undecoded 0x…`."""
    if path := library():
        return [one for section in _of_code(code) for one in _by_library(path, section, target)]
    for objdump in _objdumps(os.environ.get("PATH")):
        if found := _by_objdump(objdump, code):
            return found
    raise NoDisassembler(
        f"nothing here disassembles {target}: pip install {PACKAGE}, or an llvm-objdump on PATH that knows it, such as "
        "Debian's llvm-22"
    )


def available() -> bool:
    """Whether one for every target is here."""
    return library() is not None


@functools.cache
def library() -> str | None:
    """ROCm's LLVM, where its package is."""
    with contextlib.suppress(ModuleNotFoundError):
        found = importlib.util.find_spec("rocm.llvm")  # its modules would load more than is wanted
        for folder in (found.submodule_search_locations or ()) if found else ():
            if (path := Path(folder) / "librocmllvm.so").exists():
                return str(path)
    return None


def _by_library(library: str, section: elf.Section, target: str) -> Iterator[Decoded]:
    content, at = section.contents, 0
    for _ in range(_FALLS):
        place = str(section.address + at)
        done = subprocess.run(
            [sys.executable, "-I", decoder.__file__, library, target.partition(":")[0], place],
            input=content[at:],
            capture_output=True,
        )
        if done.returncode > 0:
            raise NoDisassembler(f"{PACKAGE} does not disassemble {target}: {_last(done.stderr)}")
        for line in done.stdout.decode().splitlines():
            size, _, text = line.partition(" ")
            yield Decoded(section.address + at, int(size) or 4, text or _undecoded(content[at : at + 4]))
            at += int(size) or 4
        if done.returncode == 0:
            return
        yield Decoded(section.address + at, 4, _undecoded(content[at : at + 4]))
        at += 4
    raise ValueError(f"0x{section.address + at:x}: bytes that are no instructions, at which LLVM ends {_FALLS} times")


def _last(stderr: bytes) -> str:
    return (stderr.decode(errors="replace").strip().splitlines() or ["it does not say why"])[-1]


def _of_code(code: bytes) -> list[elf.Section]:
    return [section for section in elf.sections(code) if section.flags & elf.EXECUTABLE and section.contents]


def _undecoded(word: bytes) -> str:
    return f"{UNDECODED} 0x{int.from_bytes(word, 'little'):08x}"


@functools.lru_cache(maxsize=4)
def _objdumps(path: str | None) -> tuple[str, ...]:
    """Of PATH, the newest first."""
    found: dict[str, None] = {}
    for folder in filter(None, (os.defpath if path is None else path).split(os.pathsep)):
        with contextlib.suppress(OSError):
            names = filter(_NAMED.fullmatch, os.listdir(folder))
            for name in sorted(names, key=lambda name: -int(name.rpartition("-")[2]) if name[-1].isdigit() else 0):
                found[str(Path(folder) / name)] = None
    return tuple(path for path in found if shutil.which(path))


def _by_objdump(objdump: str, code: bytes) -> list[Decoded] | None:
    """None where it does not know the target."""
    with files.temporary() as folder:
        file = Path(folder) / "code.co"
        file.write_bytes(code)
        # The file names its target.
        command = [objdump, "--disassemble", "--disassemble-zeroes", f"--mattr={decoder.HALVES}", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    if done.returncode:
        return None
    found = []
    for match in _LINE.finditer(done.stdout):
        words = match["words"].split()
        text = f"{UNDECODED} 0x{int(words[0], 16):08x}" if match["text"].startswith(".long") else match["text"]
        found.append(Decoded(int(match["address"], 16), 4 * len(words), text))
    return found or None
