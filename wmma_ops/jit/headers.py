"""Which of the device library's own headers a source may read, known before it is compiled: what keys of the cache hash.

Each include that a text or a header spells plainly counts, whatever `#if` stands around it, and each file that it may
mean. A text with any other include, and options that may bring some, count as including every header. So an edited
header may have a kernel compiled again in vain, and never leaves it stale.
"""

import functools
import hashlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from wmma_ops.jit import kernels_dir

_SPLICE = re.compile(r"\\[ \t\f\v\r]*\n")
_PLAIN = re.compile(r"""^[ \t]*\#[ \t]*include[ \t]*(?:<([^<>"\n]+)>|"([^<>"\n]+)")""", re.MULTILINE)
# A directive may be spelled with a digraph or a trigraph, and with comments ahead of its name.
_READING = re.compile(r"(?:\#|%:|\?\?=)(?:\s|/\*.*?\*/)*(?:include|include_next|import|embed)\b", re.DOTALL)
_ASKING = ("__has_include_next", "__has_embed")  # what is not there yet; these, and what they begin with, may be pasted
_PARTS = sorted({word[:i] for word in _ASKING for i in range(1, len(word) + 1)})
_ASKS = re.compile(rf"\b(?:{'|'.join(_PARTS)})\b|\?\?/")
_ASKS_PLAINLY = re.compile(r"\b__has_(?:include|embed)|\?\?/")  # our own headers do not hide it
_OPTION = re.compile(r"-(?:O\w+|[DU]\w.*)", re.DOTALL)  # those that bring no file


@dataclass(frozen=True)
class _File:
    seen: tuple[int, int]  # size and time of change
    digest: str
    includes: frozenset[str] | None  # as they are spelled; None: it may include anything


@dataclass(frozen=True)
class Tree:
    """The device sources as they are at one time, by their paths beneath kernels_dir.PATH."""

    files: dict[str, _File]
    _known: dict[frozenset[str] | None, tuple[frozenset[str], str]] = field(default_factory=dict, compare=False)

    def reached(self, includes: frozenset[str] | None) -> frozenset[str]:
        """Those that may be read for such includes, by the names that they are included by."""
        return frozenset(name.removeprefix(f"{kernels_dir.COMPAT}/") for name in self._of(includes)[0])

    def digest(self, includes: frozenset[str] | None) -> str:
        """Of the names and contents of those that may be read for such includes."""
        return self._of(includes)[1]

    def _of(self, includes: frozenset[str] | None) -> tuple[frozenset[str], str]:
        if includes not in self._known:
            names = frozenset(self.files) if includes is None else self._closure(includes)
            digests = "".join(f"{name}\0{self.files[name].digest}\0" for name in sorted(names))
            self._known[includes] = names, hashlib.sha256(digests.encode()).hexdigest()
        return self._known[includes]

    def _closure(self, includes: frozenset[str]) -> frozenset[str]:
        found: set[str] = set()
        left = [("", name) for name in includes]
        while left:
            folder, name = left.pop()
            meant = {path for path in (f"{folder}{name}", name, f"{kernels_dir.COMPAT}/{name}") if path in self.files}
            if not meant:
                return frozenset(self.files)  # a header of the system, which may include ours
            for path in meant - found:
                found.add(path)
                inner = self.files[path].includes
                if inner is None:
                    return frozenset(self.files)
                left += ((path[: path.rfind("/") + 1], one) for one in inner)
        return frozenset(found)


_trees: dict[Path, Tree] = {}


def includes(source: str, options: tuple[str, ...]) -> frozenset[str] | None:
    """What a source includes, as it is spelled there; None: possibly anything."""
    plain = all(_OPTION.fullmatch(option) and not _ASKS.search(option) for option in options)
    return _of_source(source) if plain else None


def tree() -> Tree:
    """As it is now. Files are read again when their size or time of change differs."""
    root = kernels_dir.PATH
    seen, known = _walk(str(root)), _trees.get(root)
    before = known.files if known else {}
    if known and {name: file.seen for name, file in before.items()} == seen:
        return known
    files = {}
    for name, now in seen.items():
        kept = before.get(name)
        files[name] = kept if kept and kept.seen == now else _read(root / name, now)
    _trees[root] = Tree(files)
    return _trees[root]


def _spelled(text: str, asks: re.Pattern[str]) -> frozenset[str] | None:
    text = _SPLICE.sub("", text)
    found = frozenset(angled or quoted for angled, quoted in _PLAIN.findall(text))
    if _READING.search(_PLAIN.sub("", text)) or asks.search(text):
        return None
    return None if any(name.startswith("/") or ".." in name or "//" in name for name in found) else found


@functools.lru_cache(maxsize=256)
def _of_source(source: str) -> frozenset[str] | None:
    return _spelled(source, _ASKS)


def _read(path: Path, seen: tuple[int, int]) -> _File:
    content = path.read_bytes()
    return _File(seen, hashlib.sha256(content).hexdigest(), _spelled(content.decode(errors="replace"), _ASKS_PLAINLY))


def _walk(root: str) -> dict[str, tuple[int, int]]:
    found, left = {}, [root]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    left.append(entry.path)
                elif kernels_dir.is_source(entry.name):
                    stat = entry.stat()
                    found[entry.path[len(root) + 1 :]] = stat.st_size, stat.st_mtime_ns
    return found
