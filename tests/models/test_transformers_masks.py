"""Windows, padding, sinks, soft caps and packed sequences in models of transformers, without masks of queries times keys."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from op_counts import ran
from transformers import StaticCache, masking_utils
from transformers_models import MISTRAL, MODELS, WINDOW, Checked, Tiny, batch, implementation

import wmma_ops
from wmma_ops.integrations import masks
from wmma_ops.integrations import transformers as wmma_transformers
from wmma_ops.integrations.transformers import attention_forward, make_mask

pytestmark = pytest.mark.usefixtures("one_thread")

LLAMA, QWEN2, QWEN3, GEMMA2, GEMMA3, GPT_OSS, BERT = MODELS
DECODERS = [LLAMA, QWEN2, QWEN3, MISTRAL, GEMMA2, GEMMA3, GPT_OSS]
MODERN_BERT = Tiny(
    "ModernBertForMaskedLM",
    {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    | {"max_position_embeddings": 64, "local_attention": 2 * WINDOW, "global_attn_every_n_layers": 2}
    | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
)
LENGTHS = (4, 1, 6)  # of packed sequences
CAUSAL, ALL = masking_utils.causal_mask_function, masking_utils.bidirectional_mask_function
FUNCTIONS = {
    "causal": CAUSAL,
    "window": masking_utils.sliding_window_causal_mask_function(4),
    "both sides": masking_utils.sliding_window_bidirectional_mask_function(2),
    "all": ALL,
}
_sdpa_mask = masking_utils.sdpa_mask


@pytest.fixture(autouse=True, scope="module")
def _registered():
    wmma_transformers.register()


@pytest.fixture
def made(monkeypatch):
    """The masks that are made."""
    found = []

    def sdpa_mask(*args, **kwargs):
        mask = _sdpa_mask(*args, **kwargs)
        if mask is not None:
            found.append(mask)
        return mask

    monkeypatch.setattr(masking_utils, "sdpa_mask", sdpa_mask)
    return found


def _trained(model, inputs, labels, name):
    """Logits, the loss's gradients by parameter, and our ops that ran forward."""
    model = copy.deepcopy(model).train()
    model.set_attn_implementation(name)
    with ran() as counts:
        out = model(**inputs, labels=labels)
    out.loss.backward()
    return out.logits.detach(), {key: x.grad for key, x in model.named_parameters() if x.grad is not None}, counts


def _alike(got, want, seen=slice(None)):
    torch.testing.assert_close(got[0][seen], want[0][seen], rtol=1e-4, atol=1e-4)
    assert got[1].keys() == want[1].keys()
    for name, x in want[1].items():
        torch.testing.assert_close(got[1][name], x, rtol=1e-3, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def _as_eager(tiny, padding, made, name="wmma"):
    model, inputs = tiny.model(), batch(padding)
    seen = inputs["attention_mask"].bool()
    predicted = seen & F.pad(seen, (1, 0))[:, :-1]  # eager gives queries that see no key the mean of all values
    labels = inputs["input_ids"].masked_fill(~predicted, -100)
    got = _trained(model, inputs, labels, name)
    assert not made
    assert got[2]["attention"] == tiny.calls
    _alike(got, _trained(model, inputs, labels, "eager"), seen)


@pytest.mark.parametrize("padding", [None, "left", "right"])
@pytest.mark.parametrize("tiny", [*DECODERS, BERT, MODERN_BERT], ids=str)
def test_logits_and_gradients_are_eagers(tiny, padding, made):
    _as_eager(tiny, padding, made)


def _packed_inputs(rows=1):
    tokens = torch.randint(2, 61, (rows, sum(LENGTHS)), generator=torch.Generator().manual_seed(2))
    places = torch.cat([torch.arange(length) for length in LENGTHS])
    return {"input_ids": tokens, "position_ids": places.expand(rows, -1), "use_cache": False}


def _alone(model, inputs, labels):
    """By eager, sequence by sequence."""
    model = copy.deepcopy(model).train()
    model.set_attn_implementation("eager")
    ends = [0, *itertools.accumulate(LENGTHS)]
    logits, loss = [], 0
    for row, targets in zip(inputs["input_ids"], labels, strict=True):
        parts = [row[None, start:end] for start, end in itertools.pairwise(ends)]
        logits.append(torch.cat([model(input_ids=part, use_cache=False).logits for part in parts], 1))
        loss = loss + F.cross_entropy(logits[-1][0, :-1], targets[1:], ignore_index=-100, reduction="sum")
    (loss / (labels[:, 1:] != -100).sum()).backward()
    return torch.cat(logits).detach(), {k: x.grad for k, x in model.named_parameters() if x.grad is not None}


def _as_alone(tiny, made, rows=1, name="wmma", **more):
    model, inputs = tiny.model(), _packed_inputs(rows)
    labels = inputs["input_ids"].masked_fill(inputs["position_ids"] == 0, -100)  # no sequence predicts the next one's
    got = _trained(model, inputs | more, labels, name)
    assert not made
    assert got[2]["varlen_attention"] == tiny.calls
    _alike(got, _alone(model, inputs, labels))


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("tiny", DECODERS[:-1], ids=str)  # gpt-oss makes its masks without positions
def test_packed_sequences_by_their_positions(tiny, rows, made):
    _as_alone(tiny, made, rows)


def _words():
    """As transformers' data collator gives them for flash attention."""
    ends = F.pad(torch.tensor(LENGTHS).cumsum(0), (1, 0)).int()
    return {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": max(LENGTHS), "max_length_k": max(LENGTHS)}


@pytest.mark.parametrize("tiny", [LLAMA, QWEN2, GEMMA2, GPT_OSS], ids=str)
def test_packed_sequences_by_the_words_of_flash_attention(tiny, made):
    _as_alone(tiny, made, **_words())


@torch.no_grad()
def test_the_words_alone_say_it(made):
    """Without positions there is no mask at all; a window is the layer's then."""
    module = torch.nn.Identity().eval()
    module.is_causal = True
    q, k, v = (torch.randn(1, heads, sum(LENGTHS), 8) for heads in (4, 2, 2))

    def alone(start, end, mask, **options):
        parts = [x[:, :, start:end] for x in (q, k, v)]
        return attention_forward(module, parts[0], parts[1], parts[2], mask[None, None], **options)[0]

    for window, size in ((None, 99), (3, 3)):
        got, _ = attention_forward(module, q, k, v, None, sliding_window=window, softcap=2.0, **_words())
        ends = [0, *itertools.accumulate(LENGTHS)]
        for start, end in itertools.pairwise(ends):
            steps = torch.arange(end - start)[:, None] - torch.arange(end - start)
            want = alone(start, end, (steps >= 0) & (steps < size), softcap=2.0)
            torch.testing.assert_close(got[:, start:end], want)
    module.is_causal = False
    got, _ = attention_forward(module, q, k, v, None, sliding_window=3, **_words())
    steps = torch.arange(4)[:, None] - torch.arange(4)
    torch.testing.assert_close(got[:, :4], alone(0, 4, steps.abs() < 3))


def test_what_packed_sequences_do_not_go_with():
    module = torch.nn.Identity().train()
    q = torch.randn(1, 2, sum(LENGTHS), 8)
    with pytest.raises(ValueError, match="cu_seq_lens_q without a mask, with attention weights, a bias"):
        attention_forward(module, q, q, q, None, position_bias=torch.zeros(1, 2, q.shape[2], q.shape[2]), **_words())
    with pytest.raises(ValueError, match="a block table"):
        attention_forward(module, q, q, q, None, block_table=torch.zeros(1), **_words())


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
@torch.no_grad()
def test_packed_sequences_on_an_emulated_gpu(target):
    """Against float64, within the derived bound."""
    options = {"num_hidden_layers": 1, "layer_types": ["sliding_attention"]}
    model, checked = QWEN2.model(torch.float16, **options), Checked(attention_forward)
    model.set_attn_implementation(implementation(checked))
    with wmma_ops.emulate(target) as emulation:
        model(**_packed_inputs())
    assert checked.calls == 1
    assert emulation.launches


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("kind", ["bool", "added", "unmade"])
@torch.no_grad()
def test_the_words_keep_sequences_apart_beside_any_mask(kind, rows):
    """Of a mask that does not know of them, as a graph of the whole model makes one; sinks of each query need it made."""
    module, tokens = torch.nn.Identity().eval(), sum(LENGTHS)
    q, k, v = (torch.randn(rows, heads, tokens, 8) for heads in (4, 2, 2))
    arguments = {"batch_size": rows, "q_length": tokens, "kv_length": tokens, "q_offset": 0, "kv_offset": 0}
    mask = make_mask(**arguments, mask_function=FUNCTIONS["window"], attention_mask=None, config=LLAMA.model().config)
    options = {"sinks": torch.randn(rows, 4, tokens, 1)} if kind == "unmade" else {}
    if kind != "unmade":
        mask = mask.make()
    words = _words()
    if rows > 1:
        ends = torch.cat([words["cu_seq_lens_q"], words["cu_seq_lens_q"][1:] + tokens])
        words |= {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends}
    given = torch.where(mask, 0.0, -torch.inf) if kind == "added" else mask
    got, _ = attention_forward(module, q, k, v, given, **words, **options)
    for start, end in itertools.pairwise([0, *itertools.accumulate(LENGTHS)]):
        parts = [x[:, :, start:end] for x in (q, k, v)]
        mine = {name: x[:, :, start:end] for name, x in options.items()}
        seen = (mask | False)[:, :, start:end, start:end]
        want, _ = attention_forward(module, parts[0], parts[1], parts[2], seen, **mine)
        torch.testing.assert_close(got[:, start:end], want)


@torch.no_grad()
def test_dropout_and_weights_take_the_mask_of_packed_sequences(made):
    """What has its scores in memory has the mask there too."""
    model, inputs, found = QWEN2.model(), _packed_inputs(), []
    for name in ("wmma", "eager"):
        model.set_attn_implementation(name)
        found.append(model(**inputs, output_attentions=True).attentions)
    assert made
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_cap_of_packed_sequences_is_held_to_its_bound():
    """Every call of every layer, against float64."""
    model, checked = GEMMA2.model(), Checked(attention_forward)
    model.set_attn_implementation(implementation(checked))
    with torch.no_grad():
        model(**_packed_inputs())
    assert checked.calls == GEMMA2.calls


def _in_pieces(tiny, made):
    """A prompt whose first token is padding, in two pieces, into a cache with room for more."""
    model, tokens = tiny.model(), batch(None)["input_ids"]
    seen = torch.ones_like(tokens)
    seen[0, 0] = 0
    model.set_attn_implementation("wmma")
    cache, pieces = StaticCache(config=model.config, max_cache_len=16), []
    for start, end in ((0, 4), (4, 11)):
        pieces.append(model(input_ids=tokens[:, start:end], attention_mask=seen[:, :end], cache=cache).logits)
    assert not made
    model.set_attn_implementation("eager")
    want = model(input_ids=tokens, attention_mask=seen).logits
    torch.testing.assert_close(torch.cat(pieces, 1)[seen == 1], want[seen == 1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tiny", [LLAMA, QWEN2, GEMMA3], ids=str)
@torch.no_grad()
def test_a_cache_with_room(tiny, made):
    _in_pieces(tiny, made)


# ---------------------------------------------------------------------------------------------- what a mask says

# Queries, keys and where each begin: prompts, a cache that grows, one that slides, one that is larger than what it holds.
PLACES = [(7, 7, 0, 0), (1, 6, 5, 0), (3, 8, 5, 0), (4, 7, 9, 6), (5, 9, 0, 0), (3, 9, 2, 0)]


def _read(mask, batch_size, q_length, kv_length):
    """The mask that a sight stands for."""
    if mask is None:
        return (
            torch.ones(q_length, kv_length).bool() if q_length == 1 else torch.ones(q_length, kv_length).bool().tril()
        )
    if not isinstance(mask, masks.Unmade):
        return mask
    sight = mask.sight
    steps = torch.arange(q_length)[:, None] + sight.stands - torch.arange(kv_length)
    seen = torch.ones(batch_size, 1, q_length, kv_length, dtype=torch.bool)
    seen &= steps <= sight.left if sight.left >= 0 else seen
    seen &= -steps <= sight.right if sight.right >= 0 else seen
    seen &= sight.padding if sight.padding is not None else seen
    return seen


@pytest.mark.parametrize("padding", [None, "none", "left", "later"])
@pytest.mark.parametrize("places", PLACES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_says_what_sdpas_mask_does(name, places, padding, made):
    q_length, kv_length, q_offset, kv_offset = places
    seen = torch.ones(2, kv_offset + (q_length if padding == "later" else kv_length), dtype=torch.bool)
    if padding in ("left", "later"):
        seen[0, : kv_offset + 2] = False
    arguments = {"batch_size": 2, "q_length": q_length, "kv_length": kv_length}
    arguments |= {
        "q_offset": q_offset,
        "kv_offset": kv_offset,
        "mask_function": FUNCTIONS[name],
        "attention_mask": None if padding is None else seen,
    }
    arguments["allow_is_causal_skip"] = name in ("causal", "window")
    want = _sdpa_mask(**arguments | {"allow_is_causal_skip": False})
    mask = make_mask(**arguments, config=LLAMA.model().config)
    got = _read(mask, 2, q_length, kv_length).expand_as(want)
    assert torch.equal(got, want)
    known = name != "both sides" or q_offset - kv_offset == kv_length - q_length
    assert bool(made) == (not known)
    if mask is not None:
        assert mask.shape == (2, 1, q_length, kv_length)
        assert torch.equal(mask | False, want)


def _mask_of(tiny=QWEN2, **more):
    x = torch.randn(2, 9, 32)
    config = tiny.model().config
    config._attn_implementation = "wmma"
    seen = torch.ones(2, 9).bool()
    seen[0, :3] = False
    return masking_utils.create_sliding_window_causal_mask(config, x, seen, cache=None, **more)


X = torch.randn(2, 4, 9, 8, generator=torch.Generator().manual_seed(3))
TOUCHED = {
    "and": lambda mask: mask & torch.ones(9, 9).bool().triu(),
    "not": lambda mask: ~mask,
    "part": lambda mask: mask[:, :, 2:5, :7],
    "method": lambda mask: mask.to(torch.float32),
    "joined": lambda mask: torch.cat([mask, torch.ones(2, 1, 9, 2).bool()], -1),
    "where": lambda mask: torch.where(mask, 0.0, -torch.inf),
    "expanded": lambda mask: mask.expand(2, 4, 9, 9).contiguous(),
    "changed": lambda mask: mask.clone().fill_(False),
    "attention": lambda mask: F.scaled_dot_product_attention(*[X] * 3, attn_mask=mask),
    "added": lambda mask: mask.__radd__(1.0),
}


@pytest.mark.parametrize("name", TOUCHED)
def test_is_made_where_something_else_reads_it(name, made):
    mask = _mask_of()
    assert isinstance(mask, masks.Unmade)
    assert mask.shape == (2, 1, 9, 9)
    assert (mask.dtype, mask.ndim, mask.dim(), mask.device.type, mask.size(-1)) == (torch.bool, 4, 4, "cpu", 9)
    assert not made
    got = TOUCHED[name](mask)
    dense = mask.make()
    assert len(made) == 1  # once
    assert type(got) is torch.Tensor
    torch.testing.assert_close(got, TOUCHED[name](dense), equal_nan=True)
    torch.testing.assert_close(got, TOUCHED[name](made[0]), equal_nan=True)


@pytest.mark.parametrize(
    "write",
    [lambda mask: mask.__setitem__((..., 5, 3), False), lambda mask: mask.masked_fill_(torch.eye(9).bool(), False)],
    ids=["item", "method"],
)
def test_is_no_longer_what_it_was_once_it_is_written_to(write):
    mask, dense = _mask_of(), _mask_of().make().clone()
    write(mask)
    write(dense)
    module = torch.nn.Module().eval()
    got, want = (attention_forward(module, X, X, X, given)[0] for given in (mask, dense))
    torch.testing.assert_close(got, want)
    assert not torch.equal(got, attention_forward(module, X, X, X, _mask_of())[0])


def test_stays_unmade_where_it_is_moved_to_where_it_is(made):
    mask = _mask_of()
    assert mask.to("cpu") is mask
    assert mask.to(torch.device("cpu"), non_blocking=True) is mask
    assert not made
    assert mask.to("meta").device.type == "meta"
    assert type(mask.to("cpu", torch.float32)) is torch.Tensor


def test_is_made_past_torch_functions():
    """As where a library calls the dispatcher with torch's functions switched off."""
    mask = _mask_of()
    with torch._C.DisableTorchFunctionSubclass():
        assert torch.equal(torch.logical_not(mask), ~mask.make())


def test_functions_that_are_not_known_are_left_to_transformers(made):
    blocks = torch.tensor([[-1, -1, -1, 0, 0, 0, -1, -1, -1]] * 2)
    found = [
        _mask_of(block_sequence_ids=blocks),
        _mask_of(and_mask_function=lambda batch, head, q, k: q != 5),
        _mask_of(or_mask_function=lambda batch, head, q, k: k == 4),
    ]
    assert [type(mask) for mask in found] == [torch.Tensor] * 3
    assert len(made) == 3


def test_without_transformers_own_functions_masks_are_made(monkeypatch, made):
    masks._kinds.cache_clear()
    monkeypatch.delattr(masking_utils, "remap_positions_for_packed_sequence")
    try:
        assert type(_mask_of()) is torch.Tensor
    finally:
        masks._kinds.cache_clear()


@torch.no_grad()
def test_compiled_layers_take_it(made):
    """Layers that are compiled by themselves, beside a mask from without."""
    model = QWEN2.model()
    model.set_attn_implementation("wmma")
    cases = [batch("left"), batch("right"), _packed_inputs()]
    want = [
        model(**inputs, use_cache=False).logits if "use_cache" not in inputs else model(**inputs).logits
        for inputs in cases
    ]
    for layer in model.model.layers:
        layer.compile(backend="aot_eager", fullgraph=True)
    for inputs, logits in zip(cases, want, strict=True):
        seen = inputs["attention_mask"].bool() if "attention_mask" in inputs else slice(None)
        got = model(**inputs | {"use_cache": False}).logits
        torch.testing.assert_close(got[seen], logits[seen], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_compiled_model_keeps_packed_sequences_apart():
    """In one graph masks are made, by positions, with the words beside them or without."""
    for tiny, words in ((QWEN2, {}), (GEMMA2, _words())):
        torch.compiler.reset()
        model, inputs = tiny.model(num_hidden_layers=1, layer_types=["sliding_attention"]), _packed_inputs() | words
        model.set_attn_implementation("wmma")
        want = model(**inputs).logits
        got = torch.compile(model, backend="aot_eager", fullgraph=True)(**inputs).logits
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_recomputed_layers_take_it(made):
    model, inputs = MISTRAL.model().train(), batch("right")
    model.set_attn_implementation("wmma")
    found = []
    for _ in range(2):
        model.zero_grad()
        model(**inputs, labels=inputs["input_ids"]).loss.backward()
        found.append({key: x.grad.clone() for key, x in model.named_parameters()})
        model.gradient_checkpointing_enable()
    assert not made
    torch.testing.assert_close(*found)


# Wrong on purpose: each has to be noticed by what is asked above.


def _altered(**fields):
    def sight(*args):
        found = masks_sight(*args)
        return found and found._replace(**{name: alter(getattr(found, name)) for name, alter in fields.items()})

    return sight


masks_sight = masks.sight
WRONG = {
    "a window of one key more": (_altered(left=lambda left: left + 1 if left >= 0 else left), QWEN2, None),
    "padding is forgotten": (_altered(padding=lambda _: None), LLAMA, "left"),
    "queries stand one key later": (_altered(stands=lambda stands: stands + 1), LLAMA, "in pieces"),
    "the next key is seen": (_altered(right=lambda right: 1), MISTRAL, "left"),
    "a sequence begins too late": (_altered(ends=lambda ends: ends + (ends == LENGTHS[0])), LLAMA, "packed"),
}


@pytest.mark.parametrize("name", WRONG)
def test_is_caught(name, monkeypatch, made):
    wrong, tiny, padding = WRONG[name]
    monkeypatch.setattr(masks, "sight", wrong)
    checks = {"packed": lambda: _as_alone(tiny, made), "in pieces": lambda: _in_pieces(tiny, made)}
    with pytest.raises(AssertionError):
        checks.get(padding, lambda: _as_eager(tiny, padding, made))()
