"""Swapping layers in a model: what changes, what must not, and the way back."""

import copy
import io
import pickle
import weakref

import pytest
import torch
import torch.nn.functional as F
from layer_models import Gated, Mlp, Model, assert_no_worse, exact, results
from op_counts import ran
from torch import nn

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.nn import blocks
from wmma_ops.ops import nodes
from wmma_ops.runtime import launching

NO_PRODUCTS = {"embed": "looks rows up: no product", "last.2": "scales or shifts elements: no product"}  # of Model


class Same(nn.Linear):
    """Of another name, but torch's forward."""


def _states(module):
    """All that a module is, but the class."""
    return {name: {key: id(value) for key, value in child.__dict__.items()} for name, child in module.named_modules()}


def test_swapping_keeps_all_but_classes_and_back():
    model, x = Model().eval(), torch.randn(3, 16)
    modules, parameters = list(model.modules()), dict(model.named_parameters())
    classes, states, saved = [type(m) for m in modules], _states(model), model.state_dict()
    parameters["layers.0.fc1.weight"].requires_grad_(False)
    want = model(x)
    record = wmma_ops.swap_(model)
    assert all(one is other for one, other in zip(model.modules(), modules, strict=True))
    assert all(model.get_parameter(name) is x for name, x in parameters.items())
    assert list(model.state_dict()) == list(saved)
    assert model.embed.weight is model.last[3].weight
    assert not parameters["layers.0.fc1.weight"].requires_grad
    assert all(isinstance(module, kind) for module, kind in zip(modules, classes, strict=True))
    torch.testing.assert_close(model(x), want)
    assert {row.name: row.note for row in record.swapped if row.kind != "Linear"} == {
        "layers.0": "fc1+gelu_tanh+fc2",
        "layers.1": "down_proj(silu(gate_proj)·up_proj)",
        "layers.2": "down_proj(silu(gate_proj)·up_proj)",
        "last": "0+silu",
    }
    assert len(record.swapped) == 4 + 10
    assert {row.name: row.note for row in record.left} == NO_PRODUCTS
    names = wmma_ops.restore_(model)
    assert names == [row.name for row in record.swapped]
    assert [type(m) for m in model.modules()] == classes
    assert _states(model) == states
    assert wmma_ops.restore_(model) == []


def test_what_runs_in_training_and_outside():
    model, x = Model(), torch.randn(3, 16)
    wmma_ops.swap_(model)
    model.eval()
    with torch.no_grad(), ran() as counts:
        model(x)
    # Two layers and one gate in one op, the gate with a bias in two, then linear + silu and the last one.
    assert counts == {"gemm_gemm": 2, "linear": 1 + 2, "gemm": 1}
    with ran() as counts:
        model(x)
    # Each MLP is one op of autograd's, where its nodes are there: of its last layer a gemm is seen.
    assert counts == ({"gemm": 3, "linear": 2} if nodes.are_there else {"linear": 2 + 3 + 3 + 2})
    model.train()
    with torch.no_grad(), ran() as counts:
        model(x)
    assert counts == {"linear": 2 + 1 + 2, "gemm_gemm": 1, "gemm": 1}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_results_gradients_and_dropout(dtype):
    plain, x = Model().to(dtype).eval(), torch.randn(4, 16, dtype=dtype)
    swapped = copy.deepcopy(plain)
    wmma_ops.swap_(swapped)
    assert_no_worse(results(swapped, x), results(plain, x), exact(plain, x))
    outs = []
    for model in (plain, swapped):
        model.train()
        torch.manual_seed(2)
        outs.append(results(model, x)["output"])
    assert (outs[0] - plain.eval()(x)).abs().max() > 0.01
    torch.testing.assert_close(*outs, rtol=2e-2, atol=2e-2)
    # Dropout may be on in a model that is not training, as for sampling.
    plain.layers[0].drop.train()
    swapped.eval().layers[0].drop.train()
    outs = []
    for model in (plain, swapped):
        torch.manual_seed(2)
        outs.append(model(x))
    assert (outs[0] - plain.eval()(x)).abs().max() > 0.01
    torch.testing.assert_close(*outs, rtol=2e-2, atol=2e-2)


def test_an_optimizer_goes_on():
    plain = Model().eval()
    swapped = copy.deepcopy(plain)
    x, losses = torch.randn(8, 16), []
    for model in (plain, swapped):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if model is swapped:
            wmma_ops.swap_(model)
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss)
    torch.testing.assert_close(*losses)
    for one, other in zip(plain.parameters(), swapped.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_hooks_run_before_and_after_swapping():
    model, x, seen = Model().eval(), torch.randn(2, 16), []
    model.layers[0].fc1.register_forward_hook(lambda module, args, out: seen.append(out))
    wmma_ops.swap_(model)
    handle = model.layers[1].act_fn.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    model.last[0].register_full_backward_hook(lambda module, *grads: seen.append("backward"))
    with ran() as counts:
        model(x).sum().backward()
    before = F.linear(x, model.layers[0].fc1.weight, model.layers[0].fc1.bias)
    torch.testing.assert_close(seen[0], before)  # not activated
    assert [type(one) for one in seen] == [torch.Tensor, torch.Tensor, str]
    assert counts["linear"] == (7 if nodes.are_there else 10)  # of layers[1], which is watched, three
    handle.remove()
    with torch.no_grad(), ran() as counts:
        model(x)
    assert counts["gemm_gemm"] == 1  # layers[1] again; layers[0] is still watched


@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm], ids=["weight", "spectral"])
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_weights_that_a_hook_computes(norm):
    model, x = nn.Sequential(norm(nn.Linear(8, 8)), nn.ReLU()).eval(), torch.randn(2, 8)
    want = results(model, x)
    assert [row.name for row in wmma_ops.swap_(model).swapped] == ["0"]
    with ran() as counts:
        got = results(model, x)
    assert counts["linear"] == 1
    torch.testing.assert_close(list(got.values()), list(want.values()))


def test_a_sequential_s_children_and_slices_are_what_they_were():
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 4)).eval()
    x = torch.randn(2, 8)
    parts = [model[:1](x), model[0](x), model[:2](x), model(x)]
    wmma_ops.swap_(model)
    for one, other in zip([model[:1](x), model[0](x), model[:2](x), model(x)], parts, strict=True):
        torch.testing.assert_close(one, other)
    model[1] = nn.Tanh()
    torch.testing.assert_close(model(x), model[3](model[0](x).tanh()))
    model[1] = nn.Softmax(-1)
    torch.testing.assert_close(model(x), model[3](model[0](x).softmax(-1)))
    model[3] = nn.Linear(8, 2)  # torch's own: called as it is
    assert model(x).shape == (2, 2)


def test_subclasses_swapped_twice_and_shared():
    layer = Same(4, 4)
    model, x = nn.ModuleDict({"a": layer, "b": nn.Sequential(layer, nn.ReLU())}), torch.randn(2, 4)
    want = model["b"](x)
    assert [row[:2] for row in wmma_ops.swap_(model).swapped] == [("a", "Same"), ("b", "Sequential")]
    with torch.no_grad(), ran() as counts:
        torch.testing.assert_close(model["b"](x), want)
    assert counts == {"linear": 1}
    again = wmma_ops.swap_(model)
    assert not again.swapped
    assert {row.note for row in again.left} == {"swapped already"}
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(other["b"](x), want)
        assert wmma_ops.restore_(other) == ["a", "b"]
        assert type(other["a"]) is Same
    assert wmma_ops.swap_(wmma_ops.nn.Linear(4, 4)) == wmma_ops.nn.swap.Record((), ())


def test_a_bias_that_broadcasts_is_torchs():
    layer, x = nn.Linear(4, 3), torch.randn(2, 4)
    layer.bias = nn.Parameter(torch.randn(1))
    model, want = nn.Sequential(layer), layer(x)
    assert [row.note for row in wmma_ops.swap_(model).left] == ["its bias has not one element for each column"]
    torch.testing.assert_close(model(x), want)


def test_filter():
    model = Model()
    asked = {}

    def filter_fn(module, fqn):
        asked[fqn] = module
        return not fqn.startswith("layers.0") and fqn != "layers.1.up_proj"

    record = wmma_ops.swap_(model, filter_fn)
    assert asked == dict(model.named_modules())
    assert {row.name: row.note for row in record.left} == {
        "layers.0.fc1": "filter_fn said no",
        "layers.0.fc2": "filter_fn said no",
        "layers.1": "could be fused, was not: up_proj was not swapped",
        "layers.1.up_proj": "filter_fn said no",
    } | NO_PRODUCTS
    assert type(model.layers[0]) is Mlp
    assert type(model.layers[1].up_proj) is nn.Linear

    def broken(module, fqn):
        return 1 / (fqn != "last")

    fresh = Model()
    with pytest.raises(ZeroDivisionError):
        wmma_ops.swap_(fresh, broken)
    assert wmma_ops.restore_(fresh) == []


def test_a_model_whose_rows_do_not_know_their_batch():
    model = nn.Sequential(nn.Linear(200, 96), nn.GELU(), nn.Linear(96, 40)).half()
    x = torch.randn(17, 200).half()
    wmma_ops.swap_(model, batch_invariant=True)
    copied = copy.deepcopy(model)
    with wmma_ops.emulate("gfx942"):
        for one in (model, copied, torch.compile(model, fullgraph=True, backend="aot_eager")):
            seen = launching.problems(lambda one=one: one(x), arch.target("gfx942"))
            assert [problem.invariant for problem in seen] == [True, True]
            assert torch.equal(one(x[3:4])[0], one(x)[3])
    with pytest.raises(ValueError, match="takes"):
        model(x[:, :9])
    assert not torch.ops.wmma._is_batch_invariant()
    wmma_ops.restore_(copied)
    wmma_ops.swap_(copied)
    assert not copied._forward_hooks
    assert not copied._forward_pre_hooks
    with wmma_ops.emulate("gfx942"):
        assert not any(problem.invariant for problem in launching.problems(lambda: copied(x), arch.target("gfx942")))


def test_copies_files_and_state_dicts():
    model, x = Model().eval(), torch.randn(2, 16)
    plain, want = copy.deepcopy(model), model(x)
    wmma_ops.swap_(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)]
    for other in copies:
        torch.testing.assert_close(other(x), want)
        assert type(other.layers[1]) is type(model.layers[1])
        assert other.layers[1].gate_proj.weight is not model.layers[1].gate_proj.weight
        assert other.embed.weight is other.last[3].weight
        with torch.no_grad(), ran() as counts:
            other(x)
        assert counts["gemm_gemm"] == 2
        assert len(wmma_ops.restore_(other)) == 14
        assert type(other.layers[1]) is Gated
        torch.testing.assert_close(other(x), want)
    fresh = Model().eval()
    wmma_ops.swap_(fresh)
    fresh.load_state_dict(plain.state_dict())
    torch.testing.assert_close(fresh(x), want)
    back = Model().eval()
    back.load_state_dict(fresh.state_dict())
    torch.testing.assert_close(back(x), want)
    gone = weakref.ref(fresh)
    del fresh
    assert gone() is None  # nothing of ours holds it


def test_meta_then_memory():
    with torch.device("meta"):
        model = Model().eval()
    record = wmma_ops.swap_(model)
    assert len(record.swapped) == 14
    assert model(torch.empty(3, 16, device="meta")).shape == (3, 10)
    plain, x = Model().eval(), torch.randn(3, 16)
    model.to_empty(device="cpu").load_state_dict(plain.state_dict())
    torch.testing.assert_close(model(x), plain(x))
    model.load_state_dict(plain.double().state_dict(), assign=True)
    torch.testing.assert_close(model(x.double()), plain(x.double()))
    wmma_ops.restore_(model)
    torch.testing.assert_close(model(x.double()), plain(x.double()))


def test_compile_before_and_after():
    model, x = nn.Sequential(Mlp(), Gated()).eval(), torch.randn(3, 16)
    plain = copy.deepcopy(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        want = compiled(x)
    record = wmma_ops.swap_(compiled)
    assert record.swapped[0].name.startswith("_orig_mod.")
    with torch.no_grad():
        compiled(x)  # compiles anew, and its tracing would count
    with torch.no_grad(), ran() as counts:
        torch.testing.assert_close(compiled(x), want)
    assert counts == {"gemm_gemm": 2}
    got = {name.removeprefix("_orig_mod."): grad for name, grad in results(compiled, x).items()}
    assert_no_worse(got, results(plain, x), exact(plain, x))
    wmma_ops.restore_(model)
    with torch.no_grad(), ran() as counts:
        compiled(x)
    assert not counts


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


TRACED = {
    "a layer": lambda: nn.Sequential(nn.Linear(16, 24), nn.GELU()),
    "mlp": lambda: nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16)),
    "block": Mlp,
    "gated": Gated,
    "gated with biases": lambda: Gated(bias=True),
    "transformer": lambda: nn.TransformerEncoderLayer(16, 4, 24, batch_first=True),
    "attention": Attending,
}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("make", TRACED.values(), ids=TRACED)
def test_jit_trace(make, grad, dtype):
    """torch's check traces once more, without gradients; the graph serves with gradients and without, and other sizes."""
    model = make().eval().to(dtype)
    plain, inputs = copy.deepcopy(model), [torch.randn(2, rows, 16, dtype=dtype) for rows in (5, 3)]
    wmma_ops.swap_(model)
    with torch.set_grad_enabled(grad):
        traced = torch.jit.trace(model, inputs[0], check_trace=True, check_inputs=[(inputs[1],)])
    for x in inputs:
        want = exact(plain, x)
        for _ in range(3):  # the interpreter runs, profiles and then rewrites
            assert_no_worse(results(traced, x), results(plain, x), want)
        with torch.no_grad():
            torch.testing.assert_close(traced(x), model(x))


def test_replicas_of_data_parallel_share_what_they_are_given():
    model, x = Model().eval(), torch.randn(3, 16)
    want = model(x)
    wmma_ops.swap_(model)

    def replicate(module):
        replica = module._replicate_for_data_parallel()
        for name, parameter in module._parameters.items():
            setattr(replica, name, None if parameter is None else parameter * 1)  # a tensor, no parameter
        replica._modules = {name: replicate(child) for name, child in module._modules.items()}
        return replica

    torch.testing.assert_close(replicate(model)(x), want)
    torch.testing.assert_close(nn.DataParallel(model)(x), want)


def test_autocast():
    model, x = Model().eval(), torch.randn(3, 16)
    plain = copy.deepcopy(model)
    wmma_ops.swap_(model)
    with torch.autocast("cpu", torch.bfloat16):
        out, want = model(x), plain(x)
        with torch.no_grad():
            torch.testing.assert_close(model(x), want, rtol=3e-2, atol=3e-2)
    assert out.dtype == want.dtype
    torch.testing.assert_close(out, want, rtol=3e-2, atol=3e-2)
    out.float().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_a_class_that_changed_since_is_refused_and_nothing_restored():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    wmma_ops.swap_(model)
    nn.utils.parametrizations.weight_norm(model[2])
    with pytest.raises(ValueError, match=r"restore_: 2 is of class ParametrizedLinear, to which something has"):
        wmma_ops.restore_(model)
    assert type(model) is blocks.Sequential
    nn.utils.parametrize.remove_parametrizations(model[2], "weight")
    assert wmma_ops.restore_(model) == ["", "0", "2"]


@pytest.mark.parametrize("function", [wmma_ops.swap_, wmma_ops.restore_])
def test_bad_models(function):
    with pytest.raises(TypeError, match=rf"wmma\.{function.__name__}: model is of type dict; takes a torch.nn.Module"):
        function({})


def test_bad_filter():
    with pytest.raises(TypeError, match=r"wmma\.swap_: filter_fn is of type str; takes a function"):
        wmma_ops.swap_(nn.Linear(2, 2), "0")
