"""What others may do to the cache folder: none of it is read, followed, removed or waited for."""

import errno
import json
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch

from wmma_ops.cli import main
from wmma_ops.jit import cache, clang, files
from wmma_ops.jit.compiler import CodeObject
from wmma_ops.jit.inputs import Inputs
from wmma_ops.plan.gemm.config import GemmConfig
from wmma_ops.plan.gemm.tile_order import TileOrder
from wmma_ops.runtime import tuned

pytestmark = pytest.mark.usefixtures("cache_folder")

REQUEST = "0123456789abcdef" * 4
CODE = CodeObject(
    target="gfx942", compiler="one", code=b"\x7fELF", assembly="", log="", kernels=("k",), inputs=Inputs()
)
STRANGER = 12345  # a user's number
SECONDS = 5  # to wait for what must not block

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def _stored(folder) -> Path:
    cache.store(REQUEST, "1", CODE, "k.hip", frozenset())
    (entry,) = folder.glob("code/*/*.wmma")
    cache._memory.clear()
    return entry


def _fifo(path):
    os.mkfifo(path)


def _socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        before = os.getcwd()
        os.chdir(path.parent)  # a socket's path is short
        try:
            one.bind(path.name)
        finally:
            os.chdir(before)


def _huge(path):
    with open(path, "wb") as file:
        file.truncate(3 << 30)  # a hole: it takes no place


def _directory(path):
    path.mkdir()
    (path / "of mine").write_text("x")


def _device(path):
    os.symlink("/dev/zero", path)


INSTEAD = (_fifo, _socket, _huge, _directory, _device)
instead = pytest.mark.parametrize("instead", INSTEAD, ids=lambda make: make.__name__[1:])


@pytest.fixture(autouse=True)
def _no_waiting():
    """What blocks fails instead."""

    def late(*_):
        raise TimeoutError("blocked")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _replace(path, make):
    path.unlink(missing_ok=True)
    make(path)


# ---------------------------------------------------------------------------------------------- in a file's place


@instead
def test_what_is_no_file_of_ours_is_not_read_as_an_entry(cache_folder, instead):
    entry = _stored(cache_folder)
    _replace(entry, instead)
    start = time.monotonic()
    assert cache.load(REQUEST, "1") is None
    assert cache.load_any(REQUEST) is None
    assert cache.ls() == []
    cache.store(REQUEST, "1", CODE, "k.hip", frozenset())
    assert time.monotonic() - start < SECONDS
    assert entry.is_dir() or entry.is_file()


@pytest.mark.parametrize("shipped", [False, True], ids=["ours", "shipped"])
@pytest.mark.parametrize("make", [_fifo, _huge, _directory], ids=["fifo", "huge", "directory"])
def test_it_is_refused_before_a_byte_is_read(cache_folder, make, shipped):
    entry = _stored(cache_folder)
    _replace(entry, make)
    with pytest.raises(files.Refused, match="no regular file" if make is not _huge else "3221225472 bytes"):
        files.read(cache_folder, *entry.relative_to(cache_folder).parts, shipped=shipped)


@instead
def test_nor_as_what_a_compiler_said(cache_folder, instead):
    asked = []

    def ask():
        asked.append(1)
        return "1"

    def remembered():
        cache._facts.clear()
        return cache.remember(sys.executable, ask, lambda kept: kept == "1")

    assert [remembered(), remembered()] == ["1", "1"]
    assert len(asked) == 1
    (note,) = cache_folder.glob("compilers/*.json")
    _replace(note, instead)
    assert remembered() == "1"
    assert len(asked) == 2


@instead
def test_nor_as_a_lock(cache_folder, instead):
    (cache_folder / "locks").mkdir(parents=True)
    lock = cache_folder / "locks" / f"{REQUEST[:32]}.lock"
    instead(lock)
    size = lock.lstat().st_size
    start = time.monotonic()
    with cache.lock(REQUEST):
        pass
    assert time.monotonic() - start < SECONDS
    assert lock.lstat().st_size in (size, 0)


def test_a_lock_that_is_a_link_leaves_its_file_as_it_is(cache_folder, tmp_path):
    (cache_folder / "locks").mkdir(parents=True)
    precious = tmp_path / "precious"
    precious.write_text("of somebody")
    (cache_folder / "locks" / f"{REQUEST[:32]}.lock").symlink_to(precious)
    with cache.lock(REQUEST):
        pass
    assert precious.read_text() == "of somebody"


@instead
def test_nor_as_tuned_times(cache_folder, instead, caplog):
    path = tuned.path_of("some GPU")
    path.parent.mkdir(parents=True)
    instead(path)
    tuned._table.cache_clear()
    with caplog.at_level(logging.WARNING, "wmma_ops.plan"):
        assert tuned.count("some GPU") == 0
    tuned._table.cache_clear()
    assert "cannot be read" in caplog.text


@pytest.mark.parametrize("level", ["code", "request", "entry"])
def test_links_below_the_folder_are_not_followed(cache_folder, tmp_path, level):
    entry = _stored(cache_folder)
    moved = {"code": entry.parent.parent, "request": entry.parent, "entry": entry}[level]
    elsewhere = tmp_path / "elsewhere" / moved.name
    elsewhere.parent.mkdir()
    shutil.move(moved, elsewhere)
    moved.symlink_to(elsewhere)
    held = {path: path.read_bytes() for path in elsewhere.parent.rglob("*") if path.is_file()}
    assert cache.load(REQUEST, "1") is None
    assert cache.clear() == 0
    assert cache.strangers() == [moved]
    assert moved.is_symlink()
    assert {path: path.read_bytes() for path in elsewhere.parent.rglob("*") if path.is_file()} == held


def test_the_folder_itself_may_be_a_link(cache_folder, tmp_path):
    (tmp_path / "large disk").mkdir()
    cache_folder.symlink_to(tmp_path / "large disk")
    _stored(cache_folder)
    assert cache.load(REQUEST, "1") == CODE


@pytest.mark.parametrize("field", ["code", "version", "request"])
def test_an_entry_of_something_else_is_not_taken(cache_folder, field):
    entry = _stored(cache_folder)
    data = entry.read_bytes()
    if field == "code":
        entry.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        other = ("1", "f" * 64) if field == "request" else ("2", REQUEST)
        entry.write_bytes(cache._packed(other[1], other[0], CODE, "k.hip", frozenset()))
    assert cache.load(REQUEST, "1") is None


# ------------------------------------------------------------------------------------------- whose folder it is


def _said(caplog, cache_folder) -> str:
    """That nothing is read and nothing written, in one warning."""
    before = sorted(cache_folder.rglob("*"))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "wmma_ops.jit"):
        assert cache.load(REQUEST, "1") is None
        cache.store("a" * 64, "1", CODE, "k.hip", frozenset())
        with cache.lock(REQUEST):
            pass
    assert sorted(cache_folder.rglob("*")) == before
    assert len(caplog.records) == 1
    return caplog.text


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_folder_that_others_may_write_is_refused(cache_folder, caplog, capsys, monkeypatch, mode):
    _stored(cache_folder)
    cache_folder.chmod(mode)
    said = _said(caplog, cache_folder)
    assert f"chmod go-w {cache_folder}" in said
    assert "WMMA_OPS_CACHE_READ_ONLY=1" in said
    assert main.main(["cache", "clear"]) == 1
    assert f"chmod go-w {cache_folder}" in capsys.readouterr().err
    monkeypatch.setenv("WMMA_OPS_CACHE_READ_ONLY", "1")
    assert cache.load(REQUEST, "1") == CODE
    monkeypatch.delenv("WMMA_OPS_CACHE_READ_ONLY")
    subprocess.run(["chmod", "go-w", cache_folder], check=True)
    cache._memory.clear()
    assert cache.load(REQUEST, "1") == CODE


@needs_root
def test_a_folder_of_another_user_is_refused_or_only_read(cache_folder, caplog, monkeypatch):
    _stored(cache_folder)
    for path in (cache_folder, *cache_folder.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    assert f"belongs to user {STRANGER}" in _said(caplog, cache_folder)
    monkeypatch.setenv("WMMA_OPS_CACHE_READ_ONLY", "1")
    before = sorted(cache_folder.rglob("*"))
    cache._memory.clear()
    assert cache.load(REQUEST, "1") == CODE
    cache.store("b" * 64, "1", CODE, "k.hip", frozenset())
    with cache.lock(REQUEST):
        pass
    assert main.main(["cache", "clear"]) == 1
    assert sorted(cache_folder.rglob("*")) == before


@needs_root
@pytest.mark.parametrize("level", ["entry", "code"])
def test_what_another_user_left_in_our_folder_is_not_read(cache_folder, level):
    """As when it was open to all once."""
    entry = _stored(cache_folder)
    os.chown({"entry": entry, "code": entry.parent.parent}[level], STRANGER, STRANGER)
    assert cache.load(REQUEST, "1") is None


@needs_root
def test_a_folder_put_in_our_folders_place_is_refused(cache_folder, caplog):
    """Its parent is open to all."""
    _stored(cache_folder)
    cache_folder.parent.chmod(0o777)
    assert cache.load(REQUEST, "1") == CODE
    cache._memory.clear()
    cache_folder.rename(cache_folder.parent / "away")
    shutil.copytree(cache_folder.parent / "away", cache_folder)
    os.chown(cache_folder, STRANGER, STRANGER)
    assert f"belongs to user {STRANGER}" in _said(caplog, cache_folder)


def test_a_shipped_folder_is_trusted_by_who_names_it(cache_folder, tmp_path, monkeypatch):
    entry = _stored(cache_folder)
    folder = tmp_path / "shipped"
    (folder / "code" / REQUEST).mkdir(parents=True)
    (folder / "code" / REQUEST / entry.name).symlink_to(shutil.move(entry, tmp_path / "blob"))
    folder.chmod(0o777)
    if os.geteuid() == 0:
        os.chown(folder, STRANGER, STRANGER)
    monkeypatch.setenv("WMMA_OPS_OBJECTS", str(folder))
    assert cache.load_shipped(REQUEST) == CODE
    cache._memory.clear()
    _replace(folder / "code" / REQUEST / entry.name, _fifo)
    assert cache.load_shipped(REQUEST) is None


# ----------------------------------------------------------------------------------------------------- its contents


@pytest.mark.parametrize(
    "facts",
    [
        {"version": "1", "targets": ["gfx942"], "options": ["-fplugin=/tmp/evil.so"]},
        {"version": "1", "targets": ["gfx942"], "sums_anywhere": ["-fplugin=/tmp/evil.so"]},
        {"version": 1, "targets": ["gfx942"], "sums_anywhere": True},
        {"version": "1\n2", "targets": ["gfx942"], "sums_anywhere": True},
        {"version": "1", "targets": "gfx942", "sums_anywhere": True},
        {"version": "1", "targets": ["gfx942 -fplugin=x"], "sums_anywhere": True},
        ["version", "targets"],
        None,
    ],
    ids=str,
)
def test_facts_of_compilers_are_checked_field_by_field(cache_folder, facts):
    (first, *_) = clang.toolchains()
    (note, *_) = [path for path in cache_folder.glob("compilers/*.json") if first.clang[0] in path.read_text()]
    kept = json.loads(note.read_text())
    note.write_text(json.dumps({**kept, "facts": facts}))
    cache._facts.clear()
    clang._probe.cache_clear()
    assert clang.toolchains()[0] == first
    assert json.loads(note.read_text()) == kept


def test_tuned_times_are_checked_field_by_field(cache_folder):
    config = GemmConfig("plain", torch.float16, False, 16, 64, 64, 32, 2, 2, 1, 2, 1, TileOrder(8, 1))
    row = tuned._stored(config, tuned.Measured(1.5, None))
    assert tuned._config(row) == config
    fields = row["config"]
    rows = {
        "right": row,
        "a list": [],
        "an element of torch's others": {**row, "config": {**fields, "element": "load"}},
        "text for a number": {**row, "config": {**fields, "block_m": "64"}},
        "a field more": {**row, "config": {**fields, "more": 1}},
        "text for an order": {**row, "config": {**fields, "order": "8"}},
        "text in an order": {**row, "config": {**fields, "order": {**fields["order"], "splits": "2"}}},
        "no time": {**row, "microseconds": "1"},
    }
    path = tuned.path_of("some GPU")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"format": tuned._FORMAT, "best": rows}))
    tuned._table.cache_clear()
    assert tuned._table(path) == {"right": row}
    tuned._table.cache_clear()


# ------------------------------------------------------------------------------------------------------------ clear


def test_clear_removes_exactly_ours(cache_folder, capsys):
    entry = _stored(cache_folder)
    theirs = [
        "notes.json",
        "code/settings.json",
        "code/yarn.lock",
        "code/mine.wmma",
        f"code/{REQUEST}/mine.wmma",
        f"code/{REQUEST}/deeper/{entry.name}",
        "code/project/package.json",
        "compilers/tsconfig.json",
        "locks/poetry.lock",
        "writing/draft.writing",
        "chapter.writing",
    ]
    for name in theirs:
        (cache_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (cache_folder / name).write_text("of somebody else")
    (cache_folder / "locks" / f"{REQUEST[:32]}.lock").touch()
    assert main.main(["cache", "clear"]) == 0
    left = [str(path.relative_to(cache_folder)) for path in cache_folder.rglob("*") if path.is_file()]
    assert sorted(left) == sorted(theirs)
    said = capsys.readouterr().out
    assert "1 code objects removed" in said
    assert "not of wmma_ops" in said
    assert "notes.json" in said or "chapter.writing" in said


def test_clear_of_what_is_ours_alone_says_nothing_more(cache_folder, capsys):
    _stored(cache_folder)
    assert main.main(["cache", "clear"]) == 0
    assert "not of wmma_ops" not in capsys.readouterr().out
    assert not list(cache_folder.iterdir())


@pytest.mark.parametrize("name", ["../escape.hip", "a/b.hip", "/etc/passwd", ".."])
def test_names_with_separators_are_refused(name):
    from wmma_ops import jit

    with pytest.raises(ValueError, match="plain file name"):
        jit.compile("", "gfx942", name=name)


# ------------------------------------------------------------------------------------------- writers, and their end


def _write_often(number):
    for _ in range(40):
        cache.store(REQUEST, "1", CODE, "k.hip", frozenset())
        cache._memory.clear()
        if cache.load(REQUEST, "1") != CODE:
            return False
    return True


def test_racing_writers_leave_whole_entries(cache_folder, caplog):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert all(pool.map(_write_often, range(4), chunksize=1))
    assert not list(cache_folder.rglob("*.writing"))


def _killed(code: str, environment: dict) -> None:
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def test_a_process_killed_while_it_writes_leaves_nothing_for_long(cache_folder):
    _killed(
        "import os, pathlib, signal\n"
        "from wmma_ops.jit import files\n"
        "os.replace = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"files.write(pathlib.Path({str(cache_folder)!r}), 'code', 'x', data=b'x')\n",
        {},
    )
    assert len(list(cache_folder.glob("writing/*.writing"))) == 1
    files._swept.clear()
    _stored(cache_folder)
    assert not list(cache_folder.rglob("*.writing"))


def test_a_process_killed_while_it_compiles_leaves_nothing_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    _killed(
        "import os, signal, subprocess\n"
        "from wmma_ops.jit import clang\n"
        "subprocess.run = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "clang._ask('system', ('clang',))\n",
        {"TMPDIR": str(tmp_path)},
    )
    (stranger := tmp_path / "wmma_ops-mine").mkdir()
    (left,) = tmp_path.glob("wmma_ops-job-*")
    files._swept.clear()
    with files.temporary() as first:
        assert not left.exists()
        files._swept.clear()
        with files.temporary() as second:  # what is in use stays
            assert Path(first).is_dir()
            assert first != second
    assert stranger.is_dir()
    assert not list(tmp_path.glob("wmma_ops-job-*"))


@pytest.mark.parametrize("gone", [False, True], ids=["held", "gone"])
def test_a_folder_that_another_process_sweeps_is_not_taken(gone, tmp_path, monkeypatch):
    """A sweep sees a folder between its making and its lock."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made, make, held = [], tempfile.mkdtemp, []

    def swept_at_once(*args, **kwargs):
        made.append(make(*args, **kwargs))
        if len(made) == 1:
            if gone:
                os.rmdir(made[0])
            else:
                held.append(files._locked(made[0]))
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", swept_at_once)
    with files.temporary() as folder:
        assert [folder] == made[1:]
        assert Path(folder).is_dir()
    for descriptor in held:
        os.close(descriptor)


def test_a_folder_where_there_are_no_locks_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    with files.temporary() as folder:
        assert Path(folder).is_dir()
    assert not list(tmp_path.iterdir())
