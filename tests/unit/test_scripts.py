"""Scripts that are started by hand, from any folder."""

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_the_sanitizers_script_names_its_tools(tmp_path):
    command = [sys.executable, TESTS / "gpu/sanitized.py", "leakcheck"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "no tool leakcheck; there are memcheck, synccheck, racecheck, initcheck" in done.stderr
