"""The fake of what appends to pages."""

import torch

from wmma_ops.ops.fakes.attentions import check_descales
from wmma_ops.ops.fakes.checks import check, refuse, refused_by_library, require, same_device, same_sizes
from wmma_ops.ops.sizes import known
from wmma_ops.ops.types import FP8_PAGES, NARROWED


@refused_by_library
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
    descales = {"k_descale": k_descale, "v_descale": v_descale}
    pages = {"key_pages": key_pages, "value_pages": value_pages}
    numbers = {"cu_seq": cu_seq, "seqused_k": seqused_k}
    require(key, value, *pages.values(), block_table, *numbers.values())
    same_device(
        "kv_append", key, value=value, **pages, **numbers, block_table=block_table, cos=cos, sin=sin, **descales
    )
    if key.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64) or value.dtype != key.dtype:
        refuse()
    if key.dim() != 3 or value.dim() != 3:
        refuse()
    same_sizes(value.shape[:2], key.shape[:2])
    _check_pages_written(key, value, key_pages, value_pages)
    _check_numbers_of_pages(cu_seq, seqused_k, block_table)
    if cos is not None or sin is not None:
        _check_angles(key, cos, sin)
    check_descales(key_pages.dtype, (cu_seq.shape[0] - 1, key.shape[1]), *descales.values())


def _check_pages_written(key, value, key_pages, value_pages):
    narrow = key_pages.dtype == FP8_PAGES and key.dtype in NARROWED
    for x, of in ((key_pages, key), (value_pages, value)):
        if x.dtype != (FP8_PAGES if narrow else key.dtype) or x.dim() != 4:
            refuse()
        same_sizes(x.shape[2:], of.shape[1:])
        # Of strides this alone is looked at, and memory that two tensors share not at all: the run does.
        if known(x.numel() != 0) and any(
            known(n > 1) and known(s == 0) for n, s in zip(x.shape, x.stride(), strict=True)
        ):
            refuse()
    check(key_pages.shape[1] != 0)
    same_sizes(value_pages.shape[:2], key_pages.shape[:2])


def _check_numbers_of_pages(cu_seq, seqused_k, block_table):
    for x in (cu_seq, seqused_k):
        if x.dtype not in (torch.int32, torch.int64) or x.dim() != 1:
            refuse()
    ends = cu_seq.shape[0]
    check(ends != 0)
    check(seqused_k.shape[0] == ends - 1)
    if block_table.dtype != torch.int32 or block_table.dim() != 2:
        refuse()
    check(block_table.shape[0] == ends - 1)


def _check_angles(key, cos, sin):
    require(cos, sin)
    for x in (cos, sin):
        if x.dtype not in (key.dtype, torch.float32) or x.dim() != 2:
            refuse()
        check(x.shape[1] <= key.shape[2] // 2)
    if sin.dtype != cos.dtype:
        refuse()
    same_sizes(sin.shape, cos.shape)
