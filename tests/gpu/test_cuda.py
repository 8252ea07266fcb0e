"""Our kernels on an NVIDIA or AMD GPU: graphs, streams, threads, devices, gradients, and results past 2³¹ elements."""

import random

import pytest
import torch
import torch.nn.functional as F
from at_once import at_once
from configurations import KINDS, WITHOUT_WARPGROUPS
from on_gpu import close, matrix

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.plan.gemm_gemm import planner as gemm_gemm
from wmma_ops.runtime import driver, launching, tuned

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_a_captured_graph_replays_on_new_values():
    a, b, c = matrix(128, 256), matrix(256, 96), matrix(128, 96)
    wmma_ops.warmup("addmm", c, a, b, alpha=0.5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = wmma_ops.addmm(c, a, b, alpha=0.5)
    for seed in range(3):
        torch.manual_seed(seed)
        a.copy_(matrix(128, 256))
        graph.replay()
        close(out, torch.addmm(c.double(), a.double(), b.double(), alpha=0.5))


def test_split_k_replays_in_a_graph():
    a, b = matrix(3, 8192, dtype=torch.float32), matrix(8192, 5, dtype=torch.float32)
    wmma_ops.matmul(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = wmma_ops.matmul(a, b)
    a.normal_()
    graph.replay()
    close(out, a.double() @ b.double(), 1e-5)


def test_a_miss_during_capture_names_warmup():
    a = matrix(37, 41)
    with pytest.raises(wmma_ops.plan.CaptureError, match="warmup"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        wmma_ops.matmul(a, a.t())
    torch.cuda.synchronize()
    close(wmma_ops.matmul(a, a.t()), a.double() @ a.double().t())


def test_two_streams_do_not_wait_for_each_other_nor_mix():
    a, b = matrix(512, 512), matrix(512, 512)
    want = a.double() @ b.double()
    streams = [torch.cuda.Stream() for _ in range(2)]
    outs = []
    torch.cuda.synchronize()
    for turn in range(20):
        with torch.cuda.stream(streams[turn % 2]):
            outs.append(wmma_ops.matmul(a, b))
    torch.cuda.synchronize()
    for out in outs:
        assert torch.equal(out, outs[0])
    close(outs[0], want)


def test_the_current_stream_is_used():
    stream = torch.cuda.Stream()
    a = matrix(2048, 2048)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late = matrix(2048, 2048)
        out = wmma_ops.matmul(a, late)
    stream.synchronize()
    close(out, a.double() @ late.double())


def test_eight_threads_at_once():
    def work(m, n, k):
        a, b = matrix(m, k), matrix(k, n)
        for _ in range(50):
            out = wmma_ops.matmul(a, b)
        close(out, a.double() @ b.double())

    at_once(work, [(16 * i + 16, 24 * i + 8, 40) for i in range(8)])


MANY_TILES = ("persistent", "a split last round", "a width of its own", "three warpgroups")  # what these are for
DTYPES = [torch.bfloat16, torch.float16, torch.int8, torch.float8_e4m3fn]


def kinds(*more):
    """Of configurations, with each type that has them."""
    every = [(what, dtype) for what in (*more, *KINDS) for dtype in DTYPES]
    three_of_fp8 = ("three warpgroups", torch.float8_e4m3fn)  # whose sums are two
    return pytest.mark.parametrize(("what", "dtype"), [x for x in every if x != three_of_fp8], ids=str)


@kinds("plain", "shared B", "shared A", "both")
def test_warpgroups_in_any_configuration(what, dtype):
    """The planner takes them for large products; here they meet edges, batches and matrices that the batch repeats."""
    target = arch.target(driver.target_of(0))
    if target.name != "sm_90a":
        pytest.skip(f"{target.name} has no warpgroups")
    chosen = {
        "plain": lambda x: x.order.neighbours == x.order.parts == 1 and not x.order.persistent,
        "shared B": lambda x: x.order.share > 1 == x.order.share_a,
        "shared A": lambda x: x.order.share_a > 1 == x.order.share,
        "both": lambda x: x.order.share > 1 < x.order.share_a,
        **KINDS,
    }[what]
    many_tiles = what in MANY_TILES
    long = 1056 // dtype.itemsize
    sizes = ((2000, 1312, long),) if many_tiles else ((200, 264, 1040), (131, 96, 1072), (131, 96, 16))
    for m, n, k in sizes:
        for batch in ((), (3,), (2, 3)):
            a = torch.randn(*batch[:1], *([1] * (len(batch) > 1)), m, k, device="cuda").mul(4).to(dtype)
            b = torch.randn(*batch, n, k, device="cuda").mul(4).to(dtype).mT
            b = b if dtype.itemsize == 1 or what == "a width of its own" else b.contiguous()
            a = a[..., :1, :].expand_as(a) if batch == (3,) else a  # a row that is repeated
            # Integers' sums, too, leave by the copy engine where they are rounded to 16 bits.
            out_dtype = torch.bfloat16 if dtype == torch.int8 and not batch else None

            def call(a=a, b=b, out_dtype=out_dtype):
                return wmma_ops.matmul(a, b, out_dtype=out_dtype)

            (problem,) = launching.problems(call, target)
            found = [x for x in gemm.ranked(problem, target) if x.loop == "warpgroup" and chosen(x)]
            assert found or batch or k == 16, "no such configuration"
            want = a.double() @ b.double()
            for config in found[:: max(1, len(found) // 4)]:
                with tuned.forced(problem, config):
                    planned = launching.plan_for(problem, target).config  # it may need fewer splits
                    assert planned.loop == "warpgroup"
                    assert chosen(planned)
                    close(call(), want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("m", [1, 8, 13, 16])
def test_steps_straight_to_registers_in_any_configuration(m, dtype):
    """Ragged sizes, either way that B's memory runs, batches; what is beyond an edge may be anything."""
    target = arch.target(driver.target_of(0))
    for n, k, across, batch in (
        (264, 1040, True, ()), (1000, 2064, False, (3,)), (72, 16, True, (2,)), (48, 4112, False, ()), (40, 336, True, ()),
    ):  # fmt: skip
        a = torch.randn(*batch, m, k, device="cuda").mul(4).to(dtype)
        b = torch.randn(*batch, n, k, device="cuda").mul(4).to(dtype).mT
        b = b.contiguous() if across and dtype.itemsize == 2 else b
        bias = matrix(n, dtype=dtype if dtype.itemsize == 2 else torch.float32)

        def call(a=a, b=b, bias=bias):
            return wmma_ops.gemm(a, b, bias=bias, alpha=0.5, out_dtype=torch.float32)

        (problem,) = launching.problems(call, target)
        found = [x for x in gemm.ranked(problem, target) if x.loop == "straight"]
        assert found
        want = 0.5 * (a.double() @ b.double()) + bias.double()
        for config in random.Random(m + n).sample(found, min(8, len(found))):
            with tuned.forced(problem, config):
                assert launching.plan_for(problem, target).config.loop == "straight"
                got = call()
                close(got, want)
                assert torch.equal(got, call())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_what_stands_beside_a_product_by_warpgroups(seed, dtype):
    """Of 16 bits it goes the way that the result goes, otherwise another; rows and batches may repeat it."""
    target, draw = arch.target(driver.target_of(0)), random.Random(seed)
    if target.name != "sm_90a":
        pytest.skip(f"{target.name} has no warpgroups")
    m, n, k = draw.choice([131, 200, 1300]), draw.choice([72, 264, 1312]), draw.choice([48, 1040])
    batch, out = draw.choice([(), (), (3,), (2, 3)]), draw.choice([torch.bfloat16, torch.float16])
    out = dtype if dtype.itemsize == 2 else out
    a = torch.randn(*batch, m, k, device="cuda").mul(4).to(dtype)
    b = torch.randn(n, k, device="cuda").mul(4).to(dtype).mT
    kind = draw.choice([out, torch.float32])

    def beside(*sizes):
        if draw.random() < 0.3:
            return None
        rows = matrix(*sizes[:-1], sizes[-1] + 8, dtype=kind)[..., :-8]  # lines apart
        return rows[..., :1, :].expand(sizes) if len(sizes) > 1 and draw.random() < 0.3 else rows

    c, multiply = beside(*draw.choice([batch, ()]), m, n), beside(*batch, m, n)
    bias, col_scale, row_scale = (draw.choice([None, matrix(size, dtype=kind)]) for size in (n, n, m))
    activation = draw.choice([None, "gelu", "relu"])

    def call():
        return wmma_ops.gemm(
            a, b, c=c, multiply=multiply, bias=bias, col_scale=col_scale, row_scale=row_scale, activation=activation,
            alpha=0.25, beta=-0.5, out_dtype=out,
        )  # fmt: skip

    want = 0.25 * (a.double() @ b.double())
    want = want * (1 if row_scale is None else row_scale.double()[:, None])
    want = want * (1 if col_scale is None else col_scale.double())
    want = want + (0 if c is None else -0.5 * c.double()) + (0 if bias is None else bias.double())
    want = {None: lambda x: x, "gelu": F.gelu, "relu": F.relu}[activation](want)
    want = want * (1 if multiply is None else multiply.double())
    want = want.clamp(-65504, 65504) if out == torch.float16 else want
    (problem,) = launching.problems(call, target)
    found = [x for x in gemm.ranked(problem, target) if x.loop == "warpgroup"]
    for config in draw.sample(found, 8):
        with tuned.forced(problem, config):
            got = call()
            close(got.clamp(-65504, 65504), want)
            assert torch.equal(got, call())


@kinds("straight", "asynchronous", "warpgroups")
def test_a_second_pair_in_any_configuration(what, dtype):
    """Longer and shorter than the first, and lying as it does or, where the loop has a choice, otherwise."""
    target = arch.target(driver.target_of(0))
    chosen = {
        **WITHOUT_WARPGROUPS,
        "warpgroups": lambda x: x.loop == "warpgroup" and x.order.parts == 1 and not x.order.persistent,
        **KINDS,
    }[what]
    many_tiles = what in MANY_TILES
    m, n = (2000, 1312) if many_tiles else (13, 264) if what == "straight" else (131, 264)
    for k, k2, batch, turned in (
        (1040, 16, (), False),
        (16, 2064, (3,), False),
        (528, 48, (), True),
        (272, 272, (3,), True),
    ):

        def pair(k, across, batch=batch):
            a = torch.randn(*batch, m, k, device="cuda").mul(4).to(dtype)
            b = torch.randn(n, k, device="cuda").mul(4).to(dtype).mT
            return a, b.contiguous() if across and dtype.itemsize == 2 else b

        (a, b), (a2, b2) = pair(k, False), pair(k2, turned)
        out = dtype if dtype.itemsize == 2 else torch.bfloat16
        bias = matrix(n, dtype=out)

        def call(a=a, b=b, a2=a2, b2=b2, bias=bias, out=out):
            return wmma_ops.gemm(a, b, a2=a2, b2=b2, bias=bias, alpha=0.5, out_dtype=out)

        (problem,) = launching.problems(call, target)
        found = [x for x in gemm.ranked(problem, target) if chosen(x)]
        assert found or turned or batch or k == 16, "no such configuration"
        want = 0.5 * (a.double() @ b.double() + a2.double() @ b2.double()) + bias.double()
        for config in found[:: max(1, len(found) // 4)]:
            with tuned.forced(problem, config):
                got = call()
                close(got, want)
                assert torch.equal(got, call())


@pytest.mark.parametrize("m", [16, 300, 2048])
def test_kernels_that_start_early_wait_for_each_other(m):
    """Each product reads what the one before it wrote, and overwrites in place what that read."""
    weight = matrix(1024, 1024) / 32

    def chain(waits):
        torch.manual_seed(m)
        x, y = matrix(m, 1024), matrix(m, 1024)
        for _ in range(50):
            wmma_ops.addmm_(y, x, weight, beta=0.5)
            if waits:
                torch.cuda.synchronize()
            x, y = y, x
        return x, y

    for got, want in zip(chain(waits=False), chain(waits=True), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("seed", range(24))
def test_two_products_by_warpgroups_in_any_configuration(monkeypatch, seed, dtype):
    """Ragged sizes, either way that memory runs, batches and weights that these repeat, all that stands beside."""
    target, draw = arch.target(driver.target_of(0)), random.Random(seed)
    if target.name != "sm_90a":
        pytest.skip(f"{target.name} has no warpgroups")
    gated, batch = draw.random() < 0.35, draw.choice([(), (), (3,), (2, 3)])
    of_weights = draw.choice([batch, ()])
    m, k, n = draw.choice([1, 63, 65, 200, 1111]), 8 * draw.randint(1, 40), 8 * draw.randint(1, 70)
    h = 8 * draw.randint(1, 16 if gated else 32)

    def operand(rows, columns, dims, across):
        x = torch.randn(*dims, *((columns, rows) if across else (rows, columns)), device="cuda") * rows**-0.5
        return x.to(dtype).mT if across else x.to(dtype)

    a = operand(m, k, batch, m % 8 == 0 and draw.random() < 0.5)
    way = draw.random() < 0.5
    b0, gate = operand(k, h, of_weights, way), operand(k, h, of_weights, way) if gated else None
    b1 = operand(h, n, of_weights, draw.random() < 0.5)
    bias0, bias1 = (matrix(size, dtype=dtype) if draw.random() < 0.5 else None for size in (h, n))
    c = matrix(*batch, m, n, dtype=dtype) if draw.random() < 0.3 else None
    activation = draw.choice([None, "relu", "silu"])

    def call():
        return wmma_ops.gemm_gemm(
            a, b0, b1, c=c, gate=gate, bias0=bias0, bias1=bias1, activation=activation, alpha0=2.0, beta1=-0.5
        )

    d0 = 2.0 * (a.double() @ b0.double()) + (0 if bias0 is None else bias0.double())
    d0 = {None: lambda x: x, "relu": F.relu, "silu": F.silu}[activation](d0)
    d0 = d0 if gate is None else d0 * (a.double() @ gate.double())
    want = d0.to(dtype).double() @ b1.double()
    want = want + (0 if c is None else -0.5 * c.double()) + (0 if bias1 is None else bias1.double())
    problem = launching.problems(call, target)[0]
    found = [x for x in gemm_gemm.candidates(problem, target) if x.loop == "warpgroup"]
    assert found
    for config in draw.sample(found, min(3, len(found))):
        monkeypatch.setattr(gemm_gemm, "choose", lambda *_, config=config: (config, 0.0))
        torch.ops.wmma._forget_plans()
        got = call()
        close(got, want)
        assert torch.equal(got, call())
    torch.ops.wmma._forget_plans()


def test_a_hundred_thousand_calls_leave_nothing_behind():
    a, b = matrix(64, 64), matrix(64, 64)
    for _ in range(100):
        wmma_ops.matmul(a, b)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(), torch.ops.wmma._plan_count(), _resident()
    for _ in range(100_000):
        wmma_ops.matmul(a, b)
    torch.cuda.synchronize()
    after = torch.cuda.memory_allocated(), torch.ops.wmma._plan_count(), _resident()
    assert after[:2] == before[:2]
    assert after[2] - before[2] < 4 << 20, f"{after[2] - before[2]} bytes more"


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_the_same_bits_from_run_to_run():
    for m, n, k in ((1, 4096, 4096), (512, 512, 4096), (127, 1031, 515)):
        a, b = matrix(m, k), matrix(k, n)
        first = wmma_ops.matmul(a, b)
        for _ in range(5):
            assert torch.equal(wmma_ops.matmul(a, b), first)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_first_and_second_derivatives(dtype):
    x, w, b = (matrix(*shape, dtype=dtype).requires_grad_() for shape in ((5, 12), (9, 12), (9,)))
    if dtype == torch.float64:

        def call(x, w, b):
            return wmma_ops.linear(x, w, b, activation="gelu")

        assert torch.autograd.gradcheck(call, (x, w, b))
        assert torch.autograd.gradgradcheck(call, (x, w, b))
        return
    ours = torch.autograd.grad(wmma_ops.linear(x, w, b, activation="silu").square().sum(), (x, w, b))
    theirs = torch.autograd.grad(F.silu(F.linear(x.double(), w.double(), b.double())).square().sum(), (x, w, b))
    for got, want in zip(ours, theirs, strict=True):
        close(got, want, 1e-5)


def test_a_compiled_graph_runs_them():
    def block(x, w, b):
        return wmma_ops.linear(x, w, b, activation="relu") * 2

    x, w, b = matrix(64, 128), matrix(32, 128), matrix(32)
    close(torch.compile(block, fullgraph=True)(x, w, b), F.relu(F.linear(x.double(), w.double(), b.double())) * 2)


def test_results_past_two_to_the_31():
    m, n, k = 70_000, 32_768, 16  # 2.3·10⁹ elements
    if torch.cuda.mem_get_info()[0] < 12 << 30:
        pytest.skip("needs 12 GiB of free GPU memory")
    a, b = matrix(m, k), matrix(k, n)
    out = wmma_ops.matmul(a, b)
    for row in (0, 35_000, 65_537, m - 1):
        close(out[row], a[row].double() @ b.double())
    huge = torch.empty(3, 1 << 30, dtype=torch.bfloat16, device="cuda")[:, : 2 * 48].as_strided((3, 48), (1 << 30, 2))
    huge.copy_(matrix(3, 48))
    close(wmma_ops.matmul(huge, b[:, :64].repeat(3, 1)), huge.double() @ b[:, :64].double().repeat(3, 1))


def test_two_products_and_attention_replay_in_a_graph():
    x, w = matrix(300, 128), matrix(128, 128) * 0.1
    q, k = matrix(2, 8, 200, 64), matrix(2, 2, 200, 64)
    calls = (
        lambda: wmma_ops.gemm_gemm(x, w, w, activation="relu"),
        lambda: wmma_ops.attention(q, k, k, is_causal=True, enable_gqa=True)[0],
    )
    for call in calls:
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call()
        x.normal_()
        q.normal_()
        graph.replay()
        assert torch.equal(out, call())


@pytest.mark.parametrize("causal", [False, True])
def test_attention_differentiates_to_the_same_bits(causal):
    q, k, v = (matrix(1, 4, 333, 80, dtype=torch.float16).requires_grad_() for _ in range(3))
    ours = [torch.autograd.grad(wmma_ops.attention(q, k, v, is_causal=causal)[0].sum(), (q, k, v)) for _ in range(3)]
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    out = F.scaled_dot_product_attention(*wide, is_causal=causal)
    for first, second, third, want in zip(*ours, torch.autograd.grad(out.sum(), wide), strict=True):
        assert torch.equal(first, second)
        assert torch.equal(first, third)
        close(first, want)
