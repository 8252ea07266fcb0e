"""Models of transformers by their published configurations, with a batch of their inputs, for benches of whole models."""

import importlib.util
from collections.abc import Callable

import drawn_models
import running
import torch
from torch import nn

# Of transformers: the class, its configuration, and a batch of (sequences, tokens or what is no text, whether they are
# padded).
LLAMA = {
    "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16, "num_attention_heads": 16,
    "num_key_value_heads": 16, "vocab_size": 32000, "max_position_embeddings": 2048,
}  # fmt: skip
WHISPER = {
    "d_model": 768, "encoder_layers": 12, "encoder_attention_heads": 12, "encoder_ffn_dim": 3072, "num_labels": 1000,
}  # fmt: skip
GROUPED = LLAMA | {"num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 4}
PICTURES, SPEECH = "pictures", "speech"
WITH_LORA = "the Llama with LoRA of rank 16 everywhere"
EAGER = {
    "Llama, 16 layers of 2048, 4x1024": ("LlamaForCausalLM", "LlamaConfig", LLAMA, (4, 1024, False)),
    "the same, padded": ("LlamaForCausalLM", "LlamaConfig", LLAMA, (4, 1024, True)),
    "BERT-base 32x512, padded": ("BertForMaskedLM", "BertConfig", {}, (32, 512, True)),
    "ViT-B 64x197": ("ViTForImageClassification", "ViTConfig", {"num_labels": 1000}, (64, PICTURES, False)),
    "Whisper-small's encoder, 4x1500": ("WhisperForAudioClassification", "WhisperConfig", WHISPER, (4, SPEECH, False)),
}
LORA = {WITH_LORA: EAGER["Llama, 16 layers of 2048, 4x1024"]}
FEW = {"num_hidden_layers": 4}  # as many say as much, and compile sooner
QWEN = {
    "hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 32000,
}  # fmt: skip
GEMMA = {
    "hidden_size": 2304, "intermediate_size": 9216, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "vocab_size": 32000,
}  # fmt: skip
MISTRAL = LLAMA | {"intermediate_size": 7168, "num_key_value_heads": 4, "sliding_window": 512}
T5 = {
    "num_layers": 3, "num_decoder_layers": 3, "d_model": 768, "d_ff": 3072, "num_heads": 12, "dropout_rate": 0.0,
    "decoder_start_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
COMPILED = {
    "Llama, 8 layers of 2048, 4x2048": ("LlamaForCausalLM", "LlamaConfig", GROUPED, (4, 2048, False)),
    "Llama, 8 layers of 2048, 4x1024": ("LlamaForCausalLM", "LlamaConfig", GROUPED, (4, 1024, False)),
    "Llama, 4 layers of 2048, 4x1024, padded": ("LlamaForCausalLM", "LlamaConfig", GROUPED | FEW, (4, 1024, True)),
    "BERT-base, 4 layers, 32x512, padded": ("BertForMaskedLM", "BertConfig", FEW, (32, 512, True)),
    "ViT-B, 4 layers, 64x197": (
        "ViTForImageClassification", "ViTConfig", FEW | {"num_labels": 1000}, (64, PICTURES, False),
    ),
    "Whisper-small's encoder, 4 layers, 4x1500": (
        "WhisperForAudioClassification", "WhisperConfig", WHISPER | {"encoder_layers": 4}, (4, SPEECH, False),
    ),
    "T5-base, 3 and 3 layers, 16x512": ("T5ForConditionalGeneration", "T5Config", T5, (16, 512, False)),
    "GPT-2, 4 layers, 8x1024": ("GPT2LMHeadModel", "GPT2Config", {"n_layer": 4}, (8, 1024, False)),
    "Qwen2-1.5B, 4 layers, 4x1024": ("Qwen2ForCausalLM", "Qwen2Config", QWEN | FEW, (4, 1024, False)),
    "Gemma-2-2B, 4 layers, 4x1024": ("Gemma2ForCausalLM", "Gemma2Config", GEMMA | FEW, (4, 1024, False)),
    "Mistral, 4 layers of 2048, 2x2048": ("MistralForCausalLM", "MistralConfig", MISTRAL | FEW, (2, 2048, False)),
}  # fmt: skip
FIRST = 2  # of a quick run
TINY = {"num_hidden_layers": 2}


def names() -> list[str]:
    """Of the models that are run in eager mode."""
    return [*EAGER, *(LORA if importlib.util.find_spec("peft") else ())]


def draw(seed: int, count: int) -> list[str]:
    """The names of models whose sizes are drawn, which `made` knows from then on."""
    found = drawn_models.drawn(seed, count)
    COMPILED.update(found)
    return [*found]


def made(name: str, tiny: bool) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """The model in bfloat16, training, without dropout, and its inputs, labels among them."""
    import transformers

    kind, config, options, (batch, tokens, is_padded) = (EAGER | LORA | COMPILED)[name]
    built = getattr(transformers, config)(**(options | (TINY if tiny else {})))
    torch.manual_seed(0)
    model = getattr(transformers, kind)(built).to(device=running.DEVICE, dtype=torch.bfloat16).train()
    for one in model.modules():
        if isinstance(one, nn.Dropout):
            one.p = 0.0
    model.config.attention_probs_dropout_prob = 0.0
    if name in LORA:
        model = _with_lora(model)
    batch = 2 if tiny else batch
    if isinstance(tokens, str):
        labels = torch.randint(0, 1000, (batch,), device=running.DEVICE)
        key, sizes = {PICTURES: ("pixel_values", (3, 224, 224)), SPEECH: ("input_features", (80, 3000))}[tokens]
        return model, {key: torch.randn(batch, *sizes, device=running.DEVICE).bfloat16(), "labels": labels}
    words = torch.randint(0, built.vocab_size, (batch, 64 if tiny else tokens), device=running.DEVICE)
    inputs = {"input_ids": words, "labels": words}
    if is_padded:
        lengths = torch.linspace(words.shape[1] // 2, words.shape[1], batch, device=running.DEVICE).long()
        inputs["attention_mask"] = (torch.arange(words.shape[1], device=running.DEVICE) < lengths[:, None]).long()
    return model, inputs


def _with_lora(model: nn.Module) -> nn.Module:
    import peft

    config = peft.LoraConfig(r=16, target_modules="all-linear", init_lora_weights=False)
    return peft.get_peft_model(model, config).bfloat16()


def loss(model: nn.Module, inputs: dict[str, torch.Tensor]) -> Callable:
    return torch.no_grad()(lambda: model(**inputs).loss)


def step(model: nn.Module, inputs: dict[str, torch.Tensor]) -> Callable:
    """The gradients of all that is trained."""
    parameters = [one for one in model.parameters() if one.requires_grad]
    return lambda: torch.autograd.grad(model(**inputs).loss, parameters, allow_unused=True, materialize_grads=True)


def check_losses(name: str, losses: list[float]) -> float:
    """How far they are from the first."""
    error = max(abs(one - losses[0]) for one in losses)
    if error > 0.02 * losses[0]:
        raise AssertionError(f"{name}: losses are {losses}")
    return error
