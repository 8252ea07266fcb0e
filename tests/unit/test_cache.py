"""The cache of compiled kernels: what is a hit, what is damaged or in the way, and who shares it."""

import ctypes
import hashlib
import logging
import multiprocessing
import os
import resource
import shutil
import statistics
import subprocess
import threading
import time
from pathlib import Path

import filelock
import pytest
from at_once import at_once
from compiler_sources import EMPTY, MATRIX, NVIDIA, STORES, forget, text_of

from wmma_ops import jit
from wmma_ops.jit import cache, clang, hiprtc, kernels_dir

pytestmark = pytest.mark.usefixtures("cache_folder")

HIT_SECONDS = 0.020  # the promise is 2 ms; a busy CI machine gets ten times that


def _entries(cache_folder) -> list[Path]:
    return sorted(cache_folder.rglob("*.wmma"))


def test_a_hit_is_quick_and_starts_no_process(monkeypatch):
    """As in a new process, whose first hit looks for the compiler as well."""
    code = jit.compile(MATRIX, "gfx942")
    for found in (clang._search, clang._probe):
        found.cache_clear()
    forget()
    times = []
    with monkeypatch.context() as refusing:
        refusing.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
        for _ in range(21):
            cache._memory.clear()
            start = time.perf_counter()
            hit = jit.compile(MATRIX, "gfx942")
            times.append(time.perf_counter() - start)
            assert hit == code
    start = time.perf_counter()
    assert jit.compile(MATRIX, "gfx942") is hit
    memory = time.perf_counter() - start
    disk = statistics.median(times[1:])
    print(f"hit: {disk * 1e3:.2f} ms from disk ({times[0] * 1e3:.2f} the first), {memory * 1e3:.2f} from memory")
    assert disk < HIT_SECONDS
    assert times[0] < 5 * HIT_SECONDS


def test_what_is_held_in_memory_is_bounded(compilations, monkeypatch):
    """Those that were used last; the others are read from disk."""
    first = jit.compile(EMPTY, "gfx942")
    size = len(first.code) + len(first.assembly)
    monkeypatch.setattr(cache, "_IN_MEMORY", int(3.5 * size))
    for target in ("gfx908", "gfx90a", "gfx942", "gfx950"):
        jit.compile(EMPTY, target)
    assert [code.target for code in cache._memory.values()] == ["gfx90a", "gfx942", "gfx950"]
    assert jit.compile(EMPTY, "gfx942") is first
    jit.compile(EMPTY, "gfx908")
    assert [code.target for code in cache._memory.values()] == ["gfx950", "gfx942", "gfx908"]
    assert compilations() == 4


def test_the_folder_is_ours_alone(cache_folder):
    jit.compile(EMPTY, "gfx942")
    assert cache_folder.stat().st_mode & 0o777 == 0o700


def test_without_the_variable_it_is_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("WMMA_OPS_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.directory() == tmp_path / "xdg/wmma_ops"
    monkeypatch.setenv("WMMA_OPS_CACHE_DIR", "~/elsewhere")
    assert cache.directory() == Path.home() / "elsewhere"


def test_the_key_holds_all_that_decides(compilations, monkeypatch, tmp_path):
    changing = tmp_path / "changing"
    (changing / "wmma/deep").mkdir(parents=True)
    header = changing / "wmma/deep/value.hpp"
    header.write_text("#define VALUE 1.0f\n")
    monkeypatch.setattr(kernels_dir, "PATH", changing)
    source = f"#include <wmma/deep/value.hpp>\n{STORES}"
    variants: list[dict] = [
        {},
        {"source": f"{source}\n"},
        {"target": "gfx90a"},
        {"target": "gfx90a:xnack-"},
        {"options": ("-O1",)},
        {"name": "other.hip"},
    ]
    for i, variant in enumerate(variants):
        for _ in range(2):
            jit.compile(**{"source": source, "target": "gfx942", **variant})
            forget()
        assert compilations() == i + 1
    first = jit.compile(source, "gfx942")
    header.write_text("#define VALUE 2.0f\n")
    assert text_of(jit.compile(source, "gfx942").code) != text_of(first.code)
    assert compilations() == len(variants) + 1
    header.write_text("#define VALUE 1.0f\n")
    assert jit.compile(source, "gfx942") == first
    monkeypatch.setattr("wmma_ops.jit.cache.__version__", "0.0.0")
    assert jit.compile(source, "gfx942") == first
    assert compilations() == len(variants) + 2
    monkeypatch.setattr(clang.Clang, "version", lambda *_: "another")
    jit.compile(source, "gfx942")
    assert compilations() == len(variants) + 3


def _sealed(body: bytes) -> bytes:
    """An entry of this content, with its checksum."""
    return cache._FORMAT + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def _body(entry: bytes) -> bytes:
    return entry[len(cache._FORMAT) + 65 :]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[:20], id="head alone"),
        pytest.param(lambda data: data[: len(data) // 2], id="truncated"),
        pytest.param(lambda data: data[:-1], id="a byte short"),
        pytest.param(lambda data: data + b"x", id="a byte more"),
        pytest.param(lambda data: data[:3000] + bytes([data[3000] ^ 1]) + data[3001:], id="flipped bit"),
        pytest.param(lambda data: data.replace(b"object 4\n", b"object 9\n", 1), id="another format"),
        pytest.param(lambda data: b"\x7fELF" + data[4:], id="foreign"),
        pytest.param(lambda data: _sealed(b"{}\n"), id="no fields"),
        pytest.param(lambda data: _sealed(b"[" * 100_000 + b"\n"), id="a head of lists in lists"),
        pytest.param(lambda data: _sealed(_body(data).replace(b'"gfx942"', b"942", 1)), id="a number for a target"),
        pytest.param(
            lambda data: _sealed(_body(data).replace(b'"kernels": [', b'"kernels": [7, ', 1)), id="of a kernel"
        ),
        pytest.param(
            lambda data: _sealed(_body(data).replace(b'"log": ""', b'"log": {}', 1)), id="an object for a log"
        ),
        pytest.param(
            lambda data: _sealed(_body(data).replace(b'"includes": []', b'"includes": [7]', 1)), id="of an include"
        ),
    ],
)
def test_a_damaged_entry_is_rebuilt(damage, cache_folder, compilations):
    code = jit.compile(EMPTY, "gfx942")
    (entry,) = _entries(cache_folder)
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    forget()
    assert jit.compile(EMPTY, "gfx942") == code
    assert compilations() == 2
    assert entry.read_bytes() == whole


def test_an_entry_of_another_key_is_rebuilt(cache_folder, compilations):
    code = jit.compile(EMPTY, "gfx942")
    (entry,) = _entries(cache_folder)
    jit.compile(EMPTY, "gfx90a")
    (other,) = set(_entries(cache_folder)) - {entry}
    shutil.copy(other, entry)
    forget()
    assert jit.compile(EMPTY, "gfx942") == code
    assert compilations() == 3


def test_a_damaged_note_about_a_compiler_is_asked_again(cache_folder):
    code = jit.compile(EMPTY, "gfx942")
    for note in (cache_folder / "compilers").glob("*.json"):
        note.write_text('{"identity": 3')
    forget()
    clang._probe.cache_clear()
    assert jit.compile(EMPTY, "gfx942") == code


_barrier = None


def _at_once(source):
    _barrier.wait()
    forget()
    return jit.compile(source, "gfx942")


def _by_eight_processes(source):
    global _barrier
    context = multiprocessing.get_context("fork")
    _barrier = context.Barrier(8)
    with context.Pool(8) as pool:
        return pool.map(_at_once, [source] * 8, chunksize=1)


def test_eight_processes_share_one_compilation(cache_folder, compilations):
    codes = _by_eight_processes(EMPTY)
    assert len(set(codes)) == 1
    assert codes[0].kernels == ("empty",)
    assert len(_entries(cache_folder)) == 1
    assert compilations() == 1
    assert not list(cache_folder.rglob("*.writing"))


def test_eight_processes_without_a_lock(cache_folder, compilations):
    cache_folder.mkdir()
    (cache_folder / "locks").write_text("no folder")
    codes = _by_eight_processes(EMPTY)
    assert len(set(codes)) == 1
    assert len(_entries(cache_folder)) == 1
    assert 1 <= compilations() <= 8
    assert not list(cache_folder.rglob("*.writing"))


def test_eight_threads_share_one_compilation(cache_folder, compilations):
    barrier, codes = threading.Barrier(8), []

    def work():
        barrier.wait()
        codes.append(jit.compile(EMPTY, "gfx942"))

    at_once(work, [()] * 8)
    assert len(codes) == 8
    assert len(set(codes)) == 1
    assert compilations() == 1


def test_a_lock_that_is_never_given_up_is_passed(cache_folder, monkeypatch):
    monkeypatch.setattr(cache, "_LOCK_SECONDS", 0.1)
    held = []
    lock = cache.lock

    def locked(request):
        (cache_folder / "locks").mkdir(parents=True, exist_ok=True)
        held.append(filelock.FileLock(cache_folder / "locks" / f"{request[:32]}.lock"))
        held[-1].acquire()
        return lock(request)

    monkeypatch.setattr(cache, "lock", locked)
    assert jit.compile(EMPTY, "gfx942").kernels == ("empty",)
    assert len(_entries(cache_folder)) == 1
    held[0].release()


def test_an_unusable_folder_is_said_once(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("WMMA_OPS_CACHE_DIR", str(tmp_path / "file/cache"))
    with caplog.at_level(logging.WARNING, "wmma_ops.jit"):
        for target in ("gfx942", "gfx90a"):
            assert jit.compile(EMPTY, target).kernels == ("empty",)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(tmp_path / "file/cache") in caplog.text
    assert "WMMA_OPS_CACHE_DIR" in caplog.text


def test_folders_that_cannot_be_are_passed_over(cache_folder, tmp_path, monkeypatch, caplog):
    named = ("~nobody-of-this-name/kernels", "x" * 5000, str(tmp_path / "missing"), str(tmp_path))
    monkeypatch.setenv("WMMA_OPS_OBJECTS", os.pathsep.join(named))
    with caplog.at_level(logging.WARNING, "wmma_ops.jit"):
        assert cache.shipped()[:1] == (tmp_path,)
        assert jit.compile(EMPTY, "gfx942").kernels == ("empty",)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2  # once, not at every compilation
    assert "~nobody-of-this-name/kernels" in caplog.text


def _without_privileges(_):
    """Root's right to write everywhere goes; the rest of what root owns stays readable."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        assert libc.capset(header, nothing) == 0
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    cache.logger.addHandler(handler)
    forget()
    hit = jit.compile(EMPTY, "gfx942")
    cached = len(messages)
    missed = [jit.compile(EMPTY, target).target for target in ("gfx90a", "gfx908")]
    return hit, cached, missed, messages


def test_a_read_only_folder_serves_what_it_has(cache_folder, compilations):
    code = jit.compile(EMPTY, "gfx942")
    before = sorted(cache_folder.rglob("*"))
    folders = [cache_folder, *(path for path in before if path.is_dir())]
    for path in folders:
        path.chmod(0o500)
    try:
        with multiprocessing.get_context("fork").Pool(1) as pool:
            ((hit, cached, missed, messages),) = pool.map(_without_privileges, [None])
    finally:
        for path in folders:
            path.chmod(0o700)
    assert (hit, cached) == (code, 0)
    assert missed == ["gfx90a", "gfx908"]
    assert compilations() == 3
    assert len(messages) == 1
    assert "cannot be kept" in messages[0]
    assert sorted(cache_folder.rglob("*.wmma")) == [path for path in before if path.suffix == ".wmma"]


def test_a_full_disk_leaves_nothing_half_written(cache_folder, caplog):
    source = 'extern "C" __global__ void empty() {}\n'
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with caplog.at_level(logging.WARNING, "wmma_ops.jit"):
        # The system refuses to let any file grow past this, as a full disk does. NVRTC itself writes none.
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
        try:
            codes = [jit.compile(source, target) for target in NVIDIA]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [code.kernels for code in codes] == [("empty",)] * 2
    assert len(caplog.records) == 1
    assert not _entries(cache_folder)
    assert not list(cache_folder.rglob("*.writing"))


def test_a_filled_folder_serves_a_machine_without_a_compiler(cache_folder, monkeypatch):
    code = jit.compile(EMPTY, "gfx942")
    forget()
    monkeypatch.setattr(clang, "_candidates", tuple)
    monkeypatch.setattr(hiprtc, "_find", lambda: None)
    assert jit.compile(EMPTY, "gfx942") == code
    with pytest.raises(jit.CompileError, match="pip install ziglang"):
        jit.compile(EMPTY, "gfx90a")


def test_ls_and_clear(cache_folder):
    assert cache.ls() == []
    codes = [jit.compile(EMPTY, target, name="mine.hip") for target in ("gfx942", "gfx90a")]
    (cache_folder / "code/mine.txt").write_text("of somebody else")
    rows = cache.ls()
    assert [row.target for row in rows] == ["gfx942", "gfx90a"]
    assert [row.kernels for row in rows] == [("empty",)] * 2
    assert {row.name for row in rows} == {"mine.hip"}
    assert [row.bytes > len(code.code) for row, code in zip(rows, codes, strict=True)] == [True, True]
    rows[0].path.write_bytes(b"damaged")
    assert len(cache.ls()) == 1
    assert cache.clear() == 2
    assert cache.ls() == []
    assert [path.name for path in cache_folder.rglob("*") if path.is_file()] == ["mine.txt"]
    assert jit.compile(EMPTY, "gfx942").target == "gfx942"
