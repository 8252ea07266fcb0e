"""A program of hiprtc or of NVRTC: the same C calls under two prefixes."""

import ctypes
import re
from pathlib import Path

from wmma_ops.jit import elf
from wmma_ops.jit.compiler import CodeObject, CompileError
from wmma_ops.jit.inputs import Inputs


class Program:
    """with Program(library, "nvrtc", source, name) as program: …"""

    def __init__(self, library: ctypes.CDLL, prefix: str, source: str, name: str):
        self._library, self._prefix, self._name = library, prefix, name
        self._handle = ctypes.c_void_p()
        status = self._call("CreateProgram", ctypes.byref(self._handle), source.encode(), name.encode(), 0, None, None)
        if status:
            raise RuntimeError(self.status_text(status))

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_):
        self._call("DestroyProgram", ctypes.byref(self._handle))

    def compile(self, options: list[str]) -> int:
        """The library's status: 0 is success."""
        array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        return self._call("CompileProgram", self._handle, len(options), array)

    def compiled(self, options: list[str], target: str, compiler: str, what: str, inputs: Inputs | None) -> CodeObject:
        """`what` is the machine code's name in the library."""
        status = self.compile(options)
        # kernel.hip(12): error: … is NVRTC's; as the other compilers write it
        log = re.sub(r"^(\S[^\n(]*)\((\d+)\): ", r"\1:\2: ", self.text("ProgramLog"), flags=re.MULTILINE)
        if status:
            message = f"{self._name} does not compile for {target} ({compiler}):"
            raise CompileError(message, target=target, compiler=compiler, log=log or self.status_text(status))
        code, assembly = self.get(what), self.text("PTX") if what == "CUBIN" else ""
        return CodeObject(target, compiler, code, assembly or None, log, elf.kernels(code), inputs)

    def get(self, what: str) -> bytes:
        """`what` is ProgramLog, Code, CUBIN or PTX; empty where there is none."""
        size = ctypes.c_size_t(0)
        if self._call(f"Get{what}Size", self._handle, ctypes.byref(size)) or not size.value:
            return b""
        buffer = ctypes.create_string_buffer(size.value)
        status = self._call(f"Get{what}", self._handle, buffer)
        return b"" if status else buffer.raw

    def text(self, what: str) -> str:
        return self.get(what).split(b"\0", 1)[0].decode(errors="replace").strip()

    def status_text(self, status: int) -> str:
        function = getattr(self._library, f"{self._prefix}GetErrorString")
        function.restype = ctypes.c_char_p
        return (function(status) or b"").decode(errors="replace") or f"status {status}"

    def _call(self, name: str, *arguments) -> int:
        return getattr(self._library, self._prefix + name)(*arguments)


def version(library: ctypes.CDLL, prefix: str) -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    getattr(library, f"{prefix}Version")(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def loaded(stem: str) -> list[str]:
    """Paths of the libraries `stem`.so… that this process has loaded, whoever loaded them."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return []
    paths = dict.fromkeys(line.split(maxsplit=5)[5] for line in lines if "/" in line)
    return [path for path in paths if re.fullmatch(rf"{re.escape(stem)}\.so[-.\w]*", Path(path).name)]


def first_that_loads(paths: list[str]) -> ctypes.CDLL | None:
    for path in paths:
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None
