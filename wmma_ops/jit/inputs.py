"""What a compilation reads beside its source and the device library, and whether it would read the same again.

Only the compiler knows what a source reads: includes come out of macros and out of other headers. So an entry of the cache
holds the list that the compiler gives, as ccache's direct mode does, and is a hit while every file of it has the same
contents and while none has come that would be found in place of one. What is made of something that no list tells of is
not kept: options that may read files by themselves, `__has_include` of what is not there yet, files that assembly brings
in, and with compilers that give no list (NVRTC, hiprtc) all headers but the device library's own.

Not seen is a new header in one of the system's own folders that hides one in another.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from wmma_ops.jit import kernels_dir

_FOLDERS = ("-I", "-iquote", "-isystem", "-idirafter")
_VALUED = (*_FOLDERS, "-include", "-imacros", "-mllvm", "-D", "-U")
# Options that read no file. Of others nobody knows.
_PLAIN = re.compile(
    r"-[OgwWfm](?!a,|p,|\S*(?:plugin|profile|modul|list|trace|pch))[^/]*"
    r"|--?(?:std|ftz|fmad|prec-(?:div|sqrt)|use_fast_math|maxrregcount|lineinfo|generate-line-info|device-debug|G|restrict"
    r"|extra-device-vectorization|minimal|disable-warnings|diag-\w+|(?:un)?define-macro|default-device"
    r"|gpu-max-threads-per-block|offload-\w+|pedantic|Rpass[\w-]*)(?:=[^/]*)?"
)

_SPLICE = re.compile(r"\\[ \t\f\v\r]*\n")
_TRIGRAPH = "??/"  # of a backslash, by some standards
_LEXED = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<raw>(?<![\w$])(?:u8|[uUL])?R")
    |[^\W\d][\w$]*|\$[\w$]*
    |\.?\d(?:[eEpP][+-]|'?\w|\.)*
    |"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?
    |(?P<stray>\\)""",
    re.DOTALL | re.VERBOSE,
)
_INCLUDE = re.compile(r"""^[ \t]*\#[ \t]*include[ \t]*[<"]([\w./]+)[>"][ \t]*$""", re.MULTILINE)
_READING = re.compile(r"\b(?:include|include_next|import|embed)\b")  # directives, whose names no macro makes
_ASKING = ("__has_include_next", "__has_embed")  # and what these begin with
_ASSEMBLY = re.compile(r"\.(?:incbin|include|macro|irp)", re.IGNORECASE)  # the latter two can make the others


@dataclass(frozen=True)
class Inputs:
    files: tuple[tuple[str, str], ...] = ()  # paths, and digests of what they held
    absent: tuple[str, ...] = ()  # paths under which another file would be found first
    own: frozenset[str] = field(default=frozenset(), compare=False)  # the device library's, when it was compiled

    def unchanged(self) -> bool:
        return not any(map(os.path.lexists, self.absent)) and all(_digest(path) == held for path, held in self.files)


def folders(options: Iterable[str], *, listed: bool) -> tuple[str, ...] | None:
    """Where options have headers looked up. None: they may have files read that no list tells of.

    `listed`: whether the compiler lists what it finds there.
    """
    found, left = [], iter(options)
    for option in left:
        name = next((name for name in (_VALUED if listed else ("-D", "-U")) if option.startswith(name)), None)
        value = (option[len(name) :] or next(left, "")) if name else ""
        if name in _FOLDERS:
            found.append(value)
        if (
            (name is None and not _PLAIN.fullmatch(option))
            or (name in _FOLDERS and not os.path.isabs(value))  # it would be beneath the compilation's own folder
            or (name == "-mllvm" and re.search("/|load", value))
        ):
            return None
    return tuple(found)


def of_list(
    listed: Path, folder: Path, source: str, options: tuple[str, ...], assembly: str, started: int
) -> Inputs | None:
    """Of a rule for make in the file `listed`, which a compiler wrote that ran in `folder` from the time `started` on.

    None: not to be kept.
    """
    looked_in, files, names, own = folders(options, listed=True), {}, [], set()
    if looked_in is None or _ASSEMBLY.search(assembly) or _asks(source, options):
        return None
    try:
        rule = listed.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # something in the compiler's place wrote none
        return None
    for path in _paths(rule):
        if name := kernels_dir.name_of(path):
            own.add(name)
        elif os.path.isabs(path):
            try:
                content, stat = _content(path), os.stat(path)
            except OSError:  # gone, or of a name that rules cannot spell
                return None
            # What was changed meanwhile may have been read before.
            if max(stat.st_mtime_ns, stat.st_ctime_ns) >= started or _asks(content.decode(errors="replace"), ()):
                return None
            files[path] = hashlib.sha256(content).hexdigest()
            names += [path.split("/", i)[-1] for i in range(1, path.count("/") + 1)]
        elif not (folder / path).resolve().is_relative_to(folder.resolve()):
            return None  # relative to a folder that has another name each time
    looked_in = {*looked_in, *map(os.path.dirname, files)}
    return Inputs(tuple(files.items()), tuple(sorted(_absent(looked_in, [*own, *names]))), frozenset(own))


def of_text(source: str, options: tuple[str, ...], *, without: tuple[str, ...] = ()) -> Inputs | None:
    """For compilers that list nothing: none, if the text includes nothing but the device library's headers.

    `without`: words that may have others read too.
    """
    text = _SPLICE.sub("", source)
    if (
        folders(options, listed=False) is None
        or _asks(source, options, without)
        or any(found["raw"] or found["stray"] for found in _LEXED.finditer(text))
    ):
        return None
    text = _LEXED.sub(lambda found: " " if found["comment"] else found[0], text)
    text = _INCLUDE.sub(lambda found: "" if kernels_dir.has(found[1]) else found[0], text)
    return None if _READING.search(text) else Inputs()


def _asks(source: str, options: tuple[str, ...], words: tuple[str, ...] = ()) -> bool:
    """Whether a text may ask for files that are not there, or has one of other words; each may be pasted of parts."""
    text = "\n".join((_SPLICE.sub("", source), *options))
    names = set(re.findall(r"[^\W\d]\w*", text))
    wanted = {"__has_include", *_ASKING, *words}
    if re.search(r"##|%:%:|\?\?=", text):
        wanted |= {word[:i] for word in wanted for i in range(1, len(word))}
    return _TRIGRAPH in text or not wanted.isdisjoint(names)


def _paths(rule: str) -> Iterator[str]:
    """What follows the colon of make's `target: path path \\`."""
    for word in re.findall(r"(?:\\.|[^\s\\])+", rule.partition(":")[2].replace("\\\n", " ")):
        yield re.sub(r"\\([ #\\])", r"\1", word).replace("$$", "$")


def _absent(looked_in: Iterable[str], names: Iterable[str]) -> set[str]:
    """The first part that is missing of each path at which one of the names would be looked up."""
    there: dict[str, bool] = {}
    found = set()
    for folder in looked_in:
        for name in names:
            path = folder
            for part in name.split("/"):
                path = f"{path}/{part}"
                if path not in there:
                    there[path] = os.path.lexists(path)
                if not there[path]:
                    found.add(path)
                    break
    return found


def _content(path: str) -> bytes:
    if not os.path.isfile(path):  # to read a pipe could wait for ever
        raise FileNotFoundError(path)
    return Path(path).read_bytes()


def _digest(path: str) -> str | None:
    try:
        return hashlib.sha256(_content(path)).hexdigest()
    except OSError:
        return None
