"""Which header declares a name that a compiler does not know: one of HIP's and CUDA's, or of the device library's."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

from wmma_ops.jit import kernels_dir

_UNDECLARED = re.compile(
    r"error: (?:use of undeclared identifier|unknown type name) '(\w+)'"
    r"|error: no (?:member|type|template) named '(\w+)' in namespace 'wmma'"
    r'|error: identifier "(\w+)" is undefined'
    r'|error: namespace "wmma" has no member "(\w+)"'
)
# By the names that people give them, what declares most first.
_COMPAT = ("hip/hip_runtime.h", "hip/hip_fp16.h", "hip/hip_bf16.h", "hip/hip_fp8.h", "rocwmma/rocwmma.hpp")
_OURS = ("wmma/grid.hpp", "wmma/fragment.hpp", "wmma/math.hpp")
_INCLUDE = re.compile(r"^#include <(wmma/[\w/.]+)>", re.MULTILINE)
_DECLARED = re.compile(
    r"^(?:WMMA_DEVICE[^(\n]*?\b(\w+)\(|using (?:wmma::)?(\w+)(?: =|;)|(?:struct|namespace) (\w+)|constexpr \w+ (\w+) =)"
    r"[^\n]*",
    re.MULTILINE,
)
_OF_ROWS = re.compile(
    r"^WMMA_[A-Z0-9_]+\((\w+)[,)]", re.MULTILINE
)  # a macro's, that makes float4 of float, expf of exp
_KEYWORDS = re.compile(r"^#define (__\w+__)|^extern [^(\n]*\(\(weak\)\) \S+ (\w+);", re.MULTILINE)
_CALLED = re.compile(r"\{ (?:return )?wmma::(\w+)\([\w, ]*\); \}")  # with the same arguments, and nothing else


def advice(log: str) -> str:
    """What to include for the names that a compiler's log calls unknown; empty where no header of ours declares one."""
    names = dict.fromkeys(next(filter(None, found)) for found in _UNDECLARED.findall(log))
    found: dict[str, list[str]] = {}
    for name in names:
        compat = next((header for header in _COMPAT if name in _global(header)), None)
        if compat is not None:
            found.setdefault(f"#include <{compat}> declares", []).append(name)
        ours = _global(compat)[name] if compat is not None else name
        own = next((header for header in _OURS if ours in _within(header)), None)
        if own is not None:
            text = name if name == "wmma" else f"wmma::{ours}" + (f" (for {name})" if ours != name else "")
            found.setdefault(f"#include <{own}> has", []).append(text)
    return "\n".join(f"{what} {', '.join(names)}." for what, names in found.items())


@functools.cache
def _global(header: str) -> dict[str, str]:
    """The names that a header for HIP's sources declares outside of namespaces, each with ours that it calls, if any."""
    found = {}
    for path, text in _files(kernels_dir.PATH / kernels_dir.COMPAT / header):
        found |= {name: "" for names in _KEYWORDS.findall(text) for name in names if name}
        if path.startswith("wmma/compat/"):
            for match in _DECLARED.finditer(text):
                called = _CALLED.search(match[0])
                found.setdefault(next(filter(None, match.groups())), called[1] if called else "")
            for name in _OF_ROWS.findall(text):
                found |= dict.fromkeys((name, f"{name}f"), "")
                found |= {f"{before}{name}{i}": "" for before in ("", "make_") for i in range(1, 5)}
    found.pop("wmma", None)
    return found


@functools.cache
def _within(header: str) -> frozenset[str]:
    """The names of namespace wmma that a header of the device library has."""
    matches = (match for _, text in _files(kernels_dir.PATH / header) for match in _DECLARED.finditer(text))
    return frozenset(next(filter(None, match.groups())) for match in matches)


def _files(header: Path) -> Iterator[tuple[str, str]]:
    """A header's path and text, and those of the device library's that it includes."""
    ahead, seen = [header], set()
    while ahead:
        path = ahead.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        text = path.read_text(encoding="utf-8")
        yield path.relative_to(kernels_dir.PATH).as_posix(), text
        ahead += [kernels_dir.PATH / included for included in _INCLUDE.findall(text)]
