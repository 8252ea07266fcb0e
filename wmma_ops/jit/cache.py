"""Code objects on disk, and what compilers said of themselves.

    <folder>/code/<request>/<compiler>.wmma    one code object
    <folder>/compilers/<binary>.json           version and targets of one compiler's binary
    <folder>/locks/<request>.lock
    <folder>/writing/<random>.writing          what is about to be renamed to its place
    <folder>/tuned/<GPU>.json                  what tuning found (runtime/tuned.py)

Beside this folder, which is written, others are only read: those that were filled ahead of time and shipped
(`python -m wmma_ops build`), named by WMMA_OPS_OBJECTS or by installed packages.

A request is everything that decides the machine code but the compiler's version and files that only the compiler knows of:
source, target, options and those of our own headers that the source leads to (`headers`). The list of the others is in the
entry, which is a hit while they are as they were (`inputs`). An entry is written beside its place and
renamed to it, so readers see whole entries or none, and a checksum finds what a crash or a foreign hand left. No failure
of this folder fails a compilation: at worst nothing is kept. A folder in which others may write is not used, and said to
be so once (files.py).
"""

import contextlib
import functools
import hashlib
import importlib.util
import json
import logging
import os
import re
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from wmma_ops.jit import files, headers
from wmma_ops.jit.compiler import CodeObject
from wmma_ops.jit.inputs import Inputs
from wmma_ops.version import __version__

OBJECTS = "wmma_ops.objects"  # the entry points of packages that bring code objects: modules whose folder has code/

_FORMAT = b"wmma_ops code object 4\n"
_SUFFIX = ".wmma"
_LOCK_SECONDS = 60.0  # longer than any compilation that is worth waiting for
_IN_MEMORY = 64 << 20  # bytes of code objects: each has some 25 KB of code and 400 KB of assembly

logger = logging.getLogger("wmma_ops.jit")
_guard = threading.Lock()
_memory: OrderedDict[tuple[str, str], CodeObject] = OrderedDict()
_facts: dict[str, tuple[dict, object]] = {}
_warned: set[str] = set()


@dataclass(frozen=True)
class Entry:
    """One code object of the cache folder."""

    target: str
    compiler: str
    name: str
    kernels: tuple[str, ...]
    bytes: int  # of the file
    written: float  # seconds since 1970
    usable: bool  # made by this version of the package, and the headers that it included are as they were
    path: Path


# ------------------------------------------------------------------------------------------------------- the folder


def directory() -> Path | None:
    """WMMA_OPS_CACHE_DIR, else the user's cache folder; None where there is neither."""
    try:
        if chosen := os.environ.get("WMMA_OPS_CACHE_DIR"):
            return Path(chosen).expanduser().absolute()
        found = _users(os.environ.get("HOME"), os.environ.get("XDG_CACHE_HOME"))
    except (OSError, RuntimeError) as error:
        _warn(chosen or "", error)
        return None
    if not found.is_absolute():
        _warn(str(found), OSError("no home folder"))  # its literal ~ must not become a folder here
        return None
    return found


def shipped() -> tuple[Path, ...]:
    """The folders that are only read."""
    return _shipped(os.environ.get("WMMA_OPS_OBJECTS"))


def ls(folder: Path | None = None) -> list[Entry]:
    """The valid entries of the cache folder, or of another, oldest first."""
    found, tree = [], headers.tree()
    root = folder or directory()
    for parts in _ours(root) if root else ():
        with contextlib.suppress(OSError):
            if parts[0] == "code" and (parsed := _parse(files.read(root, *parts, shipped=folder is not None))):
                head, code = parsed
                path = root.joinpath(*parts)
                found_stat = path.stat()
                usable = head["version_of_sources"] == sources_version(_includes(head), tree)
                found.append(
                    Entry(
                        code.target,
                        code.compiler,
                        head["name"],
                        code.kernels,
                        found_stat.st_size,
                        found_stat.st_mtime,
                        usable,
                        path,
                    )
                )
    return sorted(found, key=lambda entry: (entry.written, entry.path))


def clear() -> int:
    """Forgets all but tuned times, on disk and in this process. Returns how many code objects were removed.

    Only files go that have exactly the names and places that this module gives them: `strangers` tells of the others.
    """
    removed, root = 0, directory()
    if root and root.is_dir():
        if files.read_only():
            raise files.Refused(f"{files.READ_ONLY}=1: nothing in {root} is changed")
        files.check(root)
        for *folders, name in _ours(root):
            with contextlib.suppress(OSError), files.within(root, *folders) as folder:
                if stat.S_ISREG(os.lstat(name, dir_fd=folder).st_mode):
                    os.unlink(name, dir_fd=folder)
                    removed += folders[0] == "code" and name.endswith(_SUFFIX)
        for *folders, name in _folders(root):
            with contextlib.suppress(OSError), files.within(root, *folders) as folder:
                os.rmdir(name, dir_fd=folder)  # which fails where something is left
    with _guard:
        _memory.clear()
        _facts.clear()
    return removed


def strangers() -> list[Path]:
    """What lies in the cache folder and is not ours; links are named, not followed."""
    root = directory()
    if not root or not root.is_dir():
        return []
    kinds = {root.joinpath(*parts): stat.S_IFREG for parts in _ours(root)}
    kinds |= {root.joinpath(*parts): stat.S_IFDIR for parts in (*_folders(root), ("tuned",))}
    inside = [root, *(path for path, kind in kinds.items() if kind == stat.S_IFDIR and path.name != "tuned")]
    found = [folder / name for folder in inside for name in _listed(folder)]
    return sorted(path for path in found if stat.S_IFMT(path.lstat().st_mode) != kinds.get(path))


# ------------------------------------------------------------------------------------------------------------- keys


def request(
    source: str, target: str, compiler: str, flags: tuple[str, ...], name: str, includes: frozenset[str] | None
) -> str:
    """The key of all that decides the machine code but the compiler's version."""
    parts = [sources_version(includes), source, target, compiler, flags, name]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def sources_version(includes: frozenset[str] | None, tree: headers.Tree | None = None) -> str:
    """Of the package and of those device sources that such includes may read."""
    return f"{__version__} {(tree or headers.tree()).digest(includes)}"


_ASKED = 3  # one more whenever compilers are asked for more, so that all are asked again


def remember(binary: str, ask: Callable[[], object], valid: Callable[[object], bool]):
    """What `ask` returns about a file (JSON), kept on disk for as long as that file stays the same.

    `valid` tells whether something that was kept may be such an answer.
    """
    found = os.stat(binary)
    identity = {"path": binary, "size": found.st_size, "time": found.st_mtime_ns, "asked": _ASKED}
    if (known := _facts.get(binary)) and known[0] == identity:
        return known[1]
    root = _usable()
    place = "compilers", f"{hashlib.sha256(binary.encode()).hexdigest()[:32]}.json"
    facts = None
    if root:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            kept = json.loads(files.read(root, *place))
            if kept["identity"] == identity and valid(kept["facts"]):
                facts = kept["facts"]
    if facts is None:
        facts = ask()
        if root:
            _write(root, *place, data=json.dumps({"identity": identity, "facts": facts}).encode())
    _facts[binary] = (identity, facts)
    return facts


# ---------------------------------------------------------------------------------------------------------- entries


def load(request: str, version: str) -> CodeObject | None:
    with _guard:
        kept = _memory.get((request, version))
        if kept:
            _memory.move_to_end((request, version))
    if kept and _current(kept):
        return kept
    root = _usable()
    found = _read(root, _place(request, version), request, version) if root else None
    if not found or not _current(found):
        return None
    _keep(request, version, found)
    return found


def load_shipped(request: str) -> CodeObject | None:
    """What some compiler made of `request`, in a folder that was filled elsewhere."""
    return _first(shipped(), request)


def load_any(request: str) -> CodeObject | None:
    """The same, or from the cache folder: for a machine that has no compiler."""
    root = _usable()
    return (_first((root,), request, shipped=False) if root else None) or load_shipped(request)


def store(
    request: str, version: str, code: CodeObject, name: str, includes: frozenset[str] | None, folder: Path | None = None
) -> None:
    """Keeps it in the cache folder; or in another, where a failure is an error.

    What nobody can call current is not kept: neither what may have read more than the compiler tells of, nor what read a
    header that the key, made of `includes`, does not hold.
    """
    why = ""
    if code.inputs is None:
        why = f"reads more than {code.compiler} tells of"
    elif missed := sorted(code.inputs.own - headers.tree().reached(includes)):
        why = f"reads {', '.join(missed)}, which its text does not lead to"
        logger.warning("%s for %s %s: it is not kept", name, code.target, why)
    if why:
        if folder is not None:
            raise ValueError(f"{name} {why}; takes a source that can be kept")
        return
    if folder is not None:
        path = folder.joinpath(*_place(request, version))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_packed(request, version, code, name, includes))
        return
    _keep(request, version, code)
    if root := _usable():
        _write(root, *_place(request, version), data=_packed(request, version, code, name, includes))


@contextlib.contextmanager
def lock(request: str) -> Iterator[None]:
    """Lets one process compile while the others wait for its result. A lock that fails is only work done twice."""
    import filelock

    held = None
    if (root := _usable()) and not files.read_only():
        path = root / "locks" / f"{request[:32]}.lock"
        try:
            with files.within(root, "locks", make=True):
                if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
                    raise files.Refused(f"{path} is no regular file")
            held = filelock.FileLock(path, timeout=_LOCK_SECONDS)
            held.acquire()
        except (OSError, NotImplementedError, RuntimeError) as error:  # filelock.Timeout is an OSError
            logger.info("no lock in %s (%s): compiling without", root, error)
            held = None
    try:
        yield
    finally:
        if held is not None:
            with contextlib.suppress(OSError):
                held.release()


def _packed(request: str, version: str, code: CodeObject, name: str, includes: frozenset[str] | None) -> bytes:
    assembly = (code.assembly or "").encode()
    head = {
        "request": request,
        "version": version,
        "version_of_sources": sources_version(includes),
        "includes": None if includes is None else sorted(includes),
        "name": name,
        "target": code.target,
        "compiler": code.compiler,
        "kernels": code.kernels,
        "log": code.log,
        "inputs": (code.inputs.files, code.inputs.absent),
        "code": len(code.code),
        "assembly": None if code.assembly is None else len(assembly),
    }
    return _sealed(head, code.code + assembly)


def _sealed(head: dict, content: bytes) -> bytes:
    body = json.dumps(head).encode() + b"\n" + content
    return _FORMAT + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def without_assembly(data: bytes) -> bytes:
    """A stored code object with what a GPU is given: of machine code and its text the text is most."""
    if (parsed := _parse(data)) is None:
        raise ValueError("is no stored code object of this version")
    head, code = parsed
    return _sealed(head | {"assembly": None}, code.code)


def _parse(data: bytes) -> tuple[dict, CodeObject] | None:
    start = len(_FORMAT) + 65
    body = memoryview(data)[start:]
    if data[: len(_FORMAT)] != _FORMAT or data[len(_FORMAT) : start - 1] != hashlib.sha256(body).hexdigest().encode():
        return None
    try:
        end = data.index(b"\n", start)
        head = json.loads(data[start:end])
        middle = end + 1 + head["code"]
        files, absent = head["inputs"]
        code = CodeObject(
            target=head["target"],
            compiler=head["compiler"],
            code=data[end + 1 : middle],
            assembly=None if head["assembly"] is None else data[middle:].decode(),
            log=head["log"],
            kernels=tuple(head["kernels"]),
            inputs=Inputs(tuple((str(path), str(held)) for path, held in files), tuple(map(str, absent))),
        )
        texts = (code.target, code.compiler, code.log, *code.kernels, head["request"], head["version"], head["name"])
        texts += (*(_includes(head) or ()),)
    except (ValueError, KeyError, TypeError, RecursionError):  # a right checksum over another layout
        return None
    if not all(isinstance(text, str) for text in texts):
        return None
    return head, code


def _includes(head: dict) -> frozenset[str] | None:
    return None if head["includes"] is None else frozenset(head["includes"])


def _read(
    root: Path, place: tuple[str, ...], request: str, version: str | None, *, shipped: bool = False
) -> CodeObject | None:
    path = root.joinpath(*place)
    try:
        data = files.read(root, *place, shipped=shipped)
    except files.Refused as error:
        logger.info("passed over: %s", error)
        return None
    except OSError:
        return None
    if parsed := _parse(data):
        head, code = parsed
        if head["request"] == request and version in (None, head["version"]):
            return code
    discards = not shipped and not files.read_only()
    logger.info("%s is damaged or foreign: %s", path, "discarded" if discards else "passed over")
    if discards:
        with contextlib.suppress(OSError), files.within(root, *place[:-1]) as folder:
            os.unlink(place[-1], dir_fd=folder)
    return None


def _current(code: CodeObject) -> bool:
    return code.inputs is not None and code.inputs.unchanged()


def _keep(request: str, version: str, code: CodeObject) -> None:
    with _guard:
        _memory[request, version] = code
        _memory.move_to_end((request, version))
        held = sum(map(_size, _memory.values()))
        while held > _IN_MEMORY:
            held -= _size(_memory.popitem(last=False)[1])


def _size(code: CodeObject) -> int:
    return len(code.code) + len(code.assembly or "") + len(code.log)


def _place(request: str, version: str) -> tuple[str, ...]:
    return "code", request, hashlib.sha256(version.encode()).hexdigest()[:16] + _SUFFIX


def _first(roots: tuple[Path, ...], request: str, *, shipped: bool = True) -> CodeObject | None:
    with _guard:
        kept = _memory.get((request, ""))
    if kept and _current(kept):
        return kept
    for root in roots:
        for path in sorted((root / "code" / request).glob(f"*{_SUFFIX}")):
            found = _read(root, ("code", request, path.name), request, None, shipped=shipped)
            if found and _current(found):
                _keep(request, "", found)
                return found
    return None


# ------------------------------------------------------------------------------------------------------------ files


def _usable() -> Path | None:
    """The cache folder, where nobody else decides what lies there."""
    root = directory()
    try:
        if root:
            files.check(root)
    except files.Refused as error:
        _warn(str(root), error)
        return None
    except OSError:  # it cannot be opened: whoever writes there says so
        pass
    return root


def _write(root: Path, *place: str, data: bytes) -> None:
    if files.read_only():
        return
    try:
        files.write(root, *place, data=data)
    except OSError as error:
        _warn(str(root), error)


def _warn(folder: str, error: Exception) -> None:
    if folder not in _warned:
        _warned.add(folder)
        logger.warning(
            "compiled kernels cannot be kept in the cache folder %s (%s): they are compiled again in every process. "
            "WMMA_OPS_CACHE_DIR names another folder.",
            folder,
            error,
        )


_HEX = "[0-9a-f]"
_NAMES = {  # by folder, what we write there: the second is the folder of one request
    "code": re.compile(rf"{_HEX}{{64}}"),
    "code/*": re.compile(rf"{_HEX}{{16}}{re.escape(_SUFFIX)}|\.\w+\.writing"),
    "compilers": re.compile(rf"{_HEX}{{32}}\.json|\.\w+\.writing"),
    "locks": re.compile(rf"{_HEX}{{32}}\.lock"),
    "writing": re.compile(rf"{_HEX}{{16}}\.writing"),
}


def _ours(root: Path) -> list[tuple[str, ...]]:
    """Where files lie that this module writes, below `root`."""
    found: list[tuple[str, ...]] = []
    for folder in ("compilers", "locks", "writing"):
        found += ((folder, name) for name in _listed(root / folder) if _NAMES[folder].fullmatch(name))
    for _, one in _requests(root):
        found += (("code", one, name) for name in _listed(root / "code" / one) if _NAMES["code/*"].fullmatch(name))
    return found


def _requests(root: Path) -> list[tuple[str, str]]:
    return [("code", name) for name in _listed(root / "code") if _NAMES["code"].fullmatch(name)]


def _folders(root: Path) -> list[tuple[str, ...]]:
    """Its folders that this module makes, those within others first."""
    return [*_requests(root), *((name,) for name in ("code", "compilers", "locks", "writing"))]


def _listed(folder: Path) -> list[str]:
    if folder.is_symlink():
        return []
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


@functools.lru_cache(maxsize=4)
def _shipped(named: str | None) -> tuple[Path, ...]:
    found = []
    for folder in filter(None, (named or "").split(os.pathsep)):
        try:
            path = Path(folder).expanduser().absolute()
            found += [path] * path.is_dir()
        except (OSError, RuntimeError) as error:  # no such user, or a name that is too long
            logger.warning("WMMA_OPS_OBJECTS names %s, which is passed over: %s", folder, error)
    for entry in metadata.entry_points(group=OBJECTS):
        spec = importlib.util.find_spec(entry.module)  # which does not import it
        found += map(Path, (spec.submodule_search_locations or ()) if spec else ())
    return tuple(folder for folder in dict.fromkeys(found) if folder.is_dir())


@functools.lru_cache(maxsize=4)
def _users(home: str | None, cache_home: str | None) -> Path:
    import platformdirs

    return platformdirs.user_cache_path("wmma_ops", appauthor=False)


def _after_fork() -> None:
    global _guard
    _guard = threading.Lock()  # the thread that held it is not in the child


os.register_at_fork(after_in_child=_after_fork)
