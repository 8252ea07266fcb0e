"""hiprtc: ROCm's run-time compiler, for whoever has ROCm and no clang. It keeps no assembly."""

import contextlib
import ctypes
import functools
import importlib.util
import os
import threading
from pathlib import Path

from wmma_ops.jit import inputs, kernels_dir, rtc
from wmma_ops.jit.clang import PINNED
from wmma_ops.jit.compiler import CodeObject, CompileError

_SONAMES = tuple(f"{stem}.so{end}" for end in ("", ".7", ".6", ".5") for stem in ("libhiprtc", "libamdhip64"))
# HIP 5 is killed by a target that it does not know, where later ones report an error.
_HIP5_TARGETS = ("gfx900", "gfx906", "gfx908", "gfx90a", "gfx1030")
_ONE_AT_A_TIME = threading.Lock()  # HIP 5's compiler is not thread-safe


class Hiprtc:
    name = "hiprtc"
    lists = False
    flags = ("-O3", "-std=c++17")

    def available(self, target: str) -> bool:
        found = _find()
        return found is not None and _knows(_version(found), target)

    def version(self, target: str) -> str:
        return _text(self._found(target))

    def compile(self, source: str, target: str, options: tuple[str, ...], name: str) -> CodeObject:
        library = self._found(target)
        compiler = f"{self.name} {self.version(target)}"
        arguments = [f"--offload-arch={target}", *self.flags, f"-I{kernels_dir.PATH}", *options]
        arguments.append(f"-I{kernels_dir.PATH / kernels_dir.COMPAT}")
        # The #line: HIP 5 names every source CompileSource, in a temporary folder.
        with _ONE_AT_A_TIME, rtc.Program(library, "hiprtc", f'#line 1 "{name}"\n{source}', name) as program:
            found = inputs.of_text(source, options, without=("asm", "__asm", "__asm__"))
            return program.compiled(arguments, target, compiler, "Code", found)

    def _found(self, target: str) -> ctypes.CDLL:
        library = _find()
        if library is None:
            raise CompileError(
                f"no hiprtc here to compile for {target}: it comes with ROCm and with ROCm builds of PyTorch. "
                f"`pip install {PINNED}` brings clang, which compiles for the same targets without ROCm",
                target=target,
                compiler=self.name,
            )
        if not _knows(_version(library), target):
            raise CompileError(
                f"hiprtc {'.'.join(map(str, _version(library)))} is older than {target}: "
                f"`pip install {PINNED}` brings a clang that knows it",
                target=target,
                compiler=self.name,
            )
        return library


def _knows(version: tuple[int, int], target: str) -> bool:
    return version >= (6, 0) or target.split(":")[0] in _HIP5_TARGETS


@functools.lru_cache(maxsize=4)
def _version(library: ctypes.CDLL) -> tuple[int, int]:
    found = rtc.version(library, "hiprtc")
    if found != (9, 0):
        return found
    # HIP 5 says 9.0 whatever it is; its runtime, the same library there, knows better: 5.2.21153 is 50221153.
    number = ctypes.c_int()
    library.hipRuntimeGetVersion(ctypes.byref(number))
    return number.value // 10**7, number.value // 10**5 % 100


@functools.lru_cache(maxsize=4)
def _text(library: ctypes.CDLL) -> str:
    numbers = ".".join(map(str, _version(library)))
    # The file's name tells patch releases apart: libhiprtc.so.6.4.43484.
    files = rtc.loaded("libhiprtc") or rtc.loaded("libamdhip64")
    return f"{numbers} ({Path(files[0]).resolve().name})" if files else numbers


def _find() -> ctypes.CDLL | None:
    """A failed search is repeated, a find is kept."""
    if _find.library is None:
        _find.library = _search()
    return _find.library


_find.library = None


def _search() -> ctypes.CDLL | None:
    runtimes = rtc.loaded("libamdhip64")
    if runtimes or rtc.loaded("libhiprtc"):
        # A process has one HIP runtime: hiprtc is the loaded one, or stands beside it, or (HIP 5) inside it.
        beside = [str(path) for runtime in runtimes for path in sorted(Path(runtime).parent.glob("libhiprtc.so*"))]
        return _first([*rtc.loaded("libhiprtc"), *beside, *runtimes])
    return _first([*_packaged(), *_installed(), *_SONAMES])


def _packaged() -> list[str]:
    found = []
    if importlib.util.find_spec("rocm_sdk"):
        import rocm_sdk

        with contextlib.suppress(Exception):  # an incomplete installation of it raises its own kinds
            found += map(str, rocm_sdk.find_libraries("hiprtc"))
    torch = importlib.util.find_spec("torch")
    for folder in (torch.submodule_search_locations or ()) if torch else ():
        found.append(os.path.join(folder, "lib", "libhiprtc.so"))
    return found


def _installed() -> list[str]:
    roots = (os.environ.get("ROCM_PATH"), "/opt/rocm")
    return [os.path.join(root, "lib", "libhiprtc.so") for root in roots if root]


@functools.lru_cache(maxsize=4)
def _load(path: str) -> ctypes.CDLL | None:
    return rtc.first_that_loads([path])


def _first(paths: list[str]) -> ctypes.CDLL | None:
    for path in paths:
        library = _load(path)
        if library is not None and hasattr(library, "hiprtcCompileProgram"):
            return library
    return None
