"""What a run of the tests tells of itself: its skips by their reasons, and make test how long it takes."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SKIPPED = """
import pytest

@pytest.mark.parametrize("x", range(7))
def test_a(x):
    pytest.skip("needs a GPU" if x % 3 else "no such compiler\\n  here")

@pytest.mark.skipif(True, reason="needs a GPU")
def test_b(): ...

def test_c(): ...
"""


def test_skips_are_told_by_their_reasons(tmp_path):
    (tmp_path / "test_some.py").write_text(SKIPPED)
    (tmp_path / "test_whole.py").write_text("import pytest; pytest.skip('needs a GPU', allow_module_level=True)")
    paths = os.pathsep.join(map(str, (ROOT / "tests", ROOT / "tests/support", ROOT)))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-c",
        ROOT / "pyproject.toml",
        "-p",
        "conftest",
        tmp_path,
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": paths})
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout.splitlines()
    at = next(i for i, line in enumerate(shown) if " 9 skipped, by reason " in line)
    assert shown[at + 1 : at + 3] == ["     6  needs a GPU", "     3  no such compiler here"]
    assert "SKIPPED [" not in done.stdout
    assert shown[-1].startswith("1 passed, 9 skipped in ")


def test_make_test_says_how_long_it_takes_before_it_starts():
    rule = (ROOT / "Makefile").read_text().partition("\ntest: build\n")[2].partition("\n\n")[0].splitlines()
    assert rule[0].startswith("\t@echo ")
    assert re.search(r"about \d+ minutes", rule[0])
    assert "pytest" in rule[-1]
