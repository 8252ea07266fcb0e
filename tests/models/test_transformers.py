"""attn_implementation="wmma": every attention call within its bound, models as good as by transformers' own attention."""

import subprocess
import sys

import pytest
import torch
from dropped import drops_as_ours
from op_counts import TORCHS_ATTENTION, ran
from torch._dynamo.testing import CompileCounterWithBackend
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    BloomForCausalLM,
    SplinterConfig,
    SplinterModel,
    StaticCache,
)
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers_models import EAGER_ONLY, GEMMA4, MODELS, RECORDED, T5, WINDOW, Checked, batch, exact, implementation

import wmma_ops
from wmma_ops.integrations import transformers as wmma_transformers
from wmma_ops.integrations.transformers import attention_forward

pytestmark = pytest.mark.usefixtures("one_thread")

LLAMA, QWEN2, _, GEMMA2, _, GPT_OSS, BERT = MODELS
DECODERS = [tiny for tiny in MODELS if tiny.generates]


@pytest.fixture(autouse=True)
def _compiled_anew():
    """Other tests' models count for the limit on how often a function is compiled."""
    torch.compiler.reset()


@pytest.fixture(autouse=True, scope="module")
def _registered():
    wmma_transformers.register()


def _logits(model, name, inputs):
    model.set_attn_implementation(name)
    return model(**inputs).logits


def _no_worse(got, peer, want, seen=None):
    """No further from float64 than twice as far as transformers' own, by the largest error and by the mean square."""
    assert bool(got.isfinite().all())
    if seen is not None:
        got, peer, want = got[seen], peer[seen], want[seen]
    ours, theirs = (got.double() - want).abs(), (peer.double() - want).abs()
    # Two errors at the bottom of the format's resolution say nothing about each other.
    least = torch.finfo(got.dtype).eps * want.abs().max()
    assert ours.max() <= 2 * theirs.max() + least, (ours.max(), theirs.max())
    assert ours.square().mean().sqrt() <= 2 * theirs.square().mean().sqrt() + least


def _joined(gradients, like):
    """The gradients of all parameters as one vector, each scaled by the largest of its own; noise about 0 is not."""
    least = max(float(x.abs().max()) for x in like.values()) / 1000
    return torch.cat([(gradients[key] / max(float(x.abs().max()), least)).flatten() for key, x in like.items()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("padding", [None, "left", "right"])
@pytest.mark.parametrize("tiny", MODELS, ids=str)
@torch.no_grad()
def test_forward(tiny, padding, dtype):
    model, inputs = tiny.model(dtype), batch(padding)
    checked = Checked(attention_forward)
    _logits(model, implementation(checked), inputs)
    assert checked.calls == tiny.calls
    with ran() as counts:
        got = _logits(model, "wmma", inputs)
    assert counts["attention"] == tiny.calls
    want = exact(model)(**inputs).logits
    _no_worse(got, _logits(model, tiny.peer, inputs), want, inputs["attention_mask"].bool())


@pytest.mark.parametrize(("cache", "padding"), [("dynamic", None), ("dynamic", "left"), ("static", "left")])
@pytest.mark.parametrize("tiny", DECODERS, ids=str)
@torch.no_grad()
def test_generate(tiny, cache, padding):
    """Greedy tokens, past the sliding window; every call of every step within its bound."""
    model, inputs = tiny.model(), batch(padding, length=7)
    options = {"max_new_tokens": 8, "do_sample": False, "disable_compile": True}
    options |= {"cache_implementation": cache} if cache == "static" else {}
    checked = Checked(attention_forward)
    tokens = []
    for name in (implementation(checked), tiny.peer):
        model.set_attn_implementation(name)
        tokens.append(model.generate(**inputs, **options))
    assert checked.calls == 8 * tiny.calls
    assert tokens[0].shape == (2, 15)
    assert torch.equal(*tokens)
    assert len(set(tokens[0][:, 7:].flatten().tolist())) > 4  # not one token over and over


@torch.no_grad()
def test_loaded_with_it(tmp_path):
    GEMMA2.model().save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="wmma")
    with ran(TORCHS_ATTENTION) as counts:
        got = model(**batch("left")).logits
    assert counts == {"attention": 2}
    torch.testing.assert_close(got, _logits(GEMMA2.model(), "wmma", batch("left")))


@pytest.mark.parametrize("tiny", [LLAMA, GEMMA2, GPT_OSS], ids=str)
@torch.no_grad()
def test_autocast(tiny):
    """The rotation gives queries and keys in float32 here, beside bfloat16 values."""
    model, inputs = tiny.model(), batch("left")
    model.set_attn_implementation(implementation(Checked(attention_forward)))
    with torch.autocast("cpu", torch.bfloat16):
        got = model(**inputs).logits
        peer = _logits(model, tiny.peer, inputs)
    _no_worse(got, peer, exact(model)(**inputs).logits, inputs["attention_mask"].bool())


@torch.no_grad()
def test_prompt_in_pieces():
    """Several queries with a past: the mask says who sees what, not the causal flag."""
    model, inputs = QWEN2.model(), batch(None)
    model.set_attn_implementation(implementation(Checked(attention_forward)))
    whole = model(**inputs).logits
    cache = StaticCache(config=model.config, max_cache_len=16)
    tokens = inputs["input_ids"]
    parts = [model(input_ids=x, past_key_values=cache).logits for x in (tokens[:, :4], tokens[:, 4:9], tokens[:, 9:])]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tiny", [*MODELS, T5], ids=str)
def test_training_step(tiny):
    inputs = batch("left" if tiny.generates else "right")
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    grads = {}
    for name in ("wmma", tiny.peer, "exact"):
        model = tiny.model()
        if name == "exact":
            model = exact(model)
        else:
            model.set_attn_implementation(name)
        model.train()
        with ran(TORCHS_ATTENTION) as counts:
            model(**inputs, labels=labels).loss.backward()
        assert counts["gemm"] >= 4 * tiny.calls if name == "wmma" else counts.keys() <= {TORCHS_ATTENTION}
        grads[name] = {key: x.grad for key, x in model.named_parameters() if x.grad is not None}
    assert grads["wmma"].keys() == grads["exact"].keys()
    _no_worse(*(_joined(grads[name], like=grads["exact"]) for name in ("wmma", tiny.peer, "exact")))


@pytest.mark.parametrize("padding", [None, "left"])
@pytest.mark.parametrize("tiny", EAGER_ONLY, ids=str)
@torch.no_grad()
def test_models_that_are_not_written_for_sdpas_masks(tiny, padding):
    """A decoder whose layers do not know that they are causal; one that joins an added mask of its own to its mask."""
    model, inputs = tiny.model(), batch(padding)
    seen = inputs["attention_mask"].bool()
    with ran() as counts:
        got = _logits(model, "wmma", inputs)
    assert counts["attention"] == tiny.calls
    torch.testing.assert_close(got[seen], _logits(model, "eager", inputs)[seen], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_an_encoder_whose_layers_do_not_know_that_they_are_none_of_a_decoder():
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    model, inputs, found = SplinterModel(SplinterConfig(vocab_size=61, **sizes)).eval(), batch(None), []
    for name in ("wmma", "eager"):
        model.set_attn_implementation(name)
        found.append(model(**inputs).last_hidden_state)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_model_that_attends_by_itself_keeps_its_masks():
    """Bloom's layers add the mask that they get; transformers takes the name for it all the same."""
    config = BloomConfig(vocab_size=61, hidden_size=32, n_layer=2, n_head=4)
    model, inputs = BloomForCausalLM._from_config(config, attn_implementation="wmma").eval(), batch("left")
    assert model.config._attn_implementation == "wmma"
    got = model(**inputs).logits
    model.config._attn_implementation = "eager"
    torch.testing.assert_close(got, model(**inputs).logits)


@torch.no_grad()
def test_layers_that_drop_queries():
    """The last layers of Gemma 4 share keys and compute what is asked for alone."""
    model, inputs = GEMMA4.model(), batch(None)
    whole = _logits(model, "wmma", inputs)
    torch.testing.assert_close(model(**inputs, logits_to_keep=3).logits, whole[:, -3:], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(whole, _logits(model, "eager", inputs), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_position_bias():
    model, inputs = T5.model(), batch("right")
    inputs["labels"] = inputs["input_ids"]
    checked = Checked(attention_forward)
    got = _logits(model, implementation(checked), inputs)
    assert checked.calls == T5.calls
    _no_worse(got, _logits(model, "sdpa", inputs), exact(model)(**inputs).logits)


def test_dropout_in_training_is_the_same_as_eagers():
    model = BERT.model(attention_probs_dropout_prob=0.3).train()
    inputs, outs = batch("right"), {}
    for name in ("wmma", "eager"):
        torch.manual_seed(3)
        with drops_as_ours():
            outs[name] = _logits(model, name, inputs)
    torch.testing.assert_close(outs["wmma"], outs["eager"], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(outs["wmma"], _logits(model.eval(), "wmma", inputs), atol=1e-2)


@pytest.mark.parametrize("tiny", [LLAMA, GEMMA2, GPT_OSS, BERT, *RECORDED], ids=str)
@torch.no_grad()
def test_weights_where_they_are_asked_for(tiny):
    model, inputs = tiny.model(), batch(None)
    found = {}
    for name in ("wmma", "eager"):
        model.set_attn_implementation(name)
        found[name] = model(**inputs, output_attentions=True).attentions
    assert len(found["wmma"]) == len(found["eager"]) == tiny.calls
    _close(found["wmma"], found["eager"])
    model.set_attn_implementation("wmma")
    with ran() as counts:
        assert model(**inputs).attentions is None
    assert counts["attention"] == tiny.calls
    compiled = torch.compile(model, backend="aot_eager")
    _close(compiled(**inputs, output_attentions=True).attentions, found["eager"])
    assert compiled(**inputs).attentions is None


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("tiny", [LLAMA, *RECORDED], ids=str)
@torch.no_grad()
def test_weights_while_generating(tiny, cache):
    model, found = tiny.model(), {}
    options = {"max_new_tokens": 3, "do_sample": False, "return_dict_in_generate": True, "output_attentions": True}
    for name in ("wmma", "eager"):
        model.set_attn_implementation(name)
        found[name] = model.generate(**batch(None), **options, cache_implementation=cache).attentions
    assert len(found["wmma"]) == len(found["eager"]) == 3
    for got, want in zip(found["wmma"], found["eager"], strict=True):
        _close(got, want)


def test_weights_are_not_asked_for_in_the_config():
    """transformers refuses it, in words that say what to do."""
    model = RECORDED[0].model()
    model.set_attn_implementation("wmma")
    with pytest.raises(
        ValueError, match=r"not supported when using the `attn_implementation` set to wmma\. Please set"
    ):
        model.config.output_attentions = True
    model.set_attn_implementation("eager")
    model.config.output_attentions = True
    model.set_attn_implementation("wmma")
    assert len(model(**batch(None)).attentions) == 2


def _close(got, want):
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tiny", [LLAMA, GEMMA2, GPT_OSS], ids=str)
def test_rows_that_see_nothing_are_zero(tiny):
    """Padding on the left of a causal model: its queries see no key. Zeros, and no NaN in any gradient."""
    model, outs = tiny.model().train(), []

    def watched(*args, **kwargs):
        out, weights = attention_forward(*args, **kwargs)
        outs.append(out)
        return out, weights

    logits = _logits(model, implementation(watched), batch("left"))
    assert all(bool((out[0, :4] == 0).all()) and bool((out[0, 4:] != 0).any()) for out in outs)
    logits.square().sum().backward()
    assert all(bool(x.grad.isfinite().all()) for x in model.parameters() if x.grad is not None)


def test_compiled_training_step():
    model, inputs = QWEN2.model(num_hidden_layers=1, layer_types=["sliding_attention"]), batch("left")
    model.set_attn_implementation("wmma")
    inputs["labels"] = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    losses, grads = [], []
    for function in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        model.zero_grad()
        loss = function(**inputs).loss
        loss.backward()
        losses.append(loss.detach())
        grads.append({key: x.grad.clone() for key, x in model.named_parameters()})
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_compiled_decoding():
    """A step of a static cache, one graph for all positions, with a soft cap and without."""
    for tiny in (LLAMA, GEMMA2):
        torch._dynamo.reset()
        model, inputs = tiny.model(num_hidden_layers=1, layer_types=["full_attention"]), batch(None)
        model.set_attn_implementation("wmma")
        want = model(**inputs).logits
        cache = StaticCache(config=model.config, max_cache_len=16)
        tokens = inputs["input_ids"]
        model(input_ids=tokens[:, :8], past_key_values=cache)
        counter = CompileCounterWithBackend("aot_eager")
        step = torch.compile(model, backend=counter, fullgraph=True)
        for i in range(8, 11):
            got = step(input_ids=tokens[:, i : i + 1], past_key_values=cache).logits
            torch.testing.assert_close(got[:, 0], want[:, i], rtol=1e-4, atol=1e-4)
        assert counter.frame_count == 1


SEEDED = torch.Generator().manual_seed(0)
BIAS, SINKS, FLOATS = (torch.randn(shape, generator=SEEDED) for shape in ((1, 4, 6, 6), (2, 4, 6, 1), (2, 1, 6, 6)))
FLOATS = FLOATS.masked_fill(FLOATS < -0.5, -torch.inf)
FLOATS[0, :, 2] = -torch.inf  # a query that sees no key


@pytest.mark.parametrize(
    ("mask", "options"),
    [
        (None, {}),
        (None, {"is_causal": False}),
        (None, {"dropout": 0.5}),  # not in training
        (FLOATS, {}),
        (FLOATS, {"softcap": 1.5}),
        (None, {"position_bias": BIAS}),
        (None, {"position_bias": BIAS, "is_causal": False}),
        (FLOATS, {"position_bias": BIAS}),
        (FLOATS > 0, {"position_bias": BIAS, "softcap": 1.5}),
        (None, {"sinks": SINKS}),
        (FLOATS > 9, {"sinks": SINKS}),
        (FLOATS > 0, {"sinks": SINKS, "softcap": 1.5}),
    ],
)
@pytest.mark.parametrize("queries", [2, 1])
def test_calls_as_other_models_make_them(mask, options, queries):
    """Masks that are added, biases, sinks of each query, learned queries with a batch of 1."""
    module = torch.nn.Identity().eval()
    module.is_causal = True
    inputs = [torch.randn(shape, requires_grad=True) for shape in ((queries, 4, 6, 8), (2, 2, 6, 8), (2, 2, 6, 5))]
    out, _ = Checked(attention_forward)(module, *inputs, mask, scaling=0.8, **options)
    assert out.shape == (2, 6, 4, 5)
    assert all(bool(x.isfinite().all()) for x in torch.autograd.grad(out.square().sum(), inputs))


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("tiny", [QWEN2, GEMMA2, GPT_OSS], ids=str)
@torch.no_grad()
def test_on_an_emulated_gpu(tiny, target):
    model, inputs = tiny.model(torch.float16, num_hidden_layers=1, layer_types=["sliding_attention"]), batch("left")
    model.set_attn_implementation(implementation(Checked(attention_forward)))
    with wmma_ops.emulate(target) as emulation:
        model(**inputs)
    assert len(emulation.launches) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"indices": torch.zeros(1)}, "indices"),
        ({"cache": object()}, "a paged cache"),
        ({"sliding_window": WINDOW}, "8 keys without a mask for a window of 5"),
    ],
    ids=["indices", "cache", "window"],
)
def test_refused(options, text):
    q = torch.randn(1, 2, 8, 16)
    with pytest.raises(ValueError, match=text):
        attention_forward(torch.nn.Identity(), q, q, q, None, **options)


def test_nothing_is_registered_by_an_import():
    program = (
        "import wmma_ops, sys; sys.exit(any(x.split('.')[0] in ('transformers', 'diffusers') for x in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


# Wrong on purpose: the bounds must catch each.


def _without_mask(module, q, k, v, mask, **options):
    return attention_forward(module, q, k, v, None, **options | {"sliding_window": None})


def _heads_of_the_wrong_group(module, q, k, v, mask, **options):
    repeats = q.shape[1] // k.shape[1]
    return attention_forward(module, q, k.repeat(1, repeats, 1, 1), v.repeat(1, repeats, 1, 1), mask, **options)


def _without(name):
    def function(*args, **options):
        return attention_forward(*args, **{key: x for key, x in options.items() if key != name})

    return function


def _aligned_at_the_end(module, q, k, v, mask, **options):
    return attention_forward(module, q, k.roll(1, 2), v.roll(1, 2), mask, **options)


@pytest.mark.parametrize(
    ("tiny", "wrong", "padding"),
    [
        (LLAMA, _without_mask, "left"),
        (QWEN2, _without_mask, None),
        (LLAMA, _heads_of_the_wrong_group, None),
        (LLAMA, _aligned_at_the_end, None),
        (GEMMA2, _without("softcap"), None),
        (GEMMA2, _without("scaling"), None),
        (GPT_OSS, _without("s_aux"), None),
        (T5, _without("position_bias"), None),
    ],
    ids=["padding", "window", "heads", "alignment", "softcap", "scale", "sinks", "bias"],
)
@torch.no_grad()
def test_a_wrong_attention_is_caught(tiny, wrong, padding):
    model, inputs = tiny.model(), batch(padding)
    if tiny is T5:
        inputs["labels"] = inputs["input_ids"]
    with pytest.raises(AssertionError, match="off by"):
        _logits(model, implementation(Checked(wrong)), inputs)


@torch.no_grad()
def test_masks_must_be_registered_too(monkeypatch):
    """Without the mask function padding would be ignored: the one thing that register() must not forget."""
    model, inputs = LLAMA.model(), batch("left")
    seen = inputs["attention_mask"].bool()
    right = _logits(model, "wmma", inputs)[seen]
    assert ALL_MASK_ATTENTION_FUNCTIONS._global_mapping["wmma"] is wmma_transformers.make_mask
    monkeypatch.delitem(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, "wmma")
    assert not torch.allclose(_logits(model, "wmma", inputs)[seen], right, atol=1e-2)
