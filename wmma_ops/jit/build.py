"""compile(source, target): the right compiler, through the cache."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from wmma_ops.hardware import arch
from wmma_ops.jit import cache, clang, headers, inputs
from wmma_ops.jit.clang import Clang
from wmma_ops.jit.compiler import CodeObject, CompileError, Compiler
from wmma_ops.jit.hiprtc import Hiprtc
from wmma_ops.jit.nvrtc import Nvrtc

COMPILERS: dict[str, Compiler] = {compiler.name: compiler for compiler in (Clang(), Hiprtc(), Nvrtc())}
_FOR = {"gfx": ("clang", "hiprtc"), "sm_": ("nvrtc",)}  # the first that is there is the default


def compile(
    source: str, target: str, *, compiler: str | None = None, options: tuple[str, ...] = (), name: str = "kernel.hip"
) -> CodeObject:
    """The machine code of `source` for one exact target, such as gfx942, gfx90a:xnack- or sm_90a, or for a card's.

    `#include <wmma/…>` finds the device library. `compiler` is "clang", "hiprtc" or "nvrtc"; without it, the first of
    them that is here and compiles for `target`. `options` are added to its command line. `name` stands for the source
    in messages and line information. Raises CompileError with the compiler's message, or with what to install.
    """
    target, options = _checked(source, target, compiler, options, name)
    chosen = _chosen(target, compiler)
    if chosen and inputs.folders(options, listed=chosen.lists) is None:
        return chosen.compile(source, target, options, name)
    given = source, target, compiler, options, name
    if chosen is None:
        return _kept(cache.load_any, *given) or _missing(target, compiler)
    version = chosen.version(target)
    request = _request(source, target, chosen, options, name)
    # What was shipped comes second: to look for packages that bring some takes longer than a hit.
    if found := cache.load(request, version) or (cache.shipped() and _kept(cache.load_shipped, *given)):
        return found
    with cache.lock(request):
        # Whoever held the lock before may have compiled just this.
        if found := cache.load(request, version):
            return found
        code = chosen.compile(source, target, options, name)
        # A device source that was edited meanwhile would lie under the wrong key.
        if _request(source, target, chosen, options, name) == request:
            cache.store(request, version, code, name, _includes(source, chosen, options))
        return code


def ready(source: str, target: str, *, name: str = "kernel.hip") -> CodeObject | None:
    """What a machine without a compiler has of it: compiled elsewhere and shipped, or earlier, in the cache folder."""
    return _kept(cache.load_any, source, target, None, (), name)


def available(target: str, compiler: str | None = None) -> bool:
    """Whether a compiler for `target` is here."""
    return _chosen(arch.full_name(target), compiler) is not None


def ship(source: str, target: str, folder: Path, *, name: str = "kernel.hip") -> CodeObject:
    """Compiles, and keeps the code object in `folder`, for machines that have no compiler (`cache.shipped`)."""
    target = arch.full_name(target)
    code = compile(source, target, name=name)
    chosen = _chosen(target, None) or _missing(target, None)
    request = _request(source, target, chosen, (), name)
    cache.store(request, chosen.version(target), code, name, _includes(source, chosen, ()), folder)
    return code


def _kept(
    find: Callable[[str], CodeObject | None],
    source: str,
    target: str,
    compiler: str | None,
    options: tuple[str, ...],
    name: str,
) -> CodeObject | None:
    """What `find` has of any compiler that may be meant, which need not be here."""
    requests = (_request(source, target, COMPILERS[one], options, name) for one in _names(target, compiler))
    return next(filter(None, map(find, requests)), None)


def _request(source: str, target: str, compiler: Compiler, options: tuple[str, ...], name: str) -> str:
    flags = (*compiler.flags, *options)
    return cache.request(source, target, compiler.name, flags, name, _includes(source, compiler, options))


def _includes(source: str, compiler: Compiler, options: tuple[str, ...]) -> frozenset[str] | None:
    """None, all headers, for hiprtc: it reads some of its own first, and lists none of what these include."""
    return None if compiler.name == Hiprtc.name else headers.includes(source, options)


def _names(target: str, compiler: str | None) -> tuple[str, ...]:
    if compiler:
        return (compiler,)
    fitting = _FOR[target[:3]]
    return ("clang",) if "clang" in fitting and os.environ.get(clang.ASKED) else fitting


def _chosen(target: str, compiler: str | None) -> Compiler | None:
    return next((COMPILERS[one] for one in _names(target, compiler) if COMPILERS[one].available(target)), None)


def _missing(target: str, compiler: str | None) -> NoReturn:
    first = _names(target, compiler)[0]
    COMPILERS[first].version(target)  # raises, saying what to install
    raise CompileError(f"no compiler for {target}", target=target, compiler=first)


def _checked(source, target, compiler, options, name) -> tuple[str, tuple[str, ...]]:
    """The target by its own name, and the options."""
    for argument, value in (("source", source), ("target", target), ("name", name)):
        if not isinstance(value, str):
            raise TypeError(f"compile: {argument} is of type {type(value).__name__}; takes a str")
    if isinstance(options, str) or not all(isinstance(option, str) for option in options):
        raise TypeError(f"compile: options is {options!r}; takes a tuple of str")
    if "\0" in source:
        raise ValueError("compile: source holds a NUL character; takes text")
    if not re.fullmatch(r"\w[\w.+-]*", name, re.ASCII):
        raise ValueError(f"compile: name is {name!r}; takes a plain file name, such as kernel.hip")
    target = arch.full_name(target)
    base, *features = target.split(":")
    if not all(re.fullmatch(r"(xnack|sramecc)[+-]", feature) for feature in features) or (
        features and not base.startswith("gfx")
    ):
        raise ValueError(f"compile: target is {target!r}; after a gfx name it takes :xnack+, :xnack-, :sramecc+, …")
    if compiler is not None:
        if compiler not in COMPILERS:
            raise ValueError(f"compile: compiler is {compiler!r}; takes {', '.join(COMPILERS)}")
        fitting = _FOR[target[:3]]
        if compiler not in fitting:
            raise ValueError(f"compile: compiler is {compiler!r}, not one for {target}; takes {', '.join(fitting)}")
    return target, tuple(options)
