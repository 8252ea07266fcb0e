"""The pass in Inductor: the backend, the slot that it shares, the caches' keys, what pays, and the report."""

import dataclasses
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from compiled_functions import Compiled
from op_counts import ran
from torch._dynamo.utils import counters
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._subclasses.fake_tensor import FakeTensorMode

import wmma_ops
from wmma_ops import inductor
from wmma_ops.hardware import arch
from wmma_ops.inductor import ahead, profit, slot
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.runtime import emulation, launching, tuned

FORCED = {"wmma.force": True}


@pytest.fixture(autouse=True)
def _fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    counters.clear()
    assert config.pre_grad_custom_pass is None
    yield
    assert config.pre_grad_custom_pass is None, "a test left a pass behind"
    torch._dynamo.reset()


def _layer(x, w, b):
    # One op and nothing else: Inductor has no C++ to compile.
    return F.gelu(F.linear(x, w, b))


def _tensors(rows=4):
    return torch.randn(rows, 8), torch.randn(16, 8), torch.randn(16)


def _called(function, *inputs):
    """The ops of the second call: the first compiles."""
    function(*inputs)
    with ran() as counts:
        function(*inputs)
    return dict(counts)


# --------------------------------------------------------------------------------------------------------- the backend


def test_backend_trains():
    layer = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
    x = torch.randn(4, 8, requires_grad=True)
    compiled = torch.compile(layer, backend="wmma", options=FORCED, fullgraph=True)
    with ran() as called:
        out = compiled(x)
    inputs = [x, *layer.parameters()]
    got = torch.autograd.grad(out.sum(), inputs)
    want = torch.autograd.grad(layer(x).sum(), inputs)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert called["gemm_gemm"] >= 1
    assert [entry.op for entry in inductor.last_report().rewritten] == ["gemm_gemm"]


def test_backend_takes_dynamic_sizes_and_modes():
    compiled = torch.compile(_layer, backend="wmma", mode="max-autotune-no-cudagraphs", dynamic=True)
    x, w, b = _tensors()
    with inductor.enabled(force=True):
        assert _called(compiled, x, w, b) == {"linear": 1}
    for rows in (3, 9):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x, w, b), _layer(x, w, b))
    assert counters["stats"]["unique_graphs"] == 1


def test_options_reach_inductor():
    seen = []

    class Spy(CustomGraphPass):
        def __call__(self, graph):
            seen.append((config.max_autotune, config.epilogue_fusion))

        def uuid(self):
            return "spy"

    options = {**FORCED, "pre_grad_custom_pass": Spy(), "epilogue_fusion": False, "max_autotune": True}
    assert _called(torch.compile(_layer, backend="wmma", options=options), *_tensors()) == {"linear": 1}
    assert seen == [(True, False)]
    with pytest.raises(Exception, match="Unexpected optimization option no_such"):
        torch.compile(lambda x: x + 1, backend="wmma", options={"no_such": 1})(torch.ones(2))
    with pytest.raises(
        Exception, match=r"no option 'wmma\.forse' \(did you mean 'wmma\.force'\?\); takes 'wmma\.force'"
    ):
        torch.compile(lambda x: x + 3, backend="wmma", options={"wmma.forse": True})(torch.ones(2))
    with pytest.raises(Exception, match=r'option "wmma.batch_invariant" is 1; takes a bool'):
        torch.compile(lambda x: x + 3, backend="wmma", options={"wmma.batch_invariant": 1})(torch.ones(2))
    with pytest.raises(Exception, match=r'option "wmma.force" is 1; takes a bool'):
        torch.compile(lambda x: x + 2, backend="wmma", options={"wmma.force": 1})(torch.ones(2))


def test_backend_is_found_by_its_entry_point(tmp_path):
    """In a process that imports torch alone."""
    metadata = tmp_path / f"wmma_ops-{wmma_ops.__version__}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: wmma_ops\nVersion: {wmma_ops.__version__}\n")
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    section = "[torch_dynamo_backends]"
    (line,) = project.partition("[project.entry-points.torch_dynamo_backends]\n")[2].splitlines()[:1]
    (metadata / "entry_points.txt").write_text(f"{section}\n{line.replace(chr(34), '')}\n")
    code = (
        "import sys, torch\n"
        "assert 'wmma_ops' not in sys.modules\n"
        "f = torch.compile(lambda a, b: a @ b, backend='wmma', options={'wmma.force': True})\n"
        "f(torch.ones(2, 2), torch.ones(2, 2))\n"
        "import wmma_ops\n"
        "print([entry.op for entry in wmma_ops.inductor.last_report().entries])"
    )
    path = {"PYTHONPATH": f"{tmp_path}:{Path(wmma_ops.__file__).parents[1]}"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **path})
    assert done.stdout.strip() == "['matmul']", done.stderr


def test_import_leaves_torch_alone():
    code = (
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "import wmma_ops\n"
        "assert not [name for name in set(sys.modules) - before if name.startswith(('torch._dynamo', 'torch._inductor'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------------------------------------------------ the slot


class _Other(CustomGraphPass):
    """Somebody else's pass."""

    def __init__(self, name="other"):
        self.name, self.seen = name, 0

    def __call__(self, graph):
        self.seen += 1

    def uuid(self):
        return self.name


def test_enable_composes_and_gives_the_slot_back():
    other = _Other()
    config.pre_grad_custom_pass = other
    try:
        inductor.enable(force=True)
        inductor.enable(force=True)  # twice is once
        assert config.pre_grad_custom_pass.before == (other,)
        assert _called(torch.compile(_layer), *_tensors()) == {"linear": 1}
        assert other.seen == 1
        with inductor.disabled():
            assert config.pre_grad_custom_pass is other
            torch._dynamo.reset()
            assert _called(torch.compile(_layer), *_tensors()) == {}
        assert config.pre_grad_custom_pass.settings.force
        inductor.disable()
        assert config.pre_grad_custom_pass is other
        inductor.disable()
        assert config.pre_grad_custom_pass is other
    finally:
        config.pre_grad_custom_pass = None


def test_enabled_is_over_when_it_ends():
    with inductor.enabled(force=True):
        assert _called(torch.compile(_layer), *_tensors()) == {"linear": 1}
        with inductor.enabled():
            assert not config.pre_grad_custom_pass.settings.force
        assert config.pre_grad_custom_pass.settings.force
    torch._dynamo.reset()
    assert _called(torch.compile(_layer), *_tensors()) == {}


def test_several_passes_in_the_slot_stay_in_their_order():
    first, last = _Other("first"), _Other("last")
    ours = slot.WmmaPass(inductor.Settings())
    for kind in (list, tuple):
        assert slot._given_back(kind((first, ours, last))) == kind((first, last))
        assert slot._composed(inductor.Settings(), kind((first, last))).before == (first, last)
    assert slot._given_back([first, slot._composed(inductor.Settings(), last)]) == [first, last]


def test_disabled_stops_the_backend_too():
    compiled = torch.compile(_layer, backend="wmma", options=FORCED)
    with inductor.disabled():
        assert _called(compiled, *_tensors()) == {}
    torch._dynamo.reset()
    assert _called(compiled, *_tensors()) == {"linear": 1}


# ----------------------------------------------------------------------------------------------------------- the caches


def _compiles(**settings):
    """Whether a graph that has been compiled is compiled anew."""
    torch._dynamo.reset()
    counters.clear()
    with inductor.enabled(**settings), config.patch(fx_graph_cache=True):
        torch.compile(_layer)(*_tensors())
    found, missed = (
        counters["aot_autograd"]["autograd_cache_hit"] + counters["inductor"]["fxgraph_cache_hit"],
        counters["inductor"]["fxgraph_cache_miss"],
    )
    assert bool(found) != bool(missed), (counters["inductor"], counters["aot_autograd"])
    return bool(missed)


def test_caches_know_version_source_and_settings(monkeypatch):
    assert _compiles(force=True)
    assert not _compiles(force=True)
    assert _compiles(force=False)
    assert not _compiles(force=False)
    monkeypatch.setattr(slot, "__version__", "999")
    assert _compiles(force=True)
    assert not _compiles(force=True)
    monkeypatch.setattr(slot, "source_hash", lambda: "another")
    assert _compiles(force=True)


def test_a_graph_from_the_cache_calls_our_op():
    assert _compiles(force=True)
    torch._dynamo.reset()
    with inductor.enabled(force=True):
        assert _called(torch.compile(_layer), *_tensors()) == {"linear": 1}


def test_uuid_is_of_everything_that_decides():
    def uuid(before=None, **settings):
        return slot.WmmaPass(inductor.Settings(**settings), before).uuid()

    assert uuid() == uuid()
    seen = {uuid(), uuid(force=True), uuid(before=_Other()), uuid(before=_Other("another"))}
    with wmma_ops.emulate("gfx942"):
        seen.add(uuid())
    assert len(seen) == 5
    assert uuid(before=lambda graph: None) is None  # no key can tell what it does


def test_source_hash_changes_with_a_file(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "__init__.py").write_text("")
    hashes = [slot.source_hash.__wrapped__(tmp_path)]
    for name, text in (("a.py", "1"), ("a.py", "2"), ("sub/b.py", "2")):
        (tmp_path / name).write_text(text)
        hashes.append(slot.source_hash.__wrapped__(tmp_path))
    assert len(set(hashes)) == 4


# ------------------------------------------------------------------------------------------------------------ what pays


def _entries(function, target, *shapes, dtype=torch.bfloat16, grad=False, dynamic=False):
    """The report of a graph of fake tensors, for that target."""
    with FakeTensorMode(), emulation.entered(emulation.Emulation(target, execute=False)):
        inputs = [torch.empty(shape, dtype=dtype, requires_grad=grad) for shape in shapes]
        compiled = Compiled(function, force=False, dynamic=dynamic)
        compiled(*inputs)
    return compiled.report.entries


LARGE = ((8192, 1024), (1024, 1024), (1024,))


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1201"])
def test_the_model_decides(target):
    (fused,) = _entries(_layer, target, *LARGE)
    assert fused.op == "linear"
    assert "of torch's time by the model" in fused.reason
    (plain,) = _entries(F.linear, target, *LARGE)
    assert plain.op is None
    assert float(plain.reason.split()[0]) > 1


def test_what_a_gradient_recomputes_is_counted():
    def gated(x, w, b):
        return F.gelu(F.linear(x, w, b)) * b

    (entry,) = _entries(gated, "gfx942", *LARGE, grad=True)
    assert entry.op is None
    whole = (8192, 1024)  # a factor as large as the product, whose gradient needs what the activation is given as well
    (entry,) = _entries(lambda x, w, r: F.gelu(F.linear(x, w)) * r, "gfx942", *LARGE[:2], whole, grad=True)
    assert entry.op == "gemm"
    (kept,) = _entries(_layer, "gfx942", *LARGE, grad=True)
    assert kept.op == "linear"  # which keeps what its gradient needs, for a write more
    assert "with what the gradient computes again or has kept" in kept.reason
    assert float(kept.reason.split()[0]) > float(_entries(_layer, "gfx942", *LARGE)[0].reason.split()[0])
    (relu,) = _entries(lambda x, w, b: F.relu(F.linear(x, w, b)), "gfx942", *LARGE, grad=True)
    assert relu.op == "linear"  # which keeps what its gradient needs


def test_a_kernel_that_stays_is_not_spared():
    def summed(x, w, r):
        return F.linear(x, w) + r

    def normed(x, w, r):
        y = F.linear(x, w) + r
        return y, F.layer_norm(y.view(-1, 1024), (1024,))

    def gated(x, w, r):
        return F.linear(x, w) * torch.sigmoid(r)

    shapes = ((8192, 1024), (1024, 1024), (8192, 1024))
    assert [entry.op for entry in _entries(summed, "sm_90a", *shapes)] == ["linear"]
    # The norm's kernel could add as well, the sigmoid's multiply.
    assert [entry.op for entry in _entries(normed, "sm_90a", *shapes)] == [None]
    assert [entry.op for entry in _entries(gated, "sm_90a", *shapes)] == [None]


def test_two_products_pay_where_they_are_narrow():
    def mlp(x, up, down):
        return F.linear(F.relu(F.linear(x, up)), down)

    (narrow,) = _entries(mlp, "sm_90a", (65536, 64), (64, 64), (64, 64))
    assert narrow.op == "gemm_gemm"
    wide = _entries(mlp, "sm_90a", (4096, 1024), (4096, 1024), (1024, 4096))
    assert "gemm_gemm" not in [entry.op for entry in wide]
    assert "the planner would launch two products" in " ".join(entry.reason for entry in wide)
    # Whose D0 no kernel keeps in registers.
    floats = _entries(mlp, "sm_90a", (65536, 64), (64, 64), (64, 64), dtype=torch.float32)
    assert "gemm_gemm" not in [entry.op for entry in floats]
    assert "the planner would launch two products" in " ".join(entry.reason for entry in floats)


def test_rows_that_do_not_know_their_batch():
    torch._dynamo.reset()
    weight, down = torch.randn(96, 200).half(), torch.randn(40, 96).half()
    compiled = torch.compile(
        lambda x: F.linear(torch.relu(F.linear(x, weight)), down),
        backend="wmma",
        options={"wmma.batch_invariant": True},
        dynamic=False,
    )
    x = torch.randn(17, 200).half()
    with torch.no_grad(), wmma_ops.emulate("gfx942"):
        seen = launching.problems(lambda: compiled(x), arch.target("gfx942"))
        assert [problem.invariant for problem in seen] == [True, True]
        assert torch.equal(compiled(x[3:4])[0], compiled(x)[3])
    assert not torch.ops.wmma._is_batch_invariant()


@pytest.mark.parametrize("target", ["sm_90a", "gfx942", "gfx1201"])
def test_an_adapter_of_low_rank_is_a_part_of_its_layers_product(target):
    def lora(x, w, down, up):
        return F.linear(x, w) + 2 * F.linear(F.linear(x, down), up)

    (entry,) = _entries(lora, target, (8192, 4096), (4096, 4096), (16, 4096), (4096, 16), grad=True)
    assert entry.op == "gemm"
    assert 0.8 < float(entry.reason.split()[0]) < 1  # the wide product is most of it
    assert len(entry.nodes) == 5


def test_the_product_that_an_adapter_begins_with_is_counted():
    """Rows of 16392 elements straddle lines, which costs ours more than what the sum spares."""

    def adapted(x, w, down, up):
        return F.linear(x, w) + F.linear(F.linear(x, down), up)

    def whole(wide):
        return _entries(adapted, "sm_90a", (1000, 16392), (64, 16392), (wide, 16392), (64, wide))

    (narrow,) = whole(16)
    assert (narrow.op, narrow.pattern) == ("gemm", "linear beside linear → linear + sum")
    wide, left = whole(4096)  # which torch computes
    assert (wide.op, wide.pattern, left.op) == ("gemm", "linear beside linear + sum", None)


def test_dynamic_sizes_are_judged_by_those_at_hand():
    (entry,) = _entries(_layer, "sm_90a", *LARGE, dynamic=True)
    assert entry.op == "linear"


def test_attention_pays_where_torch_has_none_and_where_ours_is_faster():
    for target, dtype, rows, op in (
        ("sm_90a", torch.bfloat16, 512, "attention"),
        ("sm_90a", torch.bfloat16, 256, None),
        ("sm_80", torch.bfloat16, 512, None),
        ("gfx942", torch.float16, 512, None),
        ("gfx1201", torch.float16, 512, "attention"),
        ("sm_90a", torch.float64, 512, "attention"),
    ):
        heads = ((2, 8, rows, 64),) * 3
        attend = F.scaled_dot_product_attention
        (entry,) = _entries(attend, target, *heads, dtype=dtype)
        assert entry.op == op, entry


def test_tensors_on_a_gpu_are_judged_by_its_target(monkeypatch):
    monkeypatch.setattr(profit.driver, "target_of", {1: "gfx1201"}.get)
    monkeypatch.setattr(tuned, "measured", lambda problem: None)
    with FakeTensorMode():
        inputs = [torch.empty(shape, dtype=torch.bfloat16, device="cuda:1") for shape in LARGE]
        compiled = Compiled(_layer, force=False)
        compiled(*inputs)
    assert [entry.op for entry in compiled.report.entries] == ["linear"]


def test_float32_is_left_where_torch_may_round_it(monkeypatch):
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    (entry,) = _entries(_layer, "sm_90a", *LARGE, dtype=torch.float32)
    assert entry.op is None
    assert "TF32" in entry.reason


def test_on_the_cpu_nothing_pays():
    compiled = Compiled(_layer, force=False)
    compiled(*_tensors())
    (entry,) = compiled.report.entries
    assert entry.op is None
    assert "force=True" in entry.reason


def test_tuned_times_decide_before_the_model(monkeypatch, tmp_path):
    target = arch.target("sm_90a")
    x, w, b = (torch.empty(shape, dtype=torch.bfloat16) for shape in LARGE)
    (problem,) = launching.problems(lambda: torch.ops.wmma_raw.linear(x, w, b, activation=2), target)
    placed = dataclasses.replace(problem, device=0)
    path = tmp_path / "tuned" / "GPU.json"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "GPU")
    monkeypatch.setattr(tuned, "path_of", lambda name: path)
    costs = []
    for ours in (50.0, 10.0):
        tuned.keep(torch.device("cuda"), placed, gemm.choose(problem, target)[0], tuned.Measured(ours, 20.0))
        costs.append(profit.cost_of(problem, target, profit.Spared.KERNEL, False, device=0))
    assert [cost.pays for cost in costs] == [False, True]
    assert "as tuned on this GPU" in str(costs[0])
    assert costs[0].torchs > 20.0  # the product, and the kernel behind it
    (other,) = launching.problems(lambda: torch.ops.wmma_raw.linear(x, w), target)  # never timed
    both = [profit.cost_of_all(problem, [part], target, profit.Spared.KERNEL, False, 0) for part in (problem, other)]
    assert [cost.source for cost in both] == ["as tuned on this GPU", "by the model"]
    stored = json.loads(path.read_text())["best"]
    assert [one["library_microseconds"] for one in stored.values()] == [20.0]


def test_the_problem_is_the_one_that_would_be_planned():
    x, w, b = (torch.randn(shape).bfloat16() for shape in ((5, 24), (16, 24), (16,)))
    target = arch.target("gfx942")
    (asked,) = launching.problems(lambda: torch.ops.wmma_raw.linear(x, w, b, activation=2), target)
    assert asked == wmma_ops.explain("linear", x, w, b, activation="gelu", target="gfx942").problem


# ----------------------------------------------------------------------------------------------------------- the report


def test_report_tells_what_why_and_where():
    def model(x, w, b):
        h = F.linear(x, w, b)
        return F.gelu(h) * h, torch.matmul(x.int(), w.t().int())

    compiled = Compiled(model)
    compiled(*_tensors())
    report = inductor.last_report()
    assert report is compiled.report is inductor.reports()[-1]
    (taken,), (left,) = report.rewritten, report.left
    assert (taken.pattern, taken.op, taken.reason) == (
        "linear",
        "linear",
        "forced; no further: its result is used more than once",
    )
    assert left.reason.startswith("its types are int32")
    text = str(report)
    assert "1 rewritten, 1 left" in text.splitlines()[0]
    assert "test_inductor.py:" in taken.line
    for part in (taken.reason, "wmma.linear", "(left)", taken.line):
        assert part in text
    assert max(map(len, text.splitlines())) <= 120


def test_what_is_alike_in_layers_is_one_line():
    def model(x, w):
        for _ in range(3):
            x = F.relu(F.linear(x, w))
        return x

    compiled = Compiled(model)
    compiled(torch.randn(4, 8), torch.randn(8, 8))
    assert len(compiled.report.rewritten) == 2  # two products in one, and the last
    compiled.report.entries.append(compiled.report.entries[-1])
    (line,) = (line for line in str(compiled.report).splitlines() if "×2" in line)
    assert "wmma.linear" in line


@pytest.mark.parametrize(
    ("target", "attention"), [("sm_90a", "attention"), ("MI300X", None), ("RX 7900 XTX", "attention")]
)
def test_a_preview_is_of_a_gpu_that_is_not_here(target, attention):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024)

        def forward(self, x):
            heads = x.unflatten(-1, (16, 64)).transpose(1, 2)
            y = F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(-2)
            return self.down(F.gelu(self.up(y)))

    model, x, kept = Model().bfloat16(), torch.randn(4, 512, 1024).bfloat16(), len(inductor.reports())
    for _ in range(10):  # more often than a function may be compiled
        with torch.no_grad():
            (report,) = inductor.preview(model, x, target=target)
    found = {entry.pattern: entry for entry in report.entries}
    assert found["attention"].op == attention
    gelu = next(entry for pattern, entry in found.items() if pattern.startswith("linear + gelu"))
    assert gelu.op == "linear"
    assert "of torch's time by the model" in gelu.reason
    assert report in inductor.reports()
    assert len(inductor.reports()) >= min(kept + 10, 64)
    (forced,) = inductor.preview(model, x, target=target, force=True)
    assert not forced.left


def test_a_preview_refuses_what_is_no_target():
    with pytest.raises(ValueError, match="sm_12"):
        inductor.preview(F.linear, torch.randn(4, 8), torch.randn(8, 8), target="sm_12")


def test_an_empty_report_says_so():
    compiled = Compiled(lambda x: x + 1)
    compiled(torch.ones(2))
    assert str(compiled.report).endswith("0 rewritten, 0 left; it has no product and no attention")


# ------------------------------------------------------------------------------------------------------- under emulation


def test_compiled_graphs_run_under_emulation():
    def mlp(x, w, b):
        return F.relu(F.linear(x, w, b)) @ w

    inputs = [tensor.half() for tensor in _tensors(16)]
    with wmma_ops.emulate("gfx1201") as emulation, torch.no_grad():
        got = Compiled(mlp, backend="aot_eager")(*inputs)
    assert emulation.launches
    torch.testing.assert_close(got.double(), mlp(*(x.double() for x in inputs)), rtol=1e-2, atol=1e-2)


def test_kernels_are_compiled_while_the_graph_is(monkeypatch):
    ahead._started.cache_clear()
    compiled = []
    compile_kernels = launching.compile_kernels

    def noted(problem, target):
        compile_kernels(problem, target)
        compiled.append((problem, target.name, threading.current_thread()))

    monkeypatch.setattr(launching, "compile_kernels", noted)
    x, w, b = (tensor.half() for tensor in _tensors(24))

    def twice(x, w, b):
        return _layer(x, w, b) + _layer(x, w, b)

    threads = []
    started = ahead._started
    monkeypatch.setattr(ahead, "_started", lambda *one: threads.append(started(*one)) or threads[-1])
    with wmma_ops.emulate("gfx942"), torch.no_grad():
        Compiled(twice, backend="aot_eager")(x, w, b)
    for thread in threads:
        thread.join()
    asked = launching.problems(lambda: wmma_ops.linear(x, w, b, activation="gelu"), arch.target("gfx942"))
    ((problem, target, thread),) = compiled
    assert (problem, target) == (asked[0], "gfx942")
    assert threads == [thread, thread]  # the same, and not this one
