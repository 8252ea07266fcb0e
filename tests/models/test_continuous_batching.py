"""transformers' continuous batching with our attention: the same tokens as dense generation, prompt by prompt."""

import pytest
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig
from transformers_models import MISTRAL, MODELS, T5

from wmma_ops.integrations.transformers import continuous_batching
from wmma_ops.ops import functions as ops

pytestmark = pytest.mark.usefixtures("one_thread")

LLAMA, QWEN2, _, GEMMA2, _, GPT_OSS, _ = MODELS
# Shorter and longer than the window, and one that a batch of so many tokens takes in two pieces.
PROMPTS = [[5, 6, 7], [8], list(range(10, 21)), [5, 6, 7, 30, 31, 32]]
TOKENS = 6


def _settings():
    generation = GenerationConfig(max_new_tokens=TOKENS, do_sample=False, pad_token_id=0, eos_token_id=60)
    batching = ContinuousBatchingConfig(
        page_size=4, num_blocks=64, max_batch_tokens=8, use_async_batching=False, auto_switch_to_flash=False
    )
    return {"generation_config": generation, "continuous_batching_config": batching}


def _batched(model):
    found = model.generate_batch(inputs=PROMPTS, **_settings())
    assert [result.error for result in found.values()] == [None] * len(PROMPTS)
    return [result.generated_tokens for result in found.values()]


def _dense(model):
    model.set_attn_implementation("eager")
    options = _settings()["generation_config"]
    return [
        model.generate(torch.tensor([prompt]), generation_config=options)[0, len(prompt) :].tolist()
        for prompt in PROMPTS
    ]


@pytest.fixture
def calls(monkeypatch):
    """Of our attention, which runs on a thread of transformers': the lengths of each call's sequences."""
    found, attend = [], ops.varlen_attention

    def attention(query, key, value, cu_seq_q, *where, **options):
        found.append(cu_seq_q.diff().tolist())
        return attend(query, key, value, cu_seq_q, *where, **options)

    monkeypatch.setattr(ops, "varlen_attention", attention)
    return found


def _as_dense(tiny, calls):
    model = tiny.model()
    with continuous_batching(model):
        got = _batched(model)
    assert got == _dense(model)
    assert len({token for tokens in got for token in tokens}) > 8
    assert max(map(len, calls)) > 2  # several at once
    assert max(map(max, calls)) < len(PROMPTS[2])  # and that one in pieces


@pytest.mark.parametrize("tiny", [LLAMA, QWEN2, MISTRAL, GEMMA2, GPT_OSS], ids=str)
@torch.no_grad()
def test_the_same_tokens(tiny, calls):
    _as_dense(tiny, calls)


def test_the_model_is_as_it_was_behind_it():
    model = QWEN2.model()
    model.set_attn_implementation("eager")
    with continuous_batching(model):
        assert model.config._attn_implementation != "eager"
    assert {module.config._attn_implementation for module in model.modules() if hasattr(module, "config")} == {"eager"}


def test_models_that_have_no_flash_attention_are_refused():
    with (
        pytest.raises(ValueError, match="T5ForConditionalGeneration does not support flash attention"),
        continuous_batching(T5.model()),
    ):
        pass


# Wrong on purpose: other tokens come of it.

WRONG = {
    "the window is forgotten": lambda attend: (
        lambda *a, window_size, **o: attend(*a, window_size=(-1, window_size[1]), **o)
    ),
    "a key too few": lambda attend: (
        lambda q, k, v, cu_q, cu_k, *a, **o: attend(
            q, k, v, cu_q, cu_k, *a, **o, seqused_k=(cu_k.diff() - 1).clamp(min=1)
        )
    ),
}


@pytest.mark.parametrize("name", WRONG)
@torch.no_grad()
def test_is_caught(name, calls, monkeypatch):
    monkeypatch.setattr(ops, "varlen_attention", WRONG[name](ops.varlen_attention))
    model = MISTRAL.model()
    with continuous_batching(model):
        got = _batched(model)
    assert got != _dense(model)
