"""Our attention in models of diffusers: taken where it should be, as good as torch's, and taken out again."""

import copy
import inspect
import pickle

import pytest
import torch
import torch.nn.functional as F
from diffusers import DiTTransformer2DModel, FluxTransformer2DModel, UNet2DConditionModel
from diffusers.models.attention import FeedForward
from diffusers.models.attention_processor import AttnProcessor
from dropped import attend
from layer_models import assert_no_worse, exact, results
from op_counts import TORCHS_ATTENTION, ran
from torch.overrides import BaseTorchFunctionMode

import wmma_ops
from wmma_ops.integrations.diffusers import restore_processors, swap_processors
from wmma_ops.integrations.sdpa import AttentionMode, Calls
from wmma_ops.nn import rules

pytestmark = pytest.mark.usefixtures("one_thread")


def _unet():
    """Self- and cross-attention over 4x4 and 2x2 positions; of five text tokens the first row has three."""
    model = UNet2DConditionModel(
        sample_size=4,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=12,
        attention_head_dim=2,
    )
    return model, {
        "sample": torch.randn(2, 4, 4, 4),
        "timestep": torch.tensor([3, 7]),
        "encoder_hidden_states": torch.randn(2, 5, 12),
        "encoder_attention_mask": torch.tensor([[True] * 3 + [False] * 2, [True] * 5]),
    }


def _dit():
    model = DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=4,
        num_layers=2,
        sample_size=8,
        num_embeds_ada_norm=10,
        norm_num_groups=4,
    )
    labels = {"timestep": torch.tensor([3, 7]), "class_labels": torch.tensor([1, 2])}
    return model, {"hidden_states": torch.randn(2, 4, 8, 8)} | labels


def _flux():
    """Its processors call diffusers' dispatcher, not torch."""
    model = FluxTransformer2DModel(
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=12,
        pooled_projection_dim=6,
        axes_dims_rope=(4, 4, 8),
    )
    return model, {
        "hidden_states": torch.randn(2, 9, 4),
        "encoder_hidden_states": torch.randn(2, 5, 12),
        "pooled_projections": torch.randn(2, 6),
        "timestep": torch.tensor([0.3, 0.7]),
        "img_ids": torch.randn(9, 3),
        "txt_ids": torch.zeros(5, 3),
    }


# And how often each model attends.
MODELS = [(_unet, 8), (_dit, 2), (_flux, 2)]


def _made(make):
    torch.manual_seed(0)
    model, inputs = make()
    for parameter in model.parameters():  # some start as zeros, and would hide what attention gives
        torch.nn.init.normal_(parameter, std=0.3)
    return model.train(), inputs


def _run(model, inputs):
    """The result and the gradient of every parameter, as vectors."""
    torch.manual_seed(1)  # training drops labels
    model.zero_grad()
    dtype = next(model.parameters()).dtype
    out = model(**{key: x.to(dtype) if x.is_floating_point() else x for key, x in inputs.items()}).sample
    out.square().mean().backward()
    gradients = [x.grad.flatten() for x in model.parameters() if x.grad is not None]
    return out.detach().flatten(), torch.cat([x / x.abs().max().clamp(min=1e-3) for x in gradients])


@pytest.mark.parametrize(("make", "calls"), MODELS, ids=["unet", "dit", "flux"])
def test_swapped_model(make, calls):
    model, inputs = _made(make)
    exact = _run(copy.deepcopy(model).double(), inputs)
    before, names = _run(model, inputs), list(model.state_dict())
    swapped = swap_processors(model)
    assert len(swapped) == calls
    assert swap_processors(model) == []  # twice is once
    with ran(TORCHS_ATTENTION) as counts:
        got = _run(model, inputs)
    assert counts["attention"] == calls
    assert counts[TORCHS_ATTENTION] == 0
    for ours, theirs, want in zip(got, before, exact, strict=True):
        errors = [(x.double() - want).abs() for x in (ours, theirs)]
        least = torch.finfo(torch.float32).eps * want.abs().max()
        assert errors[0].max() <= 2 * errors[1].max() + least
        assert errors[0].square().mean().sqrt() <= 2 * errors[1].square().mean().sqrt() + least
    assert list(model.state_dict()) == names
    assert restore_processors(model) == swapped
    assert all(torch.equal(a, b) for a, b in zip(_run(model, inputs), before, strict=True))


def test_a_wrong_attention_is_noticed(monkeypatch):
    """What the comparison above rests on: another attention gives another picture."""
    model, inputs = _made(_unet)
    before = _run(model, inputs)
    swap_processors(model)
    right = rules.attention

    def wrong(q, k, v, attn_mask=None, *args, **options):
        return right(q, k, v, None, *args, **options)

    monkeypatch.setitem(AttentionMode._table, F.scaled_dot_product_attention, ("scaled_dot_product_attention", wrong))
    assert (_run(model, inputs)[0] - before[0]).abs().max() > 1e-3


def test_only_what_the_filter_takes():
    model, inputs = _made(_unet)
    swapped = swap_processors(model, lambda layer, name: name.endswith("attn2"))
    assert len(swapped) == 4
    with ran(TORCHS_ATTENTION) as counts:
        _run(model, inputs)
    assert counts["attention"] == counts[TORCHS_ATTENTION] / 2 == 4  # torch's: forward and backward


def test_processors_stay_what_they_were():
    """diffusers asks for their class, their signature and their state."""
    model, _ = _made(_flux)
    old = model.transformer_blocks[0].attn.processor
    old.mark = object()
    swap_processors(model)
    new = model.transformer_blocks[0].attn.processor
    assert isinstance(new, type(old))
    assert new.mark is old.mark
    assert inspect.signature(new.__call__) == inspect.signature(old.__call__)


def test_a_swapped_model_is_copied_and_pickled():
    model, inputs = _made(_unet)
    swap_processors(model)
    want = _run(model, inputs)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(_run(other, inputs), want)
        assert restore_processors(other) == restore_processors(copy.deepcopy(model))
        kinds = {type(processor).__name__ for processor in other.attn_processors.values()}
        assert kinds == {"AttnProcessor2_0"}


def test_compiled_whole():
    model, inputs = _made(_flux)
    want = _run(model, inputs)
    swap_processors(model)
    seen = []

    def backend(graph, inputs):
        seen.extend(str(node.target) for node in graph.graph.nodes if "attention" in str(node.target))
        return graph

    got = _run(torch.compile(model, backend=backend, fullgraph=True), inputs)
    assert seen == ["wmma.attention.default"] * 2
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)


def test_processors_that_attend_otherwise_are_named():
    model, inputs = _made(_unet)
    model.set_attn_processor(AttnProcessor())
    swap_processors(model)
    with pytest.raises(RuntimeError, match="AttnProcessor did not call scaled_dot_product_attention"):
        _run(model, inputs)
    with pytest.raises(ValueError, match="a Linear without attention layers of diffusers"):
        swap_processors(torch.nn.Linear(2, 2))


MASK = torch.randn(1, 1, 6, 9, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"attn_mask": MASK < 0.5, "scale": 0.3},
        {"attn_mask": MASK[0, 0]},
        {"dropout_p": 0.4, "is_causal": True},
    ],
    ids=["plain", "causal", "bool mask", "float mask", "dropout"],
)
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_the_mode_is_torchs_attention(options, kv_heads):
    q, k, v = torch.randn(2, 4, 6, 8), torch.randn(2, kv_heads, 9, 8), torch.randn(2, kv_heads, 9, 5)
    calls, outs = Calls(), []
    for i in range(2):
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        torch.manual_seed(7)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            if i == 0:
                with AttentionMode(calls):
                    out = F.scaled_dot_product_attention(*inputs, **options, enable_gqa=kv_heads < 4)
            else:
                torchs = attend if "dropout_p" in options else F.scaled_dot_product_attention
                out = torchs(*inputs, **options, enable_gqa=kv_heads < 4)
        outs.append((out, torch.autograd.grad(out.square().sum(), inputs)))
    assert (calls.taken, calls.left) == (1, [])
    torch.testing.assert_close(*outs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "options", "reason"),
    [
        (((2, 4, 6, 8), (1, 4, 6, 8)), {}, "its batches differ in size"),
        (((2, 4, 6, 8), (2, 2, 6, 8)), {"dropout_p": 0.5, "enable_gqa": False}, "its heads differ in number"),
        (((6, 8), (6, 8)), {"dropout_p": 1.0}, "its dropout is 1.0"),
    ],
)
def test_the_mode_leaves_to_torch_what_ours_does_not_take(shapes, options, reason):
    q, k = (torch.randn(shape) for shape in shapes)
    outs, calls = [], Calls()
    for mode in (BaseTorchFunctionMode(), AttentionMode(calls)):
        torch.manual_seed(7)
        with mode:
            outs.append(_said(lambda: F.scaled_dot_product_attention(q, k, k, **options)))
    assert outs[0] == outs[1]
    assert (calls.taken, calls.left) == (0, [reason])


def _said(call):
    """A result as numbers, or the error's text."""
    try:
        return call().tolist()
    except RuntimeError as error:
        return str(error)


# Of each kind: the layers within and what is fused, and without gradients the ops, with biases and without.
FEED_FORWARD = {
    "geglu": ("net.2(net.0.gelu(proj[1])·proj[0])", {"linear": 1, "gemm": 1}),
    "swiglu": ("net.2(net.0.silu(proj[1])·proj[0])", {"linear": 1, "gemm": 1}),
    "gelu": ("net.0.proj+gelu+net.2", {"gemm_gemm": 1}),
    "gelu-approximate": ("net.0.proj+gelu_tanh+net.2", {"gemm_gemm": 1}),
    "linear-silu": ("net.0.proj+silu+net.2", {"gemm_gemm": 1}),
}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "plain"])
@pytest.mark.parametrize(
    ("kind", "note", "ops"), [(kind, *row) for kind, row in FEED_FORWARD.items()], ids=FEED_FORWARD
)
def test_feed_forward(kind, note, ops, bias):
    model, x = FeedForward(16, mult=2, activation_fn=kind, bias=bias, dropout=0.3).eval(), torch.randn(2, 5, 16)
    plain, classes = copy.deepcopy(model), [type(module) for module in model.modules()]
    record = wmma_ops.swap_(model)
    assert record.swapped[0] == ("", "FeedForward", note)
    assert not record.left
    with torch.no_grad(), ran() as counts:
        torch.testing.assert_close(model(x), plain(x))
    assert counts == (ops if bias else {"gemm_gemm": 1})
    assert_no_worse(results(model, x), results(plain, x), exact(plain, x))
    with torch.no_grad(), ran() as counts:
        torch.testing.assert_close(model.net[0](x), plain.net[0](x))
    assert counts == ({"gemm": 1} if "glu" in kind and kind != "gelu" else {"linear": 1})
    outs = []
    for one in (plain.train(), model.train()):  # dropout between the layers
        torch.manual_seed(3)
        outs.append(one(x))
    torch.testing.assert_close(*outs)
    seen = []
    model.eval().net[0].register_forward_hook(lambda module, args, out: seen.append(out))
    torch.testing.assert_close(model(x), plain.eval()(x))
    assert len(seen) == 1
    wmma_ops.restore_(model)
    assert [type(module) for module in model.modules()] == classes


def test_feed_forward_that_is_left_says_so():
    record = wmma_ops.swap_(FeedForward(16, activation_fn="geglu-approximate"))
    assert [(row.kind, row.note[:24]) for row in record.left] == [("ApproximateGELU", "could be fused, was not:")]


def test_feed_forward_compiled_and_in_a_model():
    model, x = FeedForward(16, mult=2, bias=False).eval(), torch.randn(5, 16)
    want = model(x)
    wmma_ops.swap_(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        compiled(x)
    with torch.no_grad(), ran() as counts:
        torch.testing.assert_close(compiled(x), want)
    assert counts == {"gemm_gemm": 1}
    model, inputs = _made(_unet)
    model.eval()
    with torch.no_grad():
        want = model(**inputs).sample
    notes = [row.note for row in wmma_ops.swap_(model).swapped if row.kind == "FeedForward"]
    assert notes == ["net.2(net.0.gelu(proj[1])·proj[0])"] * 4
    with torch.no_grad(), ran() as counts:
        torch.testing.assert_close(model(**inputs).sample, want, rtol=1e-4, atol=1e-4)
    assert counts["gemm"] == 4
