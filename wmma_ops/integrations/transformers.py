"""``attn_implementation="wmma"`` for the models of transformers.

    from wmma_ops.integrations import transformers as wmma_transformers

    wmma_transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="wmma")

A call goes to the op `attention`, with its window, soft cap and sinks, or to `varlen_attention` where sequences are packed:
by their position_ids, or by cu_seq_lens_q and the other words that flash attention takes. Masks are made only for what
cannot do without (`masks.py`). Dropout in training and attention weights that are asked for go to two products of ours with
the scores between them (`scores.py`). What neither takes is refused. Rows that may look at no key, as padding's own, give
zeros.
"""

import contextlib
import functools
from collections.abc import Iterator

import torch

from wmma_ops.integrations import masks
from wmma_ops.integrations.scores import attention_by_scores
from wmma_ops.ops import functions as ops
from wmma_ops.torch_internals import constant_for_compiler, has_forward_hooks

Tensor = torch.Tensor
NAME = "wmma"
_BATCHED = "wmma_flash"  # transformers takes names with this word in it for one that packs sequences

# Models without sdpa, for their sinks or their soft cap, that take its masks.
_TAKE_SDPA_MASKS = ("gemma2", "gpt_oss")

# Arguments that change what a model computes, and that nothing here takes.
_REFUSED = {
    "cache": "a paged cache",
    "block_table": "a block table of pages",
    "indices": "sparse attention by key indices",
    "block_indices": "sparse attention by blocks of keys",
}


def register() -> None:
    """Makes `attn_implementation="wmma"` known, for this process; models that do not ask for it stay as they are."""
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise ImportError(f'needs transformers 5 or later, pip install "transformers>=5": {error}') from error
    global _recorder
    _recorder = _find_recorder()
    AttentionInterface.register(NAME, attention_forward)
    # Without this one, transformers would make no masks at all: padding and windows would be ignored.
    AttentionMaskInterface.register(NAME, make_mask)
    AttentionInterface.register(_BATCHED, attention_forward)
    AttentionMaskInterface.register(_BATCHED, make_mask)


@contextlib.contextmanager
def continuous_batching(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Within it, `model.generate_batch`, and what `init_continuous_batching` starts, attend by ours, with keys and values in
    transformers' own pages.

    transformers has a list of implementations that its continuous batching takes, and takes ours as one that needs no masks.

    Args:
        model: of a class that supports flash attention, as continuous batching without masks asks for.
    """
    register()
    if not getattr(model, "_supports_flash_attn", False):
        raise ValueError(
            f'attn_implementation="{NAME}": {type(model).__name__} does not support flash attention; takes a model that does'
        )
    configs = {id(config): config for x in model.modules() if (config := getattr(x, "config", None)) is not None}
    before = {key: config._attn_implementation for key, config in configs.items()}
    try:
        for config in configs.values():
            config._attn_implementation = _BATCHED
        yield model
    finally:
        for key, config in configs.items():
            config._attn_implementation = before[key]


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

    Where the mask is made of windows, packed sequences and padding, it is made only if something beside our attention reads
    it (`masks.py`), which torch.compile does. Models that are not written for it, or attend by themselves, get eager's,
    which is added, and always get one; those whose last layers may drop queries, with which None would mean another thing,
    do so too.
    """
    from transformers.masking_utils import eager_mask, sdpa_mask

    if not _takes_sdpa_masks(type(config)):
        return eager_mask(*args, config=config, **kwargs | {"allow_is_bidirectional_skip": False})
    if getattr(config, "num_kv_shared_layers", 0):
        kwargs["allow_is_causal_skip"] = False
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or args or "mask_function" not in kwargs:
        return sdpa_mask(*args, config=config, **kwargs)
    return _unmade_mask(functools.partial(sdpa_mask, config=config), **kwargs)


def _unmade_mask(
    sdpa_mask, *, q_length: int, kv_length: int, q_offset=0, kv_offset=0, mask_function, attention_mask=None, **given
) -> Tensor | None:
    given |= {"q_length": q_length, "kv_length": kv_length, "mask_function": mask_function}
    sight = masks.sight(q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask)
    if sight is None:
        return sdpa_mask(q_offset=q_offset, kv_offset=kv_offset, attention_mask=attention_mask, **given)
    is_narrow = 0 <= sight.left < kv_length - 1  # narrower than what there is, room of a static cache as well
    if sight.padding is None and sight.ends is None and not is_narrow:
        if sight.right < 0 and given.get("allow_is_bidirectional_skip", False):
            return None
        same = sight.stands == (kv_length - 1 if q_length == 1 else 0)  # as attention_forward takes is_causal
        if sight.right == 0 and same and given.get("allow_is_causal_skip", True):
            return None
    given |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False, "attention_mask": attention_mask}
    # A static cache counts on in the tensor that it gave.
    make = functools.partial(sdpa_mask, q_offset=int(q_offset), kv_offset=int(kv_offset), **given)
    shape = (given["batch_size"], 1, q_length, kv_length)
    return masks.Unmade.of(shape, given.get("device", "cpu"), sight, make)


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
        sliding_window: what the mask already says; checked where there is no mask, and taken for packed sequences.
        kwargs: cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k: all rows' tokens are sequences one after the other.

    Returns:
        ``[batch, Sq, heads, Ev]``, and the weights where the model's caller asks for them (`output_attentions=True`).
    """
    words = _words(kwargs)
    _check(attention_mask, key, sliding_window if words is None else None, kwargs)
    length = query.shape[2]
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    weights_asked = _weights_asked(module, kwargs)
    dropout = dropout if module.training else 0.0
    sinks_of_queries = sinks is not None and s_aux is None
    if s_aux is not None and s_aux.dtype not in (torch.float32, query.dtype):  # as autocast leaves them
        s_aux = s_aux.float()

    # 1. What the mask says, or the mask itself.
    sight = packed = None
    if isinstance(attention_mask, masks.Unmade) and attention_mask.sight is None:  # it was written to
        attention_mask = attention_mask.make()
    if isinstance(attention_mask, masks.Unmade):
        sight = attention_mask.sight
        packed = words or _ends(attention_mask)
        fits = attention_mask.shape[2:] == (length, key.shape[2])
        alone = packed is None or (sight.padding is None and not sinks_of_queries)
        if fits and alone and not weights_asked and position_bias is None:
            attention_mask = sight.padding
        else:
            sight, packed, attention_mask = None, None, attention_mask.make()
    elif attention_mask is None and words is not None:
        packed = words
        if weights_asked or position_bias is not None or sinks_of_queries:
            raise ValueError(
                f'attn_implementation="{NAME}": cu_seq_lens_q without a mask, with attention weights, a bias or sinks of '
                "each query; takes position_ids with these"
            )
    if words is not None and packed is None:
        attention_mask = _apart(attention_mask, words, key.shape[2])

    sink = _sink(s_aux, sinks)
    rules = {"scale": scaling, "softcap": softcap or 0.0, "dropout_p": dropout}
    if packed is not None:
        window = _window(sliding_window, is_causal) if sight is None else (sight.left, sight.right)
        return _attend_packed(query, key, value, packed, window_size=window, sinks=s_aux, **rules), None

    # 2. One query without a mask is the last one: it sees every key.
    is_causal = length > 1 and attention_mask is None and bool(is_causal) if sight is None else sight.right == 0
    if is_causal and not weights_asked:  # a static cache is longer than the prompt: its other keys are not seen
        seen = length if sight is None else sight.stands + length
        key, value = key[:, :, :seen], value[:, :, :seen]
        attention_mask = None if attention_mask is None else attention_mask[..., :seen]
    if query.shape[0] != key.shape[0]:  # learned queries with a batch of 1
        batch = max(query.shape[0], key.shape[0])
        query, key, value = (x.expand(batch, *x.shape[1:]) for x in (query, key, value))
    if position_bias is not None:
        attention_mask = _biased(position_bias, attention_mask, is_causal, key.shape[2])
        is_causal = False
    if weights_asked:
        out, weights = attention_by_scores(
            query,
            key,
            value,
            mask=attention_mask,
            is_causal=is_causal,
            scale=scaling,
            softcap=softcap or None,
            sinks=sink,
            dropout=dropout,
        )
        return out.transpose(1, 2).contiguous(), weights
    if sight is not None:
        rules["window"] = (sight.left, sight.right)
        is_causal = "bottom_right" if is_causal and attention_mask is None else False  # a mask goes with a window alone
    out, lse = ops.attention(
        query,
        key,
        value,
        mask=attention_mask,
        is_causal=is_causal,
        enable_gqa=query.shape[1] != key.shape[1],
        sinks=s_aux,
        **rules,
    )
    if sinks_of_queries:  # the weights add up to e^lse / (e^lse + e^sink) of what they would
        out = (out * torch.sigmoid(lse - sink).unsqueeze(-1)).to(out.dtype)
    return out.transpose(1, 2).contiguous(), None


def _words(options: dict) -> tuple | None:
    """Where packed sequences are, as `varlen_attention` takes it, by the words that a caller has for flash attention."""
    given = [options.get(name) for name in ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k")]
    return None if None in given else (*given[:2], int(given[2]), int(given[3]))


def _ends(mask: masks.Unmade) -> tuple | None:
    """The same by what a mask says."""
    if mask.sight.ends is None:
        return None
    # A graph is of one number: of the row's length, which changes less often.
    longest = mask.shape[2] if torch.compiler.is_compiling() else mask.sight.longest
    return mask.sight.ends, mask.sight.ends, longest, longest


def _apart(mask: Tensor, words: tuple, keys: int) -> Tensor:
    """A mask, in which no sequence sees another."""
    batch, _, queries, _ = mask.shape

    def numbers(ends: Tensor, length: int) -> Tensor:
        places = torch.arange(batch * length, dtype=ends.dtype, device=ends.device)
        return torch.searchsorted(ends[1:].contiguous(), places, right=True).view(batch, length)

    same = (numbers(words[0], queries)[:, :, None] == numbers(words[1], keys)[:, None, :])[:, None]
    return mask & same if mask.dtype == torch.bool else mask.masked_fill(~same, -torch.inf)


def _attend_packed(query, key, value, packed: tuple, **rules) -> Tensor:
    """``[batch, length, heads, size]``: all rows one after the other."""
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    out, _ = ops.varlen_attention(q, k, v, *packed, enable_gqa=q.shape[1] != k.shape[1], **rules)
    return out.unflatten(0, (query.shape[0], query.shape[2]))


def _window(size: int | None, is_causal: bool) -> tuple[int, int]:
    """As flash attention takes a model's window, the key there included."""
    left = -1 if size is None else size - 1
    return (left, 0) if is_causal else (left, left)


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
