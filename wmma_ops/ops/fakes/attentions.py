"""Fakes of attention, and of its gradients."""

from functools import partial

import torch

from wmma_ops.ops import library  # noqa: F401  (defines the ops that fakes are registered for)
from wmma_ops.ops.attention_call import AttentionCall
from wmma_ops.ops.blocks import STEP
from wmma_ops.ops.fakes.checks import check, fail, fits, require, same_device, same_sizes
from wmma_ops.ops.sizes import PAGE_STEP
from wmma_ops.ops.types import FP8_ATTENTION, FP8_PAGES, NARROWED, accumulator, name


def attention(*tensors, **scalars):
    call = AttentionCall.of("attention", tensors, scalars)
    op, q, k, v = call.op, call.q, call.k, call.v
    require(op, **call.required)
    _check_devices(call)
    _check_dropout(op, q, call.dropout_p, call.dropout_seed)
    _check_heads(op, q, k, v, call.enable_gqa)
    fits(op, (*q.shape[:-1], k.shape[-2]), mask=call.mask)
    fits(op, q.shape[:-2], sinks=call.sinks, alibi_slopes=call.alibi_slopes)
    _check_blocks(call, q.shape[:-2], q.shape[-2], k.shape[-2])
    out = q.new_empty((*q.shape[:-1], v.shape[-1]))
    return out, q.new_empty(q.shape[:-1], dtype=accumulator(q.dtype))


def _check_devices(call):
    """A seed is looked at beside its probability."""
    same_device(call.op, call.q, **{name: x for name, x in call.tensors.items() if name != "dropout_seed"})


def scaled_attention(*tensors, **scalars):
    call = AttentionCall.of("scaled_attention", tensors, scalars)
    op, q, k, v = call.op, call.q, call.k, call.v
    require(op, **call.required)
    _check_devices(call)
    if q.dtype != FP8_ATTENTION:
        fail(op, "q", f"is {name(q.dtype)}; takes {name(FP8_ATTENTION)}", TypeError)
    _check_heads(op, q, k, v, call.enable_gqa)
    out_dtype = call.out_dtype or torch.bfloat16
    if out_dtype not in NARROWED:
        fail(op, "out_dtype", f"is {name(out_dtype)}; takes bfloat16 or float16", TypeError)
    fits(op, q.shape[:-2], scale_q=call.scale_q)
    fits(op, k.shape[:-2], scale_k=call.scale_k, scale_v=call.scale_v)
    out = q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=out_dtype)
    return out, q.new_empty(q.shape[:-1], dtype=torch.float32)


def _check_heads(op, q, k, v, enable_gqa):
    if q.dim() < 2:
        fail(op, "q", f"has shape {list(q.shape)}; takes [..., heads, length, head size]")
    for argument, x in (("k", k), ("v", v)):
        if x.dtype != q.dtype:
            fail(op, argument, f"is {name(x.dtype)}; takes {name(q.dtype)}, as q has", TypeError)
        if x.dim() != q.dim():
            fail(op, argument, f"has shape {list(x.shape)}; takes as many dimensions as q, {list(q.shape)}")
    check(q.shape[-1] == k.shape[-1], op, "k", lambda: f"has shape {list(k.shape)}; takes the head size of q")
    check(k.shape[-2] == v.shape[-2], op, "v", lambda: f"has shape {list(v.shape)}; takes the length of k")
    same_sizes(
        v.shape[:-2],
        k.shape[:-2],
        op,
        "v",
        lambda: f"has shape {list(v.shape)}; takes the batch and head dimensions of k, {list(k.shape)}",
    )
    grouped = enable_gqa and q.dim() > 2
    batch = -3 if grouped else -2
    hint = "" if grouped or q.dim() < 3 else " (or enable_gqa=True)"
    same_sizes(
        k.shape[:batch],
        q.shape[:batch],
        op,
        "k",
        lambda: f"has shape {list(k.shape)}; takes the batch and head dimensions of q, {list(q.shape)}{hint}",
    )
    if grouped and q.shape[-3] != 0 and (k.shape[-3] == 0 or q.shape[-3] % k.shape[-3] != 0):
        fail(op, "k", f"has shape {list(k.shape)}; takes a number of heads that divides that of q, {q.shape[-3]}")


def _check_blocks(call, outer, queries, keys):
    op, states, block_q, block_k = call.op, call.block_mask, call.block_q, call.block_k
    for argument, size in (("block_q", block_q), ("block_k", block_k)):
        if states is None and size != 0:
            fail(op, argument, f"is {size}; takes 0 without block_mask")
        if states is not None and (size <= 0 or size % STEP):
            fail(op, argument, f"is {size}; takes a multiple of {STEP}")
    if states is None:
        return
    if states.dtype != torch.int8:
        fail(op, "block_mask", f"is {name(states.dtype)}; takes int8", TypeError)
    blocks = tuple(-(-length // size) for length, size in ((queries, block_q), (keys, block_k)))

    def text():
        sizes = f"blocks of {block_q} queries and of {block_k} keys"
        return f"has shape {list(states.shape)}; takes [..., {blocks[0]}, {blocks[1]}], {sizes}"

    if states.dim() < 2:
        fail(op, "block_mask", text())
    same_sizes(states.shape[-2:], blocks, op, "block_mask", text)
    fits(op, (*outer, *blocks), block_mask=states)


def varlen_attention(*tensors, **scalars):
    call = AttentionCall.of("varlen_attention", tensors, scalars)
    op, query, key, value = call.op, call.q, call.k, call.v
    block_table, max_k = call.block_table, call.max_k
    require(op, **call.required)
    _check_dropout(op, query, call.dropout_p, call.dropout_seed)
    _check_devices(call)
    if query.dim() != 3:
        fail(op, "query", f"has shape {list(query.shape)}; takes [tokens, heads, head size]")
    _check_stored(op, query, key, value, block_table is not None)
    for argument, x in (("key", key), ("value", value)):
        if block_table is not None and x.dim() != 4:
            text = f"has shape {list(x.shape)}; takes [pages, page size, heads, head size] with block_table"
            fail(op, argument, text)
        if block_table is None and x.dim() != 3:
            fail(op, argument, f"has shape {list(x.shape)}; takes as many dimensions as query, {list(query.shape)}")
    check(
        query.shape[2] == key.shape[-1], op, "key", lambda: f"has shape {list(key.shape)}; takes the head size of query"
    )
    same_sizes(
        value.shape[:-1],
        key.shape[:-1],
        op,
        "value",
        lambda: f"has shape {list(value.shape)}; takes the length and the heads of key, {list(key.shape)}",
    )
    heads = key.shape[-2]
    if not call.enable_gqa:
        check(
            heads == query.shape[1],
            op,
            "key",
            lambda: f"has shape {list(key.shape)}; takes the heads of query (or enable_gqa=True)",
        )
    elif query.shape[1] != 0 and (heads == 0 or query.shape[1] % heads != 0):
        fail(op, "key", f"has shape {list(key.shape)}; takes a number of heads that divides that of query")
    _check_pages(op, key, call.cu_seq_k, call.seqused_k, block_table, max_k)
    for argument, x in (("cu_seq_q", call.cu_seq_q), ("cu_seq_k", call.cu_seq_k), ("seqused_k", call.seqused_k)):
        if x is not None and (x.dim() != 1 or x.dtype not in (torch.int32, torch.int64)):
            fail(
                op, argument, f"has shape {list(x.shape)} and is {name(x.dtype)}; takes one dimension of int32 or int64"
            )
    fits(op, query.shape[1:2], sinks=call.sinks, alibi_slopes=call.alibi_slopes)
    count = call.cu_seq_q.shape[0] - 1
    descales = {"k_descale": call.k_descale, "v_descale": call.v_descale}
    check_descales(op, f"key of {name(key.dtype)}", key.dtype, (count, heads), descales)
    if max_k is None:
        max_k = block_table.shape[1] * key.shape[1]
    _check_blocks(call, (count, query.shape[1]), call.max_q, max_k)
    out = query.new_empty((*query.shape[:2], value.shape[-1]))
    return out, query.new_empty((query.shape[1], query.shape[0]), dtype=accumulator(query.dtype))


def _check_stored(op, query, key, value, paged):
    """Keys and values are of the queries' type, or in pages of 8 bits beside queries of 16."""
    if key.dtype == FP8_PAGES and not paged:
        text = f"is {name(key.dtype)}; takes {name(query.dtype)}, as query has (in pages, with block_table, it may be)"
        fail(op, "key", text, TypeError)
    if key.dtype == FP8_PAGES and query.dtype not in NARROWED:
        text = f"is {name(query.dtype)}; takes float16 or bfloat16 beside pages of {name(key.dtype)}"
        fail(op, "query", text, TypeError)
    if key.dtype not in (query.dtype, FP8_PAGES):
        text = ", or float8_e4m3fn" if paged and query.dtype in NARROWED else ""
        fail(op, "key", f"is {name(key.dtype)}; takes {name(query.dtype)}, as query has{text}", TypeError)
    if value.dtype != key.dtype:
        first = "key" if key.dtype == FP8_PAGES else "query"
        fail(op, "value", f"is {name(value.dtype)}; takes {name(key.dtype)}, as {first} has", TypeError)


def check_descales(op, pages, stored, sizes, descales):
    for argument, x in descales.items():
        if x is None:
            continue
        if stored != FP8_PAGES:
            fail(op, argument, f"is given beside {pages}; takes None, but of pages of float8_e4m3fn", TypeError)
        if x.dtype != torch.float32:
            fail(op, argument, f"is {name(x.dtype)}; takes float32", TypeError)
    fits(op, sizes, **descales)


def _check_dropout(op, q, p, seed):
    if not 0 <= p < 1:
        fail(op, "dropout_p", f"is {p:f}; takes 0 (none) up to, but not, 1")
    if p == 0:
        return
    if seed is None:
        fail(op, "dropout_seed", "is None; takes a tensor of one number beside dropout_p", TypeError)
    same_device(op, q, dropout_seed=seed)
    if seed.dtype != torch.int64:
        fail(op, "dropout_seed", f"is {name(seed.dtype)}; takes int64", TypeError)
    check(seed.numel() == 1, op, "dropout_seed", lambda: f"has shape {list(seed.shape)}; takes one element")


def _check_pages(op, key, cu_seq_k, seqused_k, block_table, max_k):
    if block_table is None:
        for argument, x, taken in (("cu_seq_k", cu_seq_k, "a tensor"), ("max_k", max_k, "a whole number")):
            if x is None:
                fail(op, argument, f"is None; takes {taken}, or a block_table beside it", TypeError)
        return
    size = key.shape[1]
    text = partial("has pages of {} keys; takes a multiple of {}".format, size, PAGE_STEP)
    check(size != 0, op, "key", text)
    check(size % PAGE_STEP == 0, op, "key", text)
    if block_table.dtype != torch.int32:
        fail(op, "block_table", f"is {name(block_table.dtype)}; takes int32", TypeError)
    if block_table.dim() != 2:
        fail(op, "block_table", f"has shape {list(block_table.shape)}; takes [sequences, pages of a sequence]")
    if seqused_k is None:
        fail(op, "seqused_k", "is None; takes a tensor beside block_table, of each sequence's keys", TypeError)


def _gradients(op, tensors, scalars):
    """That gradients may be computed of these results, and what they look like."""
    call = AttentionCall.of(op, tensors, scalars)
    op, q, k, v = call.op, call.q, call.k, call.v
    require(op, **call.required)
    results = {"out": call.out, "g_out": call.g_out}
    numbers = {"lse": call.lse, "g_lse": call.g_lse}
    rows = q.shape[:-1]
    if call.is_packed and q.dim() != 3:
        fail(op, "query", f"has shape {list(q.shape)}; takes [tokens, heads, head size]")
    same_device(op, q, v=v, **results, **numbers)
    for argument, x in (("q", q), ("v", v)):
        if x.dim() < 2:
            fail(op, argument, f"has shape {list(x.shape)}; takes 2 dimensions or more")
    for each, dtype, sizes in (
        (results, q.dtype, (*rows, v.shape[-1])),
        (numbers, accumulator(q.dtype), rows[::-1] if call.is_packed else rows),
    ):
        for argument, x in each.items():
            if x is None:
                continue
            if x.dtype != dtype:
                fail(op, argument, f"is {name(x.dtype)}; takes {name(dtype)}", TypeError)
            text = partial("has shape {}; takes {}".format, list(x.shape), list(sizes))
            same_sizes(x.shape, sizes, op, argument, text)
    return tuple(x.new_empty(x.shape) for x in (q, k, v))


@torch.library.register_fake("wmma::_attention_backward")
def _attention_backward(*tensors, **scalars):
    return _gradients("_attention_backward", tensors, scalars)


@torch.library.register_fake("wmma::_varlen_attention_backward")
def _varlen_attention_backward(*tensors, **scalars):
    return _gradients("_varlen_attention_backward", tensors, scalars)
