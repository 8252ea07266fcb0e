"""Layers on our ops: results and gradients beside torch's own layers, and their state_dicts in both directions."""

import contextlib
import copy
import pickle
import timeit

import pytest
import torch
import torch.nn.functional as F
from dropped import attend, drops_as_ours
from layer_models import activated, assert_no_worse, assert_within, exact, layer, results
from op_counts import ran
from torch import nn

import wmma_ops
from wmma_ops.ops import activations
from wmma_ops.testing import reference

TYPES = [torch.float32, torch.bfloat16]
NAMES = [activation.name for activation in activations.BUILTIN]


def _activation(name):
    """The activation as a torch module, as users write it."""
    return {
        "none": nn.Identity(),
        "relu": nn.ReLU(),
        "gelu": nn.GELU(),
        "gelu_tanh": nn.GELU(approximate="tanh"),
        "silu": nn.SiLU(),
        "sigmoid": nn.Sigmoid(),
        "tanh": nn.Tanh(),
        "leaky_relu": nn.LeakyReLU(),
    }[name]


class _Gated(nn.Module):
    def __init__(self, sizes, activation, bias, dtype):
        super().__init__()
        size, hidden = sizes
        self.gate_proj = nn.Linear(size, hidden, bias, dtype=dtype)
        self.up_proj = nn.Linear(size, hidden, bias, dtype=dtype)
        self.down_proj = nn.Linear(hidden, size, bias, dtype=dtype)
        self.act_fn = _activation(activation)

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_linear(name, dtype):
    plain = nn.Linear(24, 17, dtype=dtype)
    ours = wmma_ops.nn.Linear(24, 17, dtype=dtype, activation=None if name == "none" else name)
    ours.load_state_dict(plain.state_dict())
    x = torch.randn(3, 5, 24, dtype=dtype)
    with torch.no_grad(), ran() as counts:
        got = ours(x)
    assert counts == {"linear": 1}
    value = activated(layer(reference.exact(x), plain, dtype), name, dtype).rounded(dtype)
    assert_within(got, value)
    both = nn.Sequential(plain, _activation(name))
    want = dict(zip(results(ours, x), exact(both, x).values(), strict=True))
    torchs = dict(zip(want, results(both, x).values(), strict=True))
    for recompute in (False, True):
        ours.recompute = recompute
        assert_no_worse(results(ours, x), torchs, want)
    assert plain.load_state_dict(ours.state_dict())


def test_training_multiplies_no_more_often_than_torch():
    x = torch.randn(4, 8, requires_grad=True)
    for name, recompute, backward in (("gelu", False, 2), ("relu", False, 2), ("gelu", True, 3)):
        model = wmma_ops.nn.Linear(8, 6, activation=name, recompute=recompute)
        with wmma_ops.emulate("gfx942") as emulation:  # products, and one pass for what is no product
            y = model(x).sum()
            forward = len(emulation.launches)
            y.backward()
        assert (forward, len(emulation.launches) - forward) == (1, backward + 1), (name, recompute)


MLPS = [(name, gated, gated, TYPES[gated]) for name in NAMES[1:] for gated in (True, False)]
MLPS += [("silu", True, False, dtype) for dtype in TYPES] + [("gelu", False, True, dtype) for dtype in TYPES]


@pytest.mark.parametrize(("name", "gated", "bias", "dtype"), MLPS)
def test_mlp(name, gated, bias, dtype):
    if gated:
        plain = _Gated((20, 33), name, bias, dtype)
    else:
        layers = nn.Linear(20, 33, bias, dtype=dtype), nn.Linear(33, 20, bias, dtype=dtype)
        plain = nn.Sequential(layers[0], _activation(name), layers[1])
    ours = wmma_ops.nn.FusedMLP(20, 33, activation=name, gated=gated, bias=bias, dtype=dtype)
    ours.load_state_dict(plain.state_dict())
    assert list(ours.state_dict()) == list(plain.state_dict())
    x = torch.randn(2, 7, 20, dtype=dtype)
    with torch.no_grad(), ran() as counts:
        got = ours(x)
    assert counts == ({"linear": 1, "gemm": 1} if gated and bias else {"gemm_gemm": 1})
    assert_within(got, _mlp_value(plain, x, name, dtype))
    want, torchs = exact(plain, x), results(plain, x)
    for recompute in (False, True):
        ours.recompute = recompute
        assert_no_worse(results(ours, x), torchs, want)
    torch.testing.assert_close(ours(x[0, 0]), ours(x)[0, 0])  # one row


def _mlp_value(plain, x, name, dtype):
    u = reference.unit(reference.accumulator(dtype))
    layers = [child for child in plain.children() if isinstance(child, nn.Linear)]
    hidden = activated(layer(reference.exact(x), layers[0], dtype), name, dtype)
    if len(layers) == 3:
        gate = layer(reference.exact(x), layers[1], dtype)
        hidden = hidden.by(gate, u)
    return layer(hidden.rounded(dtype), layers[-1], dtype).rounded(dtype)


def test_mlp_with_names_registered_activation_and_dropout():
    if "test_cube" not in activations.names():
        wmma_ops.register_activation(
            "test_cube", device="x * x * x", forward=lambda x: x**3, derivative=lambda x: 3 * x**2
        )
    model = wmma_ops.nn.FusedMLP(8, 12, 5, activation="test_cube", names=("fc1", "fc2"), dropout=0.5)
    assert set(model.state_dict()) == {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}
    x = torch.randn(6, 8)
    torch.manual_seed(3)
    got = model(x)
    torch.manual_seed(3)
    torch.testing.assert_close(got, model.fc2(F.dropout(model.fc1(x) ** 3, 0.5)))
    model.eval()
    torch.testing.assert_close(model(x), model.fc2(model.fc1(x) ** 3))


def test_a_hook_on_a_layer_of_an_mlp_runs():
    model, seen = wmma_ops.nn.FusedMLP(8, 12), []
    want = model(torch.ones(2, 8))
    model._modules["0"].register_forward_hook(lambda module, args, out: seen.append(out.shape))
    torch.testing.assert_close(model(torch.ones(2, 8)), want)
    assert seen == [(2, 12)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_lora_takes_about_as_long_as_its_layer(dtype):
    """A weight that is laid out anew for every call would take tens of times as long."""
    model, x = wmma_ops.nn.LoRALinear(2048, 2048, rank=4, dtype=dtype), torch.ones(1, 2048, dtype=dtype)

    def seconds(call):
        with torch.no_grad():
            return min(timeit.repeat(lambda: call(x), number=1, repeat=10))

    assert seconds(model) < 20 * seconds(lambda x: F.linear(x, model.weight, model.bias))


def test_a_hook_on_lora_runs_once_for_a_vector():
    model, seen = wmma_ops.nn.LoRALinear(8, 12, rank=2), []
    model.register_forward_hook(lambda module, args, out: seen.append((args[0].shape, out.shape)))
    model(torch.ones(8))
    assert seen == [((8,), (12,))]


@pytest.mark.parametrize("autocast", [False, True])
def test_a_large_factor_of_lora_leaves_float16_its_range(autocast):
    model = wmma_ops.nn.LoRALinear(64, 16, rank=2, alpha=64.0, bias=False, dtype=None if autocast else torch.float16)
    with torch.no_grad():
        model.lora_a.weight.fill_(60.0)
        model.lora_b.weight.fill_(2.0**-10)
    x = torch.ones(3, 64, dtype=model.weight.dtype)
    with torch.no_grad(), torch.autocast("cpu", torch.float16, enabled=autocast):
        got = model(x) - F.linear(x, model.weight)
    torch.testing.assert_close(got.float(), torch.full((3, 16), 240.0), rtol=1e-2, atol=0)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_lora(dtype):
    ours = wmma_ops.nn.LoRALinear(24, 20, rank=4, alpha=6.0, dropout=0.5, dtype=dtype)
    nn.init.normal_(ours.lora_b.weight)
    x = torch.randn(3, 24, dtype=dtype)

    class Plain(nn.Linear):
        def __init__(self):
            super().__init__(24, 20, dtype=dtype)
            self.lora_a = nn.Linear(24, 4, bias=False, dtype=dtype)
            self.lora_b = nn.Linear(4, 20, bias=False, dtype=dtype)

        def forward(self, x):
            return F.linear(x, self.weight, self.bias) + self.lora_b(self.lora_a(x)) * (6.0 / 4)

    plain = Plain()
    plain.load_state_dict(ours.state_dict())
    for parameter in (plain.weight, plain.bias):
        parameter.requires_grad_(False)
    ours.eval()
    with torch.no_grad(), ran() as counts:
        ours(x)
    assert counts == {"gemm": 2}
    assert_no_worse(results(ours, x), results(plain, x), exact(plain, x))
    torch.testing.assert_close(ours(x[0]), ours(x)[0])
    ours.train()
    torch.manual_seed(1)
    got = ours(x)
    torch.manual_seed(1)
    dropped = F.dropout(x, 0.5)
    want = F.linear(x, ours.weight, ours.bias) + ours.lora_b(ours.lora_a(dropped)) * 1.5
    torch.testing.assert_close(got, want, rtol=3e-2, atol=3e-2)


def test_lora_loads_a_linear_and_a_peft_layer_and_no_half_of_one():
    plain, ours = nn.Linear(8, 6), wmma_ops.nn.LoRALinear(8, 6, rank=2)
    nn.init.normal_(ours.lora_b.weight)
    before = ours.lora_a.weight.clone()
    model = nn.Sequential(ours)
    model.load_state_dict(nn.Sequential(plain).state_dict())
    torch.testing.assert_close(ours.weight, plain.weight)
    torch.testing.assert_close(ours.lora_a.weight, before)
    peft = {
        "base_layer.weight": torch.ones(6, 8),
        "base_layer.bias": torch.ones(6),
        "lora_A.default.weight": torch.full((2, 8), 2.0),
        "lora_B.default.weight": torch.full((6, 2), 3.0),
    }
    model.load_state_dict({f"0.{key}": x for key, x in peft.items()})
    assert ours.lora_a.weight.unique().tolist() == [2.0]
    assert ours.lora_b.weight.unique().tolist() == [3.0]
    assert ours(torch.ones(8)).tolist() == [9.0 + 2 * 16 * 3 * 8] * 6  # alpha / rank is 8
    with pytest.raises(RuntimeError, match=r"Missing key.*lora_b\.weight"):
        model.load_state_dict({f"0.{key}": x for key, x in peft.items() if "lora_B" not in key})
    with pytest.raises(RuntimeError, match="Unexpected key"):
        model.load_state_dict({f"0.{key}": x for key, x in {**peft, "lora_A.other.weight": torch.ones(2, 8)}.items()})
    del peft["base_layer.bias"]
    with pytest.raises(RuntimeError, match=r"Missing key.*bias"):
        model.load_state_dict({f"0.{key}": x for key, x in peft.items()})


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "plain"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
def test_attention(causal, bias, dtype):
    plain = nn.MultiheadAttention(32, 4, bias=bias, batch_first=True, dtype=dtype)
    ours = wmma_ops.nn.Attention(32, 4, bias=bias, is_causal=causal, dtype=dtype)
    ours.load_state_dict(plain.state_dict())
    assert list(ours.state_dict()) == list(plain.state_dict())
    x = torch.randn(2, 9, 32, dtype=dtype)
    later = torch.ones(9, 9, dtype=torch.bool).triu(1) if causal else None

    class Self(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain = plain

        def forward(self, x):
            return self.plain(x, x, x, need_weights=False, attn_mask=later)[0]

    with torch.no_grad(), ran() as counts:
        ours(x)
    assert counts == {"linear": 2, "attention": 1}
    got = {name if name in ("output", "input 0") else f"plain.{name}": one for name, one in results(ours, x).items()}
    assert_no_worse(got, results(Self(), x), exact(Self(), x))
    torch.testing.assert_close(ours(x[0]), ours(x)[0])  # without a batch
    if not causal:
        seen = torch.rand(9, 9) < 0.7
        want = plain(x, x, x, need_weights=False, attn_mask=~seen)[0]
        torch.testing.assert_close(ours(x, seen), want, rtol=2e-2, atol=2e-2)


def test_attention_with_grouped_heads_and_dropout():
    ours = wmma_ops.nn.Attention(32, 8, num_kv_heads=2, dropout=0.25)
    x = torch.randn(2, 6, 32)
    q, k, v = F.linear(x, ours.in_proj_weight, ours.in_proj_bias).split((32, 8, 8), -1)
    q, k, v = (one.unflatten(-1, (-1, 4)).transpose(1, 2) for one in (q, k, v))
    k, v = (one.repeat_interleave(4, 1) for one in (k, v))
    for training in (True, False):
        ours.train(training)
        torch.manual_seed(5)
        got = ours(x)
        torch.manual_seed(5)
        attended = attend(q, k, v, dropout_p=0.25 if training else 0.0)
        torch.testing.assert_close(got, ours.out_proj(attended.transpose(1, 2).flatten(2)))


def _multi_head_cases():
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = True
    seed = torch.Generator().manual_seed(0)
    each = torch.zeros(12, 5, 5).masked_fill(torch.rand(12, 5, 5, generator=seed) < 0.3, -torch.inf)
    each[:, :, 0] = 0
    yield "plain", {}, {}
    yield "batch first", {"batch_first": True}, {}
    yield "causal hint", {}, {"attn_mask": later, "is_causal": True}
    yield "causal hint and padding", {}, {"attn_mask": later, "is_causal": True, "key_padding_mask": padding}
    yield "padding", {"batch_first": True}, {"key_padding_mask": padding}
    yield "added mask", {}, {"attn_mask": torch.randn(5, 5, generator=seed)}
    yield "a mask for each head", {}, {"attn_mask": each}
    yield "added and padding", {}, {"attn_mask": each, "key_padding_mask": torch.zeros(3, 5).masked_fill(padding, -9.0)}
    yield "no bias", {"bias": False}, {}
    yield "sizes of keys and values", {"kdim": 10, "vdim": 6}, {}
    yield "torch's own", {"add_bias_kv": True, "add_zero_attn": True}, {}


MULTI_HEAD = list(_multi_head_cases())


@pytest.mark.parametrize("weights", ["none", "average", "each"])
@pytest.mark.parametrize(("made", "called"), [case[1:] for case in MULTI_HEAD], ids=[case[0] for case in MULTI_HEAD])
def test_multi_head_attention(made, called, weights):
    called = {**called, "need_weights": weights != "none", "average_attn_weights": weights == "average"}
    plain, ours = (kind(16, 4, **made) for kind in (nn.MultiheadAttention, wmma_ops.nn.MultiheadAttention))
    ours.load_state_dict(plain.state_dict())
    leading = (3, 5) if made.get("batch_first") else (5, 3)
    x = torch.randn(*leading, 16)
    inputs = [x, x, x] if not made.get("kdim") else [x, torch.randn(5, 3, 10), torch.randn(5, 3, 6)]
    with ran() as counts:
        got = ours(*inputs, **called)
    want = plain(*inputs, **called)
    assert bool(counts) != bool(made.get("add_bias_kv"))
    for one, other in zip(got, want, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)
    if weights == "none" and not made:
        keys = torch.randn(5, 3, 16)
        for inputs in ((x, keys, keys), (x, keys, keys.clone()), (x, keys, x), (x, x, keys)):
            assert_no_worse(
                results(ours, *inputs, **called), results(plain, *inputs, **called), exact(plain, *inputs, **called)
            )


@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention_in_training_without_a_batch_and_blind(need_weights):
    plain, ours = (kind(16, 4, dropout=0.5) for kind in (nn.MultiheadAttention, wmma_ops.nn.MultiheadAttention))
    ours.load_state_dict(plain.state_dict())
    x, padding = torch.randn(5, 16), torch.tensor([False, False, True, True, True])
    outs = []
    for module in (plain, ours):
        torch.manual_seed(4)
        with contextlib.nullcontext() if need_weights else drops_as_ours():
            outs.append(module(x, x, x, padding, need_weights=need_weights))
        module.eval()
    torch.testing.assert_close(*outs)
    assert (outs[0][0] - ours(x, x, x, padding)[0]).abs().max() > 1e-3  # dropout did something
    blind = torch.ones(5, dtype=torch.bool)
    outs = [module(x, x, x, blind, need_weights=need_weights)[0] for module in (plain, ours)]
    torch.testing.assert_close(*outs, equal_nan=True)


MODULES = {
    "linear": lambda **made: wmma_ops.nn.Linear(16, 16, activation="silu", **made),
    "mlp": lambda **made: wmma_ops.nn.FusedMLP(16, 24, activation="gelu", **made),
    "gated": lambda **made: wmma_ops.nn.FusedMLP(16, 24, activation="silu", gated=True, bias=False, **made),
    "lora": lambda **made: wmma_ops.nn.LoRALinear(16, 16, rank=4, **made),
    "attention": lambda **made: wmma_ops.nn.Attention(16, 4, num_kv_heads=2, is_causal=True, **made),
}


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_compiled_copied_pickled_and_without_memory(make):
    model, x = make(), torch.randn(2, 6, 16)
    want = results(model, x)
    compiled = torch.compile(copy.deepcopy(model), fullgraph=True, backend="aot_eager")
    got = results(compiled, x)
    torch.testing.assert_close(list(got.values()), list(want.values()))
    with ran() as counts:
        torch.testing.assert_close(compiled(x), want["output"])
    assert counts
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(other(x), want["output"])
    empty = make(device="meta")
    assert empty(x.to("meta")).shape == x.shape
    empty.to_empty(device="cpu").load_state_dict(model.state_dict())
    torch.testing.assert_close(empty(x), want["output"])


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_autocast(make):
    model, x = make(), torch.randn(2, 6, 16)
    want = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        out = model(x)
        out.float().sum().backward()
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), want, rtol=5e-2, atol=5e-2)
    assert all(p.grad.dtype == torch.float32 for p in model.parameters() if p.requires_grad)


BAD = [
    (lambda: wmma_ops.nn.Linear(4, 4, activation="gelo"), ValueError, r"nn\.Linear: activation is 'gelo' .*'gelu'"),
    (lambda: wmma_ops.nn.Linear(4, 4)(torch.ones(2, 5)), ValueError, r"wmma\.linear: weight has shape"),
    (lambda: wmma_ops.nn.Linear(4, 4)(torch.ones(2, 4).half()), TypeError, r"wmma\.linear: weight is float32"),
    (lambda: wmma_ops.nn.FusedMLP(4, 8, activation=3), TypeError, r"nn\.FusedMLP: activation is of type int"),
    (lambda: wmma_ops.nn.FusedMLP(4, 8, names=("a", "a")), ValueError, r"names is \('a', 'a'\); takes 2 different"),
    (lambda: wmma_ops.nn.FusedMLP(4, 8, gated=True, names=("a", "b")), ValueError, "takes 3 different names"),
    (lambda: wmma_ops.nn.LoRALinear(4, 8, rank=0), ValueError, r"rank is 0; takes an int of 1 or more"),
    (lambda: wmma_ops.nn.Attention(10, 4), ValueError, r"num_heads is 4; takes a divisor of embed_dim, 10"),
    (lambda: wmma_ops.nn.Attention(12, 4, num_kv_heads=3), ValueError, r"num_kv_heads is 3; takes a divisor"),
    (lambda: wmma_ops.nn.Attention(12, 4)(torch.ones(12)), ValueError, r"input has shape \[12\]; takes"),
    (
        lambda: wmma_ops.nn.Attention(4, 4, is_causal=True)(torch.ones(2, 4), torch.ones(2, 2, dtype=torch.bool)),
        ValueError,
        "mask is given to a causal layer",
    ),
    (lambda: _attend(attn_mask=torch.ones(2, 3)), ValueError, r"attn_mask has shape \[2, 3\]; takes \[3, 3\] or"),
    (lambda: _attend(key_padding_mask=torch.ones(2, 3)), ValueError, r"key_padding_mask has shape \[2, 3\]"),
    (lambda: _attend(attn_mask=torch.ones(3, 3).int()), TypeError, r"a mask is torch\.int32; takes bool or"),
    (lambda: _attend(is_causal=True), ValueError, "is_causal is a hint about attn_mask"),
    (lambda: _attend(keys=torch.ones(3, 2, 4)), ValueError, "are batches of 1, 2 and 2; takes one size of all"),
    (lambda: _attend(keys=torch.ones(3, 4)), ValueError, "have 3, 2 and 2 dimensions; takes 2 of all, or 3"),
    (lambda: _attend(torch.ones(3)), ValueError, r"an input has shape \[3\]; takes 2 dimensions, or 3"),
]


def _attend(x=None, keys=None, **options):
    x = torch.ones(3, 1, 4) if x is None else x
    keys = x if keys is None else keys
    return wmma_ops.nn.MultiheadAttention(4, 2)(x, keys, keys, **options)


@pytest.mark.parametrize(("call", "kind", "text"), BAD, ids=[case[2][:40] for case in BAD])
def test_bad_input(call, kind, text):
    with pytest.raises(kind, match=text):
        call()
