"""The fake of what appends to pages."""

from functools import partial

import torch

from wmma_ops.ops.fakes.attentions import check_descales
from wmma_ops.ops.fakes.checks import check, fail, require, same_device, same_sizes
from wmma_ops.ops.sizes import known
from wmma_ops.ops.types import FP8_PAGES, NARROWED, listed, name


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
    require(op, key=key, value=value, **pages, block_table=block_table, **numbers)
    same_device(op, key, value=value, **pages, **numbers, block_table=block_table, cos=cos, sin=sin, **descales)
    if key.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        fail(op, "key", f"is {name(key.dtype)}; takes float16, bfloat16, float32 or float64", TypeError)
    for argument, x in (("key", key), ("value", value)):
        if x.dim() != 3:
            fail(op, argument, f"has shape {list(x.shape)}; takes [tokens, heads, head size]")
    if value.dtype != key.dtype:
        fail(op, "value", f"is {name(value.dtype)}; takes {name(key.dtype)}, as key has", TypeError)
    text = partial("has shape {}; takes the tokens and the heads of key, {}".format, list(value.shape), list(key.shape))
    same_sizes(value.shape[:2], key.shape[:2], op, "value", text)
    _check_pages_written(op, {"key": key, "value": value}, pages)
    _check_numbers_of_pages(op, numbers, block_table)
    if cos is not None or sin is not None:
        _check_angles(op, key, cos, sin)
    stored = key_pages.dtype
    check_descales(op, f"pages of {name(stored)}", stored, (cu_seq.shape[0] - 1, key.shape[1]), descales)


def _check_pages_written(op, new, pages):
    for (argument, x), (of_name, of) in zip(pages.items(), new.items(), strict=True):
        if pages["key_pages"].dtype == FP8_PAGES and new["key"].dtype in NARROWED:
            if x.dtype != FP8_PAGES:
                fail(op, argument, f"is {name(x.dtype)}; takes {name(FP8_PAGES)}, as key_pages has", TypeError)
        elif x.dtype != new["key"].dtype:
            may_be = argument == "key_pages" and new["key"].dtype in NARROWED
            text = f"takes {name(new['key'].dtype)}, as key has" + (", or float8_e4m3fn" if may_be else "")
            fail(op, argument, f"is {name(x.dtype)}; {text}", TypeError)
        heads, size = of.shape[1:]
        taken = f"takes [pages, page size, {heads}, {size}], with the heads and the size of {of_name}"
        text = partial("has shape {}; {}".format, list(x.shape), taken)
        if x.dim() != 4:
            fail(op, argument, text())
        same_sizes(x.shape[2:], (heads, size), op, argument, text)
        # Of strides this alone is looked at, and memory that two tensors share not at all: the run does.
        if known(x.numel() != 0) and any(
            known(n > 1) and known(s == 0) for n, s in zip(x.shape, x.stride(), strict=True)
        ):
            text = "has elements that share memory (an expanded tensor?); takes one that does not overlap itself"
            fail(op, argument, text)
    count, size = pages["key_pages"].shape[:2]
    text = partial("has shape {}; takes a page size of 1 or more".format, list(pages["key_pages"].shape))
    check(size != 0, op, "key_pages", text)
    given = list(pages["value_pages"].shape)
    text = partial("has shape {}; takes the pages of key_pages, {} of {}".format, given, count, size)
    same_sizes(given[:2], (count, size), op, "value_pages", text)


def _check_numbers_of_pages(op, numbers, block_table):
    for argument, x in numbers.items():
        if x.dtype not in (torch.int32, torch.int64):
            fail(op, argument, f"is {name(x.dtype)}; takes int32 or int64", TypeError)
        if x.dim() != 1:
            fail(op, argument, f"has shape {list(x.shape)}; takes one dimension")
    ends = numbers["cu_seq"].shape[0]
    check(ends != 0, op, "cu_seq", lambda: "has shape [0]; takes one dimension, of 1 or more")
    used = list(numbers["seqused_k"].shape)
    text = partial("has shape {}; takes [{}], as cu_seq has {}".format, used, ends - 1, ends)
    check(used[0] == ends - 1, op, "seqused_k", text)
    if block_table.dtype != torch.int32:
        fail(op, "block_table", f"is {name(block_table.dtype)}; takes int32", TypeError)
    shape = list(block_table.shape)
    text = partial("has shape {}; takes [{}, pages of a sequence], as cu_seq has {}".format, shape, ends - 1, ends)
    if len(shape) != 2:
        fail(op, "block_table", text())
    check(shape[0] == ends - 1, op, "block_table", text)


def _check_angles(op, key, cos, sin):
    for argument, x, other in (("cos", cos, "sin"), ("sin", sin, "cos")):
        if x is None:
            fail(op, argument, f"is None; takes a tensor beside {other}", TypeError)
        if x.dtype not in (key.dtype, torch.float32):
            text = f"is {name(x.dtype)}; takes {listed(torch.float32, key.dtype)}, as key has"
            fail(op, argument, text, TypeError)
        most = key.shape[2] // 2
        taken = f"takes [places, angles], of up to {most} angles, half the size of key"
        text = partial("has shape {}; {}".format, list(x.shape), taken)
        if x.dim() != 2:
            fail(op, argument, text())
        check(x.shape[1] <= most, op, argument, text)
    text = partial(
        "has shape {} and is {}; takes those of cos, {} and {}".format,
        list(sin.shape),
        name(sin.dtype),
        list(cos.shape),
        name(cos.dtype),
    )
    if sin.dtype != cos.dtype:
        fail(op, "sin", text())
    same_sizes(sin.shape, cos.shape, op, "sin", text)
