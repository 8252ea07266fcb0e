"""torch's flash attention as ours, in torch 2.11 and later.

    import wmma_ops

    torch.nn.attention.activate_flash_attention_impl("wmma")

From then on, what torch calls for SDPA's flash backend, for `torch.nn.attention.varlen.varlen_attn` and for SDPA of jagged
tensors on a GPU is ours, forward and backward; `restore_flash_attention_impl()` undoes it. Importing wmma_ops makes the name
known, no more. SDPA chooses among its backends as before: `sdpa_kernel(SDPBackend.FLASH_ATTENTION)` has it take this one.

A call that ours does not take (slopes, `num_splits`) goes to torch's own kernel, and `left` counts it with its reason.
"""

import inspect
import warnings
from collections import Counter

import torch
import torch.nn.attention

from wmma_ops import torch_internals
from wmma_ops.ops import autograd
from wmma_ops.ops import functions as ops
from wmma_ops.ops.dropout import new_seed
from wmma_ops.ops.sizes import PAGE_STEP, WIDEST_HEAD
from wmma_ops.ops.types import name as type_name

Tensor = torch.Tensor
NAME = "wmma"
_MASK_ASKED = "it asks for the mask of its dropout"
_TYPES = (torch.float16, torch.bfloat16, torch.float32)

taken: Counter[str] = Counter()  # by torch's operator
left: Counter[tuple[str, str]] = Counter()  # by torch's operator and the reason


def register() -> None:
    """Makes the name known to torch, where torch knows such names."""
    if hasattr(torch.nn.attention, "register_flash_attention_impl"):
        torch.nn.attention.register_flash_attention_impl(NAME, register_fn=take_over)


def activate() -> None:
    """``torch.nn.attention.activate_flash_attention_impl("wmma")``, or what is in the way of it."""
    if not hasattr(torch.nn.attention, "activate_flash_attention_impl"):
        raise RuntimeError(
            f"torch {torch.__version__} has no torch.nn.attention.activate_flash_attention_impl, which is in torch 2.11 and "
            "later: within wmma_ops.swapped(), scaled_dot_product_attention is ours on this one"
        )
    torch.nn.attention.activate_flash_attention_impl(NAME)


class Taken:
    """What torch keeps while our kernels stand in its operators' place."""

    def __init__(self, library: torch.library.Library):
        self._library = library

    def remove(self) -> None:
        """Puts torch's own back."""
        self._library = None  # its kernels end with it


def take_over(device: str = "CUDA") -> Taken:
    """Puts our kernels in place of torch's for a device as the dispatcher names it: ROCm's is "CUDA" too."""
    operators = torch_internals.flash_operators()
    if not operators:
        raise RuntimeError(f"torch {torch.__version__} has not the operators of flash attention that ours stand in for")
    kernels = [_forward, _backward, _sdpa_forward, _sdpa_backward]
    if (into := torch_internals.flash_into_operator()) is not None:
        operators, kernels = (*operators, into), [*kernels, _forward_into]
    library = torch.library.Library("aten", "IMPL", device)
    for operator, kernel in zip(operators, kernels, strict=True):
        _put(library, operator, kernel, device)
    return Taken(library)


def _put(library: torch.library.Library, operator, kernel, device: str) -> None:
    name = torch_internals.schema(operator).name.removeprefix("aten::")
    try:
        torchs = torch.library.get_kernel(operator, device)
    except RuntimeError:  # a torch without this device
        torchs = None

    known = inspect.signature(_forward if kernel is _forward_into else kernel).parameters.keys()

    def call(keyset, *args, **kwargs):
        others = sorted(kwargs.keys() - known)  # of a later torch
        answer = f"it has {', '.join(others)}" if others else kernel(*args, **kwargs)
        if not isinstance(answer, str):
            taken[name] += 1
            return answer
        left[name, answer] += 1
        if torchs is None:
            raise RuntimeError(f"wmma: {name}: {answer}, which is left to torch, and torch has no kernel for {device}")
        return torchs.call_boxed(keyset, *args, **kwargs)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel")  # it is what is asked for
        library.impl(operator, call, device, with_keyset=True)


# Each kernel gives torch's results, or the reason for leaving the call to torch. They are called below autograd, with
# gradients recorded or not.


def _refusal(query: Tensor, key: Tensor, value: Tensor, dropout: float) -> str | None:
    """What forward and backward both find, so that one's results never meet the other's."""
    if not 0 <= dropout < 1:
        return f"its dropout is {dropout}"
    if query.dtype not in _TYPES or not query.dtype == key.dtype == value.dtype:
        return f"its tensors are {type_name(query.dtype)}; taken are float16, bfloat16, float32, one for all"
    if value.shape[-1] != query.shape[-1] or not 0 < query.shape[-1] <= WIDEST_HEAD:
        return f"its head size is not one for all, from 1 to {WIDEST_HEAD}"
    return None


def _left(reason: str, dropout: float) -> str:
    """Of what forward alone finds. Its backward would be ours, which knows no dropout of torch's."""
    if dropout > 0:
        raise RuntimeError(f"wmma: flash attention: {reason}, beside dropout; takes one of the two")
    return reason


def _forward(
    query,
    key,
    value,
    cum_seq_q,
    cum_seq_k,
    max_q,
    max_k,
    dropout_p,
    is_causal,
    return_debug_mask,
    *,
    scale=None,
    window_size_left=None,
    window_size_right=None,
    seqused_k=None,
    alibi_slopes=None,
    block_table=None,
    num_splits=None,
):
    """``[batch, length, heads, size]``, or packed sequences where `cum_seq_q` is given, their keys in pages or not."""
    if (reason := _refusal(query, key, value, dropout_p)) is not None:
        return reason
    if return_debug_mask:
        reason = _MASK_ASKED
    if reason is None and alibi_slopes is not None:
        reason = "it has slopes, of which its backward is not told"  # nor of seqused_k, whose callers refuse gradients
    if reason is None and block_table is not None:
        whole = key.dim() == 4 and key.shape[1] % PAGE_STEP == 0 and block_table.dtype == torch.int32
        if not whole or cum_seq_q is None or seqused_k is None:
            pages = f"pages that ours does not take: of {PAGE_STEP} keys or a multiple, of packed queries, counted"
            reason = f"its keys are in {pages}"
    if reason is None and num_splits not in (None, 0):
        reason = "it says how keys are to be split"
    if reason is None and block_table is None and (cum_seq_q is None) != (cum_seq_k is None):
        reason = "its queries or its keys alone are packed"
    if reason is None and seqused_k is not None and cum_seq_q is None:
        reason = "it uses a part of the keys, without being packed"
    if reason is not None:
        return _left(reason, dropout_p)
    seed, *unused = _drawn(query, dropout_p)
    options = {"scale": scale, "enable_gqa": query.shape[-2] != key.shape[-2]}
    options |= {"dropout_p": dropout_p, "dropout_seed": seed}
    window = (_side(window_size_left), _side(window_size_right))
    with torch.no_grad():
        if cum_seq_q is None:
            q, k, v = (x.transpose(1, 2) for x in (query, key, value))
            out, lse = ops.attention(q, k, v, is_causal=_causal(q, k, is_causal), window=window, **options)
            out = out.transpose(1, 2)
        else:
            packed = (query, key, value, cum_seq_q, cum_seq_k, max_q, max_k)
            options |= {"seqused_k": seqused_k, "block_table": block_table}
            window = (window[0], 0 if is_causal else window[1])
            out, lse = ops.varlen_attention(*packed, window_size=window, **options)
    return _laid_out(out, query), lse, *unused


def _forward_into(out, *args, **kwargs):
    results = _forward(*args, **kwargs)
    if isinstance(results, str):
        return results
    out.copy_(results[0])
    return results[1]


def _backward(
    grad_out,
    query,
    key,
    value,
    out,
    logsumexp,
    cum_seq_q,
    cum_seq_k,
    max_q,
    max_k,
    dropout_p,
    is_causal,
    rng_state,
    unused,
    *,
    scale=None,
    window_size_left=None,
    window_size_right=None,
):
    if (reason := _refusal(query, key, value, dropout_p)) is not None:
        return reason
    options = {"scale": scale, "enable_gqa": query.shape[-2] != key.shape[-2], "window_left": _side(window_size_left)}
    right = _side(window_size_right)
    options["dropout_p"], seed = dropout_p, _seed_of(rng_state, dropout_p)
    if cum_seq_q is None:
        g, q, k, v, o = (x.transpose(1, 2) for x in (grad_out, query, key, value, out))
        grads = _dense_gradients(g, q, k, v, o, logsumexp, seed, is_causal, window_right=right, **options)
        grads = [x.transpose(1, 2) for x in grads]
    else:
        tensors = {"query": query, "key": key, "value": value, "cu_seq_q": cum_seq_q, "cu_seq_k": cum_seq_k}
        tensors["dropout_seed"] = seed
        options |= {"max_q": max_q, "max_k": max_k, "window_right": 0 if is_causal else right}
        grads = _gradients("varlen_attention", grad_out, tensors, (out, logsumexp), options)
    return tuple(map(_laid_out, grads, (query, key, value)))


def _sdpa_forward(query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    """``[batch, heads, length, size]``."""
    if (reason := _refusal(query, key, value, dropout_p)) is not None:
        return reason
    if return_debug_mask:
        return _left(_MASK_ASKED, dropout_p)
    seed, *unused = _drawn(query, dropout_p)
    with torch.no_grad():
        grouped = query.shape[1] != key.shape[1]
        causal = _causal(query, key, is_causal)
        options = {"scale": scale, "enable_gqa": grouped, "dropout_p": dropout_p, "dropout_seed": seed}
        out, lse = ops.attention(query, key, value, is_causal=causal, **options)
    return _laid_out(out, query), lse, None, None, query.shape[2], key.shape[2], *unused


def _sdpa_backward(
    grad_out,
    query,
    key,
    value,
    out,
    logsumexp,
    cum_seq_q,
    cum_seq_k,
    max_q,
    max_k,
    dropout_p,
    is_causal,
    philox_seed,
    philox_offset,
    *,
    scale=None,
):
    if (reason := _refusal(query, key, value, dropout_p)) is not None:
        return reason
    options = {"scale": scale, "enable_gqa": query.shape[1] != key.shape[1], "dropout_p": dropout_p}
    seed = _seed_of(philox_seed, dropout_p)
    grads = _dense_gradients(grad_out, query, key, value, out, logsumexp, seed, is_causal, **options)
    return tuple(map(_laid_out, grads, (query, key, value)))


def _dense_gradients(grad_out, q, k, v, out, lse, seed, is_causal, **options):
    options["is_causal"] = ops.CAUSAL[_causal(q, k, is_causal)]
    tensors = {"q": q, "k": k, "v": v, "dropout_seed": seed}
    return _gradients("attention", grad_out, tensors, (out, lse), options)


def _gradients(op: str, grad_out, tensors: dict, outs, options: dict) -> list[Tensor]:
    """Of the first three tensors, as autograd of ours has them."""
    asked = list(tensors)[:3]
    with torch.no_grad():
        found = autograd.attention_gradients(op, (grad_out, None), tensors, dict.fromkeys(asked, True), outs, **options)
    return [found[name] for name in asked]


def _side(size: int | None) -> int:
    """A window's, of which torch has None or −1 where there is no bound."""
    return -1 if size is None else size


def _causal(q: Tensor, k: Tensor, is_causal: bool) -> bool | str:
    """As flash attention aligns queries: the last one with the last key."""
    return is_causal and (q.shape[-2] == k.shape[-2] or "bottom_right")


def _laid_out(x: Tensor, like: Tensor) -> Tensor:
    """In memory as torch.compile is told that results lie: as `torch.empty_like` has it."""
    if x.is_contiguous() and like.is_contiguous():
        return x
    laid = torch.empty_like(like)
    return x if x.stride() == laid.stride() else laid.copy_(x)


def _drawn(query: Tensor, dropout: float) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
    """A seed, if one is needed, and the seed, the offset and the mask of a dropout as torch.compile is told of them: the
    first of these has ours, as backward finds it."""
    seed = new_seed(query.device) if dropout > 0 else None
    state, offset = ((), ()) if torch.version.hip else ((2,), ())
    kind = torch.int64 if torch.version.hip else torch.uint64
    kept = torch.empty(state, dtype=torch.int64, device=query.device)
    if seed is not None:
        kept.copy_(seed)
    return seed, kept.view(kind), torch.empty(offset, dtype=kind, device=query.device), query.new_empty(0)


def _seed_of(state: Tensor, dropout: float) -> Tensor | None:
    return state.view(torch.int64).reshape(-1)[:1] if dropout > 0 else None
