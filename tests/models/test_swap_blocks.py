"""Which modules `swap_` knows for what they compute, which it leaves and why, and the layers of transformers."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from layer_models import Gated, Mlp, assert_no_worse, exact, results
from op_counts import ran
from torch import nn

import wmma_ops


@pytest.mark.parametrize(
    ("activation", "name"),
    [
        (nn.ReLU(inplace=True), "relu"),
        (nn.LeakyReLU(0.01), "leaky_relu"),
        (nn.LeakyReLU(0.2), None),
        (nn.Sigmoid(), "sigmoid"),
        (nn.GELU("tanh"), "gelu_tanh"),
        (nn.Hardswish(), None),
        (nn.PReLU(), None),
        (nn.Softmax(-1), None),
    ],
    ids=str,
)
def test_which_activations_join_a_layer(activation, name):
    model, x = nn.Sequential(nn.Linear(8, 8), activation), torch.randn(3, 8)
    want = model(x)
    record = wmma_ops.swap_(model)
    assert [row.note for row in record.swapped] == ([f"0+{name}", ""] if name else [""])
    torch.testing.assert_close(model(x), want)
    with torch.no_grad():
        torch.testing.assert_close(model(x), want)


FUNCTIONS = {
    "relu": (F.relu, "relu"),
    "method": (lambda x: x.sigmoid(), "sigmoid"),
    "in place": (lambda x: F.silu(x, inplace=True), "silu"),
    "tanh": (torch.tanh, "tanh"),
    "gelu": (lambda x: F.gelu(x, approximate="tanh"), "gelu_tanh"),
    "leaky": (F.leaky_relu, "leaky_relu"),
    "another slope": (lambda x: F.leaky_relu(x, negative_slope=0.2), None),
    "softmax": (lambda x: F.softmax(x, -1), None),
}


@pytest.mark.parametrize(("function", "name"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_which_functions_join_a_layer(function, name):
    class Chained(Mlp):
        def forward(self, x):
            return self.fc2(function(self.fc1(x)))

    model, x = Chained(), torch.randn(3, 16)
    want = model(x)
    record = wmma_ops.swap_(model)
    assert {row.name: row.note for row in record.swapped}.get("") == (f"fc1+{name}+fc2" if name else None)
    with torch.no_grad():
        torch.testing.assert_close(model(x), want)


def _foreign(forward):
    return type("Foreign", (Gated,), {"forward": forward})


def _without_gradients(self, x):
    with torch.no_grad():
        h = self.act_fn(self.gate_proj(x))
    return self.down_proj(h * self.up_proj(x))


def _without_autocast(self, x):
    with torch.autocast("cpu", enabled=False):
        return Gated.forward(self, x)


FOREIGN = {
    "no_grad": (torch.no_grad()(Gated.forward), "switches gradients"),
    "no_grad inside": (_without_gradients, "switches gradients"),
    "autocast off": (_without_autocast, "switches gradients, inference mode or autocast"),
    "dropout": (lambda self, x: F.dropout(Gated.forward(self, x), 0.5, self.training), "neither a chain"),
    "training": (lambda self, x: Gated.forward(self, x) if self.training else self.act_fn(x), "differs in training"),
    "sizes": (lambda self, x: Gated.forward(self, x) if x.shape[0] > 2 else x, "cannot be traced"),
    "clamp": (
        lambda self, x: self.down_proj(self.act_fn(self.gate_proj(x)).clamp(max=7) * self.up_proj(x)),
        "neither a chain",
    ),
    "sum": (lambda self, x: self.down_proj(self.act_fn(self.gate_proj(x)) + self.up_proj(x)), "neither a chain"),
    "twice": (lambda self, x: self.down_proj(self.act_fn(self.gate_proj(x)) * self.gate_proj(x)), None),
    "up of up": (lambda self, x: self.down_proj(self.act_fn(self.up_proj(x)) * self.gate_proj(x)), None),
    "device": (lambda self, x: Gated.forward(self, x) if x.device.type == "cpu" else self.act_fn(x), "or by device"),
    "of another": (
        lambda self, x: self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x + 1)),
        "neither a chain",
    ),
}


@pytest.mark.parametrize(("forward", "reason"), FOREIGN.values(), ids=FOREIGN)
def test_a_block_is_known_by_its_forward_and_not_by_names(forward, reason):
    model, x = _foreign(forward)().eval(), torch.randn(3, 16)
    plain = copy.deepcopy(model)
    record = wmma_ops.swap_(model)
    if reason is not None:
        assert [row.name for row in record.left] == [""]
        assert reason in record.left[0].note
    assert len(record.swapped) == (3 if reason else 4)  # the layers, and perhaps the block
    for train in (False, True):
        outs = []
        for one in (plain.train(train), model.train(train)):
            torch.manual_seed(1)
            outs.append(one(x))
        torch.testing.assert_close(*outs)
        assert outs[0].requires_grad == outs[1].requires_grad


def test_a_block_whose_parts_change_or_that_gets_more_arguments_is_itself():
    class More(Gated):
        def forward(self, x, factor=1):
            return super().forward(x) * factor

    class Extra(Gated):
        def forward(self, x, *more):
            return super().forward(x)

    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate_proj, self.up_proj, self.down_proj = (nn.Linear(16, 16) for _ in range(3))

        def forward(self, x):
            h = self.gate_proj(x)
            return self.down_proj(F.silu(h) * self.up_proj(h))  # of h, not of x

    for kind in (More, Square):
        note = wmma_ops.swap_(kind()).left[0].note
        assert note.startswith("could be fused, was not: its forward is neither")
    more, x = Extra(), torch.randn(3, 16)
    assert wmma_ops.swap_(more).swapped[0].name == ""
    torch.testing.assert_close(more(x, 1), more(x))
    model, x = Gated(), torch.randn(3, 16)
    wmma_ops.swap_(model)
    with pytest.raises(TypeError, match="takes 2 positional arguments but 3 were given"):
        model(x, 1)
    for name, part in (("act_fn", nn.ReLU()), ("up_proj", nn.Linear(16, 24))):
        setattr(model, name, part)
        torch.testing.assert_close(model(x), Gated.forward(model, x))
    model.up_proj = None
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        model(x)
    assert type(wmma_ops.restore_(model)) is list
    assert type(model) is Gated


def test_a_function_in_a_chain_keeps_its_options_when_it_is_called_by_itself():
    class Chained(Mlp):
        def forward(self, x):
            return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))

    model, x = Chained(), 4 * torch.randn(3, 16)
    want = model(x)
    wmma_ops.swap_(model)
    model.fc1.register_forward_hook(lambda module, args, out: None)
    torch.testing.assert_close(model(x), want, rtol=1e-6, atol=1e-6)
    assert (want - model.fc2(F.gelu(model.fc1(x)))).abs().max() > 1e-5


@pytest.mark.parametrize("make", [Mlp, Gated])
def test_a_block_takes_its_input_by_name(make):
    model, x = make().eval(), torch.randn(3, 16)
    want = model(x=x)
    assert wmma_ops.swap_(model).swapped[0].name == ""
    torch.testing.assert_close(model(x=x), want)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        model()


class ByMode(nn.Module):
    def forward(self, x):
        return F.relu(x) if self.training else F.gelu(x)


def test_an_activation_that_differs_in_training_is_called():
    model, x = Gated(), torch.randn(3, 16)
    model.act_fn = ByMode()
    wmma_ops.swap_(model)
    for train in (True, False):
        model.train(train)
        torch.testing.assert_close(model(x), Gated.forward(model, x))


class Packed(nn.Module):
    """A gate and what it is multiplied by from one product, as GEGLU and Phi's have it."""

    def __init__(self, bias=True):
        super().__init__()
        self.both, self.down = nn.Linear(16, 48, bias), nn.Linear(24, 16, bias)

    def forward(self, x):
        up, gate = self.both(x).chunk(2, dim=-1)
        return self.down(up * F.gelu(gate))


def _by_parts(cut):
    return type("Packed", (Packed,), {"forward": lambda self, x: self.down(cut(self.both(x)))})


def _silu_first(h):
    gate, up = torch.chunk(h, 2, -1)
    return F.silu(gate) * up


def _third(h):
    one, other, _ = h.chunk(3, -1)
    return F.pad(one * F.gelu(other), (0, 8))


PACKED = {
    "second": (Packed, "down(gelu(both[1])·both[0])"),
    "first": (_by_parts(_silu_first), "down(silu(both[0])·both[1])"),
    "method": (_by_parts(lambda h: (lambda c: c[0].tanh() * c[1])(h.chunk(2, -1))), "down(tanh(both[0])·both[1])"),
    "rows": (_by_parts(lambda h: (lambda c: F.gelu(c[0]) * c[1])(h.chunk(2, 0))[:, :24]), None),
    "one of three": (_by_parts(_third), None),
    "itself": (_by_parts(lambda h: (lambda c: F.gelu(c[0]) * c[0])(h.chunk(2, -1))), None),
}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "plain"])
@pytest.mark.parametrize(("kind", "note"), PACKED.values(), ids=PACKED)
def test_a_gate_from_the_halves_of_one_product(kind, note, bias):
    model, x = kind(bias), torch.randn(4, 16)
    plain = copy.deepcopy(model)
    record = wmma_ops.swap_(model)
    if note is None:
        assert [row.note[:24] for row in record.left] == ["could be fused, was not:"]
    else:
        assert record.swapped[0] == ("", "Packed", note)
        with torch.no_grad(), ran() as counts:
            torch.testing.assert_close(model(x[0]), plain(x[0]))
        assert counts == ({"linear": 1, "gemm": 1} if bias else {"gemm_gemm": 1})
    assert_no_worse(results(model, x), results(plain, x), exact(plain, x))
    with torch.no_grad():
        torch.testing.assert_close(model(x), plain(x))
    handle = model.both.register_forward_hook(lambda module, args, out: 2 * out)
    torch.testing.assert_close(model(x), kind.forward(model, x))
    handle.remove()
    model.both = nn.Linear(16, 48)  # torch's own
    torch.testing.assert_close(model(x), kind.forward(model, x))
    wmma_ops.restore_(model)
    assert type(model) is kind


def test_a_gate_that_broadcasts():
    class Scalar(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.up, self.down = (nn.Linear(*sizes, False) for sizes in ((8, 1), (8, 16), (16, 8)))

        def forward(self, x):
            return self.down(torch.sigmoid(self.gate(x)) * self.up(x))

    model, x = Scalar(), torch.randn(3, 8)
    want = model(x)
    assert "differ in size" in wmma_ops.swap_(model).left[0].note
    wide = Scalar()
    wide.gate = nn.Linear(8, 16, False)
    wmma_ops.swap_(wide)
    wide.gate, wide.up, wide.down = model.gate, model.up, model.down  # swapped, too
    with torch.no_grad():
        torch.testing.assert_close(model(x), want)
        torch.testing.assert_close(wide(x), want)


class Own(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


def _parametrized():
    return nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))


def _patched():
    layer = nn.Linear(4, 4)
    layer.forward = lambda x: x
    return layer


def _tensor_subclass():
    class Mine(torch.Tensor):
        pass

    layer = nn.Linear(4, 4)
    layer.weight = nn.Parameter(torch.ones(4, 4).as_subclass(Mine))
    return layer


def _with_activation(*sizes):
    layer = nn.Linear(*sizes)
    layer.activation = "relu"  # a note of the user's: torch's forward does not read it
    return layer


LEFT = {
    "class": (lambda: Own(4, 4), "its class has a forward of its own"),
    "parametrized": (_parametrized, "it is parametrized"),
    "patched": (_patched, "its forward was replaced on the instance"),
    "complex": (lambda: nn.Linear(4, 4, dtype=torch.complex64), "its weight is complex64; taken are float16"),
    "lazy": (lambda: nn.LazyLinear(4), "its weight is not initialised yet"),
    "tensor": (_tensor_subclass, "its weight is a Mine; taken are plain tensors"),
    "keys": (lambda: nn.MultiheadAttention(4, 2, add_zero_attn=True), "add_bias_kv and add_zero_attn are torch's"),
    "attribute": (lambda: _with_activation(4, 4), "it has an attribute activation of its own"),
}


@pytest.mark.parametrize(("make", "reason"), LEFT.values(), ids=LEFT)
def test_left_with_a_reason(make, reason):
    layer = make()
    kind = type(layer)
    record = wmma_ops.swap_(nn.Sequential(layer))
    assert [row.name for row in record.left] == ["0"]
    assert reason in record.left[0].note
    assert record.left[0].note in str(record)
    assert type(layer) is kind


POST, PRE = {"batch_first": True}, {"norm_first": True, "activation": "gelu", "batch_first": False}


def _encoders():
    later = nn.Transformer.generate_square_subsequent_mask(5)
    padding = torch.zeros(3, 5).masked_fill(
        torch.tensor([[0, 0, 0, 1, 1]] + [[0] * 5] * 2, dtype=torch.bool), -torch.inf
    )
    yield pytest.param(POST, {}, id="post")
    yield pytest.param(POST, {"src_key_padding_mask": padding}, id="post, padding")
    yield pytest.param(
        PRE, {"mask": later, "is_causal": True, "src_key_padding_mask": padding}, id="pre, causal, padding"
    )


@pytest.mark.parametrize(("made", "options"), list(_encoders()))
def test_transformer_encoder(made, options):
    layer = nn.TransformerEncoderLayer(16, 4, 24, **made)
    plain = nn.TransformerEncoder(layer, 2, enable_nested_tensor=made["batch_first"]).eval()
    x = torch.randn(*((3, 5) if made["batch_first"] else (5, 3)), 16)
    swapped = copy.deepcopy(plain)
    record = wmma_ops.swap_(swapped)
    assert {"TransformerEncoder", "TransformerEncoderLayer", "MultiheadAttention"} < {
        row.kind for row in record.swapped
    }
    # In eval without gradients torch's own would go around the layers and, padded, write zeros.
    kept = torch.ones(3, 5, dtype=torch.bool)
    if "src_key_padding_mask" in options:
        kept = options["src_key_padding_mask"] == 0
    kept = kept if made["batch_first"] else kept.T
    with torch.no_grad(), ran() as counts:
        got = swapped(x, **options)
    assert counts == {"linear": 4, "attention": 2, "gemm_gemm": 2}
    with torch.no_grad():
        torch.testing.assert_close(got[kept], plain(x, **options)[kept])
    assert_no_worse(results(swapped, x, **options), results(plain, x, **options), exact(plain, x, **options))
    # One of the batch: torch lays out a batch so that its dropout draws in another order.
    x = x[:1] if made["batch_first"] else x[:, :1]
    options = {key: mask[:1] if "padding" in key else mask for key, mask in options.items()}
    outs = []
    for model in (plain.train(), swapped.train()):
        for layer in model.layers:
            layer.self_attn.dropout = 0.0  # what attention drops is its own, and told by a seed
        torch.manual_seed(6)
        outs.append(model(x, **options))
    torch.testing.assert_close(*outs)
    for model in (swapped, pickle.loads(pickle.dumps(swapped))):
        wmma_ops.restore_(model)
        assert type(model.layers[0]) is nn.TransformerEncoderLayer
        assert model.layers[0].activation_relu_or_gelu == plain.layers[0].activation_relu_or_gelu
        assert model.use_nested_tensor == plain.use_nested_tensor


def test_transformer_trains_and_compiles():
    plain = nn.Transformer(16, 4, 1, 1, 24, dropout=0.0, batch_first=True)
    swapped, x, y = copy.deepcopy(plain), torch.randn(2, 6, 16), torch.randn(2, 5, 16)
    wmma_ops.swap_(swapped)
    assert_no_worse(results(swapped, x, y), results(plain, x, y), exact(plain, x, y))
    compiled = torch.compile(swapped.eval(), fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        compiled(x, y)
    with torch.no_grad(), ran() as counts:
        torch.testing.assert_close(compiled(x, y), plain.eval()(x, y))
    assert counts == {"linear": 2 + 2 + 3, "attention": 3, "gemm_gemm": 2}


NESTED = {
    "linear": lambda: nn.Linear(16, 16),
    "sequential": lambda: nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16), nn.ReLU()),
    "chain": Mlp,
    "gated": Gated,
}


def _nested(layout):
    seeded = torch.Generator().manual_seed(0)
    return torch.nested.nested_tensor([torch.randn(n, 16, generator=seeded) for n in (3, 5)], layout=layout)


def _parts(model, x):
    return list(model(x).unbind())


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=str)
@pytest.mark.parametrize("make", NESTED.values(), ids=NESTED)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_left_to_torch(make, layout):
    plain, x = make().eval(), _nested(layout)
    swapped = copy.deepcopy(plain)
    wmma_ops.swap_(swapped)
    with torch.no_grad(), ran() as counts:
        torch.testing.assert_close(_parts(swapped, x), _parts(plain, x))
    assert not counts
    found = []
    for model in (swapped, plain):
        loss = sum(part.sin().sum() for part in _parts(model, x))
        found.append(torch.autograd.grad(loss, list(model.parameters())))
    torch.testing.assert_close(*found)
    for model in (swapped, plain):
        torch.manual_seed(5)
        found.append(_parts(model.train(), x))
    torch.testing.assert_close(*found[2:])


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=str)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_layers_of_ours_take_nested_tensors(layout):
    plain, x = nn.Sequential(nn.Linear(16, 24), nn.SiLU(), nn.Linear(24, 16)), _nested(layout)
    ours = wmma_ops.nn.FusedMLP(16, 24, activation="silu")
    ours.load_state_dict(plain.state_dict())
    first = wmma_ops.nn.Linear(16, 24, activation="silu")
    first.load_state_dict(plain[0].state_dict())
    torch.testing.assert_close(_parts(ours, x), _parts(plain, x))
    torch.testing.assert_close(_parts(first, x), _parts(plain[:2], x))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_compiled_nested_tensors():
    plain, x = NESTED["sequential"](), _nested(torch.jagged)
    swapped = copy.deepcopy(plain)
    wmma_ops.swap_(swapped)
    compiled = torch.compile(swapped, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(_parts(compiled, x), _parts(plain, x))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@torch.no_grad()
def test_nested_batches_of_a_transformer(norm_first):
    """In eval without gradients: torch's own takes them only so."""
    layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True, norm_first=norm_first)
    x = _nested(torch.strided)
    for plain in (layer.eval(), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()):
        swapped = copy.deepcopy(plain)
        wmma_ops.swap_(swapped)
        torch.testing.assert_close(_parts(swapped, x), _parts(plain, x))
    attention = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    want, _ = attention(x, x, x, need_weights=False)
    wmma_ops.swap_(attention)
    torch.testing.assert_close(attention(x, x, x, need_weights=False)[0].unbind(), want.unbind())
