"""The command time: what it prints, draws and writes; and that both show why a slow kernel is slow."""

import dataclasses
import functools
import gzip
import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from typed import typed

import wmma_ops
from wmma_ops.cli.main import main
from wmma_ops.emulator.timing import timeline
from wmma_ops.hardware import arch
from wmma_ops.runtime.explain import LaunchRecord
from wmma_ops.testing import clock

DOCS = Path(__file__).parents[2] / "docs"
SMALL = ("matmul", "--m", "512", "--n", "512", "--k", "512", "--dtype", "bfloat16")
LARGE = ("matmul", "--m", "2048", "--n", "2048", "--k", "512", "--dtype", "bfloat16")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """One run with all that it can write."""
    folder = tmp_path_factory.mktemp("time")
    files = {name: str(folder / name) for name in ("timeline.svg", "trace.jsonl.gz")}
    arguments = ("--target", "gfx942", "--draw", files["timeline.svg"], "--trace", files["trace.jsonl.gz"])
    assert main(["time", *SMALL, *arguments, "--json"]) == 0
    return files


def test_time(capsys):
    done = typed(capsys, "time", *LARGE, "--target", "gfx942")
    assert done.returncode == 0
    assert "executing gemm …" in done.stderr
    assert "time: --assembly lists the instructions of its longest loop" in done.stderr
    in_short = done.stdout.splitlines()
    assert len(in_short) == 9
    done = typed(capsys, "time", *LARGE, "--target", "MI300X", "--assembly")
    assert "--assembly" not in done.stderr
    in_full = done.stdout.splitlines()
    assert len(in_full) > 30
    assert [line for line in in_full if line in in_short] == in_short
    for text in (
        "wmma_ops.matmul on gfx942",
        "one compute unit has 1 block of",
        "cycles; the matrix pipes are busy",
        "µs for the whole GPU, by 1 round of the units, at 2.1 GHz; not measured",
        "bound by",
        "not validated on gfx942: ",
        "v_mfma_f32",
        "s_waitcnt",
        "wait for",
    ):
        assert text in done.stdout, text
    (told,) = json.loads(typed(capsys, "time", *SMALL, "--target", "gfx1201", "--json").stdout)
    assert told["target"] == "gfx1201"
    assert 0 < told["share"] < 1
    assert told["estimate"]["rounds"] == 1
    assert told["estimate"]["microseconds"] == pytest.approx(told["cycles"] / 2970)
    assert sum(one["executed"] for one in told["instructions"]) == told["issued"]
    assert (
        "v_wmma" in typed(capsys, "time", *SMALL, "--target", "gfx1201", "--assembly").stdout
    )  # with a loop or without


def test_what_is_drawn(written):
    with open(written["timeline.svg"], encoding="utf-8") as file:
        text = file.read()
    assert text.startswith("<?xml")
    for shown in (
        "matmul on gfx942",
        "bound by",
        ">wave 0<",
        ">matrix<",
        ">waits for other waves<",
        ">waits for memory<",
    ):
        assert shown in text, shown


def test_the_trace_that_is_written(written):
    with gzip.open(written["trace.jsonl.gz"], "rt", encoding="utf-8") as file:
        head, *waves = map(json.loads, file)
    assert head["target"], head["lanes"] == ("gfx942", 64)
    assert len(waves) == 4
    loads = 0
    for wave in waves:
        assert wave["exec"] == hex(2**64 - 1)
        assert head["instructions"][wave["executed"][0] if isinstance(wave["executed"][0], int) else 0].startswith("s_")
        for entry in wave["executed"]:
            if isinstance(entry, int):
                continue
            number, told = entry
            if head["instructions"][number].startswith("global_load_dwordx4"):
                loads += 1
                ((*lanes,),) = told["at"]
                assert [lane for lane, _ in lanes] == list(range(64))
                assert all(address % 16 == 0 for _, address in lanes)
    assert loads > 8


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (
            ("--target", "H100"),
            2,
            "time: H100 is not emulated: its instructions are NVIDIA's; takes an AMD target such as",
        ),
        (("--target", "RX 6800"), 2, "has no matrix cores"),
        (
            ("--target", "gfx908"),
            2,
            "gfx908: there are no rules of its time; there are cdna2, cdna3, cdna4, rdna3, rdna4",
        ),
        (
            ("--target", "gfx942", "--instructions", "500"),
            2,
            "execute more than 500 instructions; instructions=2000 allows",
        ),
        (("--target", "gfx942", "--draw", "x.jpg"), 2, "x.jpg: pictures end in .png or .svg"),
        (("--target", "gfx942", "--trace", "/no/such/folder/x"), 2, "No such file or directory"),
    ],
)
def test_time_refuses(capsys, arguments, code, text):
    done = typed(capsys, "time", *SMALL, *arguments)
    assert done.returncode == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_what_cannot_be_is_said_before_anything_is_compiled(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("wmma_ops.cli.time.planned", lambda *_: pytest.fail("planned"))
    for target in ("sm_90a", "RTX 4090", "gfx908", "gfx1250"):
        assert typed(capsys, "time", *SMALL, "--target", target).returncode == 2
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = typed(capsys, "time", *SMALL, "--target", "gfx942", "--draw", str(tmp_path / "x.svg"))
    assert (done.returncode, done.stderr) == (1, "time: drawing needs matplotlib: pip install matplotlib\n")
    done = typed(capsys, "run", "there-is-none.co", "--grid", "1", "--draw", "x.svg")
    assert (done.returncode, done.stderr) == (1, "run: drawing needs matplotlib: pip install matplotlib\n")
    done = typed(capsys, "run", "there-is-none.co", "--target", "H100")
    assert (done.returncode, "which is NVIDIA's" in done.stderr) == (2, True)


def test_a_relative_is_timed_and_told_who_stands_for_it(capsys):
    done = typed(capsys, "time", "matmul", "--m", "16", "--n", "16", "--k", "64", "--target", "RX 7600")
    assert done.stdout.startswith("wmma_ops.matmul on gfx1102\n")
    assert done.stderr.startswith("time: no test runs on gfx1102; gfx1100 stands for it, with the same instructions")


def test_of_several_launches_the_longest_is_told_at_length(capsys):
    done = typed(capsys, "time", "matmul", "--m", "16", "--k", "8192", "--n", "64", "--target", "gfx942")
    assert len(done.stdout.splitlines()) <= 11
    assert len(re.findall("^  kernel ", done.stdout, re.M)) == len(re.findall("^  time ", done.stdout, re.M)) == 2
    assert len(re.findall("^  bound by ", done.stdout, re.M)) == 1


def test_a_part_is_timed_where_it_is_asked_for(capsys):
    done = typed(capsys, "time", *SMALL, "--target", "gfx942", "--instructions", "500", "--part")
    assert done.returncode == 0
    assert "cycles of a part of them" in done.stdout


SLOW = """#include <wmma/grid.hpp>
extern "C" __global__ void slow(const float* x, float* y, int rounds) {
  __shared__ float tile[2 * 64 * 16];
  float sum = 0;
  for (int i = 0; i < 16; ++i) tile[threadIdx.x + 128 * i] = x[threadIdx.x + 128 * i];
  wmma::sync_workgroup();
  for (int round = 0; round < rounds; ++round) {
    if (CONFLICTS) {
      for (int i = 0; i < 8; ++i) sum += tile[(threadIdx.x * STEP + i + round) & 2047];
    } else {
      for (int i = 0; i < 4; ++i) sum += x[(threadIdx.x + 128 * i + 512 * (round & 3)) ^ int(sum != sum)];
    }
  }
  y[threadIdx.x] = sum;
}"""


@pytest.mark.parametrize(
    ("conflicts", "step", "bound", "shown"),
    [
        (1, 2, "bank conflicts of shared memory", ">waits for shared memory<"),
        (1, 1, "", ""),
        (0, 1, "loads from memory that are waited for", ">waits for memory<"),
    ],
    ids=["two-way conflicts", "none", "loads waited for at once"],
)
def test_why_a_kernel_is_slow(tmp_path, conflicts, step, bound, shown):
    kernel = wmma_ops.Kernel(SLOW, "slow", options=(f"-DCONFLICTS={conflicts}", f"-DSTEP={step}"))
    x, y = torch.zeros(2048), torch.zeros(128)
    with wmma_ops.emulate("gfx942", timing=True) as emulation:
        kernel[1, 128](x, y, 50)
    (launch,) = emulation.launches
    if not bound:
        assert "conflicts" not in launch.timing().bound
        return
    launch.draw(str(tmp_path / "slow.svg"), "a kernel", 1000)
    text = (tmp_path / "slow.svg").read_text(encoding="utf-8")
    assert f"bound by {bound}" in text
    assert shown in text
    middle = launch.timing().cycles // 2
    assert f"of which {middle:,} to {middle + 1000:,} are drawn" in text


def test_what_is_nearer_than_a_dot_is_drawn_as_one():
    spans = [(40, 10), (0, 4), (5, 3), (9, 20), (12, 2)]
    assert timeline._joined(spans, 1) == [(0, 29), (40, 10)]
    assert timeline._joined(spans, 0) == [(0, 4), (5, 3), (9, 20), (40, 10)]


def test_the_pictures_of_loops_are_those_that_are_shown(tmp_path):
    script = runpy.run_path(str(DOCS / "draw_loops.py"))
    pictures = script["PICTURES"]
    page = (DOCS / "pages/loops.md").read_text(encoding="utf-8")
    assert re.findall(r"^<!-- loop ([^:\n]+): .+ -->$", page, re.M) == [one.name for one in pictures]
    small = dataclasses.replace(pictures[0], cycles=1000, sizes=clock.Sizes(mn=640, k=256))
    text = script["draw"](small, tmp_path).read_text(encoding="utf-8")
    numbers = re.search(r"of which ([\d,]+) to ([\d,]+) are drawn", text).groups()
    first, last = (int(x.replace(",", "")) for x in numbers)
    assert f">{small.name}: " in text
    assert last - first == 1000


def test_the_report_by_the_clock(capsys, monkeypatch):
    """Two small cases, of which one is slower than it may be."""
    chosen = {name: clock.CASES[name] for name in ("product NT", "attention 64, causal")}
    monkeypatch.setattr(clock, "CASES", chosen)
    monkeypatch.setattr(clock, "work", functools.partial(clock.work, sizes=clock.Sizes(mn=640, queries=768)))
    monkeypatch.setattr(clock, "SHARES", {"gfx942": (0.01, 0.99)})
    done = typed(capsys, "report", "--clock")
    assert done.returncode == 1
    assert done.stdout.splitlines()[1].split() == ["gfx942"]
    assert "broken: gfx942 attention 64, causal: 0." in done.stdout
    assert ", at least 0.960; " in done.stdout
    assert "limits broken: 1" in done.stdout
    monkeypatch.setattr(clock, "SHARES", {"gfx942": (0.01, 0.01)})
    rows = json.loads(typed(capsys, "report", "--clock", "--target", "gfx942", "--json").stdout)
    assert [row["label"] for row in rows] == list(chosen)
    assert not any(row["broken"] for row in rows)
    assert all(0 < row["share"] < row["loop_share"] < 1 for row in rows)
    refused = typed(capsys, "report", "--clock", "--target", "sm_90a")
    assert (refused.returncode, "sm_90a is not timed; takes gfx942" in refused.stderr) == (2, True)
    refused = typed(capsys, "report", "--clock", "--target", "RX 6800")
    assert (refused.returncode, "has no matrix cores" in refused.stderr) == (2, True)


def test_the_report_by_the_clock_names_who_stands_for_a_relative(capsys):
    refused = typed(capsys, "report", "--clock", "--target", "RX 7600")
    assert (refused.returncode, "RX 7600 is not timed; gfx1100 stands for it; takes " in refused.stderr) == (2, True)


def test_every_case_of_the_clock_has_its_share():
    assert set(clock.SHARES) <= set(arch.EMULATED)
    assert all(len(shares) == len(clock.labels(target)) for target, shares in clock.SHARES.items())
    assert all(0 < share < 1 for shares in clock.SHARES.values() for share in shares)


def test_an_estimate_is_bound_by_rounds_or_by_memory():
    for m in (512, 16384):
        a, b = torch.ones(m, 512, dtype=torch.bfloat16), torch.ones(512, 2048, dtype=torch.bfloat16)
        plan = wmma_ops.explain("matmul", a, b, target="gfx942")
        timing = plan.timing()
        assert timing.estimate.rounds == -(-plan.launches[0].grid[0] // (304 * timing.blocks))
        assert timing.estimate.microseconds == pytest.approx(timing.estimate.rounds * timing.cycles / 2100)
        assert not timing.estimate.by_memory
    # A row times a matrix is read once, which the bandwidth bounds.
    thin = wmma_ops.explain(
        "matmul", torch.ones(1, 4096).half(), torch.ones(4096, 16384).half(), target="gfx942"
    ).timing()
    assert thin.estimate.microseconds >= 2 * 4096 * 16384 / 2500 / 2100
    assert wmma_ops.explain("matmul", a, b, target="gfx942").timing(instructions=500, part=True).estimate is None


def test_an_estimate_counts_what_a_launch_touches():
    """The kernel that adds up parts of K is given A and B, and reads neither."""
    a, b = torch.ones(16, 8192).half(), torch.ones(8192, 1024).half()
    products, sums = wmma_ops.explain("matmul", a, b, target="gfx942").launches
    bytes_of_both = 2 * (16 + 1024) * 8192
    assert products.timing().estimate.microseconds >= bytes_of_both / 2500 / 2100
    assert sums.timing().estimate.microseconds < 0.5 * bytes_of_both / 2500 / 2100


def test_the_launch_that_takes_longest_does_so_on_the_whole_gpu(monkeypatch):
    """One whose blocks are alone on a unit ends sooner there than one with two of them, and comes more often."""
    found = wmma_ops.explain("matmul", torch.ones(16, 8192).half(), torch.ones(8192, 1024).half(), target="gfx942")
    first = found.launches[0].timing()

    def timing(cycles, microseconds):
        return dataclasses.replace(
            first, cycles=cycles, estimate=dataclasses.replace(first.estimate, microseconds=microseconds)
        )

    few, many = timing(100, 6.0), timing(150, 5.0)
    given = {found.launches[0].kernel: many, found.launches[1].kernel: few}
    monkeypatch.setattr(LaunchRecord, "timing", lambda self, **_: given[self.kernel])
    assert found.timing() is few
    given[found.launches[0].kernel] = dataclasses.replace(many, estimate=None)  # cut short: nothing to go by but cycles
    assert found.timing().cycles == 150
