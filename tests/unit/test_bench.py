"""bench/: one clock, one JSON and one table, run by pytest and by each script."""

import importlib
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

import wmma_ops
from wmma_ops.cli.benching import OURS, Row, Run
from wmma_ops.runtime import clock

BENCH = Path(__file__).parents[2] / "bench"
IN_ONE = pytest.mark.xdist_group("runs of bench")  # one worker starts them
SOME = ("--quick", "-k", "16x16 or gfx942 and attention")  # two calls beside torch's, and a plan


@pytest.fixture
def bench(monkeypatch):
    """The folder's modules, on the CPU whatever is here, without a compiler's minutes; each call is made once."""
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    import running

    monkeypatch.setattr(running, "DEVICE", "cpu")
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(
        clock.Clock, "samples", lambda self, calls: [[1.0 + 0 * len(str(call()))] * 3 for call in calls]
    )
    yield running
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and BENCH in Path(sys.modules[name].__file__).parents:
            del sys.modules[name]


RUNS = """
import contextlib, io, json, os, sys
import pytest
for folder, arguments in json.loads(sys.argv[1]):
    os.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = pytest.main(arguments)
    print(json.dumps([int(code), printed.getvalue()]))
"""
SLOW = "import wmma_ops\nfast = wmma_ops.matmul\nwmma_ops.matmul = lambda a, b: [fast(a, b) for _ in 'abcd'][-1]\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder, and what runs of pytest over bench/ ended with and printed, in one process, by the package that is tested:
    of a few cases, of these compared with those, and with a matmul that takes four times as long."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "slow.py").write_text(SLOW)
    chosen = [
        [*SOME, "--baseline=check", f"--benchmark-json={folder}/run.json", "--benchmark-save=first"],
        [*SOME, "--benchmark-compare"],
        ["--quick", "-k", "no_grad", "--baseline=check", "-p", "slow"],
    ]
    asked = [(str(folder), [str(BENCH), *arguments]) for arguments in chosen]
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    environment = mine | {"PYTHONPATH": f"{folder}:{BENCH.parent}"}  # a worker of xdist times nothing
    command = [sys.executable, "-c", RUNS, json.dumps(asked)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(chosen), done.stdout + done.stderr
    return folder, found


@pytest.mark.full
@IN_ONE
def test_pytest_times_both_in_turn_and_prints_a_line_a_case(runs):
    folder, ((code, printed), *_) = runs
    assert code == 0, printed
    run = Run.of(json.loads((folder / "run.json").read_text()))
    assert [(row.group, [*row.samples]) for row in run.rows] == [
        ("calls", [OURS, "torch"]),
        ("calls", [OURS, "torch"]),
        ("plan for gfx942", [OURS]),
    ]
    assert all(len(found) >= 3 and min(found) > 0 for row in run.rows for found in row.samples.values())
    for row in run.rows:
        (line,) = [line for line in printed.splitlines() if row.name in line]
        assert row.ratio is None or f"{row.ratio:.2f}" in line
    assert "in turn" in printed
    assert "geometric mean" in printed


@pytest.mark.full
@IN_ONE
def test_a_run_is_compared_with_a_kept_one(runs):
    _, (_, (code, printed), _) = runs
    assert code == 0, printed
    assert "(NOW)" in printed
    assert "(0001_first)" in printed


@pytest.mark.full
@IN_ONE
def test_the_command_shows_what_pytest_kept(runs, capsys):
    from wmma_ops.cli.main import main

    folder, _ = runs
    assert main(["bench", "--from", str(folder / "run.json")]) == 0
    assert "wmma_ops.matmul 16x16, no_grad" in capsys.readouterr().out


@pytest.mark.full
@IN_ONE
def test_a_run_slower_than_the_baseline_fails(runs):
    """With ours it was held against it too, and passed."""
    _, (_, _, (code, printed)) = runs
    assert code == 1, printed
    assert "calls: wmma_ops.matmul 16x16, no_grad: 0." in printed
    assert "× torch's speed, was" in printed


def test_the_baseline_knows_the_cases_of_a_quick_run(bench):
    import baseline
    import plugin

    kept = json.loads(baseline.PATH.read_text())
    assert {str(case) for case in plugin.cases(quick=True)} == set(kept["ratios"]) | set(kept["most_us"])


def test_the_baseline_keeps_and_holds(bench, tmp_path):
    import baseline

    path = tmp_path / "baseline.json"
    rows = [Row("g", "a", {OURS: [2.0], "torch": [1.0], "compiled": [3.0]}), Row("g", "b", {OURS: [10.0]})]
    baseline.write(rows, path)
    assert json.loads(path.read_text()) == {"ratios": {"g: a": 0.5}, "most_us": {"g: b": 60.0}}
    assert baseline.misses(rows, path) == []
    slower = [Row("g", "a", {OURS: [4.1], "torch": [1.0]}), Row("g", "b", {OURS: [61.0]}), Row("g", "c", {OURS: [1.0]})]
    a, b, c = baseline.misses(slower, path)
    assert a == "g: a: 0.24 × torch's speed, was 0.50; takes 0.25"
    assert b == "g: b: 61 µs; takes 60 µs"
    assert c.startswith("g: c: no time is kept")


def _shrink_gemm(module, monkeypatch):
    for name, shapes in (("BIG", (64, 48, 32)), ("SMALL", (1, 32, 32)), ("LAYERS", (32, 64)), ("FUSED", (32, 32, 64))):
        monkeypatch.setattr(module, name, [shapes])
    monkeypatch.setattr(module, "ROWS", (32,))
    return {"large": 1, "small": 1, "layers": 1, "fused": 3, "host time of a warm call": 1}


def _shrink_attention(module, monkeypatch):
    monkeypatch.setattr(module, "LARGE", (module.Shape(1, 2, 48, 48, 16), module.Shape(1, 2, 48, 48, 16, causal=True)))
    monkeypatch.setattr(module, "OTHERS", ())
    monkeypatch.setattr(
        module, "RULED", [module.Shape(1, 2, 48, 48, 16, **rule) for rule in ({"window": 9}, {"softcap": 2.0})]
    )
    monkeypatch.setattr(module, "DECODE", (module.Shape(2, 4, 1, 32, 16, kv_heads=2),))
    monkeypatch.setattr(module, "PAGE", 16)
    monkeypatch.setattr(module, "PACKED", [module.Packed(40, 3, 20, 2, 16, causal) for causal in (True, False)])
    packed = {"packed": 2, "packed backward": 2}
    groups = packed | {"rules": 2, "pages": 1, "pages of fp8": 1, "forward": 2, "backward": 2, "decode": 1}
    return {f"attention, {group}": count for group, count in groups.items()}


def _shrink_gemm_gemm(module, monkeypatch):
    monkeypatch.setattr(module, "SHAPES", [(64, 32, 16, 48)])
    monkeypatch.setattr(module.driver, "target_of", lambda index: "gfx942")
    return {"two products, relu between": 1}


def _shrink_models(module, monkeypatch):
    every = list(module.cases(True))
    some = [every[i] for i in (0, 2, 5, 7)]  # each kind, one trained: each compiles three times
    monkeypatch.setattr(module, "cases", lambda: some)
    monkeypatch.setattr(module, "replayed", lambda model, arguments: lambda: model(*arguments))
    monkeypatch.setattr(module.wmma_ops.inductor, "last_report", lambda: types.SimpleNamespace(rewritten=[], left=[]))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return {"compiled models": 4}


@pytest.mark.parametrize("shrink", [_shrink_gemm, _shrink_attention, _shrink_gemm_gemm, _shrink_models])
def test_a_gpus_script_checks_and_times_each_case(shrink, bench, monkeypatch, tmp_path, capsys):
    """With small tensors on the CPU in the place of a GPU's."""
    module = importlib.import_module(f"bench{shrink.__name__.removeprefix('_shrink')}")
    expected = shrink(module, monkeypatch)
    path = tmp_path / "run.json"
    options = bench.parser(module.__doc__).parse_args(["--quick", "--json", str(path)])
    bench.main(module.cases(), options)
    run = Run.of(json.loads(path.read_text()))
    assert {group: len(rows) for group, rows in run.groups()} == expected
    asked = {str(case): case.peers for case in module.cases()}
    for row in run.rows:
        assert {*row.ratios, *row.missing} == set(asked[str(row)])
        assert 0 <= row.error < 2e-2
    printed = capsys.readouterr().out
    assert all(row.name in printed for row in run.rows)
    if shrink is _shrink_attention:
        assert "cudnn n/a (" in printed


def test_shapes_are_drawn_by_a_seed(bench):
    draw = importlib.import_module("bench_draw")
    first, again, other = ([str(case) for case in draw.cases(seed)] for seed in (1, 1, 2))
    assert first == again
    assert not set(first) & set(other)
    assert len(set(first)) == draw.PRODUCTS[1] + draw.ATTENTIONS[1]
    kinds = {title.split()[-2] for seed in range(8) for title in map(str, draw.cases(seed))}
    assert kinds >= {"plain", *draw.EPILOGUES, *(str(kind).split()[-1] for kind in draw.drawn_attention.KINDS)}


@pytest.mark.full
def test_drawn_shapes_are_checked_and_the_worst_explained(bench, monkeypatch, tmp_path, capsys):
    draw = importlib.import_module("bench_draw")
    monkeypatch.setattr(draw, "PRODUCTS", (2, 2))
    monkeypatch.setattr(draw, "ATTENTIONS", (5, 5))
    monkeypatch.setattr(draw, "TINY", 256)
    draw.main(["--quick", "--tiny", "--seed", "4", "--seeds", "2", "--json", str(tmp_path / "run.json")])
    run = Run.of(json.loads((tmp_path / "run.json").read_text()))
    assert len(run.rows) == 2 * (2 + 5)
    assert all(0 <= row.error < 2e-2 for row in run.rows)
    told = capsys.readouterr().out.split("The worst 10, of the best peer:\n")[1].splitlines()
    assert len(told) == 20
    assert {line.split("  ")[1].rsplit(" (", 1)[1] for line in told[::2]} <= {"4)", "5)"}
    assert all("units" in line or "the only" in line or "least" in line for line in told[1::2])


@pytest.mark.full
def test_drawn_shapes_beside_the_usual(bench, monkeypatch, tmp_path):
    draw = importlib.import_module("bench_draw")
    monkeypatch.setattr(draw, "PRODUCTS", (1, 1))
    monkeypatch.setattr(draw, "ATTENTIONS", (1, 1))
    monkeypatch.setattr(draw, "TINY", 256)
    draw.main(["--quick", "--tiny", "--batch-invariant", "--seed", "4", "--json", str(tmp_path / "run.json")])
    run = Run.of(json.loads((tmp_path / "run.json").read_text()))
    assert [[*row.ratios] for row in run.rows] == [["usual"]] * 2


def test_models_are_drawn_by_a_seed(bench):
    drawn = importlib.import_module("drawn_models").drawn
    assert drawn(1, 10) == drawn(1, 10)
    assert not drawn(1, 10).keys() & drawn(2, 10).keys()
    assert len(drawn(1, 10)) == 10
    for _, _, options, _ in drawn(3, 30).values():
        heads, hidden = (options.get(*names) for names in (("num_attention_heads", 1), ("hidden_size", 64)))
        assert hidden % heads == 0


@pytest.mark.full
def test_drawn_models_are_run_and_checked(bench, monkeypatch, tmp_path):
    pytest.importorskip("transformers")
    models, of = importlib.import_module("bench_models"), importlib.import_module("drawn_models")
    monkeypatch.setattr(of, "HEAD_SIZES", (16,))
    monkeypatch.setattr(of, "VOCABULARY", {"vocab_size": 64})
    models.main(["--tiny", "--drawn", "4", "--seed", "1", "--json", str(tmp_path / "run.json")])
    run = Run.of(json.loads((tmp_path / "run.json").read_text()))
    assert len(run.rows) == 2 * 4
    assert all(
        row.ratios.keys() == {"torch.compile"} and row.error == 0 for row in run.rows
    )  # neither is compiled here


def test_drawn_attention_is_held_against_peers(bench, monkeypatch):
    draw = importlib.import_module("bench_draw")
    right = wmma_ops.attention
    monkeypatch.setattr(wmma_ops, "attention", lambda *args, **rules: [1.1 * right(*args, **rules)[0]])
    with pytest.raises(AssertionError, match="relative error"):
        draw.attention(draw.Drawn(draw.Sizes(64, 64, 2, 1, 16), 2, 24, draw.drawn_attention.KINDS[5]))


def test_a_gpus_script_times_nothing_wrong(bench, monkeypatch):
    module = importlib.import_module("bench_gemm")
    _shrink_gemm(module, monkeypatch)
    monkeypatch.setattr(wmma_ops, "matmul", lambda a, b: a @ b * 1.1)
    with pytest.raises(AssertionError, match=r"relative error 0\.(1|099)"):
        bench.main(module.cases(), bench.parser("").parse_args(["--quick"]))


def test_the_figure_of_the_h200_shows_what_its_page_says():
    page = (BENCH.parent / "docs/pages/speed.md").read_text()
    run = Run.of(json.loads((BENCH / "results/h200.json").read_text()))
    printed = set(re.findall(r"[0-9]+(?:\.[0-9]+)?", page))
    for row in run.rows:
        for time in row.times.values():
            texts = {f"{time:.{digits}f}" for digits in (0, 1)} | {f"{time / 1e3:.{digits}f}" for digits in (1, 2)}
            assert texts & printed, f"{row}: {texts}"
    for name in ("speed-light", "speed-dark", "speed-narrow-light", "speed-narrow-dark"):
        assert (BENCH.parent / f"docs/assets/{name}.svg").read_text().startswith("<?xml")
