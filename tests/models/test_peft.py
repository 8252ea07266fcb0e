"""Layers with adapters of peft's, swapped: with one active adapter one sum of both products, else peft's forward."""

import copy
import pickle

import pytest
import torch
from layer_models import Gated, assert_no_worse, exact, results
from op_counts import ran
from torch import nn

import wmma_ops

peft = pytest.importorskip("peft", reason="peft is not installed; it comes with the extra test")

pytestmark = pytest.mark.usefixtures("one_thread")
ALL = ("gate_proj", "up_proj", "down_proj", "last")
APART = "could be fused, is not as it stands: "


class Net(nn.Module):
    def __init__(self, bias=False):
        super().__init__()
        self.mlp, self.last = Gated(bias), nn.Linear(16, 16)

    def forward(self, x):
        return self.last(self.mlp(x))


def _adapted(targets=ALL, dtype=torch.float32, cast=True, **options):
    """A model in eval with an adapter that is no zero, and an input."""
    torch.manual_seed(0)
    config = peft.LoraConfig(r=4, target_modules=list(targets), init_lora_weights=False, **options)
    model = peft.get_peft_model(Net().to(dtype), config, autocast_adapter_dtype=cast)
    return model.eval(), torch.randn(5, 16, dtype=dtype)


def _ops(model, x):
    with torch.no_grad(), ran() as counts:
        out = model(x)
    return out, dict(counts)


# How many gemms of the three products of the MLP and the last, and of the adapters.
@pytest.mark.parametrize(
    ("targets", "ops"),
    [
        (("last",), {"gemm_gemm": 1, "gemm": 2}),
        (("gate_proj",), {"gemm": 2, "linear": 3}),
        (("down_proj",), {"gemm": 1 + 2, "linear": 1}),
        (ALL, {"gemm": 8}),
    ],
    ids="+".join,
)
def test_what_is_fused(targets, ops):
    model, x = _adapted(targets)
    plain, saved = copy.deepcopy(model), model.state_dict()
    classes, modules = [type(module) for module in model.modules()], list(model.modules())
    record = wmma_ops.swap_(model)
    notes = {row.name.rpartition("model.")[2]: row.note for row in record.swapped if row.note}
    layers = {f"mlp.{name}" if "proj" in name else name: "base_layer+lora_B(lora_A)" for name in targets}
    assert notes == {"mlp": "down_proj(silu(gate_proj)·up_proj)", **layers}
    assert not record.left
    out, counts = _ops(model, x)
    torch.testing.assert_close(out, plain(x))
    assert counts == ops
    assert_no_worse(results(model, x), results(plain, x), exact(plain, x))
    assert list(model.state_dict()) == list(saved)
    assert [row.name for row in record.swapped] == wmma_ops.restore_(model)
    assert [type(module) for module in model.modules()] == classes
    assert all(one is other for one, other in zip(model.modules(), modules, strict=True))
    torch.testing.assert_close(model(x), plain(x), rtol=0, atol=0)


@pytest.mark.parametrize("cast", [True, False], ids=["float32 adapter", "one type"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("alpha", [2, 64])
def test_types(dtype, cast, alpha):
    """peft makes adapters of half-precision layers in float32; their part is added before the one rounding."""
    model, x = _adapted(dtype=dtype, cast=cast, lora_alpha=alpha)
    plain = copy.deepcopy(model)
    wmma_ops.swap_(model)
    ours, torchs = model.base_model.model.last, plain.base_model.model.last
    assert _ops(ours, x)[1] == ({"gemm": 2, "matmul": 1} if cast else {"gemm": 2})
    want = exact(torchs, x)
    assert_no_worse(results(ours, x), results(torchs, x), want)
    outs = [_ops(one, x)[0] for one in (model.base_model.model.mlp, plain.base_model.model.mlp)]
    want = exact(plain.base_model.model.mlp, x)["output"]
    ours, torchs = ((out.double() - want).abs().square().mean().sqrt() for out in outs)
    assert ours <= 2 * torchs


def test_autocast_and_a_factor_beyond_float16():
    model, x = _adapted(("last",), lora_alpha=64)
    plain = copy.deepcopy(model)
    wmma_ops.swap_(model)
    with torch.autocast("cpu", torch.bfloat16):
        out, counts = _ops(model, x)
        torch.testing.assert_close(out, plain(x), rtol=3e-2, atol=0.3)
        assert out.dtype == torch.bfloat16
    assert counts == {"gemm_gemm": 1 + 1, "gemm": 2 + 2}  # and again beneath autocast
    layer = model.base_model.model.last
    with torch.no_grad():
        layer.lora_A["default"].weight.fill_(2000.0)
        layer.lora_B["default"].weight.fill_(2.0**-20)
    with torch.no_grad(), torch.autocast("cpu", torch.float16):
        assert layer(torch.ones(2, 16)).isfinite().all()  # 16·2000 has room in float16, 16 times that has not


def _other(model):
    model.add_adapter("other", peft.LoraConfig(r=3, target_modules=list(ALL), init_lora_weights=False))


def _both(model):
    model.base_model.set_adapter(["default", "other"])


def _hook(model):
    model.base_model.model.mlp.gate_proj.lora_A["default"].register_forward_hook(lambda module, args, out: 2 * out)


def _biased(model):
    model.add_adapter("biased", peft.LoraConfig(r=3, target_modules=["last"], lora_bias=True, init_lora_weights=False))
    model.set_adapter("biased")
    nn.init.ones_(model.base_model.model.last.lora_B["biased"].bias)


def _variant(model):
    model.add_adapter("dora", peft.LoraConfig(r=3, target_modules=["up_proj"], use_dora=True, init_lora_weights=False))
    model.set_adapter("dora")


# One after the other: what becomes of the model, and the ops then; linears are those of what is left to peft.
STATES = {
    "as it was": (lambda model: None, {"gemm": 8}),
    "another adapter": (_other, {"gemm": 8}),
    "which is active": (lambda model: model.set_adapter("other"), {"gemm": 8}),
    "both": (_both, {"linear": 4 * 3}),  # the other's layers came after swapping
    "one again": (lambda model: model.set_adapter("default"), {"gemm": 8}),
    "disabled": (lambda model: model.base_model.disable_adapter_layers(), {"gemm_gemm": 1, "linear": 1}),
    "enabled": (lambda model: model.base_model.enable_adapter_layers(), {"gemm": 8}),
    "merged": (lambda model: model.base_model.merge_adapter(), {"gemm_gemm": 1, "linear": 1}),
    "unmerged": (lambda model: model.base_model.unmerge_adapter(), {"gemm": 8}),
    "with a bias": (_biased, {"gemm_gemm": 1, "linear": 1}),
    "a variant": (_variant, None),
    "deleted": (lambda model: (model.set_adapter("other"), model.delete_adapter("default")), {"gemm": 8}),
}


def test_adapters_go_on_being_chosen_merged_and_disabled():
    model, x = _adapted()
    plain = copy.deepcopy(model)
    wmma_ops.swap_(model)
    for name, (change, ops) in STATES.items():
        for one in (plain, model):
            torch.manual_seed(1)
            change(one)
        out, counts = _ops(model, x)
        torch.testing.assert_close(out, plain(x), msg=name)
        assert ops is None or counts == ops, name
        got, want = results(model, x), results(plain, x)
        assert_no_worse(got, want, exact(plain, x))
    with model.disable_adapter(), plain.disable_adapter():
        torch.testing.assert_close(model(x), plain(x))
        assert _ops(model, x)[1] == {"gemm_gemm": 1, "linear": 1}
    whole = model.merge_and_unload()
    torch.testing.assert_close(whole(x), plain.merge_and_unload()(x))
    assert _ops(whole, x)[1] == {"gemm_gemm": 1, "linear": 1}
    wmma_ops.restore_(whole)
    assert type(whole.last) is nn.Linear
    assert type(whole.mlp) is Gated


def test_disabling_what_is_merged_is_for_peft():
    model, x = _adapted()
    plain = copy.deepcopy(model)
    wmma_ops.swap_(model)
    for one in (plain, model):
        one.base_model.merge_adapter()
    with model.disable_adapter(), plain.disable_adapter():
        torch.testing.assert_close(model(x), plain(x))
    torch.testing.assert_close(model(x), plain(x))


def test_rows_with_adapters_of_their_own_and_hooks_are_for_peft():
    model, x = _adapted()
    _other(model)
    plain = copy.deepcopy(model.eval())
    wmma_ops.swap_(model)
    names = ["default", "other", "__base__", "other", "default"]
    with torch.no_grad():
        torch.testing.assert_close(model(x, adapter_names=names), plain(x, adapter_names=names))
    for one in (plain, model):
        _hook(one)
    out, counts = _ops(model, x)
    torch.testing.assert_close(out, plain(x))
    assert counts == {"linear": 3, "gemm": 6}  # the gate's three products apart, the other layers two each


def test_dropout_in_training():
    model, x = _adapted(lora_dropout=0.5)
    plain = copy.deepcopy(model)
    wmma_ops.swap_(model)
    assert _ops(model, x)[1] == {"gemm": 8}
    outs = []
    for one in (plain, model):
        one.train()
        torch.manual_seed(4)
        outs.append(results(one, x))
    torch.testing.assert_close(outs[1], outs[0], rtol=1e-4, atol=1e-5)
    assert (outs[0]["output"] - plain.eval()(x)).abs().max() > 0.01
    assert _ops(model, x)[1] == {"gemm": 8}  # each layer with its adapter, and the MLP's layers apart


REASONS = {
    "several": (lambda model: (_other(model), _both(model)), "several adapters are active"),
    "variant": (_variant, "its adapter is a variant of LoRA"),
    "hook": (_hook, "its adapter has a hook, or is of a class of its own"),
    "bias": (_biased, "its adapter has a bias"),
}


@pytest.mark.parametrize(("change", "reason"), REASONS.values(), ids=REASONS)
def test_the_record_says_why_not(change, reason):
    model, x = _adapted()
    change(model)
    want = model.eval()(x)
    record = wmma_ops.swap_(model)
    notes = {row.note for row in record.swapped if row.note.startswith(APART)}
    assert f"{APART}{reason}" in notes
    assert all(note.endswith(reason) for note in notes)
    assert reason in str(record)
    torch.testing.assert_close(model(x), want)
    model.base_model.set_adapter("default")
    if change is not _hook:  # then it can be fused
        assert _ops(model, x)[1] == {"gemm": 8}


def test_layers_that_stay_say_why():
    model, x = _adapted()
    want = model(x)
    record = wmma_ops.swap_(model, lambda module, fqn: not fqn.endswith("up_proj.base_layer"))
    left = {row.name.rpartition("model.")[2]: row.note for row in record.left}
    assert left == {
        "mlp": "could be fused, was not: up_proj was not swapped",
        "mlp.up_proj": "could be fused, was not: its base_layer was not swapped",
        "mlp.up_proj.base_layer": "filter_fn said no",
    }
    torch.testing.assert_close(model(x), want)
    wmma_ops.restore_(model)
    record = wmma_ops.swap_(model, lambda module, fqn: not fqn.endswith("up_proj"))
    assert {row.name.rpartition("model.")[2]: row.note for row in record.left} == {
        "mlp": "could be fused, was not: up_proj was not swapped",
        "mlp.up_proj": "filter_fn said no",
    }


@pytest.mark.parametrize("again", [True, False], ids=["swapped again", "once"])
def test_adapters_of_a_swapped_model(again):
    torch.manual_seed(0)
    net, x = Net(), torch.randn(5, 16)
    swapped = copy.deepcopy(net)
    wmma_ops.swap_(swapped)
    models = []
    for one in (net, swapped):
        torch.manual_seed(2)
        config = peft.LoraConfig(r=4, target_modules=list(ALL), init_lora_weights=False)
        models.append(peft.get_peft_model(one, config).eval())
    if again:
        wmma_ops.swap_(models[1])
        assert _ops(models[1], x)[1] == {"gemm": 8}
    torch.testing.assert_close(models[1](x), models[0](x))


def test_copies_files_and_graphs():
    model, x = _adapted()
    want, plain = model(x), copy.deepcopy(model)
    wmma_ops.swap_(model)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        out, counts = _ops(other, x)
        torch.testing.assert_close(out, want)
        assert counts == {"gemm": 8}
        wmma_ops.restore_(other)
        assert type(other.base_model.model.last) is peft.tuners.lora.Linear
        torch.testing.assert_close(other(x), want)
    model.load_state_dict(plain.state_dict())
    compiled = torch.compile(model.base_model.model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        compiled(x)
    out, counts = _ops(compiled, x)
    torch.testing.assert_close(out, want)
    assert counts == {"gemm": 8}
    got = results(compiled, x)
    torch.testing.assert_close(list(got.values()), list(results(plain.base_model.model, x).values()))


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=str)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@torch.no_grad()
def test_nested_tensors_are_left_to_peft(layout):
    model, _ = _adapted()
    x = torch.nested.nested_tensor([torch.randn(n, 16) for n in (3, 5)], layout=layout)
    want = model(x).unbind()
    wmma_ops.swap_(model)
    torch.testing.assert_close(model(x).unbind(), want)
