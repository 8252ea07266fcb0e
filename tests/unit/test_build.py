"""Kernels compiled ahead of time: recorded calls, the folder and the wheel that bring them, machines with no compiler."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import wmma_ops
from wmma_ops import jit
from wmma_ops.cli.main import main
from wmma_ops.cli.usual import usual
from wmma_ops.jit import cache, clang, headers
from wmma_ops.runtime import building, launching, recording

TARGET = "gfx1201"


def _model():
    """One call of each kernel."""
    x, weight = torch.randn(24, 64).half(), torch.randn(96, 64).half()
    q = torch.randn(1, 2, 33, 65).half()[..., 1:]  # rows that are aligned to two bytes
    linear = wmma_ops.linear(x, weight, activation="silu")
    return linear, wmma_ops.attention(q, q, q, is_causal=True)[0], wmma_ops.gemm_gemm(x, weight.mT, weight)


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    file = tmp_path_factory.mktemp("calls") / "calls.json"
    with wmma_ops.record(file):
        _model()
        _model()
    return file


@pytest.fixture(scope="module")
def built(calls, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    assert main(["build", "--target", TARGET, "--calls", str(calls), "--out", str(folder), "--wheel", str(folder)]) == 0
    return folder


@pytest.fixture
def no_compiler(built, tmp_path, monkeypatch):
    """A machine with the folder and nothing else."""
    monkeypatch.setenv("WMMA_OPS_OBJECTS", str(built))
    monkeypatch.setenv("WMMA_OPS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(clang.ASKED, raising=False)
    monkeypatch.setattr(clang, "_candidates", tuple)
    monkeypatch.setattr(jit.hiprtc.Hiprtc, "available", lambda self, target: False)
    _forget()
    yield
    _forget()


def _forget():
    with cache._guard:
        cache._memory.clear()
    torch.ops.wmma._forget_plans()


def test_a_call_is_recorded_once_with_its_layout(calls):
    stored = json.loads(calls.read_text())["calls"]
    assert [one["op"] for one in stored] == ["wmma_raw::linear", "wmma_raw::attention", "wmma_raw::gemm_gemm"]
    q = stored[1]["arguments"][0]
    assert q == {"shape": [1, 2, 33, 64], "stride": [4290, 2145, 65, 1], "dtype": "float16", "aligned": 2}
    # Made again, they plan the same problem.
    found = [building._launches(made, wmma_ops.hardware.arch.target(TARGET)) for made in recording.load(calls)]
    plans = launching.plans(_model, wmma_ops.hardware.arch.target(TARGET))
    assert found == [{launch.source for launch in one.plan.launches} for one in plans]


def test_recording_adds_to_a_file(tmp_path):
    for k in (3, 4, 4):
        with wmma_ops.record(tmp_path / "calls.json") as seen:
            wmma_ops.matmul(torch.ones(2, k), torch.ones(k, 2))
    assert len(seen) == len(json.loads((tmp_path / "calls.json").read_text())["calls"]) == 2


def test_other_ops_are_not_recorded_and_results_stay():
    a = torch.randn(5, 6, requires_grad=True)
    with wmma_ops.record() as seen:
        found = wmma_ops.matmul(a, a.mT).sum()
        found.backward()
    assert torch.allclose(a.grad, torch.autograd.grad((a @ a.mT).sum(), a)[0], rtol=1e-5, atol=1e-5)
    assert seen
    assert all("wmma" in call for call in seen)


def test_without_a_compiler_the_folder_serves(no_compiler):
    with wmma_ops.emulate(TARGET) as emulation:
        found = _model()
    assert len(emulation.launches) == 3
    for got, want in zip(found, _model(), strict=True):
        assert got.shape == want.shape


def _other_sizes():
    return torch.randn(24, 2048).half(), torch.randn(96, 2048).half()


def test_other_sizes_take_kernels_that_are_there(no_compiler):
    """The planner would split so long a K."""
    x, weight = _other_sizes()
    with wmma_ops.emulate(TARGET) as emulation:
        found = wmma_ops.linear(x, weight, activation="silu")
    want = torch.nn.functional.silu(x.double() @ weight.double().mT)
    assert (found.double() - want).norm() < 1e-3 * want.norm()
    assert len(emulation.launches) == 1
    plan = wmma_ops.explain("linear", x, weight, activation="silu", target=TARGET)
    assert "ahead of time" in plan.reason


def test_unaligned_kernels_serve_what_is_aligned(no_compiler):
    """The recorded q, k and v were aligned to two bytes."""
    q = torch.randn(1, 2, 40, 64).half()
    with wmma_ops.emulate(TARGET):
        found = wmma_ops.attention(q, q, q, is_causal=True)[0]
    want = torch.nn.functional.scaled_dot_product_attention(*[q.double()] * 3, is_causal=True)
    assert (found.double() - want).abs().max() < 2e-3


def test_what_is_not_there_says_what_to_install(no_compiler):
    with wmma_ops.emulate(TARGET), pytest.raises(jit.CompileError, match="ziglang"):
        wmma_ops.linear(torch.randn(24, 64).half(), torch.randn(96, 64).half(), activation="tanh")


def test_kernels_of_other_sources_are_not_used(no_compiler, monkeypatch):
    monkeypatch.setattr(headers.Tree, "digest", lambda self, includes: "edited")
    with wmma_ops.emulate(TARGET), pytest.raises(jit.CompileError):
        _model()


def test_a_damaged_object_is_passed_over_and_stays(built, tmp_path, monkeypatch):
    folder = tmp_path / "damaged"
    for path in built.rglob("*.wmma"):
        copy = folder / path.relative_to(built)
        copy.parent.mkdir(parents=True)
        copy.write_bytes(path.read_bytes()[:-7])
    monkeypatch.setenv("WMMA_OPS_OBJECTS", str(folder))
    _forget()
    with wmma_ops.emulate(TARGET):
        _model()  # compiles, or takes the cache folder's
    assert len(list(folder.rglob("*.wmma"))) == len(list(built.rglob("*.wmma")))


def test_the_wheel_is_found_where_it_is_installed(built, tmp_path):
    (path,) = built.glob("*.whl")
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", site, path], check=True
    )
    code = "from wmma_ops.bringup import doctor; print(doctor._compiled_ahead())"
    root = Path(wmma_ops.__file__).parents[1]
    shown = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(site)!r}, {str(root)!r}]; {code}"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    count = len(list(built.rglob("*.wmma")))
    assert f"{TARGET} {count}" in shown
    assert "wmma_ops_objects" in shown
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    brought, there = (
        {entry.path.parent.name: entry for entry in cache.ls(of)} for of in (site / "wmma_ops_objects", built)
    )
    assert brought.keys() == there.keys()
    assert all(entry.usable for entry in brought.values())


def test_the_wheel_has_what_a_gpu_is_given(built):
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".wmma")]
        assert len(names) == 3
        for name in names:
            brought, there = archive.read(name), (built / name.partition("/")[2]).read_bytes()
            (head, bare), (_, whole) = cache._parse(brought), cache._parse(there)
            assert (bare.code, bare.kernels, bare.target) == (whole.code, whole.kernels, whole.target)
            assert bare.assembly is head["assembly"] is None
            assert len(brought) < len(there) - len(whole.assembly) + 100


def test_a_file_that_is_no_code_object_is_not_packed(built, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "0.wmma").write_bytes(b"no code")
    with pytest.raises(ValueError, match="is no stored code object"):
        building.wheel(tmp_path, tmp_path)


def test_planning_asks_for_compilers_once_a_plan_and_once_a_kernel(no_compiler, monkeypatch):
    """Not for each of the configurations that are looked for."""
    asked = []
    monkeypatch.setattr(jit.hiprtc.Hiprtc, "available", lambda self, target: asked.append(target))
    plan = wmma_ops.explain("linear", *_other_sizes(), activation="silu", target=TARGET)
    assert "ahead of time" in plan.reason
    assert asked == [TARGET] * 2


def test_a_compiler_is_asked_for_once_a_compilation(built, tmp_path, monkeypatch):
    asked, available = [], clang.Clang.available
    monkeypatch.setattr(clang.Clang, "available", lambda self, target: asked.append(1) or available(self, target))
    monkeypatch.setenv("WMMA_OPS_OBJECTS", str(built))
    monkeypatch.setenv("WMMA_OPS_CACHE_DIR", str(tmp_path))
    _forget()
    jit.compile('extern "C" __attribute__((global)) void once() {}', TARGET)
    assert asked == [1]


def test_a_folder_is_listed_by_one_reading_of_the_sources(built, monkeypatch):
    read, walk = [], headers._walk
    monkeypatch.setattr(headers, "_walk", lambda root: read.append(1) or walk(root))
    assert [entry.usable for entry in cache.ls(built)] == [True] * 3
    assert read == [1]


def test_the_usual_calls_are_taken():
    """The first, a layer, and the last, attention with its gradients; the others differ in types and sizes."""
    calls = usual()
    assert len(calls) > 200
    for call, target in ((calls[0], "sm_90a"), (calls[0], "gfx1100"), (calls[-1], "gfx942")):
        assert building._launches(call, wmma_ops.hardware.arch.target(target))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--target", TARGET], "pass --out"),
        (["--out", "x"], "pass --target TARGET …, or --common"),
        (["--target", "gfx999", "--out", "x"], "gfx999"),
        (["--target", ",", "--out", "x"], "--target is ','; takes names of targets"),
        (["--target", TARGET, "--out", "x", "--calls", "/nowhere.json"], "nowhere.json"),
    ],
)
def test_bad_orders_are_refused(given, says, capsys):
    assert main(["build", *given]) == 2
    assert says in capsys.readouterr().err


def test_a_recorded_call_that_a_target_does_not_take_is_left_out(tmp_path, capsys):
    """As of a model that was trained where such heads fit."""
    q, lse = torch.zeros(1, 1, 4, 512), torch.zeros(1, 1, 4)
    with wmma_ops.record(tmp_path / "calls.json"):
        backward = torch.ops.wmma._attention_backward
        assert launching.problems(lambda: backward(q, q, q, q, q, lse), wmma_ops.hardware.arch.target("sm_90a"))
        wmma_ops.matmul(torch.ones(2, 3), torch.ones(3, 2))
    given = ["--calls", str(tmp_path / "calls.json"), "--out", str(tmp_path / "out"), "--json"]
    assert main(["build", "--target", TARGET, *given]) == 1
    (built,) = json.loads(capsys.readouterr().out)["targets"]
    assert built["objects"] == 1
    (why,) = built["left_out"]
    assert f"no configuration of {TARGET} fits AttentionProblem" in why


def test_a_file_that_holds_no_calls_is_refused(tmp_path):
    no_call = "calls.json holds what is no call of this version's ops: "
    for text, says in (
        ("[1]", "holds no calls"),
        ('{"format": 99}', "format 99"),
        ("x", "holds no calls"),
        ('{"format": 1, "calls": [{"op": "wmma::later", "arguments": [], "keywords": {}}]}', no_call + ".*wmma::later"),
        ('{"format": 1, "calls": [{"op": "aten::mm", "arguments": [], "keywords": {}}]}', no_call + ".*aten::mm"),
        ('{"format": 1, "calls": [{"name": "wmma::matmul"}]}', no_call + ".*name"),
        ('{"format": 1, "calls": {"op": 1}}', no_call + "'op'"),
    ):
        (tmp_path / "calls.json").write_text(text)
        with pytest.raises(ValueError, match=says):
            recording.load(tmp_path / "calls.json")


def test_the_cache_is_listed_and_emptied(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WMMA_OPS_CACHE_DIR", str(tmp_path / "cache"))
    _forget()
    with wmma_ops.emulate(TARGET):
        wmma_ops.matmul(torch.ones(2, 3), torch.ones(3, 2))
    assert main(["cache", "ls", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["target"] for entry in listed["entries"]] == [TARGET]
    assert listed["entries"][0]["usable"]
    assert main(["cache", "ls"]) == 0
    assert TARGET in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert "1 code objects removed" in capsys.readouterr().out
    assert cache.ls() == []
