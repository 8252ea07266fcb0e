"""From a kernel's source text to machine code, through clang, hiprtc or NVRTC, and a cache on disk.

Nothing here needs a GPU.
"""

from wmma_ops.jit import cache
from wmma_ops.jit.build import COMPILERS, available, compile, ready, ship
from wmma_ops.jit.compiler import CodeObject, CompileError, Compiler

__all__ = ["COMPILERS", "CodeObject", "CompileError", "Compiler", "available", "cache", "compile", "ready", "ship"]
