"""python -m wmma_ops, as a user types it."""

import argparse
import dataclasses
import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import types

import pytest
import torch
from rich.console import Console
from typed import typed

import wmma_ops
from wmma_ops.analysis.report_cases import CASES
from wmma_ops.bringup import doctor
from wmma_ops.cli import arguments
from wmma_ops.cli import tune as tune_view
from wmma_ops.cli.bench import SHAPES
from wmma_ops.cli.benching import Run
from wmma_ops.cli.main import VIEWS, main, parser, run
from wmma_ops.hardware import arch
from wmma_ops.jit import CompileError, clang
from wmma_ops.ops import activations, library, nodes
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.runtime import clock, tuned, tuning


def test_demo_shows_a_row_for_every_op(capsys):
    done = typed(capsys, "demo")
    assert done.returncode == 0, done.stderr
    assert "\x1b[" not in done.stdout  # no colour into a pipe
    for op in library.OPS:
        assert f" {op} " in done.stdout
    assert "torch's own" in done.stdout
    assert "µs, warm" in done.stdout
    assert "its operands lie in the caches" in done.stdout
    assert 'wmma_ops.emulate("gfx1201")' in done.stdout
    assert "instructions of" in done.stdout


def test_demo_as_json(capsys):
    rows = json.loads(typed(capsys, "demo", "--json").stdout)
    assert {row["op"] for row in rows} == set(library.OPS)
    for row in rows:
        assert 0 <= row["error"] < 0.02
        assert row["microseconds"] > 0
    assert [row["backend"] for row in rows].count("cpu") == len(rows) - 1
    assert rows[-1]["backend"] == "emulated:gfx1201"
    assert rows[-1]["instructions"] > 1000


def test_doctor(capsys):
    done = typed(capsys, "doctor")
    assert done.returncode == 0, done.stderr
    assert wmma_ops.__version__ in done.stdout
    found = json.loads(typed(capsys, "doctor", "--json").stdout)
    assert found["ok"] is True
    assert found["ops"] == [*library.OPS, *library.WRITERS]
    assert found["runs_on"]["cpu"] == "all ops, tried"
    assert "tried as gfx1201" in found["runs_on"]["emulated AMD targets"]
    assert set(found["compilers"]) == {"clang", "hiprtc", "nvrtc"}
    assert found["clang"]["used"].startswith(found["compilers"]["clang"])
    assert found["derivatives"] == nodes.state()


def test_doctor_tells_where_derivatives_are_recorded(monkeypatch, tmp_path):
    for there, exists, said in (
        (True, True, "_nodes_"),
        (False, True, "as WMMA_OPS_NODES=0"),
        (False, False, "install again"),
    ):
        monkeypatch.setattr(nodes, "are_there", there)
        monkeypatch.setattr(nodes, "_NODES", tmp_path / f"_nodes_{exists}.so")
        if exists:
            (tmp_path / f"_nodes_{exists}.so").touch()
        assert said in nodes.state()


def test_doctor_tells_which_clang_is_used_and_why(monkeypatch):
    monkeypatch.delenv(clang.ASKED, raising=False)
    found = doctor._clang()
    assert "ziglang" in found["used"]
    assert "PyPI's ziglang comes before" in found["because"]
    assert found["proven with it"].startswith("all tests")
    other = dataclasses.replace(clang.toolchain("gfx1201"), kind="asked", version="99.1.2", clang=("/there/clang",))
    monkeypatch.setattr(clang, "_probed", lambda: iter([other]))
    found = doctor._clang()
    assert found["used"] == "99.1.2, /there/clang"
    assert found["because"] == "WMMA_OPS_CLANG names it"
    assert found["proven with it"] == f"nothing; all tests run with {clang.PINNED}"
    monkeypatch.setattr(clang, "_probed", lambda: iter(()))
    assert doctor._clang()["used"] == "none"


def test_doctor_tells_what_fails(monkeypatch, capsys):
    monkeypatch.setattr("wmma_ops.bringup.doctor._right", lambda device: False)
    assert main(["doctor"]) == 1
    printed = capsys.readouterr()
    assert "cpu: all ops, WRONG RESULT" in printed.out
    assert "wrong result" in printed.err


def test_usage_errors_exit_with_2(capsys):
    for words in (("dance",), ()):
        assert typed(capsys, *words).returncode == 2


def test_every_command_explains_itself(capsys):
    listed = typed(capsys, "--help").stdout
    assert re.findall(r"^    (\w+)(?:  |$)", listed, re.MULTILINE) == list(VIEWS)
    for command, view in VIEWS.items():
        assert callable(importlib.import_module(view).show)
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
        assert "--json" in capsys.readouterr().out


def _help_of(*command: str) -> tuple[str, str, float]:
    """What a process prints of itself, what it imports, and the processor's time that it takes."""
    before = os.times()
    done = subprocess.run([sys.executable, "-X", "importtime", *command, "--help"], capture_output=True, text=True)
    after = os.times()
    assert done.returncode == 0, done.stderr
    imported = re.findall(r"\| +([\w.]+)$", done.stderr, re.M)
    return (
        done.stdout,
        imported,
        after.children_user + after.children_system - before.children_user - before.children_system,
    )


@pytest.mark.parametrize("command", [(), *((name,) for name in VIEWS)], ids=lambda command: " ".join(command))
def test_help_is_there_at_once(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown, imported, seconds = _help_of("-m", "wmma_ops", *command)
    assert shown == typed(capsys, *command, "--help").stdout
    assert "wmma_ops.cli.main" in imported
    assert not {"torch", "numpy", "rich", "wmma_ops.ops"} & set(imported)
    assert seconds < 0.5


def test_help_of_the_installed_command_is_there_at_once(tmp_path):
    script = tmp_path / "wmma_ops"
    script.write_text("import sys\nfrom wmma_ops.__main__ import run\nsys.exit(run())\n")
    shown, imported, _ = _help_of(str(script), "time")
    assert shown.startswith("usage: ")
    assert "torch" not in imported


def test_help_that_is_anothers_leaves_the_package_whole():
    code = "import wmma_ops, torch; print(callable(wmma_ops.matmul), hasattr(torch.ops.wmma, 'matmul'))"
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


def test_what_help_tells_without_torch_is_so():
    assert tuple(row.name for row in activations.BUILTIN if row.code) == arguments.ACTIVATIONS
    assert arguments.DTYPES("bfloat16") == "bfloat16"
    for name in (arguments.DTYPES, arguments.ORDERS):
        with pytest.raises(argparse.ArgumentTypeError, match=r"invalid choice: 'int32' \(choose from f"):
            name("int32")


def test_sizes_are_written_alike_everywhere(monkeypatch, capsys):
    """And as they were, which is told to be deprecated."""
    parsed = parser().parse_args
    for command in (["explain", "matmul"], ["time", "matmul", *TARGET]):
        assert arguments.sizes_of("matmul", parsed([*command, "--m", "8", "--k", "32"])) == {"m": 8, "n": 4096, "k": 32}
    assert arguments.shape_of("tune", parsed(["tune", "--m", "8", "--k", "32"])) == (8, 4096, 32)
    assert arguments.shapes_of("bench", parsed(["bench", "--m", "8", "--k", "32"])) == [(8, 4096, 32)]
    several = parsed(["bench", "--m", "1", "16", "--n", "8"])
    assert arguments.shapes_of("bench", several) == [(1, 8, 4096), (16, 8, 4096)]
    assert arguments.shapes_of("bench", parsed(["bench"])) == []
    assert capsys.readouterr().err == ""
    assert arguments.shape_of("tune", parsed(["tune", "8", "16", "32"])) == (8, 16, 32)
    assert capsys.readouterr().err == "tune: sizes as 8 16 32 are deprecated; write --m 8 --n 16 --k 32\n"
    assert arguments.shapes_of("bench", parsed(["bench", "1x8x32", "16x8x32"])) == [(1, 8, 32), (16, 8, 32)]
    assert capsys.readouterr().err == "bench: sizes as 1x8x32 16x8x32 are deprecated; write --m 1 16 --n 8 --k 32\n"


# As bash calls a completion when TAB is pressed behind the last word.
TAB = """
complete -p wmma_ops
press() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=(); _shtab_wmma_ops; echo "${COMPREPLY[@]}"; }
"""


def test_bash_completes_commands_and_what_they_take(capsys, tmp_path):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash is here")
    assert main(["completion", "bash"]) == 0
    completed = {
        "wmma_ops exp": "explain",
        "wmma_ops explain lin": "linear",
        "wmma_ops explain linear --act": "--activation",
        "wmma_ops explain linear --activation gelu_": "gelu_tanh",
        "wmma_ops explain linear --dtype bf": "bfloat16",
        "wmma_ops explain linear --out-dtype int3": "int32",
        "wmma_ops run --order rev": "reverse",
        "wmma_ops build --target gfx942 sm_8": " ".join(name for name in arch.TARGETS if name.startswith("sm_8")),
        "wmma_ops layout gfx94": "gfx942",
        f"wmma_ops build --out {tmp_path}/fol": f"{tmp_path}/folder",
        f"wmma_ops build --calls {tmp_path}/ca": f"{tmp_path}/calls.json",
        "wmma_ops cache dance": "",
    }
    (tmp_path / "folder").mkdir()
    (tmp_path / "calls.json").touch()
    script = "\n".join([capsys.readouterr().out, TAB, *(f"press {line}" for line in completed)])
    done = subprocess.run([bash, "--norc", "-c", script], capture_output=True, text=True)
    assert done.stderr == ""
    registered, *offered = done.stdout.splitlines()
    assert registered.endswith("-F _shtab_wmma_ops wmma_ops")
    assert dict(zip(completed, offered, strict=True)) == completed


def test_completion_without_its_package(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "zsh"]) == 1
    assert "pip install shtab" in capsys.readouterr().err


TARGET = ("--target", "gfx942")
ATTENTION = ("attention", "--heads", "4", "--queries", "48", "--head-size", "32")
SIZES = ("--m", "64", "--n", "64", "--k", "64")
SMALL = (*SIZES, *TARGET)


def test_explain(capsys):
    done = typed(capsys, "explain", "linear", *SMALL, "--bias", "--activation", "gelu")
    assert done.returncode == 0, done.stderr
    for text in ("wmma_ops.linear on gfx942", "64 × 64 × 64", "bias float16, activation gelu", "reason", "VGPRs"):
        assert text in done.stdout
    (step,) = json.loads(typed(capsys, "explain", "matmul", *SMALL, "--json").stdout)["steps"]
    assert step["problem"]["a"] == "float16"
    assert step["launches"][0]["figures"]["spills"] == 0
    assert "v_mfma" in typed(capsys, "explain", "matmul", *SMALL, "--assembly").stdout
    assert "struct Config" in typed(capsys, "explain", "matmul", *SMALL, "--source").stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("matmul", "--dtype", "int8", "--out-dtype", "float16"), {"a": "int8", "d": "float16", "c": None}),
        (("matmul", "--a-columns", "--b-columns", "--batch", "2"), {"a_order": "m", "b_order": "k", "batch": 2}),
        (("addmm",), {"c": "float16"}),
        (("addmm_", "--dtype", "float32"), {"c": "float32"}),
        (("baddbmm", "--batch", "3"), {"batch": 3, "c": "float16"}),
        (("gemm", "--residual", "--multiply", "--bias"), {"c": "float16", "multiply": "float16", "bias": "float16"}),
        (("linear", "--residual"), {"c": "float16", "b_order": "k"}),
        (("gemm_gemm", "--bias", "--residual"), {"bias0": "float16", "bias1": None, "c": "float16"}),
        (("gemm_gemm", "--h", "32", "--gate"), {"m": 64, "k": 64, "h": 32, "n": 64, "gate": True}),
        (("scaled_mm", "--dtype", "int8", "--bias"), {"d": "bfloat16", "row_scale": "float32", "bias": "bfloat16"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_explain_makes_the_call_that_is_asked_for(arguments, problem, capsys):
    assert main(["explain", *arguments, *SMALL, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["steps"]
    assert {name: found[0]["problem"][name] for name in problem} == problem
    assert len(found) in (
        (1, 3) if arguments[0] == "gemm_gemm" else (1,)
    )  # in one kernel, or asked and then one by one


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), {"batch": 1, "heads": 4, "group": 1, "sq": 48, "skv": 48, "e": 32, "ev": 32, "causal": False}),
        (("--batch", "2", "--kv-heads", "2", "--keys", "80"), {"batch": 2, "heads": 4, "group": 2, "skv": 80}),
        (("--causal", "--backward", "--dtype", "bfloat16"), {"dtype": "bfloat16", "causal": True, "backward": True}),
        (("--packed", "--batch", "3", "--keys", "80"), {"batch": 3, "sequences": True, "page_size": 0, "sq": 48}),
        (
            ("--packed", "--backward", "--kv-heads", "2", "--causal"),
            {"sequences": True, "backward": True, "group": 2, "causal": True},
        ),
        (
            (
                "--pages",
                "16",
                "--batch",
                "2",
                "--keys",
                "300",
                "--kv-heads",
                "1",
                "--softcap",
                "30",
                "--dtype",
                "bfloat16",
            ),
            {"sequences": True, "page_size": 16, "group": 4, "capped": True},
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_explain_of_attention_takes_its_own_sizes(arguments, problem, capsys):
    assert main(["explain", *ATTENTION, *arguments, *TARGET, "--json"]) == 0
    (step,) = json.loads(capsys.readouterr().out)["steps"]
    assert {name: step["problem"][name] for name in problem} == problem


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        ("padding", {"mask": "bool", "key_mask": True, "mask_queries": False, "mask_heads": False}),
        ("bool", {"mask": "bool", "key_mask": False, "mask_queries": True, "mask_heads": False}),
        ("numbers", {"mask": "float16", "key_mask": False, "mask_queries": False, "mask_vec": 8}),
    ],
)
def test_explain_of_attention_with_a_mask(mask, problem, capsys):
    assert main(["explain", *ATTENTION, "--mask", mask, *TARGET, "--json"]) == 0
    (step,) = json.loads(capsys.readouterr().out)["steps"]
    assert {name: step["problem"][name] for name in problem} == problem


@pytest.mark.parametrize(
    ("arguments", "kernels"),
    [
        (("linear",), ["gemm", "gemm"]),
        (("matmul", "--b-columns"), ["gemm", "gemm"]),
        (("linear", "--bias", "--activation", "gelu"), ["activation_gradient", "gemm", "gemm"]),
        (
            ("gemm", "--batch", "2", "--bias", "--activation", "relu", "--residual"),
            ["activation_gradient", "gemm", "gemm"],
        ),
    ],
    ids=lambda value: " ".join(value),
)
def test_explain_of_a_products_gradients(arguments, kernels, capsys):
    assert main(["explain", *arguments, "--backward", *SMALL, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["op"] == f"{arguments[0]}_backward"
    launched = [launch["kernel"] for step in found["steps"] for launch in step["launches"]]
    assert [name for name in launched if name != "activation_gradient_sums"] == kernels


def test_explain_of_paged_decode(capsys):
    asked = ("--queries", "1", "--keys", "300", "--heads", "8", "--kv-heads", "2", "--batch", "4", "--pages", "64")
    assert main(["explain", "attention", *asked, *TARGET]) == 0
    shown = capsys.readouterr().out
    assert "wmma_ops.varlen_attention on gfx942" in shown
    assert "pages of 64 keys" in shown


def test_explain_shows_each_launch_of_attentions_gradients(capsys):
    assert main(["explain", *ATTENTION, "--backward", *TARGET]) == 0
    shown = capsys.readouterr().out
    assert "wmma_ops.attention_backward on gfx942: 3 launches" in shown
    assert len(re.findall("^  launch +attention_", shown, re.MULTILINE)) == 3
    assert "more, at other places" not in shown


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("dance",), "invalid choice: 'dance'"),
        (("matmul", "--m", "0"), "'0' is no size"),
        (("matmul", "--m", str(2**63)), "is no size"),
        (("matmul", "--target", "gfx9"), "no target 'gfx9' is known"),
        (("matmul", "--bias", *SMALL), "matmul has no --bias; gemm, linear, gemm_gemm, scaled_mm have one"),
        (("linear", "--activation", "geluu", *SMALL), "did you mean 'gelu'"),
        (("addmm", "--batch", "2", *SMALL), "addmm has no --batch; matmul, baddbmm, gemm, "),
        (("matmul", "--out-dtype", "int8", *SMALL), "takes float16 or float32"),
        (("matmul", "--h", "64", *SMALL), "matmul has no --h; its sizes are --batch --m --n --k"),
        (("addmm", "--backward", *SMALL), "addmm has no --backward; matmul, gemm, linear, attention have one"),
        (("gemm", "--backward", "--multiply", *SMALL), "gemm has no --backward with --multiply"),
        (("matmul", "--mask", "bool", *SMALL), "matmul has no --mask; attention has one"),
        ((*ATTENTION, "--mask", "some", *TARGET), "invalid choice: 'some'"),
        ((*ATTENTION, "--mask", "bool", "--packed", *TARGET), "attention has no --mask with --packed or --pages"),
        ((*ATTENTION, "--mask", "bool", "--causal", *TARGET), "is_causal is set together with mask"),
        (("matmul", "--gate", *SMALL), "matmul has no --gate; gemm, gemm_gemm have one"),
        (
            (*ATTENTION, "--k", "64", *TARGET),
            "attention has no --k; its sizes are --batch --heads --kv-heads --queries",
        ),
        ((*ATTENTION, "--b-columns", *TARGET), "attention has no --b-columns"),
        ((*ATTENTION, "--kv-heads", "3", *TARGET), "k has shape [1, 3, 48, 32]; takes a number of heads that divides"),
        ((*ATTENTION, "--dtype", "int8", *TARGET), "q is int8; takes float16, bfloat16"),
        ((*ATTENTION, "--dtype", "int8", "--backward", *TARGET), "q is int8; takes float16, bfloat16"),
        ((*ATTENTION, "--packed", "--dtype", "int8", *TARGET), "query is int8; takes float16, bfloat16"),
        ((*ATTENTION, "--pages", "24", *TARGET), "key has pages of 24 keys; takes a multiple of 16"),
        ((*ATTENTION, "--pages", "16", "--backward", *TARGET), "attention has no --backward with --pages"),
        (("matmul", "--pages", "16", *SMALL), "matmul has no --pages; attention has one"),
    ],
)
def test_explain_refuses(arguments, text, capsys):
    try:
        code = main(["explain", *arguments])
    except SystemExit as error:  # argparse's own
        code = error.code
    assert code == 2
    assert text in capsys.readouterr().err


def test_a_locale_without_our_signs(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "argv", ["wmma_ops", "layout", "gfx1201"])
    assert run() == 0
    stream.flush()
    assert b"16?16 (M?K)" in stream.buffer.getvalue()


@pytest.mark.parametrize("sizes", [(2**50, 64), (2**24, 2**24)], ids=["an operand", "the result"])
def test_explain_of_more_than_fits_into_memory(sizes, capsys):
    m, n = map(str, sizes)
    assert main(["explain", "matmul", "--m", m, "--n", n, "--k", "64", "--target", "gfx942"]) == 1
    assert "perhaps" in (said := capsys.readouterr().err)
    assert said.count("\n") == 1


def test_explain_of_two_products_that_stay_two(capsys):
    arguments = ["gemm_gemm", "--m", "64", "--n", "600", "--k", "64", "--h", "600", "--target", "gfx942"]
    assert main(["explain", *arguments, "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [step["config"] is None for step in steps] == [True, False, False]
    assert "two products" in steps[0]["reason"]


def test_a_closed_pipe_is_no_error_to_shout_about():
    done = subprocess.run(
        f"({sys.executable} -m wmma_ops explain matmul {' '.join(SMALL)} --assembly; echo $? >&2) | head -1",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == "1\n"  # the exit status alone
    assert "gfx942" in done.stdout


def test_tune_without_a_gpu(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["tune", *SIZES]) == 1
    assert "needs a GPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [RuntimeError("out of memory"), CompileError("does not compile", target="sm_90a", compiler="nvrtc")]
)
def test_tune_ends_in_a_line_where_it_cannot(error, monkeypatch, capsys):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(tune_view.calls, "call", fails)
    assert main(["tune", *SIZES, "--dtype", "int8"]) == 1
    assert capsys.readouterr().err == f"tune: {error}\n"


def test_tune_goes_without_torchs_time_where_torch_has_no_such_product(monkeypatch):
    def lacks(*_):
        raise NotImplementedError("\"addmm_cuda\" not implemented for 'Char'")

    a = torch.ones(4, 4, dtype=torch.int8)
    monkeypatch.setattr(torch, "matmul", lacks)
    assert tuning._library_time("matmul", (a, a), {}, clock.Clock("cpu", 3)) is None


def test_tune_prints_what_it_found():
    problem, target = CASES[0].problem(arch.target("sm_90a")), arch.target("sm_90a")
    configs = gemm.ranked(problem, target)[:12]
    found = [tuning.Timing(one, 100.0 + i, modelled_cycles=1e6 - i) for i, one in enumerate(configs[:-1])]
    found.append(tuning.Timing(configs[-1], None, "kernel.hip does not compile:\nx.hpp:3: error: too large\nmore", 5e6))
    console = Console(width=140, record=True)
    options = types.SimpleNamespace(op="matmul", batch=None, dtype="float16")
    tune_view._print(console, options, (4096,) * 3, "NVIDIA H200 (sm_90a)", found, "/cache/tuned/NVIDIA_H200.json")
    shown = console.export_text()
    assert "11 of 12 timed" in shown
    assert re.search(rf"100\.0 +1374\.4 +1000 +11 +{re.escape(str(configs[0]))}", shown)
    assert "110.0" not in shown  # the ten best
    assert f"failed: {configs[-1]}: x.hpp:3: error: too large" in shown
    assert "/cache/tuned/NVIDIA_H200.json" in shown


def test_tune_compiles_all_before_it_times_any(monkeypatch):
    """On the CPU, with the GPU's parts played by others."""
    steps, kept = [], []

    def timed(config, call, clock):
        steps.append("timed")
        return tuning.Timing(config, 1000.0 / len(steps))

    def compiled(problem, config, target):
        steps.append("compiled")
        return "too large" if len(steps) == 1 else ""

    monkeypatch.setattr(
        importlib.import_module("wmma_ops.runtime.explain"),
        "_device",
        lambda *_: types.SimpleNamespace(type="cuda", index=0),
    )
    monkeypatch.setattr(tuning.driver, "target_of", lambda index: "sm_90a")
    monkeypatch.setattr(tuning, "Clock", lambda *_: None)
    monkeypatch.setattr(tuning, "_compile", compiled)
    monkeypatch.setattr(tuning, "_timed", timed)
    monkeypatch.setattr(tuned, "keep", lambda device, problem, *found: kept.append(found))
    monkeypatch.setattr(tuning.os, "cpu_count", lambda: 1)
    told = []
    a = torch.zeros(64, 64).half()
    found = wmma_ops.tune("matmul", a, a, limit=5, progress=lambda *step: told.append(step))
    assert steps == ["compiled"] * 5 + ["timed"] * 5  # torch's own product is the last
    assert told == [(done, 10) for done in range(1, 11)]
    assert [one.failure for one in found] == ["", "", "", "", "too large"]
    assert [one.microseconds for one in found[:-1]] == sorted(one.microseconds for one in found[:-1])
    assert all(one.modelled_cycles > 0 for one in found)
    assert kept == [(found[0].config, tuned.Measured(found[0].microseconds, 1000.0 / len(steps)))]
    assert not tuned._FORCED


BENCH = ("bench", "--m", "33", "8", "--n", "20", "16", "--k", "17", "24", "--rounds", "3")


@pytest.fixture
def small_copy(monkeypatch):
    """On the CPU whatever is here; a copy of 128 MB says nothing in a test."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(clock.Clock, "copy_bandwidth", lambda self: 1e4)


def _benched(capsys, *arguments: str) -> Run:
    assert main([*BENCH, *arguments, "--json"]) == 0
    return Run.of(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--op", "linear", "--bias", "--activation", "gelu", "--residual"),
        ("--op", "addmm"),
        ("--batch", "3", "--b-columns"),
    ],
)
def test_bench_times_both(more, small_copy, capsys):
    run = _benched(capsys, *more)
    batch = 3 if "--batch" in more else 1
    assert [row.name for row in run.rows] == [
        f"{'3 × ' * (batch == 3)}{name}" for name in ("33 × 20 × 17", "8 × 16 × 24")
    ]
    assert [row.flops for row in run.rows] == [batch * 2.0 * 33 * 20 * 17, batch * 2.0 * 8 * 16 * 24]
    assert all(len(found) == 3 and min(found) > 0 for row in run.rows for found in row.samples.values())
    assert all(row.error < 1e-5 and [*row.ratios] == ["torch"] for row in run.rows)
    assert run.rows[1].bytes >= 4 * (8 * 16 + 16 * 24 + 8 * 24)
    assert run.rows[0].group == f"{more[1] if '--op' in more else 'matmul'} float32"  # a CPU's own type
    assert run.about["copy_gb_per_second"] == 10


@pytest.mark.parametrize(
    ("arguments", "peer", "exact"),
    [
        (("--dtype", "int8"), "torch", True),
        (("--dtype", "int8", "--batch", "2"), "torch in float64", True),
        (("--dtype", "int8", "--out-dtype", "int8"), "torch", True),  # ours saturates, torch's wraps
        (("--op", "addmm", "--dtype", "int8"), "torch", True),
        (("--op", "linear", "--dtype", "int8", "--bias", "--residual", "--activation", "gelu"), "torch", False),
        (("--dtype", "float8_e4m3fn"), "torch in bfloat16", False),
        (("--dtype", "float16", "--out-dtype", "float32"), "torch in float32", False),
        (("--op", "linear", "--dtype", "float8_e5m2", "--bias", "--activation", "silu"), "torch in bfloat16", False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bench_has_a_peer_that_computes_the_same(arguments, peer, exact, small_copy, capsys):
    run = _benched(capsys, *arguments)
    for row in run.rows:
        assert [*row.ratios] == [peer]
        assert row.error == 0 if exact else row.error < 1e-2


def test_bench_says_why_a_peer_is_missing(small_copy, monkeypatch, capsys):
    def lacks(*_):
        raise NotImplementedError("\"addmm_cuda\" not implemented for 'Char'\nand more")

    monkeypatch.setattr(torch, "matmul", lacks)
    assert main([*BENCH]) == 0
    printed = capsys.readouterr()
    assert printed.out.count("torch n/a (\"addmm_cuda\" not implemented for 'Char')") == 2
    assert re.findall(r"^\d of 3: ", printed.err, re.MULTILINE) == ["1 of 3: ", "2 of 3: ", "3 of 3: "]


def test_bench_times_no_wrong_result(small_copy, monkeypatch, capsys):
    monkeypatch.setattr(wmma_ops, "matmul", lambda a, b: a @ b * 1.1)
    assert main([*BENCH]) == 1
    assert "matmul is 1.0e-01 from torch's" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["float32", "float16", "float8_e4m3fn"])
def test_bench_of_a_cpu_ends_within_a_minute(dtype, small_copy, monkeypatch, capsys):
    """By the work: torch's slowest types do 100 MFLOP a second, and a case stops after a few seconds."""
    seen = []
    monkeypatch.setattr(
        clock.Clock, "samples", lambda self, calls, warm=3: seen.append(self.seconds) or [[1.0]] * len(calls)
    )
    assert main(["bench", "--dtype", dtype]) == 0
    assert sum(2 * m * n * k for m, n, k in SHAPES["cpu"]) / 1e8 < 10
    assert len(seen) == len(SHAPES["cpu"])
    assert sum(seen) < 30


def test_bench_draws_and_prints(small_copy, tmp_path, capsys):
    assert main([*BENCH, "--plot", str(tmp_path / "bench.png")]) == 0
    shown = capsys.readouterr().out
    assert "33 × 20 × 17" in shown
    assert "geometric mean" in shown
    for theme in ("light", "dark"):
        assert (tmp_path / f"bench-{theme}.png").read_bytes().startswith(b"\x89PNG")


def test_bench_tells_that_nothing_draws_before_it_times(small_copy, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(clock.Clock, "samples", lambda *_: pytest.fail("timed"))
    assert main([*BENCH, "--plot", "x.png"]) == 1
    assert capsys.readouterr().err == "bench: drawing needs matplotlib: pip install matplotlib\n"


def test_a_kept_run_is_shown_and_drawn_again(small_copy, tmp_path, monkeypatch, capsys):
    kept = tmp_path / "run.json"
    assert main([*BENCH, "--json"]) == 0
    kept.write_text(capsys.readouterr().out)
    monkeypatch.setattr(clock.Clock, "samples", lambda *_: pytest.fail("timed again"))
    drawn = []
    for name in ("a", "b"):
        assert main(["bench", "--from", str(kept), "--plot", str(tmp_path / f"{name}.svg")]) == 0
        drawn.append([(tmp_path / f"{name}-{theme}.svg").read_bytes() for theme in ("light", "dark")])
    assert "8 × 16 × 24" in capsys.readouterr().out
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1]


def test_a_kept_run_is_one_of_pytest_benchmarks(small_copy, tmp_path, monkeypatch, capsys):
    from pytest_benchmark.cli import main as compare

    assert main([*BENCH, "--json"]) == 0
    (tmp_path / "run.json").write_text(capsys.readouterr().out)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pytest-benchmark", "compare", "run.json"])
    compare()
    shown = capsys.readouterr().out
    assert "matmul float32: 33 × 20 × 17" in shown
    assert "Outliers" in shown


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (("bench", "3x4"), "takes MxNxK", 2),
        (("bench", "8x8x8", "--m", "8"), "sizes came by place as well: 8x8x8; takes --m M … --n N … --k K …", 2),
        (("bench", "--m", "8", "16", "--k", "1", "2", "3"), "--m has 2 sizes; takes one, or 3 as another size has", 2),
        (("tune", "8", "8"), "sizes came by place: 8 8; takes --m M --n N --k K", 2),
        (("tune", "8", "8", "8", "--k", "8"), "sizes came by place: 8 8 8; takes --m M --n N --k K", 2),
        (("bench", "--m", "8", "--op", "matmul", "--bias"), "matmul has no --bias", 2),
        (("bench", "--m", "8", "--rounds", "1", "--plot", "x.gif"), ".png or .svg", 2),
        (("bench", "--from", "/nowhere.json"), "No such file", 1),
        (("bench", "--from", __file__), "takes what bench --json or make bench wrote", 2),
    ],
)
def test_bench_refuses(arguments, says, code, small_copy, capsys):
    try:
        found = main(list(arguments))
    except SystemExit as error:  # argparse's own
        found = error.code
    assert found == code
    assert says in capsys.readouterr().err
