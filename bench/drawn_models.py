"""Models of transformers whose sizes are drawn by a seed: kinds and proportions as published, few layers."""

import random
from collections.abc import Callable
from typing import NamedTuple

Options = dict[str, object]
PICTURES = "pictures"


class Sizes(NamedTuple):
    hidden: int
    heads: int
    kv_heads: int
    width: int  # of the MLP
    layers: int

    @property
    def usual(self) -> Options:
        return {
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.width,
        }

    @property
    def grouped(self) -> Options:
        return self.usual | {"num_key_value_heads": self.kv_heads}


class Kind(NamedTuple):
    """A class of models: of its sizes its configuration's options, and whether what it reads is words."""

    model: str
    config: str
    options: Callable[[Sizes], Options]
    reads: str = "words"  # or "padded" ones, or pictures


VOCABULARY = {"vocab_size": 32000}
KINDS = (
    Kind("LlamaForCausalLM", "LlamaConfig", lambda x: x.grouped | VOCABULARY),
    Kind("LlamaForCausalLM", "LlamaConfig", lambda x: x.grouped | VOCABULARY, "padded"),
    Kind("MistralForCausalLM", "MistralConfig", lambda x: x.grouped | VOCABULARY | {"sliding_window": 512}),
    Kind("Qwen2ForCausalLM", "Qwen2Config", lambda x: x.grouped | VOCABULARY),
    Kind("Qwen3ForCausalLM", "Qwen3Config", lambda x: x.grouped | VOCABULARY | {"head_dim": x.hidden // x.heads}),
    Kind("GemmaForCausalLM", "GemmaConfig", lambda x: x.grouped | VOCABULARY | {"head_dim": 256}),
    Kind("GraniteForCausalLM", "GraniteConfig", lambda x: x.grouped | VOCABULARY),
    Kind("Olmo2ForCausalLM", "Olmo2Config", lambda x: x.grouped | VOCABULARY),
    Kind("Starcoder2ForCausalLM", "Starcoder2Config", lambda x: x.grouped | VOCABULARY | {"sliding_window": None}),
    Kind("Phi3ForCausalLM", "Phi3Config", lambda x: x.grouped | VOCABULARY | {"pad_token_id": None}),
    Kind("GPTNeoXForCausalLM", "GPTNeoXConfig", lambda x: x.usual | VOCABULARY),
    Kind(
        "GPT2LMHeadModel",
        "GPT2Config",
        lambda x: {"n_embd": x.hidden, "n_layer": x.layers, "n_head": x.heads, "n_inner": x.width, "n_positions": 2048},
    ),
    Kind(
        "OPTForCausalLM",
        "OPTConfig",
        lambda x: {
            **{name: value for name, value in x.usual.items() if name != "intermediate_size"},
            **{"ffn_dim": x.width, "word_embed_proj_dim": x.hidden, "dropout": 0.0, **VOCABULARY},
        },
    ),
    Kind("BertForMaskedLM", "BertConfig", lambda x: x.usual | {"max_position_embeddings": 2048}, "padded"),
    Kind("RobertaForMaskedLM", "RobertaConfig", lambda x: x.usual | {"max_position_embeddings": 2050}),
    Kind("ViTForImageClassification", "ViTConfig", lambda x: x.usual | {"num_labels": 1000}, PICTURES),
    Kind(
        "Dinov2ForImageClassification",
        "Dinov2Config",
        lambda x: (
            {name: value for name, value in x.usual.items() if name != "intermediate_size"} | {"num_labels": 1000}
        ),
        PICTURES,
    ),
)
HEAD_SIZES = (64, 64, 80, 96, 128, 128)
MOST_TOKENS = 8192


def drawn(seed: int, count: int) -> dict[str, tuple[str, str, Options, tuple[int, int | str, bool]]]:
    """So many, as `published.COMPILED` has them: the class, its configuration's, its options, and a batch."""
    draw, found = random.Random(seed), {}
    while len(found) < count:
        kind, size = draw.choice(KINDS), draw.choice(HEAD_SIZES)
        group, key_heads = draw.choice(((1, draw.randint(8, 32)), (2, draw.randint(4, 12)), (4, draw.randint(2, 8))))
        heads = group * key_heads
        width = round(draw.uniform(2.5, 4.5) * heads * size / 64) * 64
        sizes = Sizes(heads * size, heads, key_heads, width, draw.randint(2, 4))
        batch = draw.choice((1, 2, 4, 8, 16))
        tokens = min(round(draw.uniform(200, 2048)), MOST_TOKENS // batch)
        of_batch = (4 * batch, PICTURES, False) if kind.reads == PICTURES else (batch, tokens, kind.reads == "padded")
        options = kind.options(sizes)
        of_heads = f"{heads}/{key_heads}" if "num_key_value_heads" in options else str(heads)
        shape = f"{of_batch[0]} pictures" if kind.reads == PICTURES else f"{batch}x{tokens}"
        padded = ", padded" if kind.reads == "padded" else ""
        of_layers = f"{sizes.layers} layers of {sizes.hidden}, {of_heads} heads, MLP {width}"
        title = f"{kind.model.partition('For')[0]}, {of_layers}, {shape}{padded} ({seed})"
        found[title] = kind.model, kind.config, options, of_batch
    return found
