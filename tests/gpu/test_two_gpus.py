"""Two GPUs in one process: kernels, plans, workspaces, streams and graphs are a device's own, whichever is current."""

import pytest
import torch
import torch.nn.functional as F
from at_once import at_once
from on_gpu import close, matrix

import wmma_ops

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


def _matrix(*shape, index=1, dtype=torch.bfloat16):
    return matrix(*shape, dtype=dtype, device=f"cuda:{index}")


# One of each way through a GPU: straight to registers, split K with its workspace, tensor maps, many tiles, integers,
# fp64's matrix cores, and FMA.
PRODUCTS = {
    "a row": (1, 4096, 4096, torch.bfloat16),
    "split K": (64, 64, 16384, torch.float16),
    "tensor maps": (512, 768, 512, torch.bfloat16),
    "many tiles": (2048, 4096, 1024, torch.bfloat16),
    "integers": (256, 320, 512, torch.int8),
    "ragged": (127, 1031, 515, torch.float16),
    "float64": (100, 60, 90, torch.float64),
    "float32": (100, 60, 90, torch.float32),
}


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("what", PRODUCTS)
def test_products_on_either(what, current):
    m, n, k, dtype = PRODUCTS[what]
    with torch.cuda.device(current):
        for index in (1, 0, 1):
            a, b = (_matrix(*shape, index=index, dtype=torch.float32).mul(4).to(dtype) for shape in ((m, k), (n, k)))
            out = wmma_ops.matmul(a, b.t())
            assert out.device.index == index
            assert torch.cuda.current_device() == current
            close(out, a.double() @ b.double().t())


@pytest.mark.parametrize("current", [0, 1])
def test_two_products_and_attention_on_either(current):
    with torch.cuda.device(current):
        for index in (1, 0):
            x, w = _matrix(300, 128, index=index), _matrix(128, 128, index=index) * 0.1
            got = wmma_ops.gemm_gemm(x, w, w, activation="relu")
            close(got, F.relu(x.double() @ w.double()) @ w.double())
            q, k, v = (_matrix(1, 4, 333, 64, index=index).requires_grad_() for _ in range(3))
            ours = wmma_ops.attention(q, k, v, is_causal=True)[0]
            wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
            want = F.scaled_dot_product_attention(*wide, is_causal=True)
            close(ours, want)
            upstream = torch.randn_like(ours)
            grads = torch.autograd.grad(ours, (q, k, v), upstream)
            for mine, theirs in zip(grads, torch.autograd.grad(want, wide, upstream.double()), strict=True):
                assert mine.device.index == index
                close(mine, theirs)


def test_operands_of_two_devices_are_refused():
    with pytest.raises(TypeError, match="cuda:1"):
        wmma_ops.matmul(_matrix(4, 4, index=0), _matrix(4, 4, index=1))


def test_each_devices_own_current_stream_is_used():
    """The stream that was made current for the second GPU, also while the first is the current device."""
    a = _matrix(1024, 1024)
    wmma_ops.matmul(a, a)
    torch.cuda.synchronize(1)
    stream = torch.cuda.Stream(device=1)
    with torch.cuda.stream(stream), torch.cuda.device(1):
        torch.cuda._sleep(200_000_000)
        late = _matrix(1024, 1024)
        with torch.cuda.device(0):
            out = wmma_ops.matmul(a, late)
    stream.synchronize()
    close(out, a.double() @ late.double())


def test_a_graph_of_the_second():
    a, b = _matrix(3, 8192, dtype=torch.float32), _matrix(8192, 5, dtype=torch.float32)
    with torch.cuda.device(1):
        wmma_ops.matmul(a, b)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = wmma_ops.matmul(a, b)
            with pytest.raises(wmma_ops.plan.CaptureError, match="warmup"):
                wmma_ops.matmul(a[:, :77], b[:77])
        a.normal_()
        graph.replay()
        close(out, a.double() @ b.double(), 1e-5)


def test_threads_on_both_at_once():
    def work(index):
        a, b = _matrix(256 + index, 512, index=index % 2), _matrix(512, 320, index=index % 2)
        outs = [wmma_ops.matmul(a, b) for _ in range(100)]
        for out in outs:
            assert torch.equal(out, outs[0])
        close(outs[0], a.double() @ b.double())

    at_once(work, [(index,) for index in range(8)])


def test_kernels_that_start_early_wait_on_both():
    """Chains of dependent products, taking turns on the two devices, in place."""

    def chain(index, waits):
        torch.manual_seed(5)
        x, y, weight = (
            _matrix(300, 1024, index=index),
            _matrix(300, 1024, index=index),
            _matrix(1024, 1024, index=index),
        )
        for _ in range(20):
            wmma_ops.addmm_(y, x, weight / 32, beta=0.5)
            if waits:
                torch.cuda.synchronize(index)
            x, y = y, x
            yield x
        yield y

    *_, (first, second) = zip(chain(0, waits=False), chain(1, waits=False), strict=True)
    *_, (want_first, want_second) = zip(chain(0, waits=True), chain(1, waits=True), strict=True)
    assert torch.equal(first, want_first)
    assert torch.equal(second, want_second)


def test_compiled_and_differentiated_on_the_second():
    def block(x, w, b):
        return wmma_ops.linear(x, w, b, activation="silu") * 2

    x, w, b = (_matrix(*shape, dtype=torch.float32).requires_grad_() for shape in ((64, 128), (32, 128), (32,)))
    out = torch.compile(block, fullgraph=True)(x, w, b)
    wide = [t.detach().double().requires_grad_() for t in (x, w, b)]
    want = F.silu(F.linear(*wide)) * 2
    close(out, want, 1e-5)
    for got, theirs in zip(
        torch.autograd.grad(out.square().sum(), (x, w, b)), torch.autograd.grad(want.square().sum(), wide), strict=True
    ):
        assert got.device.index == 1
        close(got, theirs, 1e-5)


def test_tuning_times_the_device_of_its_operands(tmp_path, monkeypatch):
    monkeypatch.setenv("WMMA_OPS_CACHE_DIR", str(tmp_path))
    a, b = _matrix(128, 256), _matrix(256, 128)
    assert wmma_ops.tune("matmul", a, b, limit=4)[0].microseconds > 0
    assert torch.cuda.current_device() == 0
    close(wmma_ops.matmul(a, b), a.double() @ b.double())
