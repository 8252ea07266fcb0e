"""``attn_implementation="wmma"`` for the models of transformers.

    from wmma_ops.integrations import transformers as wmma_transformers

    wmma_transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="wmma")

A call goes to the op `attention`. What that op does not take goes to two products of ours with the scores between them
(`scores.py`): a soft cap, dropout in training, attention weights that are asked for. What neither takes is refused.
Rows that may look at no key, as padding's own, give zeros.
"""

import functools

import torch

from wmma_ops.integrations.scores import attention_by_scores
from wmma_ops.ops import functions as ops
from wmma_ops.torch_internals import constant_for_compiler, has_forward_hooks

Tensor = torch.Tensor
NAME = "wmma"

# Models without sdpa, for their sinks or their soft cap, that take its masks.
_TAKE_SDPA_MASKS = ("gemma2", "gpt_oss")

# Arguments that change what a model computes, and that nothing here takes.
_REFUSED = {
    "cache": "a paged cache",
    "indices": "sparse attention by key indices",
    "block_indices": "sparse attention by blocks of keys",
}


def register() -> None:
    """Makes `attn_implementation="wmma"` known, for this process; models that do not ask for it stay as they are."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise ImportError(f"needs transformers 5 or later, pip install 'wmma_ops[transformers]': {error}") from error
    global _recorder
    _recorder = _find_recorder()
    AttentionInterface.register(NAME, attention_forward)
    # Without this one, transformers would make no masks at all: padding and windows would be ignored.
    AttentionMaskInterface.register(NAME, make_mask)


# What transformers' models record of their layers' results during a call; None where this transformers has no such thing.
_recorder = None


def _find_recorder():
    try:
        from transformers.utils import output_capturing
    except ImportError:
        return None
    return getattr(output_capturing, "_active_collector", None)


def make_mask(*args, config=None, **kwargs) -> Tensor | None:
    """transformers' `sdpa_mask`: bool (True: may look), or None where the layer's `is_causal` says the same.

    Models that are not written for it, or attend by themselves, get eager's, which is added, and always get one; those whose
    last layers may drop queries, with which None would mean another thing, do so too.
    """
    from transformers.masking_utils import eager_mask, sdpa_mask

    if not _takes_sdpa_masks(type(config)):
        return eager_mask(*args, config=config, **kwargs | {"allow_is_bidirectional_skip": False})
    if getattr(config, "num_kv_shared_layers", 0):
        kwargs["allow_is_causal_skip"] = False
    return sdpa_mask(*args, config=config, **kwargs)


@constant_for_compiler
def _takes_sdpa_masks(config_class: type) -> bool:
    """The compiler asks this while it traces, and takes the answer as it is."""
    return _supports_sdpa(config_class)


@functools.cache
def _supports_sdpa(config_class: type) -> bool:
    """Whether the models of that config do, or are known to take its masks all the same."""
    from transformers import PreTrainedModel

    models = [PreTrainedModel]
    for one in models:
        models.extend(one.__subclasses__())
    for kind in config_class.__mro__:
        found = [one for one in models if one.config_class is kind]
        if found:
            return any(one._supports_sdpa for one in found) or kind.model_type in _TAKE_SDPA_MASKS
    return False


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    sinks: Tensor | None = None,
    position_bias: Tensor | None = None,
    sliding_window: int | None = None,
    **kwargs,
) -> tuple[Tensor, Tensor | None]:
    """What a model of transformers calls in place of its own attention.

    Args:
        module: the model's attention layer.
        query: ``[batch, heads, Sq, E]``; key and value may have fewer heads.
        attention_mask: bool or floating, ``[batch, heads or 1, Sq, Skv]``, by transformers' `sdpa_mask` or the caller.
        dropout: as the layer asks for in training.
        is_causal: by default the layer's own `is_causal`; only where there is no mask and more than one query.
        s_aux, sinks: attention sinks, ``[heads]`` and ``[batch, heads, Sq, 1]``.
        position_bias: added to the scores; differentiable.
        sliding_window: what the mask already says; checked where there is no mask.

    Returns:
        ``[batch, Sq, heads, Ev]``, and the weights where the model's caller asks for them (`output_attentions=True`).
    """
    _check(attention_mask, key, sliding_window, kwargs)
    length = query.shape[2]
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    # One query without a mask is the last one: it sees every key.
    is_causal = length > 1 and attention_mask is None and is_causal
    weights_asked = _weights_asked(module, kwargs)
    if is_causal and not weights_asked:  # a static cache is longer than the prompt: its other keys are not seen
        key, value = key[:, :, :length], value[:, :, :length]
    if query.shape[0] != key.shape[0]:  # learned queries with a batch of 1
        batch = max(query.shape[0], key.shape[0])
        query, key, value = (x.expand(batch, *x.shape[1:]) for x in (query, key, value))
    if position_bias is not None:
        attention_mask = _biased(position_bias, attention_mask, is_causal, key.shape[2])
        is_causal = False
    sink = _sink(s_aux, sinks)

    dropout = dropout if module.training else 0.0
    if softcap is not None or dropout > 0 or weights_asked:
        out, weights = attention_by_scores(
            query,
            key,
            value,
            mask=attention_mask,
            is_causal=is_causal,
            scale=scaling,
            softcap=softcap,
            sinks=sink,
            dropout=dropout,
        )
        return out.transpose(1, 2).contiguous(), weights
    out, lse = ops.attention(
        query,
        key,
        value,
        mask=attention_mask,
        is_causal=bool(is_causal),
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    if sink is not None:  # the weights add up to e^lse / (e^lse + e^sink) of what they would
        out = (out * torch.sigmoid(lse - sink).unsqueeze(-1)).to(out.dtype)
    return out.transpose(1, 2).contiguous(), None


def _weights_asked(module: torch.nn.Module, options: dict) -> bool:
    """Whether the caller of the model takes attention weights: by a word to the layer, by the config, or as many models
    have it, by a recorder of what their layers give."""
    if options.get("output_attentions") or getattr(getattr(module, "config", None), "output_attentions", False):
        return True
    # The compiler follows a recorder only from within a model that set it; then the layer has its hook.
    if _recorder is None or (torch.compiler.is_compiling() and not has_forward_hooks(module)):
        return False
    recorded = _recorder.get()
    return recorded is not None and any(name.endswith("attentions") for name in recorded)


def _check(mask: Tensor | None, key: Tensor, sliding_window: int | None, others: dict) -> None:
    for name, meaning in _REFUSED.items():
        if others.get(name) is not None:
            raise ValueError(f'attn_implementation="wmma": got {name} ({meaning}); takes dense attention, use "sdpa"')
    if mask is not None and not isinstance(mask, Tensor):
        raise TypeError(f'attn_implementation="wmma": the mask is a {type(mask).__name__}; takes a tensor or None')
    if mask is None and isinstance(sliding_window, int) and key.shape[2] > sliding_window:
        raise ValueError(
            f'attn_implementation="wmma": {key.shape[2]} keys without a mask for a window of {sliding_window}; '
            "takes a mask: call wmma_ops.integrations.transformers.register(), which makes transformers build it"
        )


def _biased(bias: Tensor, mask: Tensor | None, is_causal: bool, keys: int) -> Tensor:
    """One floating mask of a bias and of what may be seen."""
    if mask is None and not is_causal:
        return bias
    if mask is None:
        bias = bias[..., :keys]
        mask = torch.ones(bias.shape[-2:], dtype=torch.bool, device=bias.device).tril()
    return torch.where(mask, bias, -torch.inf) if mask.dtype == torch.bool else bias + mask


def _sink(s_aux: Tensor | None, sinks: Tensor | None) -> Tensor | None:
    """The score of each row's sink, as it broadcasts to ``[batch, heads, Sq]``."""
    if s_aux is None:
        return None if sinks is None else sinks.squeeze(-1)
    return s_aux.reshape(1, -1, 1)
