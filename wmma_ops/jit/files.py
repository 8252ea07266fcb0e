"""Files of the cache folder, where others may have put something, and temporary folders, which a killed process leaves.

The folder counts if it is this user's or root's and nobody else may write there. That is asked of the folder that was
opened, and all below is opened from there and without following links, so that nothing can be exchanged in between. What
is read is a regular file of bounded size: a FIFO or a device would block, and a file of gigabytes fill the memory.
"""

import contextlib
import fcntl
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

READ_ONLY = "WMMA_OPS_CACHE_READ_ONLY"  # 1: the cache folder is trusted, whoever owns it, and only read

_LIMIT = 64 << 20  # bytes of a file: the largest code objects have some MB
_WRITING = "writing"  # the folder of files that are being written
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PREFIX = "wmma_ops-job-"
_swept: set[tuple[int, str]] = set()


class Refused(OSError):
    """A folder or a file that is not taken; says what to do."""


def read_only() -> bool:
    return os.environ.get(READ_ONLY) == "1"


def check(root: Path) -> None:
    """Raises Refused if others may decide what lies there. A folder that is not there yet is none of those."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), within(root):
        pass


@contextlib.contextmanager
def within(root: Path, *parts: str, make: bool = False) -> Iterator[int]:
    """A descriptor of a folder of the cache folder `root`; `make`: with all that is missing on the way."""
    if make and not root.is_dir():
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
    opened = os.open(root, _FOLDER)
    try:
        _check(root, found := os.fstat(opened))
        owners = _owners(found)
        for part in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=opened)
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=opened)
            os.close(opened)
            opened = inner
            _check_owner(root / part, os.fstat(opened), owners)
        yield opened
    finally:
        os.close(opened)


def read(root: Path, *parts: str, shipped: bool = False) -> bytes:
    """The file root/parts…; `shipped`: of a folder that is named on purpose, whose links are followed and whose owner is
    not asked for."""
    path = root.joinpath(*parts)
    if shipped:
        return _whole(os.open(path, _FILE), path, None)
    with within(root, *parts[:-1]) as folder:
        # The folder it lies in belongs to one of those who may own it.
        owners = _owners(os.fstat(folder))
        return _whole(os.open(parts[-1], _FILE | os.O_NOFOLLOW, dir_fd=folder), path, owners)


def write(root: Path, *parts: str, data: bytes) -> None:
    """Beside its place, then renamed to it. What killed processes had begun goes."""
    with within(root, _WRITING, make=True) as beside, within(root, *parts[:-1], make=True) as folder:
        _once(str(root), lambda: _sweep_files(beside))
        descriptor, name = _begun(beside)
        with open(descriptor, "wb") as file:
            try:
                # The folder keeps others out; an image or a wheel may ship its files to other users.
                os.fchmod(descriptor, 0o644)
                file.write(data)
                file.flush()
                os.replace(name, parts[-1], src_dir_fd=beside, dst_dir_fd=folder)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=beside)
                raise


@contextlib.contextmanager
def temporary() -> Iterator[str]:
    """A temporary folder. Those of killed processes go when a process wants its first."""
    parent = tempfile.gettempdir()
    _once(parent, lambda: _sweep_folders(parent))
    held = None
    while held is None:
        folder = tempfile.mkdtemp(prefix=_PREFIX)
        try:
            held = _lock(folder)
        except (BlockingIOError, FileNotFoundError):
            continue  # another process sweeps it
        except OSError:
            break  # no locks there, and so nobody who sweeps
        if not _is_at(held, folder):
            os.close(held)  # another process swept it before it was locked
            held = None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if held is not None:
            os.close(held)


def _check(root: Path, found: os.stat_result) -> None:
    if read_only():
        return
    named = shlex.quote(str(root))
    otherwise = f"WMMA_OPS_CACHE_DIR names another, {READ_ONLY}=1 trusts this one and only reads it"
    if found.st_uid not in (os.geteuid(), 0):
        raise Refused(f"it belongs to user {found.st_uid}, who decides what lies there: {otherwise}")
    if found.st_mode & 0o022:
        mode = stat.S_IMODE(found.st_mode)
        raise Refused(f"others may write there (mode {mode:o}): `chmod go-w {named}` makes it yours alone; {otherwise}")


def _owners(folder: os.stat_result) -> set[int]:
    """Whose files are read in a folder that was not refused."""
    return {os.geteuid(), 0, folder.st_uid}


def _check_owner(path: Path, found: os.stat_result, owners: set[int]) -> None:
    if found.st_uid not in owners:
        raise Refused(f"{path} belongs to user {found.st_uid}")


def _whole(descriptor: int, path: Path, owners: set[int] | None) -> bytes:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)  # Python opens no folder
        raise Refused(f"{path} is no regular file")
    with open(descriptor, "rb", buffering=0) as file:
        if owners is not None:
            _check_owner(path, found, owners)
        if found.st_size > _LIMIT:
            raise Refused(f"{path} has {found.st_size} bytes; files of up to {_LIMIT} are read")
        chunks, left = [], _LIMIT
        while left and (chunk := file.read(min(left, found.st_size + 1))):  # it may grow meanwhile
            chunks.append(chunk)
            left -= len(chunk)
        return b"".join(chunks)


def _begun(folder: int) -> tuple[int, str]:
    while True:
        name = f"{os.urandom(8).hex()}.writing"
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, name
        os.close(descriptor)  # another process swept it before it was locked


def _once(folder: str, sweep) -> None:
    """In each process, as forks are; nothing that fails here hinders the work."""
    if (key := (os.getpid(), folder)) not in _swept:
        _swept.add(key)
        with contextlib.suppress(OSError):
            sweep()


def _sweep_files(folder: int) -> None:
    for name in os.listdir(folder):
        if name.endswith(".writing"):
            held = _locked(name, folder)
            if held is not None:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=folder)
                os.close(held)


def _sweep_folders(parent: str) -> None:
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        if name.startswith(_PREFIX) and (held := _locked(path)) is not None:
            found = os.fstat(held)
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)
            os.close(held)


def _lock(path: str, folder: int | None = None) -> int:
    """A descriptor that holds a lock, for as long as it is open and its process lives; BlockingIOError where another
    does."""
    descriptor = os.open(path, _FILE | os.O_NOFOLLOW, dir_fd=folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _locked(path: str, folder: int | None = None) -> int | None:
    """The same; None where there is no lock to be had."""
    with contextlib.suppress(OSError):
        return _lock(path, folder)
    return None


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False
