"""`python -m wmma_ops layout`: text, JSON and drawings of how lanes hold a matrix."""

import json
import re
import sys

import pytest
from test_layouts import indices
from typed import typed

from wmma_ops.cli import layout as layout_view
from wmma_ops.hardware.layouts import layout


def test_layout_prints_the_matrix(capsys):
    done = typed(capsys, "layout", "gfx1201", "--operand", "D")
    assert done.returncode == 0, done.stderr
    assert "\x1b[" not in done.stdout
    assert "v_wmma_f32_16x16x16_f16" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r" *\d+ .*:", line)]
    assert rows[11] == ["11", *(f"{16 + column}:3" for column in range(16))]


def test_text_fits_the_width_and_shows_every_element():
    for target, operand, name in (
        ("gfx1100", "A", None),
        ("gfx908", "D", "v_mfma_f32_32x32x4f16"),
        ("sm_90", "B", None),
    ):
        found = layout(target, operand, name)
        for width in (40, 80, 200):
            shown = layout_view.text(found, width)
            assert all(len(line) <= width for line in shown.splitlines()[2:])
            cells = re.findall(r"[\d,]+:\d+", "\n".join(shown.splitlines()[2:]))
            assert sorted(cells) == sorted(layout_view.cell(found, r, c, b) for b, r, c in indices(found))
    assert "3,19:7" in layout_view.text(layout("gfx1100", "A"))
    assert "block 1" in layout_view.text(layout("gfx908", "D", "v_mfma_f32_32x32x4f16"))


def test_layout_as_json(capsys):
    done = typed(
        capsys,
        "layout",
        "gfx942",
        "--operand",
        "B",
        "--instruction",
        "v_mfma_f32_32x32x8_f16",
        "--transposed",
        "--json",
    )
    found = json.loads(done.stdout)
    right = layout("gfx942", "B", "v_mfma_f32_32x32x8_f16", transposed=True)
    assert found["shape"] == [32, 8] == list(right.shape)
    assert found["map"] == [[list(place) for place in lane] for lane in right.places]
    assert found["registers"] == [[0, 0], [0, 16], [1, 0], [1, 16]]


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_layout_draws(suffix, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib draws the layouts and is not installed")
    path = tmp_path / f"layout{suffix}"
    done = typed(capsys, "layout", "gfx1100", "--operand", "A", "--png", str(path), "--json")
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    start = path.read_bytes()[:8]
    assert start == b"\x89PNG\r\n\x1a\n" if suffix == ".png" else start.startswith(b"<?xml")
    assert path.stat().st_size > 10_000
    layout_view.draw(layout("gfx942", "D", "v_mfma_f32_4x4x4_16b_f16"), str(tmp_path / f"blocks{suffix}"))


def test_layout_without_matplotlib_names_the_package(tmp_path, monkeypatch, capsys):
    from wmma_ops.cli.main import main

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["layout", "gfx1201", "--png", str(tmp_path / "x.png")]) == 1
    assert "pip install matplotlib" in capsys.readouterr().err


def test_layout_errors_are_one_line_and_exit_with_2(tmp_path, capsys):
    for arguments, message in (
        (["gfx1202"], "no target 'gfx1202' is known; the closest names are gfx120"),
        (["gfx1201", "--instruction", "v_mfma_f32_16x16x16_f16"], "it has v_wmma_f32_16x16x16_f16, "),
        (["gfx1201", "--png", str(tmp_path / "x.jpg")], "pictures end in .png or .svg"),
    ):
        done = typed(capsys, "layout", *arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert (done.stderr.count("\n"), done.stdout) == (1, "")
    assert typed(capsys, "layout", "gfx1201", "--operand", "E").returncode == 2
    assert typed(capsys, "layout").returncode == 2
