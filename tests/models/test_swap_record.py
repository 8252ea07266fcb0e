"""What the record of swap_ says of that which stays torch's: each kind with its number, the reason, and what takes it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import wmma_ops


class Own(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 8))

    def forward(self, x):
        return F.linear(x, self.weight)


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.places, self.first, self.scale = (nn.Parameter(torch.ones(*size)) for size in ((2, 8), (1, 8), (8,)))

    def forward(self, x):
        return (x + self.places + self.first) * self.scale


class Sdpa(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x)


class ByHand(nn.Module):
    def forward(self, x):
        return torch.matmul(torch.matmul(x, x.mT).softmax(-1), x)


class Packed(nn.Module):
    """As GPTQ and AWQ have a linear layer's weight."""

    def __init__(self):
        super().__init__()
        self.register_buffer("qweight", torch.ones(1, 8, dtype=torch.int32))


class QuantLinear(Packed):
    pass


WITHIN = "within wmma_ops.swapped() its calls of {} are ours"
LEFT = {
    "convolution": (lambda: nn.Conv2d(3, 4, 3), "a convolution, which no layer of ours is"),
    "parametrized": (lambda: nn.utils.parametrizations.weight_norm(nn.Conv1d(2, 2, 1)), "a convolution, which no"),
    "lazy": (lambda: nn.LazyConv2d(4, 3), "a convolution, which no layer of ours is"),
    "recurrent": (lambda: nn.LSTM(4, 4), "recurrent: its products are inside of torch's own functions"),
    "cell": (lambda: nn.GRUCell(4, 4), "recurrent"),
    "bilinear": (lambda: nn.Bilinear(2, 3, 4), "multiplies two inputs by one weight"),
    "embedding": (lambda: nn.Embedding(2, 3), "looks rows up: no product"),
    "norm": (lambda: nn.LayerNorm(4), "scales or shifts elements: no product"),
    "subclass": (lambda: Own(4, 4), "its class has a forward of its own"),
    "quantised": (lambda: torch.ao.nn.quantized.dynamic.Linear(4, 4), "its weight is quantised and packed"),
    "packed": (QuantLinear, "its weight is quantised and packed"),
    "script": (lambda: torch.jit.script(nn.Conv1d(2, 2, 1)), "compiled by torch.jit; swap before that"),
    "router": (Router, f"computes with weight in a forward of its own; {WITHIN.format('linear')}"),
    "positions": (Positions, "computes with places, first in a forward of its own"),
    "sdpa": (Sdpa, f"its attention is torch's; {WITHIN.format('scaled_dot_product_attention')}"),
    "by hand": (ByHand, f"its attention is of products and a softmax; {WITHIN.format('matmul')}"),
}


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated", "ignore:.*torch.jit.script.*")
@pytest.mark.parametrize(("make", "reason"), LEFT.values(), ids=LEFT)
def test_every_kind_is_named_with_its_reason(make, reason):
    module = make()
    record = wmma_ops.swap_(nn.ModuleList([nn.ReLU(), module, module]))  # one object counts once
    assert [(row.name, row.kind) for row in record.left] == [("1", type(module).__name__)]
    assert record.left[0].note.startswith(reason)
    assert not record.swapped


def test_what_is_within_swapped_is_counted_there():
    model, x = nn.Sequential(Router(), Sdpa(), ByHand()), torch.randn(1, 3, 8)
    with wmma_ops.swapped() as calls:
        model(x)
    assert calls.taken == {"linear": 1, "scaled_dot_product_attention": 1, "matmul": 2}


class Residual(nn.Module):
    """Of convolutions; a linear layer that no activation follows is beside them."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.relu = nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3), nn.ReLU()
        self.shift = nn.Linear(4, 4)

    def forward(self, x):
        return self.relu(self.conv2(self.relu(self.conv1(x)))) + self.shift(x.mean((2, 3)))[..., None, None]


class Branching(Residual):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


@pytest.mark.parametrize("kind", [Residual, Branching])
def test_blocks_of_convolutions_could_not_be_fused(kind):
    record = wmma_ops.swap_(nn.Sequential(kind(), kind()))
    assert str(record).splitlines() == [
        "swapped: 2",
        "  *.shift ×2  Linear",
        "left: 4",
        "  *.conv1, … ×4  Conv2d  a convolution, which no layer of ours is",
    ]


TINY = {
    "vocab_size": 16,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


def _kinds(record) -> dict[str, str]:
    return {row.kind: row.note for row in record.left}


def test_a_mixture_of_experts_and_what_takes_the_rest_of_it():
    transformers = pytest.importorskip("transformers")
    from wmma_ops.integrations import transformers as wmma_transformers

    config = transformers.MixtralConfig(**TINY, num_local_experts=2, num_experts_per_tok=1)
    model = transformers.MixtralForCausalLM(config).eval()
    told = str(wmma_ops.swap_(model)).partition("left: ")[2].splitlines()
    assert told[0] == "7"
    assert [line.split("  ")[1] for line in told[1:]] == [
        "model.embed_tokens",
        "model.layers.*.self_attn ×2",
        "model.layers.*.mlp.gate ×2",
        "model.layers.*.mlp.experts ×2",
    ]
    # And it is as the record says.
    kinds = _kinds(wmma_ops.swap_(model))
    assert kinds["MixtralAttention"] == (
        "its attention is sdpa; call wmma_ops.integrations.transformers.register(), then "
        "model.set_attn_implementation('wmma')"
    )
    wmma_transformers.register()
    model.set_attn_implementation("wmma")
    assert "call model.set_experts_implementation('eager'); within wmma_ops.swapped()" in kinds["MixtralExperts"]
    model.set_experts_implementation("eager")
    kinds = _kinds(wmma_ops.swap_(model))
    assert "MixtralAttention" not in kinds
    assert kinds["MixtralExperts"].startswith("computes with gate_up_proj, down_proj in a forward of its own; within")
    with torch.no_grad(), wmma_ops.swapped() as calls:
        model(torch.arange(8)[None])
    assert calls.taken["linear"] > config.num_hidden_layers  # beside the routers'
    assert not calls.left


def test_attention_of_diffusers():
    attention_processor = pytest.importorskip("diffusers.models.attention_processor")
    from wmma_ops.integrations import diffusers

    model = nn.Sequential(attention_processor.Attention(16, heads=2, dim_head=8))
    assert "diffusers.swap_processors(model)" in _kinds(wmma_ops.swap_(model))["Attention"]
    diffusers.swap_processors(model)
    assert "Attention" not in _kinds(wmma_ops.swap_(model))
