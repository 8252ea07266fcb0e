"""Planned calls: what explain says, errors on the way, threads, modes and memory."""

import contextlib
import gc
import re
import resource
import threading
import time
import warnings
import weakref

import pytest
import torch
from at_once import at_once
from planned_calls import NOTHING, TARGET, explain, h
from user_kernels import HEAD

import wmma_ops
from wmma_ops import emulator, jit
from wmma_ops.bringup import machine
from wmma_ops.hardware import arch
from wmma_ops.hardware.layouts import layout
from wmma_ops.jit import code_object
from wmma_ops.ops.types import FP8
from wmma_ops.plan import CaptureError, ConfigError, GemmProblem, KernelLaunch, Plan
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.runtime import building, callbacks, driver, emulated, emulation, launching, warming
from wmma_ops.runtime.emulated import EmulatedKernel
from wmma_ops.runtime.explain import explained
from wmma_ops.testing import functions

# ------------------------------------------------------------------------------------------------------ explain, warmup


def test_explain_reads_well():
    a, b = h(64, 48), h(48, 80)
    plan = wmma_ops.explain(wmma_ops.matmul, a, b, target="gfx1201")
    text = str(plan)
    assert len(text.splitlines()) < 25
    assert max(map(len, text.splitlines())) < 200
    for part in ("wmma_ops.matmul on gfx1201", "64 × 80 × 48", "float16", plan.reason, plan.launches[0].kernel):
        assert part in text
    (launch, *_) = plan.launches
    assert launch.code_object[:4] == b"\x7fELF"
    assert launch.kernel in launch.assembly
    assert launch.tensors["a"].data_ptr() == a.data_ptr()
    with pytest.raises(AttributeError):
        plan.op = "other"


@pytest.mark.parametrize(
    ("dtype", "target", "widest"),
    [(torch.float16, "gfx942", 256), (torch.float64, "gfx1201", 64), (torch.float64, "gfx908", 30)],
)
def test_explain_says_which_head_sizes_there_are_kernels_for(dtype, target, widest):
    q = torch.zeros(1, 16, 16, dtype=dtype)
    told = str(wmma_ops.explain("attention", q, q, q, target=target))
    assert f"\n  limits   head sizes to 512; gradients to {widest}, those of wider heads by way of scores" in told
    narrow = torch.zeros(1, 16, 16).to(torch.float8_e4m3fn)
    told = str(wmma_ops.explain("scaled_attention", narrow, narrow, narrow, target="sm_90a"))
    assert "\n  limits   head sizes to 512\n" in told


def test_explain_and_execute_agree():
    """What explain returns can be run by whoever runs code objects: here by the emulator, and it is the product."""
    a, b = h(40, 32), h(32, 24)
    plan = wmma_ops.explain("matmul", a, b, target=TARGET)
    run = emulation.Emulation(TARGET)
    for launch in plan.launches:
        kernel = EmulatedKernel(launch.code, launch.kernel)
        kernel.run(run, launch.grid, (launch.block, 1, 1), launch.arguments, launch.tensors, launch.shared_bytes)
    with wmma_ops.emulate(TARGET):
        assert torch.equal(plan.output, wmma_ops.matmul(a, b))


def test_explain_for_nvidia_on_the_cpu():
    plan = wmma_ops.explain("matmul", h(64, 64), h(64, 64), target="sm_90a")
    assert ".visible .entry" in plan.launches[0].assembly


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"], ids=["older", "newer"])
def test_kernels_for_nvidia_take_what_the_library_has(target):
    """As its driver holds it against the other; AMD's are held by the emulator, too."""
    x, packed, ends = h(1, 2, 256, 64), h(256, 2, 64), torch.tensor([0, 100, 256], dtype=torch.int32)
    table, narrow = torch.zeros(2, 4, dtype=torch.int32), packed.view(4, 64, 2, 64).to(torch.float8_e4m3fn)
    calls = {
        "products": lambda: wmma_ops.matmul(h(256, 64), h(64, 256)),
        "attention": lambda: wmma_ops.attention(x, x, x),
        "of few queries": lambda: wmma_ops.attention(x[:, :, :1], x, x),
        "with rules": lambda: wmma_ops.attention(x, x, x, window=(32, 0), sinks=torch.zeros(2)),
        "functions": lambda: wmma_ops.attention(
            x, x, x, score_mod=functions.SCORE_MOD, mod_operands=(torch.ones(1, 256), torch.ones(2))
        ),
        "packed": lambda: wmma_ops.varlen_attention(packed, packed, packed, ends, ends, 156, 156),
        "pages": lambda: wmma_ops.varlen_attention(
            packed, narrow, narrow, ends, None, 156, None, block_table=table, seqused_k=ends.diff()
        ),
        "of 8 bits": lambda: wmma_ops.scaled_attention(*[x.to(torch.float8_e4m3fn)] * 3),
        "gradients": lambda: torch.ops.wmma._attention_backward(x, x, x, x, x, x[..., 0].float()),
    }
    for name, call in calls.items():
        launches = explained(name, call, target).launches
        assert launches, name
        for launch in launches:
            (taken,) = re.findall(r"\.b8 \w+\[(\d+)\]", re.search(r"\.entry \w+\(([^)]*)\)", launch.assembly)[1])
            assert int(taken) <= len(launch.arguments), (name, launch.kernel)


def test_two_products_that_are_no_single_kernel_are_steps(planner):
    a = h(16, 16).float()
    plan = explain("gemm_gemm", a, a, a, gate=a)
    asked, *steps = plan.steps
    assert asked.launches == ()
    assert [list(s.launches[0].tensors) for s in steps] == [["a", "b0", "out", "gate"], ["d0", "b1", "out"]]
    assert [s.problem.gate for s in steps] == [True, False]


def test_two_products_in_one_kernel_are_one_step(planner):
    a = h(16, 16)
    plan = explain("gemm_gemm", a, a, a, gate=a)
    ((launch,),) = (step.launches for step in plan.steps)
    assert list(launch.tensors) == ["a", "b0", "gate", "b1", "out"]


@pytest.mark.parametrize(
    ("op", "arguments", "target", "text"),
    [
        ("matmull", (h(4, 4), h(4, 4)), TARGET, r"op is 'matmull' \(did you mean 'matmul'\?\); takes one of matmul"),
        (
            "attention",
            (h(1, 4, 600),) * 3,
            TARGET,
            "q has shape .*takes a head size of up to 512 on a GPU .on the CPU any",
        ),
        ("matmul", (h(4, 4), h(4, 4)), None, r"explain: the tensors are on the cpu; pass target="),
        ("matmul", (h(4, 4), h(4, 4)), "gfx9420", "no target 'gfx9420' is known"),
        ("matmul", (h(4, 4), h(5, 4)), TARGET, r"wmma\.matmul: b has shape"),
        ("matmul", (torch.zeros(4, 4, device="meta"),) * 2, TARGET, "explain: the tensors are on meta; takes"),
    ],
)
def test_explain_refuses(op, arguments, target, text):
    with pytest.raises(ValueError, match=text):
        wmma_ops.explain(op, *arguments, target=target)


def test_explains_default_target_is_the_emulated_one(planner):
    with wmma_ops.emulate("gfx1100") as emulation:
        assert wmma_ops.explain("matmul", h(4, 4), h(4, 4)).target == "gfx1100"
    assert emulation.launches == []


def test_warmup_compiles_and_writes_nothing(planner, monkeypatch):
    compiled = []
    monkeypatch.setattr(jit, "compile", lambda *a, _=jit.compile, **k: compiled.append(a) or _(*a, **k))
    input, a = torch.ones(4, 4), torch.ones(4, 4)
    wmma_ops.warmup("addmm_", input, a, a)  # on the cpu by aten calls: nothing to do
    assert not compiled
    with wmma_ops.emulate(TARGET) as emulation:
        wmma_ops.warmup("addmm_", input, a, a)
        assert len(compiled) == 1
        assert torch.equal(input, a)
        assert input._version == 0
        assert emulation.launches == []
        wmma_ops.addmm_(input, a, a)
        assert len(compiled) == 1
        assert len(emulation.launches) == 1


# --------------------------------------------------------------------------------------------------------------- errors


def _raises(monkeypatch, error):
    def plan(problem, target):
        raise error

    monkeypatch.setattr(gemm, "plan", plan)
    torch.ops.wmma._forget_plans()


def test_a_planners_error_arrives(monkeypatch):
    a = h(4, 4)
    _raises(monkeypatch, ConfigError("K is too odd — by far"))
    with wmma_ops.emulate(TARGET):
        with pytest.raises(ConfigError, match=r"^wmma\.matmul: K is too odd — by far$"):
            wmma_ops.matmul(a, a)
        with pytest.raises(RuntimeError, match=r"^wmma\.linear: K is too odd — by far \[ConfigError\]"):
            torch.ops.wmma.linear(a, a)
    monkeypatch.undo()
    with wmma_ops.emulate(TARGET):
        wmma_ops.matmul(a, a)  # the failure was not remembered


def test_errors_of_every_kind_arrive(monkeypatch):
    a = h(4, 4)
    compile_error = jit.CompileError("no\n", target="gfx942", compiler="clang 22", log="a.hip:1: bad\nand worse")
    kinds = [compile_error, emulator.Race("two waves"), emulator.Trap("x"), CaptureError("c"), KeyboardInterrupt("k")]
    for error in kinds:
        _raises(monkeypatch, error)
        with wmma_ops.emulate(TARGET), pytest.raises(type(error)) as caught:
            wmma_ops.matmul(a, a)
        assert type(caught.value) is type(error)
        assert str(error).strip() in str(caught.value)
    _raises(monkeypatch, compile_error)
    with wmma_ops.emulate(TARGET), pytest.raises(jit.CompileError) as caught:
        wmma_ops.matmul(a, a)
    assert (caught.value.target, caught.value.compiler) == ("gfx942", "clang")
    assert "and worse" in caught.value.log
    _raises(monkeypatch, KeyError("lost"))
    with wmma_ops.emulate(TARGET), pytest.raises(RuntimeError, match=r"report it:[\s\S]*test_launch\.py[\s\S]*lost"):
        wmma_ops.matmul(a, a)


def test_a_kernel_that_does_not_fit_is_refused(monkeypatch):
    launch = KernelLaunch("nothing", NOTHING, (1, 1), 64, 1 << 20)
    monkeypatch.setattr(gemm, "plan", lambda p, t: Plan("", "", (launch,), 0, (1, p.k, 1, 1)))
    torch.ops.wmma._forget_plans()
    with wmma_ops.emulate(TARGET), pytest.raises(ConfigError, match=r"64 threads and 1048576 bytes .* gfx942 has"):
        wmma_ops.matmul(h(4, 4), h(4, 4))


BROKEN = """
#include <wmma/grid.hpp>
#include <wmma/tile/arguments.hpp>
extern "C" __global__ void broken(wmma::GemmArguments g) {
  static_cast<float*>(const_cast<void*>(g.d.data))[g.m * g.n] = 0;
}
"""


def test_what_the_emulator_finds_arrives(monkeypatch):
    launch = KernelLaunch("broken", BROKEN, (1, 1), 64, 0)
    monkeypatch.setattr(gemm, "plan", lambda p, t: Plan("", "", (launch,), 0, (1, p.k, 1, 1)))
    torch.ops.wmma._forget_plans()
    a = torch.zeros(4, 4)
    found = r"wmma\.linear: broken on gfx942: planned\.hip:\d+.*the nearest is (out|weight|x)"
    with wmma_ops.emulate(TARGET), pytest.raises(emulator.OutOfBounds, match=found):
        wmma_ops.linear(a, a.clone())
    torch.ops.wmma._forget_plans()


def test_a_miss_during_capture_names_warmup(planner, monkeypatch):
    monkeypatch.setattr(driver, "capturing", lambda device: True)
    fields = dict.fromkeys(GemmProblem.__dataclass_fields__, 0)
    answer = callbacks._plan([0, *fields.values()])
    assert answer[0] == -1
    assert "wmma_ops.warmup" in bytes(answer[1:]).decode()
    assert bytes(answer[1:]).decode().endswith("[CaptureError]")


def test_unknown_targets_are_refused():
    for name in ("gfx9420", "sm_90a", "gfx1250"):
        with pytest.raises(ValueError, match=r"closest names|not emulated"), wmma_ops.emulate(name):
            pass
    assert torch.ops.wmma._mode(False) == 0


def test_a_card_is_a_target_wherever_one_is_taken(tmp_path):
    told: list[str] = []
    a = torch.ones(16, 16).half()
    with wmma_ops.emulate("RX 9070 XT") as emulation:
        assert (wmma_ops.matmul(a, a) == 16).all()
    assert (emulation.target, len(emulation.launches)) == ("gfx1201", 1)
    with wmma_ops.emulate("MI300X:xnack-") as emulation:
        assert emulation.target == "gfx942:xnack-"
    assert wmma_ops.explain("matmul", a, a, target="NVIDIA H100 80GB HBM3").target == "sm_90a"
    assert layout("9070 XT", "A") is layout("gfx1201", "A")
    (built,) = building.build([lambda: wmma_ops.matmul(a, a)], ["RX 9070 XT"], tmp_path, lambda name: told.append(name))
    assert (built.target, built.objects, told) == ("gfx1201", 1, ["gfx1201"])
    kernel = wmma_ops.Kernel(HEAD + 'extern "C" __global__ void none() {}', "none")
    assert kernel.compile("MI300X").target == jit.compile(kernel.source, "MI300X").target == "gfx942"
    assert jit.available("MI300X")
    (tmp_path / "none.co").write_bytes(kernel.compile("gfx942").code)
    assert code_object.read(tmp_path / "none.co", "MI300X").target == "gfx942"
    assert wmma_ops.Kernel.from_code_object(tmp_path / "none.co").compile("MI300X").target == "gfx942"
    assert machine.here("RX 9070 XT", small=True).target == "gfx1201"


def test_a_relative_says_which_emulated_target_stands_for_it():
    with (
        pytest.warns(
            UserWarning, match="^emulate: no test runs on gfx1103; gfx1100 stands for it, with the same"
        ) as told,
        wmma_ops.emulate("780M") as emulation,
    ):
        assert emulation.target == "gfx1103"
    assert told[0].filename == __file__
    with pytest.raises(
        ValueError, match=r"^--target is 780M; gfx1100 stands for it; takes one that is emulated: gfx908"
    ):
        machine.here("780M", small=True)


def test_attention_goes_through_an_uneven_batch():
    """Batch dimensions that do not join are one launch each."""
    q = torch.randn(3, 2, 2, 8, 8).transpose(0, 1)
    with wmma_ops.emulate(TARGET) as emulation:
        out, lse = wmma_ops.attention(q, q, q)
    want, want_lse = wmma_ops.attention(q, q, q)
    assert len(emulation.launches) == 2
    assert torch.allclose(out, want, atol=1e-5)
    assert torch.allclose(lse, want_lse, atol=1e-5)


def test_an_odd_step_between_heads_or_batches_leaves_attention_no_neighbours():
    plain = torch.empty(2, 3, 32, 32, dtype=torch.float16)
    heads, batches = (
        torch.empty(2 * 3200 * 2, dtype=torch.float16).as_strided(plain.shape, strides)
        for strides in ((3200, 1025, 32, 1), (3201, 1024, 32, 1))
    )
    found = wmma_ops.explain("attention", heads, batches, plain, target=TARGET).problem
    assert (found.q_vec, found.k_vec, found.v_vec, found.out_vec) == (1, 1, 8, 8)


def test_attention_without_columns_of_v():
    q = torch.randn(2, 5, 8)
    with wmma_ops.emulate(TARGET):
        out, lse = wmma_ops.attention(q, q, q[..., :0])
    assert out.shape == (2, 5, 0)
    assert torch.allclose(lse, wmma_ops.attention(q, q, q)[1], atol=1e-5)


# ---------------------------------------------------------------------------------------------- threads, modes, memory


def test_every_op_runs_emulated():
    a, c = h(16, 16), torch.zeros(16, 16).half()
    i8, one = torch.ones(16, 16, dtype=torch.int8), torch.ones(())
    calls = [
        lambda: wmma_ops.matmul(a, a[0]),
        lambda: wmma_ops.addmm(c, a, a),
        lambda: wmma_ops.addmm_(c.clone(), a, a),
        lambda: wmma_ops.baddbmm(c, a[None], a[None]),
        lambda: wmma_ops.gemm(a, a, bias=a[0]),
        lambda: wmma_ops.linear(a, a, a[0]),
        lambda: wmma_ops.gemm_gemm(a, a, a),
        lambda: wmma_ops.scaled_mm(i8, i8, one, one),
    ]
    for index, call in enumerate(calls):
        want = call()
        with wmma_ops.emulate("gfx1201") as emulation:
            try:
                got = call()
            except ConfigError as error:
                warnings.warn(f"call {index} has no kernel: {error}", stacklevel=1)
                continue
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
        assert len(emulation.launches) >= 1


@pytest.mark.parametrize("target", [None, "gfx942"], ids=str)
@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, -torch.inf], ids=str)
@pytest.mark.parametrize("causal", ["top_left", "bottom_right"])
def test_keys_that_causal_hides_are_not_seen(causal, garbage, target):
    q, k, v = (torch.randn(1, 2, length, 8) for length in (5, 7, 7))
    want = wmma_ops.attention(q, k, v, is_causal=causal)
    first = 4 if causal == "top_left" else 6  # the first key that the last but one query may not see
    k[:, :, first:] = garbage
    with wmma_ops.emulate(target) if target else contextlib.nullcontext():
        got = wmma_ops.attention(q, k, v, is_causal=causal)
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(x[:, :, :-1], y[:, :, :-1])


@pytest.mark.parametrize("dtype", FP8, ids=str)
def test_scaled_fp8_leaves_its_range_alike_everywhere(dtype):
    """The largest numbers that are kept and the smallest that are not, of each type, and what is no number."""
    edges = torch.tensor([240, 248, 249, 448, 464, 465, 480, 57344, 61440, 61441, 1e9, torch.inf])
    scales = torch.cat([edges, -edges, torch.tensor([torch.nan])]).unsqueeze(-1)
    a, b = torch.ones(len(scales), 1, 1).to(dtype), torch.ones(1, 1).to(dtype)
    want = wmma_ops.gemm(a, b, a_scale=scales, out_dtype=torch.float32)
    with wmma_ops.emulate("gfx942"):
        got = wmma_ops.gemm(a, b, a_scale=scales, out_dtype=torch.float32)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    assert not want.flatten()[scales.isinf().flatten()].isfinite().any()


def test_gradients_run_emulated():
    a, b = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8)
    with wmma_ops.emulate(TARGET) as emulation:
        wmma_ops.matmul(a, b).sum().backward()
    assert len(emulation.launches) >= 2
    torch.testing.assert_close(a.grad, torch.ones(8, 8) @ b.T)


def test_plans_are_kept_by_problem(planner, monkeypatch):
    asked = []
    monkeypatch.setattr(gemm, "plan", lambda p, t, _=gemm.plan: asked.append(p) or _(p, t))
    a = h(16, 16)
    with wmma_ops.emulate(TARGET):
        for _ in range(3):
            wmma_ops.matmul(a, a)
        assert torch.ops.wmma._plan_count() == len(asked) == 1
        wmma_ops.matmul(a, h(16, 17))
        wmma_ops.matmul(a, a, out_dtype=torch.float32)
        wmma_ops.gemm(a, a, activation="relu")
    with wmma_ops.emulate("gfx1100"):
        wmma_ops.matmul(a, a)
    assert torch.ops.wmma._plan_count() == len(asked) == len(set(asked)) == 5
    explain("matmul", a, a)
    assert torch.ops.wmma._plan_count() == 5
    assert len(asked) == 6  # an explanation remembers nothing


def test_eight_threads_at_once():
    pairs = [(h(16, 16 * (1 + i % 3)), h(16 * (1 + i % 3), 16)) for i in range(8)]
    want = [a.float() @ b.float() for a, b in pairs]
    torch.ops.wmma._forget_plans()
    start = threading.Barrier(8)

    def work(i):
        target = ("gfx942", "gfx1100", "gfx1201")[i // 3]
        start.wait()
        for _ in range(3):
            with wmma_ops.emulate(target) as emulation:
                got = wmma_ops.matmul(*pairs[i])
            assert len(emulation.launches) == 1
            torch.testing.assert_close(got.float(), want[i], rtol=1e-2, atol=5e-2)

    at_once(work, [(i,) for i in range(8)])


def test_an_emulation_is_its_threads_own(planner):
    a, seen = torch.ones(4, 4), []
    with wmma_ops.emulate(TARGET) as emulation:
        thread = threading.Thread(target=lambda: seen.append(wmma_ops.matmul(a, a)))
        thread.start()
        thread.join()
        assert emulation.launches == []
        assert torch.equal(seen[0], a @ a)
        with wmma_ops.emulate("gfx1100") as inner:
            wmma_ops.matmul(a, a)
        wmma_ops.matmul(a, a)
        assert (len(inner.launches), len(emulation.launches)) == (1, 1)
    assert torch.equal(wmma_ops.matmul(a, a), a @ a)


def test_an_emulation_ends_with_an_exception():
    a = torch.ones(4, 4)
    with pytest.raises(KeyError), wmma_ops.emulate(TARGET):
        raise KeyError
    assert torch.ops.wmma._mode(False) == 0
    assert torch.equal(wmma_ops.matmul(a, a), a @ a)


def test_no_growth_over_many_calls(planner):
    a, b = h(8, 8), h(8, 8)

    def calls(count):
        with wmma_ops.emulate(TARGET) as emulation:
            for _ in range(count):
                wmma_ops.matmul(a, b)
                emulation.launches.clear()

    calls(200)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    registered = len(launching._emulated)
    calls(2000)
    gc.collect()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2048
    assert len(launching._emulated) == registered


def test_what_is_dropped_while_it_is_asked_for_stays_decoded():
    """Between a thread's look at a kernel and its note of it, another makes room."""
    fill = wmma_ops.Kernel(HEAD + 'extern "C" __global__ void fill(int* x) { x[threadIdx.x] = 7; }', "fill")
    with wmma_ops.emulate(TARGET):
        fill[1, 64](torch.zeros(64, dtype=torch.int32))
    kernel = fill._emulated[TARGET]
    with emulated._guard:
        asks = threading.Thread(target=lambda: kernel.program)
        asks.start()
        time.sleep(0.1)  # until it waits for the guard
        kernel._program = None  # as _make_room does
        del emulated._decoded[id(kernel)]
    asks.join()
    assert emulated._decoded[id(kernel)]._program is not None


def test_what_stays_decoded_is_bounded(monkeypatch):
    """A plan's kernel that others have pushed out is decoded again, to the same results."""
    limit = 1000
    monkeypatch.setattr(emulated, "_KEPT", limit)
    emulated._make_room(limit)  # drops what other tests have used
    assert not list(emulated._decoded.values())
    inputs = [
        torch.randint(-3, 4, (40, k)).to(dtype) for k in (8, 24) for dtype in (torch.half, torch.int8, torch.float64)
    ]
    fill = wmma_ops.Kernel(HEAD + 'extern "C" __global__ void fill(int* x) { x[threadIdx.x] = 7; }', "fill")
    decoded, first = [], []
    with wmma_ops.emulate(TARGET) as active:
        for turn in range(2):
            active.launches.clear()
            for i, a in enumerate(inputs):
                output, x = wmma_ops.matmul(a, a.mT), torch.zeros(64, dtype=torch.int32)
                assert torch.equal(output.double(), a.double() @ a.double().mT)
                fill[1, 64](x)
                assert x.tolist() == [7] * 64
                kernels = list(emulated._decoded.values())
                assert fill._emulated[TARGET] in kernels
                decoded.append(sum(kernel._program.size for kernel in kernels))
                if turn == 0:
                    first.append(kernels[-2])
                assert kernels[-2] is first[i]  # by its number, which the library knows it by
    assert limit / 2 < max(decoded) <= limit
    assert sum(kernel._program is not None for kernel in first) < len(first)
    program = weakref.ref(fill._emulated[TARGET].program)
    del fill, kernels
    gc.collect()
    assert program() is None


def test_the_table_of_plans_is_bounded(planner, monkeypatch):
    """65,536 problems and it starts anew: seen here with a planner that answers at once."""
    one = launching._planned(gemm, GemmProblem(**_any_problem()))
    monkeypatch.setattr(launching, "_planned", lambda planner, problem: one)
    a, row = torch.zeros(2, 1, dtype=torch.int8), torch.zeros(1, 66_000, dtype=torch.int8)
    matmul = torch.ops.wmma_raw.matmul.default
    with wmma_ops.emulate(TARGET), warming.warming():
        for n in range(1, 66_000):
            matmul(a, row.narrow(1, 0, n))
    assert 0 < torch.ops.wmma._plan_count() < 66_000 - 65_000


def _any_problem() -> dict:
    fields = dict.fromkeys(GemmProblem.__dataclass_fields__)
    numbers = {"device": -1 - list(arch.TARGETS).index(TARGET), "k": 1, "m": 1, "n": 1, "batch": 1}
    return fields | {"a": torch.int8, "b": torch.int8, "d": torch.int32} | numbers
