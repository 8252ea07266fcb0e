"""python -m wmma_ops report: what the planner's kernels ask of the hardware, and the limits on it."""

import dataclasses
import json

import pytest
import torch

import wmma_ops
from wmma_ops import jit
from wmma_ops.analysis import report, report_cases
from wmma_ops.analysis.figures_record import Figures, Mix
from wmma_ops.cli.main import main
from wmma_ops.cli.report import show_rows
from wmma_ops.hardware import arch
from wmma_ops.ops.errors import ConfigError

TARGET = arch.target("gfx90a")
CASE = report_cases.CASES[0]


FLOAT8 = {"gfx90a": (), "gfx942": ("float8_e4m3fnuz 4096³",), "gfx950": ("float8_e4m3fn 4096³",)}
TILES = {"gfx90a": "256x256x32 +/2", "gfx942": "256x256x32", "gfx950": "256x256x64"}


@pytest.mark.full
@pytest.mark.parametrize("target", TILES)
def test_a_target_keeps_the_limits_and_the_table_shows_it(target, capsys):
    """That all targets do is for `python -m wmma_ops report` itself, which `.ci/run` has."""
    assert main(["report", "--target", target, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["target"] for row in rows} == {target}
    labels = [row["label"] for row in rows]
    assert [label for label in labels if not label.startswith("…")] == [
        "float16 4096³",
        "bfloat16 4096³",
        "int8 4096³",
        *FLOAT8[target],
        "float32 4096³",
        "float64 4096³",
        "linear float16",
        "linear+bias+gelu float16",
        "linear 16x4096x4096 float16",
        "unaligned 1000x1001x1003 float16",
        "gemm_gemm bfloat16 64",
        "gemm_gemm bfloat16 128",
        *(case.label for case in report_cases.ATTENTION),
        *(case.label for case in report_cases.UNORDERED),
    ]
    for row in rows:
        assert row["broken"] == []
        assert row["figures"]["spills"] == row["figures"]["scratch_bytes"] == 0
        assert row["figures"]["occupancy"] >= 1
    assert rows[0]["figures"]["share"] == 1
    assert rows[0]["figures"]["loop"]["matrix"] >= 32
    assert main(["report", "--target", target]) == 0
    printed = capsys.readouterr()
    assert "\x1b[" not in printed.out  # no colour into a pipe
    assert printed.err == ""  # and no progress
    assert "…\n" not in printed.out
    assert max(map(len, printed.out.splitlines())) <= 140
    for text in ("float16 4096³", TILES[target], "unaligned 1000x1001x1003 float16", "VALU÷m", "limits broken: 0"):
        assert text in printed.out


def test_unknown_targets_and_missing_compilers(capsys, monkeypatch):
    assert main(["report", "--target", "gfx9420"]) == 2
    assert "no target 'gfx9420' is known" in capsys.readouterr().err
    monkeypatch.setattr("wmma_ops.jit.nvrtc._find", lambda: None)
    assert main(["report", "--target", "sm_90a"]) == 1
    assert "pip install nvidia-cuda-nvrtc" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("label", "call"),
    [
        ("float16 4096³", lambda h, i: ("matmul", h, h)),
        ("int8 4096³", lambda h, i: ("matmul", i, i)),
        ("linear float16", lambda h, i: ("linear", h, h)),
    ],
)
def test_problems_are_those_of_calls(label, call):
    """No tensor of 4096² is made for a row: so its problem must be what the library asks for one."""
    case = dataclasses.replace(next(one for one in report_cases.CASES if one.label == label), shape=(64, 64, 64))
    op, *operands = call(torch.empty(64, 64).half(), torch.empty(64, 64, dtype=torch.int8))
    assert wmma_ops.explain(op, *operands, target="gfx90a").problem == case.problem(TARGET)


def test_the_problem_of_linear_gelu_and_of_unaligned_operands():
    found = {one.label: one for one in report_cases.CASES}
    case = dataclasses.replace(found["linear+bias+gelu float16"], shape=(64, 64, 64))
    h = torch.empty(64, 64).half()
    asked = wmma_ops.explain("linear", h, h, h[0], activation="gelu", target="gfx90a").problem
    assert asked == case.problem(TARGET)
    case = dataclasses.replace(found["unaligned 1000x1001x1003 float16"], shape=(20, 21, 23))
    asked = wmma_ops.explain("matmul", torch.empty(20, 23).half(), torch.empty(23, 21).half(), target="gfx90a").problem
    assert asked == case.problem(TARGET)


@pytest.mark.parametrize("case", report_cases.TWO_PRODUCTS, ids=str)
def test_the_problem_of_two_products(case):
    a, weight = torch.empty(64, case.size).bfloat16(), torch.empty(case.size, case.size).bfloat16()
    asked = wmma_ops.explain("gemm_gemm", a, weight, weight, activation="relu", target="gfx90a").steps[0].problem
    assert dataclasses.replace(asked, m=65536) == case.problem(TARGET)


def test_two_products_are_judged(monkeypatch):
    case = report_cases.TWO_PRODUCTS[1]
    (row,) = report.measure(case, TARGET)
    assert row.broken == []
    assert row.config.split("x")[1] == "128"
    monkeypatch.setattr(report, "figures", lambda *_: dataclasses.replace(FINE, share=0.7, spills=3, masked=9))
    (row,) = report.measure(case, TARGET)
    assert row.broken == ["3 registers are spilled", "the matrix share is 0.7, less than 0.75"]
    monkeypatch.setattr(report.gemm_gemm, "plan", lambda *_: report.gemm_gemm.two("slower"))
    (row,) = report.measure(case, TARGET)
    assert row.broken == ["is not one kernel: slower"]


FINE = Figures(
    kernel="gemm", target="gfx90a", threads=256, vgprs=100, agprs=0, sgprs=40, spills=0, scratch_bytes=0, static_lds=0,
    lds_bytes=1024, occupancy=2, instructions=99, loop=Mix(matrix=8), share=1.0, valu_ratio=0.05, lds_ratio=0.2, masked=0,
    wide_address=0,
)  # fmt: skip


def _judge(case=CASE, target="gfx90a", compiler="22", **changes):
    row = arch.target(target)
    config = report.gemm.choose(case.problem(row), row)[0]
    return report._judged(case, row, dataclasses.replace(FINE, target=target, **changes), config, True, compiler)


def test_what_another_compiler_is_known_to_spill_is_no_limit_broken():
    changes = {"target": "gfx1201", "share": 0.92, "spills": 1, "scratch_bytes": 8}
    assert _judge(**changes, compiler="ROCm").broken == []
    assert len(_judge(**changes).broken) == 3
    assert _judge(**{**changes, "spills": 2}, compiler="ROCm").broken == ["1 registers are spilled"]
    assert _judge(**{**changes, "share": 0.9}, compiler="ROCm").broken == ["the matrix share is 0.9, less than 0.91"]


def test_limits():
    assert _judge().broken == []
    assert _judge(lds_ratio=0.34).broken == ["LDS/matrix is 0.34, more than 0.25"]
    assert _judge(spills=2).broken == ["2 registers are spilled"]
    assert _judge(target="gfx942", valu_ratio=0.13).broken == ["VALU/matrix is 0.13, more than 0.12"]
    assert _judge(target="gfx1201", share=0.93).broken == ["the matrix share is 0.93, less than 0.94"]
    assert _judge(masked=1, wide_address=2).broken == [
        "1 masked instructions in the hot loop",
        "2 64-bit address instructions in the hot loop",
    ]
    assert _judge(loop=None).broken == ["no loop has matrix instructions"]


@pytest.mark.parametrize(
    ("compiler", "target", "allowed"),
    [
        ("clang 19.1.7 (3~deb12u1)", "gfx908", 7),
        ("clang 19.1.7 (3~deb12u1)", "gfx1201", 0),
        ("clang 22.1.8 (ziglang 0.17.1)", "gfx908", 0),
        ("hiprtc 5.2", "gfx908", 0),
    ],
)
def test_limits_of_other_compilers(compiler, target, allowed, monkeypatch):
    row, code = arch.target(target), dataclasses.replace(jit.CodeObject(target, compiler, b"", "", "", ("gemm",)))

    def broken(spills):
        fine = dataclasses.replace(FINE, target=target, spills=spills, scratch_bytes=4 * spills + 4 if spills else 0)
        monkeypatch.setattr(report, "figures", lambda *_: fine)
        plan = report.gemm.plan(CASE.problem(row), row)
        return report._products(CASE, row, plan, [code] * len(plan.launches))[0].broken

    assert broken(allowed) == []
    more = allowed + 2
    assert broken(more) == [
        f"{more - allowed} registers are spilled",
        f"{8 if allowed else 4 * more + 4} bytes of scratch",
    ]


def test_masks_are_allowed_where_edges_need_them():
    decode = next(one for one in report_cases.CASES if one.shape[0] == 16)
    assert _judge(decode, masked=8).broken == []
    assert _judge(decode, scratch_bytes=8).broken == ["8 bytes of scratch"]


def test_what_is_not_compiled_breaks_a_limit(monkeypatch):
    def refuse(problem, target):
        raise ConfigError("no configuration fits")

    monkeypatch.setattr(report.gemm, "plan", refuse)
    (row,) = report.measure(CASE, TARGET)
    assert row.broken == ["is not compiled: no configuration fits"]
    assert show_rows([row], as_json=True) is True
