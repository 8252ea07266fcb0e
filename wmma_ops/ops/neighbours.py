"""What somebody may have meant by a name that there is none of: it is another library's for the same, or mistyped."""

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TypeVar

F = TypeVar("F", bound=Callable)

# Names of one thing, ours first: of torch, transformers, flash-attn, xFormers, FlashInfer, vLLM and Triton.
_SYNONYMS = (
    # Arguments.
    ("mask", "attn_mask", "attention_mask", "attn_bias"),
    ("window", "window_size", "sliding_window", "local_window_size"),
    ("is_causal", "causal", "window_size"),  # packed sequences are causal by their window
    ("scale", "softmax_scale", "sm_scale", "scaling"),
    ("softcap", "soft_cap", "logits_soft_cap", "attn_logit_softcapping"),
    ("sinks", "sink", "s_aux", "learnable_sink"),
    ("dropout_p", "dropout"),
    ("q", "query"),
    ("k", "key"),
    ("v", "value"),
    ("scale_q", "q_descale", "q_scale"),
    ("scale_k", "k_descale", "k_scale"),
    ("scale_v", "v_descale", "v_scale"),
    ("cu_seq_q", "cu_seq", "cu_seqlens_q", "cu_seqlens", "qo_indptr"),
    ("cu_seq_k", "cu_seqlens_k", "kv_indptr"),
    ("max_q", "max_seqlen_q"),
    ("max_k", "max_seqlen_k"),
    ("seqused_k", "cache_seqlens", "seq_lens"),
    ("block_table", "block_tables", "page_table"),
    ("key_pages", "key_cache", "k_cache"),
    ("value_pages", "value_cache", "v_cache"),
    ("cos", "rotary_cos"),
    ("sin", "rotary_sin"),
    ("interleaved", "rotary_interleaved"),
    ("a", "x", "input", "mat1", "batch1"),
    ("b", "weight", "other", "mat2", "batch2"),
    ("c", "residual", "input"),
    ("out_dtype", "output_dtype", "dtype"),
    # Activations.
    ("none", "linear", "identity"),
    ("silu", "swish"),
    ("gelu", "gelu_python"),
    ("gelu_tanh", "gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_approx"),
    ("sigmoid", "logistic"),
)


def hint(name: str, known: Iterable[str]) -> str:
    """What to say behind an unknown name, (did you mean 'x'?), of the known ones; empty where none is near."""
    known = tuple(known)
    asked = name.lower().replace("-", "_")
    same = (one for names in _SYNONYMS if asked in names for one in names if one in known)
    found = next(same, None) or next(iter(difflib.get_close_matches(asked, known, 1)), None)
    return f" (did you mean {found!r}?)" if found else ""


def answering(function: F) -> F:
    """Calls with a keyword that the function does not take are told so, and what may have been meant."""

    @functools.wraps(function)
    def answered(*arguments, **keywords):
        try:
            return function(*arguments, **keywords)
        except TypeError:
            if (error := unknown_keyword(function, keywords)) is None:
                raise
        raise error

    return answered  # type: ignore[return-value]


def unknown_keyword(function: Callable, keywords: Iterable[str]) -> TypeError | None:
    """The error for the first keyword that a function does not take."""
    parameters = inspect.signature(function).parameters.values()
    known = [one.name for one in parameters if one.kind is not one.VAR_KEYWORD]
    unknown = next((name for name in keywords if name not in known), None)
    if unknown is None:
        return None
    text = f"there is no argument {unknown!r}{hint(unknown, known)}; takes {', '.join(known)}"
    return TypeError(f"wmma.{function.__name__}: {text}")
