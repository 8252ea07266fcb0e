"""python -m wmma_ops, as a user types it."""

import json
import subprocess
import sys

import wmma_ops
from wmma_ops import library


def _run(*arguments):
    return subprocess.run([sys.executable, "-m", "wmma_ops", *arguments], capture_output=True, text=True)


def test_demo_shows_a_row_for_every_op():
    done = _run("demo")
    assert done.returncode == 0, done.stderr
    assert "\x1b[" not in done.stdout  # no colour into a pipe
    for op in library.OPS:
        assert f" {op} " in done.stdout
    assert "torch's own" in done.stdout


def test_demo_as_json():
    rows = json.loads(_run("demo", "--json").stdout)
    assert {row["op"] for row in rows} == set(library.OPS)
    for row in rows:
        assert 0 <= row["error"] < 0.02
        assert row["microseconds"] > 0


def test_doctor():
    done = _run("doctor")
    assert done.returncode == 0, done.stderr
    assert wmma_ops.__version__ in done.stdout
    found = json.loads(_run("doctor", "--json").stdout)
    assert found["ok"] is True
    assert found["ops"] == list(library.OPS)


def test_usage_errors_exit_with_2():
    assert _run("dance").returncode == 2
    assert _run().returncode == 2
    for command in ("demo", "doctor"):
        assert command in _run("--help").stdout
