"""Fakes of attention, and of its gradients."""

import torch

from wmma_ops.ops.attention_call import AttentionCall
from wmma_ops.ops.blocks import STEP
from wmma_ops.ops.fakes.checks import check, fits, refuse, refused_by_library, require, same_device, same_sizes
from wmma_ops.ops.sizes import PAGE_STEP, is_found_by_a_run, known
from wmma_ops.ops.types import FP8_ATTENTION, FP8_PAGES, NARROWED, accumulator


@refused_by_library
def attention(*tensors, **scalars):
    call = AttentionCall.of("attention", tensors, scalars)
    q, k, v = call.q, call.k, call.v
    require(*call.required.values())
    _check_devices(call)
    _check_dropout(call)
    _check_heads(q, k, v, call.enable_gqa)
    fits((*q.shape[:-1], k.shape[-2]), call.mask)
    fits(q.shape[:-2], call.sinks, call.alibi_slopes)
    _check_blocks(call, q.shape[:-2], q.shape[-2], k.shape[-2])
    return _laid_as(q, v.shape[-1]), q.new_empty(q.shape[:-1], dtype=accumulator(q.dtype))


def _laid_as(x, columns=None, dtype=None):
    """A result, as csrc/calls/attention.cpp makes it: a row's heads lie together where they do in `x`."""
    shape = x.shape if columns is None else (*x.shape[:-1], columns)
    if x.dim() < 3 or not _has_heads_together(x.stride(-3), x.stride(-2)):
        return x.new_empty(shape, dtype=dtype)
    *outer, heads, rows, size = shape
    return x.new_empty((*outer, rows, heads, size), dtype=dtype).transpose(-3, -2)


def _has_heads_together(heads, rows):
    """By strides. Where only the run will tell: if so many heads lie between rows, not so many rows between heads."""
    if known(heads == 0) or known(heads >= rows):
        return False
    return known(heads < rows) or (is_found_by_a_run(rows) and not is_found_by_a_run(heads))


def _check_devices(call):
    """A seed is looked at beside its probability."""
    same_device(call.op, call.q, **{name: x for name, x in call.tensors.items() if name != "dropout_seed"})


@refused_by_library
def scaled_attention(*tensors, **scalars):
    call = AttentionCall.of("scaled_attention", tensors, scalars)
    q, k, v = call.q, call.k, call.v
    require(*call.required.values())
    _check_devices(call)
    out_dtype = call.out_dtype or torch.bfloat16
    if q.dtype != FP8_ATTENTION or out_dtype not in NARROWED:
        refuse()
    _check_heads(q, k, v, call.enable_gqa)
    fits(q.shape[:-2], call.scale_q)
    fits(k.shape[:-2], call.scale_k, call.scale_v)
    return _laid_as(q, v.shape[-1], out_dtype), q.new_empty(q.shape[:-1], dtype=torch.float32)


def _check_heads(q, k, v, enable_gqa):
    if q.dim() < 2 or any(x.dtype != q.dtype or x.dim() != q.dim() for x in (k, v)):
        refuse()
    check(q.shape[-1] == k.shape[-1])
    check(k.shape[-2] == v.shape[-2])
    same_sizes(v.shape[:-2], k.shape[:-2])
    grouped = enable_gqa and q.dim() > 2
    batch = -3 if grouped else -2
    same_sizes(k.shape[:batch], q.shape[:batch])
    if grouped and q.shape[-3] != 0 and (k.shape[-3] == 0 or q.shape[-3] % k.shape[-3] != 0):
        refuse()


def _check_blocks(call, outer, queries, keys):
    states, block_q, block_k = call.block_mask, call.block_q, call.block_k
    for size in (block_q, block_k):
        if size != 0 if states is None else size <= 0 or size % STEP:
            refuse()
    if states is None:
        return
    if states.dtype != torch.int8 or states.dim() < 2:
        refuse()
    blocks = tuple(-(-length // size) for length, size in ((queries, block_q), (keys, block_k)))
    same_sizes(states.shape[-2:], blocks)
    fits((*outer, *blocks), states)


@refused_by_library
def varlen_attention(*tensors, **scalars):
    call = AttentionCall.of("varlen_attention", tensors, scalars)
    query, key, value, block_table, max_k = call.q, call.k, call.v, call.block_table, call.max_k
    require(*call.required.values())
    _check_dropout(call)
    _check_devices(call)
    paged = block_table is not None
    _check_stored(query, key, value, paged)
    if query.dim() != 3 or any(x.dim() != (4 if paged else 3) for x in (key, value)):
        refuse()
    check(query.shape[2] == key.shape[-1])
    same_sizes(value.shape[:-1], key.shape[:-1])
    heads = key.shape[-2]
    if not call.enable_gqa:
        check(heads == query.shape[1])
    elif query.shape[1] != 0 and (heads == 0 or query.shape[1] % heads != 0):
        refuse()
    _check_pages(key, call.cu_seq_k, call.seqused_k, block_table, max_k)
    for x in (call.cu_seq_q, call.cu_seq_k, call.seqused_k):
        if x is not None and (x.dim() != 1 or x.dtype not in (torch.int32, torch.int64)):
            refuse()
    fits(query.shape[1:2], call.sinks, call.alibi_slopes)
    count = call.cu_seq_q.shape[0] - 1
    check_descales(key.dtype, (count, heads), call.k_descale, call.v_descale)
    if max_k is None:
        max_k = block_table.shape[1] * key.shape[1]
    _check_blocks(call, (count, query.shape[1]), call.max_q, max_k)
    out = query.new_empty((*query.shape[:2], value.shape[-1]))
    return out, query.new_empty((query.shape[1], query.shape[0]), dtype=accumulator(query.dtype))


def _check_stored(query, key, value, paged):
    """Keys and values are of the queries' type, or in pages of 8 bits beside queries of 16."""
    narrow = key.dtype == FP8_PAGES and paged and query.dtype in NARROWED
    if not (narrow or key.dtype == query.dtype != FP8_PAGES) or value.dtype != key.dtype:
        refuse()


def check_descales(stored, sizes, *descales):
    for x in descales:
        if x is not None and (stored != FP8_PAGES or x.dtype != torch.float32):
            refuse()
    fits(sizes, *descales)


def _check_dropout(call):
    p, seed = call.dropout_p, call.dropout_seed
    if not 0 <= p < 1:
        refuse()
    if p == 0:
        return
    require(seed)
    same_device(call.op, call.q, dropout_seed=seed)
    if seed.dtype != torch.int64:
        refuse()
    check(seed.numel() == 1)


def _check_pages(key, cu_seq_k, seqused_k, block_table, max_k):
    if block_table is None:
        require(cu_seq_k, max_k)
        return
    size = key.shape[1]
    check(size != 0)
    check(size % PAGE_STEP == 0)
    if block_table.dtype != torch.int32 or block_table.dim() != 2 or seqused_k is None:
        refuse()


def _gradients(op, tensors, scalars):
    """That gradients may be computed of these results, and what they look like."""
    call = AttentionCall.of(op, tensors, scalars)
    q, k, v = call.q, call.k, call.v
    require(*call.required.values())
    results = {"out": call.out, "g_out": call.g_out}
    numbers = {"lse": call.lse, "g_lse": call.g_lse}
    rows = q.shape[:-1]
    same_device(call.op, q, v=v, **results, **numbers)
    if (call.is_packed and q.dim() != 3) or q.dim() < 2 or v.dim() < 2:
        refuse()
    for each, dtype, sizes in (
        (results, q.dtype, (*rows, v.shape[-1])),
        (numbers, accumulator(q.dtype), rows[::-1] if call.is_packed else rows),
    ):
        for x in each.values():
            if x is None:
                continue
            if x.dtype != dtype:
                refuse()
            same_sizes(x.shape, sizes)
    return tuple(x.new_empty(x.shape) if call.is_packed else _laid_as(x) for x in (q, k, v))


@torch.library.register_fake("wmma::_attention_backward")
@refused_by_library
def _attention_backward(*tensors, **scalars):
    return _gradients("_attention_backward", tensors, scalars)


@torch.library.register_fake("wmma::_varlen_attention_backward")
@refused_by_library
def _varlen_attention_backward(*tensors, **scalars):
    return _gradients("_varlen_attention_backward", tensors, scalars)
