"""The built wheel, installed in an environment that has torch and nothing of this checkout."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import wmma_ops
from wmma_ops.ops import library

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("wheel")  # one worker builds it


def _run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    source = tmp_path_factory.mktemp("source") / "wmma_ops"
    tracked = _run("git", "ls-files", "-z", cwd=ROOT).split("\0")[:-1]
    for name in tracked:
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    _run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", folder, source)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.full
def test_wheel_holds_the_library_and_the_kernels(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"wmma_ops/_library.so", "wmma_ops/py.typed"} <= set(names)
    assert any(name.startswith("wmma_ops/_nodes_") for name in names)
    kernels = [
        p
        for p in (ROOT / "kernels").rglob("*")
        if p.suffix in (".hip", ".hpp") or ("compat" in p.parts and p.is_file())
    ]
    assert kernels
    for path in kernels:
        assert f"wmma_ops/kernels/{path.relative_to(ROOT / 'kernels')}" in names
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "wmma_ops").rglob("*.py")}
    assert modules <= set(names)
    (entry_points,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
    points = zipfile.ZipFile(wheel).read(entry_points)
    assert b"wmma = wmma_ops.inductor:backend" in points
    assert b"wmma_ops = wmma_ops.__main__:run" in points
    assert not [name for name in names if name.startswith("tests") or name.endswith((".cpp", ".o", ".md", ".yml"))]
    assert "-abi3-" in wheel.name  # one for every Python from 3.10 on
    assert wheel.name.startswith(f"wmma_ops-{wmma_ops.__version__}-")


def test_the_version_stands_once():
    """Only the changelog, which tells of it, names it again."""
    version = re.compile(rf"(?<![\d.]){re.escape(wmma_ops.__version__)}(?![\d.])".encode())
    tracked = [ROOT / name for name in _run("git", "ls-files", cwd=ROOT).splitlines()]
    naming = [path for path in tracked if path.exists() and version.search(path.read_bytes())]
    assert [str(path.relative_to(ROOT)) for path in naming] == ["docs/changelog.md", "wmma_ops/version.py"]


EXTRA = re.compile(r'pip install --no-build-isolation "\.\[(\w+)\]"')
OTHERWISE = re.compile(r"""\bwmma_ops\[(\w+)\]|["']\.\[(\w+)\]["']""")


def _told_otherwise(text: str, extras: set[str]) -> list[str]:
    """Extras that a text asks for in another way than from a checkout: there is no wmma_ops on an index."""
    return [name for found in OTHERWISE.findall(EXTRA.sub("", text)) for name in found if name in extras]


def test_extras_are_installed_from_a_checkout_everywhere():
    rows = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = set(re.findall(r"^(\w+) = \[", rows, re.M))
    here, changelog = Path(__file__), ROOT / "docs/changelog.md"  # the latter tells of what was
    tracked = _run("git", "ls-files", "*.py", "*.md", "*.yml", "*.toml", "Makefile", cwd=ROOT).splitlines()
    texts = {path: path.read_text() for name in tracked if (path := ROOT / name).exists()}
    assert not [path for path, text in texts.items() if path not in (here, changelog) and _told_otherwise(text, extras)]
    asked = {path: set(EXTRA.findall(text)) for path, text in texts.items()}
    assert set().union(*asked.values()) <= extras
    assert "clang" in asked[ROOT / "README.md"]  # without which nothing is emulated
    for wrong in (
        'pip install "wmma_ops[clang]"',
        "(`wmma_ops[clang]`)",
        "pip install '.[clang]'",
        'pip install ".[clang]"',
    ):
        assert _told_otherwise(wrong, extras) == ["clang"], wrong


def test_the_changelog_tells_of_this_version():
    told = re.findall(r"^## (\S+)$", (ROOT / "docs/changelog.md").read_text(), re.M)
    assert told[told[0] == "Unreleased"] == wmma_ops.__version__


DESCRIBE = "import sys, setuptools.build_meta as build; print(build.prepare_metadata_for_build_wheel(sys.argv[1]))"
WITHOUT_WHEEL = f"import sys; sys.modules['wheel'] = None; {DESCRIBE}"


def _described(setuptools, script, folder):
    """What `setuptools` makes of pyproject.toml and setup.py."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder / "old"]
    done = subprocess.run([*command, f"setuptools=={setuptools}"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"setuptools {setuptools} cannot be had here: {done.stderr.strip().splitlines()[-1]}")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("wmma_ops", "kernels"):
        shutil.copytree(ROOT / name, folder / name)
    environment = {**os.environ, "PYTHONPATH": str(folder / "old")}
    (folder / "out").mkdir()
    command = [sys.executable, "-c", script, str(folder / "out")]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="setuptools 65.5 does not run on this Python")
def test_the_setuptools_of_python_3_11_takes_our_description(tmp_path):
    done = _described("65.5.0", DESCRIBE, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "out" / done.stdout.splitlines()[-1] / "METADATA").read_text()
    assert {"Name: wmma-ops", f"Version: {wmma_ops.__version__}", "License: MIT", "License-File: LICENSE"} <= set(
        text.splitlines()
    )


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="these setuptools do not run on this Python")
@pytest.mark.parametrize(
    ("setuptools", "script", "says"),
    [
        ("59.6.0", DESCRIBE, "takes setuptools 64 or later, and this environment has 59.6.0: pip install --upgrade"),
        ("65.5.0", WITHOUT_WHEEL, "no wheel before 70.1 without `wheel`, .* has 65.5.0: pip install --upgrade"),
    ],
    ids=["too old", "without wheel"],
)
def test_an_environment_that_cannot_build_is_told_what_to_install(setuptools, script, says, tmp_path):
    done = _described(setuptools, script, tmp_path)
    assert done.returncode == 1
    assert re.search(says, done.stderr.strip().splitlines()[-1]), done.stderr


@pytest.mark.full
def test_wheel_works_away_from_the_checkout(wheel, tmp_path):
    _run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env")
    python = tmp_path / "env/bin/python"
    site = Path(_run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # A plain path: the .pth files of that folder, the editable install's among them, are not followed.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    _run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    where = _run(python, "-c", "import wmma_ops; print(wmma_ops.__file__)", cwd=tmp_path).strip()
    assert where.startswith(str(site))
    assert json.loads(_run(python, "-m", "wmma_ops", "doctor", "--json", cwd=tmp_path))["ok"]
    assert json.loads(_run(python, "-m", "wmma_ops", "demo", "--json", cwd=tmp_path))


def test_library_is_stable_and_needs_torch_2_10():
    text = _run(sys.executable, "-m", "torch_abi_audit.cli", library.PATH, "--check", "torch", "-v")
    assert re.search(r"Torch ABI:\s+STABLE", text), text
    assert re.search(r"Min torch:\s+2\.10\.0", text), text


def test_library_links_neither_a_gpu_nor_python():
    needed = _run("readelf", "-d", library.PATH)
    assert not re.search(r"NEEDED.*(cuda|hip|nvrtc|python)", needed), needed
    symbols = _run("nm", "-D", "--undefined-only", library.PATH)
    assert not re.search(r"\b(Py[A-Z_]|_Py|cuda|hip)\w*", symbols)


def test_library_is_small_and_keeps_no_paths():
    assert library.PATH.stat().st_size < 3_000_000
    assert str(ROOT).encode() not in library.PATH.read_bytes()


def test_nothing_else_stands_at_the_top():
    allowed = {
        "setup.py",
        "pyproject.toml",
        "Makefile",
        "README.md",
        "LICENSE",
        "kernels",
        "wmma_ops",
        "tests",
        "bench",
        "docs",
    }
    top = {name.split("/")[0] for name in _run("git", "ls-files", cwd=ROOT).splitlines()}
    assert {name for name in top if not name.startswith(".")} == allowed


def test_the_library_formats_nothing_by_streams():
    """Where torch brings a C++ library of its own (2.11 for CUDA 13), one crashes as it formats a number."""
    sources = Path(wmma_ops.__file__).parent / "csrc"
    found = [x.name for x in sources.rglob("*.?pp") if re.search(r"#include <(\w*stream|iomanip)>", x.read_text())]
    assert not found
