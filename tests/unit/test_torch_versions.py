"""The script that tries other releases of torch says what it could not try, and fails where a test does."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("torch_versions", ROOT / "tests/torch_versions.py")
torch_versions = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(torch_versions)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(torch_versions, "ROOT", tmp_path)
    return tmp_path


def _stand_in(folder: Path, release: str, fails: str = "none of these") -> Path:
    """An interpreter that notes what it is to run, and fails where that holds a word."""
    python = folder / "build" / f"torch-{release}" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$@" >> {folder}/ran\ncase "$*" in *"{fails}"*) exit 3;; esac\n')
    python.chmod(0o755)
    return python


def test_the_oldest_is_the_oldest_that_is_taken():
    taken = re.search(r"torch>=([\d.]+)", (ROOT / "pyproject.toml").read_text()).group(1)
    assert f"{taken}.0" == torch_versions.OLDEST


def test_what_it_needs_is_known_to_the_package():
    names = {re.match(r"[\w-]+", row).group() for row in torch_versions.packages()}
    assert {"numpy", "rich", *torch_versions.TESTING} <= names
    assert "torch" not in names


def test_what_cannot_be_had_is_said_and_no_failure(folder, monkeypatch, capfd):
    python = folder / "build/torch-0.0.1/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')  # an environment takes seconds to make
    python.chmod(0o755)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # a user's constraints on torch change pip's words
    assert torch_versions.main(["0.0.1"]) is None
    said = capfd.readouterr().err
    assert "WARNING: torch 0.0.1 could not be installed: NOTHING IS TESTED WITH IT IN THIS RUN" in said
    assert "No matching distribution found for torch==0.0.1" in said


@pytest.mark.parametrize("fails", ["--tier torch", "wmma_ops demo"])
def test_a_failed_test_or_demo_is_a_failure_and_the_others_run(folder, fails, capfd):
    _stand_in(folder, "2.10.0", fails)
    _stand_in(folder, "newest")
    assert torch_versions.main(["2.10.0", "newest"]) == "failed with torch: 2.10.0"
    assert re.search(f"torch-2.10.0: .*{fails} ended with 3", capfd.readouterr().err)
    ran = (folder / "ran").read_text()
    assert ran.count("--tier torch") == ran.count("wmma_ops demo") == 2
    assert "--retries 2 torch==2.10.0 " in ran
    assert "--retries 2 --upgrade torch " in ran


def test_all_well(folder):
    _stand_in(folder, "newest")
    assert torch_versions.main(["newest"]) is None


def test_what_tells_the_version_must_run(folder):
    _stand_in(folder, "newest", "import torch")
    with pytest.raises(subprocess.CalledProcessError):
        torch_versions.main(["newest"])
