"""From a call to what its kernel is given: the canonical form, the argument struct, plans, modes, errors, threads."""

import contextlib
import gc
import random
import resource
import threading
import warnings

import pytest
import torch
from arguments import compute, decode

import wmma_ops
from wmma_ops import arch, emulator, jit
from wmma_ops.plan import CaptureError, ConfigError, GemmProblem, KernelLaunch, Plan, gemm, launching, problem, tuning
from wmma_ops.types import FP8

TARGET = "gfx942"
KERNEL = """
#include <wmma/grid.hpp>
#include <wmma/tile/gemm_arguments.hpp>
extern "C" __global__ void nothing(wmma::GemmArguments) {}
"""


@pytest.fixture
def planner(monkeypatch):
    """Stands in for the planner, which need not know a problem to see how it arrives: a kernel that does nothing."""

    def plan(problem, target):
        launch = KernelLaunch("nothing", KERNEL, (1, 1), 64, 0)
        return Plan("nothing", "a test", (launch,), 0, (1, problem.k, 1, 1, 1, 0))

    monkeypatch.setattr(gemm, "plan", plan)
    torch.ops.wmma._forget_plans()
    yield
    torch.ops.wmma._forget_plans()


def explain(op, *arguments, **keywords):
    return wmma_ops.explain(op, *arguments, target=TARGET, **keywords)


def seen(op, *arguments, **keywords) -> GemmProblem:
    return explain(op, *arguments, **keywords).problem


def h(*shape):
    return torch.randn(shape).half()


# ------------------------------------------------------------------------------------------------- the canonical form


def strided(rows, columns, row_stride, column_stride, offset=0, dtype=torch.float16):
    reach = (rows - 1) * row_stride + (columns - 1) * column_stride + 1
    return torch.zeros(reach + offset, dtype=dtype)[offset:].as_strided((rows, columns), (row_stride, column_stride))


A_LAYOUTS = [
    # rows, columns, row stride, column stride, offset -> order, vec
    ((32, 64, 64, 1, 0), ("k", 8)),
    ((32, 64, 68, 1, 0), ("k", 4)),
    ((32, 64, 65, 1, 0), ("k", 1)),
    ((32, 64, 72, 1, 2), ("k", 2)),
    ((32, 60, 64, 1, 0), ("k", 4)),
    ((32, 64, 1, 32, 0), ("m", 8)),
    ((32, 64, 1, 36, 4), ("m", 4)),
    ((32, 64, 128, 2, 0), ("k", 1)),
    ((32, 64, 0, 1, 0), ("k", 8)),
    ((32, 64, 1, 0, 0), ("m", 8)),
    ((32, 64, 0, 0, 0), ("k", 1)),
    ((1, 64, 999, 1, 0), ("k", 8)),  # the stride of one row does not matter
    ((32, 1, 1, 999, 0), ("m", 8)),
    ((32, 1, 1, 1, 1), ("k", 1)),
]


@pytest.mark.parametrize(("layout", "expected"), A_LAYOUTS, ids=str)
def test_orders_and_neighbours_of_a(planner, layout, expected):
    a = strided(*layout)
    found = seen("matmul", a, h(a.shape[1], 8))
    assert (found.a_order, found.a_vec) == expected


@pytest.mark.parametrize(("layout", "expected"), A_LAYOUTS, ids=str)
def test_orders_and_neighbours_of_b(planner, layout, expected):
    """B as A's mirror: its columns lie as A's rows."""
    b = strided(*layout).T
    found = seen("matmul", h(8, b.shape[0]), b)
    order = {"k": "k", "m": "n"}[expected[0]]
    if layout[3] != 1 and layout[2] != 1:
        order = "n"  # neither dimension has neighbours
    assert (found.b_order, found.b_vec) == (order, expected[1])


@pytest.mark.parametrize(
    ("dtype", "vec"), [("float64", 2), ("float32", 4), ("bfloat16", 8), ("int8", 16), ("float8_e5m2", 16)]
)
def test_neighbours_are_up_to_16_bytes(planner, dtype, vec):
    a = torch.zeros(64, 64).to(getattr(torch, dtype))
    found = seen("matmul", a, a, out_dtype=None)
    assert (found.a_vec, found.b_vec, found.a_order, found.b_order) == (vec, vec, "k", "n")
    assert found.d_vec == 16 // found.d.itemsize


def test_neighbours_of_the_epilogues_matrices(planner):
    a = h(32, 32)
    c, multiply = torch.zeros(32, 40)[:, :32], torch.zeros(32, 32, dtype=torch.bfloat16)[:, ::1]
    found = seen("gemm", a, a, c=c, multiply=multiply)
    assert (found.c, found.c_vec, found.multiply, found.multiply_vec) == (torch.float32, 4, torch.bfloat16, 8)
    found = seen("gemm", a, a, c=torch.zeros(32, 1), multiply=torch.zeros(32))
    assert (found.c_vec, found.multiply_vec) == (1, 4)
    assert seen("gemm", a, a, c=c, beta=0).c is None


def test_an_odd_step_of_the_batch_leaves_no_neighbours(planner):
    a = torch.zeros(3 * 1025, dtype=torch.float16).as_strided((3, 32, 32), (1025, 32, 1))
    found = seen("matmul", a, h(3, 32, 32))
    assert (found.a_vec, found.b_vec, found.batch, found.batch_dims) == (1, 8, 3, 1)


def test_wide(planner):
    b = h(16, 8)
    near, far = (torch.empty(4 * step, dtype=torch.float16).as_strided((4, 16), (step, 1)) for step in (2**20, 2**21))
    assert not seen("matmul", near, b).wide
    assert seen("matmul", far, b).wide
    assert seen("matmul", b.T[:4, :4], far[:4].T[:4]).wide


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((2, 3, 5, 16), (16, 8), (30, 0, 1)),  # batch dims, batch: all rows of one product
        ((2, 3, 5, 16), (2, 3, 16, 8), (5, 1, 6)),
        ((2, 1, 5, 16), (3, 16, 8), (5, 2, 6)),
        ((1, 4, 5, 16), (1, 4, 16, 8), (5, 1, 4)),
        ((1, 1, 5, 16), (1, 16, 8), (5, 0, 1)),
        ((7, 1, 16), (16, 8), (7, 0, 1)),
        ((7, 1, 16), (7, 16, 8), (1, 1, 7)),
        ((3, 5, 16), (1, 16, 8), (15, 0, 1)),
        ((5, 16), (3, 16, 8), (5, 1, 3)),
    ],
)
def test_batches_are_joined(planner, a, b, expected):
    found = seen("matmul", h(*a), h(*b))
    assert (found.m, found.batch_dims, found.batch) == expected


def test_batches_are_joined_only_where_all_operands_allow(planner):
    x, weight = h(4, 5, 16), h(8, 16)
    assert seen("linear", x, weight, h(8), residual=h(4, 5, 8)).m == 20
    assert seen("linear", x, weight, residual=h(4, 1, 8)).m == 5
    assert seen("linear", x[:, :4], weight).m == 4
    assert seen("gemm", x, weight.T, row_scale=torch.ones(4, 5)).m == 20
    assert seen("gemm", x, weight.T, row_scale=torch.ones(5)).m == 5
    assert seen("gemm", x, weight.T, row_scale=torch.ones(1)).m == 20
    assert seen("gemm", x, weight.T, bias=torch.ones(4, 8)).m == 5
    assert seen("gemm", x[:, :1], weight.T, bias=torch.ones(4, 8)).m == 1
    assert seen("gemm", x, weight.T, alpha=0, c=torch.ones(4, 5, 8)).m == 20


def test_columns_are_written_by_the_transposed_product(planner):
    input, a, b = torch.zeros(24, 16).T, torch.randn(16, 32), torch.randn(32, 24)
    plan = explain("addmm_", input, a, b)
    assert (plan.problem.m, plan.problem.n, plan.problem.d_vec, plan.problem.c_vec) == (24, 16, 4, 4)
    assert (plan.problem.a_order, plan.problem.b_order) == ("m", "k")
    g = decode(plan.launches[0].arguments)
    assert (g.a.data, g.b.data, g.c.data, g.d.data) == (b.data_ptr(), a.data_ptr(), input.data_ptr(), input.data_ptr())
    assert seen("addmm_", torch.zeros(16, 24), a, b).m == 16


def test_precision_is_torchs_and_of_float32_alone(planner):
    before = torch.get_float32_matmul_precision()
    a = torch.zeros(4, 4)
    try:
        for number, name in enumerate(("highest", "high", "medium")):
            torch.set_float32_matmul_precision(name)
            assert seen("matmul", a, a).precision == number == launching._precision()
            assert seen("matmul", a.half(), a.half()).precision == 0
    finally:
        torch.set_float32_matmul_precision(before)


def test_alpha_0_reads_neither_the_operands_nor_the_scales(planner):
    a = torch.randn(8, 8)
    plan = explain("gemm", a, a, alpha=0, row_scale=a[0], a_scale=a[0], a_activation="relu", bias=a[0])
    p = plan.problem
    assert (p.k, p.row_scale, p.a_scale, p.a_activation, p.bias) == (0, None, None, 0, torch.float32)
    assert decode(plan.launches[0].arguments).alpha == 1


def test_a_pair_with_nothing_to_sum_up_is_not_there(planner):
    a, a2, none, b0 = torch.randn(8, 6), torch.randn(8, 4), torch.randn(8, 0), torch.randn(0, 8)
    plain = explain("gemm", a, a.T).problem
    assert explain("gemm", a, a.T, a2=none, b2=b0).problem == plain
    assert explain("gemm", none, b0, a_scale=a[0, :0], a_activation="relu", a2=a, b2=a.T).problem == plain
    assert explain("gemm", a, a.T, a2=a2, b2=a2.T, alpha=0).problem == explain("gemm", a, a.T, alpha=0).problem
    plan = explain("gemm", a, a.T, a2=a2, b2=a2.T)
    assert (plan.problem.k2, plan.problem.a2_order, plan.problem.b2_order, plan.problem.a2_vec) == (4, "k", "k", 4)
    assert "second pair" in str(plan)
    assert tuning.key_of(plan.problem) != tuning.key_of(plain)
    assert not any(word in tuning.key_of(plain) + gemm.source(plain, *_chosen(plain)) for word in ("a2", "A2", "k2"))


def _chosen(problem):
    return gemm.choose(problem, arch.target(TARGET))[0], arch.target(TARGET)


def test_an_empty_result_launches_nothing(planner):
    plan = explain("matmul", torch.zeros(0, 4), torch.zeros(4, 3))
    assert plan.output.shape == (0, 3)
    assert plan.steps == plan.launches == ()
    assert plan.problem is None
    assert "empty" in str(plan)


# ------------------------------------------------------------------------------------------------------ the arguments


def test_the_structs_fields(planner):
    a, b = torch.zeros(2, 3, 6, 10)[:, :, :5, :8], torch.zeros(2, 1, 8, 7)
    c, bias, multiply = torch.zeros(5, 1), torch.zeros(2, 1, 7), torch.zeros(7)
    scale = torch.zeros(3, 5, 2)[..., 0]
    options = {"alpha": 0.5, "beta": -2.0, "c": c, "bias": bias, "multiply": multiply, "row_scale": scale}
    plan = explain("gemm", a, b, col_scale=torch.ones(()), a_scale=torch.ones(8), **options)
    g = decode(plan.launches[0].arguments)
    assert (g.m, g.n, g.k, g.alpha, g.beta, g.batch) == (5, 7, 8, 0.5, -2.0, 6)
    assert list(g.batch_sizes) == [1, 1, 2, 3]
    assert (g.k_split, g.splits, g.tiles_m, g.tiles_n, g.whole, g.partial) == (8, 1, 1, 1, 1, 0)

    def strides(x):
        return x.row_stride, x.column_stride, list(x.batch_strides)

    assert strides(g.a) == (10, 1, [0, 0, 180, 60])
    assert strides(g.b) == (7, 1, [0, 0, 56, 0])
    assert strides(g.c) == (1, 0, [0, 0, 0, 0])
    assert strides(g.d) == (7, 1, [0, 0, 105, 35])
    assert strides(g.bias) == (0, 1, [0, 0, 7, 0])
    assert strides(g.row_scale) == (2, 0, [0, 0, 0, 10])
    assert strides(g.col_scale) == (0, 0, [0, 0, 0, 0])
    assert strides(g.a_scale) == (0, 1, [0, 0, 0, 0])
    assert strides(g.multiply) == (0, 1, [0, 0, 0, 0])
    assert (g.a.data, g.bias.data, g.d.data) == (a.data_ptr(), bias.data_ptr(), plan.output.data_ptr())


def test_the_codes_of_element_types():
    """Once in C++, once in Python, once in the kernels' header."""
    import re
    from pathlib import Path

    header = (Path(__file__).parents[1] / "kernels/wmma/tile/gemm_arguments.hpp").read_text()
    codes = re.findall(r"^  k(\w+) = (\d+),", header, re.M)
    names = [str(x).removeprefix("torch.").replace("_", "").replace("e4m3fn", "e4m3") for x in problem.ELEMENTS]
    assert [name.lower() for name, _ in codes] == [n.replace("e4m3uz", "e4m3fnuz") for n in names]
    assert [int(code) for _, code in codes] == list(range(len(codes)))


def _dims(rng: random.Random, sizes):
    """A tensor of float32 with these sizes whose strides are anything that reads may meet."""
    order = list(range(len(sizes)))
    if rng.random() < 0.4:
        rng.shuffle(order)
    strides, step = [0] * len(sizes), rng.choice((1, 1, 1, 2, 3))
    for at in reversed(order):
        strides[at] = 0 if rng.random() < 0.1 else step
        step *= sizes[at] + (rng.choice((0, 0, 0, 1, 3)) if sizes[at] else 1)
    offset = rng.choice((0, 0, 1, 4))
    return torch.randn(max(step, 1) + offset + 8)[offset:].as_strided(sizes, strides)


def _broadcast(rng: random.Random, sizes):
    sizes = [size if rng.random() < 0.7 else 1 for size in sizes]
    return sizes[rng.randrange(len(sizes)) if rng.random() < 0.3 else 0 :]


@pytest.mark.parametrize("seed", range(6))
def test_the_struct_says_what_the_call_means(planner, seed):
    """Random shapes, strides, broadcasts and companions: what the struct asks for, computed from it alone, is what the op
    gives on the CPU."""
    rng = random.Random(seed)
    for _ in range(60):
        torch.manual_seed(rng.randrange(1 << 30))
        m, n, k = (rng.choice((1, 2, 3, 4, 8)) for _ in range(3))
        batch = [rng.choice((1, 2, 2, 3)) for _ in range(rng.choice((0, 0, 1, 2, 3, 6)))]
        a, b = _dims(rng, [*_broadcast(rng, batch or [1]), m, k]), _dims(rng, [*_broadcast(rng, batch or [1]), k, n])
        whole, pair = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), {}
        if rng.random() < 0.4:
            k2 = rng.choice((0, 1, 2, 4, 8))
            pair["a2"] = _dims(rng, [*_broadcast(rng, batch or [1]), m, k2])
            pair["b2"] = _dims(rng, [*_broadcast(rng, batch or [1]), k2, n])
            whole = torch.broadcast_shapes(whole, *(x.shape[:-2] for x in pair.values()))

        def vector(length, or_one, whole=whole):
            if rng.random() < 0.6:
                return None
            if or_one and rng.random() < 0.3:
                return _dims(rng, rng.choice(([], [1])))
            leading = _broadcast(rng, list(whole)) if whole and rng.random() < 0.5 else []
            return _dims(rng, [*leading, length])

        def matrix(whole=whole, m=m, n=n):
            return None if rng.random() < 0.5 else _dims(rng, _broadcast(rng, [*whole, m, n]))

        options = {
            "c": matrix(),
            "multiply": matrix(),
            "bias": vector(n, False),
            "row_scale": vector(m, True),
            "col_scale": vector(n, True),
            "a_scale": vector(k, True),
            **pair,
            "alpha": rng.choice((1.0, 0.5, 0.0)),
            "beta": rng.choice((1.0, -2.0, 0.0)),
            "activation": rng.choice(("none", "relu")),
            "a_activation": rng.choice(("none", "none", "relu")),
        }
        plan = explain("gemm", a, b, **options)
        for launch in plan.launches:
            compute(launch.arguments, plan.problem)
        torch.testing.assert_close(plan.output, wmma_ops.gemm(a, b, **options), rtol=1e-4, atol=1e-4)

        input, right = _dims(rng, [m, n]).clone(memory_format=torch.preserve_format), b[(0,) * (b.dim() - 2)]
        left, want = a[(0,) * (a.dim() - 2)], input.clone()
        plan = explain("addmm_", input, left, right, beta=0.5)
        torch.testing.assert_close(input, want, rtol=0, atol=0)  # explained, not done
        for launch in plan.launches:
            compute(launch.arguments, plan.problem)
        torch.testing.assert_close(input, want * 0.5 + left @ right, rtol=1e-4, atol=1e-4)


def test_more_dimensions_than_a_kernel_takes(planner):
    """Every other index of six dimensions, none of which can be joined: the host goes through the two outermost."""
    a = torch.randn([4] * 6 + [3, 5])[(slice(None, None, 2),) * 6]
    b = torch.randn(2, 1, 2, 1, 2, 1, 5, 4)
    plan = explain("matmul", a, b)
    assert (plan.problem.batch_dims, plan.problem.batch, len(plan.launches), len(plan.steps)) == (4, 16, 4, 1)
    for launch in plan.launches:
        compute(launch.arguments, plan.problem)
    torch.testing.assert_close(plan.output, a @ b)
    assert "more" in str(plan)


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


def test_explain_and_execute_agree():
    """What explain returns can be run by whoever runs code objects: here by the emulator, and it is the product."""
    a, b = h(40, 32), h(32, 24)
    plan = wmma_ops.explain("matmul", a, b, target=TARGET)
    run = emulator.Emulation(TARGET)
    for launch in plan.launches:
        kernel = launching.EmulatedKernel(launch.code, launch.kernel)
        kernel.run(run, launch.grid, (launch.block, 1, 1), launch.arguments, launch.tensors, launch.shared_bytes)
    with wmma_ops.emulate(TARGET):
        assert torch.equal(plan.output, wmma_ops.matmul(a, b))


def test_explain_for_nvidia_on_the_cpu():
    plan = wmma_ops.explain("matmul", h(64, 64), h(64, 64), target="sm_90a")
    assert ".visible .entry" in plan.launches[0].assembly


def test_two_products_that_are_no_single_kernel_are_steps(planner):
    a = h(16, 16).float()
    plan = explain("gemm_gemm", a, a, a, gate=a)
    asked, *steps = plan.steps
    assert asked.launches == ()
    assert [list(s.launches[0].tensors)[:2] for s in steps] == [["a", "gate"], ["a", "b0"], ["d0", "b1"]]
    assert steps[1].problem.multiply == torch.float32


def test_two_products_in_one_kernel_are_one_step(planner):
    a = h(16, 16)
    plan = explain("gemm_gemm", a, a, a, gate=a)
    ((launch,),) = (step.launches for step in plan.steps)
    assert list(launch.tensors) == ["a", "b0", "gate", "b1", "out"]


@pytest.mark.parametrize(
    ("op", "arguments", "target", "text"),
    [
        ("matmull", (h(4, 4), h(4, 4)), TARGET, "op is 'matmull'; takes one of matmul"),
        ("attention", (h(1, 4, 600),) * 3, TARGET, "q has shape .*takes a head size of up to 512"),
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
    launch = KernelLaunch("nothing", KERNEL, (1, 1), 64, 1 << 20)
    monkeypatch.setattr(gemm, "plan", lambda p, t: Plan("", "", (launch,), 0, (1, p.k, 1, 1)))
    torch.ops.wmma._forget_plans()
    with wmma_ops.emulate(TARGET), pytest.raises(ConfigError, match=r"64 threads and 1048576 bytes .* gfx942 has"):
        wmma_ops.matmul(h(4, 4), h(4, 4))


BROKEN = """
#include <wmma/grid.hpp>
#include <wmma/tile/gemm_arguments.hpp>
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
    monkeypatch.setattr(launching, "_capturing", lambda device: True)
    fields = dict.fromkeys(GemmProblem.__dataclass_fields__, 0)
    answer = launching._plan([0, *fields.values()])
    assert answer[0] == -1
    assert "wmma_ops.warmup" in bytes(answer[1:]).decode()
    assert bytes(answer[1:]).decode().endswith("[CaptureError]")


def test_unknown_targets_are_refused():
    for name in ("gfx9420", "sm_90a", "gfx1250"):
        with pytest.raises(ValueError, match=r"closest names|not emulated"), wmma_ops.emulate(name):
            pass
    assert torch.ops.wmma._mode(False) == 0


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
    failures, start = [], threading.Barrier(8)

    def work(i):
        try:
            target = ("gfx942", "gfx1100", "gfx1201")[i // 3]
            start.wait()
            for _ in range(3):
                with wmma_ops.emulate(target) as emulation:
                    got = wmma_ops.matmul(*pairs[i])
                assert len(emulation.launches) == 1
                torch.testing.assert_close(got.float(), want[i], rtol=1e-2, atol=5e-2)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


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


def test_the_table_of_plans_is_bounded(planner, monkeypatch):
    """65,536 problems and it starts anew: seen here with a planner that answers at once."""
    one = launching._planned(gemm, GemmProblem(**_any_problem()))
    monkeypatch.setattr(launching, "_planned", lambda planner, problem: one)
    x = torch.zeros(2, 2, 70_000, dtype=torch.int8)
    with wmma_ops.emulate(TARGET), launching.warming():
        for n in range(1, 66_000):
            torch.ops.wmma_raw.matmul(x[0, :, :1], x[1, :1, :n])
    assert 0 < torch.ops.wmma._plan_count() < 66_000 - 65_000


def _any_problem() -> dict:
    fields = dict.fromkeys(GemmProblem.__dataclass_fields__)
    numbers = {"place": -1 - list(arch.TARGETS).index(TARGET), "k": 1, "m": 1, "n": 1, "batch": 1}
    return fields | {"a": torch.int8, "b": torch.int8, "d": torch.int32} | numbers
