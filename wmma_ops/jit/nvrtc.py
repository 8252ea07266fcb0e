"""NVRTC: CUDA's run-time compiler, to machine code for one exact NVIDIA target. No CUDA headers."""

import ctypes
import functools
import importlib.util
import os
import re
from pathlib import Path

import torch

from wmma_ops.jit import cache, inputs, kernels_dir, rtc
from wmma_ops.jit.compiler import CodeObject, CompileError

_SYSTEM = ("libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "/usr/local/cuda/lib64/libnvrtc.so")


class Nvrtc:
    name = "nvrtc"
    lists = False
    flags = (
        "--std=c++17",
        "--no-source-include",  # else headers are looked for in the current folder, which is in no cache key
        "--device-as-default-execution-space",  # else NVRTC to 13.1 takes generic lambdas for the host's
    )

    def available(self, target: str) -> bool:
        return _find() is not None

    def version(self, target: str) -> str:
        if not (path := _find()):
            raise CompileError(
                f"no NVRTC here to compile for {target}: `pip install nvidia-cuda-nvrtc` brings it",
                target=target,
                compiler=self.name,
            )
        if Path(path).is_absolute():
            return cache.remember(path, lambda: _version(path), _is_version)
        return _version(path)

    def compile(self, source: str, target: str, options: tuple[str, ...], name: str) -> CodeObject:
        compiler = f"{self.name} {self.version(target)}"
        arguments = [*self.flags, f"--gpu-architecture={target}", f"--include-path={kernels_dir.PATH}", *options]
        arguments.append(f"--include-path={kernels_dir.PATH / kernels_dir.COMPAT}")
        with rtc.Program(_load(_find()), "nvrtc", source, name) as program:
            return program.compiled(arguments, target, compiler, "CUBIN", inputs.of_text(source, options))


@functools.cache
def _load(path: str) -> ctypes.CDLL:
    if os.path.isabs(path):
        for builtins in Path(path).parent.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(builtins))  # for CUDA 13.0's, which does not look for them beside itself
    return ctypes.CDLL(path)


@functools.cache
def _version(path: str) -> str:
    library = _load(path)
    numbers = ".".join(map(str, rtc.version(library, "nvrtc")))
    # Patch releases share these numbers; the build's own number stands in any PTX.
    with rtc.Program(library, "nvrtc", "", "empty") as program:
        program.compile([])
        build = re.search(r"Compiler Build ID: (\S+)", program.text("PTX"))
    return f"{numbers} ({build[1]})" if build else numbers


def _is_version(kept: object) -> bool:
    return isinstance(kept, str) and re.fullmatch(r"\d+\.\d+(?: \([\w.-]+\))?", kept, re.ASCII) is not None


def _find() -> str | None:
    """PyPI's, else one that is already loaded, else the system's. A find is kept while its file lasts."""
    if _find.path is None or (os.path.isabs(_find.path) and not os.path.exists(_find.path)):
        _find.path = next(iter(_packaged()), None) or next(iter(rtc.loaded("libnvrtc")), None) or _system()
    return _find.path


_find.path = None


def _packaged() -> list[str]:
    """The libraries in PyPI's nvidia-cuda-nvrtc packages, the one of this torch's CUDA first, then the newest."""
    package = importlib.util.find_spec("nvidia")
    paths = [
        path
        for folder in (package.submodule_search_locations or () if package else ())
        for path in Path(folder).glob("*/lib/libnvrtc.so.*")
        if re.fullmatch(r"libnvrtc\.so\.\d+", path.name)
    ]
    # A driver takes no machine code from a CUDA of a later major version.
    ours = (torch.version.cuda or "").split(".")[0]
    paths.sort(key=lambda path: (path.suffix == f".{ours}", int(path.suffix[1:])), reverse=True)
    return [str(path) for path in paths]


def _system() -> str | None:
    return next((name for name in _SYSTEM if rtc.first_that_loads([name])), None)
