"""Scripts that are started by hand, from any folder."""

import runpy
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def test_the_sanitizers_script_names_its_tools(tmp_path, monkeypatch, capsys):
    script = str(TESTS / "gpu/sanitized.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script, "leakcheck"])
    monkeypatch.setattr(sys, "path", [one for one in sys.path if TESTS not in (Path(one), *Path(one).parents)])
    monkeypatch.delitem(sys.modules, "configurations", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(script, run_name="__main__")
    assert ended.value.code == 2
    assert "no tool leakcheck; there are memcheck, synccheck, racecheck, initcheck" in capsys.readouterr().err
