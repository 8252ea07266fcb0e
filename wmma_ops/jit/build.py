"""compile(source, target): the right compiler, through the cache."""

import re

from wmma_ops import arch
from wmma_ops.jit import cache
from wmma_ops.jit.clang import Clang
from wmma_ops.jit.compiler import CodeObject, CompileError, Compiler
from wmma_ops.jit.hiprtc import Hiprtc
from wmma_ops.jit.nvrtc import Nvrtc

COMPILERS: dict[str, Compiler] = {compiler.name: compiler for compiler in (Clang(), Hiprtc(), Nvrtc())}
_FOR = {"gfx": ("clang", "hiprtc"), "sm_": ("nvrtc",)}  # the first that is there is the default

# Options that bring in files whose contents are in no key, and sources that do so by an absolute path.
_OUTSIDE = re.compile(
    r"-I|-i(nclude|macros|quote|system|dirafter|prefix|withprefix)|--include|--isystem|--?pre-include|--?opt(f|ions-file)"
    r"|--config|-Xclang|-fplugin|@"
)
_ABSOLUTE = re.compile(r'^\s*#\s*(include|embed)\s*["<]/', re.MULTILINE)


def compile(
    source: str,
    target: str,
    *,
    compiler: str | None = None,
    options: tuple[str, ...] = (),
    name: str = "kernel.hip",
) -> CodeObject:
    """The machine code of `source` for one exact target, such as gfx942, gfx90a:xnack- or sm_90a.

    `#include <wmma/…>` finds the device library. `compiler` is "clang", "hiprtc" or "nvrtc"; without it, the first of
    them that is here and compiles for `target`. `options` are added to its command line. `name` stands for the source
    in messages and line information. Raises CompileError with the compiler's message, or with what to install.
    """
    options = _checked(source, target, compiler, options, name)
    names = (compiler,) if compiler else _FOR[target[:3]]
    chosen = next((COMPILERS[one] for one in names if COMPILERS[one].available(target)), None)
    if chosen is None:
        for one in names:
            key = cache.request(source, target, one, (*COMPILERS[one].flags, *options), name)
            if shipped := cache.load_any(key):
                return shipped
        COMPILERS[names[0]].version(target)  # raises, saying what to install
        raise CompileError(f"no compiler for {target}", target=target, compiler=names[0])
    if any(_OUTSIDE.match(option) for option in options) or _ABSOLUTE.search(source):
        return chosen.compile(source, target, options, name)
    version = chosen.version(target)
    request = cache.request(source, target, chosen.name, (*chosen.flags, *options), name)
    if found := cache.load(request, version):
        return found
    with cache.lock(request):
        # Whoever held the lock before may have compiled just this.
        if found := cache.load(request, version):
            return found
        code = chosen.compile(source, target, options, name)
        # A device source that was edited meanwhile would lie under the wrong key.
        if cache.request(source, target, chosen.name, (*chosen.flags, *options), name) == request:
            cache.store(request, version, code, name)
        return code


def _checked(source, target, compiler, options, name) -> tuple[str, ...]:
    for argument, value in (("source", source), ("target", target), ("name", name)):
        if not isinstance(value, str):
            raise TypeError(f"compile: {argument} is of type {type(value).__name__}; takes a str")
    if isinstance(options, str) or not all(isinstance(option, str) for option in options):
        raise TypeError(f"compile: options is {options!r}; takes a tuple of str")
    if "\0" in source:
        raise ValueError("compile: source holds a NUL character; takes text")
    if not re.fullmatch(r"\w[\w.+-]*", name, re.ASCII):
        raise ValueError(f"compile: name is {name!r}; takes a plain file name, such as kernel.hip")
    base, *features = target.split(":")
    arch.target(base)
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
    return tuple(options)
