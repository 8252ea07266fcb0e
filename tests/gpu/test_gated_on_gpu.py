"""Gated products on the GPU at hand: in any configuration, keeping both factors and not, in a graph of a whole step."""

import copy
import random

import pytest
import torch
import torch.nn.functional as F
from on_gpu import close, matrix

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.ops import activations
from wmma_ops.plan.gemm import planner
from wmma_ops.runtime import driver, launching, tuned

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SILU = activations.code("test", "activation", "silu")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("keeps", [False, True], ids=["", "keeps"])
@pytest.mark.parametrize("seed", range(5))
def test_any_configuration(seed, keeps, dtype):
    target, draw = arch.target(driver.target_of(0)), random.Random(seed)
    m, n, k = draw.choice([17, 131, 1300]), draw.choice([72, 264, 1312]), draw.choice([48, 1040])
    batch, across = draw.choice([(), (), (3,), (2, 3)]), draw.random() < 0.3
    a = matrix(*batch, m, k, dtype=dtype)
    b, gate = ((matrix(k, n, dtype=dtype) if across else matrix(n, k, dtype=dtype).mT) / k**0.5 for _ in "12")
    if not across:
        b, gate = (x.mT.contiguous().mT for x in (b, gate))
    bias, gate_bias = (draw.choice([None, matrix(n, dtype=dtype), matrix(n, dtype=torch.float32)]) for _ in "12")

    def call():
        if keeps:
            return torch.ops.wmma._gated_aux(a, b, gate, bias, gate_bias, activation=SILU)
        options = {"bias": bias, "gate": gate, "gate_bias": gate_bias, "activation": SILU}
        return (torch.ops.wmma_raw.gemm(a, b, **options),)

    s, u = (
        a.double() @ x.double() + (0 if beside is None else beside.double())
        for x, beside in ((b, bias), (gate, gate_bias))
    )
    problem, *_ = launching.problems(call, target)
    assert problem.gate
    found = planner.ranked(problem, target)
    assert found
    for config in draw.sample(found, min(10, len(found))):
        with tuned.forced(problem, config):
            assert launching.plan_for(problem, target).config == config
            got = call()
            for one, want in zip(got, (F.silu(s) * u, s, u), strict=False):
                close(one, want, 6e-3)
            assert all(map(torch.equal, got, call()))


class _Block(torch.nn.Module):
    def __init__(self, width=256, heads=4):
        super().__init__()
        self.heads, self.qkv, self.out = heads, torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = wmma_ops.nn.FusedMLP(width, 2 * width, activation="silu", gated=True, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(wmma_ops.attention(q, k, v, is_causal=True)[0].transpose(1, 2).flatten(2))
        return x + self.mlp(x)


def test_a_whole_step_replays_in_a_graph():
    model = torch.nn.Sequential(_Block(), _Block()).cuda().bfloat16()
    wmma_ops.swap_(model)
    eager = copy.deepcopy(model)
    x, wanted = matrix(2, 640, 256), matrix(2, 640, 256)

    def step(model):
        loss = F.mse_loss(model(x), wanted)
        for parameter, grad in zip(
            model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
        ):
            parameter.data.add_(grad, alpha=-0.1)
        return loss.detach()

    before = copy.deepcopy(model.state_dict())
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(model)
    torch.cuda.current_stream().wait_stream(stream)
    model.load_state_dict(before)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(model)
    model.load_state_dict(before)
    for _ in range(4):
        x.normal_()
        graph.replay()
        assert torch.equal(loss, step(eager))
    assert all(map(torch.equal, model.parameters(), eager.parameters()))
    assert not any(map(torch.equal, model.state_dict().values(), before.values()))
