"""What each op's result looks like, for torch.compile, torch.export and meta tensors.

In Python because sizes are symbolic there: one graph serves every size. Refuses what changes the result's shape or
type, in the words of the library's checks; the rest is checked by the library when the call runs, but for `kv_append`,
which has no result: all that shapes and types tell. Where a size is known only then (rows picked by a mask), it is
taken to fit, and a check of it is left in the graph.
"""

from functools import partial

import torch

from wmma_ops.ops.blocks import STEP
from wmma_ops.ops.errors import tagged
from wmma_ops.ops.library import NAMESPACES, OPS, WRITERS
from wmma_ops.ops.sizes import PAGE_STEP, is_matrix_scale, known
from wmma_ops.ops.types import FP8_ATTENTION, FP8_FNUZ, FP8_OCP, FP8_PAGES, NARROWED, OUTPUTS, name
from wmma_ops.torch_internals import check


def _fail(op, argument, text, kind=ValueError):
    raise tagged(op, argument, text, kind)


def _check(holds, op, argument, text):
    """`text` is a function: a message is rarely asked for."""
    check(holds, lambda: str(tagged(op, argument, text(), ValueError)))


def _same_device(op, first, **others):
    for argument, x in others.items():
        if x is not None and x.device != first.device:
            _fail(op, argument, f"is on {x.device}; takes tensors on {first.device}, all of them", TypeError)


def _output_type(op, a_name, a, b_name, b, out_dtype):
    if a.dtype not in OUTPUTS:
        _fail(op, a_name, f"is {name(a.dtype)}; takes {', '.join(map(name, OUTPUTS))}", TypeError)
    family = next((family for family in (FP8_OCP, FP8_FNUZ) if a.dtype in family), (a.dtype,))
    if b.dtype not in family:
        _fail(op, b_name, f"is {name(b.dtype)}; takes {name(a.dtype)}, as {a_name} has", TypeError)
    if out_dtype is None:
        return OUTPUTS[a.dtype][0]
    if out_dtype not in OUTPUTS[a.dtype]:
        taken = " or ".join(map(name, OUTPUTS[a.dtype]))
        _fail(op, "out_dtype", f"is {name(out_dtype)}; takes {taken} for {name(a.dtype)} operands", TypeError)
    return out_dtype


def _product_shape(op, a_name, a, b_name, b):
    """The shape of a matrix product with broadcast batch dimensions."""
    for argument, x in ((a_name, a), (b_name, b)):
        if x.dim() < 2:
            _fail(op, argument, f"has shape {list(x.shape)}; takes 2 dimensions or more")
    _check(
        a.shape[-1] == b.shape[-2],
        op,
        b_name,
        lambda: f"has shape {list(b.shape)}; takes K as {a_name}, {list(a.shape)}, has it",
    )
    try:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError:
        _fail(op, b_name, f"has shape {list(b.shape)}; takes batch dimensions that broadcast with those of {a_name}")
    return (*batch, a.shape[-2], b.shape[-1])


def _same_sizes(shape, taken, op, argument, text):
    _check(len(shape) == len(taken), op, argument, text)
    for size, target in zip(shape, taken, strict=True):
        _check(size == target, op, argument, text)


def _fits(op, shape, **others):
    for argument, x in others.items():
        if x is None:
            continue
        text = partial("has shape {}; takes a shape that broadcasts to {}".format, list(x.shape), list(shape))
        if x.dim() > len(shape):
            _fail(op, argument, text())
        for size, target in zip(reversed(x.shape), reversed(shape), strict=False):
            if not known(size == 1):
                _check(size == target, op, argument, text)


def _vector(op, names, **others):
    """A bias: its last dimension does not repeat, as a scale's may."""
    _fits(op, names, **others)
    for argument, x in others.items():
        if x is not None:
            text = partial("has shape {}; takes [{}], after batch dimensions".format, list(x.shape), names[-1])
            _check(x.dim() > 0 and x.shape[-1] == names[-1], op, argument, text)


def matmul(a, b, *, out_dtype=None):
    _same_device("matmul", a, b=b)
    out = _output_type("matmul", "a", a, "b", b, out_dtype)
    for argument, x in (("a", a), ("b", b)):
        if x.dim() == 0:
            _fail("matmul", argument, "has shape []; takes 1 dimension or more")
    matrix_a = a if a.dim() > 1 else a.unsqueeze(0)
    matrix_b = b if b.dim() > 1 else b.unsqueeze(1)
    shape = list(_product_shape("matmul", "a", matrix_a, "b", matrix_b))
    if a.dim() == 1:
        del shape[-2]
    if b.dim() == 1:
        del shape[-1]
    return a.new_empty(shape, dtype=out)


def _sum(op, rank, input, a, b, out_dtype):
    """Shape and type of a product to which `input` is added."""
    _same_device(op, a, input=input, b=b)
    for argument, x in (("a", a), ("b", b)):
        if x.dim() != rank:
            _fail(op, argument, f"has shape {list(x.shape)}; takes {rank} dimensions")
    out = _output_type(op, "a", a, "b", b, out_dtype)
    if rank == 3:
        _check(a.shape[0] == b.shape[0], op, "b", lambda: f"has shape {list(b.shape)}; takes the batch size of a")
    shape = _product_shape(op, "a", a, "b", b)
    _fits(op, shape, input=input)
    return shape, out


def addmm(input, a, b, *, beta=1.0, alpha=1.0, out_dtype=None):
    shape, out = _sum("addmm", 2, input, a, b, out_dtype)
    return a.new_empty(shape, dtype=out)


def baddbmm(input, a, b, *, beta=1.0, alpha=1.0, out_dtype=None):
    shape, out = _sum("baddbmm", 3, input, a, b, out_dtype)
    return a.new_empty(shape, dtype=out)


def addmm_(input, a, b, *, beta=1.0, alpha=1.0):
    op = "addmm_"
    if input.dtype not in OUTPUTS.get(a.dtype, (input.dtype,)):
        taken = " or ".join(map(name, OUTPUTS[a.dtype]))
        _fail(op, "input", f"is {name(input.dtype)}; takes {taken} for {name(a.dtype)} operands", TypeError)
    shape, _ = _sum(op, 2, input, a, b, input.dtype)
    text = partial("has shape {}; takes {}, the shape of the product".format, list(input.shape), list(shape))
    _same_sizes(input.shape, shape, op, "input", text)


def gemm(
    a,
    b,
    c=None,
    bias=None,
    row_scale=None,
    col_scale=None,
    a_scale=None,
    multiply=None,
    a2=None,
    b2=None,
    *,
    alpha=1.0,
    beta=1.0,
    a_activation=0,
    activation=0,
    out_dtype=None,
):
    op = "gemm"
    beside = {"c": c, "bias": bias, "row_scale": row_scale, "col_scale": col_scale, "a_scale": a_scale}
    _same_device(op, a, b=b, **beside, multiply=multiply, a2=a2, b2=b2)
    out = _output_type(op, "a", a, "b", b, out_dtype)
    shape = _product_shape(op, "a", a, "b", b)
    if a2 is not None or b2 is not None:
        shape = _with_second_pair(op, shape, a, b, a2, b2)
    rows = (*shape[:-2], shape[-2])
    columns = (*shape[:-2], shape[-1])
    _fits(op, shape, c=c, multiply=multiply)
    _vector(op, columns, bias=bias)
    _fits(op, columns, col_scale=col_scale)
    _fits(op, rows, row_scale=row_scale)
    _fits(op, (*shape[:-2], a.shape[-1]), a_scale=a_scale)
    return a.new_empty(shape, dtype=out)


def _with_second_pair(op, shape, a, b, a2, b2):
    """The shape of the sum of two products, the first's given."""
    for argument, x, other in (("a2", a2, "b2"), ("b2", b2, "a2")):
        if x is None:
            _fail(op, argument, f"is None; takes a tensor beside {other}, or neither of the two", TypeError)
    for argument, x, like, first in (("a2", a2, a, "a"), ("b2", b2, b, "b")):
        if x.dtype != like.dtype:
            _fail(op, argument, f"is {name(x.dtype)}; takes {name(like.dtype)}, as {first} has", TypeError)
    *batch, m, n = _product_shape(op, "a2", a2, "b2", b2)
    _check(
        m == shape[-2], op, "a2", lambda: f"has shape {list(a2.shape)}; takes as many rows as a, {list(a.shape)}, has"
    )
    _check(
        n == shape[-1],
        op,
        "b2",
        lambda: f"has shape {list(b2.shape)}; takes as many columns as b, {list(b.shape)}, has",
    )
    try:
        joint = torch.broadcast_shapes(shape[:-2], batch)
    except RuntimeError:
        _fail(op, "a2", f"has shape {list(a2.shape)}; takes batch dimensions that broadcast with those of a and b")
    return (*joint, *shape[-2:])


def linear(x, weight, bias=None, residual=None, *, activation=0):
    _same_device("linear", x, weight=weight, bias=bias, residual=residual)
    if x.dim() == 0:
        _fail("linear", "x", "has shape []; takes 1 dimension or more")
    if weight.dim() != 2:
        _fail("linear", "weight", f"has shape {list(weight.shape)}; takes 2 dimensions")
    out = _output_type("linear", "x", x, "weight", weight, None)
    matrix = x if x.dim() > 1 else x.unsqueeze(0)
    shape = _product_shape("linear", "x", matrix, "weight", weight.t())
    _fits("linear", shape, residual=residual)
    _vector("linear", (*shape[:-2], shape[-1]), bias=bias)
    return x.new_empty(shape if x.dim() > 1 else shape[1:], dtype=out)


def gemm_gemm(
    a,
    b0,
    b1,
    c=None,
    bias0=None,
    bias1=None,
    gate=None,
    *,
    alpha0=1.0,
    alpha1=1.0,
    beta1=1.0,
    activation=0,
    out_dtype=None,
):
    op = "gemm_gemm"
    _same_device(op, a, b0=b0, b1=b1, c=c, bias0=bias0, bias1=bias1, gate=gate)
    _output_type(op, "a", a, "b0", b0, None)
    out = _output_type(op, "a", a, "b1", b1, out_dtype)
    inner = a.new_empty(_product_shape(op, "a", a, "b0", b0))
    shape = _product_shape(op, "b0", inner, "b1", b1)
    _fits(op, shape, c=c)
    _vector(op, (*inner.shape[:-2], inner.shape[-1]), bias0=bias0)
    _vector(op, (*shape[:-2], shape[-1]), bias1=bias1)
    if gate is not None:
        _same_sizes(gate.shape, b0.shape, op, "gate", lambda: f"has shape {list(gate.shape)}; takes the shape of b0")
    return a.new_empty(shape, dtype=out)


def attention(
    q,
    k,
    v,
    mask=None,
    sinks=None,
    alibi_slopes=None,
    dropout_seed=None,
    mod_a=None,
    mod_b=None,
    mod_c=None,
    mod_d=None,
    block_mask=None,
    *,
    is_causal=0,
    scale=None,
    enable_gqa=False,
    window_left=-1,
    window_right=-1,
    softcap=0.0,
    dropout_p=0.0,
    score_mod=0,
    mask_mod=0,
    block_q=0,
    block_k=0,
):
    op = "attention"
    _same_device(op, q, k=k, v=v, mask=mask, sinks=sinks, alibi_slopes=alibi_slopes)
    _same_device(op, q, mod_a=mod_a, mod_b=mod_b, mod_c=mod_c, mod_d=mod_d, block_mask=block_mask)
    _check_dropout(op, q, dropout_p, dropout_seed)
    _check_heads(op, q, k, v, enable_gqa)
    _fits(op, (*q.shape[:-1], k.shape[-2]), mask=mask)
    _fits(op, q.shape[:-2], sinks=sinks, alibi_slopes=alibi_slopes)
    _check_blocks(op, block_mask, block_q, block_k, q.shape[:-2], q.shape[-2], k.shape[-2])
    out = q.new_empty((*q.shape[:-1], v.shape[-1]))
    lse = q.new_empty(q.shape[:-1], dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)
    return out, lse


def scaled_attention(
    q,
    k,
    v,
    scale_q=None,
    scale_k=None,
    scale_v=None,
    *,
    is_causal=0,
    scale=None,
    enable_gqa=False,
    out_dtype=None,
):
    op = "scaled_attention"
    _same_device(op, q, k=k, v=v, scale_q=scale_q, scale_k=scale_k, scale_v=scale_v)
    if q.dtype != FP8_ATTENTION:
        _fail(op, "q", f"is {name(q.dtype)}; takes {name(FP8_ATTENTION)}", TypeError)
    _check_heads(op, q, k, v, enable_gqa)
    out_dtype = out_dtype or torch.bfloat16
    if out_dtype not in NARROWED:
        _fail(op, "out_dtype", f"is {name(out_dtype)}; takes bfloat16 or float16", TypeError)
    _fits(op, q.shape[:-2], scale_q=scale_q)
    _fits(op, k.shape[:-2], scale_k=scale_k, scale_v=scale_v)
    out = q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=out_dtype)
    return out, q.new_empty(q.shape[:-1], dtype=torch.float32)


def _check_heads(op, q, k, v, enable_gqa):
    if q.dim() < 2:
        _fail(op, "q", f"has shape {list(q.shape)}; takes [..., heads, length, head size]")
    for argument, x in (("k", k), ("v", v)):
        if x.dtype != q.dtype:
            _fail(op, argument, f"is {name(x.dtype)}; takes {name(q.dtype)}, as q has", TypeError)
        if x.dim() != q.dim():
            _fail(op, argument, f"has shape {list(x.shape)}; takes as many dimensions as q, {list(q.shape)}")
    _check(q.shape[-1] == k.shape[-1], op, "k", lambda: f"has shape {list(k.shape)}; takes the head size of q")
    _check(k.shape[-2] == v.shape[-2], op, "v", lambda: f"has shape {list(v.shape)}; takes the length of k")
    _same_sizes(
        v.shape[:-2],
        k.shape[:-2],
        op,
        "v",
        lambda: f"has shape {list(v.shape)}; takes the batch and head dimensions of k, {list(k.shape)}",
    )
    grouped = enable_gqa and q.dim() > 2
    batch = -3 if grouped else -2
    hint = "" if grouped or q.dim() < 3 else " (or enable_gqa=True)"
    _same_sizes(
        k.shape[:batch],
        q.shape[:batch],
        op,
        "k",
        lambda: f"has shape {list(k.shape)}; takes the batch and head dimensions of q, {list(q.shape)}{hint}",
    )
    if grouped and q.shape[-3] != 0 and (k.shape[-3] == 0 or q.shape[-3] % k.shape[-3] != 0):
        _fail(op, "k", f"has shape {list(k.shape)}; takes a number of heads that divides that of q, {q.shape[-3]}")


def _check_blocks(op, states, block_q, block_k, outer, queries, keys):
    for argument, size in (("block_q", block_q), ("block_k", block_k)):
        if states is None and size != 0:
            _fail(op, argument, f"is {size}; takes 0 without block_mask")
        if states is not None and (size <= 0 or size % STEP):
            _fail(op, argument, f"is {size}; takes a multiple of {STEP}")
    if states is None:
        return
    if states.dtype != torch.int8:
        _fail(op, "block_mask", f"is {name(states.dtype)}; takes int8", TypeError)
    blocks = tuple(-(-length // size) for length, size in ((queries, block_q), (keys, block_k)))

    def text():
        sizes = f"blocks of {block_q} queries and of {block_k} keys"
        return f"has shape {list(states.shape)}; takes [..., {blocks[0]}, {blocks[1]}], {sizes}"

    if states.dim() < 2:
        _fail(op, "block_mask", text())
    _same_sizes(states.shape[-2:], blocks, op, "block_mask", text)
    _fits(op, (*outer, *blocks), block_mask=states)


def varlen_attention(
    query,
    key,
    value,
    cu_seq_q,
    cu_seq_k=None,
    sinks=None,
    alibi_slopes=None,
    seqused_k=None,
    block_table=None,
    dropout_seed=None,
    mod_a=None,
    mod_b=None,
    mod_c=None,
    mod_d=None,
    k_descale=None,
    v_descale=None,
    block_mask=None,
    *,
    max_q,
    max_k=None,
    scale=None,
    enable_gqa=False,
    window_left=-1,
    window_right=-1,
    softcap=0.0,
    dropout_p=0.0,
    score_mod=0,
    mask_mod=0,
    block_q=0,
    block_k=0,
):
    op = "varlen_attention"
    _check_dropout(op, query, dropout_p, dropout_seed)
    beside = {"cu_seq_q": cu_seq_q, "cu_seq_k": cu_seq_k, "seqused_k": seqused_k}
    others = {"sinks": sinks, "alibi_slopes": alibi_slopes, "block_table": block_table, "block_mask": block_mask}
    mods = {"mod_a": mod_a, "mod_b": mod_b, "mod_c": mod_c, "mod_d": mod_d}
    descales = {"k_descale": k_descale, "v_descale": v_descale}
    _same_device(op, query, key=key, value=value, **beside, **others, **mods, **descales)
    if query.dim() != 3:
        _fail(op, "query", f"has shape {list(query.shape)}; takes [tokens, heads, head size]")
    _check_stored(op, query, key, value, block_table is not None)
    for argument, x in (("key", key), ("value", value)):
        if block_table is not None and x.dim() != 4:
            text = f"has shape {list(x.shape)}; takes [pages, page size, heads, head size] with block_table"
            _fail(op, argument, text)
        if block_table is None and x.dim() != 3:
            _fail(op, argument, f"has shape {list(x.shape)}; takes as many dimensions as query, {list(query.shape)}")
    _check(
        query.shape[2] == key.shape[-1], op, "key", lambda: f"has shape {list(key.shape)}; takes the head size of query"
    )
    _same_sizes(
        value.shape[:-1],
        key.shape[:-1],
        op,
        "value",
        lambda: f"has shape {list(value.shape)}; takes the length and the heads of key, {list(key.shape)}",
    )
    heads = key.shape[-2]
    if not enable_gqa:
        _check(
            heads == query.shape[1],
            op,
            "key",
            lambda: f"has shape {list(key.shape)}; takes the heads of query (or enable_gqa=True)",
        )
    elif query.shape[1] != 0 and (heads == 0 or query.shape[1] % heads != 0):
        _fail(op, "key", f"has shape {list(key.shape)}; takes a number of heads that divides that of query")
    _check_pages(op, key, cu_seq_k, seqused_k, block_table, max_k)
    for argument, x in beside.items():
        if x is not None and (x.dim() != 1 or x.dtype not in (torch.int32, torch.int64)):
            _fail(
                op, argument, f"has shape {list(x.shape)} and is {name(x.dtype)}; takes one dimension of int32 or int64"
            )
    _fits(op, query.shape[1:2], sinks=sinks, alibi_slopes=alibi_slopes)
    count = cu_seq_q.shape[0] - 1
    _check_descales(op, f"key of {name(key.dtype)}", key.dtype, (count, heads), descales)
    if max_k is None:
        max_k = block_table.shape[1] * key.shape[1]
    _check_blocks(op, block_mask, block_q, block_k, (count, query.shape[1]), max_q, max_k)
    out = query.new_empty((*query.shape[:2], value.shape[-1]))
    number = torch.float64 if query.dtype == torch.float64 else torch.float32
    return out, query.new_empty((query.shape[1], query.shape[0]), dtype=number)


def _check_stored(op, query, key, value, paged):
    """Keys and values are of the queries' type, or in pages of 8 bits beside queries of 16."""
    if key.dtype == FP8_PAGES and not paged:
        text = f"is {name(key.dtype)}; takes {name(query.dtype)}, as query has (in pages, with block_table, it may be)"
        _fail(op, "key", text, TypeError)
    if key.dtype == FP8_PAGES and query.dtype not in NARROWED:
        text = f"is {name(query.dtype)}; takes float16 or bfloat16 beside pages of {name(key.dtype)}"
        _fail(op, "query", text, TypeError)
    if key.dtype not in (query.dtype, FP8_PAGES):
        text = ", or float8_e4m3fn" if paged and query.dtype in NARROWED else ""
        _fail(op, "key", f"is {name(key.dtype)}; takes {name(query.dtype)}, as query has{text}", TypeError)
    if value.dtype != key.dtype:
        first = "key" if key.dtype == FP8_PAGES else "query"
        _fail(op, "value", f"is {name(value.dtype)}; takes {name(key.dtype)}, as {first} has", TypeError)


def _check_descales(op, pages, stored, sizes, descales):
    for argument, x in descales.items():
        if x is None:
            continue
        if stored != FP8_PAGES:
            _fail(op, argument, f"is given beside {pages}; takes None, but of pages of float8_e4m3fn", TypeError)
        if x.dtype != torch.float32:
            _fail(op, argument, f"is {name(x.dtype)}; takes float32", TypeError)
    _fits(op, sizes, **descales)


def _check_dropout(op, q, p, seed):
    if not 0 <= p < 1:
        _fail(op, "dropout_p", f"is {p:f}; takes 0 (none) up to, but not, 1")
    if p == 0:
        return
    if seed is None:
        _fail(op, "dropout_seed", "is None; takes a tensor of one number beside dropout_p", TypeError)
    _same_device(op, q, dropout_seed=seed)
    if seed.dtype != torch.int64:
        _fail(op, "dropout_seed", f"is {name(seed.dtype)}; takes int64", TypeError)
    _check(seed.numel() == 1, op, "dropout_seed", lambda: f"has shape {list(seed.shape)}; takes one element")


def _check_pages(op, key, cu_seq_k, seqused_k, block_table, max_k):
    if block_table is None:
        for argument, x, taken in (("cu_seq_k", cu_seq_k, "a tensor"), ("max_k", max_k, "a whole number")):
            if x is None:
                _fail(op, argument, f"is None; takes {taken}, or a block_table beside it", TypeError)
        return
    size = key.shape[1]
    text = partial("has pages of {} keys; takes a multiple of {}".format, size, PAGE_STEP)
    _check(size != 0, op, "key", text)
    _check(size % PAGE_STEP == 0, op, "key", text)
    if block_table.dtype != torch.int32:
        _fail(op, "block_table", f"is {name(block_table.dtype)}; takes int32", TypeError)
    if block_table.dim() != 2:
        _fail(op, "block_table", f"has shape {list(block_table.shape)}; takes [sequences, pages of a sequence]")
    if seqused_k is None:
        _fail(op, "seqused_k", "is None; takes a tensor beside block_table, of each sequence's keys", TypeError)


def scaled_mm(a, b, scale_a, scale_b, bias=None, *, out_dtype=None):
    op = "scaled_mm"
    _same_device(op, a, b=b, scale_a=scale_a, scale_b=scale_b, bias=bias)
    if a.dtype not in (torch.int8, *FP8_OCP, *FP8_FNUZ):
        _fail(op, "a", f"is {name(a.dtype)}; takes int8 or a float8 type", TypeError)
    out = _output_type(op, "a", a, "b", b, out_dtype or torch.bfloat16)
    shape = _product_shape(op, "a", a, "b", b)
    columns = (*shape[:-2], shape[-1])
    _fits(op, shape[:-1], scale_a=_short_scale(scale_a, a, -1))
    _fits(op, columns, scale_b=_short_scale(scale_b, b, -2))
    _vector(op, columns, bias=bias)
    return a.new_empty(shape, dtype=out)


def _short_scale(scale, operand, one):
    """A scale as a vector: without its dimension of one, or without any where it is one element."""
    if all(known(size == 1) for size in scale.shape):
        return scale.new_empty(())
    return scale.squeeze(one) if is_matrix_scale(scale.shape, operand.shape, one) else scale


@torch.library.register_fake("wmma::_attention_backward")
def _attention_backward(g_out, q, k, v, *beside, **scalars):
    return tuple(x.new_empty(x.shape) for x in (q, k, v))


def kv_append(
    key,
    value,
    key_pages,
    value_pages,
    block_table,
    cu_seq,
    seqused_k,
    cos=None,
    sin=None,
    k_descale=None,
    v_descale=None,
    *,
    interleaved=False,
):
    op = "kv_append"
    descales = {"k_descale": k_descale, "v_descale": v_descale}
    pages = {"key_pages": key_pages, "value_pages": value_pages}
    numbers = {"cu_seq": cu_seq, "seqused_k": seqused_k}
    for argument, x in ({"key": key, "value": value} | pages | {"block_table": block_table} | numbers).items():
        if x is None:  # a schema's Tensor may be
            _fail(op, argument, "is None; takes a tensor", TypeError)
    _same_device(op, key, value=value, **pages, **numbers, block_table=block_table, cos=cos, sin=sin, **descales)
    if key.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        _fail(op, "key", f"is {name(key.dtype)}; takes float16, bfloat16, float32 or float64", TypeError)
    for argument, x in (("key", key), ("value", value)):
        if x.dim() != 3:
            _fail(op, argument, f"has shape {list(x.shape)}; takes [tokens, heads, head size]")
    if value.dtype != key.dtype:
        _fail(op, "value", f"is {name(value.dtype)}; takes {name(key.dtype)}, as key has", TypeError)
    text = partial("has shape {}; takes the tokens and the heads of key, {}".format, list(value.shape), list(key.shape))
    _same_sizes(value.shape[:2], key.shape[:2], op, "value", text)
    _check_pages_written(op, {"key": key, "value": value}, pages)
    _check_numbers_of_pages(op, numbers, block_table)
    if cos is not None or sin is not None:
        _check_angles(op, key, cos, sin)
    stored = key_pages.dtype
    _check_descales(op, f"pages of {name(stored)}", stored, (cu_seq.shape[0] - 1, key.shape[1]), descales)


def _check_pages_written(op, new, pages):
    for (argument, x), (of_name, of) in zip(pages.items(), new.items(), strict=True):
        if pages["key_pages"].dtype == FP8_PAGES and new["key"].dtype in NARROWED:
            if x.dtype != FP8_PAGES:
                _fail(op, argument, f"is {name(x.dtype)}; takes {name(FP8_PAGES)}, as key_pages has", TypeError)
        elif x.dtype != new["key"].dtype:
            may_be = argument == "key_pages" and new["key"].dtype in NARROWED
            text = f"takes {name(new['key'].dtype)}, as key has" + (", or float8_e4m3fn" if may_be else "")
            _fail(op, argument, f"is {name(x.dtype)}; {text}", TypeError)
        heads, size = of.shape[1:]
        taken = f"takes [pages, page size, {heads}, {size}], with the heads and the size of {of_name}"
        text = partial("has shape {}; {}".format, list(x.shape), taken)
        if x.dim() != 4:
            _fail(op, argument, text())
        _same_sizes(x.shape[2:], (heads, size), op, argument, text)
        # Of strides this alone is looked at, and memory that two tensors share not at all: the run does.
        if known(x.numel() != 0) and any(
            known(n > 1) and known(s == 0) for n, s in zip(x.shape, x.stride(), strict=True)
        ):
            text = "has elements that share memory (an expanded tensor?); takes one that does not overlap itself"
            _fail(op, argument, text)
    count, size = pages["key_pages"].shape[:2]
    text = partial("has shape {}; takes a page size of 1 or more".format, list(pages["key_pages"].shape))
    _check(size != 0, op, "key_pages", text)
    given = list(pages["value_pages"].shape)
    text = partial("has shape {}; takes the pages of key_pages, {} of {}".format, given, count, size)
    _same_sizes(given[:2], (count, size), op, "value_pages", text)


def _check_numbers_of_pages(op, numbers, block_table):
    for argument, x in numbers.items():
        if x.dtype not in (torch.int32, torch.int64):
            _fail(op, argument, f"is {name(x.dtype)}; takes int32 or int64", TypeError)
        if x.dim() != 1:
            _fail(op, argument, f"has shape {list(x.shape)}; takes one dimension")
    ends = numbers["cu_seq"].shape[0]
    _check(ends != 0, op, "cu_seq", lambda: "has shape [0]; takes one dimension, of 1 or more")
    used = list(numbers["seqused_k"].shape)
    text = partial("has shape {}; takes [{}], as cu_seq has {}".format, used, ends - 1, ends)
    _check(used[0] == ends - 1, op, "seqused_k", text)
    if block_table.dtype != torch.int32:
        _fail(op, "block_table", f"is {name(block_table.dtype)}; takes int32", TypeError)
    shape = list(block_table.shape)
    text = partial("has shape {}; takes [{}, pages of a sequence], as cu_seq has {}".format, shape, ends - 1, ends)
    if len(shape) != 2:
        _fail(op, "block_table", text())
    _check(shape[0] == ends - 1, op, "block_table", text)


def _check_angles(op, key, cos, sin):
    for argument, x, other in (("cos", cos, "sin"), ("sin", sin, "cos")):
        if x is None:
            _fail(op, argument, f"is None; takes a tensor beside {other}", TypeError)
        if x.dtype not in (key.dtype, torch.float32):
            text = f"is {name(x.dtype)}; takes float32 or {name(key.dtype)}, as key has"
            _fail(op, argument, text, TypeError)
        most = key.shape[2] // 2
        taken = f"takes [places, angles], of up to {most} angles, half the size of key"
        text = partial("has shape {}; {}".format, list(x.shape), taken)
        if x.dim() != 2:
            _fail(op, argument, text())
        _check(x.shape[1] <= most, op, argument, text)
    text = partial(
        "has shape {} and is {}; takes those of cos, {} and {}".format,
        list(sin.shape),
        name(sin.dtype),
        list(cos.shape),
        name(cos.dtype),
    )
    if sin.dtype != cos.dtype:
        _fail(op, "sin", text())
    _same_sizes(sin.shape, cos.shape, op, "sin", text)


@torch.library.register_fake("wmma::_varlen_attention_backward")
def _varlen_attention_backward(g_out, query, key, value, *beside, **scalars):
    return tuple(x.new_empty(x.shape) for x in (query, key, value))


for _op in (*OPS, *WRITERS):
    for _namespace in NAMESPACES:
        torch.library.register_fake(f"{_namespace}::{_op}", globals()[_op])
