"""The repository of layers for the package `kernels`: it loads from a folder, and what it gives is right and is ours."""

import pytest
import torch
from kernels import (
    LocalLayerRepository,
    Mode,
    get_local_kernel,
    kernelize,
    use_kernel_forward_from_hub,
    use_kernel_mapping,
    use_kernelized_func,
)
from op_counts import ran
from torch import nn
from transformers.activations import ACT2FN

import wmma_ops
from wmma_ops.integrations import hub

pytestmark = pytest.mark.usefixtures("one_thread")

MODE = Mode.TRAINING | Mode.TORCH_COMPILE


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return hub.write(tmp_path_factory.mktemp("hub"))


@use_kernel_forward_from_hub("Linear")
class Linear(nn.Linear):
    pass


@use_kernel_forward_from_hub("GatedMLP")
class GatedMLP(nn.Module):
    def __init__(self, act_fn, bias=False):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(24, 40, bias), nn.Linear(24, 40, bias)
        self.down_proj = nn.Linear(40, 24, bias)
        self.act_fn = act_fn

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


@use_kernel_forward_from_hub("Attention")
def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    return nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


@use_kernelized_func(attention)
class Attends(nn.Module):
    def forward(self, x):
        return attention(x, x[:, :2], x[:, :2], is_causal=True, enable_gqa=True)


class ReLU(nn.ReLU):
    def forward(self, x):
        return super().forward(x) / 2


def _kernelized(model, repository):
    names = ("Linear", "GatedMLP", "Attention")
    layers = {name: {"cpu": {MODE: LocalLayerRepository(repository, layer_name=name)}} for name in names}
    with use_kernel_mapping(layers):
        return kernelize(model, mode=MODE, device="cpu")


def _run(model, x):
    x = x.clone().requires_grad_()
    out = model(x)
    return out, torch.autograd.grad(out.square().sum(), [x, *model.parameters()])


CASES = [
    (lambda: Linear(24, 16), {"linear": 1}),
    (lambda: Linear(24, 16, bias=False), {"linear": 1}),
    *((lambda name=name: GatedMLP(ACT2FN[name]), {"gemm": 1, "linear": 2}) for name in ("silu", "gelu", "relu")),
    (lambda: GatedMLP(ACT2FN["gelu_pytorch_tanh"], bias=True), {"gemm": 1, "linear": 2}),
    (lambda: GatedMLP(nn.GELU(approximate="tanh")), {"gemm": 1, "linear": 2}),
    (lambda: GatedMLP(ACT2FN["quick_gelu"]), {"linear": 3}),  # an activation that ours has no name for
    (lambda: GatedMLP(nn.LeakyReLU()), {"gemm": 1, "linear": 2}),
    (lambda: GatedMLP(ReLU()), {"linear": 3}),  # torch's by its name alone
    (Attends, {"attention": 1}),
]


@pytest.mark.parametrize(("make", "count"), CASES)
def test_layer(repository, make, count):
    model = make()
    x = torch.randn(2, 4, 5, 24)
    want = _run(model, x)
    _kernelized(model, repository)
    with ran() as counts:
        model(x)
    assert counts == count
    torch.testing.assert_close(_run(model, x), want, rtol=1e-4, atol=1e-4)


def test_a_model_of_transformers(repository, monkeypatch):
    """Its own MLP, without a decorator: `replace_kernel_forward_from_hub` does this for good."""
    from transformers.models.gemma2.modeling_gemma2 import Gemma2MLP
    from transformers_models import MODELS, batch

    monkeypatch.setattr(Gemma2MLP, "kernel_layer_name", "GatedMLP", raising=False)
    monkeypatch.setattr(Gemma2MLP, "kernel_condition", staticmethod(lambda module: True), raising=False)
    (gemma,) = (tiny for tiny in MODELS if str(tiny) == "Gemma2")
    model, inputs = gemma.model(), batch("left")
    want = model(**inputs).logits
    _kernelized(model, repository)
    with ran() as counts:
        got = model(**inputs).logits
    assert counts == {"gemm": 2, "linear": 4}
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_layers_compile_whole(repository):
    model = nn.Sequential(GatedMLP(ACT2FN["silu"]), Linear(24, 24))
    _kernelized(model, repository)
    x = torch.randn(3, 24)
    want = _run(model, x)
    seen = []

    def backend(graph, inputs):
        seen.extend(str(node.target) for node in graph.graph.nodes if "wmma" in str(node.target))
        return graph

    compiled = torch.compile(model, backend=backend, fullgraph=True)
    torch.testing.assert_close(_run(compiled, x), want)
    assert sorted(seen) == ["wmma.gemm.default", *["wmma.linear.default"] * 3]


def test_what_stands_in_place_of_a_linear_is_called(repository):
    """An adapter, a hook: a layer that reads weights past them would be wrong without a word."""

    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model = GatedMLP(ACT2FN["silu"])
    model.up_proj, model.gate_proj = Doubled(24, 40), Doubled(24, 40)
    model.down_proj.register_forward_hook(lambda module, inputs, out: out + 1)
    x = torch.randn(3, 24)
    want = model(x)
    _kernelized(model, repository)
    torch.testing.assert_close(model(x), want)


def test_a_hook_on_the_activation_runs(repository):
    model, x, seen = GatedMLP(ACT2FN["silu"]), torch.randn(3, 24), []
    want = model(x)
    _kernelized(model, repository)
    handle = model.act_fn.register_forward_hook(lambda module, inputs, out: seen.append(out) or 2 * out)
    torch.testing.assert_close(model(x), 2 * want)
    assert len(seen) == 1
    handle.remove()
    torch.testing.assert_close(model(x), want)
    assert len(seen) == 1


def test_functions(repository):
    kernel = get_local_kernel(repository)
    assert kernel.__file__.startswith(str(repository))
    for name in ("attention", "gemm", "gemm_gemm", "linear", "matmul", "scaled_attention", "scaled_mm"):
        assert getattr(kernel, name) is getattr(wmma_ops, name)


def test_every_backend_has_its_variant(repository):
    from kernels.variants import parse_variant

    found = {path.name: parse_variant(path.name) for path in (repository / "build").iterdir()}
    assert sorted(found) == ["torch-cpu", "torch-cuda", "torch-rocm"]
    for path in (repository / "build").iterdir():
        assert get_local_kernel(path).layers.Linear.can_torch_compile


def test_an_attention_that_ours_cannot_take_is_refused(repository):
    layer = get_local_kernel(repository).layers.Attention()
    q, mask = torch.randn(1, 2, 3, 4), torch.ones(3, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="it is causal and has a mask"):
        layer(q, q, q, mask, is_causal=True)
