"""From a call to what its kernel is given: the canonical form and the argument struct."""

import random

import pytest
import torch
from arguments import compute, decode
from planned_calls import TARGET, explain, h

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan import GemmProblem
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.runtime import callbacks, tuned


def seen(op, *arguments, **keywords) -> GemmProblem:
    return explain(op, *arguments, **keywords).problem


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
            assert seen("matmul", a, a).precision == number == callbacks._precision()
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
    assert "second   K" in str(plan)
    assert tuned.key_of(plan.problem) != tuned.key_of(plain)
    assert not any(word in tuned.key_of(plain) + gemm.source(plain, *_chosen(plain)) for word in ("a2", "A2", "k2"))


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
            "activation": rng.choice(("none", "relu")),
            "a_activation": rng.choice(("none", "none", "relu")),
        }
        options["beta"] = 1.0 if options["c"] is None else rng.choice((1.0, -2.0, 0.0))
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
