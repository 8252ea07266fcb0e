"""Which calls of torch's functions our ops take over, and as what.

A rule has the signature of torch's function. It answers with a call and None, or with None and the reason for leaving it.
Shapes that do not fit are not a reason: they are refused by our op, by name.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

from wmma_ops import torch_internals
from wmma_ops.nn.attention import multi_head_attention, same_order
from wmma_ops.ops import autocast, score_functions
from wmma_ops.ops import functions as ops
from wmma_ops.ops.blocks import STEP, from_lists, is_noop_mask
from wmma_ops.ops.sizes import WIDEST_HEAD
from wmma_ops.ops.types import DIFFERENTIABLE
from wmma_ops.ops.types import name as type_name

Tensor = torch.Tensor
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")


def decide(function, args, kwargs):
    try:
        return function(*args, **kwargs)
    except TypeError:  # arguments that torch may know, or refuse in its own words
        return None, "its arguments are none that we know"


def _refusal(*tensors) -> str | None:
    """Why tensors cannot be the operands of one op of ours; those that are None are passed over."""
    found = [(f"its {word} argument", x) for word, x in zip(_ORDINALS, tensors, strict=False) if x is not None]
    for which, x in found:
        if not isinstance(x, Tensor):
            return f"{which} is no tensor"
        if not is_plain(x):
            return f"{which} is a {type(x).__name__}, which has rules of its own"
        if x.is_nested or x.layout != torch.strided:
            return f"{which} is {'nested' if x.is_nested else 'sparse'}"
        if x.dtype not in DIFFERENTIABLE:
            return f"{which} is {type_name(x.dtype)}; taken are float16, bfloat16, float32, float64"
        if x.device.type not in ("cpu", "cuda", "meta"):
            return f"{which} is on {x.device.type}"
    _, first = found[0]
    for which, x in found[1:]:
        if _is_dtensor(x) != _is_dtensor(first):
            return f"{which} and the first are a DTensor and a plain tensor"
        if x.device != first.device:
            return f"{which} is on another device"
        mixed = x.dtype != first.dtype
        if mixed and (not autocast.is_on(first) or torch.float64 in (x.dtype, first.dtype)):
            return f"{which} has another type"
    if not torch.compiler.is_compiling() and torch_internals.is_forward_mode():
        return "forward-mode derivatives are on"
    return None


def is_plain(x) -> bool:
    """No class with rules of its own, or one that knows ours; torch.export traces with classes of its own."""
    kind = type(x)
    if kind is Tensor or kind is nn.Parameter or torch_internals.is_tracing_tensor(kind):
        return True
    return _is_dtensor(x) and "wmma_ops.distributed" in sys.modules


def _is_dtensor(x) -> bool:
    """By name: an import would load all that is distributed."""
    kind = type(x)
    return kind.__module__ == "torch.distributed.tensor" and kind.__name__ == "DTensor"


def _factors(*values) -> str | None:
    if not all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in values):
        return "alpha or beta is no real number"
    taken = all(_fits_float32(x) or not math.isfinite(x) for x in values)
    return None if taken else "alpha or beta is beyond float32"


def _fits_float32(x: float) -> bool:
    return abs(x) <= torch.finfo(torch.float32).max


def _linear(input, weight, bias=None):
    reason = _refusal(input, weight, bias)
    if reason is None and (input.dim() == 0 or weight.dim() != 2 or (bias is not None and bias.dim() != 1)):
        reason = "its weight is no matrix, or its bias no vector"
    if reason is None and bias is not None and bias.shape[0] == 1 != weight.shape[0]:
        reason = "its bias has one element for all columns"
    return (None, reason) if reason else (lambda: ops.linear(input, weight, bias), None)


def _matmul(input, other, *, out=None):
    reason = "out= is given" if out is not None else _refusal(input, other)
    if reason is None and (input.dim() == 0 or other.dim() == 0):
        reason = "it has a scalar"
    return (None, reason) if reason else (lambda: ops.matmul(input, other), None)


def _rmatmul(self, other):
    return _matmul(other, self)


def _mm(input, mat2, *, out=None):
    call, reason = _matmul(input, mat2, out=out)
    if reason is None and (input.dim() != 2 or mat2.dim() != 2):
        return None, "its arguments are no matrices"
    return call, reason


def _bmm(input, mat2, *, out=None):
    call, reason = _matmul(input, mat2, out=out)
    if reason is None and (input.dim() != 3 or mat2.dim() != 3 or input.shape[0] != mat2.shape[0]):
        return None, "its arguments are no batches of one size"
    return call, reason


def _addmm(input, mat1, mat2, *, beta=1, alpha=1, out=None):
    reason = "out= is given" if out is not None else _refusal(input, mat1, mat2) or _factors(beta, alpha)
    if reason:
        return None, reason
    return lambda: ops.addmm(input, mat1, mat2, beta=beta, alpha=alpha), None


def _baddbmm(input, batch1, batch2, *, beta=1, alpha=1, out=None):
    reason = "out= is given" if out is not None else _refusal(input, batch1, batch2) or _factors(beta, alpha)
    if reason:
        return None, reason
    return lambda: ops.baddbmm(input, batch1, batch2, beta=beta, alpha=alpha), None


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    reason = _refusal(query, key, value) or _heads_differ(query, key, value, enable_gqa)
    if reason is None and isinstance(scale, float) and not _fits_float32(scale):
        reason = f"its scale is {scale}"
    if reason is None and not 0 <= dropout_p < 1:
        reason = f"its dropout is {dropout_p}"
    if reason is None and attn_mask is not None:
        reason = "it is causal and has a mask" if is_causal else _mask_refusal(query, key, attn_mask)
    if reason:
        return None, reason

    def call():
        options = {"mask": attn_mask, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
        return ops.attention(query, key, value, dropout_p=dropout_p, **options)[0]

    return call, None


def flex_attention(
    plain, query, key, value, score_mod, block_mask, scale, kernel_options, score_mod_buffers=(), mask_mod_buffers=()
):
    """Of the operator that flex_attention calls, which gives the logarithm to the base 2; `plain` is what it is called with
    where there is neither a score_mod nor a block_mask, by torch_internals.
    """
    identity, size = plain
    name, masked, blocks = None, None, None
    reason = None
    if score_mod is not identity:
        name = score_functions.name_of(score_mod, False)
        reason = "it has a score_mod that is not registered" if name is None else None
    if reason is None and (block_mask[-3] != size or block_mask[-2] != size):
        masked, blocks, reason = _flex_blocks(query, key, block_mask)
    if reason is None and kernel_options.get("OUTPUT_MAX", False):
        reason = "it asks for the largest scores"
    if reason is None and kernel_options.get("BACKEND") == "FLASH":
        reason = "it asks for another's kernel"
    if reason is None:
        reason = attention(query, key, value, scale=scale, enable_gqa=True)[1]
    if reason:
        return None, reason

    def call():
        options = {"scale": scale, "enable_gqa": query.shape[1] != key.shape[1]}
        given = None if blocks is None else from_lists(*blocks)
        out, lse = ops.attention(query, key, value, score_mod=name, mask_mod=masked, block_mask=given, **options)
        return out, lse / math.log(2), lse.new_empty(0)

    return call, None


def _flex_blocks(query: Tensor, key: Tensor, block_mask: tuple) -> tuple[str | None, tuple | None, str | None]:
    """What a block mask's blocks show, by name; its lists and sizes; or why it is none of ours."""
    queries, keys, function = block_mask[-3:]
    counts, indices, whole_counts, whole_indices = block_mask[2:6]
    name = None if is_noop_mask(function) else score_functions.name_of(function, True)
    if name is None and not is_noop_mask(function):
        return None, None, "its block_mask has a mask_mod that is not registered"
    if queries % STEP or keys % STEP:
        return None, None, f"its block_mask has blocks of {queries} queries and {keys} keys"
    if indices.shape[-2:] != (-(-query.shape[-2] // queries), -(-key.shape[-2] // keys)):
        return None, None, "its block_mask is of other lengths"
    return name, (counts, indices, whole_counts, whole_indices, queries, keys), None


def _heads_differ(q: Tensor, k: Tensor, v: Tensor, grouped: bool) -> str | None:
    """torch broadcasts batches and heads; ours are of one size, or grouped."""
    if not q.dim() == k.dim() == v.dim() or q.dim() < 2 or (grouped and q.dim() < 3):
        return "its arguments have not one number of dimensions, of 2 or more"
    if k.shape[:-2] != v.shape[:-2] or q.shape[:-3] != k.shape[:-3]:
        return "its batches differ in size"
    if q.shape[:-2] != k.shape[:-2] and not (grouped and k.shape[-3] > 0 and q.shape[-3] % k.shape[-3] == 0):
        return "its heads differ in number"
    if not 0 < q.shape[-1] <= WIDEST_HEAD or v.shape[-1] > WIDEST_HEAD:
        return f"its head size is not from 1 to {WIDEST_HEAD}"
    return None


def _mask_refusal(q: Tensor, k: Tensor, mask: Tensor) -> str | None:
    if not is_plain(mask) or mask.device != q.device or _is_dtensor(mask) != _is_dtensor(q):
        return "its mask is no plain tensor on the same device"
    known = [
        torch.bool,
        q.dtype,
        *([torch.float32, torch.get_autocast_dtype(q.device.type)] if autocast.is_on(q) else []),
    ]
    if mask.dtype not in known:
        return f"its mask is {type_name(mask.dtype)}"
    target = (*q.shape[:-1], k.shape[-2])
    sizes = zip(reversed(mask.shape), reversed(target), strict=False)
    if mask.dim() > len(target) or any(size not in (1, taken) for size, taken in sizes):
        return "its mask does not broadcast to the scores"
    return None


def _multi_head_attention(
    query,
    key,
    value,
    embed_dim_to_check,
    num_heads,
    in_proj_weight,
    in_proj_bias,
    bias_k,
    bias_v,
    add_zero_attn,
    dropout_p,
    out_proj_weight,
    out_proj_bias,
    training=True,
    key_padding_mask=None,
    need_weights=True,
    attn_mask=None,
    use_separate_proj_weight=False,
    q_proj_weight=None,
    k_proj_weight=None,
    v_proj_weight=None,
    static_k=None,
    static_v=None,
    average_attn_weights=True,
    is_causal=False,
):
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    weights = separate if use_separate_proj_weight else (in_proj_weight,)
    reason = _refusal(query, key, value) or _refusal(query, *weights, in_proj_bias, out_proj_weight, out_proj_bias)
    if reason is None and (bias_k is not None or bias_v is not None or add_zero_attn):
        reason = "it adds keys of its own"
    if reason is None and (static_k is not None or static_v is not None):
        reason = "it has static keys"
    one_rank = query.dim() == key.dim() == value.dim()
    if reason is None and (not one_rank or query.dim() not in (2, 3) or (is_causal and attn_mask is None)):
        reason = "its arguments are none that torch takes"
    if reason:
        return None, reason
    unbatched = query.dim() == 2

    def call():
        inputs = same_order((query, key, value), lambda x: x.unsqueeze(0) if unbatched else x.transpose(0, 1))
        padding = key_padding_mask.unsqueeze(0) if unbatched and key_padding_mask is not None else key_padding_mask
        out, shares = multi_head_attention(
            *inputs,
            num_heads,
            weights if use_separate_proj_weight else in_proj_weight,
            in_proj_bias,
            out_proj_weight,
            out_proj_bias,
            dropout=dropout_p if training else 0.0,
            key_padding_mask=padding,
            need_weights=need_weights,
            attn_mask=attn_mask,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        if unbatched:
            return out.squeeze(0), None if shares is None else shares.squeeze(0)
        return out.transpose(0, 1), shares

    return call, None


def _within(*args, **kwargs):
    return None, "its products lie within one function of torch's"


RULES = {
    F.linear: ("linear", _linear),
    torch.matmul: ("matmul", _matmul),
    torch.linalg.matmul: ("matmul", _matmul),
    Tensor.matmul: ("matmul", _matmul),
    Tensor.__matmul__: ("matmul", _matmul),
    Tensor.__rmatmul__: ("matmul", _rmatmul),
    torch.mm: ("mm", _mm),
    Tensor.mm: ("mm", _mm),
    torch.bmm: ("bmm", _bmm),
    Tensor.bmm: ("bmm", _bmm),
    torch.addmm: ("addmm", _addmm),
    Tensor.addmm: ("addmm", _addmm),
    torch.baddbmm: ("baddbmm", _baddbmm),
    Tensor.baddbmm: ("baddbmm", _baddbmm),
    F.scaled_dot_product_attention: ("scaled_dot_product_attention", attention),
    F.multi_head_attention_forward: ("multi_head_attention_forward", _multi_head_attention),
    torch.einsum: ("einsum", _within),
    torch.tensordot: ("tensordot", _within),
    F.bilinear: ("bilinear", _within),
}
