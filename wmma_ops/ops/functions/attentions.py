"""The documented functions of attention: their rules and names as the ops have them."""

from typing import TYPE_CHECKING

import torch

from wmma_ops.ops import score_functions
from wmma_ops.ops.blocks import Blocks
from wmma_ops.ops.dropout import new_seed
from wmma_ops.ops.errors import translate
from wmma_ops.ops.functions.calling import call
from wmma_ops.ops.library import overload
from wmma_ops.ops.neighbours import answering

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

Tensor = torch.Tensor
_kv_append = overload("kv_append")

CAUSAL = {False: 0, True: 1, "top_left": 1, "bottom_right": 2}


@answering
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool | str = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    dropout_p: float = 0.0,
    dropout_seed: Tensor | None = None,
    score_mod: str | None = None,
    mask_mod: str | None = None,
    mod_operands: tuple[Tensor, ...] = (),
    block_mask: "BlockMask | Blocks | None" = None,
) -> tuple[Tensor, Tensor]:
    """``softmax(scale·Q·Kᵀ + mask)·V`` and, for each row, the logarithm of the sum under the softmax.

    Args:
        q: ``[..., heads, Sq, E]`` of float16, bfloat16, float32 or float64.
        k: ``[..., heads, Skv, E]``.
        v: ``[..., heads, Skv, Ev]``.
        mask: any shape that broadcasts to ``[..., heads, Sq, Skv]``; bool (True: may look) or floating (added).
        is_causal: True or "top_left" aligns the first query with the first key, "bottom_right" the last with the last.
        scale: by default ``1/√E``.
        enable_gqa: k and v may have fewer heads, each serving a group of query heads.
        window: a query sees so many keys to the left and to the right of where it stands, beside the one there; −1: all on
            that side (the op has window_left and window_right). Query i stands at key ``i + Skv − Sq``, as the last query at
            the last key, or, where is_causal is "top_left", at key i. is_causal is a window that ends there: the right size
            counts only without it.
        softcap: scores are ``softcap·tanh(scale·Q·Kᵀ/softcap)`` before anything is added to them (to 1e30); 0: as they are.
        sinks: one more score for every row of a head, that takes weight and gives nothing; of any shape that broadcasts to
            ``[..., heads]``, in float32 or q's type. It counts in ``lse``.
        alibi_slopes: from a score the head's slope times the key's distance from where the query stands is subtracted;
            likewise.
        dropout_p: each weight is 0 with this probability, and multiplied by ``1/(1 − dropout_p)`` otherwise; ``lse`` is that
            of all. The gradients drop the same ones.
        dropout_seed: one int64, on q's device, that decides which: ``dropout_mask`` says how. Drawn by torch's generator
            where there is none.
        score_mod: the name of a function of scores that :func:`register_score_mod` made known. It is given what scores are
            after a soft cap and slopes, before masks.
        mask_mod: the name of a function that :func:`register_mask_mod` made known: a query sees the keys for which it is
            true, of those that it sees without it.
        mod_operands: the tensors that both functions read, up to four: ``a``, ``b``, ``c`` and ``d`` of their expressions
            (the op's ``mod_a``, ``mod_b``, ``mod_c`` and ``mod_d``). They have no gradients.
        block_mask: FlexAttention's, or :class:`Blocks`: keys of blocks that are not there are neither seen nor read; in
            blocks that are there in part a query sees what mask_mod shows it. FlexAttention's own mask_mod is to be one that
            :func:`register_mask_mod` was given, or mask_mod names its like. Without one, of blocks 128 queries high, a
            kernel finds out what mask_mod shows before, where many heads or batches share it. (The op has a Blocks as
            ``block_mask``, ``block_q`` and ``block_k``.)

    Returns:
        ``out`` as q, with V's head size, and ``lse`` ``[..., heads, Sq]`` in float32 (float64). In memory a row's heads lie
        together in ``out`` where they do in q, and in gradients likewise: ``[batch, Sq, heads, E]``, transposed, gives what
        is contiguous transposed back. A row that may look at no key gives zeros and −inf, or its sink. Keys that a window
        hides from all of a tile's queries are not read. All tensors but those that functions read have gradients; slopes,
        as masks, by way of scores in memory.

    On the CPU heads are of any size. Kernels take E and Ev up to 512; for the gradients up to 256 of float16 and bfloat16,
    128 of float32 and 64 of float64 (30 on gfx908), and those of wider heads go by way of scores in memory. :func:`explain`
    tells the limits of a call.

    Examples:
        >>> import torch, wmma_ops
        >>> q, k = torch.randn(2, 8, 16, 64), torch.randn(2, 2, 32, 64)
        >>> out, lse = wmma_ops.attention(q, k, k, is_causal="bottom_right", enable_gqa=True)
        >>> out.shape, lse.shape
        (torch.Size([2, 8, 16, 64]), torch.Size([2, 8, 16]))
    """
    causal = _causal("attention", is_causal)
    scalars = _rules("attention", "window", window, softcap, dropout_p)
    mods = _mods("attention", mod_operands)
    if block_mask is not None:
        blocks, mask_mod = score_functions.blocks_of("attention", block_mask, mask_mod)
        scalars |= {"block_q": blocks.queries, "block_k": blocks.keys}
        mods = dict.fromkeys(score_functions.ARGUMENTS) | mods | {"block_mask": blocks.states}
    scalars |= score_functions.codes("attention", score_mod, mask_mod)
    seed = _seed("attention", q, dropout_p, dropout_seed)
    q, k, v = _laid_as_said(q), _laid_as_said(k), _laid_as_said(v)
    tensors = {"q": q, "k": k, "v": v, "mask": mask, "sinks": sinks, "alibi_slopes": alibi_slopes, "dropout_seed": seed}
    return call("attention", {**tensors, **mods}, is_causal=causal, scale=scale, enable_gqa=enable_gqa, **scalars)


@answering
def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int | None,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    dropout_p: float = 0.0,
    dropout_seed: Tensor | None = None,
    score_mod: str | None = None,
    mask_mod: str | None = None,
    mod_operands: tuple[Tensor, ...] = (),
    block_mask: "BlockMask | Blocks | None" = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """``attention`` of sequences that lie one after the other, without padding, by the names of torch's ``varlen_attn``.

    The queries ``cu_seq_q[i]`` to ``cu_seq_q[i + 1]`` see the keys ``cu_seq_k[i]`` to ``cu_seq_k[i + 1]``, and no others.

    Args:
        query: ``[queries, heads, E]`` of float16, bfloat16, float32 or float64.
        key: ``[keys, heads, E]``; with block_table pages of keys, ``[pages, page size, heads, E]``, which beside float16 and
            bfloat16 may be of float8_e4m3fn.
        value: ``[keys, heads, Ev]``, or ``[pages, page size, heads, Ev]``.
        cu_seq_q, cu_seq_k: ``[sequences + 1]`` of int32 or int64: 0, and where each sequence ends. On a GPU they stay there:
            numbers that decrease or lie beyond the tensors give some result, from within these; on the CPU, and with
            ``WMMA_OPS_CHECK=1``, they are refused.
        max_q, max_k: the lengths of the longest sequences, or more; of longer ones the rest does not count.
        scale: by default ``1/√E``.
        window_size: a query sees so many keys to the left and to the right of where it stands, beside the one there; −1: all
            on that side (the op has window_left and window_right). The last query of a sequence stands at its last key:
            ``(-1, 0)`` is causal.
        enable_gqa: key and value may have fewer heads, each serving a group of query heads.
        seqused_k: ``[sequences]`` of int32 or int64: only so many of a sequence's keys, the first ones, are there.
        block_table: ``[sequences, pages of a sequence]`` of int32: key j of sequence i lies in page
            ``block_table[i, j // page size]``, and there are ``seqused_k[i]`` of them. The page size is a multiple of 16.
            cu_seq_k does not count and may be None, max_k too. Numbers behind a sequence's last page are not looked at; on a
            GPU those of no page give some result, on the CPU they are refused. Without gradients.
        softcap: as for ``attention``.
        sinks, alibi_slopes: as for ``attention``, of any shape that broadcasts to ``[heads]``.
        dropout_p, dropout_seed: as for ``attention``, where a sequence is as one of a batch.
        score_mod, mask_mod, mod_operands: likewise (the op's ``mod_a``, ``mod_b``, ``mod_c`` and ``mod_d``): ``batch`` is
            the sequence's number, and ``query`` and ``key`` count from its first query and its first key.
        block_mask: as for ``attention``, where the batch are the sequences, blocks of each count from its first query and
            its first key, and there are as many for each as for ``max_q`` and ``max_k``. Without one no kernel looks what
            mask_mod shows. (The op's ``block_mask``, ``block_q`` and ``block_k``.)
        k_descale, v_descale: what keys and values in pages of float8_e4m3fn are multiplied by, in float32 and by
            FlashAttention-3's names: of any shape that broadcasts to ``[sequences, heads of key]``, so one element, or one
            a head; by default 1.

    Returns:
        ``out`` ``[queries, heads, Ev]`` and ``lse`` ``[heads, queries]`` in float32 (float64). A row that may look at no key
        gives zeros and −inf, or its sink; a token of no sequence zeros and −inf. Gradients and head sizes as ``attention``
        has them; keys that no query sees have gradients of zero.

    Examples:
        >>> import torch, wmma_ops
        >>> x, ends = torch.randn(5, 2, 16), torch.tensor([0, 2, 5], dtype=torch.int32)
        >>> out, lse = wmma_ops.varlen_attention(x, x, x, ends, ends, 3, 3, window_size=(-1, 0))
        >>> alone, _ = wmma_ops.attention(*[x[2:].transpose(0, 1)] * 3, is_causal=True)
        >>> out.shape, lse.shape, torch.allclose(out[2:], alone.transpose(0, 1), atol=1e-6)
        (torch.Size([5, 2, 16]), torch.Size([2, 5]), True)
    """
    tensors = {"query": query, "key": key, "value": value, "cu_seq_q": cu_seq_q, "cu_seq_k": cu_seq_k}
    tensors |= {"sinks": sinks, "alibi_slopes": alibi_slopes, "seqused_k": seqused_k, "block_table": block_table}
    tensors["dropout_seed"] = _seed("varlen_attention", query, dropout_p, dropout_seed)
    tensors |= dict.fromkeys(score_functions.ARGUMENTS) | _mods("varlen_attention", mod_operands)
    tensors |= {"k_descale": k_descale, "v_descale": v_descale}
    scalars = _rules("varlen_attention", "window_size", window_size, softcap, dropout_p)
    if block_mask is not None:
        blocks, mask_mod = score_functions.blocks_of("varlen_attention", block_mask, mask_mod)
        tensors["block_mask"] = blocks.states
        scalars |= {"block_q": blocks.queries, "block_k": blocks.keys}
    scalars |= score_functions.codes("varlen_attention", score_mod, mask_mod)
    return call("varlen_attention", tensors, max_q=max_q, max_k=max_k, scale=scale, enable_gqa=enable_gqa, **scalars)


@answering
def scaled_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale_q: Tensor | None = None,
    scale_k: Tensor | None = None,
    scale_v: Tensor | None = None,
    *,
    is_causal: bool | str = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """``attention`` of quantised queries, keys and values: of ``q·scale_q``, ``k·scale_k`` and ``v·scale_v``. Not
    differentiable.

    Args:
        q: ``[..., heads, Sq, E]`` of float8_e4m3fn.
        k: ``[..., heads, Skv, E]``, likewise.
        v: ``[..., heads, Skv, Ev]``, likewise.
        scale_q: float32, of any shape that broadcasts to ``[..., heads]``; none is 1.
        scale_k: likewise, to the batch and heads of k.
        scale_v: likewise.
        is_causal: as for ``attention``.
        scale: likewise.
        enable_gqa: likewise.
        out_dtype: bfloat16 by default, or float16.

    Returns:
        ``out`` of out_dtype and ``lse`` as for ``attention``.

    On sm_90a heads of up to 128 (q and k 256) are multiplied as they are: weights, of which a row's largest is 256 or a bit
    less, are rounded to float8_e4m3fn for the product with the values, each by up to 1/16 of itself, or by 2^-18 of the
    largest where they are small; sums are of float32, but those of 128 keys, or of a head's columns, the unit sums up by
    itself with 13 bits or so behind the point. Elsewhere operands become numbers of out_dtype, times their scale, and go to
    ``attention``'s kernels; on the CPU float32. :func:`explain` tells which.

    Examples:
        >>> import torch, wmma_ops
        >>> x = torch.randn(2, 8, 16, 64)
        >>> scale = x.abs().amax((-2, -1)) / 448
        >>> narrow = (x / scale[..., None, None]).to(torch.float8_e4m3fn)
        >>> out, lse = wmma_ops.scaled_attention(narrow, narrow, narrow, scale, scale, scale)
        >>> out.dtype, out.shape
        (torch.bfloat16, torch.Size([2, 8, 16, 64]))
    """
    causal = _causal("scaled_attention", is_causal)
    tensors = {"q": q, "k": k, "v": v, "scale_q": scale_q, "scale_k": scale_k, "scale_v": scale_v}
    options = {"is_causal": causal, "scale": scale, "enable_gqa": enable_gqa, "out_dtype": out_dtype}
    return call("scaled_attention", tensors, **options)


@answering
def kv_append(
    key: Tensor,
    value: Tensor,
    key_pages: Tensor,
    value_pages: Tensor,
    block_table: Tensor,
    cu_seq: Tensor,
    seqused_k: Tensor,
    *,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    interleaved: bool = False,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
) -> None:
    """Writes the new keys and values of sequences into their pages, in place, as ``varlen_attention`` reads them after.

    The tokens ``cu_seq[i]`` to ``cu_seq[i + 1]`` become the last of the ``seqused_k[i]`` keys of sequence i: that number has
    them already, so that attention is given the same, and key j lies in page ``block_table[i, j // page size]``.

    Args:
        key: ``[tokens, heads, E]`` of float16, bfloat16, float32 or float64.
        value: ``[tokens, heads, Ev]``.
        key_pages: ``[pages, page size, heads, E]``, of any strides and page size; of key's type, or, beside float16 and
            bfloat16, of float8_e4m3fn.
        value_pages: ``[pages, page size, heads, Ev]``.
        block_table: ``[sequences, pages of a sequence]`` of int32.
        cu_seq: ``[sequences + 1]`` of int32 or int64: 0, and where each sequence's tokens end.
        seqused_k: ``[sequences]`` of int32 or int64.
        cos, sin: ``[places, angles]`` in float32 or key's type: the first ``2·angles`` elements of a key are turned by
            the angles of its place, element c with element ``c + angles``, in float32 (float64) and rounded once, as a
            rotary embedding. Values are as they come.
        interleaved: neighbours are turned with each other instead.
        k_descale, v_descale: as ``varlen_attention`` is given them, of any shape that broadcasts to ``[sequences, heads]``.
            Pages of float8_e4m3fn have what is divided by them in float32, clamped to ±448 and rounded once; a NaN stays
            one.

    What numbers leave no place for, or no angles, is not written on a GPU; on the CPU they are refused, before anything is
    written. Without gradients. Under autocast key and value take the type of the pages, for those of float8_e4m3fn the
    region's. Under vmap one is appended
    after the other, each to pages of its own. Of DTensors pages are whole on every device or sharded by heads, key and value
    as they are, and all else is replicated: nothing is redistributed.

    Examples:
        >>> import torch, wmma_ops
        >>> pages, table = torch.zeros(2, 4, 1, 2), torch.tensor([[1]], dtype=torch.int32)
        >>> new, ends, used = torch.ones(2, 1, 2), torch.tensor([0, 2]), torch.tensor([3])
        >>> wmma_ops.kv_append(new, new, pages, pages.clone(), table, ends, used)
        >>> pages.sum((2, 3))
        tensor([[0., 0., 0., 0.],
                [0., 2., 2., 0.]])
    """
    tensors = {
        "key": key,
        "value": value,
        "key_pages": key_pages,
        "value_pages": value_pages,
        "block_table": block_table,
    }
    tensors |= {"cu_seq": cu_seq, "seqused_k": seqused_k, "cos": cos, "sin": sin}
    tensors |= {"k_descale": k_descale, "v_descale": v_descale}
    try:
        _kv_append(*tensors.values(), interleaved=interleaved)
    except (RuntimeError, TypeError) as error:
        raise translate("kv_append", error, tensors) from None


def _causal(op: str, is_causal: bool | str) -> int:
    """As the op has it."""
    taken = "takes a bool, 'top_left' or 'bottom_right'"
    if not isinstance(is_causal, (bool, str)):
        raise TypeError(f"wmma.{op}: is_causal is of type {type(is_causal).__name__}; {taken}")
    if is_causal not in CAUSAL:
        raise ValueError(f"wmma.{op}: is_causal is {is_causal!r}; {taken}")
    return CAUSAL[is_causal]


def _mods(op: str, tensors: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """By the names that the op gives them."""
    if not isinstance(tensors, (tuple, list)) or not all(isinstance(x, Tensor) for x in tensors):
        raise TypeError(f"wmma.{op}: mod_operands is {tensors!r}; takes a tuple of tensors")
    if len(tensors) > len(score_functions.ARGUMENTS):
        raise ValueError(f"wmma.{op}: mod_operands has {len(tensors)} tensors; takes up to 4")
    return dict(zip(score_functions.ARGUMENTS, tensors, strict=False))


def _laid_as_said(x: Tensor) -> Tensor:
    """A DTensor, contiguous: results lie as what they are of does, and what is spread in another way on its way to an op
    lies otherwise than it says."""
    return x.contiguous() if type(x) is not Tensor and hasattr(x, "placements") else x


def _seed(op: str, q: Tensor, p: float, seed: Tensor | None) -> Tensor | None:
    """What the op is given: none where nothing is dropped."""
    if seed is not None and not isinstance(seed, Tensor):
        raise TypeError(f"wmma.{op}: dropout_seed is of type {type(seed).__name__}; takes a tensor of one int64")
    if isinstance(p, (int, float)) and not p > 0:  # what is no probability the op itself refuses
        return None
    return new_seed(q.device) if seed is None else seed


def _rules(op: str, name: str, window: tuple[int, int], softcap: float, dropout_p: float) -> dict:
    """As the op has them. What has its default is left out, so that graphs name what is asked for alone."""
    is_pair = isinstance(window, (tuple, list)) and len(window) == 2
    if not is_pair or not all(isinstance(size, int) and not isinstance(size, bool) for size in window):
        raise TypeError(f"wmma.{op}: {name} is {window!r}; takes two integers, of keys to the left and to the right")
    given = {"window_left": (window[0], -1), "window_right": (window[1], -1), "softcap": (softcap, 0.0)}
    given["dropout_p"] = (dropout_p, 0.0)
    return {name: x for name, (x, default) in given.items() if isinstance(x, Tensor) or x != default}
