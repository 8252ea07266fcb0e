"""Models of transformers with random weights, small enough to run in milliseconds, and what their attention should give."""

import copy
from dataclasses import dataclass

import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from wmma_ops.integrations.transformers import make_mask
from wmma_ops.testing import reference

_COMMON = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "tie_word_embeddings": False,
}
WINDOW = 5
_WINDOWED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
_BERT = {name: value for name, value in _COMMON.items() if name != "num_key_value_heads"}
_T5 = {"vocab_size": 61, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}


@dataclass(frozen=True)
class Tiny:
    """A class of transformers and the options of its config; `peer` is what to hold it against."""

    kind: str
    options: dict
    calls: int = 2
    peer: str = "sdpa"

    def __str__(self):
        return self.kind.removesuffix("ForCausalLM").removesuffix("ForMaskedLM")

    @property
    def generates(self) -> bool:
        return self.kind.endswith("ForCausalLM")

    def model(self, dtype=torch.float32, **options) -> transformers.PreTrainedModel:
        kind = getattr(transformers, self.kind)
        torch.manual_seed(0)
        model = kind(kind.config_class(**self.options | options))
        for parameter in model.parameters():  # wide enough that attention does not look at all keys alike
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.25)
        for name, parameter in model.named_parameters():
            if name.endswith("sinks"):
                torch.nn.init.normal_(parameter)
        if hasattr(model.config, "num_local_experts"):
            model.set_experts_implementation("eager")  # the others have no float64
        return model.to(dtype).eval()


MODELS = (
    Tiny("LlamaForCausalLM", _COMMON),
    Tiny("Qwen2ForCausalLM", _COMMON | _WINDOWED | {"use_sliding_window": True}),
    Tiny("Qwen3ForCausalLM", _COMMON | {"head_dim": 12}),
    Tiny(
        "Gemma2ForCausalLM",
        _COMMON | _WINDOWED | {"head_dim": 16, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0},
        peer="eager",
    ),
    Tiny("Gemma3ForCausalLM", _COMMON | _WINDOWED | {"head_dim": 20, "query_pre_attn_scalar": 20}),
    Tiny(
        "GptOssForCausalLM",
        _COMMON | _WINDOWED | {"head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1},
        peer="eager",
    ),
    Tiny("BertForMaskedLM", _BERT | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}),
)
# Without sdpa in transformers, and not written for its masks.
EAGER_ONLY = (
    Tiny(
        "BigBirdPegasusForCausalLM",
        {"vocab_size": 61, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 48}
        | {"max_position_embeddings": 64, "eos_token_id": None},
    ),
    Tiny(
        "DeepseekV4ForCausalLM",
        _COMMON
        | {"head_dim": 16, "num_key_value_heads": 1, "q_lora_rank": 16, "o_lora_rank": 16, "o_groups": 2}
        | {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 1}
        | {"index_n_heads": 2, "index_head_dim": 8, "index_topk": 4, "sliding_window": WINDOW}
        | {"layer_types": ["compressed_sparse_attention", "heavily_compressed_attention"]},
    ),
)
GEMMA4 = Tiny(
    "Gemma4ForCausalLM",
    _COMMON
    | {
        "head_dim": 8,
        "global_head_dim": 16,
        "num_global_key_value_heads": 2,
        "num_hidden_layers": 4,
        "sliding_window": 32,
    }
    | {"layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2}
    | {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 61},
    calls=4,
)
# Their layers keep to themselves whether weights are asked for; transformers records what they give.
RECORDED = (
    Tiny(
        "GPT2LMHeadModel",
        {"vocab_size": 61, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
        | {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": None},
    ),
    Tiny(
        "OPTForCausalLM",
        _BERT | {"ffn_dim": 48, "word_embed_proj_dim": 32, "dropout": 0.0},
    ),
)
MISTRAL = Tiny("MistralForCausalLM", _COMMON | {"head_dim": 8, "sliding_window": WINDOW})
T5 = Tiny("T5ForConditionalGeneration", _T5 | {"decoder_start_token_id": 0}, calls=6)


def batch(padding: str | None, length: int = 11) -> dict[str, torch.Tensor]:
    """Two rows of tokens; with padding, the first has four of it on that side."""
    tokens = torch.randint(2, 61, (2, length), generator=torch.Generator().manual_seed(1))
    seen = torch.ones_like(tokens)
    if padding is not None:
        where = slice(0, 4) if padding == "left" else slice(length - 4, length)
        seen[0, where] = 0
        tokens[0, where] = 0
    return {"input_ids": tokens, "attention_mask": seen}


def expected(module, query, key, value, attention_mask, scaling=None, **options) -> reference.Value:
    """What a call of an attention function of transformers should give, [batch, heads, Sq, Ev], in float64."""
    if torch.is_autocast_enabled("cpu"):
        query, key, value = (x.to(torch.get_autocast_dtype("cpu")) for x in (query, key, value))
    sq, skv = query.shape[2], key.shape[2]
    added = torch.zeros(query.shape[0], query.shape[1], sq, skv, dtype=torch.float64)
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        added = added.masked_fill(~attention_mask, -torch.inf)
    elif attention_mask is not None:
        added = added + attention_mask.double()
    elif (module.is_causal if options.get("is_causal") is None else options["is_causal"]) and sq > 1:
        added = added.masked_fill(torch.arange(skv) > torch.arange(sq)[:, None], -torch.inf)
    if options.get("position_bias") is not None:
        added = added + options["position_bias"].double()
    tensors = {"q": query, "k": key, "v": value, "mask": added}
    if options.get("s_aux") is not None:
        tensors["later_sinks"] = options["s_aux"].view(1, -1, 1)
    if options.get("sinks") is not None:
        tensors["later_sinks"] = options["sinks"][..., 0]
    return reference.attention(tensors, scale=scaling, softcap=options.get("softcap"))[0]


def exact(model: transformers.PreTrainedModel) -> transformers.PreTrainedModel:
    """The same model in float64. (transformers' own plain attention has float32 inside, and NaN in rows that see no key.)"""
    model = copy.deepcopy(model).double()
    plain = implementation(lambda *a, **o: (expected(*a, **o).x.transpose(1, 2), None), "exact", sdpa_mask)
    model.set_attn_implementation(plain)
    return model


class Checked:
    """An attention function of transformers whose every result is held against float64, within the derived bound."""

    def __init__(self, function):
        self.function = function
        self.calls = 0

    def __call__(self, *arguments, **options):
        out, weights = self.function(*arguments, **options)
        self.calls += 1
        with torch.no_grad():
            want = expected(*arguments, **options)
        off = (out.detach().transpose(1, 2).double() - want.x).abs()
        worst = (off - want.error).flatten().argmax()
        where = tuple(int(i) for i in torch.unravel_index(worst, off.shape))
        text = f"off by {off[where]:.3g} of at most {want.error[where]:.3g} at (batch, head, query, element) {where}"
        assert bool((off <= want.error).all()), f"{type(arguments[0]).__name__}: {text}"
        return out, weights


def implementation(function, name="checked", mask=make_mask):
    """Makes a function known to transformers under a name of the tests, with the masks that ours gets."""
    AttentionInterface.register(f"wmma_test_{name}", function)
    AttentionMaskInterface.register(f"wmma_test_{name}", mask)
    return f"wmma_test_{name}"
