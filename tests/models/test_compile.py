"""torch.compile, torch.export and AOTInductor: one graph, forward and backward, whatever the sizes."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx

import wmma_ops
from wmma_ops.testing.samples import SAMPLES

SIZES = ((4, 6, 8), (5, 7, 9), (12, 3, 10), (16, 16, 16), (33, 20, 11), (7, 40, 24))


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _mlp(x, w0, b0, w1):
    h = wmma_ops.linear(x, w0, b0, activation="gelu")
    return wmma_ops.matmul(h, w1)


def _gemms(x, w0, b0, w1):
    h = wmma_ops.gemm(x, w0.T, bias=b0, activation="silu", alpha=0.5)
    h = wmma_ops.addmm(b0, x, w0.T, beta=0.5) * h
    total = wmma_ops.baddbmm(torch.zeros(1), h[None], w1[None])[0]
    return total + wmma_ops.gemm_gemm(x, w0.T, w1, activation="relu", bias0=b0)


def _attends(x, w0, b0, w1):
    q = wmma_ops.linear(x, w0, b0)[None, None]
    out, lse = wmma_ops.attention(q, q, q, is_causal=True)
    return wmma_ops.matmul(out[0, 0], w1) + lse[0, 0].unsqueeze(-1)


def _in_place(x, w0, b0, w1):
    total = torch.zeros(x.shape[0], w0.shape[0])
    wmma_ops.addmm_(total, x, w0.T, beta=0.0)
    return wmma_ops.matmul(total * 2, w1) + b0.sum()


MODELS = [_mlp, _gemms, _attends, _in_place]


def _inputs(m, k, n):
    generator = torch.Generator().manual_seed(m)
    shapes = ((m, k), (n, k), (n,), (n, k))
    return [torch.randn(s, generator=generator).requires_grad_() for s in shapes]


def _check(function, model, inputs):
    outs = [f(*inputs) for f in (function, model)]
    torch.testing.assert_close(*outs, rtol=1e-4, atol=1e-4)
    grads = [torch.autograd.grad(out.sin().sum(), inputs) for out in outs]
    for got, want in zip(*grads, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("model", MODELS, ids=lambda f: f.__name__)
def test_fullgraph_static(model):
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=False)
    _check(compiled, model, _inputs(*SIZES[0]))


@pytest.mark.parametrize("dynamic", [True, None], ids=["dynamic", "automatic"])
@pytest.mark.parametrize("model", MODELS, ids=lambda f: f.__name__)
def test_few_graphs_over_many_sizes(model, dynamic):
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter, dynamic=dynamic)
    for size in SIZES:
        _check(compiled, model, _inputs(*size))
    assert counter.frame_count <= 2


def _picks_rows(x, w):
    """Whose sizes are known only as it runs; everything that broadcasts or accumulates has them."""
    rows = x[x[:, 0] > 0]
    again = x[x[:, 0] > 0]  # for a graph, of another size
    out = wmma_ops.linear(rows, w, residual=again, activation="gelu")
    out = wmma_ops.gemm(out, w, c=rows, row_scale=rows[:, 0], multiply=out)
    out = wmma_ops.gemm_gemm(out, w.T, w, gate=w.T, c=wmma_ops.addmm(rows, out, w))
    attended, _ = wmma_ops.attention(out[None], out[None], out[None], mask=out @ out.T)
    total = torch.zeros(x.shape[1], x.shape[1])
    wmma_ops.addmm_(total, rows.T, attended[0])  # K, and both ways to lie
    square = out.new_zeros(rows.shape[0], rows.shape[0])
    wmma_ops.addmm_(square, rows, rows.T)
    whole = rows.to(torch.int8)
    scaled = wmma_ops.scaled_mm(whole, whole.T, rows[:, :1].detach(), again.detach().T[:1])
    return wmma_ops.matmul(attended[0], total) + square.sum() + scaled.float().sum()


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_sizes_known_only_as_it_runs():
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(_picks_rows, fullgraph=True, backend=counter)
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(4, 4, generator=generator) / 4
    for count in (0, 1, 3, 6):
        x = torch.randn(6, 4, generator=generator)
        x[:, 0] = x[:, 0].abs() * torch.where(torch.arange(6) < count, 1, -1)
        _check(compiled, _picks_rows, [x.requires_grad_(), w.requires_grad_()])
    assert counter.frame_count == 1


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_sizes_known_only_as_it_runs_are_checked_then():
    def model(x, w):
        return wmma_ops.linear(x[x[:, 0] > 0], w, residual=x[x[:, 1] > 0])

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x, w = torch.ones(3, 2), torch.ones(2, 2)
    assert torch.equal(compiled(x, w), model(x, w))
    x[:2, 1] = -1  # one row: it repeats in the eager call, and the graph has no such sizes
    with pytest.raises(RuntimeError, match=r"Eq\(u"):
        compiled(x, w)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_every_op_compiles_whole(sample):
    op = getattr(torch.ops.wmma, sample.op)

    def function(*arguments):
        out = op(*arguments, **sample.scalars)
        return arguments[0] if sample.op == "addmm_" else out

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    arguments = [sample.arguments(sample.tensors()) for _ in range(2)]
    torch.testing.assert_close(compiled(*arguments[0]), function(*arguments[1]))


def test_inductor_forward_and_backward():
    compiled = torch.compile(_mlp, fullgraph=True)
    _check(compiled, _mlp, _inputs(*SIZES[0]))


def test_graphs_hold_the_op_itself():
    """Not its raw twin, whether or not gradients are asked for: graph passes look for one name."""
    seen = []

    def backend(graph, inputs):
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph

    for grad in (True, False):
        torch._dynamo.reset()
        with torch.set_grad_enabled(grad):
            torch.compile(wmma_ops.matmul, backend=backend, fullgraph=True)(torch.ones(2, 2), torch.ones(2, 2))
    assert seen == ["wmma.matmul.default"] * 2


TRACERS = {
    "symbolic_trace": lambda model, *inputs: torch.fx.symbolic_trace(model),
    "make_fx": lambda model, *inputs: make_fx(model)(*inputs),
    "make_fx symbolic": lambda model, *inputs: make_fx(model, tracing_mode="symbolic")(*inputs),
    "jit": lambda model, *inputs: torch.jit.trace(model, inputs),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("tracer", TRACERS)
def test_other_tracers_graphs_differentiate(tracer, grad):
    """Also those traced where no gradient was asked for."""

    def model(x, w):
        attended, _ = wmma_ops.attention(x[None], x[None], x[None])
        return wmma_ops.matmul(wmma_ops.linear(attended[0], w, activation="gelu"), w)

    inputs = [torch.randn(5, 4), torch.randn(3, 4)]
    with torch.set_grad_enabled(grad):
        graph = TRACERS[tracer](model, *inputs)
    _check(graph, model, [x.requires_grad_() for x in inputs])


def test_registered_activations_compile():
    if "cube" not in wmma_ops.ops.activations.names():
        wmma_ops.register_activation("cube", device="x * x * x", forward=lambda x: x**3, derivative=lambda x: 3 * x**2)

    def model(x, w):
        return wmma_ops.linear(x, w, activation="cube")

    inputs = [torch.randn(3, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)]
    _check(torch.compile(model, fullgraph=True, backend="aot_eager"), model, inputs)
    torch.testing.assert_close(model(*inputs), (inputs[0] @ inputs[1].T) ** 3)


def test_errors_inside_a_graph_name_the_op():
    def model(a, b):
        return torch.ops.wmma.matmul(a, b)

    with pytest.raises(Exception, match=r"wmma\.matmul: b has shape \[2, 3\]"):
        torch.compile(model, fullgraph=True, backend="aot_eager")(torch.ones(2, 3), torch.ones(2, 3))


class _Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 16)

    def forward(self, x):
        h = wmma_ops.linear(x, self.layer.weight, self.layer.bias, activation="gelu")
        out, _ = wmma_ops.attention(h[None], h[None], h[None])
        return wmma_ops.scaled_mm(
            out[0].clamp(-8, 8).to(torch.int8), self.layer.weight.to(torch.int8), torch.tensor(0.5), torch.tensor(2.0)
        )


def test_export_with_a_dynamic_dimension(tmp_path):
    model = _Model().eval()
    batch = torch.export.Dim("batch", min=2, max=4096)
    program = torch.export.export(model, (torch.randn(5, 8),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    for rows in (3, 17):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(loaded(x), model(x))


def test_aotinductor_package(tmp_path):
    model = _Model().eval()
    batch = torch.export.Dim("batch", min=2, max=4096)
    with torch.no_grad():
        program = torch.export.export(model, (torch.randn(5, 8),), dynamic_shapes=({0: batch},))
        path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
        loaded = torch._inductor.aoti_load_package(path)
        for rows in (3, 17):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(loaded(x), model(x), rtol=2e-2, atol=2e-2)


def test_tensors_as_numbers_are_asked_for_their_value():
    q, s = torch.randn(1, 2, 4, 8), torch.tensor(0.5)
    a, b = q[0, 0], q[0, 1].T

    def calls(s):
        out, _ = wmma_ops.attention(q, q, q, scale=s)
        return out, wmma_ops.addmm(a[:, :4], a, b, alpha=s), wmma_ops.addmm_(a[:, :4].clone(), a, b, beta=s)

    torch.testing.assert_close(torch.compile(calls, backend="aot_eager")(s), calls(0.5))
