"""Models within `wmma_ops.batch_invariant`: a Llama decodes the same bits alone and in a batch of 17."""

import places
import pytest
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig
from transformers_models import MODELS

import wmma_ops
from wmma_ops.integrations import transformers as integration

pytestmark = pytest.mark.usefixtures("one_thread")

BATCH, PROMPT, TOKENS = 17, 9, 4
# Of what torch computes on the CPU by itself, the elements at the end of a tensor have other instructions than the rest:
# rows of these sizes have no such end.
SIZES = {"hidden_size": 128, "intermediate_size": 192, "vocab_size": 128, "num_attention_heads": 2, "head_dim": 64}


def _model(dtype=torch.bfloat16, device="cpu"):
    integration.register()
    model = MODELS[0].model(dtype, **SIZES, num_key_value_heads=1, attn_implementation="wmma").to(device)
    wmma_ops.swap_(model, batch_invariant=True)
    return model


def _decoded(model, prompts):
    """Tokens, and the scores of each."""
    found = model.generate(
        prompts, max_new_tokens=TOKENS, do_sample=False, output_scores=True, return_dict_in_generate=True
    )
    return found.sequences, torch.stack(found.scores, 1)


def _differences(model, device="cpu") -> int:
    """How many sequences of a batch have other scores alone."""
    prompts = torch.randint(1, SIZES["vocab_size"], (BATCH, PROMPT), generator=torch.Generator().manual_seed(1))
    tokens, scores = _decoded(model, prompts.to(device))
    assert not torch.ops.wmma._is_batch_invariant()
    some = range(BATCH) if device == "cuda" else (0, 11, BATCH - 1)
    alone = [_decoded(model, prompts[i : i + 1].to(device)) for i in some]
    return sum(
        not (torch.equal(own[0], tokens[i]) and torch.equal(own_scores[0], scores[i]))
        for i, (own, own_scores) in zip(some, alone, strict=True)
    )


@pytest.mark.parametrize("place", ["cpu", "gfx942", "gfx1201", "cuda"])
@torch.no_grad()
def test_a_llama_alone_and_among_17(place):
    if place == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    with places.on(place):
        assert (
            _differences(_model(device="cuda" if place == "cuda" else "cpu"), "cuda" if place == "cuda" else "cpu") == 0
        )


@torch.no_grad()
def test_without_the_mode_it_is_not_so():
    model = _model(torch.float32)
    wmma_ops.restore_(model)
    wmma_ops.swap_(model)
    assert _differences(model) > 0


@torch.no_grad()
def test_sequences_of_other_lengths_in_pages():
    """By transformers' continuous batching, which runs the model on a thread of its own."""
    model = _model()
    prompts = [[5 + i, *range(7, 7 + i)] for i in range(0, BATCH, 2)]
    generation = GenerationConfig(max_new_tokens=TOKENS, do_sample=False, pad_token_id=0, eos_token_id=-1)
    batching = ContinuousBatchingConfig(
        page_size=16, num_blocks=64, max_batch_tokens=24, use_async_batching=False, auto_switch_to_flash=False,
        return_logprobs=True,
    )  # fmt: skip

    def answered(some):
        with integration.continuous_batching(model), wmma_ops.batch_invariant():
            found = model.generate_batch(
                inputs=some, generation_config=generation, continuous_batching_config=batching
            ).values()
        assert [result.error for result in found] == [None] * len(some)
        return [(result.generated_tokens, result.logprobs) for result in found]

    together = answered(prompts)
    assert len(together[0][1]) == TOKENS
    for i in (0, 3, len(prompts) - 1):
        assert answered(prompts[i : i + 1]) == together[i : i + 1]
