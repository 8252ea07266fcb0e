"""What every compiler takes, gives and raises."""

import re
from dataclasses import dataclass, field
from typing import Protocol

from wmma_ops.jit import undeclared
from wmma_ops.jit.inputs import Inputs


@dataclass(frozen=True)
class CodeObject:
    """Machine code for one exact target."""

    target: str
    compiler: str  # name and version
    code: bytes = field(repr=False)  # an ELF file: AMD's code object, or a cubin
    assembly: str | None = field(repr=False)  # clang: what the code was assembled from; NVRTC: PTX; hiprtc: None
    log: str = field(repr=False)  # warnings
    kernels: tuple[str, ...]  # as the driver looks them up
    inputs: Inputs | None = field(default=Inputs(), repr=False)  # None: it may have read what nobody tells of

    def entry(self, name: str) -> str:
        """The kernel that the source calls `name`, as the driver looks it up: C++ adds its namespace and parameters."""
        found = [name] if name in self.kernels else [kernel for kernel in self.kernels if _plain(kernel) == name]
        if len(found) == 1:
            return found[0]
        if found:
            raise ValueError(
                f"{name!r} names {len(found)} kernels, {', '.join(found)}; takes a name that one kernel has"
            )
        raise ValueError(
            f"{name!r} is not in the compiled code, which has {', '.join(self.kernels) or 'no kernel'}; takes a __global__ "
            "function, and of a template one that the source instantiates"
        )


def _plain(mangled: str) -> str:
    """The function's own name in a symbol of C++: blur of _ZN4mine4blurEPf."""
    rest = re.match(r"_Z(N?)[rVK]*", mangled)
    names, at = [""], rest.end() if rest else len(mangled)
    while found := re.match(r"L?(\d+)", mangled[at:]):
        at += found.end()
        names.append(mangled[at : at + int(found[1])])
        at += int(found[1])
        if not rest[1]:  # outside a namespace: what follows is the first parameter's type
            break
    return names[-1]


_HOST = re.compile(
    r"error: (?:(?:use of undeclared identifier|unknown type name) '?(std|thrust|hip[A-Z]\w*|__hipPush\w+)\b"
    r"|no (?:member|type) named '\w+' in namespace 'std')"
)
_FOR_THE_HOST = (
    "What runs on the host (std, hipMalloc, kernel<<<…>>>, main) is left out: only device code compiles here."
)


class CompileError(RuntimeError):
    """A source that does not compile, or a compiler that is not there. `log` is the compiler's own text."""

    def __init__(self, message: str, *, target: str, compiler: str, log: str = ""):
        lines = [message, log, undeclared.advice(log), _FOR_THE_HOST if _HOST.search(log) else ""]
        super().__init__("\n".join(filter(None, lines)))
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
    lists: bool  # the files that it reads

    def available(self, target: str) -> bool: ...

    def version(self, target: str) -> str:
        """Raises CompileError, saying how to get this compiler, where none here compiles for `target`."""

    def compile(self, source: str, target: str, options: tuple[str, ...], name: str) -> CodeObject: ...
