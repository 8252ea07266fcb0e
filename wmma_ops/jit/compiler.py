"""What every compiler takes, gives and raises."""

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class CodeObject:
    """Machine code for one exact target."""

    target: str
    compiler: str  # name and version
    code: bytes = field(repr=False)  # an ELF file: AMD's code object, or a cubin
    assembly: str | None = field(repr=False)  # clang: what the code was assembled from; NVRTC: PTX; hiprtc: None
    log: str = field(repr=False)  # warnings
    kernels: tuple[str, ...]  # as the driver looks them up


class CompileError(RuntimeError):
    """A source that does not compile, or a compiler that is not there. `log` is the compiler's own text."""

    def __init__(self, message: str, *, target: str, compiler: str, log: str = ""):
        super().__init__(f"{message}\n{log}" if log else message)
        self.target, self.compiler, self.log = target, compiler, log

    def __reduce__(self):  # exceptions with keyword arguments do not pickle by themselves
        return _restored, (self.args, self.__dict__)


def _restored(arguments: tuple, attributes: dict) -> CompileError:
    error = CompileError.__new__(CompileError, *arguments)
    error.__dict__.update(attributes)
    return error


class Compiler(Protocol):
    name: str
    flags: tuple[str, ...]  # those of every compilation, for the cache's key: without paths of this machine

    def available(self, target: str) -> bool: ...

    def version(self, target: str) -> str:
        """Raises CompileError, saying how to get this compiler, where none here compiles for `target`."""

    def compile(self, source: str, target: str, options: tuple[str, ...], name: str) -> CodeObject: ...
