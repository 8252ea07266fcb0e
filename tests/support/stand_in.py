"""A driver's library that stands in for a GPU's (stand_in_driver.c): its calls are noted, its launches are emulated."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import arguments

from wmma_ops.runtime import emulation, launching
from wmma_ops.runtime.emulated import EmulatedKernel

TARGET = "gfx1201"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
LOAD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
FIND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p)
VARIABLE = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t))
RUN = ctypes.CFUNCTYPE(
    None, ctypes.c_int, ctypes.POINTER(ctypes.c_uint), ctypes.c_uint, ctypes.c_void_p, ctypes.c_size_t
)


def build(folder: Path, *options: str) -> Path:
    path = folder / "libstand_in.so"
    source = Path(__file__).parent / "stand_in_driver.c"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", *options, "-o", path, source], check=True)
    return path


class Device:
    """The stand-in's other side: memory is the CPU's, and a kernel runs on the emulator."""

    def __init__(self, path: Path):
        self.library = ctypes.CDLL(str(path))
        self.library.noted.restype = self.library.mapped.restype = ctypes.c_char_p
        self.modules: list[bytes] = []  # the code objects as the driver got them
        self.functions: list[EmulatedKernel] = []
        self.codes: list = []  # of the code objects that may be loaded
        self.launches: list[tuple] = []
        self.memory = lambda data: arguments.memory(data, 2)  # what a launch may touch; None executes none
        self.kernel = EmulatedKernel  # what stands for a function of a module
        self.errors: list[BaseException] = []
        self.callbacks = (LOAD(self._load), FIND(self._find), VARIABLE(self._variable), RUN(self._run))
        self.library.stand_in(*self.callbacks)
        self.library.forget()
        self.library.fail(b"", 0)

    def _load(self, at):
        for index, code in enumerate(self.codes):
            if ctypes.string_at(at, len(code.code)) == code.code:
                return index + 1
        self.errors.append(AssertionError("a code object that nobody compiled"))
        return 0

    def _find(self, module, name):
        self.functions.append(self.kernel(self.codes[module - 1], name.decode()))
        return len(self.functions)

    def _variable(self, module, name, size):
        """Where the module's kernel that was found first has a variable; 0 where it has none."""
        kernel = next(kernel for kernel in self.functions if kernel.code == self.codes[module - 1])
        found = kernel.program.variable(name.decode())
        size[0] = 0 if found is None else found.size
        return 0 if found is None else found.ctypes.data

    def _run(self, function, sizes, shared, buffer, size):
        try:
            kernel = self.functions[function - 1]
            cooperative = size == ctypes.c_size_t(-1).value
            if cooperative:  # the buffer has the addresses of the arguments
                slots = kernel.explicit
                data = bytearray(slots[-1].offset + slots[-1].size)
                for slot, at in zip(slots, (ctypes.c_void_p * len(slots)).from_address(buffer), strict=True):
                    data[slot.offset : slot.offset + slot.size] = ctypes.string_at(at, slot.size)
                data = bytes(data)
            else:
                data = ctypes.string_at(buffer, size or kernel.explicit[0].size)
            self.launches.append((kernel.name, tuple(sizes[:3]), tuple(sizes[3:6]), shared, data))
            if self.memory is not None:
                run = emulation.Emulation(kernel.code.target)
                kernel.run(
                    run, tuple(sizes[:3]), tuple(sizes[3:6]), data, self.memory(data), shared, cooperative=cooperative
                )
        except BaseException as error:
            self.errors.append(error)

    @property
    def noted(self) -> list[str]:
        return self.library.noted().decode().split()

    def note_compiled(self, monkeypatch):
        """Every code object that is compiled may be loaded."""
        compile = launching.jit.compile

        def noting(*arguments, **keywords):
            code = compile(*arguments, **keywords)
            self.codes.append(code)
            return code

        monkeypatch.setattr(launching.jit, "compile", noting)
