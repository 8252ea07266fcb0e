"""Code objects on disk, and what compilers said of themselves.

    <folder>/code/<request>/<compiler>.wmma    one code object
    <folder>/compilers/<binary>.json           version and targets of one compiler's binary
    <folder>/locks/<request>.lock

Beside this folder, which is written, others are only read: those that were filled ahead of time and shipped
(`python -m wmma_ops build`), named by WMMA_OPS_OBJECTS or by installed packages.

A request is everything that decides the machine code but the compiler and files that only the compiler knows of: their
list is in the entry, which is a hit while they are as they were (`inputs`). An entry is written beside its place and
renamed to it, so readers see whole entries or none, and a checksum finds what a crash or a foreign hand left. No failure
of this folder fails a compilation: at worst nothing is kept.
"""

import contextlib
import functools
import hashlib
import importlib.util
import json
import logging
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from wmma_ops.jit import kernels_dir
from wmma_ops.jit.compiler import CodeObject
from wmma_ops.jit.inputs import Inputs

OBJECTS = "wmma_ops.objects"  # the entry points of packages that bring code objects: modules whose folder has code/

_FORMAT = b"wmma_ops code object 3\n"
_SUFFIX = ".wmma"
_LOCK_SECONDS = 60.0  # longer than any compilation that is worth waiting for
_IN_MEMORY = 64 << 20  # bytes of code objects: each has some 25 KB of code and 400 KB of assembly

logger = logging.getLogger("wmma_ops.jit")
_guard = threading.Lock()
_memory: OrderedDict[tuple[str, str], CodeObject] = OrderedDict()
_facts: dict[str, tuple[dict, object]] = {}
_tree: dict[Path, tuple[list, str]] = {}
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
    usable: bool  # made of the device sources of this version
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
    found, version = [], sources_version()
    for path in _files(folder or directory(), _SUFFIX):
        with contextlib.suppress(OSError):
            if parsed := _parse(path.read_bytes()):
                head, code = parsed
                stat = path.stat()
                usable = head["version_of_sources"] == version
                found.append(
                    Entry(
                        code.target,
                        code.compiler,
                        head["name"],
                        code.kernels,
                        stat.st_size,
                        stat.st_mtime,
                        usable,
                        path,
                    )
                )
    return sorted(found, key=lambda entry: (entry.written, entry.path))


def clear() -> int:
    """Forgets all, on disk and in this process. Returns how many code objects were removed.

    Only files that this module writes go: the folder may be shared with others.
    """
    removed = 0
    for path in list(_files(directory(), _SUFFIX, ".json", ".lock", ".writing")):
        with contextlib.suppress(OSError):
            path.unlink()
            removed += path.suffix == _SUFFIX
    if root := directory():
        for folder in (*root.glob("code/*"), root / "code", root / "compilers", root / "locks"):
            with contextlib.suppress(OSError):
                folder.rmdir()
    with _guard:
        _memory.clear()
        _facts.clear()
    return removed


# ------------------------------------------------------------------------------------------------------------- keys


def request(source: str, target: str, compiler: str, flags: tuple[str, ...], name: str) -> str:
    """The key of all that decides the machine code but the compiler's version."""
    parts = [sources_version(), source, target, compiler, flags, name]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def sources_version() -> str:
    """Of the package and of all device sources."""
    import wmma_ops

    return f"{wmma_ops.__version__} {kernels_hash()}"


def kernels_hash() -> str:
    """Of all device sources. They are read again when a file's size or time of change differs."""
    root = kernels_dir.PATH
    seen = _walk(str(root))
    known = _tree.get(root)
    if known and known[0] == seen:
        return known[1]
    digest = hashlib.sha256()
    start = len(str(root)) + 1
    for path, _, _ in seen:
        with open(path, "rb", buffering=0) as file:
            content = file.read()
        digest.update(f"{path[start:]}\0{len(content)}\0".encode() + content)
    _tree[root] = (seen, digest.hexdigest())
    return digest.hexdigest()


_ASKED = 2  # one more whenever compilers are asked for more, so that all are asked again


def remember(binary: str, ask: Callable[[], object]):
    """What `ask` returns about a file (JSON), kept on disk for as long as that file stays the same."""
    stat = os.stat(binary)
    identity = {"path": binary, "size": stat.st_size, "time": stat.st_mtime_ns, "asked": _ASKED}
    if (known := _facts.get(binary)) and known[0] == identity:
        return known[1]
    root = directory()
    path = root and root / "compilers" / f"{hashlib.sha256(binary.encode()).hexdigest()[:32]}.json"
    facts = None
    if path:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads(path.read_bytes())
            facts = kept["facts"] if kept["identity"] == identity else None
    if facts is None:
        facts = ask()
        if path:
            _write(path, json.dumps({"identity": identity, "facts": facts}).encode())
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
    root = directory()
    found = _read(_path(root, request, version), request, version) if root else None
    if not found or not _current(found):
        return None
    _keep(request, version, found)
    return found


def load_shipped(request: str) -> CodeObject | None:
    """What some compiler made of `request`, in a folder that was filled elsewhere."""
    return _first(shipped(), request)


def load_any(request: str) -> CodeObject | None:
    """The same, or from the cache folder: for a machine that has no compiler."""
    root = directory()
    return (_first((root,), request) if root else None) or load_shipped(request)


def store(request: str, version: str, code: CodeObject, name: str, folder: Path | None = None) -> None:
    """Keeps it in the cache folder; or in another, where a failure is an error. What nobody can call current is not kept."""
    if code.inputs is None:
        if folder is not None:
            raise ValueError(f"{name} reads more than {code.compiler} tells of; takes a source that can be kept")
        return
    if folder is not None:
        path = _path(folder, request, version)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_packed(request, version, code, name))
        return
    _keep(request, version, code)
    if root := directory():
        _write(_path(root, request, version), _packed(request, version, code, name))


@contextlib.contextmanager
def lock(request: str) -> Iterator[None]:
    """Lets one process compile while the others wait for its result. A lock that fails is only work done twice."""
    import filelock

    held = None
    if root := directory():
        try:
            _make(root / "locks")
            held = filelock.FileLock(root / "locks" / f"{request[:32]}.lock", timeout=_LOCK_SECONDS)
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


def _packed(request: str, version: str, code: CodeObject, name: str) -> bytes:
    assembly = (code.assembly or "").encode()
    head = {
        "request": request,
        "version": version,
        "version_of_sources": sources_version(),
        "name": name,
        "target": code.target,
        "compiler": code.compiler,
        "kernels": code.kernels,
        "log": code.log,
        "inputs": (code.inputs.files, code.inputs.absent),
        "code": len(code.code),
        "assembly": None if code.assembly is None else len(assembly),
    }
    body = json.dumps(head).encode() + b"\n" + code.code + assembly
    return _FORMAT + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


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
    except (ValueError, KeyError, TypeError, RecursionError):  # a right checksum over another layout
        return None
    if not all(isinstance(text, str) for text in texts):
        return None
    return head, code


def _read(path: Path, request: str, version: str | None, *, discards: bool = True) -> CodeObject | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if parsed := _parse(data):
        head, code = parsed
        if head["request"] == request and version in (None, head["version"]):
            return code
    logger.info("%s is damaged or foreign: %s", path, "discarded" if discards else "passed over")
    if discards:
        with contextlib.suppress(OSError):
            path.unlink()
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


def _path(root: Path, request: str, version: str) -> Path:
    return root / "code" / request / (hashlib.sha256(version.encode()).hexdigest()[:16] + _SUFFIX)


def _first(roots: tuple[Path, ...], request: str) -> CodeObject | None:
    with _guard:
        kept = _memory.get((request, ""))
    if kept and _current(kept):
        return kept
    for root in roots:
        for path in sorted((root / "code" / request).glob(f"*{_SUFFIX}")):
            found = _read(path, request, None, discards=root == directory())
            if found and _current(found):
                _keep(request, "", found)
                return found
    return None


# ------------------------------------------------------------------------------------------------------------ files


def _write(path: Path, data: bytes) -> None:
    writing = None
    try:
        _make(path.parent)
        descriptor, writing = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".writing")
        with open(descriptor, "wb") as file:
            # The folder keeps others out; an image or a wheel may ship its files to other users.
            os.fchmod(descriptor, 0o644)
            file.write(data)
        os.replace(writing, path)
    except OSError as error:
        if writing:
            with contextlib.suppress(OSError):
                os.unlink(writing)
        _warn(str(directory()), error)


def _make(folder: Path) -> None:
    root = directory()
    if root and not root.is_dir():
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)


def _warn(folder: str, error: Exception) -> None:
    if folder not in _warned:
        _warned.add(folder)
        logger.warning(
            "compiled kernels cannot be kept in the cache folder %s (%s): they are compiled again in every process. "
            "WMMA_OPS_CACHE_DIR names another folder.",
            folder,
            error,
        )


def _files(root: Path | None, *suffixes: str) -> Iterator[Path]:
    for folder in ("code", "compilers", "locks") if root else ():
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in suffixes:
                yield path


def _walk(folder: str) -> list[tuple[str, int, int]]:
    found, left = [], [folder]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    left.append(entry.path)
                elif kernels_dir.is_source(entry.name):
                    stat = entry.stat()
                    found.append((entry.path, stat.st_size, stat.st_mtime_ns))
    return sorted(found)


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
